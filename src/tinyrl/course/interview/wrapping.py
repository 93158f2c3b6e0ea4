"""Chinese lines broken where Chinese may be broken: rich breaks only at blanks."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rich.cells import cell_len

from tinyrl.wrapping import PIECE, lines

HAN = re.compile(r"[\u3000-\u303f\u4e00-\u9fff\uff00-\uffef]")
PREFIX = re.compile(r"(?:\s*(?:- |\d+\. |> |#+ ))?")


def broken(markdown: str, width: int) -> str:
    """Markdown whose Chinese lines are at most `width` cells wide."""
    rows = markdown.splitlines()
    return "\n".join(_broken(x, width) if HAN.search(x) else x for x in rows)


def fitted(text: str, width: int) -> Iterator[str]:
    """Plain text by lines: Chinese ones that are too wide in several."""
    for line in text.split("\n"):
        wide = HAN.search(line) and cell_len(line) > width
        yield from lines(line, width) if wide else [line]


def _broken(line: str, width: int) -> str:
    prefix = PREFIX.match(line)
    assert prefix is not None
    head = prefix[0]
    hang = head if head.strip() == ">" else " " * len(head)
    rows, row = [], ""
    for piece in PIECE.findall(line[len(head) :]):
        if row and cell_len(row + piece.rstrip()) > width:
            rows.append(row.rstrip())
            row = piece.lstrip()
        else:
            row += piece
    return head + f"  \n{hang}".join([*rows, row])
