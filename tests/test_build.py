"""The builder: the same sources give the same bytes, and nothing but what it promises."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import jupytext
import nbformat
import pytest
from nbformat import NotebookNode

from tinyrl.course import notebooks, sources
from tinyrl.course.authoring import build
from tinyrl.course.authoring.build import RELEASED
from tinyrl.course.sources import BuildError

ROOT = Path(__file__).parents[1]


def nbgrader(name: str, role: str, points: int | None = None) -> str:
    """The metadata of a cell in a text notebook's header."""
    roles = {key: key in role for key in ("grade", "locked", "solution", "task")}
    meta = {**roles, "grade_id": name, "schema_version": 3}
    return f"nbgrader={json.dumps(meta | ({'points': points} if points else {}))}"


LAB = f"""\
# %% [markdown] {nbgrader("intro", "locked")}
# # A lab

# %%
print("free")

# %% {nbgrader("double", "solution")}
def double(x):
    ### BEGIN SOLUTION
    return 2 * x  # the secret
    ### END SOLUTION

# %% {nbgrader("double_test", "grade locked", points=2)}
assert double(2) == 4
### BEGIN HIDDEN TESTS
assert double(3) == 6  # the secret
### END HIDDEN TESTS
"""
LESSON = """\
# %% [markdown]
# # A lesson

# %% id="chosen" tags=["hide-input"]
# %matplotlib inline
x = 1

# %%
x

# %%
x
"""
LAB_FILE = Path("labs/lab99_tiny/lab99_tiny.ipynb")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small course of its own, built."""
    root = tmp_path_factory.mktemp("course")
    shutil.copy(ROOT / "nbgrader_config.py", root)
    for name, text in {"solutions/lab99_tiny.py": LAB, "notebooks/00_a.py": LESSON}.items():
        (root / name).parent.mkdir()
        (root / name).write_text(text)
    done = command(root)
    assert done.returncode == 0, done.stderr
    return root


@pytest.fixture
def course(built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of it to spoil, and the folder in which the test runs."""
    copy = shutil.copytree(built, tmp_path / "copy")
    monkeypatch.chdir(copy)
    return copy


@pytest.fixture(scope="module")
def made(built: Path) -> dict[Path, str]:
    return build.build(built)


