"""`tinyrl diagnose A.npy B.npy`: metrics, a reading of K3 and causes, on the terminal."""

from __future__ import annotations

import sys
from pathlib import Path

from ..said import Language, Said, joined, same
from .bands import Band
from .files import FileError, load, printable
from .finding import LESSONS, NAMES, Finding
from .kinds import Named, checked
from .table import HEADS, rows
from .verdict import Diagnosis, diagnose

TITLE = Said("{} (rollout) against {} (trainer)", "{}（采样端）对 {}（训练端）")
CAPTION = Said(
    "Causes hold only if the rollout itself sampled these tokens.",
    "原因只在这些 token 由采样端自己抽出时成立。",
)
READING = Said("Reading of K3", "K3 的解读")
EXPLAINS = Said("explains {} of the sum of |d|", "解释了 |d| 之和的 {}")
EVIDENCE, REMEDY = Said("evidence", "证据"), Said("remedy", "对策")
LESSON = Said("lesson {}", "第 {} 课")
NOTE, LEFT = Said("Note", "注意"), Said("Left", "剩余")
NONE = Said("None of", "没有发现")
ONE_ROW = Said(
    "[T] is read as one response. If it is many, packed, the numbers named seq and the "
    "search for a wrong prefix mean nothing.",
    "[T] 按一条回答读。若其实是多条拼接，seq 开头的指标和对前缀的检查都没有意义。",
)


def run(
    rollout: Path, train: Path, mask: Path | None = None, language: Language = "en"
) -> int:
    """Diagnose two files of logprobs `[B, T]`; prints, and returns the exit code.

    0 if there was something to read, whatever was found; 2 if not, with the reason on
    stderr. Files are data only: pickled objects are refused.
    """
    try:
        a, b = (Named(path, load(path)) for path in (rollout, train))
        real = None if mask is None else Named(mask, load(mask))
        packed = a.x.dim() == 1
        verdict = diagnose(*checked(a, b, real))
    except FileError as error:
        print(f"tinyrl diagnose: {error.said.to(language)}", file=sys.stderr)
        return 2
    show(verdict, rollout, train, language, packed)
    return 0


def show(
    verdict: Diagnosis, rollout: Path, train: Path, language: Language, packed: bool = False
) -> None:
    """Print a verdict, in lines that lose nothing however narrow the terminal is."""
    from rich.cells import cell_len
    from rich.console import Console

    from ..wrapping import put

    console = Console(highlight=False)
    names = printable(rollout.name), printable(train.name)
    put(console, "", TITLE.to(language).format(*names), 0)
    console.print()
    table = [(name, value, said.to(language)) for name, value, said in rows(verdict)]
    table.insert(0, tuple(head.to(language) for head in HEADS))  # type: ignore[arg-type]
    wide = max(cell_len(value) for _, value, _ in table)
    for i, (name, value, meaning) in enumerate(table):
        head = name + " " * (15 - cell_len(name) + wide - cell_len(value)) + value
        put(console, head, meaning, 17 + wide, "bold" if i == 0 else "")
    console.print()
    put(console, "", CAPTION.to(language), 0, dim=True)
    for title, text in paragraphs(verdict, packed):
        label, inner = title.to(language), title.en.startswith("   ")
        if not inner:
            console.print()
            label += "：" if language == "zh" else ": "
        put(console, label, text.to(language), 12 if inner else 3, "bold" * (not inner))


def paragraphs(verdict: Diagnosis, packed: bool) -> list[tuple[Said, Said]]:
    """Heads and texts below the table; an inner one, of a finding, begins with blanks."""
    said = [(READING, _reading(verdict.band))]
    for i, found in enumerate(verdict.findings, 1):
        said += _finding(i, found)
    if not verdict.findings:
        said.append((NONE, joined([joined(NAMES.values(), ", ", "、"), Said(".", "。")])))
    notes = [*verdict.notes] + [ONE_ROW] * packed
    said += [(NOTE, _ended(note)) for note in notes]
    return [*said, (LEFT, _ended(verdict.rest))]


def _finding(i: int, found: Finding) -> list[tuple[Said, Said]]:
    name, lesson = NAMES[found.cause], LESSONS[found.cause]
    head = Said(
        f"{i}. {found.cause} ({LESSON.en.format(lesson)})",
        f"{i}. {name.zh}（{LESSON.zh.format(lesson)}）",
    )
    share = Said(*(e.format(s) for e, s in zip(EXPLAINS, found.share, strict=True)))
    if found.beside is not None:
        share = joined([share, found.beside], "; ", "；")
    parts = ((same(""), share), (EVIDENCE, found.evidence), (REMEDY, found.remedy))
    inner = [(Said("   " + h.en, "   " + h.zh), text) for h, text in parts]
    return [(head, _ended(found.what)), *inner]


def _reading(band: Band) -> Said:
    source = f" [{band.source.en}]", f"[{band.source.zh}]"
    end = source if band.source.en else ("", "")
    return Said(f"{band.reading.en}.{end[0]}", f"{band.reading.zh}。{end[1]}")


def _ended(text: Said) -> Said:
    """With a full stop."""
    return Said(text.en.rstrip(".") + ".", text.zh.rstrip("。") + "。")
