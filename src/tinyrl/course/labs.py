"""The labs as they were released, and the files in which people answer them.

`released/` is written by the builder. By it a notebook is recognised, whatever its file
is called, and a lab's tests are known, whatever was done to them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from nbformat import NotebookNode

from tinyrl.course.notebooks import grade_id, read

RELEASED = Path(__file__).parent / "released"
RECOGNISED = 0.2  # of a lab's cells have to be there


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
    """The notebook file that a path, or a lab's name or number, means."""
    here = here or Path.cwd()
    path = here / asked
    if path.is_file() or path.suffix == ".ipynb":
        return path
    name = str(asked)
    found = sorted(path.glob("*.ipynb")) if path.is_dir() else []
    for pattern in (f"labs/{name}*/*.ipynb", f"{name}*/*.ipynb", f"{name}*.ipynb"):
        found = found or sorted(here.glob(pattern))
    names = {lab.name for lab in released()}
    if exact := [p for p in found if p.stem in names]:
        return exact[0]
    if len(found) == 1:
        return found[0]
    if found:
        several = ", ".join(str(p.relative_to(here)) for p in found)
        raise NoSuchLab(f"{name} could be any of {several}: name the file")
    known = ", ".join(sorted(names)) or "none"
    raise NoSuchLab(f"no notebook called {name} here. Labs of this course: {known}")


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
        raise NoSuchLab(f"{path} is not one of this course's labs")
    return best
