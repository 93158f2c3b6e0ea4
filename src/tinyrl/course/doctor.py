"""`tinyrl lab doctor`: what silently costs marks in nbgrader, found and repaired.

nbgrader says nothing to a student whose notebook it cannot match: a copied cell, lost
metadata or another file name give zero. The doctor compares the notebook with the lab as
it was released, says what is wrong in which cell, and with `fix` writes a repaired file,
after a backup.
"""

from __future__ import annotations

import ast
import datetime
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from nbformat import NotebookNode
from rich.console import Console
from rich.markup import escape

from tinyrl.course import labs, notebooks, repair
from tinyrl.course.labs import Lab, NoSuchLab
from tinyrl.course.notebooks import BadNotebook, grade_id, is_test, role

CLEAN, PROBLEMS, USAGE = 0, 1, 2
KERNEL = "python3"
FORMAT = 4  # nbformat's major version
FEW = 3  # cells that are named one by one
ASKS = ("breakpoint", "input")  # calls that wait for somebody at a keyboard


@dataclass(frozen=True)
class Finding:
    """One thing that costs marks, or may (a `note`). `cell` counts from 1."""

    kind: str
    said: str
    cell: int | None = None
    fixable: bool = True
    note: bool = False


def run(lab: str | Path, fix: bool = False) -> int:
    """Print what costs marks in a lab, by name or path; 0 clean, 1 problems, 2 usage."""
    console = Console(highlight=False, soft_wrap=True)
    try:
        path = labs.locate(lab)
        nb = notebooks.read(path)
        original = labs.recognise(nb, path, labs.released())
    except (NoSuchLab, BadNotebook) as error:
        console.print(f"[red]✗[/] {escape(str(error))}")
        return USAGE
    console.print(f"[bold]{escape(str(path))}[/]")
    findings = examine(path, nb, original)
    for finding in findings:
        console.print(_line(finding))
    problems = [f for f in findings if not f.note]
    fixable = [f for f in problems if f.fixable]
    if not problems:
        console.print("[green]✓[/] Nothing here costs marks.")
        return CLEAN
    if not fixable:
        console.print("These are yours to change: nothing here can be repaired for you.")
        return PROBLEMS
    if not fix:
        console.print(
            f"Repair {len(fixable)} of {len(problems)} with --fix (a backup is kept)."
        )
        return PROBLEMS
    try:
        home, backup = write(path, repair.repaired(nb, original), original.name)
    except OSError as error:
        console.print(f"[red]✗[/] Nothing was changed: {escape(str(error))}")
        return PROBLEMS
    console.print(
        f"[green]✓[/] Repaired {escape(str(home))}. Before: {escape(backup.name)}"
    )
    console.print(
        "If it is open in Jupyter, close it there without saving, and open it again."
    )
    return CLEAN if fixable == problems else PROBLEMS


def _line(finding: Finding) -> str:
    mark = "[dim]·[/]" if finding.note else "[red]✗[/]"
    cell = f"cell {finding.cell}: " if finding.cell else ""
    return f"  {mark} {cell}{escape(finding.said)}"


def examine(path: Path, nb: NotebookNode, lab: Lab) -> list[Finding]:
    """All that is wrong with a notebook, problems before notes."""
    return [
        *_file(path, nb, lab),
        *_cells(nb, lab),
        *_answers(nb, lab),
        *_notes(path, nb, lab),
    ]


def _file(path: Path, nb: NotebookNode, lab: Lab) -> Iterator[Finding]:
    if path.stem != lab.name:
        taken = path.with_name(f"{lab.name}.ipynb").exists()
        also = "; there is one of that name, too: move away the one that is not yours"
        yield Finding(
            "renamed",
            f"the file has to be called {lab.name}.ipynb, or it is not graded"
            + (also if taken else ""),
            fixable=not taken,
        )
    major, minor = notebooks.version(path)
    if major != FORMAT:
        yield Finding(
            "old format", f"its format is {major}.{minor}, nbgrader reads {FORMAT}"
        )
    kernel = nb.metadata.get("kernelspec", {}).get("name")
    if kernel != KERNEL:
        yield Finding("kernel", f"its kernel is {kernel!r}; it has to be {KERNEL!r}")


