"""Dynamic sampling: the rows of groups that teach anything."""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from tinyrl.course.exercise import Case, Exercise, Mistakes
from tinyrl.course.exercises.lab08.rewards import equal, graded, pass_or_fail
from tinyrl.course.words import Words


def _differ(R: Tensor) -> Tensor:
    return R.amax(1) > R.amin(1)


def reference(rewards: Tensor, group_size: int) -> Tensor:
    differ = _differ(rewards.view(-1, group_size))
    return differ.repeat_interleave(group_size)


def _by_loops(rewards: Tensor, group_size: int) -> Tensor:
    kept: list[bool] = []
    for start in range(0, len(rewards), group_size):
        group = rewards[start : start + group_size].tolist()
        kept += [len(set(group)) > 1] * group_size
    return torch.tensor(kept)


def _expanded(rewards: Tensor, group_size: int) -> Tensor:
    R = rewards.reshape(-1, group_size)
    some = (R[:, :1] != R).any(1, keepdim=True)
    return some.expand_as(R).reshape(-1)


def _rows(differ: Tensor, group_size: int) -> Tensor:
    return differ.repeat_interleave(group_size)


MISTAKES: Mistakes = {
    "groups": (
        lambda rewards, n: _differ(rewards.view(-1, n)),
        Words(
            en="This is one value for each group. Return one for each response: the rows "
            "to keep.",
            zh="这是每组一个值。应当每条回答一个：要保留哪些行。",
        ),
    ),
    "repeat": (
        lambda rewards, n: _differ(rewards.view(-1, n)).repeat(n),
        Words(
            en="`repeat` lays the whole list down again and again. Each group's value has "
            "to stand n times in a row: `repeat_interleave`.",
            zh="`repeat` 是把整个列表重复多遍。每组的值要连续出现 n 次：`repeat_interleave`"
            "。",
        ),
    ),
    "dropped": (
        lambda rewards, n: ~reference(rewards, n),
        Words(
            en="This is true for what is dropped. Asked for is what is kept.",
            zh="这里被丢弃的为真。题目要的是被保留的。",
        ),
    ),
    "any_success": (
        lambda rewards, n: _rows(rewards.view(-1, n).amax(1) > 0, n),
        Words(
            en="You keep every group with a success. One in which all are right teaches "
            "nothing either: all advantages are 0.",
            zh="凡有成功的组你都保留了。全对的组同样学不到东西：advantage 全为 0。",
        ),
    ),
    "any_failure": (
        lambda rewards, n: _rows(rewards.view(-1, n).amin(1) < 1, n),
        Words(
            en="You keep every group with a failure. One in which all are wrong teaches "
            "nothing either.",
            zh="凡有失败的组你都保留了。全错的组同样学不到东西。",
        ),
    ),
    "mean_between": (
        lambda rewards, n: _rows(
            (rewards.view(-1, n).mean(1) > 0) & (rewards.view(-1, n).mean(1) < 1), n
        ),
        Words(
            en="A mean between 0 and 1 tells right and wrong answers apart, but rewards "
            "can be anything: equal halves have mean 0.5 and teach nothing. Compare the "
            "rewards with each other.",
            zh="均值在 0 和 1 之间只适合对错型奖励。奖励可以是任何数：全是 0.5 时均值也是"
            " 0.5，却学不到东西。应当比较组内的奖励。",
        ),
    ),
    "rounding": (
        lambda rewards, n: _rows(
            (rewards.view(-1, n) != rewards.view(-1, n).mean(1, keepdim=True)).any(1), n
        ),
        Words(
            en="You compare with the mean, or with the deviation that comes of it. The "
            "mean of equal rewards can differ from them in the last bit, and the group "
            "would be kept. Compare the largest with the smallest.",
            zh="你拿均值（或由它得到的标准差）来比较。相等奖励的均值可能差最后一位，于是整"
            "组被保留。应当比较最大值与最小值。",
        ),
    ),
    "tolerant": (
        lambda rewards, n: _rows(rewards.view(-1, n).std(1) > 0.05, n),
        Words(
            en="A threshold or a rounding drops groups whose rewards differ little. "
            "However little it is, they differ: keep them. Compare the rewards exactly.",
            zh="阈值或舍入会丢掉奖励差别很小的组。差别再小也是不同，应当保留。请精确比较奖励"
            "。",
        ),
    ),
    "successes": (
        lambda rewards, n: (
            reference(rewards, n)
            & (rewards > rewards.view(-1, n).amin(1).repeat_interleave(n))
        ),
        Words(
            en="You drop the worse rows of a group that is kept. A group stays whole: what "
            "is worse has to be pushed down.",
            zh="你把保留组里较差的行也丢了。整组都要留下：较差的要被压低。",
        ),
    ),
    "interleaved": (
        lambda rewards, n: _differ(rewards.view(n, -1).T).repeat(n),
        Words(
            en="You read the groups interleaved. Here a group stands in one piece: "
            "`rewards.view(-1, group_size)`.",
            zh="你把各组当成交错排列了。这里每组是连续的一段：`rewards.view(-1, "
            "group_size)`。",
        ),
    ),
    "not_zero_advantage": (
        lambda rewards, n: (
            rewards.view(-1, n)
            .sub(rewards.view(-1, n).median(1, True)[0])
            .ne(0)
            .reshape(-1)
        ),
        Words(
            en="You keep the rows that differ from their group's middle. Whole groups are "
            "kept or dropped.",
            zh="你保留的是与组内中位数不同的行。应当整组保留或整组丢弃。",
        ),
    ),
}

