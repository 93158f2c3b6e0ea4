"""What an objective is given, checked: an error names the array, its row and its column.

Padding comes back as 0, whatever it held. A row may be empty here, unlike in `check_logps`:
a correction may have dropped all of its tokens.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..logprobs import (
    as_logp,
    as_mask,
    as_tensor,
    checked_values,
    finite,
    number,
    refuse,
    same_shape,
)


def widths(eps_low: float, eps_high: float) -> tuple[float, float]:
    """How far below and above 1 a ratio may go."""
    eps_low, eps_high = number("eps_low", eps_low), number("eps_high", eps_high)
    if not (0 <= eps_low <= 1 and 0 <= eps_high < math.inf):
        raise ValueError(
            "clip widths must be 0 <= eps_low <= 1 and 0 <= eps_high (finite), "
            f"not {eps_low} and {eps_high}"
        )
    return eps_low, eps_high


def dual_bound(dual_clip: float | None) -> float | None:
    """The c of dual clip, above 1; None is none."""
    if dual_clip is not None and not 1 < number("dual_clip", dual_clip) < math.inf:
        raise ValueError(
            f"dual_clip must be above 1 (and finite), not {dual_clip}: it bounds the ratio "
            "itself, and two equal policies have ratio 1"
        )
    return None if dual_clip is None else number("dual_clip", dual_clip)


def loss_arrays(
    logp: Tensor, logp_old: Tensor, advantages: Tensor, mask: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Checked, with advantages as `[B, T]`; only `logp` may carry a gradient."""
    x, y, real = pair(mask, logp=logp, logp_old=logp_old)
    return x, y.detach(), token_advantages(advantages, x, real), real


def token_advantages(advantages: Tensor, logp: Tensor, mask: Tensor) -> Tensor:
    """`[B, T]`, 0 in padding and without gradient, of one a response or one a token."""
    A = as_tensor("advantages", advantages).to(logp.device)
    if A.dtype == torch.bool:
        raise ValueError("advantages must be numbers, above and below 0, not bool")
    B, T = logp.shape
    if A.shape not in ((B,), (B, T)):
        raise ValueError(
            f"advantages must be [B] or [B, T] for logprobs of shape {[B, T]}, "
            f"got {list(A.shape)}"
        )
    A = A[:, None].expand(B, T) if A.dim() == 1 else A
    return finite("advantages", A, mask).detach()


def pair(mask: Tensor, **arrays: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Two arrays of one shape and their mask."""
    logps = {name: as_logp(name, x) for name, x in arrays.items()}
    same_shape(logps)
    real = as_mask(mask, next(iter(logps.values())))
    x, y = (checked_values(name, a, real) for name, a in logps.items())
    return x, y, real


def weighted(loss: Tensor, weight: Tensor | None, mask: Tensor) -> Tensor:
    """Each token's loss times its weight, which gets no gradient."""
    if weight is None:
        return loss
    weight = as_tensor("weight", weight).to(loss.device)
    if weight.shape != loss.shape:
        raise ValueError(
            f"weight must be [B, T] = {list(loss.shape)}, got {list(weight.shape)}"
        )
    weight = finite("weight", weight, mask)
    refuse(weight < 0, weight, "weight", "is negative, so no ratio of probabilities")
    return loss * weight.detach()


def counted_tokens(counted: Tensor | None, mask: Tensor) -> Tensor:
    """The tokens that a denominator counts: those of `mask` where nothing else is said."""
    if counted is None:
        return mask
    real = as_tensor("counted", counted).to(mask.device)
    if real.shape != mask.shape:
        raise ValueError(
            f"counted must be [B, T] = {list(mask.shape)}, got {list(real.shape)}"
        )
    refuse((real != 0) & (real != 1), real, "counted", "is neither 0 nor 1")
    missing = (
        "is false where mask is true: a mean would have tokens in its sum that its "
        "denominator leaves out"
    )
    refuse(mask & (real == 0), real, "counted", missing)
    return real == 1


def one_for_each_response(A: Tensor, mask: Tensor) -> Tensor:
    """`A [B, T]`, refused where a response's tokens differ in it."""
    high = torch.where(mask, A, -math.inf).amax(1)
    low = torch.where(mask, A, math.inf).amin(1)
    differ = (high > low).nonzero()
    if len(differ):
        raise ValueError(
            f"advantages row {differ[0].item()} differ from token to token: GSPO has one "
            "for a whole response; gspo_token takes one for each token"
        )
    return A
