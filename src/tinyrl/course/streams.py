"""What this process prints can be printed anywhere; importing it costs `--help` nothing."""

from __future__ import annotations

import codecs
import io
import sys

SIGNS = {"✓": "+", "✗": "x", "·": "-", "−": "-", "…": "..."}
READABLE = "tinyrl.readable"


def make_readable() -> None:
    """From now on stdout and stderr show + x - or ? for what their encoding lacks."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=READABLE)


def _readable(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    lacking = error.object[error.start : error.end]
    return "".join(SIGNS.get(sign, "?") for sign in lacking), error.end


codecs.register_error(READABLE, _readable)
