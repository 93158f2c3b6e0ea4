"""Five faults of meaning by what they leave in two arrays of logprobs.

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

Cause = Literal["shift", "zeros", "first", "offset", "scale"]


@dataclass(frozen=True)
class Finding:
    """A cause that the evidence supports, what supports it and what to do."""

    cause: Cause
    what: str
    """The fault in one sentence, with its fitted number."""
    evidence: str
    remedy: str
    value: float
    """The fitted number: lag, share of zeros, positions, mean log-ratio, temperature."""
    explains: float = 0.0
    """Share of all |d| that goes away with it; findings are ranked by this."""


def shift(a: Tensor, b: Tensor, mask: Tensor) -> Finding | None:
    """Off by one: b matches a one token later or earlier, and not where it is."""
    usable = mask & (a != 0) & (b != 0)
    here = rank_correlation(a[usable], b[usable])
    for lag in (1, -1):
        x, y, both = realigned(a, b, usable, lag)
        if both.sum() < 16:
            continue
        there = rank_correlation(x[both], y[both])
        error = (y - x)[both].abs().mean() / (b - a)[usable].abs().mean()
        if there < 0.8 or there - max(here, 0.0) < 0.3 or error > 0.6:
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
    doubted = zeros & (y < -0.25)
    if not doubted.any():
        return doubted
    usual = (int((e[others] < -0.25).sum()) + 0.1) / (int(others.sum()) + 10)
    share = (doubted.sum() / zeros.sum()).item()
    if share < usual or int(zeros.sum()) * _bernoulli_kl(share, usual) < 4.5:
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
    best: tuple[float, int, float, float] | None = None
    K = 1
    while 2 * K < a.shape[1]:
        early, late = u[mask & (place < K)], u[mask & (place >= 2 * K)]
        if len(early) >= 7 and len(late) >= 20:
            above = (early > quantile(late, 0.9)).double().mean().item()
            surprise = len(early) * _bernoulli_kl(above, 0.1)
            times = early.median().item() / max(late.median().item(), 1e-12)
            if (
                above > 0.6
                and surprise > 16
                and times > 10
                and (best is None or surprise > best[0])
            ):
                best = surprise, K, above, times
        K *= 2
    if best is None:
        return None
    _, K, above, times = best
    return Finding(
        "first",
        f"the mismatch sits in the first {K} token{'s' * (K > 1)} of the responses",
        f"{above:.0%} of them exceed the 90th percentile of later tokens (10% would by "
        f"chance), {times:.0f} times their median, at equal probability",
        "print the ids of prompt and template on both sides and compare them: a BOS that is "
        "missing or doubled, a system prompt, a generation prompt, a stripped space",
        float(K),
    )


def offset(a: Tensor, b: Tensor, mask: Tensor) -> Finding | None:
    """Renormalisation: d has one sign everywhere, and the mean ratio is not 1.

    Tokens come from mu, so E[p_train / mu] is the trainer's mass on what mu can sample: 1
    for any two full softmaxes, however noisy, and the kept mass S under top-p or top-k.
    """
    d, x, y = (b - a)[mask], a[mask], b[mask]
    if (d.abs() > 1e-4).sum() < 30:
        return None
    wrong, z = minority(d), mean_ratio_z(d)
    down = bool(d.sum() < 0)
    if wrong > (0.1 if down else 0.02) or (abs(z) < 10 and wrong > 0.001):
        return None
    place = torch.arange(a.shape[1]).expand_as(a)[mask]
    halves = d[place < place.median()], d[place >= place.median()]
    if any(len(h) >= 30 and minority(h) > 0.15 for h in halves):
        return None
    moving = (x != 0) & (y != 0)
    alike = rank_correlation(x[moving], y[moving])
    constant = d.std() < 0.25 * d.mean().abs()
    if not constant and (alike < 0.6 or d.std() > 0.6 * y.std()):
        return None
    S = d.exp().mean().item()
    low, high = quantile(d, 0.05).item(), quantile(d, 0.95).item()
    side = "rollout" if down else "trainer"
    return Finding(
        "offset",
        f"the {side} alone renormalises over a part of the vocabulary (top-p, top-k, min-p, "
        f"or a temperature near 0), of mass {min(S, 1 / S):.3f} on average",
        f"d is {'negative' if down else 'positive'} but for {wrong:.1%} of its mass, "
        f"{low:.3g} to {high:.3g}"
        + (", nearly constant" if constant else "")
        + f"; the mean ratio is {S:.3f}, {abs(z):.0f} standard errors from 1",
        "use logprobs of one kind on both sides: raw ones from the engine, or the same "
        "processors in the trainer (keep the sampled sets and mask the logits with them)",
        d.mean().item(),
    )


@dataclass(frozen=True)
class Line:
    """logit b = slope * logit a + intercept: the two sides' odds of the chosen tokens."""

    slope: float
    intercept: float
    low: float
    """Between `low` and `high` lies beta, if the cause is a temperature."""
    high: float
    consistent: float
    """Share of tokens that are possible under a temperature of this slope."""
    explained: float
    """Share of the difference in log-odds that the line takes away."""

    @property
    def beta(self) -> float:
        """The best guess of beta: the middle of what is possible, or the slope in it."""
        if 0 < self.low and math.isfinite(self.high):
            return math.sqrt(self.low * self.high)
        return min(max(self.slope, self.low), self.high)

    def predict(self, a: Tensor) -> Tensor:
        """The trainer's logprob that the line expects for the rollout's `a`."""
        return torch.nn.functional.logsigmoid(self.slope * logit(a) + self.intercept)


