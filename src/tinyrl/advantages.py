"""From rewards to advantages: how much better a response, or a token, was than expected."""

from __future__ import annotations

import math
from typing import Literal, get_args

import torch
from torch import Tensor

from .logprobs import (
    as_floats,
    as_logp,
    as_mask,
    as_tensor,
    finite,
    number,
    one_of,
    refuse,
    same_shape,
    whole,
)

Std = Literal["sample", "population", "batch", "none"]


def group_advantages(
    rewards: Tensor, group_size: int, *, std: Std = "sample", eps: float = 1e-6
) -> Tensor:
    """A_i = (R_i - mean R) / (std R + eps) in each group (GRPO, arXiv 2402.03300 §4.1.2).

    `rewards [B]` holds the groups one after the other, `group_size` responses to the same
    prompt each; returns `[B]`. The paper does not say which deviation it means:

    - "sample": of the group, divided by n - 1 (verl with eps 1e-6, TRL with 1e-4)
    - "population": of the group, divided by n (what numpy's `std` does unless told)
    - "batch": sample deviation of all rewards (TRL's scale_rewards="batch", eps 1e-4)
    - "none": no division (Dr. GRPO, arXiv 2503.20783; scale_rewards="none")

    A group of equal rewards gets zeros.
    """
    one_of("std", std, get_args(Std))
    if not 0 < number("eps", eps) < math.inf:
        raise ValueError(f"eps must be above 0 and finite, not {eps}")
    R = _groups(rewards, group_size)
    A = R - R.mean(1, keepdim=True)
    if std == "batch":
        A = A / (torch.std(R) + eps)
    elif std != "none":
        A = A / (torch.std(R, 1, correction=int(std == "sample"), keepdim=True) + eps)
    # the mean of equal rewards may differ from them in the last bit: no push from that
    return torch.where(_equal(R), 0.0, A).reshape(-1)


def leave_one_out(rewards: Tensor, group_size: int) -> Tensor:
    """A_i = R_i - mean of the group's other rewards (RLOO, arXiv 2402.14740).

    `rewards [B]` holds the groups one after the other; returns `[B]`. The baseline does not
    depend on its own response, so that the gradient has no bias; it is n / (n - 1) times
    what `group_advantages(..., std="none")` gives. A group of equal rewards gets zeros.
    """
    R = _groups(rewards, group_size)
    others = (R.sum(1, keepdim=True) - R) / (R.shape[1] - 1)
    return torch.where(_equal(R), 0.0, R - others).reshape(-1)


def informative(rewards: Tensor, group_size: int) -> Tensor:
    """Groups that teach anything: `[B / group_size]`, false where all rewards are equal.

    DAPO's dynamic sampling (arXiv 2503.14476 §3.2) drops the others, which have advantage 0
    throughout, and samples prompts until the batch is full. The paper looks at right or
    wrong: pass rewards from before `overlong_penalty`. Rows to keep are
    `informative(rewards, n).repeat_interleave(n)`.
    """
    return ~_equal(_groups(rewards, group_size))[:, 0]


def overlong_penalty(lengths: Tensor, max_length: int, cache: int) -> Tensor:
    """DAPO's soft overlong punishment (arXiv 2503.14476 §3.4), to add to rewards `[B]`.

        0                                 |y| <= L_max - L_cache
        (L_max - L_cache - |y|) / L_cache    in between
        -1                                L_max < |y|

    `lengths [B]` counts tokens, as `mask.sum(1)` does. The paper has L_max 20480 and
    L_cache 4096; verl multiplies by a penalty_factor and has no floor at -1.
    """
    longest, soft = whole("max_length", max_length), whole("cache", cache)
    if not 0 < soft <= longest:
        raise ValueError(f"cache must be between 1 and max_length {longest}, not {soft}")
    y = as_floats("lengths", lengths)
    if y.dim() != 1:
        raise ValueError(f"lengths must be [B], got shape {list(y.shape)}")
    refuse(~(y.isfinite() & (y >= 0)), y, "lengths", "is no length")
    return ((longest - soft - y) / soft).clamp(-1, 0)


