"""Logprobs that were changed after log-softmax: multiplied by a number, or clamped.

What is compared then is no longer two policies. On the rollout's own samples, rounding,
other weights and samplers do not leave one quotient for all tokens, nor many tokens at
exactly the lowest value. On tokens that neither side sampled, a temperature does the first:
all are unlikely, and it moves them alike.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..said import Said, joined
from .finding import CHINESE, Finding
from .offset import alike_sized
from .statistics import enough, quantile

LOGARITHMS = {
    "log2": (1 / math.log(2), (1 / 0.7,)),
    "log10": (1 / math.log(10), (0.43, 1 / 2.3)),
}
"""What each is of a natural logarithm, and the round quotients within 1% of that."""


def multiple(a: Tensor, b: Tensor, mask: Tensor) -> tuple[Finding, Tensor, Tensor] | None:
    """b = k a: a logarithm of another base, a mean over tokens, a temperature too late.

    A temperature in its place moves likely and unlikely tokens apart, and an offset counts
    most where |a| is small. Here the likeliest third of the tokens, the next and the last
    have one quotient, and it takes most of d away. Returns both sides in nats, too.
    """
    use = mask & (a < -0.01) & (b < -0.01)
    x, y = a[use], b[use]
    if not enough(x, y):
        return None
    order = (x * y).argsort()
    n = len(x) // 3
    likely, middle, rare = order[:n], order[n:-n], order[-n:]
    k = _slope(x, y)
    if k == 1 or alike_sized(x, y):
        return None
    thirds = [quantile((y / x)[third], 0.5) for third in (likely, middle, rare)]
    astray = max(abs(math.log(q / k) / math.log(k)) for q in thirds)
    left = ((y - k * x).abs().sum() / (y - x).abs().sum()).item()
    if astray > 0.1 or left > 0.3:
        return None
    side, what, remedy = _meaning(k, _error(x, y, k))
    finding = Finding(
        "scale",
        what,
        Said(
            "trainer / rollout is {:.4f} for the likeliest third of the tokens, {:.4f} and "
            "{:.4f} for the others".format(*thirds)
            + f": one quotient for all, which leaves {left:.1%} of their |d|",
            "训练端 / 采样端：最可能的三分之一 token 为 {:.4f}，其余为 {:.4f} 和 "
            "{:.4f}".format(*thirds)
            + f"：全部 token 是同一个商，除掉后 |d| 剩 {left:.1%}",
        ),
        remedy,
        k,
    )
    return (finding, a * k, b) if side == "rollout" else (finding, a, b / k)


def _slope(x: Tensor, y: Tensor) -> float:
    """k with the least sum of |y - k x|: the median of y / x, each weighing |x|."""
    q, order = (y / x).sort()
    weight = x[order].abs().cumsum(0)
    return q[int((weight < weight[-1] / 2).sum())].item()


def _error(x: Tensor, y: Tensor, k: float) -> float:
    """How far k may be off, as a share of it: four standard errors, from eighths."""
    parts = [_slope(x[i::8], y[i::8]) for i in range(8)]
    four = 4 * torch.tensor(parts).std().item() / math.sqrt(8) / k
    return min(max(four, 2e-4), 0.02)


FIND = Said(
    "find what multiplies or divides one side after log-softmax: a length, a loss "
    "weight, a "
    "logarithm of another base, or a temperature (it belongs on the logits, before "
    "log-softmax)",
    "找出 log-softmax 之后乘除了什么：长度、损失权重、换了底的对数，或温度（温度应作用在 "
    "logits 上，即 log-softmax 之前）",
)


def _meaning(k: float, error: float) -> tuple[str, Said, Said]:
    """The side that is wrong, what a quotient trainer / rollout of k says, what to do.

    A logarithm is named alone only if k tells it from the round numbers beside it.
    """
    for side, other, inverse in (("trainer", "rollout", 1), ("rollout", "trainer", -1)):
        for name, (size, rounds) in LOGARITHMS.items():
            if abs(k / size**inverse - 1) > error:
                continue
            what = Said(
                f"the {side}'s logprobs are in {name}, the {other}'s in nats: "
                f"trainer / rollout is {k:.4f} for every token",
                f"{CHINESE[side]}的 logprob 以 {name} 计，{CHINESE[other]}以 nat 计：每个 "
                f"token 的训练端 / 采样端都是 {k:.4f}",
            )
            remedy = Said(
                f"use nats on both sides: multiply the {side}'s by {1 / size:.4f}, or "
                f"call log where it calls {name}",
                f"两侧都用 nat：{CHINESE[side]}的乘以 {1 / size:.4f}，或把 {name} 换成 log",
            )
            near = [r**inverse for r in rounds if abs(k / r**inverse - 1) <= error]
            if near:
                both = Said(
                    ": both lie within the error of the fit", "：误差范围内两者皆可"
                )
                what = joined([what, Said("; or ", "；或者"), _many(near[0]), both])
                if_nats = Said("; if they are in nats, ", "；若本来就是 nat，")
                remedy = joined([remedy, if_nats, FIND])
            return side, what, remedy
    return "trainer", _many(k), FIND


def _many(k: float) -> Said:
    return Said(
        f"each logprob of the trainer is that of the rollout multiplied by {k:.4g} (or at "
        "a temperature, if neither side sampled these tokens)",
        f"训练端的每个 logprob 都是采样端的 {k:.4g} 倍（若这些 token 并非任何一侧所采样，也"
        "可能是温度）",
    )


def clamped(side: str, x: Tensor, y: Tensor, mask: Tensor) -> tuple[Finding, Tensor] | None:
    """A lower bound on x: many tokens exactly at its minimum, the other side y below it.

    Returns the tokens at the bound too, `[B, T]`. One token in one context, sampled many
    times, is no bound: y has nearly one value there. Nor are values in coarse steps: y is
    then above as often as below.
    """
    if not mask.any():
        return None
    bound = x[mask].min()
    at, below = mask & (x == bound), mask & (y < bound)
    n, hit, lower = (int(tokens.sum()) for tokens in (at, at & below, below))
    if bound == x[mask].max():  # one value, and nothing that a bound was laid under
        return None
    if hit < max(12, 0.8 * n, 0.5 * lower) or _spread(y[at]) < 12:
        return None
    finding = Finding(
        "clamp",
        Said(
            f"{n:,} logprobs of the {side} are exactly {bound:.4g} and none is lower: "
            "they were clamped",
            f"{CHINESE[side]}有 {n:,} 个 logprob 恰为 {bound:.4g}，没有更低的：被 clamp 过",
        ),
        Said(
            f"{n / int(mask.sum()):.2%} of the tokens; the other side gives them "
            f"{quantile(y[at], 0.5):.4g} in the middle and {y[at].min():.4g} at the lowest",
            f"占 token 的 {n / int(mask.sum()):.2%}；另一侧给它们的中位数是 "
            f"{quantile(y[at], 0.5):.4g}，最低 {y[at].min():.4g}",
        ),
        Said(
            "take the clamp (clamp, maximum, nan_to_num, a floor on the probability) off "
            f"the {side}'s logprobs; if a ratio would overflow, bound the log-ratio "
            f"instead",
            f"去掉{CHINESE[side]} logprob 上的 clamp（含 maximum、nan_to_num、概率下限）；"
            "若怕比值溢出，就限制对数比",
        ),
        bound.item(),
    )
    return finding, at


def _spread(y: Tensor) -> int:
    """How many different values y has, in steps of 0.05 nat."""
    return len(torch.unique((y / 0.05).round()))
