"""Rewards of groups that the exercises share."""

from __future__ import annotations

import torch
from torch import Generator, Tensor


def pass_or_fail(generator: Generator, groups: int, size: int) -> Tensor:
    """`[groups * size]` of 0 and 1: each group has between 1 and size - 1 successes."""
    wins = torch.randint(1, size, (groups, 1), generator=generator)
    order = torch.rand(groups, size, generator=generator).argsort(1)
    return (order < wins).float().reshape(-1)


def graded(generator: Generator, groups: int, size: int) -> Tensor:
    """`[groups * size]` in quarters from 0 to 2, not all of a group alike."""
    R = torch.randint(9, (groups, size), generator=generator) / 4
    R[:, 0] = (R[:, 1] + 0.5) % 2.25
    return R.reshape(-1)


def equal(generator: Generator, groups: int, size: int) -> Tensor:
    """`[groups * size]`: all of a group alike, about 50, their float32 mean next to them
    and their deviation 4e-6; but for the last group, which is graded."""
    rows: list[Tensor] = []
    while len(rows) < groups - 1:
        row = (40 + 20 * torch.rand((), generator=generator)).expand(size).clone()
        if row.mean() != row[0] and row.std() > 1e-6:
            rows.append(row)
    return torch.cat([*rows, graded(generator, 1, size)])
