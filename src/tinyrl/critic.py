"""A value head: what PPO's advantages are measured against, where GRPO has its group.

V_t estimates the reward still to come when response token t is about to be drawn. The head
is one vector on the last hidden state, the one that the logits of token t are made of.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from .advantages import gae
from .formats import check_choices
from .kernels import Ops
from .logprobs import as_logp, as_mask, finite, masked_mean, number, same_shape
from .stack import Stack


@dataclass(frozen=True)
class Critic:
    """How PPO's value head learns (arXiv 1707.06347 §5), and what is made of its values.

    `lr` is that of the head. `coefficient` times the value loss is added to the policy's,
    so values shape the trunk as well (c_1 of eq. 9; 0.1 is TRL's `vf_coef`).
    `gamma` and `lam` are those of GAE. `clip`: how far a value may move, see `value_loss`.
    """

    lr: float = 1e-2
    coefficient: float = 0.1
    gamma: float = 1.0
    lam: float = 0.95
    clip: float = 0.2

    def __post_init__(self) -> None:
        check_choices(self)
        for name in ("lr", "clip"):
            if not 0 < getattr(self, name) <= math.inf:
                raise ValueError(f"{name} must be above 0, not {getattr(self, name)}")
        if not 0 <= self.coefficient < math.inf:
            raise ValueError(f"coefficient must be 0 or more, not {self.coefficient}")
        for name in ("gamma", "lam"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} must be 0 to 1, not {getattr(self, name)}")


class ValueHead(nn.Module):
    """V = w h + b of hidden states. All zero at first: no draw, and no opinion."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(hidden))
        self.bias = nn.Parameter(torch.zeros(()))

    def forward(self, h: Tensor) -> Tensor:
        """`[B, T, hidden]` to `[B, T]`."""
        return h @ self.weight + self.bias


class Listener(Ops):
    """Operations that remember what last entered the LM head: `[B, T, hidden]`."""

    hidden: Tensor

    def __init__(self, stack: Stack) -> None:
        super().__init__(stack.kernels, stack.numerics)

    def head(self, x: Tensor, layer: nn.Linear) -> Tensor:
        self.hidden = x
        return super().head(x, layer)


def ppo_advantages(
    earned: Tensor, values: Tensor, mask: Tensor, critic: Critic
) -> tuple[Tensor, Tensor]:
    """Advantages and value targets `[B, T]` of responses that `earned [B]` at their end.

    GAE (arXiv 1506.02438 eq. 16); its targets are advantage + value. Advantages are then
    whitened over the batch's tokens, as implementations of PPO do and its paper does not
    say (arXiv 2403.17031).
    """
    advantages, targets = gae(earned, values, mask, gamma=critic.gamma, lam=critic.lam)
    mean = masked_mean(advantages, mask)
    variance = masked_mean((advantages - mean) ** 2, mask)
    return (advantages - mean) / (variance.sqrt() + 1e-8), targets


def value_loss(
    values: Tensor,
    values_old: Tensor,
    targets: Tensor,
    mask: Tensor,
    clip: float = 0.2,
) -> Tensor:
    """max((V - R)^2, (V_clip - R)^2) / 2, mean over tokens `[B, T]`: scalar to minimise.

    V_clip is V kept within `clip` of V_old: one batch may not move a value further. From
    OpenAI's baselines (ppo2), described in arXiv 2005.12729 §3; the first PPO paper has
    the plain squared error, which `clip` inf is. `values` carries the gradient; padding
    may hold anything. Raises `ValueError` as `check_logps` does for shapes and dtypes, and
    for a real token whose number is not finite.
    """
    if not number("clip", clip) > 0:
        raise ValueError(f"clip must be above 0, not {clip}")
    named = {"values": values, "values_old": values_old, "targets": targets}
    arrays = {name: as_logp(name, x) for name, x in named.items()}
    same_shape(arrays)
    real = as_mask(mask, arrays["values"])
    V, V_old, R = (finite(name, x, real) for name, x in arrays.items())
    V_old, R = V_old.detach(), R.detach()
    V_clip = V_old + (V - V_old).clamp(-clip, clip)
    return masked_mean(torch.max((V - R) ** 2, (V_clip - R) ** 2), real) / 2
