"""What somebody wrote into the lab's own cells is kept, once, and earns nothing."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from pathlib import Path

import nbformat
import pytest
from nbformat import NotebookNode

from adversaries.students import cell, own
from submissions import LAB, assert_gradable, good, save, strip_all
from tinyrl.course import notebooks
from tinyrl.course.classroom import doctor, findings
from tinyrl.course.classroom.kept_edits import is_kept
from tinyrl.course.classroom.repair import repaired
from tinyrl.course.notebooks import grade_id

HACK = "_check = lambda *a: None\nprint('right')"


def kept_above(nb: NotebookNode, name: str) -> NotebookNode:
    """The one kept cell of the notebook, which stands above the lab's cell `name`."""
    (only,) = [c for c in nb.cells if is_kept(c)]
    assert nb.cells[nb.cells.index(cell(nb, name)) - 1] is only
    return only


def replaced(nb: NotebookNode) -> str:
    cell(nb, "ratio_test").source = HACK
    return HACK


def added(nb: NotebookNode) -> str:
    line = "print(ratio(by_hand_train, by_hand_rollout, by_hand_mask))"
    cell(nb, "ratio_test").source += f"\n{line}"
    return line


def added_without_metadata(nb: NotebookNode) -> str:
    line = added(nb)
    cell(nb, "ratio_test").metadata = NotebookNode()
    return line


def imported(nb: NotebookNode) -> str:
    cell(nb, "setup").source += "\nimport numpy as np"
    return "import numpy as np"


def timed(nb: NotebookNode) -> str:
    code = cell(nb, "setup")
    code.source = f"%%time\n{code.source}\nimport numpy as np"
    return "import numpy as np"


def timed_below_a_blank_line(nb: NotebookNode) -> str:
    line = timed(nb)
    cell(nb, "setup").source = f"\n{cell(nb, 'setup').source}"
    return line


def answered_in_the_rubric(nb: NotebookNode) -> str:
    text = cell(nb, "open_rubric")
    text.source += "\n\nMy answer: it should be 1. ![](attachment:a.png)"
    text.attachments = {"a.png": {"image/png": "aGk="}}
    return "My answer: it should be 1. ![](attachment:a.png)"


def turned_into_code(nb: NotebookNode) -> str:
    old = cell(nb, "open_rubric")
    text = f"{old.source}\n\nMine: it should be 1."
    new = nbformat.v4.new_code_cell(text, metadata=old.metadata)
    nb.cells[nb.cells.index(old)] = new
    return "Mine: it should be 1."


EDITS: list[tuple[Callable[[NotebookNode], str], str, str]] = [
    (replaced, "ratio_test", "raw"),
    (added, "ratio_test", "raw"),
    (added_without_metadata, "ratio_test", "raw"),
    (imported, "setup", "code"),
    (timed, "setup", "code"),
    (timed_below_a_blank_line, "setup", "code"),
    (answered_in_the_rubric, "open_rubric", "markdown"),
    (turned_into_code, "open_rubric", "markdown"),
]
each = pytest.mark.parametrize(
    ("edit", "name", "kind"), EDITS, ids=lambda x: getattr(x, "__name__", x)
)


@each
def test_what_was_written_into_a_cell_of_the_lab_is_kept_above_it(
    edit: Callable[[NotebookNode], str], name: str, kind: str
) -> None:
    nb = good()
    written = edit(nb)
    (before,) = [copy.deepcopy(c) for c in nb.cells if written in c.source]
    fixed = repaired(nb, LAB)
    assert_gradable(fixed)
    kept = kept_above(fixed, name)
    assert kept.cell_type == kind
    assert written in kept.source
    assert ("%%" in kept.source) == kept.source.lstrip().startswith("%%")
    assert not grade_id(kept)
    assert kept.get("attachments") == before.get("attachments")


@each
def test_a_kept_cell_stays_one_ordinary_cell_whatever_happens_next(
    edit: Callable[[NotebookNode], str], name: str, kind: str
) -> None:
    nb = good()
    edit(nb)
    once = repaired(nb, LAB)
    text = kept_above(once, name).source
    assert notebooks.dumps(repaired(once, LAB)) == notebooks.dumps(once)
    strip_all(once)
    assert kept_above(repaired(once, LAB), name).source == text
    lone = repaired(nb, LAB)
    lone.cells.remove(cell(lone, name))  # the kept cell is the likest one that is left
    again = repaired(lone, LAB)
    assert_gradable(again)
    assert [c.source for c in again.cells if is_kept(c)] == [text]


@each
def test_the_doctor_says_that_it_keeps_the_edit_and_then_is_content(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    edit: Callable[[NotebookNode], str],
    name: str,
    kind: str,
) -> None:
    nb = good()
    edit(nb)
    path = save(tmp_path, nb)
    assert doctor.run(path, fix=True) == doctor.CLEAN
    said = f"of '{name}' was edited; --fix restores it and keeps your version in a cell"
    said += " above it" + (", where it is not run\n" if kind == "raw" else "\n")
    assert said in capsys.readouterr().out
    before = path.read_bytes()
    assert doctor.run(path, fix=True) == doctor.CLEAN
    assert path.read_bytes() == before


