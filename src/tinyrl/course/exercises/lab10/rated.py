"""Rewarded responses for a correlation: what is special about some, and how to draw it."""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from tinyrl.course.exercises.lab01 import batch
from tinyrl.course.words import Words

THREE = Words(en="three short responses by hand", zh="三条可手算的短回答")
RIGHT = Words(en="rewards of 0 and 1", zh="奖励为 0 或 1")
REAL = Words(en="rewards of any size", zh="任意大小的奖励")
SURE = Words(en="all rewards are equal", zh="所有奖励都相等")
ALONE = Words(en="one response", zh="只有一条回答")
ALIKE = Words(
    en="all rewards are equal, and so are all responses; their means are rounded",
    zh="奖励全部相等，回答也全部相同；平均值有舍入",
)
TINY = Words(en="summed deltas near 1e-7", zh="delta 之和在 1e-7 左右")
OFFSET = Words(en="rewards that differ little from 4096", zh="与 4096 相差很小的奖励")
OUTLIER = Words(
    en="one response with a very large ratio, one with a very small one",
    zh="有一条回答的比值特别大，有一条特别小",
)


def coins(generator: Generator, rows: int) -> Tensor:
    """Zeros and ones, some of both: never in half of each."""
    order = torch.randperm(rows, generator=generator)
    return (order < max(1, rows // 3)).float()


def _rounded(generator: Generator, rows: int) -> Tensor:
    """A number in (0, 1): `rows` of it have a mean that is another one."""
    while True:
        x = torch.rand((), generator=generator)
        if x.expand(rows).mean() != x:
            return x


def alike(generator: Generator, rows: int = 6) -> tuple[Tensor, ...]:
    """Identical responses of two tokens, the first of probability 1, and equal rewards."""
    mask = torch.arange(3).expand(rows, 3) < 2
    p, q = torch.zeros(rows, 3), torch.zeros(rows, 3)
    p[:, 1] = -_rounded(generator, rows)
    p, q = (batch.garbage(generator, x, mask, "finite") for x in (p, q))
    return p, q, _rounded(generator, rows).repeat(rows), mask
