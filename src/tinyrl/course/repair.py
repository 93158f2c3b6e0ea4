"""Bring a notebook back to what nbgrader can grade, without losing what a student wrote.

Each cell is matched to the one of the lab that it once was: by its nbgrader name, by the
function it defines, by its text, by the cells around it.
"""

from __future__ import annotations

import difflib
import re
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass

from nbformat import NotebookNode

from tinyrl.course.labs import Lab
from tinyrl.course.notebooks import copy, grade_id, role

ALIKE = 0.6  # of two texts, by difflib: an edited cell is still the same one
DEFINES = re.compile(r"^(?:def|class)\s+(\w+)|^(\w+)\s*(?::[^=]+)?=(?!=)", re.MULTILINE)


def defined(source: str) -> set[str]:
    """The names that a cell defines at its top level, whether or not it would compile."""
    return {name for pair in DEFINES.findall(source) for name in pair if name}


def blank(cell: NotebookNode, original: NotebookNode) -> bool:
    """Whether a cell holds nothing but what was released."""
    return cell.source.strip() in ("", original.source.strip())


@dataclass
class Matching:
    """Which cell of a notebook, by index, is which of the lab's cells, by name.

    Several cells can have the same name: copies.
    """

    nb: NotebookNode
    lab: Lab
    names: dict[int, str]

    def find(self) -> None:
        finders = (self._by_definition, self._by_text, self._by_likeness, self._by_place)
        for finder in finders:
            for name, original in self.lab.named():
                if name not in self.names.values():
                    index = finder(name, original)
                    if index is not None:
                        self.names[index] = name
        texts = {c.source.strip(): name for name, c in self.lab.named() if c.source.strip()}
        for i in self._free(
            lambda c: c.source.strip() in texts
        ):  # copies of what was released
            self.names[i] = texts[self.nb.cells[i].source.strip()]

    def _free(self, wanted: Callable[[NotebookNode], bool]) -> list[int]:
        """The cells that may be one of the lab's; its prose between them has no name."""
        prose = {c.source.strip() for c in self.lab.notebook.cells if not grade_id(c)}
        left = [(i, c) for i, c in enumerate(self.nb.cells) if i not in self.names]
        return [i for i, c in left if c.source.strip() not in prose and wanted(c)]

    def _by_definition(self, name: str, original: NotebookNode) -> int | None:
        """The last cell with work in it that defines what the answer's stub defines."""
        if not role(original, "solution"):
            return None
        at = self._free(
            lambda c: (
                bool(defined(original.source) & defined(c.source))
                and not blank(c, original)
            )
        )
        return at[-1] if at else None

    def _by_text(self, name: str, original: NotebookNode) -> int | None:
        text = original.source.strip()
        at = self._free(lambda c: bool(text) and c.source.strip() == text)
        return at[0] if at else None

    def _by_likeness(self, name: str, original: NotebookNode) -> int | None:
        """An edited locked cell; an answer need not look like its stub."""
        if role(original, "solution"):
            return None

        def likeness(index: int) -> float:
            text = self.nb.cells[index].source
            return difflib.SequenceMatcher(None, original.source, text).ratio()

        best = max(self._free(lambda c: True), key=likeness, default=None)
        return best if best is not None and likeness(best) >= ALIKE else None

    def _by_place(self, name: str, original: NotebookNode) -> int | None:
        """The one cell of its type between the neighbours that the answer used to have."""
        if not role(original, "solution"):
            return None
        order = [n for n, _ in self.lab.named()]
        at = order.index(name)
        before = [i for i, n in self.names.items() if n in order[:at]]
        after = [i for i, n in self.names.items() if n in order[at + 1 :]]
        low, high = max(before, default=-1), min(after, default=len(self.nb.cells))
        kind = original.cell_type
        free = self._free(lambda c: bool(c.source.strip()) and c.cell_type == kind)
        between = [i for i in free if low < i < high]
        return between[0] if len(between) == 1 else None

    def copies(self) -> dict[str, list[int]]:
        """The indices of the cells with each name, the one to be graded last.

        That is the last one with work in it, wherever it stands.
        """
        originals, by_name = dict(self.lab.named()), defaultdict(list)
        for index, name in sorted(self.names.items()):
            by_name[name].append(index)
        for name, at in by_name.items():
            at.sort(key=lambda i: (not blank(self.nb.cells[i], originals[name]), i))
        return dict(by_name)


def match(nb: NotebookNode, lab: Lab) -> Matching:
    known = {name for name, _ in lab.named()}
    ids = {i: grade_id(cell) for i, cell in enumerate(nb.cells)}
    matching = Matching(nb, lab, {i: name for i, name in ids.items() if name in known})
    matching.find()
    return matching


def repaired(nb: NotebookNode, lab: Lab) -> NotebookNode:
    """`nb` with every cell of the lab in it, once, with its metadata and its locked text.

    Copies of an answer come together where the first one stood: the last one with work in
    it is graded, others with work become ordinary cells before it.
    """
    matching, originals = match(nb, lab), dict(lab.named())
    copies = matching.copies()
    cells: list[NotebookNode] = []
    for index, cell in enumerate(nb.cells):
        name = matching.names.get(index)
        if name is None:
            cells.append(_ordinary(cell))
        elif index == min(copies[name]):
            *others, graded = (nb.cells[i] for i in copies[name])
            cells += [_ordinary(c) for c in others if not blank(c, originals[name])]
            cells.append(_restored(graded, originals[name]))
    _insert_missing(cells, lab)
    fixed = copy(lab.notebook)
    fixed.cells = cells
    _make_ids_unique(fixed)
    return fixed


def _ordinary(cell: NotebookNode) -> NotebookNode:
    """A cell that nbgrader leaves alone."""
    cell = copy(cell)
    for key in ("nbgrader", "deletable", "editable"):
        cell.metadata.pop(key, None)
    return cell


def _restored(cell: NotebookNode, original: NotebookNode) -> NotebookNode:
    """The lab's cell with what is the student's: the answer, and what it printed."""
    fixed = copy(original)
    if role(original, "solution"):
        fixed.source = cell.source
    if fixed.cell_type == cell.cell_type == "code":
        fixed.outputs, fixed.execution_count = cell.outputs, cell.execution_count
    return fixed


def _insert_missing(cells: list[NotebookNode], lab: Lab) -> None:
    """Put every cell of the lab that is not there after the one that came before it."""
    at = 0
    for name, original in lab.named():
        where = next((i for i, c in enumerate(cells) if grade_id(c) == name), None)
        if where is None:
            where = at
            cells.insert(at, copy(original))
        at = where + 1


def _make_ids_unique(nb: NotebookNode) -> None:
    taken = {cell.id for cell in nb.cells if grade_id(cell)}
    for number, cell in enumerate(nb.cells):
        if not grade_id(cell) and (cell.get("id") in taken or "id" not in cell):
            cell.id = f"own-{number}"
        taken.add(cell.id)
