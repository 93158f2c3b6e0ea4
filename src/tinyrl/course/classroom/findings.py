"""What silently costs marks in a notebook: it is compared with the lab as released.

nbgrader says nothing to a student whose notebook it cannot match: a copied or moved cell,
lost metadata or another file name give zero.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from nbformat import NotebookNode

from tinyrl.course import notebooks
from tinyrl.course.classroom import repair
from tinyrl.course.classroom.kept_edits import kept
from tinyrl.course.classroom.labs import Lab
from tinyrl.course.classroom.runnable import troubles
from tinyrl.course.notebooks import grade_id, is_test, role
from tinyrl.course.words import Words

KERNEL = "python3"
FORMAT = 4  # nbformat's major version
FEW = 3  # cells that are named one by one

TAKEN = Words(
    "; there is one of that name, too: move away the one that is not yours",
    "；这个名字的文件已经存在：请移走不是你的那一份",
)
RESTORES = Words("; --fix restores it", "；--fix 会恢复它")
KEEPS = Words(
    " and keeps your version in a cell above it", "，并把你的版本保留在上方的一个单元格里"
)
NOT_RUN = Words(", where it is not run", "（不会运行）")


@dataclass(frozen=True)
class Finding:
    """One thing that costs marks, or may (a `note`). `cell` counts from 1.

    `remedy` says what --fix does, where that is not plain from what is `said`.
    """

    kind: str
    said: Words
    cell: int | None = None
    fixable: bool = True
    note: bool = False
    remedy: str = ""

    def __str__(self) -> str:
        cell = Words(f"cell {self.cell}: ", f"第 {self.cell} 格：") if self.cell else ""
        return f"{cell}{self.said}{self.remedy}"


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
        said = Words(
            f"the file has to be called {lab.name}.ipynb, or it is not graded",
            f"文件必须叫 {lab.name}.ipynb，否则不会评分",
        )
        yield Finding("renamed", said, fixable=not taken, remedy=str(TAKEN) * taken)
    major, minor = notebooks.version(path)
    if major != FORMAT:
        said = Words(
            f"its format is {major}.{minor}, nbgrader reads {FORMAT}",
            f"文件格式是 {major}.{minor}，nbgrader 只读 {FORMAT}",
        )
        yield Finding("old format", said)
    if notebooks.has_bom(path):
        said = Words(
            "the file begins with a mark that nbgrader cannot read",
            "文件开头有 nbgrader 读不了的标记（BOM）",
        )
        yield Finding("byte order mark", said)
    kernel = nb.metadata.get("kernelspec", {}).get("name")
    if kernel != KERNEL:
        said = Words(
            f"its kernel is {kernel!r}; it has to be {KERNEL!r}",
            f"内核是 {kernel!r}，必须是 {KERNEL!r}",
        )
        yield Finding("kernel", said)


def _cells(nb: NotebookNode, lab: Lab) -> Iterator[Finding]:
    """Where the lab's own cells are not what they were."""
    copies, originals = repair.match(nb, lab).copies(), dict(lab.named())
    lost = []
    for name, original in originals.items():
        if name not in copies:
            said = Words(f"the cell {name!r} of the lab is gone", f"缺少实验的 {name!r} 格")
            yield Finding("missing", said)
            continue
        *others, index = copies[name]
        cell, answer = nb.cells[index], role(original, "solution")
        if others:
            yield Finding("duplicate", _copy(name, others, answer), index + 1)
        if grade_id(cell) != name or _settings(cell) != _settings(original):
            said = Words(
                f"nbgrader no longer knows this as {name!r}",
                f"nbgrader 认不出这是 {name!r}",
            )
            lost.append(Finding("metadata", said, index + 1))
        if cell.cell_type != original.cell_type:
            said = Words(
                f"{name!r} has become {cell.cell_type}; it was {original.cell_type}",
                f"{name!r} 变成了 {cell.cell_type}，原来是 {original.cell_type}",
            )
            yield Finding("converted", said, index + 1)
        if not answer:
            yield from _edits(nb, name, original, copies[name])
    many = Words(
        f"nbgrader's metadata are lost in {len(lost)} cells",
        f"有 {len(lost)} 格丢了 nbgrader 的元数据",
    )
    yield from [Finding("metadata", many)] if len(lost) > FEW else lost
    for index, cell in enumerate(nb.cells):
        if (stranger := grade_id(cell)) and stranger not in originals:
            said = Words(
                f"{stranger!r} is no cell of this lab", f"{stranger!r} 不属于本实验"
            )
            yield Finding("stranger", said, index + 1)


