"""`tinyrl lab check`: mark a lab on the learner's own machine, with the tests they can see.

The answers run in a process of their own, from top to bottom, as they will when the lab is
graded: what only works because of the order in which cells were run by hand fails here.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rich.markup import escape
from rich.table import Table

from tinyrl.course import notebooks
from tinyrl.course.classroom import labs
from tinyrl.course.classroom.findings import examine
from tinyrl.course.classroom.labs import NoSuchLab
from tinyrl.course.notebooks import BadNotebook
from tinyrl.course.printing import console, plain
from tinyrl.course.words import Words

if TYPE_CHECKING:
    from tinyrl.course.classroom.grading import Mark

FULL, LESS, USAGE = 0, 1, 2
RUNNING = Words("running the answers in a fresh process", "正在新的进程里运行答案")
EXERCISE, POINTS = Words("exercise", "题目"), Words("points", "得分")
TOTAL = Words("{:g} of {:g} points", "{:g} / {:g} 分")
BY_HAND = Words("{:g} more points are given by a person.", "另有 {:g} 分由人评阅。")
PROBLEM = Words(
    "Handed in like this it can lose marks ({}). See: tinyrl lab doctor {}",
    "这样交上去可能丢分（{}）。请运行：tinyrl lab doctor {}",
)


def run(lab: str | Path) -> int:
    """Print each exercise's points; 0 for full marks, 1 for less, 2 for none to mark."""
    out = console()
    try:
        path = labs.locate(lab)
        nb = notebooks.read(path)
        original = labs.recognise(nb, path, labs.released())
    except (NoSuchLab, BadNotebook) as error:
        out.print(f"[red]✗[/] {escape(plain(error))}", soft_wrap=True)
        return USAGE
    out.print(f"[bold]{escape(plain(path))}[/]", soft_wrap=True)
    from tinyrl.course.checking.remote import NoProcess
    from tinyrl.course.classroom.grading import (
        grade,  # with torch: a second that no typo waits for
    )

    try:
        with out.status(str(RUNNING)):
            marks = grade(nb, original, original.notebook)
    except NoProcess as error:
        out.print(f"[red]✗[/] {escape(plain(error))}", soft_wrap=True)
        return USAGE
    table = Table("", box=None, pad_edge=False, header_style="dim")
    table.add_column(str(EXERCISE), overflow="fold")  # on a narrow terminal nothing is cut
    table.add_column(str(POINTS), justify="right", no_wrap=True)
    table.add_column("", overflow="fold")
    for exercise in dict.fromkeys(mark.exercise for mark in marks.marks):
        table.add_row(*_row(exercise, [m for m in marks.marks if m.exercise == exercise]))
    out.print(table)
    out.print(f"[bold]{str(TOTAL).format(marks.points, marks.out_of)}[/]")
    if by_hand := _by_hand(original):
        out.print(f"[dim]{str(BY_HAND).format(by_hand)}[/]")
    problems = [f.said for f in examine(path, nb, original) if not f.note]
    if problems:
        said = plain(str(PROBLEM).format(problems[0], lab))
        out.print(f"[red]✗[/] {escape(said)}", soft_wrap=True)
    return FULL if marks.points == marks.out_of else LESS


def _row(exercise: str, tests: list[Mark]) -> tuple[str, str, str, str]:
    points, out_of = sum(t.points for t in tests), sum(t.out_of for t in tests)
    sign = "[green]✓[/]" if points == out_of else "[red]✗[/]"
    said = next((t.said for t in tests if t.said), "")
    return sign, escape(exercise), f"{points:g}/{out_of:g}", escape(plain(said))


def _by_hand(lab: labs.Lab) -> float:
    """The points of the open questions."""
    cells = [c for _, c in lab.named() if not notebooks.is_test(c)]
    return sum(float(c.metadata.nbgrader.get("points", 0)) for c in cells)
