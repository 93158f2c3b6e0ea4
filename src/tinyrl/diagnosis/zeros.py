"""Logprobs that were never computed and stand as 0.0, which says: certain."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..said import Said
from .finding import CHINESE, Finding
from .statistics import bernoulli_kl, quantile

FILL = Said(
    "take logprobs for every token in the mask, or take out of the mask what has none; "
    "fill gaps with NaN, so that no gap can pass for certainty",
    "给掩码内的每个 token 都算 logprob，没有的就移出掩码；空缺填 NaN，免得被当成“概率为 1”",
)


def exact_zeros(
    d: Tensor, a: Tensor, b: Tensor, mask: Tensor, processed: bool
) -> dict[str, Finding]:
    """Missing logprobs filled with 0.0, by side: certain where the other side is not.

    `d` is what is unexplained of b - a; `processed` says that something was explained.
    """
    found = {}
    for side, x, y, e in (("rollout", a, b, d), ("trainer", b, a, -d)):
        zeros = missing(x, y, mask, e, processed)
        n, tokens = int(zeros.sum()), int(mask.sum())
        if n == 0:
            continue
        every = n == tokens
        found[side] = Finding(
            "zeros",
            Said(
                f"{n:,} logprobs of the {side} are exactly 0.0 inside the mask"
                f"{' (all of them)' * every}: they were never computed"
                + ", or decoding was greedy and they are processed"
                * every,
                f"掩码内有 {n:,} 个{CHINESE[side]}的 logprob 恰为 0.0"
                f"{'（全部）' * every}：从未计算过"
                + "，或者是贪心解码下的 processed logprob"
                * every,
            ),
            Said(
                f"{n / tokens:.2%} of the tokens; the other side gives them a probability "
                f"of {y[zeros].exp().mean():.2g} on average",
                f"占 token 的 {n / tokens:.2%}；另一侧给它们的概率平均为 "
                f"{y[zeros].exp().mean():.2g}",
            ),
            FILL,
            n / tokens,
        )
    return found


def missing(x: Tensor, y: Tensor, mask: Tensor, e: Tensor, processed: bool) -> Tensor:
    """Where x is exactly 0 and cannot be: `[B, T]`.

    A zero may be honest. Float32 gives it to a certain token: then y doubts other tokens as
    often as the zeros. Top-p, min-p or a low temperature (`processed`) give it to a token
    that is kept alone: then y gives it some probability, and more than to most others.
    """
    zeros, others = mask & (x == 0), mask & (x != 0)
    noise = quantile(e[others].abs(), 0.95) if others.any() else 0.0
    limit = -max(0.01, 3 * noise)
    doubted = zeros & (y < limit)
    if not doubted.any():
        return doubted
    usual = (int((e[others] < limit).sum()) + 0.1) / (int(others.sum()) + 10)
    share = (doubted.sum() / zeros.sum()).item()
    if share < usual or int(zeros.sum()) * bernoulli_kl(share, usual) < 4.5:
        return torch.zeros_like(mask)
    if not others.any() or (doubted & (y < math.log(0.2))).any():
        return doubted
    low = (y[doubted] < y[others].median()).double().mean()
    return torch.zeros_like(mask) if processed or low < 0.25 else doubted
