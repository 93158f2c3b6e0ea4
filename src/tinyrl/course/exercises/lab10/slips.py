"""Slips that are easy to make: each is a line beside the idea of its exercise."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from tinyrl.course.exercise import Function
from tinyrl.course.words import Words

Slips = dict[str, tuple[Function, Words]]


def _delta(train: Tensor, roll: Tensor, mask: Tensor) -> Tensor:
    return torch.where(mask, train.double() - roll, 0.0)


def _at_index(train: Tensor, roll: Tensor, mask: Tensor, q: float) -> Tensor:
    x = _delta(train, roll, mask)[mask].abs().sort().values
    return x[int(q * len(x))]


QUANTILE: Slips = {
    "at_index": (
        _at_index,
        Words(
            en="You take the token at place int(q N). The quantile stands at q (N - 1), "
            "and between two tokens on the straight line.",
            zh="你取的是第 int(q N) 个 token。分位数位于 q (N - 1)，落在两个 token 之间时按"
            "直线插值。",
        ),
    ),
}


def _three(f: Callable[[Tensor, Tensor], Tensor]) -> Function:
    """`f` of each log ratio in place of K3: clean `[B, T]` in float64, and the mask."""

    def wrong(new: Tensor, old: Tensor, roll: Tensor, mask: Tensor) -> tuple[Tensor, ...]:
        pairs = (old, roll), (new, old), (new, roll)
        return tuple(f(_delta(a, b, mask), mask) for a, b in pairs)

    return wrong


def _k3(d: Tensor) -> Tensor:
    return torch.expm1(d) - d


_right = _three(lambda d, mask: _k3(d[mask]).mean())


def _subtracted(*args: Tensor) -> tuple[Tensor, ...]:
    mismatch, _, both = _right(*args)
    return mismatch, both - mismatch, both


def _both_first(*args: Tensor) -> tuple[Tensor, ...]:
    mismatch, staleness, both = _right(*args)
    return both, mismatch, staleness


CAUSES: Slips = {
    "subtracted": (
        _subtracted,
        Words(
            en="Your staleness is both less mismatch. K3 does not add up: compute it from "
            "new / old.",
            zh="你的滞后是总量减去不一致。K3 不能相加减：应当由 new / old 计算。",
        ),
    ),
    "both_first": (
        _both_first,
        Words(
            en="The order is another: mismatch, staleness, both.",
            zh="顺序不对：应为不一致、滞后、两者合计。",
        ),
    ),
    "sums": (
        _three(lambda d, mask: _k3(d[mask]).sum()),
        Words(
            en="These are sums over the tokens. Take the mean.",
            zh="这是对 token 的求和。应当取平均。",
        ),
    ),
    "responses": (
        _three(lambda d, mask: _k3(d.sum(1)).mean()),
        Words(
            en="You take K3 of whole responses, of summed log ratios. It is of each token.",
            zh="你对整条回答（对数比值之和）算了 K3。应当逐个 token 计算。",
        ),
    ),
    "cut_at_10": (
        _three(lambda d, mask: _k3(d[mask]).clamp(-10, 10).mean()),
        Words(
            en="You cut K3 at 10, as verl's loss does. What is measured has to show the "
            "worst tokens as they are.",
            zh="你把 K3 截到 10（verl 的损失这样做）。作为度量，最坏的 token 应当如实显示。"
            "",
        ),
    ),
}


def _weights(f: Callable[[Tensor], tuple[Tensor, Tensor]]) -> Function:
    """`f` of the summed deltas."""
    return lambda p, q, mask: f(_delta(p, q, mask).sum(1))


def _share(w: Tensor) -> Tensor:
    return w.mean() ** 2 / (w * w).mean()


def _shifted(x: Tensor) -> Tensor:
    return (x - x.max()).exp()


ESS: Slips = {
    "only_large_shifted": (
        _weights(
            lambda x: (
                _share((x - x.max().clamp(min=0)).exp()),
                torch.expm1(2 * x).mean(),
            )
        ),
        Words(
            en="You take the largest log weight off only where it is above 0. Where all "
            "are far below, exp of each is 0, and 0 / 0 no share: always take it off.",
            zh="只有最大的对数权重大于 0 时你才减去它。都远小于 0 时 exp 全为 0，0 / 0 得不"
            "到比例：应当总是减去。",
        ),
    ),
    "chi2_of_shifted": (
        _weights(lambda x: (_share(_shifted(x)), _shifted(x).square().mean() - 1)),
        Words(
            en="Your chi2 is that of weights divided by the largest. Only the share does "
            "not mind a constant: chi2 takes the weights as they are.",
            zh="你的 chi2 用了除以最大值之后的权重。不受常数影响的只有 ess：chi2 要用原来的"
            "权重。",
        ),
    ),
    "variance": (
        _weights(lambda x: (_share(_shifted(x)), x.exp().var(correction=0))),
        Words(
            en="The second number is the variance of the weights. That is chi2 only where "
            "their mean is 1; take mean(w^2) - 1.",
            zh="第二个数是权重的方差。只有均值为 1 时它才等于 chi2；应当取 mean(w^2) - 1。",
        ),
    ),
}


def _shares(f: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]) -> Function:
    """The right share of tokens, and `f` of what was dropped and of the mask."""

    def wrong(weight: Tensor, mask: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        out = (weight == 0) & mask
        return out.sum() / mask.sum(), *f(out, mask)

    return wrong


def _whole(out: Tensor, mask: Tensor) -> Tensor:
    return (out | ~mask).all(1)


DROPPED: Slips = {
    "whole_in_tokens": (
        _shares(
            lambda out, mask: (
                out.any(1).double().mean(),
                (_whole(out, mask)[:, None] & mask).sum() / mask.sum(),
            )
        ),
        Words(
            en="The third is a share of responses. You count the tokens of those that are "
            "gone.",
            zh="第三个数是回答的比例。你数的是整条丢掉的回答里的 token。",
        ),
    ),
    "by_columns": (
        _shares(
            lambda out, mask: (
                out.any(0).double().mean(),
                (out | ~mask).all(0).double().mean(),
            )
        ),
        Words(
            en="You put columns together. A response is a row: axis 1.",
            zh="你沿列合并了。一条回答是一行：用第 1 维。",
        ),
    ),
}


def _places(
    f: Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]],
) -> Function:
    """`f` of real tokens: which ids stay, and both sides' probabilities."""

    def wrong(a: Tensor, p: Tensor, b: Tensor, q: Tensor, mask: Tensor) -> object:
        stays = (a[mask][:, :, None] == b[mask][:, None, :]).any(-1)
        return f(stays, p[mask].exp(), q[mask].exp())

    return wrong


