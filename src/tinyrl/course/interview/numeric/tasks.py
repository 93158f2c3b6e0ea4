"""A numeric drill: a question whose numbers are new each time, answered by the library."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from tinyrl.course.words import Words


class Slip(NamedTuple):
    """What one gets by a usual mistake, and what that mistake is."""

    value: float
    why: Words


@dataclass(frozen=True)
class Task:
    """One drawn question. `answer` comes from a function of the library."""

    question: Words
    answer: float
    worked: Words  # the way to the answer, with these numbers
    slips: tuple[Slip, ...] = ()
    within: float = 0.02  # relative error that still counts as right; 0: exact

    def right(self, said: float) -> bool:
        return near(said, self.answer, self.within)

    def slip(self, said: float) -> Slip | None:
        """The mistake that gives what was said; None if none does, or if it is right."""
        if self.right(said):
            return None
        return next((slip for slip in self.slips if near(said, slip.value, 0.02)), None)


def near(said: float, true: float, within: float) -> bool:
    """Equal up to a relative error; next to zero, up to a millionth of it."""
    return math.isfinite(said) and abs(said - true) <= within * max(abs(true), 1e-6)


@dataclass(frozen=True)
class Drill:
    name: str  # "k3_of_two_tokens"; a card's key, so it stays
    group: str  # of the interview: I to VIII
    draw: Callable[[random.Random], Task]
