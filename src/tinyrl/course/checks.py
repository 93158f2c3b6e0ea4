"""`check("ratio", ratio)`: judge an answer at once, in a lesson, a lab or nbgrader.

It returns None for a right answer and raises for any other: nbgrader gives full marks to
a cell whose last value is False, and none to one that writes a byte to stderr.
"""

from __future__ import annotations

from tinyrl.course import judging, records
from tinyrl.course.card import Card, show
from tinyrl.course.exercise import STAGES, Exercise
from tinyrl.course.exercises import find
from tinyrl.course.judging import Verdict
from tinyrl.course.records import Record
from tinyrl.course.words import Words


STUCK = Words(en="If you are stuck", zh="需要提示时")


class CheckFailed(AssertionError):
    """The answer is not right; the message says what is wrong with it.

    `mistake` names the misconception, where one explains the answer.
    """

    def __init__(self, message: str, mistake: str | None = None) -> None:
        super().__init__(message)
        self.mistake = mistake

    def _render_traceback_(self) -> list[str]:
        """What Jupyter shows: one line, for the card above it says the rest."""
        return [f"{type(self).__name__}: {self}"]


class NotAttempted(CheckFailed):
    """There is no answer yet."""


def check(name: str, answer: object, *, seed: int | None = None) -> None:
    """Check the learner's `answer` to the exercise called `name`.

    With a `seed` it runs on other inputs, for hidden tests, and shows none of them.
    Raises `NotAttempted` or `CheckFailed`, or `ValueError` for an unknown `name`.
    """
    exercise = find(name)
    hidden = seed is not None
    verdict = judging.judge(exercise, answer, judging.SEED if seed is None else seed)
    note = (
        None
        if hidden
        else records.remember(Record(verdict.outcome, name, mistake=verdict.mistake))
    )
    show(_card(exercise, verdict, hidden, note))
    if verdict.outcome == "right":
        return
    kind = NotAttempted if verdict.outcome == "blank" else CheckFailed
    raise kind(str(verdict.hidden if hidden else verdict.text), verdict.mistake)


def _card(exercise: Exercise, verdict: Verdict, hidden: bool, note: Words | None) -> Card:
    if verdict.outcome == "right":
        return Card(
            "good", f"{exercise.name}: {exercise.title}", str(verdict.text), foot=_s(note)
        )
    heading = (
        f"{exercise.name}: {STAGES[verdict.stage] if verdict.stage else exercise.title}"
    )
    if hidden:
        return Card("bad", heading, str(verdict.hidden))
    rows = tuple((str(label), value) for label, value in verdict.rows)
    help_ = f'{STUCK}: hint("{exercise.name}")'
    return Card(
        "bad", heading, str(verdict.text), rows, foot=f"{help_}  {_s(note)}".rstrip()
    )


def _s(note: Words | None) -> str:
    return "" if note is None else str(note)
