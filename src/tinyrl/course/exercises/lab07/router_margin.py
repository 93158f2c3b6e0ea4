"""How near a router is to choosing otherwise."""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from tinyrl.course.exercise import Case, Exercise, Mistakes
from tinyrl.course.exercises.lab07.routed import TOKENS, router_logits
from tinyrl.course.words import Words


def _between(logits: Tensor, upper: int, lower: int) -> Tensor:
    """The logit of rank `upper` minus that of rank `lower`; rank 0 is the largest."""
    ranked = logits.sort(-1, descending=True).values
    return ranked[..., upper] - ranked[..., lower]


def reference(logits: Tensor, k: int) -> Tensor:
    return _between(logits, k - 1, k)


def _topk(logits: Tensor, k: int) -> Tensor:
    top = logits.topk(k + 1).values
    return top[..., :k].amin(-1) - top[..., k:].amax(-1)


def _kthvalue(logits: Tensor, k: int) -> Tensor:
    E = logits.shape[-1]
    return logits.kthvalue(E - k + 1).values - logits.kthvalue(E - k).values


def _sums(logits: Tensor, k: int) -> Tensor:
    chosen = logits.topk(k).values.sum(-1)
    return chosen - (logits.sum(-1) - chosen)


def _to_mean(logits: Tensor, k: int) -> Tensor:
    ranked = logits.sort(-1, descending=True).values
    return ranked[..., k - 1] - ranked[..., k:].mean(-1)


MISTAKES: Mistakes = {
    "best_two": (
        lambda logits, k: _between(logits, 0, 1),
        Words(
            en="This is the lead of the best expert over the second. Both are chosen when "
            "k is 2: the border lies between the k-th and the next.",
            zh="这是第一名领先第二名的距离。k = 2 时两者都会被选中；边界在第 k 名和下一名"
            "之间。",
        ),
    ),
    "best_to_next": (
        lambda logits, k: _between(logits, 0, k),
        Words(
            en="You measure from the best expert. The one that falls out first is the "
            "weakest of the chosen, the k-th.",
            zh="你从第一名量起。最先掉出去的是入选者里最弱的第 k 名。",
        ),
    ),
    "inside": (
        lambda logits, k: _between(logits, k - 2, k - 1),
        Words(
            en="One rank too high: these two are both chosen, whatever their order.",
            zh="名次高了一位：这两个都已入选，它们之间的先后无关紧要。",
        ),
    ),
    "outside": (
        lambda logits, k: _between(logits, k, min(k + 1, logits.shape[-1] - 1)),
        Words(
            en="One rank too low: neither of these two is chosen. Counting from 0, the "
            "k-th largest has rank k - 1.",
            zh="名次低了一位：这两个都没入选。从 0 数起，第 k 大的名次是 k - 1。",
        ),
    ),
    "to_worst": (
        lambda logits, k: _between(logits, k - 1, -1),
        Words(
            en="You measure to the worst expert. The first to come in is the best of those "
            "left out.",
            zh="你量到了最差的专家。最先挤进来的是落选者里最好的那个。",
        ),
    ),
    "to_mean": (
        _to_mean,
        Words(
            en="You measure to the mean of the experts left out. One of them is enough for "
            "a flip: the best.",
            zh="你量到的是落选专家的平均。只要其中最好的一个反超，就会翻转。",
        ),
    ),
    "sums": (
        _sums,
        Words(
            en="This compares sums of logits. A flip is a matter of two: the last that is "
            "in, and the first that is out.",
            zh="你比较的是 logit 之和。翻转只取决于两个专家：最后入选的和最先落选的。",
        ),
    ),
    "probabilities": (
        lambda logits, k: reference(logits.softmax(-1), k),
        Words(
            en="This is the margin of probabilities. Rounding acts on logits, and there a "
            "margin has a size that you can compare with it.",
            zh="这是概率上的间隔。舍入作用在 logit 上，在 logit 上量的间隔才能和舍入误差相"
            "比。",
        ),
    ),
    "half": (
        lambda logits, k: reference(logits, k) / 2,
        Words(
            en="This is half the margin: the error that each of the two logits must have "
            "if they move against each other. Asked for is their distance.",
            zh="这是间隔的一半，即两个 logit 相向移动时各自所需的误差。题目要的是它们的距"
            "离。",
        ),
    ),
    "negative": (
        lambda logits, k: -reference(logits, k),
        Words(
            en="The sign is wrong: the chosen one has the larger logit, so a margin is "
            "never negative.",
            zh="符号反了：入选者的 logit 更大，间隔不会是负的。",
        ),
    ),
    "unsorted": (
        lambda logits, k: logits[..., k - 1] - logits[..., k],
        Words(
            en="You take columns k - 1 and k as they stand. Experts are not sorted by "
            "their logits: `sort` or `topk` first.",
            zh="你直接取了第 k - 1 列和第 k 列。专家并没有按 logit 排好序：请先 `sort` 或"
            " `topk`。",
        ),
    ),
    "smallest_of_all": (
        lambda logits, k: reference(logits, k).min(),
        Words(
            en="This is the smallest margin of all tokens. Each token has its own.",
            zh="这是所有 token 里最小的间隔。题目要求每个 token 一个值。",
        ),
    ),
}

