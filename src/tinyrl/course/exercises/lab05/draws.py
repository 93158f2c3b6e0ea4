"""Inputs that the exercises share: ids, and where padding lies in a row."""

from __future__ import annotations

import torch
from torch import Generator, Tensor


def whole(generator: Generator, low: int, high: int) -> int:
    """A whole number in [low, high]."""
    return int(torch.randint(low, high + 1, (), generator=generator))


IDS = 60


def tokens(generator: Generator, *shape: int) -> Tensor:
    """Ids, 0 to 59: 0 is as real as any other."""
    return torch.randint(IDS, shape, generator=generator)


def others(generator: Generator, but: Tensor, *shape: int) -> Tensor:
    """Ids, 0 to 59, none of `but [E]` among them."""
    left = torch.arange(IDS)[~torch.isin(torch.arange(IDS), but)]
    return left[torch.randint(len(left), shape, generator=generator)]


def padded(generator: Generator, rows: int, columns: int) -> tuple[Tensor, Tensor]:
    """First column and length of the real tokens of each row, `[rows]` each.

    In turn there is padding in front, at the end, on both sides, and none.
    """
    start, length = [], []
    for row in range(rows):
        front = whole(generator, 1, 3) if row % 4 in (0, 2) else 0
        after = whole(generator, 1, 3) if row % 4 in (1, 2) else 0
        start.append(front)
        length.append(columns - front - after)
    return torch.tensor(start), torch.tensor(length)


def spans(start: Tensor, length: Tensor, columns: int) -> Tensor:
    """Boolean `[rows, columns]`, true on `length` columns from `start` on."""
    column = torch.arange(columns)
    return (column >= start[:, None]) & (column < (start + length)[:, None])
