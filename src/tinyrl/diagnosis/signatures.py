"""Faults of place: a shift by one token, and a prefix that differs.

Each function takes the rollout's logprobs `a`, the trainer's `b` (`[B, T]`, float64) and
the mask of tokens still unexplained, and returns a `Finding` or None. The thresholds, here
and in the files beside, are those at which rounding noise (float32 to INT4) and stale
weights named nothing, on synthetic softmax policies and on the course's checkpoint:
tests/test_diagnosis.py.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..said import Said
from .finding import Finding
from .statistics import bernoulli_kl, fisher, quantile, rank_correlation

REALIGN = Said(
    "logits at position t give the logprob of token t + 1: compare logits[:, :-1] with "
    "ids[:, 1:], and slice logprobs and mask by the same rule on both sides",
    "位置 t 的 logits 给出的是第 t + 1 个 token 的 logprob：检查 logits[:, :-1] 是否对应 "
    "ids[:, 1:]，两侧的 logprob 和掩码要按同一规则切片",
)
PREFIX = Said(
    "print the ids of prompt and template on both sides and compare them: a BOS that is "
    "missing or doubled, a system prompt, a generation prompt, a stripped space",
    "打印两侧 prompt 和模板的 token id 逐个比较：BOS 缺失或重复、system prompt、generation "
    "prompt、被去掉的空格",
)


def shift(a: Tensor, b: Tensor, mask: Tensor) -> Finding | None:
    """Off by one: b matches a one token later or earlier, and not where it is."""
    usable = mask & (a != 0) & (b != 0)
    here = rank_correlation(a[usable], b[usable])
    for lag in (1, -1):
        x, y, both = realigned(a, b, usable, lag)
        n = int(both.sum())
        if n < 8:
            continue
        there = rank_correlation(x[both], y[both])
        error = (y - x)[both].abs().mean() / (b - a)[usable].abs().mean()
        gain = fisher(there) - fisher(max(here, 0.0))
        if there < 0.6 or gain * math.sqrt(n - 3) < 6 or error > 0.6:
            continue
        late = Said("late", "晚") if lag == 1 else Said("early", "早")
        return Finding(
            "shift",
            Said(
                f"the trainer's logprobs are one token {late.en}",
                f"训练端的 logprob {late.zh}了一个 token",
            ),
            Said(
                f"rank correlation {there:.3f} after moving them by one, {here:.3f} as "
                f"they are; mean |d| falls to {error:.1%}",
                f"移动一位后秩相关为 {there:.3f}，不动为 {here:.3f}；|d| 的均值降到原来的 "
                f"{error:.1%}",
            ),
            REALIGN,
            float(lag),
        )
    return None


def first_tokens(d: Tensor, a: Tensor, b: Tensor, mask: Tensor) -> Finding | None:
    """A prefix that differs: |d| (here what is unexplained of it) far larger at the start.

    |d| is taken in units of 1 - p, the size that equal noise on the logits would give it,
    so that an unsure first token is not mistaken for a wrong prefix. Early tokens are
    compared with the 90th percentile of the later ones by a binomial tail (Chernoff).
    """
    u = d.abs() / (1 - ((a + b) / 2).exp() + 0.05)
    place = torch.arange(a.shape[1]).expand_as(a)
    starts = []
    for K in (2**i for i in range(a.shape[1].bit_length())):
        start = mask & (place < K)
        early, late = u[start], u[mask & (place >= 2 * K)]
        if len(early) < 7 or len(late) < 20 or d[start].abs().mean() < 0.05:
            continue
        above = (early > quantile(late, 0.9)).double().mean().item()
        times = early.median().item() / max(late.median().item(), 1e-6)
        surprise = len(early) * bernoulli_kl(above, 0.1)
        if above > 0.65 and times > 8 and surprise > 16:
            starts.append((surprise, K, above, times))
    if not starts:
        return None
    _, K, above, times = max(starts)
    return Finding(
        "first",
        Said(
            f"the mismatch sits in the first {K} token{'s' * (K > 1)} of the responses",
            f"不一致集中在各条回答的前 {K} 个 token",
        ),
        Said(
            f"{above:.0%} of them exceed the 90th percentile of later tokens (10% would by "
            f"chance), {times:,.0f} times their median, at equal probability",
            f"其中 {above:.0%} 超过后面 token 的 90 分位（偶然时应为 10%），概率相同时是后"
            f"者中位数的 {times:,.0f} 倍",
        ),
        PREFIX,
        float(K),
    )


def realigned(
    a: Tensor, b: Tensor, mask: Tensor, lag: int
) -> tuple[Tensor, Tensor, Tensor]:
    """`a[t]` beside `b[t + lag]` for lag 1 or -1: both arrays and where both are real."""
    if lag == 1:
        return a[:, :-1], b[:, 1:], mask[:, :-1] & mask[:, 1:]
    return a[:, 1:], b[:, :-1], mask[:, 1:] & mask[:, :-1]
