"""Where two engines route the same tokens differently, and what that does to logprobs."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from .logprobs import masked_mean
from .metrics import token_delta
from .moe import expert_load
from .rollout import Batch
from .scoring import Score


@dataclass(frozen=True)
class RouteMismatch:
    """Rollout against trainer, over the response tokens of one batch.

    A flip is another *set* of experts for a token in a layer; their order is no matter.
    """

    flips: tuple[float, ...]
    """Share of tokens that flip, by layer."""
    flipped_tokens: float
    """Share of tokens that flip in some layer."""
    delta_flipped: float | None
    """Mean |delta| of these tokens, in nats; None if there are none."""
    delta_kept: float | None
    """Mean |delta| of all others. A flip before them may have moved these too."""
    load_rollout: tuple[tuple[float, ...], ...]
    """Share of the choices that went to each expert, by layer; a layer's sum is 1."""
    load_train: tuple[tuple[float, ...], ...]
    drift: tuple[float, ...]
    """Half the sum of |load_train - load_rollout|, by layer: choices that moved, net."""


@torch.no_grad()
def compare_routes(batch: Batch, scored: Score) -> RouteMismatch:
    """What two engines chose for the same tokens, and |delta| where that differs.

    Compares the experts that were used: under replay there is no flip. Raises `ValueError`
    where a side has no routes, as those of a dense model.
    """
    if batch.routes is None or scored.routes is None:
        raise ValueError("routes are missing: only a mixture of experts has some")
    P, mask = batch.prompt.shape[1], batch.mask
    ours, theirs = scored.routes.of_response(P), batch.routes.of_response(P)
    flipped = flips(theirs.experts, ours.experts)  # [B, T, L]
    some, size = flipped.any(-1), token_delta(batch.logp_rollout, scored.logp, mask).abs()
    loads = [expert_load(routes, mask) for routes in (theirs, ours)]
    real = mask[..., None].expand_as(flipped).flatten(0, 1)
    return RouteMismatch(
        flips=tuple(masked_mean(flipped.double().flatten(0, 1), real, 0).tolist()),
        flipped_tokens=masked_mean(some.double(), mask).item(),
        delta_flipped=_mean_or_none(size[mask & some]),
        delta_kept=_mean_or_none(size[mask & ~some]),
        load_rollout=_rows(loads[0]),
        load_train=_rows(loads[1]),
        drift=tuple(((loads[1] - loads[0]).abs().sum(-1) / 2).tolist()),
    )


def flips(a: Tensor, b: Tensor) -> Tensor:
    """Boolean `[...]`: where two choices `[..., k]` are other sets of experts."""
    if a.shape != b.shape:
        raise ValueError(f"choices differ in shape: {list(a.shape)} and {list(b.shape)}")
    return (a.sort(-1).values != b.sort(-1).values).any(-1)


def _mean_or_none(x: Tensor) -> float | None:
    return x.mean().item() if len(x) else None


def _rows(x: Tensor) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(row) for row in x.tolist())
