"""What the notebooks need and the library does not; names load when they are first used.

A cell writes `from tinyrl.course import check, hint, solution, progress, claim, panel`.

A learner meets, by what is on the page:

- a question before an experiment, and its answer: predictions
- a measured number of the prose: claims
- a picture with controls: panels (mismatch_panel, exposure_panel, cap_panel, runs_panel,
  bit_explorer), in the frame of panels/frame; live puts a widget into the notebook
- an exercise: exercises holds one file each, of the kind exercise; checking judges answers
  (checks, judging), finds the mistake (comparison), words it (messages) and helps (coach)
- a drill or an interview: interview
- the machine, and the map of the course: environment, outline

A student or a teacher, in a terminal: classroom has `tinyrl lab check` (labcheck) and
`tinyrl lab doctor` (doctor, findings, repair), what the course adds to nbgrader
(preprocessors), and the second pass over a class (regrade, grading, gradebook). Answers run
in processes of their own: checking/worker, which remote talks to over wire.

An author: authoring builds notebooks, labs and the bank of questions from their sources
(sources, notebooks, citations, html, syllabus); execute is `tinyrl run`; lessons holds what
a single lesson measures, labels the words for every field and number.

Below all of it: words (two languages), printing and streams (any console), saving, journal
and records (what the learner did), card (a framed message), style (figures).
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tinyrl.course.checking.checks import CheckFailed, NotAttempted, check
    from tinyrl.course.checking.coach import hint, progress, solution
    from tinyrl.course.claims import ClaimFailed, claim
    from tinyrl.course.interview.panel import drill
    from tinyrl.course.panels.mismatch_panel import panel
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
    "panel": "panels.mismatch_panel",
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
