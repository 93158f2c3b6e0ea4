"""Policy losses as compositions: ratio(level) -> gate -> aggregate.

Every objective takes `logp [B, T]` (with gradient), `logp_old [B, T]`, `advantages` (`[B]`,
the same for all tokens of a response, or `[B, T]`) and `mask [B, T]`, and returns the
scalar to minimise. What went on in it is told by `diagnostics`, from the same arrays.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from .logprobs import (
    as_logp,
    as_mask,
    as_tensor,
    checked_values,
    masked_mean,
    masked_sum,
    number,
    same_shape,
)

Level = Literal["token", "sequence", "geometric"]
Aggregation = Literal["token_mean", "sequence_mean"]

MAX_LOG_RATIO = 20.0
"""Log-ratios are clamped to +-20 before `exp`, as in verl: e^20 is 4.9e8. Beyond, a ratio
is finite and has no gradient; unclamped, a long sequence's would be inf, its loss NaN."""


@dataclass(frozen=True)
class LossView:
    """Which old logprobs the loss sees, and how it averages tokens."""

    anchor: Literal["recompute", "rollout"] = "recompute"
    """Old logprobs as the trainer recomputes them, or as the rollout reported them."""
    aggregation: Aggregation = "token_mean"

    def __post_init__(self) -> None:
        one_of("anchor", self.anchor, ("recompute", "rollout"))
        one_of("aggregation", self.aggregation, get_args(Aggregation))


def ratio(log_ratio: Tensor, mask: Tensor, level: Level = "token") -> Tensor:
    """Importance ratio of each token `[B, T]` from its log-ratio; 1 in padding.

    - token: r_t = exp(d_t)
    - sequence: exp(sum_t d_t), the product of its tokens' ratios, for each token of a row
    - geometric: exp(mean_t d_t), their geometric mean: s_i of GSPO, arXiv 2507.18071 eq. 7
    """
    return exp_ratio(at_level(log_ratio, mask, level))


def at_level(log_ratio: Tensor, mask: Tensor, level: Level) -> Tensor:
    """The logarithm of `ratio`, not clamped: `[B, T]`, 0 in padding."""
    log_ratio = as_logp("log_ratio", log_ratio)
    mask = as_mask(mask, log_ratio)
    one_of("level", level, get_args(Level))
    return pool(torch.where(mask, log_ratio, 0.0), mask, level)


def clip(r: Tensor, A: Tensor, eps_low: float, eps_high: float) -> Tensor:
    """-min(r A, clip(r, 1 - eps_low, 1 + eps_high) A): PPO, arXiv 1707.06347 eq. 7."""
    low, high = _widths(eps_low, eps_high)
    return _clip(as_tensor("r", r), as_tensor("A", A), low, high)


def aggregate(x: Tensor, mask: Tensor, how: Aggregation) -> Tensor:
    """One loss from those of tokens `x [B, T]`.

    - token_mean: over all real tokens of the batch, so long responses weigh more
      (DAPO, arXiv 2503.14476 §3.3)
    - sequence_mean: over the tokens of each response, then over the responses that have
      any (GRPO, arXiv 2402.03300 eq. 3)
    """
    x = as_logp("x", x)
    one_of("aggregation", how, get_args(Aggregation))
    return _aggregate(x, as_mask(mask, x), how)


def ppo_clip(
    logp: Tensor,
    logp_old: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    eps_low: float = 0.2,
    eps_high: float = 0.2,
    weight: Tensor | None = None,
    aggregation: Aggregation = "token_mean",
) -> Tensor:
    """PPO's clipped surrogate (arXiv 1707.06347 eq. 7), negated; scalar.

    `weight [B, T]` multiplies each token's loss and carries no gradient: the importance
    weight of a `Correction`, in the decoupled form (arXiv 2110.00641).
    """
    one_of("aggregation", aggregation, get_args(Aggregation))
    low, high = _widths(eps_low, eps_high)
    logp, logp_old, A, mask = _arrays(logp, logp_old, advantages, mask)
    loss = _clip(exp_ratio(logp - logp_old), A, low, high)
    return _aggregate(_weighted(loss, weight, mask), mask, aggregation)


def grpo(
    logp: Tensor,
    logp_old: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    eps_low: float = 0.2,
    eps_high: float = 0.2,
    weight: Tensor | None = None,
    logp_ref: Tensor | None = None,
    beta: float = 0.04,
    aggregation: Aggregation = "sequence_mean",
) -> Tensor:
    """GRPO (arXiv 2402.03300 eq. 3): PPO-clip under group advantages, scalar.

    With `logp_ref [B, T]`, beta times KL to the reference is added, estimated by K3 with
    x = ref / pi: x - log x - 1 (eq. 4). `weight` does not touch that term.
    """
    clipped = ppo_clip(
        logp,
        logp_old,
        advantages,
        mask,
        eps_low=eps_low,
        eps_high=eps_high,
        weight=weight,
        aggregation=aggregation,
    )
    if logp_ref is None:
        return clipped
    logp, logp_ref, mask = _pair(mask, logp=logp, logp_ref=logp_ref)
    log_x = (logp_ref.detach() - logp).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
    k3 = torch.expm1(log_x) - log_x
    return clipped + number("beta", beta) * _aggregate(k3, mask, aggregation)