BY_HAND = Words(en="two tokens, four experts, k = 2", zh="两个 token、四个专家、k = 2")
TIE = Words(en="a tie at the border: the margin is 0", zh="边界上两个 logit 相等：间隔为 0")
FIRST = Words(en="k = 1, a single token", zh="k = 1，只有一个 token")
LAST = Words(en="k = E - 1: a single expert is out", zh="k = E - 1：只有一个专家落选")
NEAR = Words(
    en="logits near 1000, margins of a hundredth", zh="1000 左右的 logits，间隔约百分之一"
)


def cases(generator: Generator) -> list[Case]:
    tie = router_logits(generator, 5, 8)
    third, fourth = tie.argsort(-1, descending=True)[:, 2:4].T
    rows = torch.arange(5)
    tie[rows, third] = tie[rows, fourth]
    small = torch.tensor([[2.0, 1.0, 0.5, -1.0], [-1.0, 0.25, -0.5, 0.0]])
    return [
        Case("example", BY_HAND, (small, 2)),
        Case("property", TIE, (tie, 3)),
        Case("inputs", TOKENS, (router_logits(generator, 6, 8), 3)),
        Case("inputs", TOKENS, (3 * router_logits(generator, 9, 16), 4)),
        Case("inputs", FIRST, (router_logits(generator, 1, 6), 1)),
        Case("inputs", LAST, (router_logits(generator, 5, 6), 5)),
        Case("numbers", NEAR, (1000 + router_logits(generator, 6, 8) / 64, 3)),
    ]


EXERCISE = Exercise(
    name="router_margin",
    title=Words(en="The router's margin", zh="路由间隔"),
    reference=reference,
    returns=("margin",),
    cases=cases,
    mistakes=MISTAKES,
    alternatives={"topk": _topk, "kthvalue": _kthvalue},
    hints=(
        Words(
            en="Which two experts change places when a token flips? One of them is the "
            "weakest that was chosen.",
            zh="发生翻转时是哪两个专家互换？其中一个是入选者里最弱的。",
        ),
        Words(
            en="The k-th largest logit minus the (k + 1)-th.",
            zh="第 k 大的 logit 减去第 k + 1 大的 logit。",
        ),
        Words(
            en="`top = logits.topk(k + 1).values`, then `top[:, k - 1] - top[:, k]`.",
            zh="先 `top = logits.topk(k + 1).values`，再 `top[:, k - 1] - top[:, k]`。",
        ),
    ),
    points=(1, 1),
    minutes=4,
)
