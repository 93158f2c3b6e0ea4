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
from tinyrl.course.words import Words

UTF16 = Words(
    "{} is UTF-16, a notebook is UTF-8: save it as UTF-8",
    "{} 是 UTF-16，而笔记本必须是 UTF-8：请另存为 UTF-8",
)
ABSENT = Words("{}: there is no such file", "{}：没有这个文件")
UNREAD = Words("{} cannot be read: {}", "无法读取 {}：{}")
EMPTY = Words(
    "{} is empty: was the disk full, or the download cut short?",
    "{} 是空的：磁盘满了，还是下载中断了？",
)
NO_JSON = Words("{}:{}: no notebook: {}", "{}:{}：不是笔记本：{}")
INVALID = Words("{} is no valid notebook: {}", "{} 不是有效的笔记本：{}")


class BadNotebook(Exception):
    """A file that cannot be read as a notebook: which, and why."""


def read(path: Path) -> NotebookNode:
    """The notebook in `path`, brought to version 4; raises `BadNotebook`."""
    try:
        data = path.read_bytes()
        if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            raise BadNotebook(str(UTF16).format(path))
        text = data.decode("utf-8-sig")
    except FileNotFoundError:
        raise BadNotebook(str(ABSENT).format(path)) from None
    except (OSError, UnicodeDecodeError) as error:
        raise BadNotebook(str(UNREAD).format(path, error)) from error
    if not text.strip():
        raise BadNotebook(str(EMPTY).format(path))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # missing ids; validity is checked below
            json.loads(text)  # its error knows the line
            nb = nbformat.reads(text, as_version=4)  # type: ignore[no-untyped-call]
            nbformat.validate(nb)
    except json.JSONDecodeError as error:
        raise BadNotebook(str(NO_JSON).format(path, error.lineno, error.msg)) from error
    except Exception as error:  # nbformat has many ways to say no
        reason = plain(str(error).strip().partition("\n")[0]) or type(error).__name__
        raise BadNotebook(str(INVALID).format(path, reason)) from error
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
