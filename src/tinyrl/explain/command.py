"""`tinyrl explain verl rollout_is=sequence ...`, on the terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence

from . import FlagError, Language, Reading, Said, code, explain

LABELS = {
    "level": Said("level", "层级"),
    "operation": Said("operation", "操作"),
    "bounds": Said("bounds", "界"),
    "where": Said("where", "位置"),
    "denominator": Said("denominator", "分母"),
    "beside": Said("beside it", "另外"),
    "ours": Said("in tinyrl", "tinyrl 写法"),
    "presets": Said("same as", "等同于"),
}
UNREAD = Said("not read here", "此处不解读")
INDENT = 15
TRAPS = Said("Traps", "陷阱")
NO_FLAGS = Said("no flags: the defaults", "没有给出选项：默认设置")


def run(framework: str, flags: Sequence[str], tokens: int, language: Language) -> int:
    """Print what `flags` mean; returns the exit code, 2 with one line on stderr if nothing
    can be said of them."""
    try:
        reading = explain(framework, flags, tokens=tokens)
    except FlagError as error:
        print(f"tinyrl explain: {error}", file=sys.stderr)
        return 2
    show(reading, framework.lower(), flags, language)
    return 0


def show(
    reading: Reading, framework: str, flags: Sequence[str], language: Language
) -> None:
    """Print a reading, in lines that lose nothing however narrow the terminal is."""
    from rich.console import Console

    from ..wrapping import put

    console = Console(highlight=False)
    release = reading.release
    about = f"{release.version}, {release.date}, {release.repository} at "
    name = escaped(framework)
    put(console, name, about + release.commit[:12], len(name) + 1, "bold")
    said = " ".join(escaped(word) for word in flags)
    put(console, "", said or NO_FLAGS.to(language), 0, dim=True)
    console.print()
    for label, text in rows(reading, framework):
        put(console, label.to(language), text.to(language), INDENT, "bold")
    if reading.traps:
        console.print()
        put(console, TRAPS.to(language), "", 0, "bold")
    for i, trap in enumerate(reading.traps, 1):
        put(console, f"{i}.", trap.to(language), 4)
    if reading.unread:
        console.print()
        said = " ".join(escaped(name) for name in reading.unread)
        put(console, UNREAD.to(language), said, INDENT, "bold")


def escaped(word: str) -> str:
    """`word` in printable ASCII."""
    return ascii(word)[1:-1]


def rows(reading: Reading, framework: str) -> Iterator[tuple[Said, Said]]:
    """Labels and texts, in order."""
    for part in reading.parts:
        yield LABELS["level"], part.level
        yield LABELS["operation"], part.operation
        yield LABELS["bounds"], part.bounds
    yield LABELS["where"], reading.where
    yield LABELS["denominator"], reading.denominator
    for text in reading.beside:
        yield LABELS["beside"], text
    yield LABELS["ours"], _ours(reading)
    names = ", ".join(reading.presets(framework))
    if reading.correction is not None and names:
        yield LABELS["presets"], Said(f"presets: {names}", f"presets：{names}")


def _ours(reading: Reading) -> Said:
    if reading.correction is None:
        assert reading.lacking is not None
        return reading.lacking
    anchor = "recompute" if reading.mode == "decoupled" else "rollout"
    said = f'{code(reading.correction)}, LossView(anchor="{anchor}")'
    if reading.loss == "reinforce":
        return Said(f"{said}, loss -w A log p_new", f"{said}，损失 -w A log p_new")
    return Said(said, said)
