"""Arguments a little off: how far a value moves with them is what float32 may lose."""

from __future__ import annotations

# As in comparison.py.
from builtins import isinstance, max  # noqa: UP029
from collections.abc import Iterator
from functools import cache

import torch
from torch import Tensor

from tinyrl.course.exercise import Argument

STEP = 2.0**-20  # relative; moves are differences of float64 values
CODES = 64  # at least; six or more patterns of signs


def perturbed(argument: Argument) -> Iterator[Argument]:
    """The argument with each real number in it a little larger, or some of them smaller.

    Each number has a binary code of its own, and each digit makes one pattern of signs: any
    two numbers move apart in some pattern, so no difference of two ever seems to stay.
    """
    if isinstance(argument, float):
        yield argument * (1 + STEP)
    if not isinstance(argument, Tensor) or not real(argument):
        return
    move = STEP * argument.abs()
    yield argument + move
    for signs in _signs(argument.numel()):
        yield argument + move * signs.reshape(argument.shape)


def real(argument: Tensor) -> bool:
    """Whether it holds real numbers: no ids, no mask."""
    return argument.is_floating_point()


@cache
def _signs(n: int) -> Tensor:
    """Patterns `[digits, n]` of 1 and -1 from the codes of `n` numbers."""
    codes = max(n, CODES)
    code = torch.randperm(codes, generator=torch.Generator().manual_seed(0))[:n]
    digits = torch.arange((codes - 1).bit_length())[:, None]
    return 1 - 2 * (code >> digits & 1)
