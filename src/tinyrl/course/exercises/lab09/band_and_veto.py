"""A band for the geometric mean and a veto: done right, in three ways, and wrongly."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from tinyrl.course.exercise import Function


def delta(logp_train: Tensor, logp_rollout: Tensor, mask: Tensor) -> Tensor:
    return torch.where(mask, logp_train - logp_rollout, 0.0)


def mean(d: Tensor, mask: Tensor) -> Tensor:
    return d.sum(1, keepdim=True) / mask.sum(1, keepdim=True).clamp(min=1)


def band(x: Tensor, lower: float, upper: float) -> Tensor:
    return (x >= math.log(lower)) & (x <= math.log(upper))


def vetoed(d: Tensor, veto: float) -> Tensor:
    return (d < math.log(veto)).any(1, keepdim=True)


def reference(
    logp_train: Tensor,
    logp_rollout: Tensor,
    mask: Tensor,
    lower: float,
    upper: float,
    veto: float,
) -> Tensor:
    d = delta(logp_train, logp_rollout, mask)
    return mask & band(mean(d, mask), lower, upper) & ~vetoed(d, veto)


def row_by_row(
    a: Tensor, b: Tensor, m: Tensor, low: float, high: float, v: float
) -> Tensor:
    kept = torch.zeros_like(m)
    for i, real in enumerate(m):
        rho = (a[i][real] - b[i][real]).double().exp()
        if len(rho):
            kept[i] = real & (low <= rho.log().mean().exp() <= high) & (rho.min() >= v)
    return kept


def powers(a: Tensor, b: Tensor, m: Tensor, low: float, high: float, v: float) -> Tensor:
    """Ratios, a power for the root, 1 in padding."""
    n = m.sum(1, keepdim=True).clamp(min=1)
    rho = (a - b).double().exp().masked_fill(~m, 1.0)
    root = rho.pow(1 / n).prod(1)
    stays = (root >= low) & (root <= high) & (rho >= v).all(1)
    return m & stays[:, None]


def but(
    level: Callable[[Tensor, Tensor], Tensor] = mean,
    veto: Callable[[Tensor, float], Tensor] = vetoed,
) -> Function:
    """The right answer, but for what is held against the band, or for the veto."""

    def wrong(
        a: Tensor, b: Tensor, m: Tensor, lower: float, upper: float, least: float
    ) -> Tensor:
        d = delta(a, b, m)
        return m & band(level(d, m), lower, upper) & ~veto(d, least)

    return wrong


def nonzero(d: Tensor, mask: Tensor) -> Tensor:
    return mean(d, d != 0)


def clamped(d: Tensor, mask: Tensor) -> Tensor:
    return mean(d.clamp(-20, 20), mask)


def arithmetic(d: Tensor, mask: Tensor) -> Tensor:
    return mean(d.exp() * mask, mask).log()


def no_veto(d: Tensor, veto: float) -> Tensor:
    return torch.zeros_like(d).bool()


def two_vetoes(d: Tensor, veto: float) -> Tensor:
    return ((d < math.log(veto)).sum(1) > 1)[:, None]


def root_of_product(
    a: Tensor, b: Tensor, m: Tensor, low: float, high: float, v: float
) -> Tensor:
    d = delta(a, b, m)
    root = d.exp().prod(1, keepdim=True) ** (1 / m.sum(1, keepdim=True))
    return m & (root >= low) & (root <= high) & ~vetoed(d, v)


def padding_vetoes(
    a: Tensor, b: Tensor, m: Tensor, low: float, high: float, v: float
) -> Tensor:
    return m & band(mean(delta(a, b, m), m), low, high) & ~vetoed(a - b, v)


def reciprocal(
    a: Tensor, b: Tensor, m: Tensor, low: float, high: float, v: float
) -> Tensor:
    """The band from 1 / upper to upper."""
    return reference(a, b, m, 1 / high, high, v)
