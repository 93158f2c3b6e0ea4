"""Rejection of whole responses: a band for the geometric mean, and a veto."""

from __future__ import annotations

import math

import torch
from torch import Generator, Tensor

from tinyrl.course.exercise import Case, Exercise, Mistakes
from tinyrl.course.exercises.lab01 import batch
from tinyrl.course.exercises.lab09 import band_and_veto as rule
from tinyrl.course.exercises.lab09 import slips
from tinyrl.course.words import Words

MISTAKES: Mistakes = {
    "product": (
        rule.but(lambda d, m: d.sum(1, keepdim=True)),
        Words(
            en="You hold the *product* against the bounds: then the same mismatch a token "
            "drops long responses and keeps short ones. Divide the sum by the length.",
            zh="你拿 *连乘* 与界比较：同样的逐 token 不一致，长回答被丢掉，短回答却留下。总"
            "和要除以长度。",
        ),
    ),
    "arithmetic": (
        rule.but(rule.arithmetic),
        Words(
            en="This is the arithmetic mean of token ratios, which a single large one "
            "decides. The geometric mean is exp of the mean delta.",
            zh="这是 token 比值的算术平均，一个大值就能左右它。几何平均是 delta 均值的 exp"
            "。",
        ),
    ),
    "columns": (
        rule.but(lambda d, m: d.mean(1, keepdim=True)),
        Words(
            en="You divide by the number of columns, so a short response looks better "
            "than it is. Count its real tokens.",
            zh="你除以了列数，短回答显得比实际更好。请数真实 token。",
        ),
    ),
    "nonzero": (rule.but(rule.nonzero), batch.NONZERO),
    "clamped": (
        rule.but(rule.clamped),
        Words(
            en="You clamp delta before the mean (verl does, to 20). The mean is asked for "
            "as it is.",
            zh="你先截断 delta 再取均值（verl 截到 20 以内）。题目要的是原样的均值。",
        ),
    ),
    "reciprocal": (
        rule.reciprocal,
        Words(
            en="Your lower bound is 1 / upper. Use `lower`: a band need not lie alike "
            "around 1.",
            zh="你的下界是 1 / upper。请用 `lower`：区间不一定在 1 的两侧对称。",
        ),
    ),
    "inverted": (
        rule.but(lambda d, m: -rule.mean(d, m)),
        Words(
            en="The bounds apply to p_rollout / p_train here: upside down (verl#6377). "
            "rho has the trainer above.",
            zh="这里的界作用在 p_rollout / p_train 上，倒过来了（verl#6377）。rho 的分子是"
            "训练端。",
        ),
    ),
    "no_log": (
        rule.but(lambda d, m: (1 + rule.mean(d, m)).log()),
        Words(
            en="You hold the mean delta against the bounds minus 1. That is the start of "
            "the series; compare with their logarithms, or take exp.",
            zh="你拿 delta 均值与“界减 1”比较，那只是展开的第一项。应与界的对数比较，或先"
            "取 exp。",
        ),
    ),
    "bounds_not_logged": (
        rule.but(lambda d, m: rule.mean(d, m).log()),
        Words(
            en="You hold the mean delta itself against the bounds, which are bounds of a "
            "ratio: take exp of the mean, or logarithms of the bounds.",
            zh="你拿 delta 的均值直接与界比较，而界是比值的界：应对均值取 exp，或对界取对"
            "数。",
        ),
    ),
    "veto_not_logged": (
        rule.but(veto=lambda d, v: (d < v).any(1, keepdim=True)),
        Words(
            en="You hold delta itself against the veto, which is a bound of a ratio: "
            "compare with its logarithm, or take exp of delta.",
            zh="你拿 delta 直接与 veto 比较，而 veto 是比值的界：应与它的对数比较，或对 "
            "delta 取 exp。",
        ),
    ),
    "no_veto": (
        rule.but(veto=rule.no_veto),
        Words(
            en="The veto is missing: a response goes if any of its tokens has rho below "
            "it, whatever the mean.",
            zh="缺少一票否决：只要有一个 token 的 rho 低于它，整条回答就丢掉，不管均值如"
            "何。",
        ),
    ),
    "two_vetoes": (
        rule.but(veto=rule.two_vetoes),
        Words(
            en="Your veto waits for a second token. One below `veto` is enough.",
            zh="你的否决要等到第二个 token。只要有一个低于 `veto` 就够了。",
        ),
    ),
    "veto_token": (
        rule.but(veto=lambda d, v: d < math.log(v)),
        Words(
            en="Your veto drops the token alone. It is a sign that something is wrong "
            "with the whole response: all of it goes.",
            zh="你的否决只丢掉该 token。它说明整条回答有问题，应全部丢掉。",
        ),
    ),
    "veto_both": (
        rule.but(veto=lambda d, v: rule.vetoed(-d.abs(), v)),
        Words(
            en="Your veto falls on large ratios, too. It is for tokens that the trainer "
            "finds nearly impossible: rho below `veto`.",
            zh="你的否决也管了很大的比值。它针对训练端认为几乎不可能的 token：rho 低于 "
            "`veto`。",
        ),
    ),
    "veto_alone": (
        rule.but(lambda d, m: torch.zeros_like(d)),
        Words(
            en="Only the veto is applied; the band for the geometric mean is missing.",
            zh="只用了否决，缺少几何平均的上下界。",
        ),
    ),
    "by_token": (
        rule.but(lambda d, m: d),
        Words(
            en="You judge each token by its own ratio. A response is kept or dropped "
            "whole.",
            zh="你按每个 token 自己的比值判断。一条回答要么全留，要么全丢。",
        ),
    ),
    "padding_vetoes": (
        rule.padding_vetoes,
        Words(
            en="What stands in the padding can veto. Only real tokens may.",
            zh="padding 里的数也能触发否决。只有真实 token 才可以。",
        ),
    ),
    "root_of_product": (
        rule.root_of_product,
        Words(
            en="The product of thousands of ratios overflows (or underflows) before its "
            "root is taken. Average the deltas instead.",
            zh="几千个比值连乘，开方之前就已上溢或下溢。应当对 delta 取平均。",
        ),
    ),
    "padding_kept": (
        lambda a, b, m, low, high, v: (
            rule.reference(a, b, m, low, high, v).any(1, keepdim=True).expand_as(m)
        ),
        Words(
            en="A kept response takes its padding with it. Keep real tokens only: the "
            "loss's denominator counts them.",
            zh="留下的回答把 padding 也带上了。只留真实 token：损失的分母要数它们。",
        ),
    ),
} | slips.KEPT