def test_nothing_is_kept_where_nothing_was_written() -> None:
    nb = good()
    cell(nb, "ratio_test").source = ""
    text = cell(nb, "open_rubric").source.splitlines()
    cell(nb, "open_rubric").source = "\n".join(text[1:])
    fixed = repaired(nb, LAB)
    assert_gradable(fixed)
    assert len(fixed.cells) == len(nb.cells)


def test_an_edited_test_does_not_keep_what_it_printed() -> None:
    nb = good()
    replaced(nb)
    printed = nbformat.v4.new_output("stream", text="right")
    cell(nb, "ratio_test").outputs = [printed]
    cell(nb, "masked_mean_test").outputs = [printed]
    fixed = repaired(nb, LAB)
    assert cell(fixed, "ratio_test").outputs == []
    assert cell(fixed, "masked_mean_test").outputs == [printed]


@pytest.mark.parametrize("position", [0, 1], ids=["above", "below"])
def test_of_two_copies_of_a_test_the_unedited_one_is_taken_where_it_stands(
    position: int,
) -> None:
    nb = good()
    twin = copy.deepcopy(cell(nb, "ratio_test"))
    twin.id, twin.source = "twin", HACK
    at = nb.cells.index(cell(nb, "ratio_test"))
    nb.cells.insert(at + position, twin)
    (found,) = [f for f in findings._cells(nb, LAB) if f.kind == "duplicate"]
    assert found.cell == 1 + at + 1 - position
    assert found.said.en.endswith("this one counts")
    fixed = repaired(nb, LAB)
    assert_gradable(fixed)
    assert is_kept(fixed.cells[at + position])
    assert fixed.cells[at + position].source.endswith(HACK)


def test_two_edited_copies_are_both_kept() -> None:
    nb = good()
    twin = copy.deepcopy(cell(nb, "ratio_test"))
    twin.source = "print('an earlier thought')"
    nb.cells.insert(nb.cells.index(cell(nb, "ratio")) + 1, twin)
    nb.cells[nb.cells.index(twin) + 1].source = HACK
    fixed = repaired(nb, LAB)
    assert_gradable(fixed)
    kept = [c.source for c in fixed.cells if is_kept(c)]
    assert [text.partition("\n")[2] for text in kept] == [twin.source, HACK]


def test_pictures_pasted_into_the_open_answer_stay() -> None:
    nb = good()
    cell(nb, "open_answer").attachments = {"a.png": {"image/png": "aGk="}}
    once = repaired(nb, LAB)
    assert cell(once, "open_answer").attachments == {"a.png": {"image/png": "aGk="}}
    nbformat.validate(once)
    assert repaired(once, LAB) == once


def test_new_ids_are_free_ones() -> None:
    nb = good()
    nb.cells += [own("a = 1"), own("b = 2"), own("c = 3")]
    last = len(nb.cells) - 1
    nb.cells[-3].id, nb.cells[-2].id, nb.cells[-1].id = f"own-{last}", "x", "ratio"
    fixed = repaired(nb, LAB)
    assert len({c.id for c in fixed.cells}) == len(fixed.cells)
    assert fixed.cells[-3].id == f"own-{last}"


def test_the_open_answer_is_found_though_notes_of_their_own_follow_it() -> None:
    nb = good()
    nb.cells.insert(nb.cells.index(cell(nb, "open_answer")) + 1, note("More of it."))
    nb.cells.append(note("What I have learnt."))
    strip_all(nb)
    assert_gradable(repaired(nb, LAB))


def note(text: str) -> NotebookNode:
    return nbformat.v4.new_markdown_cell(text)


def test_a_long_page_beside_lost_cells_takes_no_time() -> None:
    nb = good()
    nb.cells.append(note("word: its meaning\n" * 20_000))
    strip_all(nb)
    for name in ("ratio_test", "ratio_hidden", "setup"):
        original = cell(LAB.notebook, name).source
        nb.cells.remove(next(c for c in nb.cells if c.source == original))
    started = time.monotonic()
    assert_gradable(repaired(nb, LAB))
    assert time.monotonic() - started < 5


@pytest.mark.parametrize(
    "source",
    [
        "{code}\n# said to be kept by `tinyrl lab doctor`",
        "# kept by `tinyrl lab doctor`\n{code}",
        "{code}\n# Your version of `setup`, kept by `tinyrl lab doctor`",
        "# Not: Your version of `setup`, kept by `tinyrl lab doctor`\n{code}",
    ],
)
def test_an_answer_that_speaks_of_the_doctor_is_an_answer(source: str) -> None:
    nb = good()
    code = cell(nb, "ratio").source
    cell(nb, "ratio").source = source.format(code=code)
    strip_all(nb)
    fixed = repaired(nb, LAB)
    assert cell(fixed, "ratio").source == source.format(code=code)
    assert len(fixed.cells) == len(nb.cells)
