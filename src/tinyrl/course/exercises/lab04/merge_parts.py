"""Two partial attentions merged by their logsumexp: what split-KV kernels do last."""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from tinyrl.course.exercise import Case, Exercise, Function, Mistakes
from tinyrl.course.exercises.lab04.draws import normal
from tinyrl.course.words import Words

Two = tuple[Tensor, Tensor]


def reference(y1: Tensor, lse1: Tensor, y2: Tensor, lse2: Tensor) -> Two:
    lse = torch.logaddexp(lse1, lse2)
    w1, w2 = (lse1 - lse).exp(), (lse2 - lse).exp()
    return w1[:, None] * y1 + w2[:, None] * y2, lse


def _stacked(y1: Tensor, lse1: Tensor, y2: Tensor, lse2: Tensor) -> Two:
    both = torch.stack([lse1, lse2])
    weights = both.softmax(0)[..., None]
    return (weights * torch.stack([y1, y2])).sum(0), both.logsumexp(0)


def _by_hand(y1: Tensor, lse1: Tensor, y2: Tensor, lse2: Tensor) -> Two:
    top = torch.maximum(lse1, lse2)
    e1, e2 = (lse1 - top).exp(), (lse2 - top).exp()
    y = (e1[:, None] * y1 + e2[:, None] * y2) / (e1 + e2)[:, None]
    return y, top + (e1 + e2).log()


def _weighted(weight: Function) -> Function:
    """Another weight of the first part; the second has the rest."""

    def wrong(y1: Tensor, lse1: Tensor, y2: Tensor, lse2: Tensor) -> Two:
        w = weight(lse1, lse2)[:, None]
        return w * y1 + (1 - w) * y2, torch.logaddexp(lse1, lse2)

    return wrong


def _logsumexp(of: Function) -> Function:
    def wrong(y1: Tensor, lse1: Tensor, y2: Tensor, lse2: Tensor) -> Two:
        return reference(y1, lse1, y2, lse2)[0], of(lse1, lse2)

    return wrong


def _anchored(at: Function) -> Function:
    """Relative to something else than the larger of a row's two logsumexps."""

    def wrong(y1: Tensor, lse1: Tensor, y2: Tensor, lse2: Tensor) -> Two:
        anchor = at(lse1, lse2)
        e1, e2 = (lse1 - anchor).exp(), (lse2 - anchor).exp()
        y = (e1[:, None] * y1 + e2[:, None] * y2) / (e1 + e2)[:, None]
        return y, anchor + (e1 + e2).log()

    return wrong


def _not_normalised(y1: Tensor, lse1: Tensor, y2: Tensor, lse2: Tensor) -> Two:
    top = torch.maximum(lse1, lse2)
    e1, e2 = (lse1 - top).exp(), (lse2 - top).exp()
    return e1[:, None] * y1 + e2[:, None] * y2, top + (e1 + e2).log()


def _added(y1: Tensor, lse1: Tensor, y2: Tensor, lse2: Tensor) -> Two:
    return y1 + y2, torch.logaddexp(lse1, lse2)


MISTAKES: Mistakes = {
    "average": (
        _weighted(lambda a, b: torch.full_like(a, 0.5)),
        Words(
            en="You average the two parts. A part whose keys hardly match must count for "
            "less: its weight is its share of the sum of exps.",
            zh="你把两部分取了平均。与 query 不匹配的那部分应当占得更少：权重是它在指数和里"
            "所占的比例。",
        ),
    ),
    "swapped": (
        _weighted(lambda a, b: torch.sigmoid(b - a)),
        Words(
            en="The weights are swapped: the part with the larger logsumexp counts for "
            "more.",
            zh="权重写反了：logsumexp 较大的那部分权重更大。",
        ),
    ),
    "linear_weights": (
        _weighted(lambda a, b: a / (a + b)),
        Words(
            en="You weight by the logsumexps themselves. They are logarithms: take exp.",
            zh="你直接用 logsumexp 作权重。它们是对数，要先取 exp。",
        ),
    ),
    "winner_takes_all": (
        _weighted(lambda a, b: (a > b).to(a.dtype)),
        Words(
            en="You keep the part with the larger logsumexp and drop the other.",
            zh="你只保留了 logsumexp 较大的部分，丢掉了另一部分。",
        ),
    ),
    "added": (
        _added,
        Words(
            en="You add the two outputs. Each has been divided by its own sum already, so "
            "the weights have to add up to 1.",
            zh="你把两个输出直接相加了。它们各自已经除过自己的和，因此权重之和应为 1。",
        ),
    ),
    "not_normalised": (
        _not_normalised,
        Words(
            en="Your weights are exp(lse - max) and don't add up to 1. Divide by their "
            "sum.",
            zh="你的权重是 exp(lse - max)，加起来不是 1。还要除以它们的和。",
        ),
    ),
    "lse_added": (
        _logsumexp(lambda a, b: a + b),
        Words(
            en="You add the logsumexps. Their exps add, so the result is the logsumexp of "
            "the two.",
            zh="你把两个 logsumexp 相加了。相加的应当是它们的 exp，结果是两者的 logsumex"
            "p。",
        ),
    ),
    "lse_maximum": (
        _logsumexp(torch.maximum),
        Words(
            en="You return the larger logsumexp. The smaller part adds to the sum, too.",
            zh="你返回了较大的 logsumexp。较小的那部分也在和里。",
        ),
    ),
    "lse_average": (
        _logsumexp(lambda a, b: torch.logaddexp(a, b) - torch.tensor(2.0).log()),
        Words(
            en="Your logsumexp is too low by log 2: add the exps, don't average them.",
            zh="你的 logsumexp 小了 log 2：exp 应当相加而不是取平均。",
        ),
    ),
    "one_maximum": (
        _anchored(lambda a, b: torch.maximum(a.max(), b.max())),
        Words(
            en="You subtract one maximum for all rows. A row far below it underflows to "
            "0 / 0: each row has its own.",
            zh="你对所有行只减了一个最大值。远低于它的行会下溢成 0 / 0：每一行要用自己的。",
        ),
    ),
    "first_subtracted": (
        _anchored(lambda a, b: a),
        Words(
            en="You subtract the first logsumexp, whichever is larger: `exp` overflows "
            "where the second lies far above it.",
            zh="你总是减去第一个 logsumexp，不管哪个更大：第二个远高于它时 `exp` 会溢出。",
        ),
    ),
    "second_subtracted": (
        _anchored(lambda a, b: b),
        Words(
            en="You subtract the second logsumexp, whichever is larger: `exp` overflows "
            "where the first lies far above it.",
            zh="你总是减去第二个 logsumexp，不管哪个更大：第一个远高于它时 `exp` 会溢出。",
        ),
    ),
    "overflow": (
        _anchored(lambda a, b: torch.zeros_like(a)),
        Words(
            en="`exp` of a logsumexp overflows as soon as a score is large. Subtract the "
            "larger one first.",
            zh="只要分数较大，logsumexp 的 `exp` 就会溢出。先减去两者中较大的。",
        ),
    ),
}