def scale(a: Tensor, b: Tensor, mask: Tensor) -> tuple[Finding, Line] | None:
    """A temperature on one side only.

    If b is a at another temperature, beta = T_a / T_b, then for every token

        logit b = beta logit a + (beta - 1) H,   0 <= H <= log(V - 1),

    where H is the Rényi entropy of order beta of the other tokens under a. So the odds lie
    about a line whose slope is near beta, every token must imply a possible H, and each
    bounds beta: noise and other weights fail the second, and the bounds are honest.
    """
    line = odds_line(a, b, mask)
    if line is None or line.consistent < 0.9 or line.explained < 0.2:
        return None
    if not 0.02 < abs(math.log(line.slope)) < math.log(20):
        return None
    finding = Finding(
        "scale",
        f"a temperature on one side only: T_rollout / T_train is about {line.beta:.2f}, "
        f"between {line.low:.2f} and {line.high:.2f}",
        f"the odds of the tokens lie on a line of slope {line.slope:.2f}, which explains "
        f"{line.explained:.0%} of their difference; {line.consistent:.1%} of the tokens are "
        "possible under a pure temperature",
        "divide the trainer's logits by the sampler's temperature, or take raw logprobs and "
        "sample at 1. If this stays, compare versions: weights that grew sharper look alike",
        line.beta,
    )
    return finding, line


def odds_line(a: Tensor, b: Tensor, mask: Tensor) -> Line | None:
    """Orthogonal fit of the trainer's log-odds to the rollout's; None where there is none.

    Tokens with a probability above 1 - 1e-4 are left out: float32 logprobs do not hold
    their odds.
    """
    use = mask & (a < -1e-4) & (b < -1e-4)
    if use.sum() < 30 or rank_correlation(a[use], b[use]) < 0.6:
        return None
    x, y = logit(a[use]), logit(b[use])
    (sxx, sxy), (_, syy) = torch.cov(torch.stack([x, y])).tolist()
    slope = (syy - sxx + math.hypot(syy - sxx, 2 * sxy)) / (2 * sxy)
    if slope <= 0 or slope == 1:
        return None
    intercept = (y.mean() - slope * x.mean()).item()
    implied = (y - slope * x) / (slope - 1)
    possible = (implied > -0.1) & (implied < 12)  # log of 160,000 tokens
    error = (y - slope * x - intercept).abs().mean() / max(1.0, slope)
    low, high = beta_bounds(x, y, slope)
    return Line(
        slope,
        intercept,
        low,
        high,
        possible.double().mean().item(),
        1 - (error / (y - x).abs().mean()).item(),
    )


def beta_bounds(x: Tensor, y: Tensor, slope: float) -> tuple[float, float]:
    """Lowest and highest beta that H >= 0 leaves to the log-odds x and y of the tokens.

    (beta - 1) H has the sign of beta - 1, so y / x bounds beta on one side where x > 0 and
    on the other where x < 0. Two per cent of the tokens may lie beyond, for noise's sake;
    if it crosses the bounds, they are put in order.
    """
    r = y / x
    likely, unlikely = r[x > 1], r[x < -1]
    below, above = (likely, unlikely) if slope < 1 else (unlikely, likely)
    low = quantile(below, 0.98).item() if len(below) >= 5 else 0.0 if slope < 1 else 1.0
    high = (
        quantile(above, 0.02).item() if len(above) >= 5 else 1.0 if slope < 1 else math.inf
    )
    return min(low, high), max(low, high)


def realigned(
    a: Tensor, b: Tensor, mask: Tensor, lag: int
) -> tuple[Tensor, Tensor, Tensor]:
    """`a[t]` beside `b[t + lag]` for lag 1 or -1: both arrays and where both are real."""
    if lag == 1:
        return a[:, :-1], b[:, 1:], mask[:, :-1] & mask[:, 1:]
    return a[:, 1:], b[:, :-1], mask[:, 1:] & mask[:, :-1]


def rank_correlation(x: Tensor, y: Tensor) -> float:
    """Spearman's correlation with mean ranks for ties; 0 where one side is constant."""
    ranks = torch.stack([_ranks(x), _ranks(y)])
    ranks = ranks - ranks.mean(1, keepdim=True)
    norm = ranks.norm(dim=1).prod().item()
    return (ranks[0] @ ranks[1]).item() / norm if norm > 0 else 0.0


def logit(logp: Tensor) -> Tensor:
    """log(p / (1 - p)) from log p, right near p = 1."""
    return logp - torch.log(-torch.expm1(logp))


def quantile(x: Tensor, q: float) -> Tensor:
    """The q-quantile, nearest rank; of any number of values."""
    return x.sort().values[round(q * (len(x) - 1))]


def _ranks(x: Tensor) -> Tensor:
    _, group, count = x.unique(return_inverse=True, return_counts=True)
    return (count.cumsum(0) - count / 2)[group].double()


def minority(d: Tensor) -> float:
    """Share of the sum of |d| that has the rarer sign: 0 one-sided, 0.5 balanced."""
    up, down = d.clamp(min=0).sum(), (-d).clamp(min=0).sum()
    return (torch.minimum(up, down) / (up + down)).item()


def mean_ratio_z(d: Tensor) -> float:
    """How many standard errors the mean of exp(d) is from 1."""
    r = torch.expm1(d.clamp(max=50.0))
    return (r.mean() / (r.std() / math.sqrt(len(r)) + 1e-12)).item()


def _bernoulli_kl(p: float, q: float) -> float:
    parts = ((p, q), (1 - p, 1 - q))
    return sum(x * math.log(x / y) for x, y in parts if x > 0)
