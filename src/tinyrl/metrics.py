"""How far two policies are apart on the same tokens: delta, KL estimates, weights.

delta d_t = log p_train - log p_rollout of response token t. Tokens were sampled by the
rollout policy (mu), so means over them estimate expectations under it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from .logprobs import (
    as_ids,
    as_logp,
    as_mask,
    as_tensor,
    check_logps,
    checked_values,
    finite,
    masked_mean,
    masked_sum,
    number,
    same_shape,
)


@dataclass(frozen=True)
class Mismatch:
    """Rollout against trainer on the same tokens. Nats, unless it says otherwise."""

    tokens: int
    sequences: int
    mean: float
    """Mean of d over tokens; its sign says which side rates the tokens higher."""
    mean_abs: float
    p99_abs: float
    max_abs: float
    k1: float
    """Mean of -d: unbiased for KL(mu || train), either sign, noisy."""
    k2: float
    """Mean of d^2 / 2: biased, small noise."""
    k3: float
    """Mean of exp(d) - 1 - d: unbiased, never negative (Schulman 2020)."""
    seq_mean: float
    """Mean over sequences of Delta = sum_t d_t."""
    seq_mean_abs: float
    seq_max_abs: float
    seq_per_token: float
    """Mean over sequences of |Delta| / T: the length-normalised sequence delta."""
    ratio_min: float
    """Smallest exp(d)."""
    ratio_max: float
    clip_fraction: float
    """Share of tokens with exp(d) outside 1 +- clip: what PPO may clip at step 0."""
    ess: float
    """Effective sample size of token weights exp(d), as a share of tokens: 1 if equal."""
    ess_seq: float
    """The same of sequence weights exp(Delta), as a share of the sequences."""
    top1_agreement: float | None
    """Share of tokens where both sides have the same likeliest one; None if not given."""

    def table(self) -> list[tuple[str, str]]:
        """Name and value of each number that is there, ready to print."""
        pairs = ((f.name, getattr(self, f.name)) for f in fields(self))
        return [(name, _plain(value)) for name, value in pairs if value is not None]


@torch.no_grad()
def compare(
    logp_rollout: Any,
    logp_train: Any,
    mask: Any = None,
    *,
    clip: float = 0.2,
    top1_rollout: Any = None,
    top1_train: Any = None,
) -> Mismatch:
    """Measure the mismatch of two `[B, T]` arrays (torch or numpy) in float64.

    `top1_*` are the likeliest token ids `[B, T]` of each side, both or neither. Raises
    `ValueError` as `check_logps` does.
    """
    if not 0 < number("clip", clip) < math.inf:
        raise ValueError(f"clip must be above 0, not {clip}")
    delta, mask = _delta(logp_rollout, logp_train, mask)
    d = delta[mask]
    k1, k2, k3 = (k.mean().item() for k in kl_terms(d))
    Delta = sequence_delta(delta, mask)
    r = d.exp()
    return Mismatch(
        tokens=len(d),
        sequences=len(Delta),
        mean=d.mean().item(),
        mean_abs=d.abs().mean().item(),
        p99_abs=float(np.quantile(d.abs().numpy(), 0.99)),
        max_abs=d.abs().max().item(),
        k1=k1,
        k2=k2,
        k3=k3,
        seq_mean=Delta.mean().item(),
        seq_mean_abs=Delta.abs().mean().item(),
        seq_max_abs=Delta.abs().max().item(),
        seq_per_token=(Delta.abs() / mask.sum(1)).mean().item(),
        ratio_min=r.min().item(),
        ratio_max=r.max().item(),
        clip_fraction=((r < 1 - clip) | (r > 1 + clip)).double().mean().item(),
        ess=ess(d),
        ess_seq=ess(Delta),
        top1_agreement=_agreement(top1_rollout, top1_train, mask),
    )


def token_delta(
    logp_rollout: Tensor, logp_train: Tensor, mask: Tensor | None = None
) -> Tensor:
    """d = logp_train - logp_rollout: `[B, T]`, 0 in padding; float64, CPU, no gradient."""
    return _delta(logp_rollout, logp_train, mask)[0]


def sequence_delta(delta: Tensor, mask: Tensor) -> Tensor:
    """Delta = sum_t d_t of each sequence, `[B]`: the log of its probabilities' ratio."""
    delta = as_logp("delta", delta)
    mask = as_mask(mask, delta)
    return masked_sum(finite("delta", delta, mask), mask, 1)


