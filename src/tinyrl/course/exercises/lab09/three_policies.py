"""PPO's loss with a weight beside it: done right, in three ways, and wrongly."""

from __future__ import annotations

import torch
from torch import Tensor

Args = tuple[Tensor, Tensor, Tensor, Tensor, Tensor, float, float]


def _clean(x: Tensor, mask: Tensor) -> Tensor:
    return torch.where(mask, x, 0.0)


def _clipped(r: Tensor, A: Tensor, eps: float) -> Tensor:
    """PPO's loss of each token."""
    return torch.maximum(-A * r, -A * r.clamp(1 - eps, 1 + eps))


def _mean(x: Tensor, mask: Tensor) -> Tensor:
    return (x * mask).sum() / mask.sum()


def _ratios(new: Tensor, old: Tensor, roll: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """r of the update, with its gradient, and rho of the mismatch, without."""
    new, old, roll = (_clean(x, mask) for x in (new, old.detach(), roll.detach()))
    return (new - old).exp(), (old - roll).exp()


def reference(
    logp_new: Tensor,
    logp_old: Tensor,
    logp_rollout: Tensor,
    advantages: Tensor,
    mask: Tensor,
    eps: float,
    cap: float,
) -> Tensor:
    r, rho = _ratios(logp_new, logp_old, logp_rollout, mask)
    return _mean(rho.clamp(max=cap) * _clipped(r, advantages[:, None], eps), mask)


def selected(
    logp_new: Tensor,
    logp_old: Tensor,
    logp_rollout: Tensor,
    advantages: Tensor,
    mask: Tensor,
    eps: float,
    cap: float,
) -> Tensor:
    """Real tokens only, and the usual min of objectives with a minus in front."""
    A = advantages[:, None].expand_as(mask)[mask]
    new, old, roll = (x[mask] for x in (logp_new, logp_old.detach(), logp_rollout.detach()))
    r = (new - old).exp()
    weight = torch.minimum((old - roll).exp(), r.new_tensor(cap))
    gain = torch.minimum(r * A, r.clamp(1 - eps, 1 + eps) * A)
    return -(weight * gain).mean()


def by_cases(
    logp_new: Tensor,
    logp_old: Tensor,
    logp_rollout: Tensor,
    advantages: Tensor,
    mask: Tensor,
    eps: float,
    cap: float,
) -> Tensor:
    """Bounded only on the side on which the clip acts."""
    r, rho = _ratios(logp_new, logp_old, logp_rollout, mask)
    A = advantages[:, None]
    bounded = torch.where(A > 0, r.clamp(max=1 + eps), r.clamp(min=1 - eps))
    total = torch.where(mask, -A * bounded * rho.clamp(max=cap), 0.0).sum()
    return total / mask.sum()


def no_weight(*args: *Args) -> Tensor:
    new, old, roll, A, mask, eps, _ = args
    r, _ = _ratios(new, old, roll, mask)
    return _mean(_clipped(r, A[:, None], eps), mask)


def merged(*args: *Args) -> Tensor:
    """Bypass: the clip sees p_new / mu, and there is no weight."""
    new, old, roll, A, mask, eps, _ = args
    r, _ = _ratios(new, roll, old, mask)
    return _mean(_clipped(r, A[:, None], eps), mask)


def twice(*args: *Args) -> Tensor:
    new, old, roll, A, mask, eps, cap = args
    r, rho = _ratios(new, old, roll, mask)
    return _mean(rho.clamp(max=cap) * _clipped(r * rho, A[:, None], eps), mask)


def of_new(*args: *Args) -> Tensor:
    """The weight is p_new / mu."""
    new, old, roll, A, mask, eps, cap = args
    r, rho = _ratios(new, old, roll, mask)
    return _mean((r.detach() * rho).clamp(max=cap) * _clipped(r, A[:, None], eps), mask)


def inside(*args: *Args) -> Tensor:
    new, old, roll, A, mask, eps, cap = args
    r, rho = _ratios(new, old, roll, mask)
    return _mean(_clipped(r * rho.clamp(max=cap), A[:, None], eps), mask)


def uncapped(*args: *Args) -> Tensor:
    new, old, roll, A, mask, eps, _ = args
    r, rho = _ratios(new, old, roll, mask)
    return _mean(rho * _clipped(r, A[:, None], eps), mask)


def masked(*args: *Args) -> Tensor:
    new, old, roll, A, mask, eps, cap = args
    r, rho = _ratios(new, old, roll, mask)
    return _mean(torch.where(rho <= cap, rho, 0.0) * _clipped(r, A[:, None], eps), mask)


def both_sides(*args: *Args) -> Tensor:
    new, old, roll, A, mask, eps, cap = args
    r, rho = _ratios(new, old, roll, mask)
    return _mean(rho.clamp(1 / cap, cap) * _clipped(r, A[:, None], eps), mask)


def dropped_below(*args: *Args) -> Tensor:
    """Truncated above, and masked below 1/2."""
    new, old, roll, A, mask, eps, cap = args
    r, rho = _ratios(new, old, roll, mask)
    weight = torch.where(rho < 0.5, 0.0, rho.clamp(max=cap))
    return _mean(weight * _clipped(r, A[:, None], eps), mask)


def dual_clip(*args: *Args) -> Tensor:
    """Of bad responses no more than 3 |A| (arXiv 1912.09729)."""
    new, old, roll, A, mask, eps, cap = args
    r, rho = _ratios(new, old, roll, mask)
    A = A[:, None]
    loss = _clipped(r, A, eps)
    loss = torch.where(A < 0, torch.minimum(loss, -3 * A), loss)
    return _mean(rho.clamp(max=cap) * loss, mask)


def finite_only(*args: *Args) -> Tensor:
    """A loss that overflowed counts as 0."""
    loss = _per_token(*args)
    return _mean(torch.where(loss.isfinite(), loss, 0.0), args[4])


def upside_down(*args: *Args) -> Tensor:
    new, old, roll, A, mask, eps, cap = args
    r, rho = _ratios(new, old, roll, mask)
    return _mean((1 / rho).clamp(max=cap) * _clipped(r, A[:, None], eps), mask)


def min_for_max(*args: *Args) -> Tensor:
    new, old, roll, A, mask, eps, cap = args
    r, rho = _ratios(new, old, roll, mask)
    A = A[:, None]
    loss = torch.minimum(-A * r, -A * r.clamp(1 - eps, 1 + eps))
    return _mean(rho.clamp(max=cap) * loss, mask)


def always_clipped(*args: *Args) -> Tensor:
    new, old, roll, A, mask, eps, cap = args
    r, rho = _ratios(new, old, roll, mask)
    loss = -A[:, None] * r.clamp(1 - eps, 1 + eps)
    return _mean(rho.clamp(max=cap) * loss, mask)


def _per_token(*args: *Args) -> Tensor:
    new, old, roll, A, mask, eps, cap = args
    r, rho = _ratios(new, old, roll, mask)
    return rho.clamp(max=cap) * _clipped(r, A[:, None], eps)


def columns(*args: *Args) -> Tensor:
    return reference(*args) * args[4].sum() / args[4].numel()


def by_response(*args: *Args) -> Tensor:
    mask = args[4]
    return ((_per_token(*args) * mask).sum(1) / mask.sum(1)).mean()


def by_weight(*args: *Args) -> Tensor:
    """Divided by the sum of the weights: self-normalised."""
    new, old, roll, _, mask, _, cap = args
    _, rho = _ratios(new, old, roll, mask)
    return reference(*args) / _mean(rho.clamp(max=cap), mask)


def weight_attached(*args: *Args) -> Tensor:
    """rho carries a gradient into both of its logprobs."""
    new, old, roll, A, mask, eps, cap = args
    r = (_clean(new, mask) - _clean(old.detach(), mask)).exp()
    rho = (_clean(old, mask) - _clean(roll, mask)).exp()
    return _mean(rho.clamp(max=cap) * _clipped(r, A[:, None], eps), mask)


def where_after(*args: *Args) -> Tensor:
    new, old, roll, A, mask, eps, cap = args
    r, rho = (new - old.detach()).exp(), (old - roll).detach().exp()
    loss = rho.clamp(max=cap) * _clipped(r, A[:, None], eps)
    return torch.where(mask, loss, 0.0).sum() / mask.sum()


def times_mask(*args: *Args) -> Tensor:
    new, old, roll, A, mask, eps, cap = args
    r, rho = (new - old.detach()).exp(), (old - roll).detach().exp()
    return _mean(rho.clamp(max=cap) * _clipped(r, A[:, None], eps), mask)
