"""The lab doctor: it finds what costs marks, names the cell, and repairs without loss."""

from __future__ import annotations

import copy
import json
import os
import random
import re
from collections.abc import Callable
from pathlib import Path

import nbformat
import pytest
from hypothesis import given
from hypothesis import strategies as st
from nbformat import NotebookNode

from adversaries.students import cell, own
from submissions import ANSWERS, LAB, NAME, assert_gradable, good, save, strip_all
from tinyrl.course import notebooks
from tinyrl.course.classroom import doctor
from tinyrl.course.classroom.repair import repaired

Damage = Callable[[NotebookNode], object]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / NAME).mkdir()
    return tmp_path / NAME


def duplicate(nb: NotebookNode) -> None:
    twin = copy.deepcopy(cell(nb, "ratio"))
    twin.id = "twin"
    nb.cells.insert(nb.cells.index(cell(nb, "ratio")), twin)
    twin.source = "def ratio(*args):\n    return 'an earlier try'"


def strip_one(nb: NotebookNode) -> None:
    cell(nb, "ratio").metadata = NotebookNode()


def convert(nb: NotebookNode) -> None:
    old = cell(nb, "ratio")
    new = nbformat.v4.new_markdown_cell(old.source, metadata=old.metadata)
    nb.cells[nb.cells.index(old)] = new


def edit_test(nb: NotebookNode) -> None:
    cell(nb, "ratio_test").source = "print('right')"


def edit_settings(nb: NotebookNode) -> None:
    cell(nb, "ratio_hidden").metadata.nbgrader.points = 100


def delete_test(nb: NotebookNode) -> None:
    nb.cells.remove(cell(nb, "ratio_hidden"))


def wrong_kernel(nb: NotebookNode) -> None:
    nb.metadata.kernelspec = {"name": "ir", "display_name": "R", "language": "R"}


def stranger(nb: NotebookNode) -> None:
    code = own("x = 1")
    code.metadata.nbgrader = {**cell(nb, "ratio").metadata.nbgrader, "grade_id": "of_lab02"}
    nb.cells.append(code)


DAMAGES: list[tuple[Damage, str, str]] = [
    (duplicate, "duplicate", "cell 23: a copy of 'ratio' (also in cell 22)"),
    (strip_all, "metadata", "nbgrader's metadata are lost in"),
    (strip_one, "metadata", "cell 22: nbgrader no longer knows this as 'ratio'"),
    (convert, "converted", "cell 22: 'ratio' has become markdown; it was code"),
    (edit_test, "edited test", "cell 23: the test of 'ratio_test' was edited"),
    (edit_settings, "metadata", "cell 24: nbgrader no longer knows this as 'ratio_hidden'"),
    (delete_test, "missing", "the cell 'ratio_hidden' of the lab is gone"),
    (wrong_kernel, "kernel", "its kernel is 'ir'; it has to be 'python3'"),
    (stranger, "stranger", "'of_lab02' is no cell of this lab"),
]