def _left(stays: Tensor, p: Tensor) -> Tensor:
    return torch.where(stays, 0.0, p).sum(-1)


TOP_K: Slips = {
    "equal_sets": (
        _places(lambda s, p, q: (s.all(-1).to(p).mean(), _left(s, p).mean())),
        Words(
            en="Your overlap is the share of places with equal sets. Count how many of the "
            "k both sides list.",
            zh="你的重合是两边集合完全相同的位置的比例。应当数 k 个里有多少个两边都有。",
        ),
    ),
    "summed": (
        _places(lambda s, p, q: (s.to(p).mean(), _left(s, p).sum())),
        Words(
            en="What left is summed over places. Take the mean over real tokens.",
            zh="离开的概率对各位置求了和。应当对真实 token 取平均。",
        ),
    ),
    "over_k": (
        _places(lambda s, p, q: (s.to(p).mean(), torch.where(s, 0.0, p).mean())),
        Words(
            en="What left is divided by k as well. Add it up at each place, then average "
            "over places.",
            zh="离开的概率还多除了 k。应当在每个位置上相加，再对位置取平均。",
        ),
    ),
}


def _resampled(f: Callable[[Tensor, Tensor, Tensor], Tensor]) -> Function:
    """The interval of `f` of deltas, mask and draws."""

    def wrong(p: Tensor, q: Tensor, mask: Tensor, draws: Tensor, level: float) -> object:
        x, tail = f(_delta(p, q, mask), mask, draws), (1 - level) / 2
        return x.quantile(tail), x.quantile(1 - tail)

    return wrong


def _means(d: Tensor, mask: Tensor, draws: Tensor) -> Tensor:
    return d.sum(1)[draws].sum(1) / mask.sum(1)[draws].sum(1)


BOOTSTRAP: Slips = {
    "columns_of_draws": (
        _resampled(lambda d, mask, draws: _means(d.abs(), mask, draws.T)),
        Words(
            en="You read a resample down a column of `draws`. Each of its R rows is one.",
            zh="你把 `draws` 的一列当成一次重抽。它的 R 行各是一次。",
        ),
    ),
    "size_of_mean": (
        _resampled(lambda d, mask, draws: _means(d, mask, draws).abs()),
        Words(
            en="You average delta with its sign and take the size at the end: signs have "
            "cancelled by then. Take |delta| of each token first.",
            zh="你先对带符号的 delta 取平均，最后才取绝对值，正负已经抵消。应当先对每个 "
            "token 取 |delta|。",
        ),
    ),
}


def _nan_alone(values: Tensor, high: float, low: float, patience: int) -> Tensor:
    on, run, out = False, 0, []
    for value in values.tolist():
        run = 0 if value <= high else run + 1
        rings = run >= patience or math.isnan(value)
        on = rings or (on and not value < low)
        out.append(on)
    return torch.tensor(out)


def _early(values: Tensor, high: float, low: float, patience: int) -> Tensor:
    bad, on, out = (~(values <= high)).tolist(), False, []
    for t, value in enumerate(values.tolist()):
        rings = all(bad[max(0, t - patience + 1) : t + 1])
        on = rings or (on and not value < low)
        out.append(on)
    return torch.tensor(out)


ALARM: Slips = {
    "nan_alone": (
        _nan_alone,
        Words(
            en="One NaN rings it at once. It counts as a value above `high`, and "
            "`patience` of these in a row are needed.",
            zh="一个 NaN 就立刻响了。它只算一个高于 `high` 的值，仍要连续 `patience` 个。",
        ),
    ),
    "too_early": (
        _early,
        Words(
            en="At the start it rings before there are `patience` values: a slice that is "
            "too short is bad as a whole all the same.",
            zh="开头还没有 `patience` 个值它就响了：太短的切片也会全部高于 `high`。",
        ),
    ),
}
