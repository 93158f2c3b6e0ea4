"""The interview bank as people use it: 70 questions, each in English and Chinese.

`questions/*.md` at the root of a clone is where they are written, and `question_files`
reads and checks those. The build puts all of them into one file of the package, so that
drills and decks need no clone.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

from tinyrl.course.words import Language, Words

BANK = Path(__file__).with_name("bank.json")
TITLES = {
    "I": Words(en="Ideas", zh="基本概念"),
    "II": Words(en="Exposure bias", zh="曝光偏差"),
    "III": Words(en="Logprob mismatch", zh="logprob 不一致"),
    "IV": Words(en="Precision, kernels, systems", zh="精度、kernel 与系统"),
    "V": Words(en="Templates, masks, positions, decoding", zh="模板、mask、位置与解码"),
    "VI": Words(en="MoE, R3, GSPO", zh="MoE、R3 与 GSPO"),
    "VII": Words(en="Measuring, monitoring, repairing", zh="度量、监控与修复"),
    "VIII": Words(en="Debugging and design", zh="排错与设计"),
}
GROUPS = tuple(TITLES)


class Point(NamedTuple):
    """One thing that a good answer says, and how much it counts."""

    weight: int
    text: str


class Wrong(NamedTuple):
    """An answer that is often given, and what is wrong with it."""

    says: str
    why: str


class Number(NamedTuple):
    """A figure to remember: from the course's own runs, or published."""

    kind: Literal["toy", "real"]
    text: str


class FollowUp(NamedTuple):
    """What an interviewer asks next."""

    question: str
    answer: str


class Section(NamedTuple):
    """Where the course shows it: a notebook and the heading there."""

    notebook: str
    heading: str


@dataclass(frozen=True)
class Text:
    """A question and all that is said about it, in one language; Markdown."""

    question: str
    sentence: str  # the answer in one sentence: the right one of the options
    answer: str
    rubric: tuple[Point, ...]
    wrong: tuple[Wrong, ...]
    numbers: tuple[Number, ...]
    follow_ups: tuple[FollowUp, ...]


@dataclass(frozen=True)
class Question:
    key: str  # "IV-04": group and place
    en: Text
    zh: Text
    sections: tuple[Section, ...]
    exercises: tuple[str, ...]  # "lab03:error_factor"
    picture: str | None = None

    @property
    def group(self) -> str:
        return self.key.partition("-")[0]

    def text(self, language: Language) -> Text:
        return self.zh if language == "zh" else self.en


@cache
def load() -> dict[str, Question]:
    """All questions by key, in the order of the groups."""
    raw = json.loads(BANK.read_text("utf-8"))
    return {item["key"]: _question(item) for item in raw}


def _question(raw: dict[str, Any]) -> Question:
    return Question(
        key=raw["key"],
        en=_text(raw["en"]),
        zh=_text(raw["zh"]),
        sections=tuple(Section(*item) for item in raw["sections"]),
        exercises=tuple(raw["exercises"]),
        picture=raw["picture"],
    )


def _text(raw: dict[str, Any]) -> Text:
    return Text(
        question=raw["question"],
        sentence=raw["sentence"],
        answer=raw["answer"],
        rubric=tuple(Point(*item) for item in raw["rubric"]),
        wrong=tuple(Wrong(*item) for item in raw["wrong"]),
        numbers=tuple(Number(*item) for item in raw["numbers"]),
        follow_ups=tuple(FollowUp(*item) for item in raw["follow_ups"]),
    )
