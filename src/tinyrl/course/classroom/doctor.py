"""`tinyrl lab doctor`: what silently costs marks in nbgrader, found and repaired.

nbgrader says nothing to a student whose notebook it cannot match: a copied or moved cell,
lost metadata or another file name give zero. The doctor compares the notebook with the lab
as it was released, says what is wrong in which cell, and with `fix` writes a repaired file,
after a backup.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from nbformat import NotebookNode
from rich.console import Console
from rich.markup import escape

from tinyrl.course import notebooks, saving
from tinyrl.course.classroom import labs, repair
from tinyrl.course.classroom.kept import kept
from tinyrl.course.classroom.labs import Lab, NoSuchLab
from tinyrl.course.classroom.runnable import troubles
from tinyrl.course.notebooks import BadNotebook, grade_id, is_test, role
from tinyrl.course.printing import console, plain

CLEAN, PROBLEMS, USAGE = 0, 1, 2
KERNEL = "python3"
FORMAT = 4  # nbformat's major version
FEW = 3  # cells that are named one by one


@dataclass(frozen=True)
class Finding:
    """One thing that costs marks, or may (a `note`). `cell` counts from 1.

    `remedy` says what --fix does, where that is not plain from what is `said`.
    """

    kind: str
    said: str
    cell: int | None = None
    fixable: bool = True
    note: bool = False
    remedy: str = ""


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
        out.print("[green]✓[/] Nothing here costs marks.")
        return CLEAN
    if not fixable:
        out.print("These are yours to change: nothing here can be repaired for you.")
        return PROBLEMS
    if not fix:
        out.print(
            f"Repair {len(fixable)} of {len(problems)} with --fix (a backup is kept)."
        )
        return PROBLEMS
    done = _repair(out, path, nb, original)
    return CLEAN if done and fixable == problems else PROBLEMS


def _repair(out: Console, path: Path, nb: NotebookNode, lab: Lab) -> bool:
    """Write the repaired notebook and say so; False where it could not be written."""
    try:
        home, backup = write(path, repair.repaired(nb, lab), lab.name)
    except OSError as error:
        out.print(f"[red]✗[/] Nothing was changed: {escape(plain(error))}")
        return False
    before = escape(plain(backup.name))
    out.print(f"[green]✓[/] Repaired {escape(plain(home))}. Before: {before}")
    out.print("If it is open in Jupyter, close it there without saving, and open it again.")
    return True


def _line(finding: Finding) -> str:
    mark = "[dim]·[/]" if finding.note else "[red]✗[/]"
    cell = f"cell {finding.cell}: " if finding.cell else ""
    remedy = f"; {finding.remedy}" if finding.remedy else ""
    return f"  {mark} {cell}{escape(plain(finding.said + remedy))}"


def examine(path: Path, nb: NotebookNode, lab: Lab) -> list[Finding]:
    """All that is wrong with a notebook, problems before notes."""
    return [
        *_file(path, nb, lab),
        *_cells(nb, lab),
        *_order(nb, lab),
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
    if notebooks.has_bom(path):
        yield Finding(
            "byte order mark", "the file begins with a mark that nbgrader cannot read"
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
        cell, answer = nb.cells[index], role(original, "solution")
        if others:
            also = ", ".join(str(i + 1) for i in others)
            taken = "this is taken as your answer" if answer else "this one counts"
            said = f"a copy of {name!r} (also in cell {also}); {taken}"
            yield Finding("duplicate", said, index + 1)
        if grade_id(cell) != name or _settings(cell) != _settings(original):
            said = f"nbgrader no longer knows this as {name!r}"
            lost.append(Finding("metadata", said, index + 1))
        if cell.cell_type != original.cell_type:
            said = f"{name!r} has become {cell.cell_type}; it was {original.cell_type}"
            yield Finding("converted", said, index + 1)
        if not answer:
            yield from _edits(nb, name, original, copies[name])
    many = Finding("metadata", f"nbgrader's metadata are lost in {len(lost)} cells")
    yield from [many] if len(lost) > FEW else lost
    for index, cell in enumerate(nb.cells):
        if (stranger := grade_id(cell)) and stranger not in originals:
            yield Finding("stranger", f"{stranger!r} is no cell of this lab", index + 1)


def _order(nb: NotebookNode, lab: Lab) -> Iterator[Finding]:
    """Which of the lab's own cells, or of the answers, stand too far up or down."""
    matching, above, moved = repair.match(nb, lab), "", []
    copies, places = matching.copies(), matching.places()
    for name, _ in lab.named():
        if name in copies and name not in places:
            where = f"below {above!r}" if above else "first"
            said = f"{name!r} is not where the lab has it; it belongs {where}"
            moved.append(Finding("moved", said, copies[name][-1] + 1))
        above = name
    many = Finding("moved", f"{len(moved)} cells are not where the lab has them")
    yield from [many] if len(moved) > FEW else moved


def _edits(
    nb: NotebookNode, name: str, original: NotebookNode, copies: list[int]
) -> Iterator[Finding]:
    """Which copies of a cell that is the lab's own have another text now."""
    what = "test" if is_test(original) else "text"
    for index in sorted(copies):
        if _text(nb.cells[index]) == _text(original):
            continue
        remedy = "--fix restores it"
        for mine in kept(nb.cells[index], original):
            where = ", where it is not run" if mine.cell_type == "raw" else ""
            remedy += f" and keeps your version in a cell above it{where}"
        said = f"the {what} of {name!r} was edited"
        yield Finding(f"edited {what}", said, index + 1, remedy=remedy)


def _text(cell: NotebookNode) -> str:
    return str(cell.source).strip()


def _settings(cell: NotebookNode) -> dict[str, object]:
    """What nbgrader decides by; the rest of its metadata it restores itself."""
    found = cell.metadata.get("nbgrader")
    keys = ("grade", "locked", "points", "solution", "task")
    return {key: found.get(key) for key in keys} if isinstance(found, dict) else {}


def _answers(nb: NotebookNode, lab: Lab) -> Iterator[Finding]:
    """Code of the learner's own that fails, or waits forever, when it is graded.

    An edit of a code cell of the lab is that, too: it will run as a cell of its own.
    """
    names, originals = repair.match(nb, lab).names, dict(lab.named())
    for number, cell in enumerate(nb.cells, start=1):
        original = originals.get(names.get(number - 1, ""))
        answer = original is not None and role(original, "solution")
        mine = [original or cell] if answer or original is None else kept(cell, original)
        if any(c.cell_type == "code" for c in mine):
            for kind, said in troubles(cell.source, answer):
                yield Finding(kind, said, number, fixable=False)


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
