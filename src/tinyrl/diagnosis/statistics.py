"""Statistics of two logprob arrays that the signatures are built from; `[N]` float64 in."""

from __future__ import annotations

import math

import torch
from torch import Tensor

SAMPLE = 65_536
"""Values that a rank correlation looks at, evenly spread: more would not change it."""


def rank_correlation(x: Tensor, y: Tensor) -> float:
    """Spearman's correlation with mean ranks for ties; 0 where one side is constant."""
    step = len(x) // SAMPLE + 1
    ranks = torch.stack([_ranks(x[::step]), _ranks(y[::step])])
    ranks = ranks - ranks.mean(1, keepdim=True)
    norm = ranks.norm(dim=1).prod().item()
    return (ranks[0] @ ranks[1]).item() / norm if norm > 0 else 0.0


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
