"""Text for people, in English and Chinese.

The language is that of the variable TINYRL_LANG, "en" or "zh"; English where it says
neither. `set_language("zh")` changes it for the rest of the process.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Literal

Language = Literal["en", "zh"]


def language() -> Language:
    """The language that people read now."""
    return "zh" if os.environ.get("TINYRL_LANG", "").lower().startswith("zh") else "en"


def set_language(chosen: Language) -> None:
    """Show all further text in `chosen`; raises `ValueError` for any but "en" and "zh"."""
    if chosen not in ("en", "zh"):
        raise ValueError(f'language is "en" or "zh", not {chosen!r}')
    os.environ["TINYRL_LANG"] = chosen


@dataclass(frozen=True, slots=True)
class Words:
    """The same thing said twice; `str()` says it in the reader's language."""

    en: str
    zh: str

    def __str__(self) -> str:
        return self.zh if language() == "zh" else self.en
