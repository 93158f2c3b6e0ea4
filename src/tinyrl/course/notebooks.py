"""Notebook files: reading one from anywhere, writing it always in the same bytes."""

from __future__ import annotations

import codecs
import copy as copying
import json
import warnings
from pathlib import Path

import nbformat
from nbformat import NotebookNode

from tinyrl.course.printing import encodable, plain


class BadNotebook(Exception):
    """A file that cannot be read as a notebook: which, and why."""


def read(path: Path) -> NotebookNode:
    """The notebook in `path`, brought to version 4; raises `BadNotebook`."""
    try:
        data = path.read_bytes()
        if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            raise BadNotebook(f"{path} is UTF-16, a notebook is UTF-8: save it as UTF-8")
        text = data.decode("utf-8-sig")
    except FileNotFoundError:
        raise BadNotebook(f"{path}: there is no such file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise BadNotebook(f"{path} cannot be read: {error}") from error
    if not text.strip():
        raise BadNotebook(f"{path} is empty: was the disk full, or the download cut short?")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # missing ids; validity is checked below
            json.loads(text)  # its error knows the line
            nb = nbformat.reads(text, as_version=4)  # type: ignore[no-untyped-call]
            nbformat.validate(nb)
    except json.JSONDecodeError as error:
        raise BadNotebook(f"{path}:{error.lineno}: no notebook: {error.msg}") from error
    except Exception as error:  # nbformat has many ways to say no
        reason = plain(str(error).strip().partition("\n")[0]) or type(error).__name__
        raise BadNotebook(f"{path} is no valid notebook: {reason}") from error
    return copy(nb)


def has_bom(path: Path) -> bool:
    """Whether the file begins with a byte order mark, which Jupyter and nbgrader refuse."""
    with path.open("rb") as file:
        return file.read(3) == codecs.BOM_UTF8


def version(path: Path) -> tuple[int, int]:
    """The file's own nbformat version, before `read` brings it up to date."""
    raw = json.loads(path.read_text("utf-8-sig"))
    return int(raw.get("nbformat") or 0), int(raw.get("nbformat_minor") or 0)


def dumps(nb: NotebookNode) -> str:
    """The file's text, the same on every machine, with one newline at its end.

    Half a character, which JSON can hold and UTF-8 cannot, stays what it is: an escape.
    """
    text: str = nbformat.writes(nb)  # type: ignore[no-untyped-call]
    return encodable(text.rstrip("\n")) + "\n"


def copy(nb: NotebookNode) -> NotebookNode:
    """A copy of a notebook or a cell, down to the last dictionary a `NotebookNode`."""
    made: NotebookNode = nbformat.from_dict(copying.deepcopy(nb))  # type: ignore[no-untyped-call]
    return made


def ordinary(cell: NotebookNode) -> NotebookNode:
    """The cell as one that nbgrader leaves alone, and that can be edited and deleted."""
    cell = copy(cell)
    for key in ("nbgrader", "deletable", "editable"):
        cell.metadata.pop(key, None)
    return cell


def grade_id(cell: NotebookNode) -> str | None:
    """The name by which nbgrader knows the cell, None where it has none."""
    found = cell.metadata.get("nbgrader")
    name = found.get("grade_id") if isinstance(found, dict) else None
    return name if isinstance(name, str) and name else None


def role(cell: NotebookNode, name: str) -> bool:
    """Whether the cell is an nbgrader "grade", "solution", "locked" or "task" cell."""
    found = cell.metadata.get("nbgrader")
    return isinstance(found, dict) and bool(found.get(name))


def is_test(cell: NotebookNode) -> bool:
    """A locked cell of tests, with points that a machine gives."""
    return cell.cell_type == "code" and role(cell, "grade") and not role(cell, "solution")
