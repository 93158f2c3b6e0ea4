"""`check("ratio", ratio)`: judge an answer at once, in a lesson, a lab or nbgrader.

It returns None for a right answer and raises for any other: nbgrader gives full marks to
a cell whose last value is False, and none to one that writes a byte to stderr.
"""

from __future__ import annotations

from tinyrl.course.card import Card, Tone, show
from tinyrl.course.checking.judging import SEED, Verdict, judge
from tinyrl.course.exercise import STAGES, Exercise
from tinyrl.course.exercises import find
from tinyrl.course.records import Record, remember
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
    verdict = judge(exercise, answer, SEED if seed is None else seed)
    if seed is None:
        note = remember(Record(verdict.outcome, name, mistake=verdict.mistake))
        said, card = verdict.text, _card(exercise, verdict, note)
    else:
        said, card = verdict.hidden, _hidden_card(exercise, verdict)
    show(card)
    if verdict.outcome != "right":
        kind = NotAttempted if verdict.outcome == "blank" else CheckFailed
        raise kind(str(said), verdict.mistake)


def _card(exercise: Exercise, verdict: Verdict, note: Words | None) -> Card:
    foot = [] if note is None else [str(note)]
    if verdict.outcome == "right":
        return Card(
            "good", _heading(exercise, verdict), str(verdict.text), foot=" ".join(foot)
        )
    rows = tuple((str(label), value) for label, value in verdict.rows)
    foot = [f'{STUCK}: hint("{exercise.name}")', *foot]
    return Card(
        "bad", _heading(exercise, verdict), str(verdict.text), rows, foot="  ".join(foot)
    )


def _hidden_card(exercise: Exercise, verdict: Verdict) -> Card:
    """A card that shows nothing of the inputs."""
    tone: Tone = "good" if verdict.outcome == "right" else "bad"
    return Card(tone, _heading(exercise, verdict), str(verdict.hidden))


def _heading(exercise: Exercise, verdict: Verdict) -> str:
    failed_at = verdict.stage and STAGES[verdict.stage]
    return f"{exercise.name}: {failed_at or exercise.title}"