@torch.no_grad()
def gae(
    rewards: Tensor,
    values: Tensor,
    mask: Tensor | None,
    *,
    gamma: float = 1.0,
    lam: float = 0.95,
) -> tuple[Tensor, Tensor]:
    """Generalised advantage estimation (arXiv 1506.02438 eq. 16): advantages and returns.

        delta_t = R_t + gamma V_{t+1} - V_t
        A_t = sum_l (gamma lam)^l delta_{t+l},  return_t = A_t + V_t

    `values [B, T]` are those of the states in which the tokens were chosen; `rewards` are
    `[B, T]`, of tokens, or `[B]`, of responses: then given at the last token. Results are
    `[B, T]` without gradient, 0 where `mask [B, T]` is false. t + 1 is the next token of
    the mask: a tool's answer between two turns is stepped over, as in verl, and what
    stands there is not read. After the last token V is 0: a response that was cut off
    counts as over.

    Not whitened: verl and TRL do that next. lam is PPO's and TRL's (verl's default is 1).
    """
    for name, value in (("gamma", gamma), ("lam", lam)):
        if not 0 <= number(name, value) <= 1:
            raise ValueError(f"{name} must be between 0 and 1, not {value}")
    gamma, lam = number("gamma", gamma), number("lam", lam)
    V = as_logp("values", values)
    if mask is not None:
        same_shape({"values": V, "mask": as_tensor("mask", mask)})
    mask = as_mask(mask, V)
    R = finite("rewards", _token_rewards(rewards, V, mask), mask)
    V = finite("values", V, mask)
    A = torch.zeros_like(V)
    next_A, next_V = torch.zeros_like(V[:, 0]), torch.zeros_like(V[:, 0])
    for t in reversed(range(V.shape[1])):
        delta = R[:, t] + gamma * next_V - V[:, t]
        A[:, t] = torch.where(mask[:, t], delta + gamma * lam * next_A, 0.0)
        next_A = torch.where(mask[:, t], A[:, t], next_A)
        next_V = torch.where(mask[:, t], V[:, t], next_V)
    return A, A + V


def _token_rewards(rewards: Tensor, V: Tensor, mask: Tensor) -> Tensor:
    """`[B, T]`, with the reward of a whole response at its last real token."""
    R = as_floats("rewards", rewards).to(V.device)
    if R.dim() != 1:
        R = as_logp("rewards", R)
        same_shape({"values": V, "rewards": R})
        return R.to(V.dtype)
    if len(R) != len(V):
        raise ValueError(
            f"rewards must be [B] or [B, T] for values of shape {list(V.shape)}, "
            f"got {list(R.shape)}"
        )
    refuse(~R.isfinite(), R, "rewards", "is not finite")
    place = torch.arange(1, V.shape[1] + 1, device=V.device)
    last = (mask * place).amax(1, keepdim=True)
    return torch.where(mask & (place == last), R[:, None], 0.0).to(V.dtype)


def _groups(rewards: Tensor, group_size: int) -> Tensor:
    """Rewards of each prompt: `[B / group_size, group_size]`."""
    if number("group_size", group_size) < 2:
        raise ValueError(f"group_size must be at least 2, not {group_size}")
    n, R = whole("group_size", group_size), as_floats("rewards", rewards)
    if R.dim() != 1 or len(R) == 0 or len(R) % n:
        raise ValueError(
            f"rewards must be [B] with B a multiple of group_size {group_size}, "
            f"got shape {list(R.shape)}"
        )
    refuse(~R.isfinite(), R, "rewards", "is not finite")
    return R.view(-1, n)


def _equal(R: Tensor) -> Tensor:
    """Whether a group's rewards are all the same: `[groups, 1]`."""
    return R.amax(1, keepdim=True) == R.amin(1, keepdim=True)