HAND = Words(
    en="three responses: near 1, far from 1, near 1 with one impossible token",
    zh="三条回答：接近 1、远离 1、接近 1 但有一个几乎不可能的 token",
)
ALL = Words(en="equal policies: everything is kept", zh="两个策略相同：全部留下")
RANDOM = Words(
    en="responses on either side of each bound", zh="每个界两侧都有回答"
)  # each of them a case that another rule decides otherwise
LONG = Words(
    en="long responses, their means just inside and outside each bound",
    zh="很长的回答，均值紧贴每个界的内侧和外侧",
)
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
        rows = [  # mean, number of tokens
            (0.5 * high, 9),  # kept; its product and its arithmetic mean are outside
            ((low + lower - 1) / 2, 10),  # kept; out without the logarithm, or one token
            (1.4 * high, 5),  # too high; inside if divided by columns
            (low - 0.3 * room, 6),
            (-low - 0.05 * room if -low > high * 1.3 else high * 1.2, 9),  # in if inverted
            (0.0, 8),  # vetoed
            (0.0, 10),  # kept, with a token just above the veto
            (0.0, 8),  # kept, with one ratio of e^25; that of row 8 is 1 / veto
            (0.77 * low, 7),  # kept; below 1 / upper, and too low without its zeros
            (0.0, 8),  # vetoed by each of two tokens
        ]
        mean, n = (torch.tensor(x)[:, None] for x in zip(*rows, strict=True))
        mask = torch.arange(columns) < n
        moved = mask.clone()
        moved[8, [1, 3]] = False  # both sides agree there
        d = batch.uniform(generator, (10, columns), -0.02, 0.02)
        jumps = torch.zeros(10, columns)
        jumps[0, :2] = torch.tensor([0.8, -0.8]) * abs(v) / 4
        jumps[1, [0, 9]] = 1.0  # without one of them the mean is too low
        for row, jump in (
            (5, v - 0.01),
            (6, v + 0.01),
            (7, 25.0),
            (8, 0.4 - v),
            (9, v - 0.4),
        ):
            at = 4 + torch.randperm(rows[row][1] - 4, generator=generator)[: 1 + (row == 9)]
            jumps[row, at] = jump
        rest = moved & (jumps == 0)
        size = 1 + batch.uniform(generator, (10, 1), -0.02, 0.02)
        left = mean * size * n - (jumps.sum(1) + (d * rest).sum(1))[:, None]
        d = torch.where(rest, d + left / rest.sum(1, keepdim=True), jumps)
        train = batch.uniform(generator, (10, columns), -4.0, -1.0)
        train[8, 1] = 0.0  # of probability 1
        train, rollout = train - d.clamp(max=0).abs(), train - d.clamp(min=0)
        order = torch.randperm(10, generator=generator)
        rollout, train, mask = (x[order] for x in (rollout, train, mask))
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
    just = torch.tensor([-1e-4, 1e-4, -1e-4, 1e-4, -5e-3])  # out, in, in, out, in
    means = torch.tensor([0.8, 0.8, 1.1, 1.1, 1.1]).log() + just
    long = batch.uniform(generator, (5, 1000), -0.03, 0.03)
    long = long + (means - long.mean(1))[:, None]
    low = batch.uniform(generator, (5, 1000), -3.0, -1.0)
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
        Case("numbers", LONG, (low + long, low, long < 1, 0.8, 1.1, 0.01)),
    ]


EXERCISE = Exercise(
    name="kept_responses",
    title=Words(en="A band and a veto", zh="区间与一票否决"),
    reference=rule.reference,
    returns=("kept",),
    cases=cases,
    mistakes=MISTAKES,
    alternatives={"row_by_row": rule.row_by_row, "powers": rule.powers},
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
    exact=True,
)
