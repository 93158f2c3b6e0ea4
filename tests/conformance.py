"""What the tests against peers share: batches, the peers, and what it is to agree.

A peer gets finite garbage in its padding, and tinyrl NaN, infinities and logprobs above 0:
neither may be read.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from peers.client import Peer, interpreter
from torch import Tensor

SEEDS = (0, 1, 2)
REWARDS = torch.tensor([1, 0, 0.3, 0.5, 0.5, 0.5, 0.2, 0.9, 0.4], dtype=torch.float64)
"""Of the nine responses of a case: three groups, the second of equal rewards."""


def opened(name: str) -> Iterator[Peer]:
    """The peer for a module's tests, which are skipped where it was not set up."""
    if not interpreter(name).exists():
        pytest.skip(f"no environment for {name}: `make peers` makes it")
    with Peer(name) as peer:
        yield peer


@dataclass
class Case:
    """Arrays `[B, T]` in float64 by name, and the mask of real tokens."""

    mask: Tensor
    arrays: dict[str, Tensor]

    def own(self, name: str) -> Tensor:
        """As tinyrl gets it: what no logprob may be stands in the padding."""
        kinds = torch.tensor([math.nan, math.inf, -math.inf, 5.0], dtype=torch.float64)
        places = torch.arange(self.mask.numel()).view(self.mask.shape) % len(kinds)
        return torch.where(self.mask, self.arrays[name], kinds[places])

    def theirs(self, *names: str, **more: Tensor) -> dict[str, Tensor]:
        """As a peer gets them, beside a mask of integers."""
        kinds = torch.tensor([3.0, -40.0, 0.7], dtype=torch.float64)
        places = torch.arange(self.mask.numel()).view(self.mask.shape) % len(kinds)
        given = {n: torch.where(self.mask, self.arrays[n], kinds[places]) for n in names}
        return {**given, "mask": self.mask.long(), **more}


def case(seed: int, spread: float = 0.5) -> Case:
    """Nine responses of up to eleven tokens: one full, one with a hole, one of one token.

    Logprobs before and after an update, of the rollout and of a reference; advantages of
    either sign and 0; the ratio of one token in ten is far out.
    """
    g = torch.Generator().manual_seed(seed)
    B, T = 9, 11

    def normal() -> Tensor:
        x = torch.randn(B, T, generator=g, dtype=torch.float64)
        return torch.where(torch.rand(B, T, generator=g) < 0.1, 4 * x, x)

    old = -0.1 - 3 * torch.rand(B, T, generator=g, dtype=torch.float64)
    arrays = {"logp_old": old}
    for name, size in (("logp", spread), ("logp_rollout", 2 * spread), ("logp_ref", 0.7)):
        arrays[name] = (old + size * normal()).clamp(max=0.0)
    arrays["weight"] = torch.rand(B, T, generator=g, dtype=torch.float64) * 2
    A = torch.randn(B, generator=g, dtype=torch.float64)
    A[1] = 0.0
    arrays["advantages"] = A[:, None].expand(B, T).contiguous()
    length = torch.randint(2, T, (B, 1), generator=g)
    length[0], length[-1] = T, 1
    mask = torch.arange(T) < length
    mask[0, 3:5] = False  # what a tool answered
    return Case(mask, arrays)


def far(log_ratio: float, advantage: float) -> Case:
    """Two full responses whose every token moved by `log_ratio`."""
    old = torch.full((2, 11), -40.0 if log_ratio > 0 else -0.5, dtype=torch.float64)
    A = torch.full_like(old, advantage)
    return Case(
        torch.ones_like(old, dtype=torch.bool),
        {"logp_old": old, "logp": old + log_ratio, "advantages": A},
    )


def own_loss(
    loss: Callable[..., Tensor], c: Case, mask: Tensor | None = None, **how: Any
) -> dict[str, Tensor]:
    """tinyrl's loss of a case and its gradient, under names that a peer's answer has."""
    logp = c.own("logp").requires_grad_()
    arrays = (logp, c.own("logp_old"), c.own("advantages"))
    value = loss(*arrays, c.mask if mask is None else mask, **how)
    (gradient,) = torch.autograd.grad(value, logp)
    return {"loss": value.detach(), "gradient": gradient}


def agree(own: dict[str, Tensor], theirs: dict[str, Any], tolerance: float = 1e-9) -> None:
    """Value and gradient, float64 on both sides, within `tolerance` of each other."""
    for name in ("loss", "gradient"):
        assert own[name].dtype == theirs[name].dtype == torch.float64
        torch.testing.assert_close(
            own[name], theirs[name], rtol=tolerance, atol=1e-12, msg=_told(name)
        )
    assert own["gradient"].abs().max() > 1e-6, "a gradient of 0 would show nothing"


def _told(name: str) -> Callable[[str], str]:
    return lambda message: f"{name}: {message}"
