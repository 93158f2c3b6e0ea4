"""Inputs that the exercises share."""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from tinyrl.course.words import Words

OTHERS = Words(en="other numbers", zh="其他数")


def normal(generator: Generator, *shape: int, scale: float = 1.0) -> Tensor:
    """Normal numbers, float32."""
    return scale * torch.randn(shape, generator=generator)


def whole(generator: Generator, low: int, high: int) -> int:
    """A whole number in [low, high)."""
    return int(torch.randint(low, high, (), generator=generator))


def grid(generator: Generator, *shape: int, steps: int, per_unit: int) -> Tensor:
    """Multiples of 1 / per_unit up to `steps` of them, both signs, never 0.

    Short numbers: float32 adds many of their products without rounding, in any order.
    """
    size = torch.randint(1, steps + 1, shape, generator=generator)
    sign = torch.randint(2, shape, generator=generator) * 2 - 1
    return sign * size / per_unit


def to_bf16(x: Tensor) -> Tensor:
    """x rounded to BF16, in its own dtype."""
    return x.bfloat16().to(x.dtype)
