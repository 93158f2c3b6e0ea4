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
    """Values of all flags by name, and which of them were given."""

    given: frozenset[str]


def parse(framework: str, words: Sequence[str], known: Sequence[Flag]) -> Flags:
    """`words` of a command line as values; raises `FlagError`."""
    flags = {flag.name: flag for flag in known}
    values = Flags({flag.name: flag.default for flag in known})
    given: dict[str, str] = {}
    for name, text in _pairs(framework, list(words), flags):
        if name in given:
            raise FlagError(f"{name} is given twice: {given[name]!r} and {text!r}")
        given[name] = text
        try:
            values[name] = flags[name].read(text)
        except ValueError as error:
            raise FlagError(f"{name} must be {error}, not {text!r}") from None
    values.given = frozenset(given)
    return values


def _pairs(
    framework: str, words: list[str], flags: dict[str, Flag]
) -> Iterator[tuple[str, str]]:
    while words:
        word = words.pop(0)
        head, equals, text = word.partition("=")
        dashed = word.startswith("--")
        if not equals and not dashed:
            raise FlagError(f"{word!r} is no flag: write name=value, or --name value")
        name = head.lstrip("-+").rpartition(".")[2].replace("-", "_")
        if name not in flags:
            raise FlagError(_unknown(framework, name, list(flags)))
        if not equals and flags[name].read is boolean:
            follows = bool(words) and words[0].lower() in YES + NO
            text = words.pop(0) if follows else "true"
        elif not equals:
            if not words or words[0].startswith("--"):
                raise FlagError(f"{name} needs a value: {name}=value, or --{name} value")
            text = words.pop(0)
        yield name, text.strip().strip("'\"")


def _unknown(framework: str, name: str, names: list[str]) -> str:
    near = get_close_matches(name, names, 3, 0.5)
    hint = f"near it: {', '.join(near)}" if near else f"known: {', '.join(names)}"
    return f"no flag {name!r} of {framework} is known here; {hint}"


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
