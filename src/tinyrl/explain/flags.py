"""Flags as their users write them: rollout_is=token, --use-tis, --tis-clip 2.

A path before the name is dropped (algorithm.rollout_correction.rollout_is), dashes are
underscores, and null is None. What is wrong is said in one line that names the flag.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

YES, NO = ("true", "1", "yes", "on"), ("false", "0", "no", "off")
NULL = ("null", "none", "~")


class FlagError(ValueError):
    """A flag that is unknown, or whose value the framework would not take."""


@dataclass(frozen=True)
class Flag:
    """A framework's flag: how its text is read, and what holds where it is not given."""

    name: str
    read: Callable[[str], Any]
    default: Any


class Flags(dict[str, Any]):
    """Values of all flags by name, which of them were given, and what is not read here."""

    given: frozenset[str]
    unread: tuple[str, ...]


ELSEWHERE = frozenset({"val_kwargs", "critic", "ref", "reward", "reward_model", "data"})
"""Parts of a path under which a known name means another thing: verl's val_kwargs.top_p."""


def parse(
    framework: str, words: Sequence[str], known: Sequence[Flag], real: Sequence[str] = ()
) -> Flags:
    """`words` of a command line, or a whole config, as values; raises `FlagError`.

    A name that is nearly a known one is an error, and any other is left unread. `real`
    are the framework's own that only look like a known one.
    """
    flags = {flag.name: flag for flag in known}
    values = Flags({flag.name: flag.default for flag in known})
    given: dict[str, str] = {}
    unread: list[str] = []
    for name, text in _pairs(framework, list(words), flags, real):
        if text is None:
            unread.append(name)
            continue
        if name in given:
            raise FlagError(f"{name} is given twice: {given[name]!r} and {text!r}")
        given[name] = text
        try:
            values[name] = flags[name].read(text)
        except ValueError as error:
            raise FlagError(f"{name} must be {error}, not {text!r}") from None
    values.given, values.unread = frozenset(given), tuple(dict.fromkeys(unread))
    return values


def _pairs(
    framework: str, words: list[str], flags: dict[str, Flag], real: Sequence[str]
) -> Iterator[tuple[str, str | None]]:
    """Known names with their text; what is not read here, as it was written, with None."""
    while words:
        word = words.pop(0)
        head, equals, text = word.partition("=")
        dashed = word.startswith("--")
        if not equals and not dashed and word.endswith(":") and words:  # YAML
            head, equals, text = word[:-1], ":", words.pop(0)
        path = head.lstrip("-+~").replace("-", "_").split(".")
        name = path[-1]
        if name not in flags or ELSEWHERE & set(path[:-1]):
            if name not in flags and name not in real:
                _refuse_near(framework, name, list(flags))
            if dashed and not equals:  # its values, as far as one can tell
                while words and not words[0].startswith("--") and "=" not in words[0]:
                    words.pop(0)
            yield head, None
            continue
        if not equals and not dashed:
            raise FlagError(f"{word!r} is no flag: write name=value, or --name value")
        if not equals and flags[name].read is boolean:
            follows = bool(words) and words[0].lower() in YES + NO
            text = words.pop(0) if follows else "true"
        elif not equals:
            if not words or words[0].startswith("--"):
                raise FlagError(f"{name} needs a value: {name}=value, or --{name} value")
            text = words.pop(0)
        yield name, text.strip().strip("'\"")


def _refuse_near(framework: str, name: str, names: list[str]) -> None:
    """Raise if `name` is a known one misspelt: to leave it out would tell another story."""
    if near := get_close_matches(name, names, 3, 0.8):
        raise FlagError(
            f"no flag {name!r} of {framework} is known here; near it: {', '.join(near)}"
        )


# How values are read. A ValueError says what they must be


def boolean(text: str) -> bool:
    """True or false."""
    if text.lower() not in YES + NO:
        raise ValueError("true or false")
    return text.lower() in YES


def above_0(text: str) -> float:
    """A finite number above 0."""
    value = _finite(text)
    if not value > 0:
        raise ValueError("a number above 0")
    return value


def at_least_0(text: str) -> float:
    """A finite number, 0 or more."""
    value = _finite(text)
    if not value >= 0:
        raise ValueError("a number, 0 or more")
    return value


def _finite(text: str) -> float:
    """A number, or NaN for what is none or infinite."""
    try:
        value = float(text)
    except ValueError:
        return math.nan
    return value if math.isfinite(value) else math.nan


def share(text: str) -> float:
    """A number above 0, at most 1."""
    value = _finite(text)
    if not 0 < value <= 1:
        raise ValueError("a number above 0, at most 1")
    return value


def whole(text: str) -> int:
    """A whole number."""
    try:
        return int(text)
    except ValueError:
        raise ValueError("a whole number") from None


def plain(text: str) -> str:
    """Any text."""
    return text


def optional(read: Callable[[str], Any]) -> Callable[[str], Any]:
    """null, or what `read` takes."""

    def read_or_null(text: str) -> Any:
        try:
            return None if text.lower() in NULL else read(text)
        except ValueError as error:
            raise ValueError(f"{error}, or null") from None

    return read_or_null


def one_of(*choices: str) -> Callable[[str], str]:
    """One of these words."""

    def read(text: str) -> str:
        if text not in choices:
            near = get_close_matches(text, choices, 1)
            hint = f" (near it: {near[0]})" if near else ""
            raise ValueError(f"one of {', '.join(choices)}{hint}")
        return text

    return read
