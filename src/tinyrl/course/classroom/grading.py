"""Mark a notebook's answers from outside: the tests run here, the answers elsewhere.

The tests come from the lab and never from the notebook that is marked, each runs by
itself, and a process that an answer kills is replaced before the next one.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import io
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from nbformat import NotebookNode

from tinyrl.course import check
from tinyrl.course.checking import messages
from tinyrl.course.checking.remote import Ended, NoProcess, Notebook, Process
from tinyrl.course.classroom.labs import Lab
from tinyrl.course.classroom.repair import repaired
from tinyrl.course.notebooks import grade_id, is_test
from tinyrl.course.printing import plain
from tinyrl.course.words import Words

ASKS = "_check"  # the name by which a test cell calls `check`


@dataclass(frozen=True)
class Mark:
    """The points of one test cell, and what there is to say where some are missing."""

    test: str
    exercise: str
    points: float
    out_of: float
    said: str = ""


@dataclass(frozen=True)
class Marks:
    """All marks of a notebook. `ended` are the cells that ended their process, and why."""

    marks: tuple[Mark, ...]
    ended: dict[int, str]

    @property
    def points(self) -> float:
        return sum(mark.points for mark in self.marks)

    @property
    def out_of(self) -> float:
        return sum(mark.out_of for mark in self.marks)


def grade(
    nb: NotebookNode,
    lab: Lab,
    tests: NotebookNode,
    *,
    launch: Callable[[], Process] = Process,
    seed: int | None = None,
) -> Marks:
    """Mark the answers in `nb` to a `lab` by the test cells of the notebook `tests`.

    With a `seed`, which nothing in a file can reveal, each test runs on those inputs too.
    """
    code = [c for c in repaired(nb, lab).cells if c.cell_type == "code" and not is_test(c)]
    answers = Notebook([cell.source for cell in code], launch)
    try:
        marks = tuple(_mark(answers, test, seed) for test in tests.cells if is_test(test))
        return Marks(marks, answers.killed)
    finally:
        answers.end()


def _mark(answers: Notebook, test: NotebookNode, seed: int | None) -> Mark:
    name, points = grade_id(test) or "", float(test.metadata.nbgrader.points)
    tree = ast.parse(test.source)
    exercise = next((asked for asked, _ in _asked(tree)), name)
    try:
        answers.start()
        with contextlib.redirect_stdout(io.StringIO()):
            _run(answers, tree, seed)
    except NoProcess:
        raise
    except (Exception, SystemExit) as error:
        return Mark(name, exercise, 0.0, points, _one_line(error))
    return Mark(name, exercise, points, points)


def _run(answers: Notebook, tree: ast.Module, seed: int | None) -> None:
    """Run a test cell with the notebook's functions at arm's length; raises if it fails."""
    names = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)} - set(vars(builtins))
    namespace: dict[str, Any] = {}
    for name in names - {ASKS}:
        with contextlib.suppress(KeyError):
            namespace[name] = answers.find(name)
    exec(compile(tree, "<test>", "exec"), namespace)
    for exercise, variable in _asked(tree):
        if seed is not None:
            check(exercise, namespace[variable], seed=seed)
        # The notebook's process told; a check in its own process may have been patched.
        if borrowed := answers.borrowed.get(variable):
            raise AssertionError(str(messages.borrowed(exercise, min(borrowed))))


def _asked(tree: ast.Module) -> list[tuple[str, str]]:
    """The exercise and the variable of each `_check("ratio", ratio)` in a test cell."""
    calls = [n for n in ast.walk(tree) if isinstance(n, ast.Call) and len(n.args) >= 2]
    asks = [c for c in calls if isinstance(c.func, ast.Name) and c.func.id == ASKS]
    pairs = [(c.args[0], c.args[1]) for c in asks]
    return [
        (str(exercise.value), variable.id)
        for exercise, variable in pairs
        if isinstance(exercise, ast.Constant) and isinstance(variable, ast.Name)
    ]


def _one_line(error: BaseException) -> str:
    said: object
    if isinstance(error, NameError):
        said = Words(
            f"nothing is called {error.name}: its cell is empty, or stopped before",
            f"没有叫 {error.name} 的东西：它的单元格是空的，或者在那之前就停了",
        )
    elif isinstance(error, Ended):
        said = Words(
            f"the notebook's cells do not run: {error}", f"笔记本的单元格无法运行：{error}"
        )
    else:
        said = error
    return plain(said)[:300] or type(error).__name__  # the text may be a student's
