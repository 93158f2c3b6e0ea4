"""What the doctor takes for code that Python cannot read, and what not."""

from __future__ import annotations

import warnings
from pathlib import Path

import nbformat
import pytest

from adversaries.students import cell, own
from submissions import LAB, good, save
from tinyrl.course import notebooks
from tinyrl.course.classroom import doctor


def kinds(folder: Path, code: str) -> list[str]:
    nb = good()
    nb.cells.append(own(code))
    return [f.kind for f in doctor.examine(save(folder, nb), nb, LAB) if not f.note]


@pytest.mark.parametrize(
    "code",
    [
        "values = [\n    1,  # is this one right?\n]",
        "text = 'one line\u2028of two'\nform = 'a\x0cb'",
        "total = (7\n% 3)",
        "files = !ls",
        "%%bash\nls -l | wc",
        "%%time\nx = 1",
        "best = %timeit -o sum([1])",
        "?ratio",
        "await task",
        "path = 'C:\\data'",
        "%%timeit\nsum([1])",
        "%%writefile notes.txt\nhello",
        "async with lock:\n    x = [i async for i in stream]",
        "1 is 1",
    ],
)
def test_what_ipython_runs_is_no_problem(tmp_path: Path, code: str) -> None:
    with warnings.catch_warnings(action="error"):
        assert kinds(tmp_path, code) == []


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("%%time\ndef f(:", "syntax"),
        ("%matplotlib inline\nx = (", "syntax"),
        ("%%time\nx = input()", "input"),
        ("x = '\ud800'", "syntax"),
        ("x = 1\0", "syntax"),
        ("(" * 5000, "syntax"),
        ("%time 1\n" * 600 + "x = (", "syntax"),
        ("return 1", "syntax"),
        ("for i in a:\n    pass\nbreak", "syntax"),
        ("continue", "syntax"),
        ("def f(x, x):\n    pass", "syntax"),
        ("nonlocal x", "syntax"),
        ("def f():\n    x = 1\n    global x", "syntax"),
        ("class A:\n    yield 1", "syntax"),
        ("def f():\n    await g()", "syntax"),
        ("x = 1\nfrom __future__ import annotations", "syntax"),
        ("%%time\nreturn 1", "syntax"),
        ("!ls\nbreak", "syntax"),
    ],
)
def test_what_it_cannot_is_one(tmp_path: Path, code: str, kind: str) -> None:
    assert kinds(tmp_path, code) == [kind]


@pytest.mark.parametrize(
    ("magic", "found"),
    [
        *[(m, []) for m in ("%%time", "%%capture out", "%%prun -q", " \n%%time")],
        *[(m, ["magic"]) for m in ("%%timeit", "%%writefile a.py", "%%file a.py")],
        *[
            (m, ["magic"])
            for m in ("%%bash", "%%html", "%%script python", "\n%%timeit -n1")
        ],
    ],
)
def test_an_answer_under_a_magic_has_to_define_something(
    tmp_path: Path, magic: str, found: list[str]
) -> None:
    nb = good()
    cell(nb, "ratio").source = f"{magic}\n{cell(nb, 'ratio').source}"
    problems = [f for f in doctor.examine(save(tmp_path, nb), nb, LAB) if not f.note]
    assert [f.kind for f in problems] == found
    assert all(f.cell == 22 and not f.fixable for f in problems)
    assert all("defines nothing" in f.said.en for f in problems)


@pytest.mark.parametrize("name", ["setup", "by_hand"])
@pytest.mark.parametrize(
    ("code", "kind"),
    [("x = input()", "input"), ("breakpoint()", "input"), ("x = (", "syntax")],
)
def test_what_is_kept_as_code_is_read_before_and_after(
    tmp_path: Path, name: str, code: str, kind: str
) -> None:
    nb = good()
    cell(nb, name).source += f"\n{code}"
    path = save(tmp_path, nb)
    before = [f.kind for f in doctor.examine(path, nb, LAB) if not f.note]
    assert before == ["edited text", kind]
    assert doctor.run(path, fix=True) == doctor.PROBLEMS
    fixed = notebooks.read(path)
    after = [f.kind for f in doctor.examine(path, fixed, LAB) if not f.note]
    assert after == [kind]


def test_what_no_kernel_will_run_is_not_read(tmp_path: Path) -> None:
    nb = good()
    cell(nb, "ratio_test").source += "\nx = input("
    path = save(tmp_path, nb)
    assert doctor.run(path, fix=True) == doctor.CLEAN
    assert doctor.run(path) == doctor.CLEAN


@pytest.mark.parametrize(
    "content",
    [
        "null",
        "[]",
        "{}",
        '{"nbformat": 4}',
        '{"nbformat": 99, "nbformat_minor": 0, "metadata": {}, "cells": []}',
        '{"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": [{}]}',
        '{"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": 3}',
        '{"nbformat": 3, "nbformat_minor": null, "metadata": {}, "worksheets": []}',
        "[" * 100_000,
        "\ufeff\ufeff{}",
        "1" * 5000,
    ],
    ids=lambda content: content[:60],
)
def test_a_file_that_is_no_lab_is_refused_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str
) -> None:
    path = tmp_path / "x.ipynb"
    path.write_text(content, "utf-8")
    assert doctor.run(path, fix=True) == doctor.USAGE
    assert capsys.readouterr().out.count("\n") == 1
    assert path.read_text("utf-8") == content


def test_a_version_that_is_missing_is_zero(tmp_path: Path) -> None:
    path = tmp_path / "x.ipynb"
    text = nbformat.writes(good(), version=3)
    path.write_text(text.replace('"nbformat_minor": 0', '"nbformat_minor": null'))
    assert notebooks.version(path) == (3, 0)
