"""What a student wrote into one of the lab's own cells, kept in a cell of its own.

It loses nobody's work, and it gives nobody marks: what was written into a test becomes a
raw cell, which no kernel runs, so it can neither replace a check nor redefine an answer
behind a test. One key (Y) in Jupyter makes it code again. What was written into another
code cell of the lab stays code: later answers may lean on an import that was added there,
and as code it can do no more than any cell that a student adds. It stands above the lab's
cell, which then has the last word.
"""

from __future__ import annotations

from nbformat import NotebookNode

from tinyrl.course.notebooks import grade_id, is_test, ordinary

SIGN = "kept by `tinyrl lab doctor`"


def is_kept(cell: NotebookNode) -> bool:
    """Whether a cell is one of these; its text says so, for metadata can be lost again."""
    text = cell.source.strip()
    return SIGN in text.partition("\n")[0] or SIGN in text.rpartition("\n")[2]


def kept(cell: NotebookNode, original: NotebookNode) -> list[NotebookNode]:
    """The cell that keeps what `cell` has and the lab's `original` has not, if any."""
    lines = {line.strip() for line in original.source.splitlines()}
    if {line.strip() for line in cell.source.splitlines()} <= {*lines, ""}:
        return []
    mine, what = ordinary(cell), f"Your version of `{grade_id(original)}`, {SIGN}"
    if cell.cell_type == "markdown":
        mine.source = f"*{what}:*\n\n{cell.source}"
        return [mine]
    if is_test(original) and cell.cell_type == "code":
        mine.cell_type = "raw"
        del mine["outputs"], mine["execution_count"]
    head = f"# {what}{'; it is not run' if mine.cell_type == 'raw' else ''}"
    magic = cell.source.startswith("%%")  # nothing may stand above it
    mine.source = "\n".join([cell.source, head] if magic else [head, cell.source])
    return [mine]
