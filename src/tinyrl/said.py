"""Text for people, English and Chinese: a pair, chosen by the language of the reader."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple

Language = Literal["en", "zh"]


class Said(NamedTuple):
    """The same thing said twice."""

    en: str
    zh: str

    def to(self, language: Language) -> str:
        """As a reader of `language` wants it."""
        return self.zh if language == "zh" else self.en


NOTHING_SAID = Said("", "")


def same(text: str) -> Said:
    """What both languages write alike."""
    return Said(text, text)


def joined(parts: Iterable[Said], en: str = "", zh: str = "") -> Said:
    """All of `parts` in one, with what stands between them in each language."""
    parts = list(parts)
    return Said(en.join(x.en for x in parts), zh.join(x.zh for x in parts))
