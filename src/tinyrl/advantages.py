"""From rewards to advantages: how much better a response was than its group."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from .logprobs import as_tensor, number

Std = Literal["sample", "population", "none"]


def group_advantages(
    rewards: Tensor, group_size: int, *, std: Std = "sample", eps: float = 1e-6
) -> Tensor:
    """A_i = (R_i - mean R) / (std R + eps) in each group (GRPO, arXiv 2402.03300 §4.1.2).

    `rewards [B]` holds the groups one after the other, `group_size` responses to the same
    prompt each; returns `[B]`. The paper does not say which deviation it means: "sample"
    divides by n - 1 (verl with eps 1e-6, TRL with 1e-4), "population" by n, and "none" does
    not divide at all (Dr. GRPO, arXiv 2503.20783). A group of equal rewards gets zeros.
    """
    if not isinstance(std, str) or std not in ("sample", "population", "none"):
        raise ValueError(f"std must be sample, population or none, not {std!r}")
    if not number("eps", eps) > 0:
        raise ValueError(f"eps must be above 0, not {eps}")
    if number("group_size", group_size) < 2:
        raise ValueError(f"group_size must be at least 2, not {group_size}")
    if number("group_size", group_size) % 1:
        raise ValueError(f"group_size must be a whole number, not {group_size}")
    rewards = as_tensor("rewards", rewards)
    if rewards.dim() != 1 or len(rewards) == 0 or len(rewards) % group_size:
        raise ValueError(
            f"rewards must be [B] with B a multiple of group_size {group_size}, "
            f"got shape {list(rewards.shape)}"
        )
    bad = (~rewards.isfinite()).nonzero()
    if len(bad):
        row = int(bad[0])
        raise ValueError(f"rewards row {row} is not finite: {rewards[row].item()}")
    R = rewards if rewards.is_floating_point() else rewards.float()
    R = R.view(-1, int(group_size))
    A = R - R.mean(1, keepdim=True)
    if std != "none":
        A = A / (torch.std(R, 1, correction=int(std == "sample"), keepdim=True) + eps)
    # the mean of equal rewards may differ from them in the last bit: no push from that
    equal = R.amax(1, keepdim=True) == R.amin(1, keepdim=True)
    return torch.where(equal, 0.0, A).reshape(-1)
