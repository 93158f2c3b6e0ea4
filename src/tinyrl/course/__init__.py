"""What the notebooks need and the library does not; names load when they are first used.

A cell writes `from tinyrl.course import check, hint, solution, progress, claim, panel`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tinyrl.course.checking.checks import CheckFailed, NotAttempted, check
    from tinyrl.course.checking.coach import hint, progress, solution
    from tinyrl.course.claims import ClaimFailed, claim
    from tinyrl.course.interview.panel import drill
    from tinyrl.course.panels.mismatch import panel
    from tinyrl.course.words import set_language

# A file is never called like a function in it: importing the file would hide the function.
_HOME = {
    "check": "checking.checks",
    "CheckFailed": "checking.checks",
    "NotAttempted": "checking.checks",
    "hint": "checking.coach",
    "solution": "checking.coach",
    "progress": "checking.coach",
    "claim": "claims",
    "ClaimFailed": "claims",
    "panel": "panels.mismatch",
    "drill": "interview.panel",
    "set_language": "words",
}

__all__ = [
    "CheckFailed",
    "ClaimFailed",
    "NotAttempted",
    "check",
    "claim",
    "drill",
    "hint",
    "panel",
    "progress",
    "set_language",
    "solution",
]


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
