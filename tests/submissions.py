"""A learner's notebook of lab 01, for tests of what may happen to it."""

from __future__ import annotations

from pathlib import Path

import nbformat
from nbformat import NotebookNode

from adversaries.students import answered, cell
from tinyrl.course import notebooks
from tinyrl.course.classroom import labs
from tinyrl.course.notebooks import grade_id, role

NAME = "lab01_two_policies"
(LAB,) = (lab for lab in labs.released() if lab.name == NAME)
ANSWERS = {
    name: f"def {name}(*args):\n    return '{name}'"
    for name, original in LAB.named()
    if role(original, "solution") and original.cell_type == "code"
}


def good() -> NotebookNode:
    nb = answered(LAB.notebook, ANSWERS)
    cell(nb, "open_answer").source = "It should be 1."
    return nb


def save(folder: Path, nb: NotebookNode, name: str = f"{NAME}.ipynb") -> Path:
    path = folder / name
    path.write_text(notebooks.dumps(nb), "utf-8")
    return path


def strip_all(nb: NotebookNode) -> None:
    for c in nb.cells:
        c.metadata = NotebookNode()


def assert_gradable(nb: NotebookNode) -> None:
    """Every cell of the lab is there once, with its metadata, tests and the answers."""
    found = [c for c in nb.cells if grade_id(c)]
    assert [grade_id(c) for c in found] == [name for name, _ in LAB.named()]
    for (name, original), mine in zip(LAB.named(), found, strict=True):
        assert mine.metadata == original.metadata, name
        assert mine.cell_type == original.cell_type, name
        expected = ANSWERS.get(name, original.source)
        assert mine.source == ("It should be 1." if name == "open_answer" else expected)
    nbformat.validate(nb)
    assert len({c.id for c in nb.cells}) == len(nb.cells)
