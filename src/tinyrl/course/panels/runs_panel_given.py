"""What the compare-runs panel is given, checked before a control would bend it to fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tinyrl.course.panels.run_plots import COLOURS
from tinyrl.model import GPT
from tinyrl.runs import Run, Settings, digest
from tinyrl.tasks import Task


def check_given(
    model: GPT,
    task: Task,
    runs: Mapping[str, Sequence[Run]] | None,
    base: Settings,
    seeds: int,
) -> None:
    """`TypeError` or `ValueError` that names the argument, and of `runs` the arm.

    `seeds` may be more than the slider begins with, which has room for as many.
    """
    if not isinstance(model, GPT):
        raise TypeError(f"model must be a GPT, not {_kind(model)}")
    if not all(hasattr(task, name) for name in ("tokenizer", "prompts", "reward")):
        raise TypeError(f"task must be a Task, such as CumSum(), not {_kind(task)}")
    if not isinstance(base, Settings):
        raise TypeError(f"base must be a Settings, not {_kind(base)}")
    if type(seeds) is not int or seeds < 1:
        raise ValueError(f"seeds must be a whole number from 1, not {seeds!r}")
    if runs is None:
        return
    if not isinstance(runs, Mapping):
        raise TypeError(f"runs must map names of arms to runs, not be {_kind(runs)}")
    if len(runs) > len(COLOURS):
        raise ValueError(f"runs may have {len(COLOURS)} arms, not {len(runs)}")
    start = digest(model)
    for arm, each in runs.items():
        _check_arm(arm, each, start, repr(task))


def _check_arm(arm: Any, runs: Any, start: str, task: str) -> None:
    """May be empty: an experiment that was interrupted has such arms."""
    if not isinstance(arm, str):
        raise TypeError(f"runs must have names of arms for keys, not {arm!r}")
    if not isinstance(runs, Sequence) or not all(isinstance(x, Run) for x in runs):
        raise TypeError(f"runs[{arm!r}] must be a list of Run, not {_kind(runs)}")
    for run in runs:
        said = f"runs[{arm!r}], seed {run.settings.seed}"
        if run.start != start:
            raise ValueError(f"{said} began with other weights than this model's")
        if run.task != task:
            raise ValueError(f"{said} is of the task {run.task}, not of {task}")


def _kind(x: Any) -> str:
    inside = {type(each).__name__ for each in x} if isinstance(x, list | tuple) else set()
    return type(x).__name__ + (f" of {', '.join(sorted(inside))}" if inside else "")
