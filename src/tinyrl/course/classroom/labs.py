"""The labs as they were released, and the files in which people answer them.

`released/` is written by the builder. By it a notebook is recognised, whatever its file
is called, and a lab's tests are known, whatever was done to them.
"""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from nbformat import NotebookNode

from tinyrl.course.notebooks import grade_id, read
from tinyrl.course.words import Words

RELEASED = Path(__file__).parent / "released"
RECOGNISED = 0.2  # of a lab's cells have to be there
NUMBER = re.compile(r"(?:lab)?0*([0-9]+)")  # as people write it: 1, 01, lab1

SEVERAL = Words(
    "{} could be any of {}: name the file", "{} 可以指 {} 中的任何一个：请写出文件名"
)
ABSENT = Words("no notebook called {} here", "这里没有叫 {} 的笔记本")
EMPTY = Words("no notebook in {}", "{} 里没有笔记本")
WHERE = Words(
    "{}. Run this in the course's folder, or name the file. Labs of this course: {}",
    "{}。请在课程的文件夹里运行，或写出文件名。本课程的实验：{}",
)
STRANGE = Words("{} is not one of this course's labs", "{} 不是本课程的实验")


class NoSuchLab(Exception):
    """Nothing to work on: what was looked for, and what there is."""


@dataclass(frozen=True)
class Lab:
    """A lab as it was released, under the name of its file."""

    name: str
    notebook: NotebookNode

    def named(self) -> Iterator[tuple[str, NotebookNode]]:
        """The cells that nbgrader knows, by name."""
        for cell in self.notebook.cells:
            if name := grade_id(cell):
                yield name, cell


def released(folder: Path = RELEASED) -> list[Lab]:
    return [Lab(path.stem, read(path)) for path in sorted(folder.glob("*.ipynb"))]


def locate(asked: str | Path, here: Path | None = None) -> Path:
    """The notebook file that a path, or a lab's name or number, means.

    Raises `NoSuchLab` where there is none, or more than one that it could be.
    """
    here, name = here or Path.cwd(), os.path.expanduser(asked)
    path = here / name
    # os.path answers False where Path raises: no permission, a name that is too long
    if os.path.isfile(path) or (path.suffix == ".ipynb" and not os.path.isdir(path)):
        return path
    found = sorted(path.glob("*.ipynb")) if os.path.isdir(path) else []
    found = found or _like(name, here)
    known = {lab.name for lab in released()}
    exact = [p for p in found if p.stem in known]
    for some in ([p for p in exact if p.parent.name == p.stem], exact, found):
        if len(some) == 1:
            return some[0]
    if found:
        several = ", ".join(os.path.relpath(p, here) for p in exact or found)
        raise NoSuchLab(str(SEVERAL).format(asked, several))
    absent = str(EMPTY if os.path.isdir(path) else ABSENT).format(asked)
    raise NoSuchLab(str(WHERE).format(absent, ", ".join(sorted(known))))


def _like(name: str, here: Path) -> list[Path]:
    """The notebooks whose file or folder begins like `name`, from the likeliest place."""
    path = Path(name)
    if path.is_absolute() or path.name in ("", ".."):
        return []
    number = NUMBER.fullmatch(path.name)
    start = glob.escape(str(path.with_name(f"lab{number[1]:0>2}") if number else name))
    for pattern in (f"labs/{start}*/*.ipynb", f"{start}*/*.ipynb", f"{start}*.ipynb"):
        if found := sorted(here.glob(pattern)):
            return found
    return []


def recognise(nb: NotebookNode, path: Path, labs: list[Lab]) -> Lab:
    """The lab that a notebook answers; raises `NoSuchLab` where it is none of them."""

    def shared(lab: Lab) -> float:
        texts = {cell.source.strip() for cell in nb.cells}
        ids = {grade_id(cell) for cell in nb.cells} - {None}
        cells = [c for c in lab.notebook.cells if c.source.strip()]
        same = sum(c.source.strip() in texts or grade_id(c) in ids for c in cells)
        return same / max(1, len(cells))

    best = max(labs, key=shared, default=None)
    if best is None or shared(best) < RECOGNISED:
        raise NoSuchLab(str(STRANGE).format(path))
    return best