def _copy(name: str, others: list[int], answer: bool) -> Words:
    also = ", ".join(str(i + 1) for i in others)
    taken = "this is taken as your answer" if answer else "this one counts"
    return Words(
        f"a copy of {name!r} (also in cell {also}); {taken}",
        f"{name!r} 有多份（另见第 {also} 格）；以这一份为准",
    )


def _order(nb: NotebookNode, lab: Lab) -> Iterator[Finding]:
    """Which of the lab's own cells, or of the answers, stand too far up or down."""
    matching, above, moved = repair.match(nb, lab), "", []
    copies, places = matching.copies(), matching.places()
    for name, _ in lab.named():
        if name in copies and name not in places:
            where = f"below {above!r}" if above else "first"
            said = Words(
                f"{name!r} is not where the lab has it; it belongs {where}",
                f"{name!r} 不在原来的位置，应在"
                + (f" {above!r} 之下" if above else "最前"),
            )
            moved.append(Finding("moved", said, copies[name][-1] + 1))
        above = name
    many = Words(
        f"{len(moved)} cells are not where the lab has them",
        f"有 {len(moved)} 格不在原来的位置",
    )
    yield from [Finding("moved", many)] if len(moved) > FEW else moved


def _edits(
    nb: NotebookNode, name: str, original: NotebookNode, copies: list[int]
) -> Iterator[Finding]:
    """Which copies of a cell that is the lab's own have another text now."""
    what = "test" if is_test(original) else "text"
    said = Words(
        f"the {what} of {name!r} was edited",
        f"{name!r} 的{'测试' if what == 'test' else '文字'}被改过",
    )
    for index in sorted(copies):
        if _text(nb.cells[index]) == _text(original):
            continue
        remedy = str(RESTORES)
        for mine in kept(nb.cells[index], original):
            remedy += str(KEEPS) + str(NOT_RUN) * (mine.cell_type == "raw")
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
    matching = repair.match(nb, lab)
    if empty := _empty(nb, lab, matching):
        told = ", ".join(empty)
        said = Words(f"still to be answered: {told}", f"还没有作答：{told}")
        yield Finding("empty", said, note=True)
    code = [(i, c) for i, c in enumerate(nb.cells, 1) if c.cell_type == "code" and c.source]
    never = [i for i, cell in code if cell.execution_count is None]
    if 0 < len(never) < len(code):
        yield Finding("not run", _never_run(never, matching.names), note=True)
    saved = path.stat().st_mtime
    checkpoint = path.parent / ".ipynb_checkpoints" / f"{path.stem}-checkpoint.ipynb"
    if checkpoint.exists() and checkpoint.stat().st_mtime > saved + 2:
        said = Words(
            f"Jupyter's checkpoint is newer than the file: compare with {checkpoint}",
            f"Jupyter 的检查点比文件新：请与 {checkpoint} 对照",
        )
        yield Finding("checkpoint", said, note=True)
    at = datetime.datetime.fromtimestamp(saved)
    said = Words(
        f"as saved on {at:%d %B, %H:%M}; what is typed but not saved, no tool sees",
        f"这是 {at:%m-%d %H:%M} 保存的版本；输入了但没有保存的内容，任何工具都看不到",
    )
    yield Finding("saved", said, note=True)


def _empty(nb: NotebookNode, lab: Lab, matching: repair.Matching) -> list[str]:
    """The answers that hold nothing but what was released."""
    copies = matching.copies()
    answers = [(n, c) for n, c in lab.named() if n in copies and role(c, "solution")]
    return [n for n, c in answers if repair.blank(nb.cells[copies[n][-1]], c)]


def _never_run(cells: list[int], names: dict[int, str]) -> Words:
    """By the names of the lab's cells; others have only a number."""
    en = (f"{names[i - 1]} (cell {i})" if i - 1 in names else f"cell {i}" for i in cells)
    zh = (f"{names[i - 1]}（第 {i} 格）" if i - 1 in names else f"第 {i} 格" for i in cells)
    return Words(
        f"never run since the outputs were cleared: {', '.join(en)}",
        f"清除输出后还没有运行过：{'、'.join(zh)}",
    )