BY_HAND = Words(
    en="three groups of two: mixed, all right, all wrong",
    zh="三组，每组两条：有对有错、全对、全错",
)
MIXED = Words(en="every group is mixed", zh="每组都有对有错")
BINARY = Words(
    en="1 for right and -1 for wrong, some groups all alike",
    zh="对为 1，错为 -1，有些组全部相同",
)
GRADED = Words(en="graded rewards, some groups all alike", zh="分级的奖励，有些组全部相同")
CLOSE = Words(
    en="rewards that differ by the last bit of a float, or by 1e-30",
    zh="奖励只差浮点数的最后一位，或只差 1e-30",
)
EQUAL = Words(
    en="equal rewards whose mean is not exactly their value",
    zh="奖励全部相等，但均值与它们不完全相等",
)


def cases(generator: Generator) -> list[Case]:
    def some_alike(R: Tensor, values: list[float]) -> Tensor:
        """Groups `[G, n]`; as many as there are values hold only one of them."""
        places = torch.randperm(len(R), generator=generator)[: len(values)]
        R[places] = torch.tensor(values)[:, None]
        return R.reshape(-1)

    hand = torch.tensor([1.0, 0.0, 1.0, 1.0, 0.0, 0.0])
    right = 2 * pass_or_fail(generator, 7, 4).view(7, 4) - 1
    points = graded(generator, 6, 5).view(6, 5)
    few = pass_or_fail(generator, 5, 3).view(5, 3)
    close = torch.cat([0.5 + few[:3] * 2.0**-24, few[3:] * 2.0**-100])
    return [
        Case("example", BY_HAND, (hand, 2)),
        Case("property", MIXED, (pass_or_fail(generator, 4, 6), 6)),
        Case("inputs", BINARY, (some_alike(right, [-1.0, -1.0, 1.0]), 4)),
        Case("inputs", GRADED, (some_alike(points, [0.5, 1.5, 0.0]), 5)),
        Case("numbers", CLOSE, (some_alike(close, [0.5]), 3)),
        Case("numbers", EQUAL, (equal(generator, 4, 6), 6)),
    ]


EXERCISE = Exercise(
    name="informative_rows",
    title=Words(en="Dynamic sampling", zh="动态采样"),
    reference=reference,
    returns=("kept",),
    cases=cases,
    mistakes=MISTAKES,
    alternatives={"loops": _by_loops, "expanded": _expanded},
    hints=(
        Words(
            en="When are all advantages of a group 0? And what is asked for: groups, or "
            "rows?",
            zh="什么时候一组的 advantage 全为 0？题目要的是组，还是行？",
        ),
        Words(
            en="Keep a group if its largest reward is above its smallest, and say so once "
            "for each of its rows.",
            zh="最大奖励大于最小奖励的组要保留；对组内每一行都写一次。",
        ),
        Words(
            en="`R = rewards.view(-1, group_size)`, `R.amax(1) > R.amin(1)`, then "
            "`.repeat_interleave(group_size)`.",
            zh="先 `R = rewards.view(-1, group_size)` 和 `R.amax(1) > R.amin(1)`，再 "
            "`.repeat_interleave(group_size)`。",
        ),
    ),
    points=(1, 1),
    minutes=5,
    exact=True,
    boolean=("kept",),
)
