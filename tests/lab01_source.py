"""Lab 01 as it is written: its exercises and the source of each solution."""

from __future__ import annotations

from pathlib import Path

import jupytext
import pytest
from nbformat import NotebookNode

from tinyrl.course.exercises import LABS

ROOT = Path(__file__).parents[1]
LAB = "lab01_two_policies"
EXERCISES = LABS[LAB]
each = pytest.mark.parametrize("exercise", EXERCISES, ids=lambda exercise: exercise.name)


def lab() -> NotebookNode:
    return jupytext.read(ROOT / "solutions" / f"{LAB}.py", fmt="py:percent")


def solutions() -> dict[str, str]:
    """The source of each solution cell, by exercise."""
    cells = [cell for cell in lab().cells if cell.cell_type == "code"]
    marked = [c for c in cells if c.metadata.get("nbgrader", {}).get("solution")]
    return {cell.metadata.nbgrader.grade_id: cell.source for cell in marked}
