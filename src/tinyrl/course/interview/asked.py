"""What somebody asked for on the command line, refused in one line where it is unknown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import typer

from tinyrl.course.interview.drilling import KINDS, Kind
from tinyrl.course.interview.questions import GROUPS
from tinyrl.course.words import Language, set_language


def groups(names: Sequence[str] | None) -> tuple[str, ...]:
    """Groups by their Roman numbers, in either case, or 1 to 8; all if none is named."""
    arabic = {str(i): group for i, group in enumerate(GROUPS, 1)}
    return _known("--group", [arabic.get(n, n.upper()) for n in names or ()], GROUPS)


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
