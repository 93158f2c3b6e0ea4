"""Statistics of two logprob arrays that the signatures are built from; `[N]` float64 in."""

from __future__ import annotations

import math

import torch
from torch import Tensor

SAMPLE = 65_536
"""Values that are looked at where more would not change it, evenly spread."""
STEPS = sorted([1.0, 0.1, 0.01, 0.001] + [2.0**-i for i in range(1, 11)], reverse=True)
"""What logprobs are rounded or cut to by whoever stores few digits of them."""


def rank_correlation(x: Tensor, y: Tensor) -> float:
    """Spearman's correlation with mean ranks for ties; 0 where one side is constant."""
    step = len(x) // SAMPLE + 1
    ranks = torch.stack([_ranks(x[::step]), _ranks(y[::step])])
    ranks = ranks - ranks.mean(1, keepdim=True)
    norm = ranks.norm(dim=1).prod().item()
    return (ranks[0] @ ranks[1]).item() / norm if norm > 0 else 0.0


def enough(x: Tensor, y: Tensor) -> bool:
    """Whether a number may be fitted to x and y: different tokens, no coarse steps.

    The sides must be further apart than the steps that one of them is stored in.
    """
    return not few(x, y) and bool((y - x).abs().mean() >= max(coarse(x), coarse(y)))


def few(x: Tensor, y: Tensor) -> bool:
    """Whether there are under 30 different pairs: log-odds in steps of 0.05.

    A line through the four answers to one question shows nothing, however often each was
    sampled. Noise is in proportion to 1 - p, so that steps of log p would be too wide for
    sure tokens.
    """
    pairs = logit(torch.stack([x, y])[:, :: len(x) // SAMPLE + 1])
    # unique(dim=1) is 20 times as slow as numbering each side and then the pairs.
    a, b = (torch.unique(side, return_inverse=True)[1] for side in (pairs / 0.05).round())
    return len(torch.unique(a * len(b) + b)) < 30


def coarse(x: Tensor) -> float:
    """The step of which all values are multiples, of those in `STEPS`; 0 if there is none.

    The spacing of floats is no such step: it is finer near 0.
    """
    x = x[x != 0][:: len(x) // SAMPLE + 1]
    if len(x) < 30 or not ((x != x.min()) & (x != x.max())).any():
        return 0.0
    count = x[:, None] / torch.tensor(STEPS, dtype=x.dtype)
    fits = ((count.round() - count).abs() < 0.01).all(0)
    return next((step for step, fit in zip(STEPS, fits, strict=True) if fit), 0.0)


def fisher(r: float) -> float:
    """Fisher's z of a correlation: its standard error is 1 / sqrt(n - 3)."""
    return math.atanh(max(-1 + 1e-12, min(r, 1 - 1e-12)))


def logit(logp: Tensor) -> Tensor:
    """log(p / (1 - p)) from log p, right near p = 1."""
    return logp - torch.log(-torch.expm1(logp))


def quantile(x: Tensor, q: float) -> float:
    """The q-quantile by nearest rank; `torch.quantile` takes 16 million values at most."""
    return x.kthvalue(round(q * (len(x) - 1)) + 1).values.item()


def minority(d: Tensor) -> float:
    """Share of the sum of |d| with the rarer sign: 0 one-sided, 0.5 balanced or none."""
    up, down = d.clamp(min=0).sum().item(), (-d).clamp(min=0).sum().item()
    return min(up, down) / (up + down) if up + down else 0.5


def mean_ratio_z(d: Tensor) -> float:
    """How many standard errors the mean of exp(d) is from 1."""
    r = torch.expm1(d.clamp(max=50.0))
    return (r.mean() / (r.std() / math.sqrt(len(r)) + 1e-12)).item()


def bernoulli_kl(p: float, q: float) -> float:
    """KL of two coins. By Chernoff, a share p of n has probability at most exp(-n KL)."""
    parts = ((p, q), (1 - p, 1 - q))
    return sum(x * math.log(x / y) for x, y in parts if x > 0)


def _ranks(x: Tensor) -> Tensor:
    order = torch.unique(x, return_inverse=True, return_counts=True)
    _, group, count = order
    ranks: Tensor = (count.cumsum(0) - count / 2).double()[group]
    return ranks
