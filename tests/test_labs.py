"""Finding a lab by what a learner calls it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tinyrl.course import labs, notebooks
from tinyrl.course.labs import Lab
from tinyrl.course.notebooks import is_test
from tinyrl.course.repair import repaired

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
    save(here / "copy.ipynb")
    assert labs.locate("lab01") == path, "the exact name wins"
    path.rename(here / "other.ipynb")
    with pytest.raises(labs.NoSuchLab, match="could be any of"):
        labs.locate("lab01")


def test_every_released_lab_recognises_itself() -> None:
    for lab in labs.released():
        assert labs.recognise(lab.notebook, Path("x"), labs.released()) == lab
        assert sum(is_test(c) for c in lab.notebook.cells) > 0
        assert repaired(lab.notebook, lab) == lab.notebook
    assert isinstance(LAB, Lab)
