"""The cards of the interview drill, and how an answer to each kind is judged.

Three kinds: an open question, which one answers aloud and rates against its rubric; a
choice between the right sentence and the wrong answers that are usually given; and a
numeric drill. Nothing here knows where a card is shown.
"""

from __future__ import annotations

import math
import random
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Literal

from tinyrl.course.interview import questions
from tinyrl.course.interview.questions import GROUPS, Text
from tinyrl.course.words import Words

Kind = Literal["open", "choice", "numeric"]
KINDS: tuple[Kind, ...] = ("open", "numeric", "choice")
AGAIN, HARD, GOOD, EASY = 1, 2, 3, 4


@dataclass(frozen=True)
class Card:
    kind: Kind
    name: str  # the question's key, or the name of the drill
    group: str

    @property
    def key(self) -> str:
        return f"{self.kind}:{self.name}"


def cards(groups: Sequence[str] = GROUPS, kinds: Sequence[Kind] = KINDS) -> list[Card]:
    """All cards of some groups: the groups take turns, and in each the kinds.

    The choice that comes with an open question is that of another one, half a group on:
    it would give the answer away.
    """
    bank = questions.load().values()
    numeric = _numeric() if "numeric" in kinds else []
    decks = []
    for group in groups:
        names = [q.key for q in bank if q.group == group]
        half = len(names) // 2
        rows: dict[Kind, list[str]] = {
            "open": names,
            "choice": names[half:] + names[:half],
            "numeric": [name for name, of in numeric if of == group],
        }
        turns = range(max(map(len, rows.values())))
        decks.append(
            [
                Card(kind, rows[kind][i], group)
                for i in turns
                for kind in KINDS
                if kind in kinds and i < len(rows[kind])
            ]
        )
    return [card for turn in zip_longest(*decks) for card in turn if card is not None]


def sitting(waiting: Sequence[str], count: int) -> list[str]:
    """The first `count` of the keys that wait, no two of them about one question."""
    chosen: dict[str, str] = {}
    for key in waiting:
        if len(chosen) < count:
            chosen.setdefault(key.partition(":")[2], key)
    return [*chosen.values()]


def _numeric() -> list[tuple[str, str]]:
    """Name and group of every drill; their library takes a second to import."""
    from tinyrl.course.interview.drills import DRILLS

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


NO_NUMBER = Words(
    en="That is no number. Write 0.25, 1/4, 25%, 2^-7, 1e-3, ln(2), exp(-0.5).",
    zh="这不是数字。可以写 0.25、1/4、25%、2^-7、1e-3、ln(2) 或 exp(-0.5)。",
)
LONGEST = 60  # characters of a number
GROUPED = re.compile(r"(?<![\d.,])[1-9]\d{0,2}(?:[,_ ]\d{3})+(?![\d,])")  # 22,026
PLAIN = r"[+-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?"
FORMS = {
    "plain": re.compile(rf"({PLAIN})(%?)"),
    "ratio": re.compile(rf"({PLAIN})/({PLAIN})"),
    "power": re.compile(rf"([+-]?)(\d+\.?\d*)(?:\^|\*\*)\(?({PLAIN})\)?"),
    "tens": re.compile(rf"({PLAIN})[*×x]10(?:\^|\*\*)\(?([+-]?\d+)\)?"),
    "log": re.compile(rf"(?:ln|log)\(?({PLAIN})\)?"),
    "root": re.compile(rf"(?:sqrt\(|√\(?)({PLAIN})\)?"),
    "exp": re.compile(rf"(?:exp\(|e\^\(?)({PLAIN})\)?"),
}


def number(said: str) -> float:
    """The number that somebody typed, in any usual way of writing one.

    Raises `ValueError` with what to tell them.
    """
    text = unicodedata.normalize("NFKC", said[: LONGEST + 1]).lower().replace("−", "-")
    text = GROUPED.sub(lambda whole: re.sub("[,_ ]", "", whole[0]), text.strip())
    text = re.sub(r"\s*([/^()%*+-])\s*", r"\1", text)
    try:
        value = _value(text) if len(text) <= LONGEST else math.nan
    except (ArithmeticError, ValueError):
        value = math.nan
    if not math.isfinite(value):
        raise ValueError(str(NO_NUMBER))
    return value


def _value(text: str) -> float:
    if m := FORMS["plain"].fullmatch(text):
        return float(m[1]) / (100 if m[2] else 1)
    if m := FORMS["ratio"].fullmatch(text):
        return float(m[1]) / float(m[2])
    if m := FORMS["power"].fullmatch(text):
        return math.pow(float(m[2]), float(m[3])) * (-1 if m[1] == "-" else 1)
    if m := FORMS["tens"].fullmatch(text):
        return float(m[1]) * math.pow(10, int(m[2]))
    if m := FORMS["log"].fullmatch(text):
        return math.log(float(m[1]))
    if m := FORMS["root"].fullmatch(text):
        return math.sqrt(float(m[1]))
    if m := FORMS["exp"].fullmatch(text):
        return math.exp(float(m[1]))
    return math.nan
