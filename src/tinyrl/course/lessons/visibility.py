"""Which number sees which fault: judged by intervals, and drawn."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from torch import Tensor

from tinyrl.course import style
from tinyrl.intervals import Interval

BLIND, DROWNED, SEES = 0, 1, 2


def ideal(equal: Interval) -> int:
    """What a number has where two policies are equal, 0 or 1: `equal` is nearly there."""
    if not -0.5 < equal.estimate < 1.5:  # NaN neither
        raise ValueError(f"equal must be near 0 or 1, not {equal.estimate}")
    return round(equal.estimate)


def sight(found: Interval, equal: Interval, healthy: Interval) -> int:
    """What a number makes of a fault: `SEES`, `DROWNED` in rounding or `BLIND`.

    It stands out from another pair if its interval lies apart from that one's, farther
    from what equal policies have. `equal` is a pair that differs in last bits alone: what
    stands out from that and not from a `healthy` one is drowned. `ValueError` for NaN: an
    undefined number is not a blind one.
    """
    for name, x in (("found", found), ("equal", equal), ("healthy", healthy)):
        if any(math.isnan(value) for value in x):
            raise ValueError(f"{name} is undefined: {tuple(x)}")
    at = ideal(equal)

    def out(other: Interval) -> bool:
        apart = found.low > other.high or found.high < other.low
        return apart and abs(found.estimate - at) > abs(other.estimate - at)

    if not out(equal):
        return BLIND
    return SEES if out(healthy) else DROWNED


def sights(
    found: Mapping[str, Mapping[str, list[Interval]]],
    numbers: Sequence[str],
    *,
    equal: str,
    healthy: str,
) -> Tensor:
    """`[numbers, pairs]`, of every pair but `equal`: the worst sight over its batches.

    Every pair must have every number, of equally many batches; else a `ValueError` says
    which has not.
    """
    for role, name in (("equal", equal), ("healthy", healthy)):
        if name not in found:
            raise ValueError(f"{role} must be one of {', '.join(found)}, not {name!r}")
    if not numbers:
        raise ValueError("numbers must name one at least")

    def worst(number: str, pair: str) -> int:
        for x in (pair, equal, healthy):
            if number not in found[x]:
                raise ValueError(f"{x} has no number {number!r}")
        three = [found[x][number] for x in (pair, equal, healthy)]
        batches = [len(x) for x in three]
        if min(batches) < 1 or min(batches) < max(batches):
            raise ValueError(
                f"{number} of {pair}, {equal} and {healthy}: {batches} batches, not "
                f"equally many"
            )
        try:
            return min(sight(*x) for x in zip(*three, strict=True))
        except ValueError as error:
            raise ValueError(f"{number} of {pair}: {error}") from None

    pairs = [name for name in found if name != equal]
    return torch.tensor([[worst(number, pair) for pair in pairs] for number in numbers])


def draw_sights(
    axes: Axes,
    found: Mapping[str, Mapping[str, list[Interval]]],
    numbers: Sequence[str],
    *,
    equal: str,
    healthy: str,
) -> None:
    """`sights` in shades; written into them is what the first batch had.

    Of a number that equal policies have at 1 it is how far it is below that: 1 - x.
    """
    grid = sights(found, numbers, equal=equal, healthy=healthy)
    pairs = [name for name in found if name != equal]
    at_one = [ideal(found[equal][number][0]) == 1 for number in numbers]
    shades = ListedColormap(["white", "#E3D8EC", style.DELTA])
    axes.imshow(grid, cmap=shades, vmin=BLIND, vmax=SEES, aspect="auto")
    for i, number in enumerate(numbers):
        for j, pair in enumerate(pairs):
            ink = "white" if grid[i, j] == SEES else style.INK
            value = found[pair][number][0].estimate
            text = f"{1 - value if at_one[i] else value:.2g}"
            axes.text(j, i, text, color=ink, ha="center", va="center", fontsize=8)
    axes.set_xticks(range(len(pairs)), [name.replace(" ", "\n") for name in pairs])
    names = [f"1 - {n}" if one else n for n, one in zip(numbers, at_one, strict=True)]
    axes.set_yticks(range(len(numbers)), names)
    axes.xaxis.tick_top()
    axes.grid(False)