BY_HAND = Words(en="a part worth 3 and one worth 1", zh="权重 3 与权重 1 的两部分")
SAME = Words(en="two parts that are the same", zh="两部分完全相同")
ANY = Words(en="random parts", zh="随机的两部分")
LARGE = Words(en="logsumexps near 900", zh="接近 900 的 logsumexp")
APART = Words(
    en="logsumexps 1800 apart, now one larger, now the other",
    zh="相差 1800 的 logsumexp，时而前者大，时而后者大",
)


def cases(generator: Generator) -> list[Case]:
    def part(rows: int, middle: float | Tensor = 2.0) -> Two:
        lse = middle + torch.rand(rows, generator=generator)
        return normal(generator, rows, 3), lse

    def far(rows: int, one: float | Tensor, other: float | Tensor) -> tuple[Tensor, ...]:
        """Outputs of opposite signs: where two parts agree, float32 loses more of their
        logsumexps than a change of them would show."""
        (up, high), (down, higher) = part(rows, one), part(rows, other)
        return up, high, -up.sign() * down.abs(), higher

    y1, y2 = torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 4.0]])
    hand = torch.tensor([3.0]).log(), torch.tensor([1.0]).log()
    y, lse = part(3)
    # Far enough for exp in float64, too; rows lie as far apart as parts do.
    first, second = torch.tensor(
        [[-900.0, 900.0, 2.0, -900.0], [900.0, -900.0, 1.5, -899.5]]
    )
    return [
        Case("example", BY_HAND, (y1, hand[0], y2, hand[1])),
        Case("property", SAME, (y, lse, y, lse)),
        Case("inputs", ANY, (*part(3), *part(3, 1.5))),
        Case("inputs", ANY, (*part(5, 1.0), *part(5))),
        Case("numbers", APART, far(4, first, second)),
        Case("numbers", LARGE, far(3, 900.0, 899.5)),
    ]


EXERCISE = Exercise(
    name="merge_parts",
    title=Words(en="Two parts of an attention", zh="合并两部分 attention"),
    reference=reference,
    returns=("y", "lse"),
    cases=cases,
    mistakes=MISTAKES,
    alternatives={"stacked": _stacked, "by_hand": _by_hand},
    hints=(
        Words(
            en="Each part is a mean of values, with weights that add up to 1 within the "
            "part. How much of the whole sum of exps does each part hold?",
            zh="每部分都是值的加权平均，部分内权重之和为 1。整个指数和里，每部分各占多少？",
        ),
        Words(
            en="The whole sum is exp(lse1) + exp(lse2). A part's weight is its exp over "
            "that sum, and the new lse is the log of the sum.",
            zh="总和是 exp(lse1) + exp(lse2)。每部分的权重是自己的 exp 除以总和，新的 lse "
            "是总和的对数。",
        ),
        Words(
            en="`torch.logaddexp(lse1, lse2)` does not overflow; the weight of the first "
            "part is then `(lse1 - lse).exp()`, and `[:, None]` makes it a column.",
            zh="`torch.logaddexp(lse1, lse2)` 不会溢出；第一部分的权重就是 `(lse1 - "
            "lse).exp()`，`[:, None]` 把它变成一列。",
        ),
    ),
    points=(1, 2),
    minutes=8,
)
