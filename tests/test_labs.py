"""Finding a lab by what a learner calls it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tinyrl.course import notebooks
from tinyrl.course.classroom import doctor, labs
from tinyrl.course.classroom.labs import Lab
from tinyrl.course.classroom.repair import repaired
from tinyrl.course.notebooks import is_test

NAME = "lab01_two_policies"
(LAB,) = (lab for lab in labs.released() if lab.name == NAME)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / NAME).mkdir()
    return tmp_path / NAME


def save(path: Path) -> Path:
    path.write_text(notebooks.dumps(LAB.notebook), "utf-8")
    return path


def test_a_lab_is_located_by_number_name_folder_and_path(here: Path) -> None:
    path = save(here / f"{NAME}.ipynb")
    for asked in ("lab01", NAME, here.name, str(path), path.relative_to(Path.cwd())):
        assert labs.locate(asked).resolve() == path
    for number in ("1", "01", "001", "lab1", "lab01", "lab001"):
        assert labs.locate(number) == path
    save(here / "copy.ipynb")
    assert labs.locate("lab01") == path, "the exact name wins"
    path.rename(here / "other.ipynb")
    with pytest.raises(labs.NoSuchLab, match="could be any of"):
        labs.locate("lab01")


def test_a_lab_is_located_from_its_home_and_from_beside_it(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = save(here / f"{NAME}.ipynb")
    monkeypatch.setenv("HOME", str(here.parent))
    assert labs.locate(f"~/{NAME}") == labs.locate(f"~/{NAME}/{NAME}.ipynb") == path
    beside = here.parent / "beside"
    beside.mkdir()
    monkeypatch.chdir(beside)
    for asked in ("../lab01", "../lab1", "../1"):
        assert labs.locate(asked).resolve() == path
    assert labs.locate("1", here.parent) == path


def test_a_number_is_the_whole_number(here: Path) -> None:
    path = save(here / f"{NAME}.ipynb")
    tenth = here.parent / "lab10_more"
    tenth.mkdir()
    other = save(tenth / "lab10_more.ipynb")
    save(here.parent / "1 (copy).ipynb")
    for asked in ("1", "01", "lab1", "lab01"):
        assert labs.locate(asked) == path
    for asked in ("10", "lab10", "lab010"):
        assert labs.locate(asked) == other


def test_a_folder_with_the_lab_s_own_name_is_meant_before_a_copy_of_it(here: Path) -> None:
    path = save(here / f"{NAME}.ipynb")
    other = here.parent / f"{NAME} (1)"
    other.mkdir()
    save(other / f"{NAME}.ipynb")
    assert labs.locate("lab01") == path
    path.unlink()
    assert labs.locate("lab01") == other / f"{NAME}.ipynb"


@pytest.mark.parametrize(
    "asked",
    [
        *("/no/such/folder", "/no/such/lab*", "*", "**", "[l]ab01", "lab0?", "../[", ""),
        *(".", "..", "~", "~nobody/lab01", "lab01/none", "x" * 300, "x/" * 100, "no\nline"),
        *("0", "2", "lab2", "1" * 5000, "lab\uff11", "-1", "1.0"),
    ],
)
def test_what_is_no_lab_is_said_to_be_none(
    here: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    asked: str,
) -> None:
    """No traceback, and nothing that looks like a pattern is one."""
    save(here / f"{NAME}.ipynb")
    hidden = here.parent / ".ipynb_checkpoints"
    hidden.mkdir()
    save(hidden / f"{NAME}-checkpoint.ipynb")
    monkeypatch.setenv("HOME", str(here.parent))
    assert doctor.run(Path(asked)) == doctor.USAGE
    out = capsys.readouterr().out
    assert out.startswith("✗ no notebook ")
    assert "Run this in the course's folder" in out
    assert f"Labs of this course: {NAME}" in out


def test_of_several_notebooks_all_are_named(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(here / "a.ipynb")
    save(here / "b.ipynb")
    beside = here.parent / "beside"
    beside.mkdir()
    monkeypatch.chdir(beside)
    for asked in (here, f"../{NAME}", "../lab01"):
        with pytest.raises(labs.NoSuchLab) as refused:
            labs.locate(asked)
        several = f"any of ../{NAME}/a.ipynb, ../{NAME}/b.ipynb: name the file"
        assert str(refused.value) == f"{asked} could be {several}"


def test_every_released_lab_recognises_itself() -> None:
    for lab in labs.released():
        assert labs.recognise(lab.notebook, Path("x"), labs.released()) == lab
        assert sum(is_test(c) for c in lab.notebook.cells) > 0
        assert repaired(lab.notebook, lab) == lab.notebook
    assert isinstance(LAB, Lab)


def test_what_is_no_lab_is_said_in_chinese(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TINYRL_LANG", "zh")
    for name in ("lab07", "none.ipynb"):
        assert doctor.run(name) == doctor.USAGE
        assert not re.search(r"\b(called|folder|file|notebook)\b", capsys.readouterr().out)