def kl_terms(d: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """K1, K2, K3 of each delta, before averaging: estimators of KL(mu || train), x ~ mu.

    k1 = -d, k2 = d^2 / 2, k3 = exp(d) - 1 - d (J. Schulman, "Approximating KL divergence",
    2020). `expm1` in float64 keeps K3 right where it is 1e-9: exp(d) - 1 would leave noise.
    """
    d = as_tensor("d", d).double()
    return -d, d * d / 2, torch.expm1(d) - d


def ess(log_weights: Tensor) -> float:
    """(mean w)^2 / mean w^2 of weights w = exp(log_weights), in (0, 1]: Kish 1965.

    By logsumexp, so that weights beyond the range of floats do not matter. Raises
    `ValueError` on none, on NaN or infinite weights, and where all weights are 0.
    """
    x = as_tensor("log_weights", log_weights).double().flatten()
    if not len(x) or not x.max().isfinite():
        raise ValueError(
            "log_weights must hold numbers: at least one, none NaN or inf, not all -inf"
        )
    log_ess = 2 * x.logsumexp(0) - (2 * x).logsumexp(0) - math.log(len(x))
    return min(1.0, log_ess.exp().item())


class Profile(NamedTuple):
    """Delta in groups: by position or by probability. NaN where a group has no token."""

    mean_abs: Tensor
    mean: Tensor
    count: Tensor  # type: ignore[assignment]  # a tuple has a method of this name


def by_position(delta: Tensor, mask: Tensor) -> Profile:
    """Mean |d|, mean d and number of tokens at each response position, `[T]` each."""
    delta = as_logp("delta", delta)
    mask = as_mask(mask, delta)
    return _profile(finite("delta", delta, mask), mask, mask.sum(0), 0)


def by_probability(
    delta: Tensor, logp_rollout: Tensor, mask: Tensor, edges: Tensor | None = None
) -> Profile:
    """Mean |d|, mean d and number of tokens in bins of the rollout's probability.

    `edges` are N + 1 rising bounds in [0, 1]; a bin holds lower < p <= upper, the first one
    p = lower too. By default ten equal bins. Returns `[N]` each.
    """
    arrays = {"delta": as_logp("delta", delta)}
    arrays["logp_rollout"] = as_logp("logp_rollout", logp_rollout)
    same_shape(arrays)
    delta, logp_rollout = arrays.values()
    mask = as_mask(mask, delta)
    edges = torch.linspace(0, 1, 11) if edges is None else as_tensor("edges", edges)
    if edges.dim() != 1 or len(edges) < 2 or not (edges.diff() > 0).all():
        raise ValueError("edges must be at least two rising numbers")
    edges = edges.to(delta)
    delta = finite("delta", delta, mask)
    logp_rollout = checked_values("logp_rollout", logp_rollout, mask)
    p = logp_rollout.to(delta).exp().clamp(max=1.0)
    bins = torch.bucketize(p, edges) - 1
    bins = torch.where(p == edges[0], 0, bins)
    members = [mask & (bins == i) for i in range(len(edges) - 1)]
    parts = [_profile(delta, m, m.sum(), None) for m in members]
    return Profile(*(torch.stack(x) for x in zip(*parts, strict=True)))


def _delta(logp_rollout: Any, logp_train: Any, mask: Any) -> tuple[Tensor, Tensor]:
    roll, train, mask = check_logps(mask, logp_rollout=logp_rollout, logp_train=logp_train)
    roll, train = (x.detach().cpu().double() for x in (roll, train))
    return train - roll, mask.cpu()


def _profile(delta: Tensor, mask: Tensor, count: Tensor, dim: int | None) -> Profile:
    mean_abs, mean = masked_mean(delta.abs(), mask, dim), masked_mean(delta, mask, dim)
    some = count > 0
    return Profile(
        torch.where(some, mean_abs, math.nan), torch.where(some, mean, math.nan), count
    )


def _agreement(a: Any, b: Any, mask: Tensor) -> float | None:
    if a is None and b is None:
        return None
    if a is None or b is None:
        raise ValueError("give both top1_rollout and top1_train, or neither")
    a, b = as_ids("top1_rollout", a).cpu(), as_ids("top1_train", b).cpu()
    for name, x in (("top1_rollout", a), ("top1_train", b)):
        if x.shape != mask.shape:
            raise ValueError(
                f"{name} has shape {list(x.shape)}, logprobs have {list(mask.shape)}"
            )
    return masked_mean((a == b).double(), mask).item()


def _plain(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}"
