"""What the compare-runs panel is given: an error names what no control can take."""

from __future__ import annotations

import pytest
import torch

from tinyrl.checkpoints import load as checkpoint
from tinyrl.course.panels.runs_panel import RunsPanel
from tinyrl.recipe import Recipe
from tinyrl.runs import Settings
from tinyrl.sweeps import Runs, experiment
from tinyrl.tasks import CumSum

TASK, MODEL = CumSum(), checkpoint("sft")
BASE = Settings(steps=1, recipe=Recipe(groups=2, group_size=4), prompts=8)


@pytest.fixture(scope="module")
def runs() -> Runs:
    return experiment(MODEL, TASK, {"a": BASE}, [0])


def test_runs_of_another_model_are_refused(runs: Runs) -> None:
    moved = checkpoint("sft")
    with torch.no_grad():
        moved.norm.weight[0] += 1
    with pytest.raises(ValueError, match="began with other weights than this model"):
        RunsPanel(moved, TASK, runs=runs, base=BASE)


def test_an_argument_that_no_control_can_take_is_refused(runs: Runs) -> None:
    for wrong, message in (
        ({"seeds": 0}, "seeds must be a whole number from 1, not 0"),
        ({"seeds": 2.7}, r"seeds must be .* not 2\.7"),
        ({"seeds": True}, "seeds must be .* not True"),
        ({"base": None}, "base must be a Settings, not NoneType"),
        ({"runs": runs["a"]}, "runs must map names of arms to runs, not be list of Run"),
        ({"runs": {"a": runs["a"][0]}}, r"runs\['a'\] must be a list of Run, not Run"),
        ({"runs": {"a": [*runs["a"], 1]}}, r"runs\['a'\] must be .* list of Run, int"),
        ({"runs": {1: runs["a"]}}, "names of arms for keys, not 1"),
        ({"runs": {str(i): [] for i in range(7)}}, "runs may have 6 arms, not 7"),
    ):
        with pytest.raises((TypeError, ValueError), match=message):
            RunsPanel(MODEL, TASK, **{"base": BASE} | wrong)
    with pytest.raises(TypeError, match="model must be a GPT, not str"):
        RunsPanel("sft", TASK)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="task must be a Task, such as CumSum"):
        RunsPanel(MODEL, None)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"seed 0 is of the task CumSum.n=12"):
        RunsPanel(MODEL, CumSum(5), runs=runs, base=BASE)
    p = RunsPanel(MODEL, TASK, runs=runs | {"interrupted": []}, base=BASE, seeds=9)
    assert p.seeds.value == 9
