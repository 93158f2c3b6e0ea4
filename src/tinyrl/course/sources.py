"""One notebook from its source, a text notebook (py:percent), always to the same bytes.

A cell's id is its nbgrader `grade_id`, or an `id="..."` in its header, or comes from its
own text: editing one cell leaves the ids of the others alone.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from pathlib import Path

import jupytext  # type: ignore[import-untyped]
import nbformat
from nbformat import NotebookNode

from tinyrl.course import notebooks
from tinyrl.course.citations import linked_markdown

KERNEL = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}


class BuildError(Exception):
    """A source that does not build: which one, and why."""


def parse(source: Path) -> NotebookNode:
    """Read a py:percent source as a notebook in its canonical form."""
    nb = jupytext.reads(source.read_text("utf-8"), fmt="py:percent")
    return canonical(nb, source.stem)


def canonical(nb: NotebookNode, name: str) -> NotebookNode:
    """`nb` without outputs and volatile metadata, with ids that its cells alone decide.

    Issues and papers that its text cites become links.
    """
    nb = notebooks.copy(nb)
    nb.nbformat, nb.nbformat_minor = 4, 5
    nb.metadata = {"kernelspec": KERNEL, "language_info": {"name": "python"}}
    seen: Counter[str] = Counter()
    for cell in nb.cells:
        if cell.cell_type != "code":
            cell.source = linked_markdown(cell.source)
        cell.id = _cell_id(cell, name, seen)
        cell.metadata.pop("lines_to_next_cell", None)  # jupytext's own bookkeeping
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    return nb


def _cell_id(cell: NotebookNode, name: str, seen: Counter[str]) -> str:
    """The cell's id; raises `BuildError` when a chosen one is used twice."""
    grade_id = cell.metadata.get("nbgrader", {}).get("grade_id")
    if chosen := cell.metadata.pop("id", grade_id):
        if seen[chosen]:
            raise BuildError(f"{name}: two cells are called {chosen!r}")
        seen[chosen] += 1
        return str(chosen)
    text = f"{name}\n{cell.cell_type}\n{cell.source}"
    digest = hashlib.sha256(text.encode()).hexdigest()[:10]
    seen[digest] += 1
    return digest if seen[digest] == 1 else f"{digest}-{seen[digest]}"


def stamped(nb: NotebookNode) -> NotebookNode:
    """With a digest of its cells, by which `write` knows a notebook that was worked on."""
    nb.metadata["tinyrl"] = {"cells": digest(nb)}
    return nb


def digest(nb: NotebookNode) -> str:
    text = "\0".join(f"{cell.cell_type}\0{cell.source}" for cell in nb.cells)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def dumps(nb: NotebookNode) -> str:
    """The notebook file's text; `BuildError` for a notebook that Jupyter would refuse."""
    try:
        nbformat.validate(nb)
    except nbformat.ValidationError as error:
        raise BuildError(f"not a valid notebook: {error}") from error
    return notebooks.dumps(nb)
