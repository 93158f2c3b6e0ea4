"""When alarms ring in a watched run."""

from __future__ import annotations

import pytest
import torch
from matplotlib.figure import Figure

from tinyrl.checkpoints import load
from tinyrl.course.lessons.alarm_rings import (
    LOWEST,
    MISMATCH,
    draw_rings,
    rung,
    steps,
    told,
)
from tinyrl.course.lessons.watched_runs import Watched, live
from tinyrl.recipe import Recipe
from tinyrl.stack import PRESETS, Stack
from tinyrl.tasks import CumSum


def runs() -> dict[str, Watched]:
    recipe = Recipe(groups=2, group_size=4, minibatches=1, lr=1e-3)
    faults = {"none": "none", "int4": PRESETS["int4_weights"]}
    g = torch.Generator().manual_seed(0)
    how = {"steps": 4, "after": 2, "faults": faults, "recipe": recipe}
    return live(load("sft"), CumSum(), Stack(), Stack(), g, **how)


def test_alarms_ring_from_the_fault_on_and_never_without() -> None:
    found = runs()
    assert rung(found["none"]) == 0
    by_hand = 0
    for m in found["int4"].numbers:
        by_hand += sum(alarm.rings(m[alarm.number]) for alarm in MISMATCH)
    assert rung(found["int4"]) == by_hand > 4
    assert told(found["none"], 2).count("never") == 3
    text = told(found["int4"], 2)
    assert f"K3 above {LOWEST:g} from step 3, 2 times" in text
    assert "first 2 steps from step 3, 2 times" in text

    axes = Figure().subplots(1, 2)
    draw_rings(axes, found, 2)
    squares = [[x for line in ax.lines[:-1] for x in line.get_xdata()] for ax in axes]
    assert squares[0] == []
    assert len(squares[1]) == by_hand
    assert set(squares[1]) == {3, 4}
    assert len(axes[0].get_yticklabels()) == len(MISMATCH)


def test_a_trend_is_measured_against_the_run_s_own_beginning() -> None:
    quiet = [m | {"k3": 1e-6} for m in runs()["none"].numbers]
    loud = [*quiet[:2], quiet[2] | {"k3": 9e-6}, quiet[3] | {"k3": 2e-5}]
    run = runs()["none"]._replace(numbers=loud)
    assert "first 2 steps from step 4, 1 times" in told(run, 2)
    assert steps([False, True, True]) == [2, 3]
    grown = [loud[0] | {"k3": x * 1e-6} for x in (1, 1, 2, 2, 2, 2, 2, 7, 8, 8, 8, 8, 8)]
    text = told(run._replace(numbers=grown), 2)
    assert "last 5 steps over that of the first 5 after step 2: 4" in text
    for after in (0, 5, 1.5):
        with pytest.raises(ValueError, match="after must be"):
            told(run, after)  # type: ignore[arg-type]
