"""What a number makes of a fault, and how it is drawn."""

from __future__ import annotations

import math

import pytest
from matplotlib.figure import Figure

from tinyrl.course.lessons.visibility import (
    BLIND,
    DROWNED,
    SEES,
    draw_sights,
    sight,
    sights,
)
from tinyrl.intervals import Interval


def test_a_number_sees_is_drowned_or_blind() -> None:
    equal, healthy = Interval(1e-9, 0.0, 2e-9), Interval(0.01, 0.008, 0.012)
    for found, wanted in (
        (Interval(0.1, 0.05, 0.2), SEES),
        (Interval(0.1, 0.01, 0.2), DROWNED),
        (Interval(0.005, 0.004, 0.006), DROWNED),
        (Interval(0.1, 0.0, 0.2), BLIND),
        (Interval(-0.1, -0.2, -0.05), SEES),
    ):
        assert sight(found, equal, healthy) == wanted
    one = Interval(0.9999, 0.9998, 1.0)
    assert sight(Interval(0.5, 0.4, 0.6), one, Interval(0.99, 0.98, 0.999)) == SEES
    nearer = Interval(1e-12, 0.0, 1e-11), Interval(1e-9, 5e-10, 2e-9)
    assert sight(*nearer, healthy) == BLIND, "smaller than that of equal policies"


def test_the_worst_batch_decides() -> None:
    seen, unseen = Interval(1.0, 0.9, 1.1), Interval(1.0, 0.0, 2.0)
    zero, small = Interval(0.0, 0.0, 0.0), Interval(0.1, 0.1, 0.2)
    found = {
        "equal": {"k3": [zero, zero]},
        "healthy": {"k3": [small, small]},
        "a": {"k3": [seen, seen]},
        "b": {"k3": [seen, unseen]},
    }
    grid = sights(found, ["k3"], equal="equal", healthy="healthy")
    assert grid.tolist() == [[DROWNED, SEES, BLIND]]


def test_of_a_number_that_is_1_what_is_missing_is_written() -> None:
    one, near, off = (Interval(x, x, x) for x in (1.0, 0.9998, 0.75))
    zero, small, large = (Interval(x, x, x) for x in (0.0, 0.01, 0.5))
    found = {
        "equal": {"ess": [one], "k3": [zero]},
        "healthy": {"ess": [near], "k3": [small]},
        "a": {"ess": [off], "k3": [large]},
    }
    axes = Figure().subplots()
    draw_sights(axes, found, ["ess", "k3"], equal="equal", healthy="healthy")
    assert [t.get_text() for t in axes.texts] == ["0.0002", "0.25", "0.01", "0.5"]
    assert [t.get_text() for t in axes.get_yticklabels()] == ["1 - ess", "k3"]


def test_an_undefined_number_is_not_called_blind() -> None:
    zero, one, nan = (Interval(x, x, x) for x in (0.0, 1.0, math.nan))
    Found = dict[str, dict[str, list[Interval]]]
    found: Found = {"equal": {"k3": [zero]}, "healthy": {"k3": [one]}, "a": {"k3": [one]}}
    cases: tuple[tuple[Found, str], ...] = (
        ({"a": {"k3": [nan]}}, "k3 of a: found is undefined"),
        ({"a": {"k3": [Interval(1.0, math.nan, math.nan)]}}, "k3 of a: found is undefined"),
        ({"equal": {"k3": [nan]}}, "k3 of healthy: equal is undefined"),
        ({"equal": {"k3": [Interval(7.0, 6.0, 8.0)]}}, "equal must be near 0 or 1, not 7"),
        ({"a": {}}, "a has no number 'k3'"),
        ({"a": {"k3": []}}, r"k3 of a, equal and healthy: \[0, 1, 1\] batches"),
        ({"a": {"k3": [one, one]}}, r"\[2, 1, 1\] batches, not equally many"),
    )
    how = {"equal": "equal", "healthy": "healthy"}
    for broken, message in cases:
        with pytest.raises(ValueError, match=message):
            sights(found | broken, ["k3"], **how)
    with pytest.raises(ValueError, match="healthy must be one of equal, healthy, a"):
        sights(found, ["k3"], equal="equal", healthy="BF16")
    with pytest.raises(ValueError, match="numbers must name one"):
        sights(found, [], **how)
