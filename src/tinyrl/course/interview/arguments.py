"""What somebody asked for on the command line, refused in one line where it is unknown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import typer

from tinyrl.course.interview.cards import KINDS, Kind
from tinyrl.course.interview.questions import GROUPS
from tinyrl.course.words import Words

UNKNOWN = Words(en="{}: {!r} is none of {}", zh="{}：{!r} 无效，可选 {}")


def groups(names: Sequence[str] | None) -> tuple[str, ...]:
    """Groups by their Roman numbers, in either case, or 1 to 8; all if none is named."""
    arabic = {str(i): group for i, group in enumerate(GROUPS, 1)}
    return _known("--group", [arabic.get(n, n.upper()) for n in names or ()], GROUPS)


def kinds(names: Sequence[str] | None) -> tuple[Kind, ...]:
    """Kinds of cards; all if none is named."""
    return cast("tuple[Kind, ...]", _known("--kind", [*(names or ())], KINDS))


def _known(option: str, names: list[str], all_names: tuple[str, ...]) -> tuple[str, ...]:
    if unknown := [name for name in names if name not in all_names]:
        told = str(UNKNOWN).format(option, unknown[0], ", ".join(all_names))
        raise typer.BadParameter(told)
    return tuple(name for name in all_names if name in names) if names else all_names
