"""What the doctor takes for code that Python cannot read, and what not."""

from __future__ import annotations

import warnings
from pathlib import Path

import nbformat
import pytest

from adversaries.students import own
from test_doctor import LAB, good, save
from tinyrl.course import doctor, notebooks


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
    ],
)
def test_what_it_cannot_is_one(tmp_path: Path, code: str, kind: str) -> None:
    assert kinds(tmp_path, code) == [kind]


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
