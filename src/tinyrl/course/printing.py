"""Words on a console: students' own, which may hold anything, and ours, on any console."""

from __future__ import annotations

import re

from rich.console import Console

from tinyrl.course.streams import make_readable

# White space, control characters, and those that turn the direction of writing.
MOVES = re.compile(r"[\s\x00-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]+")


def plain(text: object) -> str:
    """`text` on one line, with nothing that moves a cursor or cannot be encoded."""
    return MOVES.sub(" ", encodable(str(text))).strip()


def encodable(text: str) -> str:
    r"""`text` with lone surrogates as `\udXXX`, which is how JSON has them, too."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def console(**options: bool) -> Console:
    """A console on stdout that can print everything: what it lacks becomes + x - ?."""
    make_readable()
    return Console(highlight=False, **options)  # type: ignore[arg-type]
