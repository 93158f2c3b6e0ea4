"""The second pass goes on, whatever one student or this machine does."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from sqlalchemy.exc import OperationalError

from submissions import LAB, NAME, good, save
from tinyrl.course.checking import judging
from tinyrl.course.checking.remote import NoProcess, Process
from tinyrl.course.classroom import grading, regrade
from tinyrl.course.classroom.gradebook import CannotRegrade, Course
from tinyrl.course.classroom.grading import Mark, Marks
from tinyrl.course.exercises import find
from tinyrl.course.notebooks import grade_id, is_test

TESTS = [grade_id(c) or "" for c in LAB.notebook.cells if is_test(c)]


def score() -> SimpleNamespace:
    return SimpleNamespace(
        auto_score=0.0, manual_score=None, score=0.0, needs_manual_grade=False, max_score=1
    )


class Class(Course):
    """A course whose gradebook is a dictionary."""

    def __init__(self, root: Path) -> None:
        self.root, self.name, self.lab, self.tests = root, NAME, LAB, LAB.notebook
        self.book = {test: score() for test in TESTS}

    def _path(self, step: str, student: str = ".") -> Path:
        return self.root / step / student / self.name

    @contextlib.contextmanager
    def grades(self, student: str) -> Iterator[dict[str, Any]]:
        yield self.book


@pytest.fixture
def course(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Class:
    """Two students, every answer of whom is right; no process runs."""
    for name in ("ann", "bob"):
        folder = tmp_path / "submitted" / name / NAME
        folder.mkdir(parents=True)
        save(folder, good())
    full = Marks(tuple(Mark(test, test, 1.0, 1.0) for test in TESTS), {})
    monkeypatch.setattr(regrade, "grade", lambda *_, **__: full)
    monkeypatch.setattr(regrade, "Launcher", lambda: SimpleNamespace(end=lambda: None))
    monkeypatch.setenv("NBGRADER_EXECUTION", "")  # and back, whatever a pass sets
    return Class(tmp_path)


def test_marks_are_applied(course: Class) -> None:
    results = regrade.regrade(course, 0)
    assert [r.student for r in results] == ["ann", "bob"]
    assert regrade.apply(course, results[:1]) == len(TESTS)
    assert {g.manual_score for g in course.book.values()} == {1.0}


def test_a_gradebook_that_lacks_a_test_costs_only_that_mark(course: Class) -> None:
    del course.book["ratio_test"]
    results = regrade.regrade(course, 0, {"ann"})
    assert "autograde it again, the gradebook lacks ratio_test" in results[0].line
    assert regrade.apply(course, results) == len(TESTS) - 1


def test_marks_stay_where_a_remark_fails(
    course: Class, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise RecursionError("too deep")

    monkeypatch.setattr(regrade, "remarks", fail)
    results = regrade.regrade(course, 0)
    assert len(results[0].second) == len(TESTS)
    assert "mark it by hand: RecursionError: too deep" in results[0].line


def test_a_student_who_is_not_there_is_said_and_no_table_written(course: Class) -> None:
    with pytest.raises(CannotRegrade, match=f"no submission of {NAME} by carl"):
        regrade.regrade(course, 0, {"ann", "carl"})


def test_a_name_that_no_gradebook_can_hold_is_said_first(course: Class) -> None:
    (course.root / "submitted" / "\udcff" / NAME).mkdir(parents=True)
    with pytest.raises(CannotRegrade, match=r"the name of the folder '\\udcff'"):
        regrade.regrade(course, 0)


@pytest.mark.parametrize(
    "error",
    [
        CannotRegrade("no gradebook"),
        NoProcess("no memory"),
        PermissionError(13, "Permission denied", "marks.csv"),
        OperationalError("SELECT", {}, Exception("database is locked")),
    ],
    ids=lambda error: type(error).__name__,
)
def test_what_stops_a_pass_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: Exception
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(regrade, "Course", fail)
    assert regrade.main([NAME]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_a_machine_that_starts_no_process_is_not_the_student_s_fault(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr(subprocess, "Popen", fail)
    with pytest.raises(NoProcess, match="Cannot allocate memory"):
        Process()


def test_a_class_asks_for_a_right_answer_once_and_a_learner_each_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[Any] = []
    truth = judging.truth
    monkeypatch.setattr(judging, "truth", lambda *a: asked.append(a) or truth(*a))
    exercise = find("token_delta")

    def told(seed: int) -> str:
        return judging.judge(exercise, lambda *_: torch.zeros(7), seed).text.en

    said = told(1)
    assert len(asked) == 1
    with judging.keeping():
        assert told(1) == told(1) == said
        assert len(asked) == 2
        told(2)
        assert len(asked) == 3, "another seed has other inputs"
    told(1)
    assert len(asked) == 4, "in a notebook torch may be another by now"


def test_what_an_edited_test_held_runs_nowhere() -> None:
    """Only the answers go to the process: an edit that is kept is no code."""
    nb = good()
    hack = "import tinyrl.course\ntinyrl.course.check = _check = lambda *a, **k: None"
    next(c for c in nb.cells if grade_id(c) == "ratio_test").source = hack
    asked: list[str] = []

    def launch() -> Any:
        def ask(request: dict[str, Any], seconds: float) -> tuple[dict[str, Any], int]:
            asked.append(str(request.get("source", "")))
            return {"kind": "missing"}, -1

        return SimpleNamespace(ask=ask, end=lambda: None)

    marks = grading.grade(nb, LAB, LAB.notebook, launch=launch)
    assert marks.points == 0
    assert any("def ratio(" in source for source in asked)
    assert not any(line in source for source in asked for line in hack.splitlines())
