"""Judge an answer: walk it through the cases and, where it fails, find out why.

The walk stops at the first case that fails. To name the misconception behind a wrong
answer, every wrong function of the exercise runs on the same inputs: the one that gives
the learner's own outputs, and it alone, is it. The text of the answer is never looked at.
"""

from __future__ import annotations

# As in comparison.py.
from builtins import callable, enumerate, len, list, max, range, type, zip  # noqa: UP029
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

from numpy import isfinite, zeros_like
from torch import Tensor

from tinyrl.course.checking import messages
from tinyrl.course.checking.comparison import (
    Seen,
    Truth,
    gradient_slack,
    observe,
    parts,
    same,
    truth,
    within,
)
from tinyrl.course.checking.guarded_call import as_shipped
from tinyrl.course.checking.messages import Rows
from tinyrl.course.exercise import STAGES, Case, Exercise, Function, Stage
from tinyrl.course.words import Words

SEED = 0  # of the inputs that a learner sees; hidden tests bring their own


@dataclass(frozen=True)
class Fault:
    """What is wrong with one call. `hidden` is what may be said of hidden inputs.

    `rows` prints numbers, which takes longer than to find the fault: only for a reader.
    """

    kind: Literal["error", "type", "shape", "value", "changed", "gradient"]
    text: Words
    hidden: Words
    rows: Callable[[], Rows] = tuple


@dataclass(frozen=True)
class Verdict:
    """What a judged answer is told. `passed` counts the cases that it got right."""

    outcome: Literal["right", "wrong", "blank"]
    text: Words
    hidden: Words
    passed: int
    stage: Stage | None = None
    mistake: str | None = None
    rows: Rows = ()


class Known:
    """What the course's own functions do with the cases of a seed, each asked only once."""

    def __init__(self, exercise: Exercise, seed: int) -> None:
        self.exercise = exercise
        with as_shipped():
            self.cases = exercise.inputs(seed)
        self._truths: dict[int, Truth] = {}
        self._seen: dict[tuple[str, int], Seen] = {}
        self._wrong: dict[tuple[str, int], bool] = {}

    def truth(self, i: int) -> Truth:
        """The right answer to case `i`."""
        if i not in self._truths:
            self._truths[i] = truth(self.exercise, self.cases[i])
        return self._truths[i]

    def mistake(self, name: str, i: int) -> Seen:
        """What a wrong function of the exercise does with case `i`."""
        if (name, i) not in self._seen:
            wrong = self.exercise.mistakes[name][0]
            self._seen[name, i] = observe(self.exercise, wrong, self.cases[i], own=True)
        return self._seen[name, i]

    def is_wrong(self, name: str, i: int) -> bool:
        """Whether a wrong function of the exercise is wrong in case `i`."""
        if (name, i) not in self._wrong:
            case, seen = self.cases[i], self.mistake(name, i)
            fault = find_fault(self.exercise, case, seen, self.truth(i))
            self._wrong[name, i] = fault is not None
        return self._wrong[name, i]


_kept: dict[tuple[str, int], Known] | None = None


@contextmanager
def keeping() -> Iterator[None]:
    """Ask the course's functions once for a whole class.

    Only for a process in which no learner's code runs: that can change what they compute.
    """
    global _kept
    _kept = {}
    try:
        yield
    finally:
        _kept = None


def judge(exercise: Exercise, answer: object, seed: int = SEED) -> Verdict:
    """Walk a learner's `answer` through the cases of `seed`, and say how it does."""
    if _kept is None:
        return walk(Known(exercise, seed), answer)
    key = exercise.name, seed
    if key not in _kept:
        _kept[key] = Known(exercise, seed)
    return walk(_kept[key], answer)


def walk(known: Known, answer: object, *, own: bool = False) -> Verdict:
    """Walk `answer` through the cases, to the first at which it fails.

    An answer may not call the library's functions, unless it is the course's `own`.
    """
    exercise = known.exercise
    if not callable(answer):
        return _told("blank", messages.not_callable(exercise.name, answer))
    trail: list[Seen] = []
    for passed, case in enumerate(known.cases):
        seen = observe(exercise, answer, case)
        if not passed and (blank := messages.blank(exercise.name, seen.attempt)):
            return _told("blank", blank)
        if seen.attempt.borrowed and not own:
            said = messages.borrowed(exercise.name, seen.attempt.borrowed[0])
            return _told("wrong", said, passed, case.stage, "borrowed")
        trail.append(seen)
        if fault := find_fault(exercise, case, seen, known.truth(passed)):
            rows = () if own else fault.rows() + messages.printed(seen.attempt)
            verdict = Verdict(
                "wrong", fault.text, fault.hidden, passed, case.stage, None, rows
            )
            if fault.kind in ("type", "changed") or messages.stopped(seen.attempt):
                return verdict
            mistake = diagnose(known, answer, trail)
            if mistake is None:
                return verdict
            said = exercise.mistakes[mistake][1]
            return replace(verdict, text=said, hidden=said, mistake=mistake)
    passed = len(known.cases)
    return _told("right", messages.solved(exercise.name, passed), passed)


