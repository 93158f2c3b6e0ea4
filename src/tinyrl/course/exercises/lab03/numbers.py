"""Inputs that the exercises share, and rounding as several of them need it."""

from __future__ import annotations

import math

import torch
from torch import Generator, Tensor

from tinyrl.course.words import Words

OTHERS = Words(en="other numbers", zh="其他数")
NARROW = Words(
    en="a format with 4 exponent and 3 mantissa bits", zh="4 位指数、3 位尾数的格式"
)
BIAS_NOT_A_POWER = Words(
    en="Your bias is 2E - 1, which is right for E = 4 only. It doubles with every exponent "
    "bit: 2^(E-1) - 1.",
    zh="你的 bias 是 2E - 1，只在 E = 4 时碰巧正确。每多一位指数它就翻倍：2^(E-1) - 1。",
)

WHOLE_POWER = Words(
    en="Powers of two below 1 become 0: in torch 2 to the power of a negative whole number "
    "is the whole number 0. Write 2.0.",
    zh="小于 1 的 2 的幂变成了 0：在 torch 中，整数 2 的负整数次方是整数 0。应当写 2.0。",
)


def bias(exponent_bits: int) -> int:
    """The stored exponent of 1.0."""
    return (1 << (exponent_bits - 1)) - 1


def smallest_normal(exponent_bits: int) -> float:
    return math.ldexp(1.0, 1 - bias(exponent_bits))


def uniform(generator: Generator, n: int, low: float, high: float) -> Tensor:
    """`n` float32 numbers in [low, high)."""
    return low + (high - low) * torch.rand(n, generator=generator)


def signs(generator: Generator, n: int) -> Tensor:
    """`n` numbers -1 or 1, never all the same, in random order."""
    both = torch.ones(n)
    both[: n // 2] = -1
    return both[torch.randperm(n, generator=generator)]


def spread(generator: Generator, n: int, low: float, high: float) -> Tensor:
    """`n` numbers of both signs, sizes 2^low to 2^high, every octave as likely."""
    return signs(generator, n) * 2 ** uniform(generator, n, low, high)


def whole(generator: Generator, low: int, high: int) -> int:
    """A whole number in [low, high)."""
    return int(torch.randint(low, high, (), generator=generator))


def to_bits(x: Tensor, mantissa_bits: int) -> Tensor:
    """x to the nearest number with so many mantissa bits, ties to even, any exponent."""
    fraction, exponent = torch.frexp(x)  # x = fraction * 2^exponent, 0.5 <= |fraction| < 1
    steps = 2.0 ** (mantissa_bits + 1)
    return torch.ldexp((fraction * steps).round() / steps, exponent)
