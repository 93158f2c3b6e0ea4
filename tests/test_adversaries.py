"""A class of adversaries through real nbgrader, and through the second pass.

No false mark in either direction and none lost: where nbgrader by itself gives none (a
kernel that dies, a copied cell) or a false one (a patched module), the second pass gives
the right one and tells the teacher why. The whole class is graded once, in two halves at
the same time, by the `nbgrader` command and the repository's own settings.
"""

from __future__ import annotations

import csv
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import nbformat
import pytest
from nbformat import NotebookNode

import adversaries.edits  # noqa: F401 (they join the class)
from adversaries.students import ALL, CLASS, Student
from tinyrl.course import notebooks
from tinyrl.course.authoring import build
from tinyrl.course.classroom import regrade

ROOT = Path(__file__).parents[1]
LAB = "lab01_two_policies"
SEED = 20260101  # of the second pass's fresh inputs
CANARY = "TINYRL-" + "CANARY-"

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def nbgrader(course: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run nbgrader as a teacher does, from an environment that is not activated."""
    bare = os.pathsep.join(p for p in os.defpath.split(os.pathsep) if p)
    environment = {**os.environ, "PATH": bare, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "nbgrader", *arguments]
    return subprocess.run(
        command, cwd=course, env=environment, capture_output=True, text=True, timeout=600
    )


def new_course(folder: Path, made: dict[Path, str]) -> Path:
    """The root of a course with this repository's lab in it, and a gradebook."""
    shutil.copy(ROOT / "nbgrader_config.py", folder)
    source = Path("solutions", LAB, f"{LAB}.ipynb")
    (folder / source).parent.mkdir(parents=True)
    (folder / source).write_text(made[source], "utf-8")
    done = nbgrader(folder, "generate_assignment", LAB)
    assert done.returncode == 0, done.stderr
    return folder


def own_answers(solution: NotebookNode) -> dict[str, str]:
    """The course's answers to the exercises, without the lines that mark them."""
    marks = ("### BEGIN SOLUTION", "### END SOLUTION", CANARY)
    cells = [
        c for c in solution.cells if c.cell_type == "code" and notebooks.role(c, "solution")
    ]
    kept = {c.metadata.nbgrader.grade_id: c.source.splitlines() for c in cells}
    return {
        name: "\n".join(line for line in lines if not any(mark in line for mark in marks))
        for name, lines in kept.items()
    }


@dataclass
class Graded:
    """What both passes gave one student."""

    nbgrader: dict[str, float | None]  # by test; None is no mark at all
    second: dict[str, float]
    out_of: dict[str, float]
    line: str  # for the teacher
    feedback: str  # HTML, empty where nbgrader could make none
    exported: float  # nbgrader's total after the second pass was applied

    def deserved(self, student: Student) -> dict[str, float]:
        """The points of each test."""
        wrong = {
            t for t in self.out_of if student.wrong == ALL or exercise(t) in student.wrong
        }
        return {t: 0.0 if t in wrong else points for t, points in self.out_of.items()}


def exercise(test: str) -> str:
    return test.removesuffix("_test").removesuffix("_hidden")


def grade_some(
    course: Path, made: dict[Path, str], students: dict[str, Student]
) -> dict[str, Graded]:
    """The whole way, as docs/classroom.md tells it, for some of the class."""
    new_course(course, made)
    released = notebooks.read(course / "labs" / LAB / f"{LAB}.ipynb")
    answers = own_answers(nbformat.reads(made[Path("solutions", LAB, f"{LAB}.ipynb")], 4))
    for name, student in students.items():
        path = course / "classroom/submitted" / name / LAB / student.file
        path.parent.mkdir(parents=True)
        nb = student.make(notebooks.copy(released), answers)
        text = notebooks.dumps(nb)
        half = student.nbgrader_fails == "unreadable"
        path.write_text(text[: len(text) // 2] if half else text, student.encoding)
    nbgrader(course, "autograde", LAB, "--ExecutePreprocessor.timeout=10")  # some must fail
    done = nbgrader(course, "generate_feedback", LAB)
    assert done.returncode == 0, done.stderr
    second = [
        sys.executable,
        "-m",
        "tinyrl.course.classroom.regrade",
        LAB,
        "--apply",
        f"--seed={SEED}",
    ]
    subprocess.run(second, cwd=course, check=True, capture_output=True, timeout=600)
    assert nbgrader(course, "export").returncode == 0
    return collect(course)


def collect(course: Path) -> dict[str, Graded]:
    folder = course / regrade.FOLDER / LAB
    marks, totals = rows(folder / "marks.csv"), rows(folder / "totals.csv")
    pages = (course / "classroom/feedback").rglob("*.html")
    feedback = {page.parents[1].name: page.read_text("utf-8") for page in pages}
    exported = {
        row["student_id"]: float(row["score"])
        for row in rows(course / "classroom" / "grades.csv")
    }
    graded = {}
    for total in totals:
        name = total["student"]
        own = [row for row in marks if row["student"] == name]
        graded[name] = Graded(
            {
                row["test"]: float(row["nbgrader"]) if row["nbgrader"] else None
                for row in own
            },
            {row["test"]: float(row["second_pass"]) for row in own},
            {row["test"]: float(row["out_of"]) for row in own},
            total["what_to_know"],
            feedback.get(name, ""),
            exported[name],
        )
    return graded


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def graded(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Graded]:
    made = build.build(ROOT)
    halves = [dict(list(CLASS.items())[i::2]) for i in range(2)]
    folders = [tmp_path_factory.mktemp(f"course{i}") for i in range(2)]
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(grade_some, folders, [made, made], halves)
    return first | second


everybody = pytest.mark.parametrize("name", CLASS)


def test_the_class_holds_every_adversary_that_was_asked_for() -> None:
    asked = "good blank partial hard_coded duplicate_cell endless_loop os_exit always_equal"
    asked += " shadowed_builtins redefined_check patched_module system_exit edited_test"
    asked += " stripped_metadata renamed_file asks_input calls_library"
    assert set(asked.split()) <= CLASS.keys()


@everybody
def test_the_second_pass_gives_everybody_the_right_marks(
    graded: dict[str, Graded], name: str
) -> None:
    mine = graded[name]
    assert len(mine.out_of) == (0 if CLASS[name].nbgrader_fails == "unreadable" else 22)
    assert mine.second == mine.deserved(CLASS[name]), mine.line


@everybody
def test_nbgrader_is_right_wherever_it_can_be(graded: dict[str, Graded], name: str) -> None:
    mine, fails = graded[name], CLASS[name].nbgrader_fails
    if fails in ("no mark", "unreadable"):
        assert set(mine.nbgrader.values()) <= {None}
    elif fails == "fooled":
        assert mine.nbgrader == mine.out_of
    else:
        assert mine.nbgrader == mine.deserved(CLASS[name]), mine.line


@everybody
def test_the_teacher_reads_a_line_where_there_is_something_to_know(
    graded: dict[str, Graded], name: str
) -> None:
    mine, student = graded[name], CLASS[name]
    assert student.said in mine.line
    assert ("nbgrader gave no mark at all" in mine.line) == (
        student.nbgrader_fails == "no mark"
    )
    assert student.said or not mine.line


@everybody
def test_the_exported_grades_are_those_of_the_second_pass(
    graded: dict[str, Graded], name: str
) -> None:
    assert graded[name].exported == sum(graded[name].second.values())


@everybody
def test_feedback_shows_no_hidden_test(graded: dict[str, Graded], name: str) -> None:
    page = graded[name].feedback
    if CLASS[name].nbgrader_fails in ("no mark", "unreadable"):
        assert not page
        return
    assert "token_delta" in page
    assert CANARY not in page
    assert "seed=4" not in page  # those of the hidden tests