@torch.no_grad()
def diagnostics(
    logp: Tensor,
    logp_old: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    eps_low: float = 0.2,
    eps_high: float = 0.2,
) -> dict[str, float]:
    """What PPO's clip did to these arrays, and how far the policy is from the old one.

    A token counts as clipped where the clip decides the loss and stops the gradient: ratio
    too high with A > 0, or too low with A < 0. Fractions are of real tokens. K1 and K3
    estimate KL(old || new) in nats a token (x ~ old). Ratio quantiles of no token are NaN.
    """
    logp, logp_old, A, mask = _arrays(logp, logp_old, advantages, mask)
    low, high = _widths(eps_low, eps_high)
    d = (logp - logp_old).double()
    r = exp_ratio(d)
    too_high = masked_mean(((r > 1 + high) & (A > 0)).double(), mask).item()
    too_low = masked_mean(((r < 1 - low) & (A < 0)).double(), mask).item()
    kept = r[mask].sort().values
    quantiles = {
        name: kept[round(q * (len(kept) - 1))].item() if len(kept) else float("nan")
        for name, q in {"min": 0, "p01": 0.01, "p50": 0.5, "p99": 0.99, "max": 1}.items()
    }
    return {
        "clip_fraction": too_low + too_high,
        "clip_fraction_low": too_low,
        "clip_fraction_high": too_high,
        "k1": masked_mean(-d, mask).item(),
        "k3": masked_mean(torch.expm1(d.clamp(max=MAX_LOG_RATIO)) - d, mask).item(),
        **{f"ratio_{name}": value for name, value in quantiles.items()},
    }


def one_of(name: str, value: Any, choices: tuple[str, ...]) -> str:
    """`value`, or a `ValueError` that says what `name` may be."""
    if not isinstance(value, str) or value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(choices)}, not {value!r}")
    return value


# Without checks, for what was checked already: padding is 0 and masks are boolean


def exp_ratio(log_ratio: Tensor) -> Tensor:
    """exp of a log-ratio, with the bound that keeps it finite."""
    return log_ratio.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()


def pool(d: Tensor, mask: Tensor, level: Level) -> Tensor:
    """`at_level` of checked arrays."""
    if level == "token":
        return d
    total = masked_sum if level == "sequence" else masked_mean
    return torch.where(mask, total(d, mask, 1)[:, None], 0.0)


def _clip(r: Tensor, A: Tensor, low: float, high: float) -> Tensor:
    return torch.max(-r * A, -r.clamp(1 - low, 1 + high) * A)


def _aggregate(x: Tensor, mask: Tensor, how: Aggregation) -> Tensor:
    if how == "token_mean":
        return masked_mean(x, mask)
    return masked_mean(masked_mean(x, mask, 1), mask.any(1))


# Checks


def _arrays(
    logp: Tensor, logp_old: Tensor, advantages: Tensor, mask: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Checked, with advantages as `[B, T]` and zeros in padding."""
    x, y, real = _pair(mask, logp=logp, logp_old=logp_old)
    B, T = x.shape
    A = as_tensor("advantages", advantages).to(x.device)
    if A.shape not in ((B,), (B, T)):
        raise ValueError(
            f"advantages must be [B] or [B, T] for logprobs of shape {[B, T]}, "
            f"got {list(A.shape)}"
        )
    A = A[:, None].expand(B, T) if A.dim() == 1 else A
    return x, y.detach(), _finite("advantages", A, real).detach(), real


def _pair(mask: Tensor, **arrays: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Two arrays of one shape and their mask, zeros in padding. A row may be empty here: a
    correction may have dropped all of its tokens."""
    logps = {name: as_logp(name, x) for name, x in arrays.items()}
    same_shape(logps)
    real = as_mask(mask, next(iter(logps.values())))
    x, y = (checked_values(name, a, real) for name, a in logps.items())
    return x, y, real


def _weighted(loss: Tensor, weight: Tensor | None, mask: Tensor) -> Tensor:
    if weight is None:
        return loss
    weight = as_tensor("weight", weight).to(loss.device)
    if weight.shape != loss.shape:
        raise ValueError(
            f"weight must be [B, T] = {list(loss.shape)}, got {list(weight.shape)}"
        )
    return loss * _finite("weight", weight, mask).detach()


def _finite(name: str, x: Tensor, mask: Tensor) -> Tensor:
    bad = (~x.isfinite() & mask).nonzero()
    if len(bad):
        b, t = bad[0].tolist()
        raise ValueError(f"{name} row {b}, column {t} is not finite: {x[b, t].item()}")
    return torch.where(mask, x, 0.0)


def _widths(eps_low: float, eps_high: float) -> tuple[float, float]:
    eps_low, eps_high = number("eps_low", eps_low), number("eps_high", eps_high)
    if not (0 <= eps_low <= 1 and 0 <= eps_high < float("inf")):
        raise ValueError(
            "clip widths must be 0 <= eps_low <= 1 and 0 <= eps_high (finite), "
            f"not {eps_low} and {eps_high}"
        )
    return eps_low, eps_high
