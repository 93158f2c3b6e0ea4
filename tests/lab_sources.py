"""The labs as they are written: their exercises and the source of each solution."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import jupytext
import pytest
from nbformat import NotebookNode

from tinyrl.course.exercises import LABS, lab_of

ROOT = Path(__file__).parents[1]
EXERCISES = [exercise for asked in LABS.values() for exercise in asked]
each = pytest.mark.parametrize("exercise", EXERCISES, ids=lambda exercise: exercise.name)
each_lab = pytest.mark.parametrize("name", LABS)


@cache
def lab(name: str) -> NotebookNode:
    return jupytext.read(ROOT / "solutions" / f"{name}.py", fmt="py:percent")


def solutions(name: str) -> dict[str, str]:
    """The source of each solution cell of a lab, by exercise."""
    cells = [cell for cell in lab(name).cells if cell.cell_type == "code"]
    marked = [c for c in cells if c.metadata.get("nbgrader", {}).get("solution")]
    return {cell.metadata.nbgrader.grade_id: cell.source for cell in marked}


def solution(exercise: str) -> str:
    return solutions(lab_of(exercise))[exercise]
