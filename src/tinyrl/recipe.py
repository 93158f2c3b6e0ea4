"""Sizes and rates of an RL run, and how its groups are chosen."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from .advantages import Std
from .formats import check_choices

Sampling = Literal["all", "drop", "resample"]


@dataclass(frozen=True)
class Recipe:
    """Sizes and rates of an RL run. The defaults learn the course's task from a third."""

    groups: int = 12
    group_size: int = 8
    minibatches: int = 2
    lr: float = 5e-4
    warmup: int = 10
    max_grad_norm: float = 1.0
    clip_low: float = 0.2
    clip_high: float = 0.2
    std: Std = "sample"
    """Of `group_advantages`; "none" is Dr. GRPO's."""
    balance: float = 0.0
    """Weight of `moe.balance_loss`, for a mixture of experts."""
    consistency: float = 0.0
    """Weight of `moe.router_kl`: the trainer's routers to the rollout's recorded ones."""
    sampling: Sampling = "all"
    """Dynamic sampling (DAPO, arXiv 2503.14476 §3.2) of the groups that are trained on.

    "drop" leaves out those whose rewards are all equal: without an advantage they would
    only count in denominators. "resample" draws new prompts in their place, for at most
    `experience.MAX_ROUNDS` rounds.
    """
    room: int = 0
    """Tokens that a response may have beyond those that a right one needs."""
    overlong: int = 0
    """The last so many of the tokens it may have cost reward, linearly up to 1: the soft
    overlong punishment of DAPO (arXiv 2503.14476 eq. 13). 0 is none."""

    def __post_init__(self) -> None:
        check_choices(self)
        least = {"groups": 1, "group_size": 2, "minibatches": 1, "warmup": 1}
        for name, low in least.items():
            if getattr(self, name) < low:
                raise ValueError(
                    f"{name} must be at least {low}, not {getattr(self, name)}"
                )
        for name in ("balance", "consistency", "room", "overlong"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ValueError(f"{name} must be 0 or more, not {getattr(self, name)}")
        for name in ("lr", "max_grad_norm"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be above 0, not {getattr(self, name)}")
        if self.groups * self.group_size % self.minibatches:
            raise ValueError(
                f"{self.groups * self.group_size} sequences do not split into "
                f"{self.minibatches} equal minibatches"
            )
