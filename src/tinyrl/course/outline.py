"""The course map: every notebook, what it covers, and how far the learner has come."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from pathlib import Path

from tinyrl.course import records
from tinyrl.course.exercises import LABS
from tinyrl.course.predictions import tally
from tinyrl.course.syllabus import Lesson, find, load
from tinyrl.course.words import Words, language

HEADINGS = (
    Words(en="notebook", zh="笔记本"),
    Words(en="lab: exercises solved", zh="实验：已完成"),
    Words(en="predictions right", zh="猜对"),
)
LATER = Words(en="opens later", zh="尚未开放")


@dataclass(frozen=True)
class Row:
    """One line of the map, its cells as text, and where its notebook and lab lie."""

    cells: tuple[str, str, str]
    notebook: str | None  # a link from the folder of the notebooks; None if not there yet
    lab: str | None


class CourseMap(tuple[Row, ...]):
    """The map, which shows itself as a table in a notebook and as lines elsewhere."""

    def __str__(self) -> str:
        table = [tuple(map(str, HEADINGS)), *(row.cells for row in self)]
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        lines = (zip(cells, widths, strict=True) for cells in table)
        return "\n".join("  ".join(c.ljust(w) for c, w in line).rstrip() for line in lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        head = "".join(f"<th {_LEFT}>{escape(str(h))}</th>" for h in HEADINGS)
        body = "".join(map(_tr, self))
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


_LEFT = 'style="text-align:left"'


def course_map() -> CourseMap:
    """The map as of now. Raises SyllabusError where no syllabus is at hand."""
    path = find()
    return CourseMap(_row(lesson, path.parent) for lesson in load(path).lessons)


def _row(lesson: Lesson, root: Path) -> Row:
    number = lesson.notebook[:2]
    there = (root / "notebooks" / f"{lesson.notebook}.ipynb").is_file()
    lab = f"labs/{lesson.lab}/{lesson.lab}.ipynb" if lesson.lab else None
    lab_there = lab is not None and (root / lab).is_file()
    right, judged = tally(number)
    title = lesson.zh if language() == "zh" else lesson.title
    return Row(
        cells=(
            f"{number} {title}",
            _solved(lesson.lab) if there else str(LATER),
            f"{right} / {judged}" if judged else "",
        ),
        notebook=f"{lesson.notebook}.ipynb" if there else None,
        lab=f"../{lab}" if lab_there else None,
    )


def _solved(lab: str | None) -> str:
    exercises = LABS.get(lab or "", ())
    solved = sum(records.standing(exercise.name).solved for exercise in exercises)
    return f"{solved} / {len(exercises)}" if exercises else ""


def _tr(row: Row) -> str:
    links = (row.notebook, row.lab, None)
    cells = "".join(
        f"<td {_LEFT}>{_link(escape(cell), link)}</td>"
        for cell, link in zip(row.cells, links, strict=True)
    )
    faint = "" if row.notebook else ' style="opacity:.55"'
    return f"<tr{faint}>{cells}</tr>"


def _link(text: str, to: str | None) -> str:
    return f'<a href="{to}">{text}</a>' if to else text
