"""The second pass: mark a class again where no answer can touch what marks it.

`python -m tinyrl.course.classroom.regrade LAB [--apply]`, at the root of a clone, after
`nbgrader autograde`. nbgrader runs tests inside the student's notebook, so a notebook can
patch them, and a kernel that dies takes all its marks along. Here the tests run in this
process and the answers in others (grading.py), on the lab's inputs and on fresh ones.
Printed, and written to classroom/regraded/: both marks and a line for each difference.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import io
import os
import re
import secrets
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from nbformat import NotebookNode
from rich.console import Console
from rich.markup import escape
from rich.progress import track
from rich.table import Table

from tinyrl.course import notebooks, saving
from tinyrl.course.checking import judging
from tinyrl.course.checking.forking import FORKS, Template
from tinyrl.course.checking.remote import GONE, NoProcess, Process
from tinyrl.course.classroom import labs
from tinyrl.course.classroom.findings import examine
from tinyrl.course.classroom.gradebook import CannotRegrade, Course
from tinyrl.course.classroom.grading import Mark, Marks, grade
from tinyrl.course.classroom.labs import Lab, NoSuchLab
from tinyrl.course.notebooks import BadNotebook
from tinyrl.course.printing import console, plain

FOLDER = Path("classroom/regraded")
# What a lab offers; anything else of tinyrl in an answer is for a person to read.
OFFERED = re.compile(r"from tinyrl\.course import [\w ,]+$", re.MULTILINE)


@dataclass(frozen=True)
class Result:
    """A student's marks by both ways, and what a teacher should know about the notebook."""

    student: str
    first: dict[str, float | None]  # nbgrader's, by test; None where it gave no mark
    second: tuple[Mark, ...]  # none where the notebook could not be read
    by_hand: float
    unread: int  # open questions that nobody has marked yet
    remarks: tuple[str, ...]

    def differences(self) -> Iterator[tuple[Mark, float | None, str]]:
        """Each test with both marks and, where they differ, the reason."""
        for mark in self.second:
            first = self.first.get(mark.test)
            if first == mark.points:
                yield mark, first, ""
            elif first is None:
                yield mark, first, f"no mark by nbgrader; {mark.said or 'right'}"
            elif first < mark.points:
                yield mark, first, "right, though it failed inside the notebook"
            else:
                yield mark, first, f"right only inside the notebook; outside: {mark.said}"

    @property
    def line(self) -> str:
        """All of it in one line for a teacher."""
        said = []
        pairs = [(mark, first) for mark, first, why in self.differences() if why]
        if none := [mark for mark, first in pairs if first is None]:
            all_of_them = (
                "at all" if len(none) == len(self.second) else f"for {_names(none)}"
            )
            said.append(f"nbgrader gave no mark {all_of_them}")
        if lost := [mark for mark, first in pairs if first is not None and mark.points]:
            said.append(f"failed inside the notebook, but right: {_names(lost)}")
        if false := [mark for mark, first in pairs if first and not mark.points]:
            said.append(
                "its code changes the tests, or leans on something else in the notebook: "
                f"right only there: {_names(false)}"
            )
        return "; ".join([*said, *self.remarks])


def _names(marks: list[Mark]) -> str:
    return ", ".join(dict.fromkeys(mark.exercise for mark in marks))


class Launcher:
    """Starts processes for answers: forks of a template, while there can be one.

    Else whole new ones, the next one always warming up.
    """

    def __init__(self) -> None:
        self.template = Template() if FORKS else None
        self.spare: Process | None = None

    def __call__(self) -> Process:
        if self.template is not None:
            with contextlib.suppress(NoProcess):
                return self.template()
            self.template.end()  # a student can stop it, too
            self.template = None
        taken, self.spare = self.spare or Process(), Process()
        return taken

    def end(self) -> None:
        for started in (self.template, self.spare):
            if started is not None:
                started.end()


def regrade(course: Course, seed: int, students: set[str] | None = None) -> list[Result]:
    """Mark everybody's answers again; `seed` makes the fresh inputs, the same for all."""
    os.environ["NBGRADER_EXECUTION"] = "autograde"  # a check then records no progress
    launch = Launcher()
    try:
        everybody = course.submissions()
        if absent := (students or set()) - everybody.keys():
            names = ", ".join(sorted(absent))
            raise CannotRegrade(f"no submission of {course.name} by {names}")
        chosen = [
            (name, path) for name, path in everybody.items() if name in (students or {name})
        ]
        told, out = f"marking {course.name}", console()
        with judging.keeping():
            return [
                _result(course, student, folder, launch, seed)
                for student, folder in track(chosen, told, console=out, transient=True)
            ]
    finally:
        launch.end()


def _result(
    course: Course, student: str, folder: Path, launch: Launcher, seed: int
) -> Result:
    marks: tuple[Mark, ...] = ()
    try:
        path = handed_in(folder, course.lab)
        nb = notebooks.read(path)
        made = grade(nb, course.lab, course.tests, launch=launch, seed=seed)
        marks = made.marks
        said = remarks(path, nb, course.lab, made)
    except NoProcess:
        raise
    except (BadNotebook, NoSuchLab) as error:
        said = (str(error),)
    except (
        Exception
    ) as error:  # however strange one notebook is, the others get their marks
        said = (f"mark it by hand: {type(error).__name__}: {error}",)
    tests = {notebooks.grade_id(c) for c in course.tests.cells if notebooks.is_test(c)}
    with course.grades(student) as grades:
        if absent := [mark.test for mark in marks if mark.test not in grades]:
            said += (f"autograde it again, the gradebook lacks {', '.join(absent)}",)
        first = {name: g.auto_score for name, g in grades.items() if name in tests}
        others = [g for name, g in grades.items() if name not in tests]
        by_hand = sum(g.score for g in others)
        unread = sum(bool(g.needs_manual_grade and g.max_score) for g in others)
    return Result(student, first, marks, by_hand, unread, said)