def test_a_good_notebook_is_clean_and_left_alone(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = save(here, good())
    before = path.read_bytes()
    assert doctor.run("lab01", fix=True) == doctor.CLEAN
    assert "Nothing here costs marks" in capsys.readouterr().out
    assert path.read_bytes() == before
    assert list(here.iterdir()) == [path]


@pytest.mark.parametrize(("damage", "kind", "said"), DAMAGES, ids=lambda x: str(x)[:24])
def test_damage_is_found_named_and_repaired(
    here: Path, capsys: pytest.CaptureFixture[str], damage: Damage, kind: str, said: str
) -> None:
    nb = good()
    damage(nb)
    path = save(here, nb)
    before = path.read_bytes()
    assert [f.kind for f in doctor.examine(path, nb, LAB) if not f.note] == [kind]
    assert doctor.run("lab01") == doctor.PROBLEMS
    out = capsys.readouterr().out
    assert said in out
    assert "Repair 1 of 1 with --fix" in out
    assert path.read_bytes() == before
    assert doctor.run("lab01", fix=True) == doctor.CLEAN
    (backup,) = here.glob("*.bak")
    assert backup.read_bytes() == before
    assert doctor.run("lab01") == doctor.CLEAN
    assert_gradable(notebooks.read(path))


def test_a_renamed_file_gets_its_name_back(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = save(here, good(), f"{NAME} (1).ipynb")
    assert doctor.run(str(path)) == doctor.PROBLEMS
    assert f"has to be called {NAME}.ipynb" in capsys.readouterr().out
    assert doctor.run(NAME, fix=True) == doctor.CLEAN
    assert not path.exists()
    assert_gradable(notebooks.read(here / f"{NAME}.ipynb"))


def test_a_renamed_file_never_replaces_another(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = save(here, LAB.notebook)
    path = save(here, good(), "mine.ipynb")
    before = other.read_bytes()
    assert doctor.run(str(path), fix=True) == doctor.PROBLEMS
    assert "nothing here can be repaired for you" in capsys.readouterr().out
    with pytest.raises(FileExistsError):
        doctor.write(path, good(), NAME)
    assert other.read_bytes() == before
    assert path.exists()


def test_an_old_format_is_found_and_repaired(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = here / f"{NAME}.ipynb"
    path.write_text(nbformat.writes(good(), version=3))
    assert doctor.run("lab01", fix=True) == doctor.CLEAN
    assert "its format is 3.0" in capsys.readouterr().out
    assert notebooks.version(path) == (4, 5)
    assert_gradable(notebooks.read(path))


def test_minor_format_4_4_without_ids_is_fine(here: Path) -> None:
    nb = good()
    for c in nb.cells:
        del c["id"]
    nb.nbformat_minor = 4
    path = here / f"{NAME}.ipynb"
    path.write_text(json.dumps(nb))
    assert doctor.run("lab01") == doctor.CLEAN


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("def ratio(*args):\n    return input('? ')", "`input()` waits for a keyboard"),
        ("def ratio(*args):\n    breakpoint()", "`breakpoint()` waits for a keyboard"),
        ("def ratio(:", "Python cannot read this"),
    ],
)
def test_what_only_the_student_can_change_is_named_and_left(
    here: Path, capsys: pytest.CaptureFixture[str], code: str, said: str
) -> None:
    nb = good()
    cell(nb, "ratio").source = code
    path = save(here, nb)
    before = path.read_bytes()
    assert doctor.run("lab01", fix=True) == doctor.PROBLEMS
    assert f"cell 22: {said}" in capsys.readouterr().out
    assert path.read_bytes() == before


def test_magics_and_words_about_input_are_no_problem(here: Path) -> None:
    nb = good()
    nb.cells.append(own("%timeit 1\n!ls\nratio?\nif True:\n    %time 2\n# input() here"))
    save(here, nb)
    assert doctor.run("lab01") == doctor.CLEAN


def test_unfinished_unrun_and_unsaved_work_are_notes(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nb = good()
    cell(nb, "ratio").source = cell(LAB.notebook, "ratio").source
    for c in nb.cells[:10]:
        if c.cell_type == "code":
            c.execution_count = 1
    path = save(here, nb)
    checkpoints = here / ".ipynb_checkpoints"
    checkpoints.mkdir()
    newer = save(checkpoints, nb, f"{NAME}-checkpoint.ipynb")
    os.utime(newer, (path.stat().st_mtime + 60,) * 2)
    assert doctor.run("lab01") == doctor.CLEAN
    out = capsys.readouterr().out
    assert "still to be answered: ratio\n" in out
    never = "never run since the outputs were cleared: token_delta_test (cell 11), "
    assert never in out
    assert "apart from what is unanswered" in out
    assert "Jupyter's checkpoint is newer than the file" in out
    assert "what is typed but not saved, no tool sees" in out


def test_no_notebook_a_corrupt_one_and_a_stranger_are_usage_errors(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert doctor.run("lab07") == doctor.USAGE
    assert NAME in capsys.readouterr().out
    path = here / f"{NAME}.ipynb"
    path.write_text('{"cells": [')
    assert doctor.run("lab01", fix=True) == doctor.USAGE
    assert "no notebook" in capsys.readouterr().out
    assert path.read_text() == '{"cells": ['
    save(here, nbformat.v4.new_notebook(cells=[own("1")]))
    assert doctor.run("lab01") == doctor.USAGE
    assert "is not one of this course's labs" in capsys.readouterr().out


def test_a_folder_that_cannot_be_written_changes_nothing(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    nb = good()
    strip_all(nb)
    path = save(here, nb)
    before = path.read_bytes()

    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied", str(here))

    monkeypatch.setattr(os, "replace", refuse)  # the tests may run as root
    assert doctor.run("lab01", fix=True) == doctor.PROBLEMS
    assert "Nothing was changed" in capsys.readouterr().out
    assert path.read_bytes() == before
    assert list(here.iterdir()) == [path]


@given(st.integers(0, 10**6), st.integers(0, 6))
def test_any_mixture_of_damage_is_repaired_without_loss(seed: int, number: int) -> None:
    """Own cells survive in order, repairing twice is repairing once, all can be graded."""
    draw = random.Random(seed)
    nb = good()
    for i in range(3):
        nb.cells.insert(draw.randrange(len(nb.cells)), own(f"helper_{i} = {i}"))
    helpers = [c for c in nb.cells if c.source.startswith("helper")]
    helpers[0].id = "ratio"  # two cells of one id, as hand-made copies have
    mine = [c.source for c in helpers]
    damages = [duplicate, convert, edit_test, edit_settings, wrong_kernel, delete_test]
    for index in sorted(draw.sample(range(len(damages)), min(number, len(damages)))):
        damages[index](nb)
    if draw.random() < 0.3:
        strip_all(nb)
    fixed = repaired(nb, LAB)
    assert_gradable(fixed)
    assert [c.source for c in fixed.cells if c.source.startswith("helper")] == mine
    assert notebooks.dumps(repaired(fixed, LAB)) == notebooks.dumps(fixed)
    if any(c.source.endswith("'an earlier try'") for c in nb.cells):
        at = [c.source[-4:] for c in fixed.cells if c.source.startswith("def ratio(")]
        assert at == ["try'", "tio'"], "the earlier try is kept, before the answer"


def test_an_answer_written_beside_its_cell_is_found_when_metadata_are_lost() -> None:
    nb = good()
    cell(nb, "ratio").source = cell(LAB.notebook, "ratio").source
    nb.cells.insert(nb.cells.index(cell(nb, "ratio")), own(ANSWERS["ratio"]))
    strip_all(nb)
    assert_gradable(repaired(nb, LAB))


@pytest.mark.parametrize("damage", [damage for damage, _, _ in DAMAGES])
def test_it_speaks_chinese(
    here: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    damage: Damage,
) -> None:
    """No English word is left but names, file names and options."""
    monkeypatch.setenv("TINYRL_LANG", "zh")
    nb = good()
    damage(nb)
    save(here, nb)
    assert doctor.run("lab01") == doctor.PROBLEMS
    _, *lines = capsys.readouterr().out.splitlines()
    words = set(re.findall(r"(?<![\w'./-])[a-z]{3,}(?![\w'./])", "\n".join(lines)))
    assert words <= {"nbgrader", "markdown", "code", "fix"}, lines
