"""Rejection of whole responses: a band for the geometric mean, and a veto."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Generator, Tensor

from tinyrl.course.exercise import Case, Exercise, Function, Mistakes
from tinyrl.course.exercises.lab01 import batch
from tinyrl.course.words import Words


def _delta(logp_train: Tensor, logp_rollout: Tensor, mask: Tensor) -> Tensor:
    return torch.where(mask, logp_train - logp_rollout, 0.0)


def _mean(d: Tensor, mask: Tensor) -> Tensor:
    return d.sum(1, keepdim=True) / mask.sum(1, keepdim=True).clamp(min=1)


def _band(x: Tensor, lower: float, upper: float) -> Tensor:
    return (x >= math.log(lower)) & (x <= math.log(upper))


def _vetoed(d: Tensor, veto: float) -> Tensor:
    return (d < math.log(veto)).any(1, keepdim=True)


def reference(
    logp_train: Tensor,
    logp_rollout: Tensor,
    mask: Tensor,
    lower: float,
    upper: float,
    veto: float,
) -> Tensor:
    d = _delta(logp_train, logp_rollout, mask)
    return mask & _band(_mean(d, mask), lower, upper) & ~_vetoed(d, veto)


def _row_by_row(
    a: Tensor, b: Tensor, m: Tensor, low: float, high: float, v: float
) -> Tensor:
    kept = torch.zeros_like(m)
    for i, real in enumerate(m):
        rho = (a[i][real] - b[i][real]).double().exp()
        if len(rho):
            kept[i] = real & (low <= rho.log().mean().exp() <= high) & (rho.min() >= v)
    return kept


def _powers(a: Tensor, b: Tensor, m: Tensor, low: float, high: float, v: float) -> Tensor:
    """Ratios, a power for the root, 1 in padding."""
    n = m.sum(1, keepdim=True).clamp(min=1)
    rho = (a - b).double().exp().masked_fill(~m, 1.0)
    root = rho.pow(1 / n).prod(1)
    stays = (root >= low) & (root <= high) & (rho >= v).all(1)
    return m & stays[:, None]


def _but(
    level: Callable[[Tensor, Tensor], Tensor] = _mean,
    veto: Callable[[Tensor, float], Tensor] = _vetoed,
) -> Function:
    """The right answer, but for what is held against the band, or for the veto."""

    def wrong(
        a: Tensor, b: Tensor, m: Tensor, lower: float, upper: float, least: float
    ) -> Tensor:
        d = _delta(a, b, m)
        return m & _band(level(d, m), lower, upper) & ~veto(d, least)

    return wrong


def _arithmetic(d: Tensor, mask: Tensor) -> Tensor:
    return _mean(d.exp() * mask, mask).log()


def _no_veto(d: Tensor, veto: float) -> Tensor:
    return torch.zeros_like(d).bool()


def _root_of_product(
    a: Tensor, b: Tensor, m: Tensor, low: float, high: float, v: float
) -> Tensor:
    d = _delta(a, b, m)
    root = d.exp().prod(1, keepdim=True) ** (1 / m.sum(1, keepdim=True))
    return m & (root >= low) & (root <= high) & ~_vetoed(d, v)


def _padding_vetoes(
    a: Tensor, b: Tensor, m: Tensor, low: float, high: float, v: float
) -> Tensor:
    return m & _band(_mean(_delta(a, b, m), m), low, high) & ~_vetoed(a - b, v)


MISTAKES: Mistakes = {
    "product": (
        _but(lambda d, m: d.sum(1, keepdim=True)),
        Words(
            en="You hold the *product* against the bounds: then the same mismatch a token "
            "drops long responses and keeps short ones. Divide the sum by the length.",
            zh="你拿 *连乘* 与界比较：同样的逐 token 失配，长回答被丢掉，短回答却留下。总"
            "和要除以长度。",
        ),
    ),
    "arithmetic": (
        _but(_arithmetic),
        Words(
            en="This is the arithmetic mean of token ratios, which a single large one "
            "decides. The geometric mean is exp of the mean delta.",
            zh="这是 token 比值的算术平均，一个大值就能左右它。几何平均是 delta 均值的 exp"
            "。",
        ),
    ),
    "columns": (
        _but(lambda d, m: d.mean(1, keepdim=True)),
        Words(
            en="You divide by the number of columns, so a short response looks better "
            "than it is. Count its real tokens.",
            zh="你除以了列数，短回答显得比实际更好。请数真实 token。",
        ),
    ),
    "inverted": (
        _but(lambda d, m: -_mean(d, m)),
        Words(
            en="The bounds apply to p_rollout / p_train here: upside down (verl#6377). "
            "rho has the trainer above.",
            zh="这里的界作用在 p_rollout / p_train 上，倒过来了（verl#6377）。rho 的分子是"
            "训练侧。",
        ),
    ),
    "no_log": (
        _but(lambda d, m: (1 + _mean(d, m)).log()),
        Words(
            en="You hold the mean delta against the bounds minus 1. That is the start of "
            "the series; compare with their logarithms, or take exp.",
            zh="你拿 delta 均值与“界减 1”比较，那只是展开的第一项。应与界的对数比较，或先"
            "取 exp。",
        ),
    ),
    "no_veto": (
        _but(veto=_no_veto),
        Words(
            en="The veto is missing: a response goes if any of its tokens has rho below "
            "it, whatever the mean.",
            zh="缺少一票否决：只要有一个 token 的 rho 低于它，整条回答就丢掉，不管均值如"
            "何。",
        ),
    ),
    "veto_token": (
        _but(veto=lambda d, v: d < math.log(v)),
        Words(
            en="Your veto drops the token alone. It is a sign that something is wrong "
            "with the whole response: all of it goes.",
            zh="你的否决只丢掉该 token。它说明整条回答有问题，应全部丢掉。",
        ),
    ),
    "veto_both": (
        _but(veto=lambda d, v: _vetoed(-d.abs(), v)),
        Words(
            en="Your veto falls on large ratios, too. It is for tokens that the trainer "
            "finds nearly impossible: rho below `veto`.",
            zh="你的否决也管了很大的比值。它针对训练侧认为几乎不可能的 token：rho 低于 "
            "`veto`。",
        ),
    ),
    "veto_alone": (
        _but(lambda d, m: torch.zeros_like(d)),
        Words(
            en="Only the veto is applied; the band for the geometric mean is missing.",
            zh="只用了否决，缺少几何平均的上下界。",
        ),
    ),
    "by_token": (
        _but(lambda d, m: d),
        Words(
            en="You judge each token by its own ratio. A response is kept or dropped "
            "whole.",
            zh="你按每个 token 自己的比值判断。一条回答要么全留，要么全丢。",
        ),
    ),
    "padding_vetoes": (
        _padding_vetoes,
        Words(
            en="What stands in the padding can veto. Only real tokens may.",
            zh="padding 里的数也能触发否决。只有真实 token 才可以。",
        ),
    ),
    "root_of_product": (
        _root_of_product,
        Words(
            en="The product of thousands of ratios overflows (or underflows) before its "
            "root is taken. Average the deltas instead.",
            zh="几千个比值连乘，开方之前就已上溢或下溢。应当对 delta 取平均。",
        ),
    ),
    "padding_kept": (
        lambda a, b, m, low, high, v: (
            reference(a, b, m, low, high, v).any(1, keepdim=True).expand_as(m)
        ),
        Words(
            en="A kept response takes its padding with it. Keep real tokens only: the "
            "loss's denominator counts them.",
            zh="留下的回答把 padding 也带上了。只留真实 token：损失的分母要数它们。",
        ),
    ),
}

HAND = Words(
    en="three responses: near 1, far from 1, near 1 with one impossible token",
    zh="三条回答：接近 1、远离 1、接近 1 但有一个几乎不可能的 token",
)
ALL = Words(en="equal policies: everything is kept", zh="两个策略相同：全部留下")
RANDOM = Words(
    en="responses on either side of each bound", zh="每个界两侧都有回答"
)  # each of them a case that another rule decides otherwise
GARBAGE = Words(
    en="garbage in the padding that would veto", zh="padding 里的垃圾值足以触发否决"
)


def cases(generator: Generator) -> list[Case]:
    def drawn(
        lower: float, upper: float, veto: float, padding: batch.Padding = "finite"
    ) -> tuple[Tensor | float, ...]:
        """A response for each way in which a rule can differ, in some order."""
        low, high, v, columns = math.log(lower), math.log(upper), math.log(veto), 10
        room = high - low
        means = [
            0.5 * high,  # kept; its product and its arithmetic mean are outside
            (low + lower - 1)
            / 2,  # kept; outside if no logarithm is taken, or turned round
            1.4 * high,  # too high; inside if divided by columns
            low - 0.3 * room,
            -low - 0.05 * room if -low > high * 1.3 else high * 1.2,  # kept if turned round
            0.0,  # vetoed
            0.0,  # a token just above the veto
            0.0,  # one very large ratio
        ]
        n = torch.tensor([9, 10, 6, 6, 9, 8, 10, 8])
        mask = torch.arange(columns) < n[:, None]
        d = batch.uniform(generator, (8, columns), -0.02, 0.02) * mask
        far = [v - 0.4, v + 0.4, 0.4 - v]
        for row, jump in zip((5, 6, 7), far, strict=True):
            d[row, 2] += jump
            d[row, 3:6] -= jump / 3
        d[0, :2] += torch.tensor([0.8, -0.8]) * abs(v) / 4
        d = torch.where(mask, d - (d.sum(1) / n)[:, None], 0.0)
        size = 1 + batch.uniform(generator, (8,), -0.02, 0.02)
        d = torch.where(mask, d + (torch.tensor(means) * size)[:, None], 0.0)
        rollout = batch.uniform(generator, (8, columns), -4.0, -1.0) - 8
        order = torch.randperm(8, generator=generator)
        rollout, train, mask = (x[order] for x in (rollout, rollout + d, mask))
        return (
            batch.garbage(generator, train, mask, padding),
            batch.garbage(generator, rollout, mask, padding),
            mask,
            lower,
            upper,
            veto,
        )

    rollout = torch.tensor([[-2.0, -3.0], [-2.0, -3.0], [-8.0, -9.0]])
    d = torch.tensor([[0.05, -0.03], [0.4, 0.3], [-5.0, 5.0]])
    real = torch.ones(3, 2, dtype=torch.bool)
    same, _, mask = batch.policies(generator)
    same[:, 1] = 0.0
    long = batch.uniform(generator, (2, 2000), 0.03, 0.09) * torch.tensor([[1.0], [-2.0]])
    low = batch.uniform(generator, (2, 2000), -3.0, -1.0)
    train, roll, some, *bounds = drawn(0.8, 1.1, 0.01)
    assert isinstance(train, Tensor)
    assert isinstance(some, Tensor)
    return [
        Case("example", HAND, (rollout + d, rollout, real, 0.9, 1.1, 0.01)),
        Case("property", ALL, (same, same, mask, 0.9, 1.1, 0.01)),
        Case("inputs", RANDOM, drawn(0.8, 1.1, 0.01)),
        Case("inputs", RANDOM, drawn(0.7, 1.2, 0.001)),
        Case("padding", GARBAGE, (torch.where(some, train, -90.0), roll, some, *bounds)),
        Case("padding", batch.NAN, drawn(0.8, 1.1, 0.01, "nan")),
        Case("numbers", batch.LONG, (low + long, low, long < 1, 0.8, 1.1, 0.01)),
    ]


EXERCISE = Exercise(
    name="kept_responses",
    title=Words(en="A band and a veto", zh="区间与一票否决"),
    reference=reference,
    returns=("kept",),
    cases=cases,
    mistakes=MISTAKES,
    alternatives={"row_by_row": _row_by_row, "powers": _powers},
    hints=(
        Words(
            en="Two rules, both about whole responses. Which looks at the mean of the "
            "deltas, which at the smallest?",
            zh="两条规则，都针对整条回答。哪一条看 delta 的均值，哪一条看最小值？",
        ),
        Words(
            en="0 in padding; sum over `mask.sum(1, keepdim=True)`; compare with "
            "`math.log` of the bounds; `any` for the veto.",
            zh="padding 置 0；总和除以 `mask.sum(1, keepdim=True)`；与界的 `math.log` 比"
            "较；否决用 `any`。",
        ),
        Words(
            en="`mask & (mean >= log(lower)) & (mean <= log(upper)) & ~(d < "
            "log(veto)).any(1, keepdim=True)`.",
            zh="即 `mask & (mean >= log(lower)) & (mean <= log(upper)) & ~(d < "
            "log(veto)).any(1, keepdim=True)`。",
        ),
    ),
    points=(1, 2),
    minutes=9,
    boolean=("kept",),
)
