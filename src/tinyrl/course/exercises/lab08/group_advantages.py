"""Group advantages: rewards against their group, in units of its spread."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Generator, Tensor

from tinyrl.course.exercise import Case, Exercise, Function, Mistakes
from tinyrl.course.exercises.lab08 import slips
from tinyrl.course.exercises.lab08.rewards import equal, graded, pass_or_fail
from tinyrl.course.words import Words

EPS = 1e-6


def _equal(R: Tensor) -> Tensor:
    return R.amax(1, keepdim=True) == R.amin(1, keepdim=True)


def _scored(R: Tensor, correction: int) -> Tensor:
    """Of groups `[G, n]`; a group of equal rewards may have rounding left in it."""
    n = R.shape[1]
    off = R - R.mean(1, keepdim=True)
    return off / ((off.square().sum(1, keepdim=True) / (n - correction)).sqrt() + EPS)


def reference(rewards: Tensor, group_size: int, correction: int) -> Tensor:
    R = rewards.view(-1, group_size)
    return torch.where(_equal(R), 0.0, _scored(R, correction)).reshape(-1)


def _by_loops(rewards: Tensor, group_size: int, correction: int) -> Tensor:
    out = torch.zeros_like(rewards)
    for start in range(0, len(rewards), group_size):
        some = slice(start, start + group_size)
        R = rewards[some]
        if R.min() < R.max():
            out[some] = (R - R.mean()) / (R.std(correction=correction) + EPS)
    return out


def _shifted(rewards: Tensor, group_size: int, correction: int) -> Tensor:
    """Each group's first reward taken off: equal ones are then exactly 0."""
    R = rewards.reshape(-1, group_size)
    R = R - R[:, :1]
    std = R.std(1, correction=correction, keepdim=True)
    return ((R - R.mean(1, keepdim=True)) / (std + EPS)).flatten()


def _of(score: Callable[[Tensor, int], Tensor]) -> Function:
    """The same with another `score` of groups [G, n]."""

    def wrong(rewards: Tensor, group_size: int, correction: int) -> Tensor:
        R = rewards.view(-1, group_size)
        return torch.where(_equal(R), 0.0, score(R, correction)).reshape(-1)

    return wrong


def _whole_batch(R: Tensor, correction: int) -> Tensor:
    return (R - R.mean()) / (R.std(correction=correction) + EPS)


def _batch_std(R: Tensor, correction: int) -> Tensor:
    return (R - R.mean(1, keepdim=True)) / (R.std(correction=correction) + EPS)


def _others(R: Tensor, correction: int) -> Tensor:
    n = R.shape[1]
    return _scored(R, correction) * n / (n - 1)


def _variance(R: Tensor, correction: int) -> Tensor:
    return (R - R.mean(1, keepdim=True)) / (
        R.var(1, correction=correction, keepdim=True) + EPS
    )


def _bare(R: Tensor, correction: int) -> Tensor:
    return (R - R.mean(1, keepdim=True)) / R.std(1, correction=correction, keepdim=True)


def _interleaved(rewards: Tensor, group_size: int, correction: int) -> Tensor:
    R = rewards.view(group_size, -1).T
    return torch.where(_equal(R), 0.0, _scored(R, correction)).T.reshape(-1)


def _zero_by_zero(rewards: Tensor, group_size: int, correction: int) -> Tensor:
    R = rewards.view(-1, group_size)
    off = R - R.mean(1, keepdim=True)
    off = torch.where(_equal(R), 0.0, off)
    return (
        off / off.square().sum(1, keepdim=True).div(R.shape[1] - correction).sqrt()
    ).view(-1)