def command(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The builder as `make` runs it, from an environment that is not activated."""
    bare = {**os.environ, "PATH": os.defpath}
    run = [sys.executable, "-m", "tinyrl.course.authoring.build", *arguments]
    return subprocess.run(run, cwd=root, env=bare, capture_output=True, text=True)


def lesson(text: str) -> NotebookNode:
    nb = jupytext.reads(text, fmt="py:percent")
    return sources.canonical(nb, "00_a")


def test_this_repository_is_what_its_sources_generate() -> None:
    done = command(ROOT, "--check")
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_second_build_gives_the_same_bytes_and_writes_nothing(
    course: Path, built: Path, made: dict[Path, str]
) -> None:
    assert len(made) == 4
    for path, text in made.items():
        assert (built / path).read_bytes() == text.encode()
    assert build.write(course, made) == ([], [])
    assert build.differences(course, made) == []
    for path in [LAB_FILE, Path("notebooks/00_a.ipynb")]:
        (course / path).unlink()
        assert build.write(course, made) == ([path], [])


def test_built_notebooks_hold_no_outputs_no_pairing_no_place_and_no_time(
    course: Path,
) -> None:
    for path in [course / LAB_FILE, course / "notebooks/00_a.ipynb"]:
        nb = notebooks.read(path)
        stamp = {"tinyrl"} if path.parent.name == "notebooks" else set()
        assert set(nb.metadata) == {"kernelspec", "language_info", *stamp}
        assert nb.metadata.kernelspec.name == "python3"
        assert nb.metadata.language_info == {"name": "python"}
        assert (nb.nbformat, nb.nbformat_minor) == (4, 5)
        for cell in nb.cells:
            assert cell.get("outputs", []) == []
            assert cell.get("execution_count") is None
        text = path.read_text()
        assert "jupytext" not in text
        assert str(course) not in text
        assert not re.search(r"\d{4}-\d\d-\d\d", text)
        assert text.endswith("}\n")


def test_the_release_is_one_notebook_without_the_secrets(course: Path) -> None:
    released = [p.name for p in (course / "labs").rglob("*") if p.is_file()]
    assert released == [LAB_FILE.name]
    text = (course / LAB_FILE).read_text()
    assert "the secret" not in text
    assert "HIDDEN" not in text
    assert "NotImplementedError" in text
    assert (course / RELEASED / LAB_FILE.name).read_text() == text
    source = (course / "solutions/lab99_tiny/lab99_tiny.ipynb").read_text()
    assert source.count("the secret") == 2


def test_ids_are_chosen_or_follow_the_cell_and_an_edit_leaves_the_others_alone() -> None:
    before = [cell.id for cell in lesson(LESSON).cells]
    assert before[1] == "chosen"
    assert len(set(before)) == 4
    after = [cell.id for cell in lesson(LESSON.replace("A lesson", "A better one")).cells]
    assert after[0] != before[0]
    assert after[1:] == before[1:]
    more = [cell.id for cell in lesson("# %%\nnew = 1\n\n" + LESSON).cells]
    assert more[1:] == before
    tiny = sources.canonical(jupytext.reads(LAB, fmt="py:percent"), "lab99_tiny")
    assert [c.id for c in tiny.cells if "nbgrader" in c.metadata] == [
        *("intro", "double", "double_test")
    ]


def test_one_id_for_two_cells_is_refused() -> None:
    with pytest.raises(BuildError, match="two cells are called 'chosen'"):
        lesson(LESSON + '\n# %% id="chosen"\n1\n')


@pytest.mark.parametrize(
    ("file", "change"),
    [
        ("notebooks/00_a.ipynb", lambda text: text.replace("x = 1", "x = 2")),
        (str(LAB_FILE), lambda text: text.replace("A lab", "A lap")),
        (str(RELEASED / LAB_FILE.name), lambda text: text + "\n"),
        ("labs/lab99_tiny/lab99_tiny.py", lambda _: "secret = 1"),
        ("labs/lab98_gone/lab98_gone.ipynb", lambda _: "{}"),
        ("notebooks/01_gone.ipynb", lambda _: "{}"),
    ],
)
def test_check_names_the_file_that_is_stale_or_astray(
    course: Path, made: dict[Path, str], file: str, change: Callable[[str], str]
) -> None:
    path = course / file
    path.parent.mkdir(exist_ok=True)
    path.write_text(change(path.read_text() if path.exists() else ""))
    (found,) = build.differences(course, made)
    assert found.startswith(file)


def test_check_only_looks(course: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (course / LAB_FILE).unlink()
    assert build.main(["--check"]) == 1
    assert capsys.readouterr().out.splitlines()[0] == f"{LAB_FILE}: missing"
    assert not (course / LAB_FILE).exists()


def test_a_build_does_not_write_over_answers(
    course: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    empty = (course / LAB_FILE).read_text()
    answered = empty.replace("raise NotImplementedError()", "return 4")
    (course / LAB_FILE).write_text(answered)
    (course / "solutions/lab99_tiny.py").write_text(LAB.replace("A lab", "A new lab"))
    assert build.main([]) == 0
    out = capsys.readouterr().out
    assert f"kept {LAB_FILE}: it holds work of its own" in out
    assert "wrote solutions/lab99_tiny/lab99_tiny.ipynb" in out, "all others are built"
    assert (course / LAB_FILE).read_text() == answered
    assert build.main(["--force"]) == 0
    assert "A new lab" in (course / LAB_FILE).read_text()


def test_a_build_keeps_a_notebook_with_cells_of_its_own(
    course: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = course / "notebooks/00_a.ipynb"
    (course / "notebooks/00_a.py").write_text(LESSON.replace("A lesson", "A new lesson"))
    nb = notebooks.read(path)
    nb.cells.append(nbformat.v4.new_markdown_cell("MY OWN NOTES"))
    path.write_text(notebooks.dumps(nb), "utf-8")
    assert build.main([]) == 0
    assert "kept notebooks/00_a.ipynb" in capsys.readouterr().out
    assert "MY OWN NOTES" in path.read_text()
    nb.cells.pop()
    nb.cells[-1].outputs = [nbformat.v4.new_output("stream", text="run")]
    path.write_text(notebooks.dumps(nb), "utf-8")
    assert build.main([]) == 0
    assert "A new lesson" in path.read_text(), "outputs are no work"


def test_a_lab_that_nobody_worked_on_is_brought_up_to_date(course: Path) -> None:
    (course / "solutions/lab99_tiny.py").write_text(LAB.replace("A lab", "A new lab"))
    assert build.main([]) == 0
    assert "A new lab" in (course / LAB_FILE).read_text()


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (LAB.replace("    ### END SOLUTION\n", ""), "no end solution statement"),
        (LAB.replace(', "points": 2', ""), "points"),
        (LAB.replace('"grade_id": "double_test"', '"grade_id": "double"'), "'double'"),
    ],
)
def test_a_source_that_nbgrader_refuses_is_named(
    course: Path, capsys: pytest.CaptureFixture[str], wrong: str, said: str
) -> None:
    assert wrong != LAB
    (course / "solutions/lab99_tiny.py").write_text(wrong)
    assert build.main(["--check"]) == 1
    error = capsys.readouterr().err
    assert "lab99_tiny" in error
    assert said in error
    assert "Traceback" not in error


def test_outside_of_a_clone_it_says_where_to_run_it(tmp_path: Path) -> None:
    done = command(tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "run this at the root of a clone" in done.stderr


def test_a_lab_survives_the_way_to_text_and_back() -> None:
    """py -> ipynb -> py is the same text; nbgrader's metadata come through untouched."""
    for source in [*(ROOT / "solutions").glob("*.py"), *(ROOT / "notebooks").glob("*.py")]:
        text = source.read_text("utf-8")
        nb = jupytext.reads(text, fmt="py:percent")
        again = jupytext.writes(nb, fmt="py:percent")
        assert body(again) == body(text), source
        back = jupytext.reads(again, fmt="py:percent")
        assert [c.metadata for c in back.cells] == [c.metadata for c in nb.cells]


def body(text: str) -> str:
    """A text notebook without its header."""
    return text.partition("\n# %%")[2].rstrip()


def test_no_pairing_is_configured_and_no_metadata_are_dropped() -> None:
    config = jupytext.config.load_jupytext_configuration_file(str(ROOT / "jupytext.toml"))
    assert not any(config.formats)
    assert config.cell_metadata_filter == "all"


def test_a_notebook_file_that_is_none_is_refused_with_its_name(tmp_path: Path) -> None:
    for content, said in [
        ("", "is empty"),
        ("{", "x.ipynb:1: no notebook"),
        ("[]", "no valid notebook"),
        (json.dumps({"nbformat": 4}), "no valid notebook"),
        (json.dumps({"nbformat": 99, "cells": []}), "no valid notebook"),
    ]:
        path = tmp_path / "x.ipynb"
        path.write_text(content)
        with pytest.raises(notebooks.BadNotebook, match=said) as caught:
            notebooks.read(path)
        assert "x.ipynb" in str(caught.value)
    with pytest.raises(notebooks.BadNotebook, match="no such file"):
        notebooks.read(tmp_path / "y.ipynb")
