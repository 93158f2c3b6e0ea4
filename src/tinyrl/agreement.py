"""Do two policies agree on the likeliest tokens? Seen from the top k of either side.

Inference engines return the k likeliest tokens of a step with their logprobs; a trainer has
all logits. `TopK` is what both can give. Agreement on the first is blind to most of what
matters (BF16 leaves it at 1); how much probability leaves the set is not.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from .logprobs import TOLERANCE, as_ids, as_mask, as_tensor

ROWS = 2**16
"""Tokens whose sets are compared at a time: k^2 comparisons each."""


class TopK(NamedTuple):
    """The likeliest tokens at each place, in any order; -inf where there are fewer."""

    ids: Any
    """`[B, T, k]` integers, torch or numpy."""
    logp: Any
    """`[B, T, k]` their logprobs."""


def top_k(logits: Tensor, k: int) -> TopK:
    """The `k` likeliest tokens of `logits [B, T, V]`, likeliest first."""
    if logits.dim() != 3 or not logits.is_floating_point():
        raise ValueError(f"logits must be floats [B, T, V], got {list(logits.shape)}")
    if not 1 <= k <= logits.shape[-1]:
        raise ValueError(f"k must be 1 to {logits.shape[-1]}, not {k}")
    logits = logits.detach()
    values, ids = logits.float().topk(k)
    return TopK(ids, values - logits.float().logsumexp(-1, keepdim=True))


@torch.no_grad()
def top_k_agreement(
    rollout: TopK | None, train: TopK | None, mask: Tensor
) -> dict[str, Tensor]:
    """By token, `[B, T]`, 0 in padding:

    - top1: 1 where both sides have the same likeliest token
    - overlap: tokens in both sets, as a share of the larger set
    - left: the rollout's probability of tokens that are not in the trainer's set
    - entered: the trainer's probability of tokens that are not in the rollout's

    A token with logprob -inf is in no set: a sampler's top-p leaves such behind. Raises
    `ValueError` naming side, row and column of a token twice in a set, of NaN or positive
    logprobs, of an empty set, and where the sides differ in shape.
    """
    if rollout is None or train is None:
        raise ValueError("give both top_rollout and top_train, or neither")
    mask = as_mask(mask, as_tensor("mask", mask))
    sides = [_checked(n, x, mask) for n, x in (("rollout", rollout), ("train", train))]
    (ids_r, logp_r), (ids_t, logp_t) = sides
    if ids_r.shape != ids_t.shape:
        raise ValueError(
            f"top_rollout and top_train differ in shape: {list(ids_r.shape)} and "
            f"{list(ids_t.shape)}"
        )
    parts = [
        _compare(ids_r[a], logp_r[a], ids_t[a], logp_t[a])
        for a in (slice(i, i + ROWS) for i in range(0, len(ids_r), ROWS))
    ]
    out = {}
    for name in ("top1", "overlap", "left", "entered"):
        values = torch.cat([part[name] for part in parts])
        out[name] = values.new_zeros(mask.shape).masked_scatter(mask, values)
    return out


def _compare(
    ids_r: Tensor, logp_r: Tensor, ids_t: Tensor, logp_t: Tensor
) -> dict[str, Tensor]:
    """The same of real tokens only: `[N, k]` in, `[N]` out."""
    in_r, in_t = logp_r > -torch.inf, logp_t > -torch.inf
    same = (ids_r[:, :, None] == ids_t[:, None, :]) & in_r[:, :, None] & in_t[:, None, :]
    r_stays, t_was = same.any(2), same.any(1)
    larger = torch.maximum(in_r.sum(1), in_t.sum(1))
    first_r = ids_r.gather(1, logp_r.argmax(1, keepdim=True))
    first_t = ids_t.gather(1, logp_t.argmax(1, keepdim=True))
    return {
        "top1": (first_r == first_t)[:, 0].double(),
        "overlap": r_stays.sum(1).double() / larger,
        "left": torch.where(r_stays, 0.0, logp_r.double().exp()).sum(1),
        "entered": torch.where(t_was, 0.0, logp_t.double().exp()).sum(1),
    }


def _checked(side: str, top: TopK, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Ids and logprobs of real tokens, `[N, k]`."""
    name = f"top_{side}"
    ids = as_ids(f"{name}.ids", top.ids).to(mask.device)
    logp = as_tensor(f"{name}.logp", top.logp).to(mask.device)
    if ids.dim() != 3 or ids.shape[:2] != mask.shape or not ids.shape[2]:
        raise ValueError(
            f"{name}.ids must be [B, T, k] = {[*mask.shape, 'k']}, got {list(ids.shape)}"
        )
    if logp.shape != ids.shape:
        raise ValueError(
            f"{name}.logp has shape {list(logp.shape)}, its ids have {list(ids.shape)}"
        )
    if not logp.is_floating_point():
        raise ValueError(f"{name}.logp must hold floats")
    ids, logp = ids[mask], logp[mask]
    there = logp > -torch.inf
    distinct = torch.where(there, ids, -1 - torch.arange(ids.shape[1], device=ids.device))
    twice = (distinct.sort(1).values.diff(dim=1) == 0).any(1)
    for bad, why in (
        (logp.isnan().any(1), "is not a number"),
        ((logp > TOLERANCE).any(1), "is positive, so no logprob"),
        (~there.any(1), "has no token"),
        (twice, "has a token twice"),
    ):
        if bad.any():
            b, t = mask.nonzero()[bad.nonzero()[0, 0]].tolist()
            raise ValueError(f"{name} row {b}, column {t} {why}")
    return ids, logp