def _cells(nb: NotebookNode, lab: Lab) -> Iterator[Finding]:
    """Where the lab's own cells are not what they were."""
    copies, originals = repair.match(nb, lab).copies(), dict(lab.named())
    lost = []
    for name, original in originals.items():
        if name not in copies:
            yield Finding("missing", f"the cell {name!r} of the lab is gone")
            continue
        *others, index = copies[name]
        if others:
            also = ", ".join(str(i + 1) for i in others)
            said = f"a copy of {name!r} (also in cell {also}); this is taken as your answer"
            yield Finding("duplicate", said, index + 1)
        cell = nb.cells[index]
        if grade_id(cell) != name or _settings(cell) != _settings(original):
            said = f"nbgrader no longer knows this as {name!r}"
            lost.append(Finding("metadata", said, index + 1))
        if cell.cell_type != original.cell_type:
            said = f"{name!r} has become {cell.cell_type}; it was {original.cell_type}"
            yield Finding("converted", said, index + 1)
        if not role(original, "solution") and _text(cell) != _text(original):
            what = "test" if is_test(original) else "text"
            yield Finding(f"edited {what}", f"the {what} of {name!r} was edited", index + 1)
    many = Finding("metadata", f"nbgrader's metadata are lost in {len(lost)} cells")
    yield from [many] if len(lost) > FEW else lost
    for index, cell in enumerate(nb.cells):
        if (stranger := grade_id(cell)) and stranger not in originals:
            yield Finding("stranger", f"{stranger!r} is no cell of this lab", index + 1)


def _text(cell: NotebookNode) -> str:
    return str(cell.source).strip()


def _settings(cell: NotebookNode) -> dict[str, object]:
    """What nbgrader decides by; the rest of its metadata it restores itself."""
    found = cell.metadata.get("nbgrader")
    keys = ("grade", "locked", "points", "solution", "task")
    return {key: found.get(key) for key in keys} if isinstance(found, dict) else {}


def _answers(nb: NotebookNode, lab: Lab) -> Iterator[Finding]:
    """Code of the learner's own that fails, or waits forever, when it is graded."""
    names, originals = repair.match(nb, lab).names, dict(lab.named())
    for number, cell in enumerate(nb.cells, start=1):
        original = originals.get(names.get(number - 1, ""))
        locked = original is not None and role(original, "locked")
        if locked or (original or cell).cell_type != "code":
            continue
        try:
            tree = ast.parse(_without_magics(cell.source))
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            said = f"Python cannot read this: {getattr(error, 'msg', error)}"
            if line := getattr(error, "lineno", None):
                said += f" (line {line})"
            yield Finding("syntax", said, number, fixable=False)
            continue
        called = {n.func.id for n in ast.walk(tree) if _is_named_call(n)}  # type: ignore[attr-defined]
        for name in ASKS:
            if name in called:
                said = f"`{name}()` waits for a keyboard, and nobody sits there at grading"
                yield Finding("input", said, number, fixable=False)


def _is_named_call(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name)


def _without_magics(source: str) -> str:
    """The source with IPython's own lines as `pass`, so that the rest can be parsed."""
    lines = []
    for line in source.splitlines():
        code = line.lstrip()
        magic = code.startswith(("%", "!", "?")) or line.rstrip().endswith("?")
        lines.append(line[: len(line) - len(code)] + "pass" if magic else line)
    return "\n".join(lines)


def _notes(path: Path, nb: NotebookNode, lab: Lab) -> Iterator[Finding]:
    """What the file alone can tell about work that is unfinished, not run or not saved."""
    copies = repair.match(nb, lab).copies()
    answers = [(n, c) for n, c in lab.named() if role(c, "solution")]
    empty = [
        n for n, c in answers if n in copies and repair.blank(nb.cells[copies[n][-1]], c)
    ]
    if empty:
        yield Finding("empty", f"still to be answered: {', '.join(empty)}", note=True)
    code = [(i, c) for i, c in enumerate(nb.cells, 1) if c.cell_type == "code" and c.source]
    never = [i for i, cell in code if cell.execution_count is None]
    if 0 < len(never) < len(code):
        told = ", ".join(map(str, never))
        yield Finding(
            "not run", f"never run since the outputs were cleared: {told}", note=True
        )
    saved = path.stat().st_mtime
    checkpoint = path.parent / ".ipynb_checkpoints" / f"{path.stem}-checkpoint.ipynb"
    if checkpoint.exists() and checkpoint.stat().st_mtime > saved + 2:
        newer = f"Jupyter's checkpoint is newer than the file: compare with {checkpoint}"
        yield Finding("checkpoint", newer, note=True)
    at = datetime.datetime.fromtimestamp(saved).strftime("%d %B, %H:%M")
    yield Finding(
        "saved", f"as saved on {at}; what is typed but not saved, no tool sees", note=True
    )


def write(path: Path, nb: NotebookNode, name: str) -> tuple[Path, Path]:
    """Write the repaired notebook under its right name; returns its path and the backup's.

    Raises `OSError` before anything is changed.
    """
    home = path.with_name(f"{name}.ipynb")
    if home != path and home.exists():
        raise FileExistsError(f"{home} exists already")
    stamp = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
    backup = path.with_name(f"{path.stem}.before-doctor-{stamp}.bak")
    shutil.copy2(path, backup)
    home.write_text(notebooks.dumps(nb), "utf-8", newline="\n")
    if home != path:
        path.unlink()
    return home, backup
