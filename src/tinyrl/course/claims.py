"""Claims: the numbers of the prose, computed where they stand and checked.

A claim is a measured value with bounds, and a `control`: the same quantity from an
experiment in which the claim should be false. Bounds that let the control pass say
nothing, so such a claim fails as well.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

Values = float | Sequence[float]


class ClaimFailed(AssertionError):
    """A number of the prose is not what the prose says."""


def seed(offset: int = 0) -> int:
    """The seed of this run of a notebook.

    `TINYRL_SEED` picks the run (0 by default); `make science` runs every notebook on five.
    `offset` tells apart the generators inside one notebook.
    """
    return 1000 * int(os.environ.get("TINYRL_SEED", "0")) + offset


def claim(
    name: str,
    value: Values,
    *,
    between: tuple[float, float] | None = None,
    at_least: float | None = None,
    at_most: float | None = None,
    equal: float | None = None,
    control: Values | None = None,
    how: Literal["mean", "every", "paired"] = "mean",
    of: str = "seeds",
) -> None:
    """Check `value` against its bounds, print it, raise `ClaimFailed` if it is off.

    With several values, one a seed, the bounds hold for their "mean", for "every" one, or
    for every difference of a "paired" comparison (give the differences). Bounds include
    their ends. `control` must fall outside. `of` says what the values are one of each of,
    if not seeds.
    """
    values = _floats(value)
    low, high = _bounds(name, between, at_least, at_most, equal)
    holds = _inside(values, low, high, how)
    told = _told(values, how, of)
    control_told, fooled = "", False
    if control is not None:
        controls = _floats(control)
        fooled = _inside(controls, low, high, how)
        control_told = f"; control {_told(controls, how, of)}"
    shown = f"{told}, claimed {_range(low, high)}{control_told}"
    line = f"{name}: {shown}"
    _record(name, values, low, high, holds and not fooled)
    if not holds:
        raise ClaimFailed(f"claim does not hold: {line}")
    if fooled:
        raise ClaimFailed(f"claim says nothing, its control passes too: {line}")
    print(f"✓ {name}:\n  {shown}")  # a name and its numbers rarely fit one line


def _floats(value: Values) -> list[float]:
    values = list(value) if isinstance(value, Sequence) else [value]
    if not values:
        raise ValueError("a claim needs at least one value")
    return [float(v) for v in values]


def _bounds(
    name: str,
    between: tuple[float, float] | None,
    at_least: float | None,
    at_most: float | None,
    equal: float | None,
) -> tuple[float, float]:
    if between is not None:
        return between
    if equal is not None:
        return equal, equal
    if at_least is None and at_most is None:
        raise ValueError(f"claim {name!r} has no bounds")
    return (
        -math.inf if at_least is None else at_least,
        math.inf if at_most is None else at_most,
    )


def _inside(values: list[float], low: float, high: float, how: str) -> bool:
    tested = [sum(values) / len(values)] if how == "mean" else values
    return all(low <= v <= high for v in tested)  # NaN is never inside


def _told(values: list[float], how: str, of: str) -> str:
    if len(values) == 1:
        return f"{values[0]:.4g}"
    each = " ".join(f"{v:.3g}" for v in values)
    n = f"{len(values)} {of}"
    if how == "mean":
        return f"{sum(values) / len(values):.4g} (mean of {n}: {each})"
    return f"{each} ({'every one' if how == 'every' else 'paired'} of {n})"


def _range(low: float, high: float) -> str:
    if low == high:
        return f"exactly {low:g}"
    if math.isinf(high):
        return f"at least {low:g}"
    return f"at most {high:g}" if math.isinf(low) else f"{low:g} to {high:g}"


def _record(name: str, values: list[float], low: float, high: float, ok: bool) -> None:
    """Leave a line for `make science`, which collects claims over seeds."""
    path = os.environ.get("TINYRL_CLAIMS")
    if path:
        line = {"name": name, "values": values, "low": low, "high": high, "ok": ok}
        with Path(path).open("a", encoding="utf-8") as file:
            file.write(json.dumps(line | {"seed": seed()}) + "\n")
