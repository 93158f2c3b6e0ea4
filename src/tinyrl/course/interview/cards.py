"""The cards of the interview drill, and what an answer to each kind is worth.

Three kinds: an open question, which one answers aloud and rates against its rubric; a
choice between the right sentence and the wrong answers that are usually given; and a
numeric drill. Nothing here knows where a card is shown.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Literal

from tinyrl.course.interview import questions
from tinyrl.course.interview.questions import GROUPS, TITLES, Text
from tinyrl.course.words import Words

Kind = Literal["open", "choice", "numeric"]
KINDS: tuple[Kind, ...] = ("open", "numeric", "choice")
KIND: dict[Kind, Words] = {
    "open": Words(en="aloud", zh="口述"),
    "choice": Words(en="choose", zh="选择"),
    "numeric": Words(en="compute", zh="计算"),
}
NAMED = Words(en="{}, {}", zh="{} {}")
AGAIN, HARD, GOOD, EASY = 1, 2, 3, 4


@dataclass(frozen=True)
class Card:
    kind: Kind
    name: str  # the question's key, or the name of the drill
    group: str

    @property
    def key(self) -> str:
        return f"{self.kind}:{self.name}"

    def __str__(self) -> str:
        return f"{named(self.group)} · {KIND[self.kind]}"


def named(group: str) -> str:
    """A group by its number and its title."""
    return str(NAMED).format(group, TITLES[group])


def cards(groups: Sequence[str] = GROUPS, kinds: Sequence[Kind] = KINDS) -> list[Card]:
    """All cards of some groups: the groups take turns, and in each the kinds.

    Each group begins with another kind, so that a short sitting has all of them.
    The choice that comes with an open question is that of another one, half a group on:
    it would give the answer away.
    """
    bank = questions.load().values()
    numeric = _numeric() if "numeric" in kinds else []
    decks = []
    for first, group in enumerate(groups):
        names = [q.key for q in bank if q.group == group]
        half = len(names) // 2
        rows: dict[Kind, list[str]] = {
            "open": names,
            "choice": names[half:] + names[:half],
            "numeric": [name for name, of in numeric if of == group],
        }
        turns = range(max(map(len, rows.values())))
        start = first % len(KINDS)
        decks.append(
            [
                Card(kind, rows[kind][i], group)
                for i in turns
                for kind in KINDS[start:] + KINDS[:start]
                if kind in kinds and i < len(rows[kind])
            ]
        )
    return [card for turn in zip_longest(*decks) for card in turn if card is not None]


def _numeric() -> list[tuple[str, str]]:
    """Name and group of every drill; their library takes a second to import."""
    from tinyrl.course.interview.numeric import DRILLS

    return [(drill.name, drill.group) for drill in DRILLS.values()]


@dataclass(frozen=True)
class Options:
    """A choice question's options, shuffled."""

    says: tuple[str, ...]
    why: tuple[str, ...]  # what is wrong with each; nothing for the right one
    right: int


def options(text: Text, generator: random.Random) -> Options:
    """The right sentence among the usual wrong answers."""
    pairs = [(text.sentence, ""), *text.wrong]
    generator.shuffle(pairs)
    says, why = zip(*pairs, strict=True)
    return Options(says, why, says.index(text.sentence))


def share(text: Text, ticked: set[int]) -> float:
    """The part of a rubric's weight that the ticked points (from 0) make up."""
    total = sum(point.weight for point in text.rubric)
    return sum(text.rubric[i].weight for i in ticked) / total


def rating(reached: float, kind: Kind = "open") -> int:
    """How well a card was known, for the scheduler, from the share of its points.

    Only an open question can be easy: what is chosen or computed may be a lucky guess.
    """
    if reached < 0.4:
        return AGAIN
    best = EASY if kind == "open" else GOOD
    return HARD if reached < 0.7 else GOOD if reached < 1 else best
