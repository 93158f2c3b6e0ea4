"""Bring a notebook back to what nbgrader can grade, without losing what a student wrote.

Each cell is matched to the one of the lab that it once was: by its nbgrader name, by the
function it defines, by its text, by the cells around it. All of them get the lab's order
back. What somebody wrote into one of the lab's own cells is kept above it: kept_edits.py.
"""

from __future__ import annotations

import difflib
import itertools
import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from nbformat import NotebookNode

from tinyrl.course.classroom.kept_edits import is_kept, kept
from tinyrl.course.classroom.labs import Lab
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
class Row:
    """Cells that stand in the lab's order, and how glad we are of each of them."""

    places: dict[str, int] = field(default_factory=dict)
    good: int = 0

    def worth(self) -> tuple[int, int]:
        return len(self.places), self.good


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

        texts = difflib.SequenceMatcher(b=original.source)

        def likeness(index: int) -> float:
            texts.set_seq1(self.nb.cells[index].source)
            # a page of output takes difflib seconds
            return texts.ratio() if texts.real_quick_ratio() >= ALIKE else 0.0

        best = max(self._free(lambda c: True), key=likeness, default=None)
        return best if best is not None and likeness(best) >= ALIKE else None

    def _by_place(self, name: str, original: NotebookNode) -> int | None:
        """The one cell of its type between the neighbours that the answer used to have.

        Of several texts, the one that stands directly below the neighbour: it follows a
        question. Code may as well be a scratch cell whose answer was deleted.
        """
        if not role(original, "solution"):
            return None
        order = [n for n, _ in self.lab.named()]
        at = order.index(name)
        places = self.places()
        before = [places[n] for n in order[:at] if n in places]
        after = [places[n] for n in order[at + 1 :] if n in places]
        low, high = max(before, default=-1), min(after, default=len(self.nb.cells))
        kind = original.cell_type
        free = self._free(lambda c: bool(c.source.strip()) and c.cell_type == kind)
        between = [i for i in free if low < i < high]
        sure = len(between) == 1 or (kind == "markdown" and low + 1 in between[:1])
        return between[0] if sure else None

    def places(self) -> dict[str, int]:
        """The index of each of the lab's cells that stands in the lab's order.

        As many as can be: who is not here was moved. Of copies that keep the order it is
        the first, of a cell that is the lab's own rather one that nobody has edited.
        """
        cells = list(self.lab.named())
        order = {name: at for at, (name, _) in enumerate(cells)}
        best: dict[int, Row] = {}  # by the number of its last cell
        for index, name in sorted(self.names.items()):
            at, original = order[name], cells[order[name]][1]
            rows = (row for last, row in best.items() if last < at)
            before = max(rows, key=Row.worth, default=Row())
            # where a test and its answer have changed places, the test was moved
            answer = role(original, "solution")
            good = 2 if answer else int(not self._edited(index, original))
            row = Row({**before.places, name: index}, before.good + good)
            if at not in best or row.worth() > best[at].worth():
                best[at] = row
        return max(best.values(), key=Row.worth, default=Row()).places

    def copies(self) -> dict[str, list[int]]:
        """The indices of the cells with each name, the one to be graded last.

        That is the last one with work in it, wherever it stands; of a cell that is the
        lab's own, the one in its place, or else the last one that nobody has edited.
        """
        originals, by_name = dict(self.lab.named()), defaultdict(list)
        places = self.places()
        for index, name in sorted(self.names.items()):
            by_name[name].append(index)
        for name, at in by_name.items():
            answer, place = role(originals[name], "solution"), places.get(name)
            edited = {i: self._edited(i, originals[name]) for i in at}
            at.sort(key=lambda i: (not answer and i == place, edited[i] == answer, i))
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

    Copies of an answer come together where the first one in its place stood: the last one
    with work in it is graded, others with work become ordinary cells before it. What
    somebody wrote into a cell that is the lab's own is kept above it. Where such cells
    are not in the lab's order, that is restored: each other cell goes where the cell of
    the lab goes that it follows.
    """
    matching = match(nb, lab)
    copies, places = matching.copies(), matching.places()
    number = {_mark(cell): at for at, cell in enumerate(lab.notebook.cells)}
    at, numbered = -1, list[tuple[int, NotebookNode]]()
    for made in _replaced(matching, copies, places):
        at = next((number[_mark(c)] for c in made if _mark(c) in number), at)
        numbered += [(at, cell) for cell in made]
    if len(places) < len(copies):
        numbered.sort(key=lambda pair: pair[0])
    cells = [cell for _, cell in numbered]
    _insert_missing(cells, lab)
    fixed = copy(lab.notebook)
    fixed.cells = cells
    _make_ids_unique(fixed)
    return fixed


def _mark(cell: NotebookNode) -> tuple[str | None, str]:
    """By what a cell of the lab is known in a repaired notebook: its name, or its text."""
    name = grade_id(cell)
    return name, "" if name else cell.source.strip()


def _replaced(
    matching: Matching, copies: dict[str, list[int]], places: dict[str, int]
) -> Iterator[list[NotebookNode]]:
    """What each cell of the notebook becomes."""
    originals, nb = dict(matching.lab.named()), matching.nb
    for index, cell in enumerate(nb.cells):
        name = matching.names.get(index)
        if name is None:
            yield [ordinary(cell)]
            continue
        original, (*others, graded) = originals[name], copies[name]
        if not role(original, "solution"):
            restored = [_restored(cell, original)] if index == graded else []
            yield kept(cell, original) + restored
        elif index == places.get(name, min(copies[name])):
            tries = [nb.cells[i] for i in others if not blank(nb.cells[i], original)]
            yield [*map(ordinary, tries), _restored(nb.cells[graded], original)]


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
