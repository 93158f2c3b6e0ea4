"""Words on a console: students' own, which may hold anything, and ours, on any console."""

from __future__ import annotations

import codecs
import io
import re
import sys

from rich.console import Console

# White space, control characters, and those that turn the direction of writing.
MOVES = re.compile(r"[\s\x00-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]+")
SIGNS = {"✓": "+", "✗": "x", "·": "-", "−": "-", "…": "..."}
READABLE = "tinyrl.readable"


def plain(text: object) -> str:
    """`text` on one line, with nothing that moves a cursor or cannot be encoded."""
    return MOVES.sub(" ", encodable(str(text))).strip()


def encodable(text: str) -> str:
    r"""`text` with lone surrogates as `\udXXX`, which is how JSON has them, too."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def console(**options: bool) -> Console:
    """A console on stdout that can print everything: what it lacks becomes + x - ?."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=READABLE)
    return Console(highlight=False, **options)  # type: ignore[arg-type]


def _readable(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    lacking = error.object[error.start : error.end]
    return "".join(SIGNS.get(sign, "?") for sign in lacking), error.end


codecs.register_error(READABLE, _readable)
