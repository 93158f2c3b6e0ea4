"""`tinyrl lab doctor`: say what silently costs marks, and with `fix` repair it.

What is wrong is found in findings.py, what a repaired notebook is in repair.py. It is
written after a backup, whole or not at all.
"""

from __future__ import annotations

import datetime
from pathlib import Path

from nbformat import NotebookNode
from rich.console import Console
from rich.markup import escape

from tinyrl.course import notebooks, saving
from tinyrl.course.classroom import labs, repair
from tinyrl.course.classroom.findings import Finding, examine
from tinyrl.course.classroom.labs import Lab, NoSuchLab
from tinyrl.course.notebooks import BadNotebook
from tinyrl.course.printing import console, plain
from tinyrl.course.words import Words

CLEAN, PROBLEMS, USAGE = 0, 1, 2
NOTHING = Words("Nothing here costs marks.", "没有会丢分的问题。")
UNANSWERED = Words(
    "Nothing here costs marks, apart from what is unanswered.",
    "除了还没有作答的题，没有会丢分的问题。",
)
YOURS = Words(
    "These are yours to change: nothing here can be repaired for you.",
    "这些要由你自己改：没有可以代为修复的。",
)
REPAIR = Words(
    "Repair {} of {} with --fix (a backup is kept).",
    "{1} 个问题中有 {0} 个可用 --fix 修复（会留备份）。",
)
UNCHANGED = Words("Nothing was changed: {}", "没有改动任何文件：{}")
REPAIRED = Words("Repaired {}. Before: {}", "已修复 {}。修复前的版本：{}")
REOPEN = Words(
    "If it is open in Jupyter, close it there without saving, and open it again.",
    "如果它正在 Jupyter 里打开：请不保存就关闭，再重新打开。",
)


def run(lab: str | Path, fix: bool = False) -> int:
    """Print what costs marks in a lab, by name or path; 0 clean, 1 problems, 2 usage."""
    out = console(soft_wrap=True)
    try:
        path = labs.locate(lab)
        nb = notebooks.read(path)
        original = labs.recognise(nb, path, labs.released())
    except (NoSuchLab, BadNotebook) as error:
        out.print(f"[red]✗[/] {escape(plain(error))}")
        return USAGE
    out.print(f"[bold]{escape(plain(path))}[/]")
    findings = examine(path, nb, original)
    for finding in findings:
        out.print(_line(finding))
    problems = [f for f in findings if not f.note]
    fixable = [f for f in problems if f.fixable]
    if not problems:
        empty = any(f.kind == "empty" for f in findings)
        out.print(f"[green]✓[/] {UNANSWERED if empty else NOTHING}")
        return CLEAN
    if not fixable:
        out.print(str(YOURS))
        return PROBLEMS
    if not fix:
        out.print(str(REPAIR).format(len(fixable), len(problems)))
        return PROBLEMS
    done = _repair(out, path, nb, original)
    return CLEAN if done and fixable == problems else PROBLEMS


def _repair(out: Console, path: Path, nb: NotebookNode, lab: Lab) -> bool:
    """Write the repaired notebook and say so; False where it could not be written."""
    try:
        home, backup = write(path, repair.repaired(nb, lab), lab.name)
    except OSError as error:
        out.print(f"[red]✗[/] {escape(plain(str(UNCHANGED).format(error)))}")
        return False
    said = str(REPAIRED).format(plain(home), plain(backup.name))
    out.print(f"[green]✓[/] {escape(said)}")
    out.print(str(REOPEN))
    return True


def _line(finding: Finding) -> str:
    mark = "[dim]·[/]" if finding.note else "[red]✗[/]"
    return f"  {mark} {escape(plain(finding))}"


def write(path: Path, nb: NotebookNode, name: str) -> tuple[Path, Path]:
    """Write the repaired notebook under its right name; returns its path and the backup's.

    Raises `OSError`, and then nothing has changed.
    """
    home, text = path.with_name(f"{name}.ipynb"), notebooks.dumps(nb)
    if home != path and home.exists():
        raise FileExistsError(f"{home} exists already")
    stamp = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
    backup = saving.backup(path, f"{path.stem}.before-doctor-{stamp}.bak")
    try:
        saving.replace(home, text, like=path)
        if home != path:
            path.unlink()
    except OSError:
        for made in [backup] if home == path else [backup, home]:
            made.unlink(missing_ok=True)
        raise
    return home, backup
