"""Where tokens are: the positions that they are told, and what follows from them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from .formats import check_choices


@dataclass(frozen=True)
class Positions:
    """Which position a token is told it has.

    RoPE sees differences only: moving `of="all"` tokens by `offset` changes nothing, moving
    the "response" alone puts a gap between it and its prompt.
    """

    offset: int = 0
    of: Literal["response", "all"] = "response"

    def __post_init__(self) -> None:
        check_choices(self)

    def ids(self, prompt_length: int, length: int) -> Tensor:
        """Position ids `[length]` of a prompt and the response behind it."""
        positions = torch.arange(length)
        if self.of == "all":
            return positions + self.offset
        return torch.where(positions < prompt_length, positions, positions + self.offset)


@dataclass(frozen=True)
class Places:
    """Where the tokens of one forward pass are and what they may look at.

    `cos` and `sin` are `[T, 1, D]`, `visible` is boolean `[T, S]`.
    """

    cos: Tensor
    sin: Tensor
    visible: Tensor

    def part(self, rows: slice, seen: int | None = None) -> Places:
        """Those of some of the tokens; the key axis is cut to `seen`."""
        return Places(self.cos[rows], self.sin[rows], self.visible[rows, :seen])


def places(positions: Tensor, start: int, seen: int, head_dim: int, base: float) -> Places:
    """Of T tokens that are told `positions [T]`, the first of them behind `start` others.

    `seen` is the length S of the key axis; angles as in arXiv 2104.09864, eq. 15.
    """
    frequency = base ** (-torch.arange(0, head_dim, 2) / head_dim)
    angle = (positions[:, None].float() * frequency).repeat(1, 2)[:, None]  # [T, 1, D]
    mine = torch.arange(start, start + len(positions))[:, None]
    return Places(angle.cos(), angle.sin(), torch.arange(seen) <= mine)
