"""Inputs that the exercises share: what was said, what was right, how long it is."""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from tinyrl.course.exercises.lab01.batch import lengths
from tinyrl.course.words import Words

RANDOM = Words(
    en="random answers, stale ids in the padding", zh="随机的回答，padding 里是旧的 id"
)
LONG = Words(en="long answers", zh="很长的回答")
IDS = 16
RIGHT = Words(en="every token is right", zh="所有 token 都对")


def real(x: Tensor, length: Tensor) -> Tensor:
    """Bool `[B, T]`: which tokens of `x [B, T]` are no padding."""
    return torch.arange(x.shape[1]) < length[:, None]


def tokens(generator: Generator, *shape: int) -> Tensor:
    """Ids, 0 to 15: 0 is as real as any other."""
    return torch.randint(IDS, shape, generator=generator)


def another(ids: Tensor) -> Tensor:
    """For each of the ids one that it is not."""
    return (ids + 1) % IDS


def other(generator: Generator, ids: Tensor, share: float) -> Tensor:
    """`ids` with about this share of them replaced by others."""
    by = torch.randint(1, IDS, ids.shape, generator=generator)
    moved = torch.rand(ids.shape, generator=generator) < share
    return torch.where(moved, (ids + by) % IDS, ids)


def answers(
    generator: Generator, rows: int, columns: int, share: float = 0.4
) -> tuple[Tensor, Tensor, Tensor]:
    """What was said and what was right, ids `[B, T]`, and the lengths `[B]`.

    In the padding both hold garbage. Each place is wrong in some row of the full length.
    """
    right = tokens(generator, rows, columns)
    said = other(generator, right, share)
    length = lengths(generator, rows, columns)
    full = int(length.argmax())
    at = torch.rand(columns, generator=generator) < 0.5
    said[full] = torch.where(at, said[full], another(right[full]))
    return said, right, length


def after_an_odd_one(said: Tensor) -> Tensor:
    """Bool `[B, T]`: the token before is an odd digit (ids are 6 + digit)."""
    return torch.nn.functional.pad(said % 2 == 1, (1, -1))
