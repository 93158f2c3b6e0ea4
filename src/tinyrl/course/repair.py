"""Bring a notebook back to what nbgrader can grade, without losing what a student wrote.

Each cell is matched to the one of the lab that it once was: by its nbgrader name, by the
function it defines, by its text, by the cells around it. What somebody wrote into one of
the lab's own cells is kept above it: kept.py.
"""

from __future__ import annotations

import difflib
import itertools
import re
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass

from nbformat import NotebookNode

from tinyrl.course.kept import is_kept, kept
from tinyrl.course.labs import Lab
from tinyrl.course.notebooks import copy, grade_id, ordinary, role

ALIKE = 0.6  # of two texts, by difflib: an edited cell is still the same one
DEFINES = re.compile(r"^(?:def|class)\s+(\w+)|^(\w+)\s*(?::[^=\n]+)?=(?!=)", re.MULTILINE)


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
        left = [(i, c) for i, c in left if c.source.strip() not in prose and not is_kept(c)]
        return [i for i, c in left if wanted(c)]

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
            text, mine = original.source, self.nb.cells[index].source
            most = 2 * min(len(text), len(mine)) / max(1, len(text) + len(mine))
            if most < ALIKE:  # a page of output takes difflib seconds
                return 0.0
            return difflib.SequenceMatcher(None, text, mine).ratio()

        best = max(self._free(lambda c: True), key=likeness, default=None)
        return best if best is not None and likeness(best) >= ALIKE else None

    def _by_place(self, name: str, original: NotebookNode) -> int | None:
        """The one cell of its type between the neighbours that the answer used to have.

        Of several, the one that stands directly below the neighbour.
        """
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
        sure = len(between) == 1 or low + 1 in between[:1]
        return between[0] if sure else None

    def copies(self) -> dict[str, list[int]]:
        """The indices of the cells with each name, the one to be graded last.

        That is the last one with work in it, wherever it stands; of a cell that is the
        lab's own, the last one that nobody has edited.
        """
        originals, by_name = dict(self.lab.named()), defaultdict(list)
        for index, name in sorted(self.names.items()):
            by_name[name].append(index)
        for name, at in by_name.items():
            wanted = role(originals[name], "solution")
            at.sort(key=lambda i: (self._edited(i, originals[name]) == wanted, i))
        return dict(by_name)

    def _edited(self, index: int, original: NotebookNode) -> bool:
        return not blank(self.nb.cells[index], original)


def match(nb: NotebookNode, lab: Lab) -> Matching:
    known = {name for name, _ in lab.named()}
    ids = {i: grade_id(cell) for i, cell in enumerate(nb.cells)}
    matching = Matching(nb, lab, {i: name for i, name in ids.items() if name in known})
    matching.find()
    return matching


def repaired(nb: NotebookNode, lab: Lab) -> NotebookNode:
    """`nb` with every cell of the lab in it, once, with its metadata and its locked text.

    Copies of an answer come together where the first one stood: the last one with work in
    it is graded, others with work become ordinary cells before it. A cell that is the
    lab's own stays where it is, and what somebody wrote into it is kept above it.
    """
    matching, originals = match(nb, lab), dict(lab.named())
    copies = matching.copies()
    cells: list[NotebookNode] = []
    for index, cell in enumerate(nb.cells):
        name = matching.names.get(index)
        if name is None:
            cells.append(ordinary(cell))
            continue
        original, (*others, graded) = originals[name], copies[name]
        if not role(original, "solution"):
            cells += kept(cell, original)
            cells += [_restored(cell, original)] if index == graded else []
        elif index == min(copies[name]):
            tries = [nb.cells[i] for i in others]
            cells += [ordinary(c) for c in tries if not blank(c, original)]
            cells.append(_restored(nb.cells[graded], original))
    _insert_missing(cells, lab)
    fixed = copy(lab.notebook)
    fixed.cells = cells
    _make_ids_unique(fixed)
    return fixed


def _restored(cell: NotebookNode, original: NotebookNode) -> NotebookNode:
    """The lab's cell with what is the student's: the answer, and what it printed."""
    fixed = copy(original)
    if role(original, "solution"):
        fixed.source = cell.source
        if fixed.cell_type != "code" and cell.get("attachments"):  # pasted pictures
            fixed.attachments = cell.attachments
    elif fixed.source.strip() != cell.source.strip():
        return fixed  # an edited test printed what this one may not
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
    everybody = {cell.get("id") for cell in nb.cells}
    taken = {cell.id for cell in nb.cells if grade_id(cell)}
    for number, cell in enumerate(nb.cells):
        if not grade_id(cell) and (cell.get("id") in taken or "id" not in cell):
            names = (f"own-{n}" for n in itertools.count(number))
            cell.id = next(name for name in names if name not in everybody)
            everybody.add(cell.id)
        taken.add(cell.id)
