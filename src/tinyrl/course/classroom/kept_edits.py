"""What a student wrote into one of the lab's own cells, kept in a cell of its own.

It loses nobody's work, and it gives nobody marks: what was written into a test becomes a
raw cell, which no kernel runs, so it can neither replace a check nor redefine an answer
behind a test. One key (Y) in Jupyter makes it code again. What was written into another
code cell of the lab stays code: later answers may lean on an import that was added there,
and as code it can do no more than any cell that a student adds. What was a text stays one.
It stands above the lab's cell, which then has the last word.
"""

from __future__ import annotations

import re

from nbformat import NotebookNode

from tinyrl.course.notebooks import grade_id, is_test, ordinary

SIGN = "Your version of `{}`, kept by `tinyrl lab doctor`"
NOT_RUN = "; it is not run"
OURS = SIGN.format(r"[\w-]+")
LINE = re.compile(rf"# {OURS}({NOT_RUN})?|\*{OURS}:\*")


def is_kept(cell: NotebookNode) -> bool:
    """Whether a cell is one of these; its text says so, for metadata can be lost again."""
    lines = cell.source.strip().split("\n")
    line = lines[-1 if lines[0].startswith("%%") else 0]
    return LINE.fullmatch(line.strip()) is not None


def kept(cell: NotebookNode, original: NotebookNode) -> list[NotebookNode]:
    """The cell that keeps what `cell` has and the lab's `original` has not, if any."""
    lines = {line.strip() for line in original.source.splitlines()}
    if {line.strip() for line in cell.source.splitlines()} <= {*lines, ""}:
        return []
    mine, sign = ordinary(cell), SIGN.format(grade_id(original))
    if cell.cell_type == "code" and (is_test(original) or original.cell_type != "code"):
        mine.cell_type = "raw" if is_test(original) else "markdown"
        del mine["outputs"], mine["execution_count"]
    if mine.cell_type == "markdown":
        mine.source = f"*{sign}:*\n\n{cell.source}"
        return [mine]
    head = f"# {sign}{NOT_RUN if mine.cell_type == 'raw' else ''}"
    magic = cell.source.lstrip().startswith("%%")  # nothing may stand above it
    mine.source = "\n".join([cell.source, head] if magic else [head, cell.source])
    return [mine]
