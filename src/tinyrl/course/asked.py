"""What somebody asked for on the command line, refused in one line where it is unknown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import typer

from tinyrl.course.drilling import KINDS, Kind
from tinyrl.course.questions import GROUPS
from tinyrl.course.words import Language, set_language


def groups(names: Sequence[str] | None) -> tuple[str, ...]:
    """Groups by their Roman numbers, in either case; all if none is named."""
    return _known("--group", [name.upper() for name in names or ()], GROUPS)


def kinds(names: Sequence[str] | None) -> tuple[Kind, ...]:
    """Kinds of cards; all if none is named."""
    return cast("tuple[Kind, ...]", _known("--kind", [*(names or ())], KINDS))


def _known(option: str, names: list[str], all_names: tuple[str, ...]) -> tuple[str, ...]:
    if unknown := [name for name in names if name not in all_names]:
        known = ", ".join(all_names)
        raise typer.BadParameter(f"{option}: {unknown[0]!r} is none of {known}")
    return tuple(name for name in all_names if name in names) if names else all_names


def speak(lang: str | None) -> None:
    """Use the language that was asked for, for the rest of the process."""
    if lang is None:
        return
    if lang not in ("en", "zh"):
        raise typer.BadParameter(f"--lang: {lang!r} is neither en nor zh")
    set_language(cast("Language", lang))
