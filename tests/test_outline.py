"""The course map: what is there is linked, what was solved is counted."""

from __future__ import annotations

from pathlib import Path

import pytest

from tinyrl.course import records
from tinyrl.course.exercises import LABS
from tinyrl.course.outline import CourseMap, Row, course_map
from tinyrl.course.records import Record

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(autouse=True)
def learner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TINYRL_HOME", str(tmp_path))
    monkeypatch.setenv("TINYRL_LANG", "en")
    monkeypatch.delenv("NBGRADER_EXECUTION", raising=False)


@pytest.fixture
def clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A clone in which notebooks 00 and 01 and lab 01 are there; we are in notebooks/."""
    root = tmp_path / "clone"
    lab = root / "labs/lab01_two_policies"
    for folder in (root / "notebooks", lab):
        folder.mkdir(parents=True)
    (root / "syllabus.yml").write_text((ROOT / "syllabus.yml").read_text("utf-8"), "utf-8")
    for name in ("00_start_here", "01_two_policies"):
        (root / f"notebooks/{name}.ipynb").touch()
    (lab / "lab01_two_policies.ipynb").touch()
    monkeypatch.chdir(root / "notebooks")
    return root


def row(number: str) -> Row:
    return next(r for r in course_map() if r.cells[0].startswith(number))


def test_thirteen_notebooks_in_order(clone: Path) -> None:
    assert [r.cells[0][:2] for r in course_map()] == [f"{n:02d}" for n in range(13)]


def test_links_lead_to_files_that_exist(clone: Path) -> None:
    for r in course_map():
        for link in filter(None, (r.notebook, r.lab)):
            assert Path(link).is_file()
    assert row("01").notebook
    assert row("01").lab
    assert row("02").notebook is None
    assert row("02").cells[1] == "opens later"


def test_solved_exercises_are_counted(clone: Path) -> None:
    exercises = LABS["lab01_two_policies"]
    assert row("01").cells[1] == f"0 / {len(exercises)}"
    for event in ("wrong", "right", "right"):
        records.remember(Record(event, exercises[0].name))
    records.remember(Record("wrong", exercises[1].name))
    assert row("01").cells[1] == f"1 / {len(exercises)}"


def test_judged_predictions_are_counted(clone: Path) -> None:
    assert row("00").cells[2] == ""
    records.remember(Record("right", "00.a"))
    records.remember(Record("wrong", "00.b"))
    assert row("00").cells[2] == "1 / 2"
    assert row("01").cells[2] == ""


def test_shown_as_table_and_as_lines(clone: Path) -> None:
    shown = course_map()._repr_html_()
    assert '<a href="01_two_policies.ipynb">01 Two policies</a>' in shown
    assert 'href="../labs/lab01_two_policies/lab01_two_policies.ipynb"' in shown
    assert shown.count("<tr") == 14
    assert len(str(course_map()).splitlines()) == 14
    assert "<b>" not in CourseMap([Row(("<b>", "", ""), None, None)])._repr_html_()


def test_chinese(clone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TINYRL_LANG", "zh")
    assert row("01").cells[0] == "01 两个策略"
    assert "尚未开放" in str(course_map())
