"""Bad responses left behind: which tokens stay, found in three ways, and wrongly."""

from __future__ import annotations

import torch
from torch import Tensor


def mean_behind(logp_new: Tensor, logp_rollout: Tensor, mask: Tensor) -> Tensor:
    """Mean of log mu - log p_new over each response, `[B, 1]`."""
    d = torch.where(mask, logp_rollout - logp_new, 0.0)
    return d.sum(1, keepdim=True) / mask.sum(1, keepdim=True).clamp(min=1)


def reference(
    logp_new: Tensor, logp_rollout: Tensor, advantages: Tensor, mask: Tensor, delta: float
) -> Tensor:
    behind = mean_behind(logp_new, logp_rollout, mask) > delta
    return mask & ~((advantages < 0)[:, None] & behind)


def row_by_row(
    logp_new: Tensor, logp_rollout: Tensor, advantages: Tensor, mask: Tensor, delta: float
) -> Tensor:
    kept = mask.clone()
    for b, A in enumerate(advantages.tolist()):
        real = mask[b]
        if A < 0 and real.any():
            gap = (logp_rollout[b][real] - logp_new[b][real]).mean()
            kept[b] = real & ~(gap > delta)
    return kept


def kept_if(
    logp_new: Tensor, logp_rollout: Tensor, advantages: Tensor, mask: Tensor, delta: float
) -> Tensor:
    good = advantages.ge(0).unsqueeze(1)
    near = mean_behind(logp_new, logp_rollout, mask).le(delta)
    return mask.logical_and(good.logical_or(near))


def other(behind: Tensor, A: Tensor, mask: Tensor, delta: float) -> Tensor:
    return mask & ~((A < 0)[:, None] & (behind > delta))


def summed(new: Tensor, roll: Tensor, A: Tensor, mask: Tensor, delta: float) -> Tensor:
    total = torch.where(mask, roll - new, 0.0).sum(1, keepdim=True)
    return other(total, A, mask, delta)


def columns(new: Tensor, roll: Tensor, A: Tensor, mask: Tensor, delta: float) -> Tensor:
    mean = torch.where(mask, roll - new, 0.0).mean(1, keepdim=True)
    return other(mean, A, mask, delta)


def nonzero(new: Tensor, roll: Tensor, A: Tensor, mask: Tensor, delta: float) -> Tensor:
    d = torch.where(mask, roll - new, 0.0)
    return other(mean_behind(new, roll, mask & (d != 0)), A, mask, delta)


def centred(new: Tensor, roll: Tensor, A: Tensor, mask: Tensor, delta: float) -> Tensor:
    return reference(new, roll, A - A.mean(), mask, delta)


def relative(new: Tensor, roll: Tensor, A: Tensor, mask: Tensor, delta: float) -> Tensor:
    """What the mean ratio of probabilities is off 1, against delta."""
    return other(mean_behind(new, roll, mask).expm1(), A, mask, delta)


def absolute(new: Tensor, roll: Tensor, A: Tensor, mask: Tensor, delta: float) -> Tensor:
    return other(mean_behind(new, roll, mask).abs(), A, mask, delta)


def turned_round(
    new: Tensor, roll: Tensor, A: Tensor, mask: Tensor, delta: float
) -> Tensor:
    return other(-mean_behind(new, roll, mask), A, mask, delta)


def ratio(new: Tensor, roll: Tensor, A: Tensor, mask: Tensor, delta: float) -> Tensor:
    """exp of the mean against delta."""
    return other(mean_behind(new, roll, mask).exp(), A, mask, delta)


def tokens(new: Tensor, roll: Tensor, A: Tensor, mask: Tensor, delta: float) -> Tensor:
    d = torch.where(mask, roll - new, 0.0)
    return other(d, A, mask, delta)


def mean_abs(new: Tensor, roll: Tensor, A: Tensor, mask: Tensor, delta: float) -> Tensor:
    d = torch.where(mask, (roll - new).abs(), 0.0)
    return other(d.sum(1, keepdim=True) / mask.sum(1, keepdim=True), A, mask, delta)
