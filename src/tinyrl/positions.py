"""Where tokens are: the positions that they are told, and what follows from them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
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

    `positions` are `[T]`, `cos` and `sin` `[T, 1, D]`, `visible` is boolean `[T, S]`. Each
    may have a batch axis B in front, where sequences differ.
    """

    positions: Tensor
    cos: Tensor
    sin: Tensor
    visible: Tensor

    def part(self, rows: slice, seen: int | None = None) -> Places:
        """Those of some of the tokens; the key axis is cut to `seen`."""
        cos, sin = self.cos[..., rows, :, :], self.sin[..., rows, :, :]
        return Places(self.positions[..., rows], cos, sin, self.visible[..., rows, :seen])


def places(
    positions: Tensor,
    start: int,
    seen: int,
    head_dim: int,
    base: float,
    segments: Tensor | None = None,
) -> Places:
    """Of T tokens told `positions [T]` or `[B, T]`, the first behind `start` others.

    `seen` is the length S of the key axis; angles as in arXiv 2104.09864, eq. 15.
    A token sees what is not behind it and, where `segments [B, start + T]` number the
    tokens so far, is of its own segment.
    """
    frequency = base ** (-torch.arange(0, head_dim, 2) / head_dim)
    half = positions[..., None].float() * frequency
    angle = torch.cat([half, half], -1)[..., None, :]  # [..., T, 1, D]
    mine = torch.arange(start, start + positions.shape[-1])[:, None]
    visible = torch.arange(seen) <= mine
    if segments is not None:
        if segments.dim() != 2 or segments.shape[1] != start + positions.shape[-1]:
            want, found = start + positions.shape[-1], list(segments.shape)
            raise ValueError(
                f"segments must be [B, {want}], one of each token, not {found}"
            )
        if positions.dim() == 2 and len(segments) != len(positions):
            raise ValueError(
                f"segments have {len(segments)} rows, positions {len(positions)}"
            )
        keys = F.pad(segments, (0, max(0, seen - segments.shape[1])), value=-2)[:, :seen]
        visible = visible & (segments[:, start:, None] == keys[:, None])
    return Places(positions, angle.cos(), angle.sin(), visible)
