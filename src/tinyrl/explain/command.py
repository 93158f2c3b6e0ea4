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
    "ours": Said("as ours", "我们的写法"),
    "presets": Said("same as", "等同于"),
}
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
    """Print a reading with rich."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    console = Console(highlight=False)
    release = reading.release
    console.print(
        f"[bold]{escape(framework)}[/] {release.version}, {release.date}, "
        f"{release.repository} at {release.commit[:12]}"
    )
    said = " ".join(ascii(word)[1:-1] for word in flags)
    console.print(escape(said) if said else NO_FLAGS.to(language), style="dim")
    console.print()
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold", no_wrap=True)
    table.add_column()
    for label, text in rows(reading, framework):
        table.add_row(label.to(language), escape(text.to(language)))
    console.print(table)
    if reading.traps:
        console.print(f"\n[bold]{TRAPS.to(language)}[/]")
    traps = Table.grid(padding=(0, 1))
    for i, trap in enumerate(reading.traps, 1):
        traps.add_row(f"{i}.", escape(trap.to(language)))
    console.print(traps)


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
