"""`tinyrl lab check`: mark a lab on the learner's own machine, with the tests they can see.

The answers run in a process of their own, from top to bottom, as they will when the lab is
graded: what only works because of the order in which cells were run by hand fails here.
"""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tinyrl.course import doctor, labs, notebooks
from tinyrl.course.grading import Mark, grade
from tinyrl.course.labs import NoSuchLab
from tinyrl.course.notebooks import BadNotebook
from tinyrl.course.remote import NoProcess

FULL, LESS, USAGE = 0, 1, 2


def run(lab: str | Path) -> int:
    """Print each exercise's points; 0 for full marks, 1 for less, 2 for none to mark."""
    console = Console(highlight=False)
    try:
        path = labs.locate(lab)
        nb = notebooks.read(path)
        original = labs.recognise(nb, path, labs.released())
    except (NoSuchLab, BadNotebook) as error:
        console.print(f"[red]✗[/] {escape(str(error))}", soft_wrap=True)
        return USAGE
    console.print(f"[bold]{escape(str(path))}[/]", soft_wrap=True)
    try:
        with console.status("running the answers in a fresh process"):
            marks = grade(nb, original, original.notebook)
    except NoProcess as error:
        console.print(f"[red]✗[/] {escape(str(error))}", soft_wrap=True)
        return USAGE
    table = Table("", "exercise", box=None, pad_edge=False, header_style="dim")
    table.add_column("points", justify="right")
    table.add_column("")
    for exercise in dict.fromkeys(mark.exercise for mark in marks.marks):
        table.add_row(*_row(exercise, [m for m in marks.marks if m.exercise == exercise]))
    console.print(table)
    console.print(f"[bold]{marks.points:g} of {marks.out_of:g} points[/]")
    if by_hand := _by_hand(original):
        console.print(f"[dim]{by_hand:g} more points are given by a person.[/]")
    problems = [f for f in doctor.examine(path, nb, original) if not f.note]
    if problems:
        console.print(
            f"[red]✗[/] Handed in like this it can lose marks ({problems[0].said}). "
            f"See: tinyrl lab doctor {escape(str(lab))}",
            soft_wrap=True,
        )
    return FULL if marks.points == marks.out_of else LESS


def _row(exercise: str, tests: list[Mark]) -> tuple[str, str, str, str]:
    points, out_of = sum(t.points for t in tests), sum(t.out_of for t in tests)
    sign = "[green]✓[/]" if points == out_of else "[red]✗[/]"
    said = next((t.said for t in tests if t.said), "")
    return sign, escape(exercise), f"{points:g}/{out_of:g}", escape(said)


def _by_hand(lab: labs.Lab) -> float:
    """The points of the open questions."""
    cells = [c for _, c in lab.named() if not notebooks.is_test(c)]
    return sum(float(c.metadata.nbgrader.get("points", 0)) for c in cells)