MISTAKES: Mistakes = {
    "whole_batch": (
        _of(_whole_batch),
        Words(
            en="Mean and deviation are those of the whole batch. A response is compared "
            "with the others to its own prompt.",
            zh="均值和标准差取自整个 batch。一条回答只与同一 prompt 的其他回答比较。",
        ),
    ),
    "batch_std": (
        _of(_batch_std),
        Words(
            en="The mean is the group's, the deviation is the batch's (a choice that TRL "
            "offers, too). Asked for is the group's.",
            zh="均值是组内的，标准差却是整个 batch 的（TRL 也有这种选项）。题目要的是组内"
            "的。",
        ),
    ),
    "not_divided": (
        _of(lambda R, correction: R - R.mean(1, keepdim=True)),
        Words(
            en="The division by the deviation is missing. Dr. GRPO leaves it out on "
            "purpose; GRPO has it.",
            zh="没有除以标准差。Dr. GRPO 是有意去掉的，GRPO 则要除。",
        ),
    ),
    "not_centred": (
        _of(lambda R, c: R / (R.std(1, correction=c, keepdim=True) + EPS)),
        Words(
            en="The group's mean is not taken off: every success is pushed up, and no "
            "failure down.",
            zh="没有减去组内均值：成功的都被推高，失败的却不被压低。",
        ),
    ),
    "variance": (
        _of(_variance),
        Words(
            en="You divide by the variance; take its square root.",
            zh="你除以了方差，还要开平方。",
        ),
    ),
    "epsilon": (
        _of(_bare),
        Words(
            en="The 1e-6 next to the deviation is missing, or too small. Where rewards "
            "differ by a thousandth it shows.",
            zh="标准差旁边的 1e-6 漏了，或者太小。奖励只差千分之一时就看得出来。",
        ),
    ),
    "always_sample": (
        _of(lambda R, c: _scored(R, 1)),
        Words(
            en="The deviation divides by n - 1 always: `torch.std` does so unless told. "
            "It should be n - correction.",
            zh="标准差总是除以 n - 1：`torch.std` 默认如此。应当是 n - correction。",
        ),
    ),
    "always_population": (
        _of(lambda R, c: _scored(R, 0)),
        Words(
            en="The deviation divides by n always, as numpy's does. It should be n - "
            "correction.",
            zh="标准差总是除以 n，numpy 默认如此。应当是 n - correction。",
        ),
    ),
    "others": (
        _of(_others),
        Words(
            en="You compare with the mean of the *other* rewards (RLOO). Asked for is the "
            "mean of all of the group.",
            zh="你用的是*其他*回答的均值（RLOO）。题目要的是整组的均值。",
        ),
    ),
    "interleaved": (
        _interleaved,
        Words(
            en="You read the groups interleaved. Here a group stands in one piece: "
            "`rewards.view(-1, group_size)`.",
            zh="你把各组当成交错排列了。这里每组是连续的一段：`rewards.view(-1, "
            "group_size)`。",
        ),
    ),
    "sign": (
        lambda *args: -reference(*args),
        Words(
            en="The sign is wrong: a reward above the mean has a positive advantage.",
            zh="符号反了：高于均值的奖励，advantage 为正。",
        ),
    ),
    "groups": (
        lambda rewards, n, c: reference(rewards, n, c).view(-1, n),
        Words(
            en="Return [B], one advantage for each response, in the order of the rewards.",
            zh="应当返回 [B]：每条回答一个 advantage，顺序与 rewards 相同。",
        ),
    ),
    "zero_by_zero": (
        _zero_by_zero,
        Words(
            en="Where all rewards of a group are equal you divide 0 by 0. Such a group has "
            "advantage 0.",
            zh="组内奖励全部相等时，你用 0 除以 0。这样的组 advantage 为 0。",
        ),
    ),
    "rounding": (
        lambda rewards, n, c: _scored(rewards.view(-1, n), c).reshape(-1),
        Words(
            en="Equal rewards do not get 0: their mean differs from them in the last bit, "
            "and the division by 1e-6 makes a push of that. Look whether the largest and "
            "the smallest of the group are the same number.",
            zh="相等的奖励没有得到 0：它们的均值在最后一位上有差别，除以 1e-6 后就成了推力"
            "。应当比较组内最大值与最小值是否是同一个数。",
        ),
    ),
} | slips.GROUPS

BY_HAND = Words(
    en="one success of four, then all alike", zh="四条中一条成功；另一组全部相同"
)
BINARY = Words(en="right and wrong answers", zh="只有对与错")
GRADED = Words(en="graded rewards", zh="分级的奖励")
TWO = Words(
    en="groups of two, some of rewards a thousandth apart, or 1e-9",
    zh="每组两条，有些奖励只差千分之一，或 1e-9",
)
ALONE = Words(en="one success in a large group", zh="一大组里只有一条成功")
EQUAL = Words(
    en="equal rewards whose mean is not exactly their value",
    zh="奖励全部相等，但均值与它们不完全相等",
)


def cases(generator: Generator) -> list[Case]:
    hand = torch.tensor([1.0, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 1.0])
    alone = torch.zeros(256)
    alone[int(torch.randint(128, (), generator=generator))] = 1.0
    alone[128:] = pass_or_fail(generator, 1, 128)
    same = equal(generator, 3, 6)
    same[-6:] *= 2.0**-22  # near 1e-6, where the others' deviation lies
    two = [graded(generator, 3, 2), pass_or_fail(generator, 2, 2) / 1024]
    two.append(pass_or_fail(generator, 1, 2) * 2.0**-30)
    return [
        Case("example", BY_HAND, (hand, 4, 1)),
        Case("property", TWO, (torch.cat(two), 2, 1)),
        Case("inputs", BINARY, (pass_or_fail(generator, 5, 8), 8, 1)),
        Case("inputs", GRADED, (graded(generator, 4, 6), 6, 0)),
        Case("inputs", GRADED, (4 * graded(generator, 3, 5) - 5, 5, 1)),
        Case("numbers", ALONE, (alone, 128, 0)),
        Case("numbers", EQUAL, (same, 6, 1)),
    ]


EXERCISE = Exercise(
    name="group_advantages",
    title=Words(en="Group advantages", zh="组内 advantage"),
    reference=reference,
    returns=("advantages",),
    cases=cases,
    mistakes=MISTAKES,
    alternatives={"loops": _by_loops, "shifted": _shifted},
    hints=(
        Words(
            en="Make the groups rows of a matrix. Then everything is along one axis.",
            zh="先把各组排成矩阵的行，然后一切都在一个轴上进行。",
        ),
        Words(
            en="Take the row's mean off, divide by its deviation plus 1e-6, and put 0 "
            "where the row's largest is its smallest.",
            zh="减去行均值，除以行标准差加 1e-6；最大值等于最小值的行填 0。",
        ),
        Words(
            en="`R = rewards.view(-1, group_size)`, "
            "`R.std(1, correction=correction, keepdim=True)`, "
            "`torch.where(R.amax(1, keepdim=True) == R.amin(1, keepdim=True), 0.0, A)`.",
            zh="用 `R = rewards.view(-1, group_size)`、"
            "`R.std(1, correction=correction, keepdim=True)` 和 "
            "`torch.where(R.amax(1, keepdim=True) == R.amin(1, keepdim=True), 0.0, A)`。",
        ),
    ),
    points=(1, 2),
    minutes=8,
    exact=True,
    floor=4.0,
)
