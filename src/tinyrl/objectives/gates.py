"""What holds an update back: the loss of each token from its ratio and its advantage.

Told by the gradient of a token's loss by its own logprob, r being its ratio:

| gate      | gradient                                               | objectives    |
|-----------|--------------------------------------------------------|---------------|
| clip      | -A r; 0 once r has left the band in the direction of A | PPO to GSPO   |
| dual clip | the same; 0 above c too where A < 0                    | PPO, optional |
| soft      | -A r 4 s (1 - s), s = sigmoid(tau (r - 1))             | SAPO          |
| capped    | -A clip(r, lower, upper): never 0                      | CISPO         |
| none      | -A: the ratio plays no part                            | REINFORCE     |
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from ..logprobs import as_floats, as_tensor, number, refuse
from .inputs import dual_bound, widths


def clip(
    r: Tensor, A: Tensor, eps_low: float, eps_high: float, dual_clip: float | None = None
) -> Tensor:
    """-min(r A, clip(r, 1 - eps_low, 1 + eps_high) A): PPO, arXiv 1707.06347 eq. 7.

    With `dual_clip` c, -max(min(r A, clip(r, ...) A), c A) where A < 0: PPO leaves the loss
    of a bad token unbounded as its ratio grows (dual-clip PPO, arXiv 1912.09729).
    """
    low, high = widths(eps_low, eps_high)
    return clipped(*_checked(r, A), low, high, dual_bound(dual_clip))


def soft_gate(r: Tensor, A: Tensor, tau_pos: float = 1.0, tau_neg: float = 1.05) -> Tensor:
    """-(4 / tau) sigmoid(tau (r - 1)) A, with tau_pos where A > 0: SAPO, arXiv 2511.20347.

    4 / tau makes the gradient by r equal -A at r = 1, whatever tau is.
    """
    pos, neg = temperatures(tau_pos, tau_neg)
    return softened(*_checked(r, A), pos, neg)


def _checked(r: Tensor, A: Tensor) -> tuple[Tensor, Tensor]:
    """Ratios and advantages whose shapes fit; neither NaN nor inf, no ratio below 0."""
    r, A = as_tensor("r", r), as_tensor("A", A)
    for name, x in (("r", r), ("A", A)):
        if x.dtype == torch.bool:
            raise ValueError(f"{name} must hold numbers, not bool")
    r, A = as_floats("r", r), as_floats("A", A)
    try:
        np.broadcast_shapes(r.shape, A.shape)
    except ValueError:
        raise ValueError(
            f"r and A do not fit: shapes {list(r.shape)} and {list(A.shape)}"
        ) from None
    refuse(~(r.isfinite() & (r >= 0)), r, "r", "is no ratio")
    refuse(~A.isfinite(), A, "A", "is not finite")
    return r, A


def temperatures(tau_pos: float, tau_neg: float) -> tuple[float, float]:
    """Both above 0: at 0 the gate would be 2 / 0."""
    pos, neg = number("tau_pos", tau_pos), number("tau_neg", tau_neg)
    for name, tau in (("tau_pos", pos), ("tau_neg", neg)):
        if not 0 < tau < math.inf:
            raise ValueError(f"{name} must be above 0 and finite, not {tau}")
    return pos, neg


def weight_bounds(
    eps_low: float, eps_high: float | None, cap: float | None
) -> tuple[float, float]:
    """Smallest and largest weight that CISPO lets through.

    The two ways to say the upper one are kept apart by their ranges: no number is taken for
    both a width and a cap.
    """
    low = number("eps_low", eps_low)
    if not 0 <= low <= 1:
        raise ValueError(
            f"eps_low must be between 0 and 1, not {low}: at 1 there is no lower bound"
        )
    if (eps_high is None) is (cap is None):
        raise ValueError(
            f"eps_high or cap must be given, one of them, not {eps_high} and {cap}: "
            "eps_high is a width above 1 (verl), cap the largest weight itself (TRL)"
        )
    if cap is None:
        high = number("eps_high", eps_high)
        if not 0 <= high <= 1:
            raise ValueError(
                f"eps_high must be between 0 and 1, not {high}: it is a width above 1; a "
                f"largest weight of {high} is cap={high}"
            )
        return 1 - low, 1 + high
    high = number("cap", cap)
    if not high > 1:
        raise ValueError(
            f"cap must be above 1, not {high}: it is the largest weight itself, and would "
            "shrink the weight 1 of a policy that has not moved; a width above 1 is "
            f"eps_high={high}"
        )
    return 1 - low, high


# Without checks, for what was checked already


def clipped(
    r: Tensor, A: Tensor, low: float, high: float, dual: float | None = None
) -> Tensor:
    """`clip` of checked arrays."""
    loss = torch.max(-r * A, -r.clamp(1 - low, 1 + high) * A)
    return loss if dual is None else torch.where(A < 0, loss.clamp(max=-dual * A), loss)


def softened(r: Tensor, A: Tensor, pos: float, neg: float) -> Tensor:
    """`soft_gate` of checked arrays."""
    tau = torch.where(A > 0, r.new_tensor(pos), r.new_tensor(neg))  # in r's precision
    return -4 / tau * torch.sigmoid(tau * (r - 1)) * A
