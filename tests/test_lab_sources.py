"""The labs as their sources ask them: solutions, stubs, metadata, points."""

from __future__ import annotations

import inspect
import math
import re
from typing import Any

import torch
from torch import Tensor

from lab_sources import ROOT, each, each_lab, lab, solution, solutions
from tinyrl.course.checking.judging import judge
from tinyrl.course.exercise import Exercise
from tinyrl.course.exercises import LABS, lab_of


@each_lab
def test_lab_asks_every_exercise_in_order(name: str) -> None:
    assert list(solutions(name)) == [exercise.name for exercise in LABS[name]]


@each
def test_solution_is_right_and_its_stub_says_what_to_write(exercise: Exercise) -> None:
    source = solution(exercise.name)
    namespace: dict[str, Any] = {"torch": torch, "math": math, "Tensor": Tensor}
    exec(source, namespace)
    for seed in (0, 1, 2):
        verdict = judge(exercise, namespace[exercise.name], seed)
        assert verdict.outcome == "right", verdict.text.en
    stub = re.sub(
        r"### BEGIN SOLUTION.*### END SOLUTION",
        "raise NotImplementedError()",
        source,
        flags=re.S,
    )
    exec(stub, namespace)
    assert judge(exercise, namespace[exercise.name]).outcome == "blank"
    assert (
        tuple(inspect.signature(namespace[exercise.name]).parameters) == exercise.arguments
    )
    assert inspect.getdoc(namespace[exercise.name])


@each
def test_cells_of_an_exercise(exercise: Exercise) -> None:
    name = lab_of(exercise.name)
    cells = lab(name).cells
    at = next(
        i
        for i, cell in enumerate(cells)
        if cell.metadata.get("nbgrader", {}).get("grade_id") == exercise.name
    )
    question, answer, test, hidden = cells[at - 1 : at + 3]
    call = f'_check("{exercise.name}", {exercise.name}'
    on_one_line = f"from tinyrl.course import check as _check; {call})"
    on_two = f"from tinyrl.course import check as _check\n\n{call})"
    assert test.source == (on_one_line if len(on_one_line) <= 80 else on_two)
    visible, secret = hidden.source.split("### BEGIN HIDDEN TESTS\n")
    assert f"{call}, seed=1)" in visible
    assert secret.endswith("### END HIDDEN TESTS")
    assert "from tinyrl.course import check as _check\n" in secret
    assert re.search(rf"{re.escape(call)}, seed=\d{{4,}}\)", secret)
    canary = f"TINYRL-CANARY-{name[:5]}-{exercise.name}"
    assert f"# canary: {canary}-hidden\n" in secret
    assert re.search(rf"### BEGIN SOLUTION\n *# canary: {canary}\n", answer.source)
    assert (
        test.metadata.nbgrader.points,
        hidden.metadata.nbgrader.points,
    ) == exercise.points
    assert exercise.title.en in question.source
    assert exercise.title.zh in question.source
    told = f"{exercise.minutes} minutes, {sum(exercise.points)} points."
    assert question.source.endswith(told)


@each_lab
def test_metadata_points_and_minutes_of_the_lab(name: str) -> None:
    cells = lab(name).cells
    marks = [c.metadata.nbgrader for c in cells if "nbgrader" in c.metadata]
    for mark in marks:
        assert mark.schema_version == 3
        graded = mark.grade or mark.task
        assert ("points" in mark) == graded
        assert not (mark.grade and mark.task), "points of such a cell count twice"
        assert mark.locked == (not mark.solution)
        if graded:
            assert isinstance(mark.points, int)
    total = sum(mark.get("points", 0) for mark in marks)
    intro = cells[0].source
    assert f"{total} points" in intro
    told = [int(n) for c in cells for n in re.findall(r"(\d+) minutes", c.source)]
    assert told[0] == sum(told[1:]), "of the exercises and of the open question"
    assert len(cells) <= 60
    text = " ".join(c.source for c in cells if c.cell_type == "markdown")
    assert len(text.split()) <= 3000
    for cell in cells:
        assert max(map(len, cell.source.splitlines())) <= 80, cell.source


@each_lab
def test_open_question_has_a_rubric(name: str) -> None:
    cells = {
        c.metadata.nbgrader.grade_id: c for c in lab(name).cells if "nbgrader" in c.metadata
    }
    rubric, answer = cells["open_rubric"], cells["open_answer"]
    assert "=== BEGIN MARK SCHEME ===" in rubric.source
    assert rubric.source.endswith("=== END MARK SCHEME ===")
    assert rubric.source.count("TINYRL-CANARY") == answer.source.count("TINYRL-CANARY") == 1


def test_no_canary_in_the_package() -> None:
    files = [p for p in (ROOT / "src").rglob("*") if p.suffix in (".py", ".ipynb", ".css")]
    assert len(files) > 20
    assert not [p for p in files if re.search(r"TINYRL-CANARY-lab\d", p.read_text("utf-8"))]
