"""Lines of a terminal: text broken where its language may be, and nothing of it lost.

English breaks at blanks. Chinese breaks between any two signs but before a closing mark or
after an opening one. A word that is wider than the terminal is broken anywhere.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from rich.cells import cell_len, chop_cells
from rich.console import Console
from rich.text import Text

OPEN, CLOSE = r"“‘（《【(\[", "，。；：、！？…”’）》】"
HAN = r"\u3000-\u30ff\u4e00-\u9fff\uff00-\uffef“”‘’…"
# What may stand on a line of its own: a blank, or a Han sign or a word with its marks.
PIECE = re.compile(rf"\s+|[{OPEN}]*(?:[{HAN}]|[^\s{HAN}]+)[{CLOSE}]*|[{OPEN}{CLOSE}]+")


def lines(text: str, width: int) -> list[str]:
    """`text` in lines of at most `width` cells (at least 8); only blanks may be missing."""
    width, rows, row = max(width, 8), [], ""
    for piece in PIECE.findall(" ".join(text.split())):
        if row and cell_len((row + piece).rstrip()) > width:
            rows.append(row.rstrip())
            row = ""
        row += piece if row else piece.lstrip()
        if cell_len(row.rstrip()) > width:
            *full, row = chop_cells(row, width)
            rows += full
    return [*rows, row.rstrip()] if row.strip() or not rows else rows


def hanging(head: str, text: str, width: int, indent: int) -> Iterator[str]:
    """`head` and `text`: at column `indent`, or flowing behind a head that is longer."""
    blank = " " * indent
    if cell_len(head) > indent:
        first, *more = lines(head + text, width - indent)
        yield first
        yield from (blank + line for line in more)
        return
    for i, line in enumerate(lines(text, width - indent)):
        start = head + " " * (indent - cell_len(head)) if i == 0 else blank
        yield (start + line).rstrip()


def put(
    console: Console, head: str, text: str, indent: int, style: str = "", dim: bool = False
) -> None:
    """Print `text` behind `head`, which has a style of its own."""
    for i, line in enumerate(hanging(head, text, console.width, indent)):
        said = Text(line, "dim" if dim else "")
        if i == 0 and head:
            said.stylize(style, 0, len(head))
        console.print(said, soft_wrap=True, highlight=False)
