"""Faults of meaning by what they leave in two arrays of logprobs.

Each function takes the rollout's logprobs `a`, the trainer's `b` (`[B, T]`, float64) and
the mask of tokens still unexplained, and returns a `Finding` or None. The thresholds are
those at which rounding noise (float32 to INT4) and stale weights named nothing, on
synthetic softmax policies and on the course's checkpoint: tests/test_diagnosis.py.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from .statistics import (
    bernoulli_kl,
    enough,
    fisher,
    mean_ratio_z,
    minority,
    quantile,
    rank_correlation,
)

Cause = Literal["shift", "zeros", "first", "offset", "scale", "clamp"]

LEARNED = (
    "first make sure that the trainer's logprobs were taken before it made a step on these "
    "tokens: one {}s nearly all of them, and no sampler is at fault. If they were, "
)
RAISED = LEARNED.format("on their likelihood, or with positive advantages, raise")
LOWERED = LEARNED.format("with negative advantages lower")


@dataclass(frozen=True)
class Finding:
    """A cause that the evidence supports, what supports it and what to do."""

    cause: Cause
    what: str
    """The fault in one sentence, with its fitted number."""
    evidence: str
    remedy: str
    value: float
    """The fitted number: lag, share of zeros, positions, mean d, the bound of a clamp,
    T_rollout / T_train or, of a multiple, trainer / rollout."""
    explains: float = 0.0
    """Share of all |d| that goes away with it, above 0; findings are ranked by this."""
    at_most: bool = False
    """Whether noise that goes with the fault is counted in `explains`."""

    @property
    def share(self) -> str:
        """`explains` in words: never 0%."""
        if self.explains < 0.01:
            return "under 1%"
        return f"{'up to ' if self.at_most else ''}{self.explains:.0%}"


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
        late = "one token late" if lag == 1 else "one token early"
        return Finding(
            "shift",
            f"the trainer's logprobs are {late}",
            f"rank correlation {there:.3f} after moving them by one, {here:.3f} as they "
            f"are; mean |d| falls to {error:.1%}",
            "logits at position t give the logprob of token t + 1: compare logits[:, :-1] "
            "with ids[:, 1:], and slice logprobs and mask by the same rule on both sides",
            float(lag),
        )
    return None


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
        every = " (all of them)" if n == tokens else ""
        greedy = ", or decoding was greedy and they are processed" if every else ""
        found[side] = Finding(
            "zeros",
            f"{n:,} logprobs of the {side} are exactly 0.0 inside the mask{every}: "
            f"they were never computed{greedy}",
            f"{n / tokens:.2%} of the tokens; the other side gives them a probability "
            f"of {y[zeros].exp().mean():.2g} on average",
            "take logprobs for every token in the mask, or take out of the mask what "
            "has none; fill gaps with NaN, so that no gap can pass for certainty",
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
        f"the mismatch sits in the first {K} token{'s' * (K > 1)} of the responses",
        f"{above:.0%} of them exceed the 90th percentile of later tokens (10% would by "
        f"chance), {times:,.0f} times their median, at equal probability",
        "print the ids of prompt and template on both sides and compare them: a BOS that "
        "is missing or doubled, a system prompt, a generation prompt, a stripped space",
        float(K),
    )


def offset(a: Tensor, b: Tensor, mask: Tensor) -> Finding | None:
    """Renormalisation: d has one sign everywhere, and the mean ratio is not 1.

    Tokens come from mu, so E[p_train / mu] is the trainer's mass on what mu can sample: 1
    for any two full softmaxes, however noisy, and the kept mass S under top-p or top-k.
    A step of the trainer on these very tokens looks the same, so it is always named too.
    """
    d, x, y = (b - a)[mask], a[mask], b[mask]
    some = d.abs() > 1e-4
    if not enough(x[some], y[some]):
        return None
    wrong, z = minority(d), mean_ratio_z(d)
    down = bool(d.sum() < 0)
    if wrong > (0.1 if down else 0.02) or (abs(z) < 10 and wrong > 0.001):
        return None
    moving = (x != 0) & (y != 0)
    alike = rank_correlation(x[moving], y[moving])
    if not even(d) and (alike < 0.6 or d.std() > 0.6 * y.std()):
        return None
    log_S = d.logsumexp(0).item() - math.log(len(d))
    low, high = quantile(d, 0.05), quantile(d, 0.95)
    side, way, first = (
        ("rollout", "against", LOWERED) if down else ("trainer", "from", RAISED)
    )
    many = ""
    if alike_sized(x[moving], y[moving]):
        k = y[moving].sum().item() / x[moving].sum().item()
        many = (
            f"; or its logprobs are the rollout's multiplied by {k:.4g} (another base, a "
            "mean over tokens): these tokens are too alike to tell"
        )
    return Finding(
        "offset",
        f"the {side} alone renormalises over a part of the vocabulary, of mass "
        f"{math.exp(-abs(log_S)):.3g} on average: top-p, top-k, min-p, or a temperature "
        f"near 0; or the trainer has already learned {way} these tokens{many}",
        f"d is {'negative' if down else 'positive'} but for {wrong:.1%} of its mass, "
        f"{low:.3g} to {high:.3g}"
        + (", nearly constant" if even(d) else "")
        + f"; the mean ratio is {d.exp().mean():.3g}, {_errors(z)} standard errors from 1",
        first
        + "use logprobs of one kind on both sides: raw ones from the engine, or the same "
        "processors in the trainer (keep the sampled sets and mask the logits with them)",
        d.mean().item(),
    )


def _errors(z: float) -> str:
    return "over 1,000" if abs(z) > 1000 else f"{abs(z):.0f}"


def alike_sized(x: Tensor, y: Tensor) -> bool:
    """Whether the rare third of the tokens is not twice as unlikely as the likely one.

    A multiple of such logprobs cannot be told from an offset.
    """
    n, order = len(x) // 3, (x * y).argsort()
    likely, rare = (x[part] for part in (order[:n], order[-n:]))
    return n == 0 or quantile(rare, 0.5) > 2 * quantile(likely, 0.5)


def even(d: Tensor) -> bool:
    """Whether d `[N]` is nearly one number: without its mean, under a quarter is left."""
    return bool((d - d.mean()).abs().mean() < 0.25 * d.abs().mean())


def realigned(
    a: Tensor, b: Tensor, mask: Tensor, lag: int
) -> tuple[Tensor, Tensor, Tensor]:
    """`a[t]` beside `b[t + lag]` for lag 1 or -1: both arrays and where both are real."""
    if lag == 1:
        return a[:, :-1], b[:, 1:], mask[:, :-1] & mask[:, 1:]
    return a[:, 1:], b[:, :-1], mask[:, 1:] & mask[:, :-1]
