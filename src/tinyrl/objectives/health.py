"""What a clip did to a batch, beside the loss and from the same arrays."""

from __future__ import annotations

from typing import get_args

import torch
from torch import Tensor

from ..logprobs import masked_mean, one_of
from .inputs import dual_bound, loss_arrays, widths
from .ratios import MAX_LOG_RATIO, Level, exp_ratio, pool


@torch.no_grad()
def diagnostics(
    logp: Tensor,
    logp_old: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    eps_low: float = 0.2,
    eps_high: float = 0.2,
    dual_clip: float | None = None,
    level: Level = "token",
) -> dict[str, float]:
    """What PPO's clip did to these arrays, and how far the policy is from the old one.

    A token counts as clipped where the clip decides the loss and stops the gradient: ratio
    too high with A > 0, or too low with A < 0, or above `dual_clip` with A < 0. `level` is
    that of the ratio: "geometric" for GSPO, with GSPO's widths. Fractions are of real
    tokens. K1 and K3 estimate KL(old || new) in nats a token (x ~ old), whatever the level.
    Ratio quantiles of no token are NaN.
    """
    low, high = widths(eps_low, eps_high)
    dual = dual_bound(dual_clip)
    one_of("level", level, get_args(Level))
    logp, logp_old, A, mask = loss_arrays(logp, logp_old, advantages, mask)
    d = (logp - logp_old).double()
    r = exp_ratio(pool(d, mask, level))

    def share(stopped: Tensor) -> float:
        return masked_mean(stopped.double(), mask).item()

    fractions = {
        "clip_fraction_low": share((r < 1 - low) & (A < 0)),
        "clip_fraction_high": share((r > 1 + high) & (A > 0)),
        "clip_fraction_dual": 0.0 if dual is None else share((r > dual) & (A < 0)),
    }
    kept = r[mask].sort().values
    quantiles = {
        name: kept[round(q * (len(kept) - 1))].item() if len(kept) else float("nan")
        for name, q in {"min": 0, "p01": 0.01, "p50": 0.5, "p99": 0.99, "max": 1}.items()
    }
    return {
        "clip_fraction": sum(fractions.values()),
        **fractions,
        "k1": masked_mean(-d, mask).item(),
        "k3": masked_mean(torch.expm1(d.clamp(max=MAX_LOG_RATIO)) - d, mask).item(),
        **{f"ratio_{name}": value for name, value in quantiles.items()},
    }