def handed_in(folder: Path, lab: Lab) -> Path:
    """The notebook that answers the lab, under whatever name it was handed in."""
    right = folder / f"{lab.name}.ipynb"
    if right.exists():
        return right
    for path in sorted(folder.glob("*.ipynb")):
        with contextlib.suppress(BadNotebook, NoSuchLab):
            labs.recognise(notebooks.read(path), path, [lab])
            return path
    raise NoSuchLab(f"no notebook of {lab.name} was handed in")


def remarks(path: Path, nb: NotebookNode, lab: Lab, marks: Marks) -> tuple[str, ...]:
    """What is unusual about a notebook, in words that a teacher can use."""
    found = [f for f in examine(path, nb, lab) if not f.note]
    said = [f"cell {f.cell}: {f.said}" if f.cell else str(f.said) for f in found]
    said += [f"a cell stops its process ({reason})" for reason in marks.ended.values()]
    if dead := [mark for mark in marks.marks if GONE in mark.said]:
        said.append(f"calling it ends its process, and nbgrader's kernel: {_names(dead)}")
    released = {cell.source.strip() for cell in lab.notebook.cells}
    for number, cell in enumerate(nb.cells, start=1):
        own = cell.cell_type == "code" and cell.source.strip() not in released
        if own and "tinyrl" in OFFERED.sub("", cell.source):
            said.append(f"cell {number} reaches into tinyrl: read it")
    return tuple(said)


def apply(course: Course, results: list[Result]) -> int:
    """Put the second pass's marks into the gradebook where they differ; returns how many.

    They become manual scores, which `nbgrader export` prefers to the others. Where somebody
    has given a score by hand, it stays.
    """
    changed = 0
    for result in results:
        with course.grades(result.student) as grades:
            for mark, first, _ in result.differences():
                grade = grades.get(mark.test)
                if grade is None:  # the student's line says so
                    continue
                if first != mark.points and grade.manual_score is None:
                    grade.manual_score, grade.needs_manual_grade = mark.points, False
                    changed += 1
    return changed


def write(folder: Path, results: list[Result]) -> tuple[Path, Path]:
    """Two tables for a spreadsheet: every mark, and everybody's total."""
    folder.mkdir(parents=True, exist_ok=True)
    marks, totals = folder / "marks.csv", folder / "totals.csv"
    rows: list[list[object]] = [
        ["student", "test", "nbgrader", "second_pass", "out_of", "difference"]
    ]
    for r in results:
        for mark, first, why in r.differences():
            given = "" if first is None else first
            rows.append([r.student, mark.test, given, mark.points, mark.out_of, why])
    saving.replace(marks, _csv(rows))
    header = ["student", "nbgrader", "second_pass", "out_of", "by_hand", "unread"]
    rows = [[*header, "what_to_know"]]
    rows += [[r.student, *_totals(r), r.by_hand, r.unread, r.line] for r in results]
    saving.replace(totals, _csv(rows))
    return marks, totals


def _csv(rows: list[list[object]]) -> str:
    text = io.StringIO(newline="")
    for row in rows:  # a cell is one line, whatever a student wrote into it
        csv.writer(text).writerow([plain(c) if isinstance(c, str) else c for c in row])
    return text.getvalue()


def _totals(result: Result) -> tuple[str, str, str]:
    """Both sums and the most there is, as text; a pass that gave no mark is empty."""
    given = [score for score in result.first.values() if score is not None]
    first = f"{sum(given):g}" if given else ""
    if not result.second:
        return first, "", ""
    second = sum(mark.points for mark in result.second)
    return first, f"{second:g}", f"{sum(mark.out_of for mark in result.second):g}"


def show(out: Console, results: list[Result]) -> None:
    table = Table(box=None, header_style="dim", padding=(0, 1))
    table.add_column("student", overflow="fold")
    for header in ("nbgrader", "second pass", "of", "by hand"):
        table.add_column(header, justify="right")
    table.add_column("what to know", overflow="fold")
    for r in results:
        first, second, out_of = _totals(r)
        colour = "green" if first == second else "red"
        by_hand = f"{r.unread} to read" if r.unread else f"{r.by_hand:g}"
        numbers = (first or "-", f"[{colour}]{second or '-'}[/]", out_of, by_hand)
        table.add_row(escape(plain(r.student)), *numbers, escape(plain(r.line)))
    out.print(table)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        "python -m tinyrl.course.classroom.regrade", description="Second pass."
    )
    parser.add_argument("lab")
    parser.add_argument("--student", action="append", help="only this one; can be repeated")
    parser.add_argument("--apply", action="store_true", help="correct the gradebook, too")
    parser.add_argument("--seed", type=int, help="of the fresh inputs, to repeat a pass")
    options = parser.parse_args(argv)
    from sqlalchemy.exc import SQLAlchemyError  # a gradebook that is locked, or damaged

    seed = secrets.randbelow(2**31) if options.seed is None else options.seed
    out = console()
    try:
        course = Course(Path.cwd(), options.lab)
        results = regrade(course, seed, set(options.student or ()) or None)
        show(out, results)
        files = write(course.root / FOLDER / course.name, results)
        changed = apply(course, results) if options.apply else 0
    except (CannotRegrade, NoProcess, OSError, SQLAlchemyError) as error:
        print(plain(error), file=sys.stderr)
        return 2
    written = ", ".join(str(file.relative_to(course.root)) for file in files)
    out.print(f"Fresh inputs: --seed {seed}. Written: {escape(written)}", soft_wrap=True)
    if options.apply:
        out.print(f"{changed} marks corrected in the gradebook.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
