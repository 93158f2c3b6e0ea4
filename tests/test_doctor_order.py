"""The lab's own cells stand in the lab's order, or the doctor says so and restores it."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nbformat import NotebookNode

from adversaries.students import cell, own
from submissions import LAB, NAME, assert_gradable, good, save, strip_all
from tinyrl.course import notebooks
from tinyrl.course.classroom import doctor
from tinyrl.course.classroom.grading import grade
from tinyrl.course.classroom.kept_edits import is_kept
from tinyrl.course.classroom.preprocessors import RepairSubmission
from tinyrl.course.classroom.repair import repaired
from tinyrl.course.notebooks import grade_id


def move(nb: NotebookNode, name: str, to: int) -> None:
    """Take the cell `name` out and put it at index `to`; -1 is the end."""
    taken = nb.cells.pop(nb.cells.index(cell(nb, name)))
    nb.cells.insert(to if to >= 0 else len(nb.cells), taken)


def setup_at_the_end(nb: NotebookNode) -> None:
    move(nb, "setup", -1)


def test_above_its_answer(nb: NotebookNode) -> None:
    move(nb, "ratio_test", nb.cells.index(cell(nb, "ratio")))


test_above_its_answer.__test__ = False  # type: ignore[attr-defined]


def answer_above_the_setup(nb: NotebookNode) -> None:
    move(nb, "masked_mean", 0)


MOVES: list[tuple[Callable[[NotebookNode], None], str]] = [
    (setup_at_the_end, "cell 52: 'setup' is not where the lab has it; it belongs first"),
    (
        test_above_its_answer,
        "cell 22: 'ratio_test' is not where the lab has it; it belongs below 'ratio'",
    ),
    (
        answer_above_the_setup,
        "cell 1: 'masked_mean' is not where the lab has it; it belongs below "
        "'ratio_hidden'",
    ),
]


@pytest.mark.parametrize(("moved", "said"), MOVES, ids=lambda x: str(x)[:24])
@pytest.mark.parametrize("bare", [False, True], ids=["", "without metadata"])
def test_a_moved_cell_is_named_and_brought_back(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    moved: Callable[[NotebookNode], None],
    said: str,
    bare: bool,
) -> None:
    nb = good()
    moved(nb)
    if bare:
        strip_all(nb)
    path = save(tmp_path, nb)
    assert doctor.run(path) == doctor.PROBLEMS
    assert said in capsys.readouterr().out
    assert doctor.run(path, fix=True) == doctor.CLEAN
    fixed = notebooks.read(path)
    assert_gradable(fixed)
    assert [c.source for c in fixed.cells] == [c.source for c in good().cells]
    capsys.readouterr()
    assert doctor.run(path) == doctor.CLEAN
    assert "Nothing here costs marks" in capsys.readouterr().out


def test_many_moved_cells_are_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nb = good()
    nb.cells.reverse()
    path = save(tmp_path, nb)
    assert doctor.run(path, fix=True) == doctor.CLEAN
    out = capsys.readouterr().out
    assert "36 cells are not where the lab has them" in out
    assert_gradable(notebooks.read(path))


def test_the_lab_s_prose_and_cells_of_one_s_own_may_stand_anywhere(tmp_path: Path) -> None:
    nb = good()
    nb.cells.append(nb.cells.pop(0))
    nb.cells.insert(0, own("import os"))
    assert [f for f in doctor.examine(save(tmp_path, nb), nb, LAB) if not f.note] == []
    assert [c.source for c in repaired(nb, LAB).cells] == [c.source for c in nb.cells]


def test_what_belongs_to_a_moved_section_moves_with_it() -> None:
    """A helper of an answer is defined before its test in either order."""
    nb = good()
    at = nb.cells.index(cell(nb, "ratio"))
    nb.cells.insert(at, own("helper = 1"))
    section = nb.cells[at - 1 : at + 4]
    assert [c.cell_type for c in section] == ["markdown", *["code"] * 4]
    moved = copy.deepcopy(nb)
    moved.cells[at - 1 : at + 4] = []
    moved.cells += section
    assert [c.source for c in repaired(moved, LAB).cells] == [c.source for c in nb.cells]


def test_an_edit_of_a_moved_cell_is_kept_above_where_it_belongs() -> None:
    nb = good()
    cell(nb, "setup").source += "\nimport numpy as np"
    setup_at_the_end(nb)
    fixed = repaired(nb, LAB)
    assert_gradable(fixed)
    assert is_kept(fixed.cells[1])
    assert grade_id(fixed.cells[2]) == "setup"
    assert notebooks.dumps(repaired(fixed, LAB)) == notebooks.dumps(fixed)


@pytest.mark.parametrize(
    ("name", "at"), [("ratio_test", 1), ("setup", -1), ("by_hand", 0), ("ratio_hidden", -1)]
)
@pytest.mark.parametrize("bare", [False, True], ids=["", "without metadata"])
def test_of_copies_of_a_locked_cell_one_in_its_place_is_taken(
    name: str, at: int, bare: bool
) -> None:
    """The copy elsewhere is unedited, the one in place is edited."""
    nb = good()
    twin = copy.deepcopy(cell(nb, name))
    twin.id = "twin"
    cell(nb, name).source += "\nmine = 1"
    nb.cells.insert(at if at >= 0 else len(nb.cells), twin)
    if bare:
        twin.metadata = NotebookNode()
    fixed = repaired(nb, LAB)
    assert_gradable(fixed)
    assert len(fixed.cells) == len(good().cells) + 1
    above = fixed.cells[fixed.cells.index(cell(fixed, name)) - 1]
    assert is_kept(above)
    assert above.source.endswith("mine = 1")


def test_a_lone_cell_of_code_does_not_become_a_deleted_answer() -> None:
    nb = good()
    at = nb.cells.index(cell(nb, "ratio"))
    nb.cells[at - 1 : at + 1] = [own("print(1)"), own("print(2)")]
    fixed = repaired(nb, LAB)
    assert cell(fixed, "ratio").source == cell(LAB.notebook, "ratio").source
    assert [c.source for c in fixed.cells if c.source.startswith("print")] == [
        "print(1)",
        "print(2)",
    ]


def test_a_moved_cell_hides_no_answer_whose_metadata_are_lost() -> None:
    nb = good()
    cell(nb, "ratio").source = "ratio_of = lambda *a: 1"
    strip_all(nb)
    first = next(i for i, c in enumerate(nb.cells) if c.source.startswith("import math"))
    nb.cells.append(nb.cells.pop(first))
    assert cell(repaired(nb, LAB), "ratio").source == "ratio_of = lambda *a: 1"


@given(st.integers(0, 10**6), st.integers(1, 6), st.booleans())
def test_any_order_is_restored_once_and_loses_nothing(
    seed: int, number: int, bare: bool
) -> None:
    draw, nb = random.Random(seed), good()
    for i in range(4):
        nb.cells.insert(draw.randrange(len(nb.cells)), own(f"helper_{i} = {i}"))
    for _ in range(number):
        moved = nb.cells.pop(draw.randrange(len(nb.cells)))
        nb.cells.insert(draw.randrange(len(nb.cells)), moved)
    for c in nb.cells if bare else []:
        if grade_id(c) != "open_answer":  # nothing else tells what a moved text was
            c.metadata = NotebookNode()
    fixed = repaired(nb, LAB)
    assert_gradable(fixed)
    assert sorted(c.source for c in fixed.cells) == sorted(c.source for c in nb.cells)
    assert notebooks.dumps(repaired(fixed, LAB)) == notebooks.dumps(fixed)


def test_a_moved_setup_costs_no_mark_in_either_pass() -> None:
    nb = good()
    cell(nb, "token_delta").source = (
        "def token_delta(logp_train: Tensor, logp_rollout: Tensor, mask: Tensor):\n"
        "    return torch.where(mask, logp_train - logp_rollout, 0.0)"
    )
    setup_at_the_end(nb)
    marks = {m.test: m.points for m in grade(nb, LAB, LAB.notebook).marks}
    assert marks["token_delta_test"] == 1.0
    about = {"nbgrader": {"assignment": "", "notebook": NAME}}
    released = str(doctor.labs.RELEASED)
    fixed, _ = RepairSubmission(released=released).preprocess(nb, about)
    named = [grade_id(c) for c in fixed.cells if grade_id(c)]
    assert named == [name for name, _ in LAB.named()]