def _told(
    outcome: Literal["right", "wrong", "blank"],
    said: Words,
    passed: int = 0,
    stage: Stage | None = None,
    mistake: str | None = None,
) -> Verdict:
    """A verdict that may be told in the same words about hidden inputs."""
    return Verdict(outcome, said, said, passed, stage, mistake)


def diagnose(known: Known, answer: Function, trail: list[Seen]) -> str | None:
    """The one mistake that explains every output so far, or None.

    It has to be wrong where the answer failed: else something else was. It also has to
    explain the cases left of the failed stage and of those for ordinary inputs: the numbers
    of an example can agree by chance. The others, where a second mistake may come in, only
    decide between several.
    """
    stages = list(STAGES)
    at = len(trail) - 1  # where it failed
    last = max(stages.index(known.cases[at].stage), stages.index("inputs"))

    def explaining(suspects: list[str], i: int, seen: Seen) -> list[str]:
        right = known.truth(i)
        return [name for name in suspects if same(known.mistake(name, i), seen, right)]

    suspects = [n for n in known.exercise.mistakes if known.is_wrong(n, at)]
    for i in range(at, -1, -1):
        suspects = explaining(suspects, i, trail[i])
    for i, case in list(enumerate(known.cases))[at + 1 :]:
        must = stages.index(case.stage) <= last
        if not suspects or (len(suspects) == 1 and not must):
            break
        fewer = explaining(suspects, i, observe(known.exercise, answer, case))
        suspects = fewer if must else fewer or suspects
    return suspects[0] if len(suspects) == 1 else None


def find_fault(exercise: Exercise, case: Case, seen: Seen, right: Truth) -> Fault | None:
    """What is wrong with one call: error, type, shape, value, changed input or gradient.

    A value that is wrong only as long as an argument holds what was written to it, since
    it is a view of it, has no fault but the writing.
    """
    if seen.attempt.error is not None:
        text, hidden = messages.raised(exercise, case, seen.attempt)
        return Fault("error", text, hidden, partial(messages.inputs, exercise, case))
    if said := seen.unreadable:
        return Fault("type", said, said)
    changed = seen.attempt.changed
    wrote = exercise.arguments[changed[0]] if changed else None
    unspoiled = seen.unspoiled or seen.values
    numbers = zip(
        exercise.returns,
        seen.values,
        unspoiled,
        right.values,
        right.tolerances,
        strict=True,
    )
    for name, mine, before, theirs, tolerance in numbers:
        if mine.shape != theirs.shape:
            said = messages.shape(exercise.called(name), mine.shape, theirs.shape)
            rows = partial(messages.inputs, exercise, case)
            return Fault("shape", said, said, rows)
        if not within(mine, theirs, tolerance) and not within(before, theirs, tolerance):
            said = messages.value(exercise.called(name), case, wrote)
            shown = exercise, case, name, mine, theirs, tolerance
            rows = partial(messages.compared, *shown)
            return Fault("value", said, said, rows)
    if wrote is not None:
        said = messages.changed(exercise.name, wrote)
        return Fault("changed", said, said)
    if said := seen.unfit:
        return Fault("type", said, said)
    if of_gradient := _gradient_fault(exercise, seen, right):
        return Fault("gradient", of_gradient, of_gradient)
    return None


def _gradient_fault(exercise: Exercise, seen: Seen, right: Truth) -> Words | None:
    """The gradient has to flow where it should, in the right amount, and nowhere else.

    Less than what is forgiven of the gradients that should flow does not count as flowing
    elsewhere. Where it is 0 everywhere a constant has it as well, if it is a tensor.
    """
    for name in right.gradients:
        mine, theirs = seen.gradients[name], right.gradients[name]
        slack = gradient_slack(theirs, right.gradients.values())
        if theirs is None:
            if mine is not None and not within(mine, zeros_like(mine), slack):
                return messages.gradient_into_data(name)
        elif mine is None:
            if theirs.any():
                return messages.no_gradient(name)
            for part, value in parts(exercise, seen.attempt.value):
                if type(value) is not Tensor:
                    return messages.plain_number(exercise.called(part))
        elif not isfinite(mine).all():
            return messages.nan_gradient(name)
        elif not within(mine, theirs, slack):
            return messages.wrong_gradient(name)
    return None
