"""Plain nbgrader on the course's own labs and settings, as teachers and students use it."""

from __future__ import annotations

import ast
import io
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import nbformat
import pytest
from nbgrader.apps.api import NbGraderAPI
from nbgrader.validator import Validator

from tinyrl.course import notebooks, sources
from tinyrl.course.authoring import build
from tinyrl.course.checking.forking import FORKS, Template
from tinyrl.course.checking.remote import Process
from tinyrl.course.classroom import grading, labcheck, labs
from tinyrl.course.exercises import LABS
from tinyrl.course.notebooks import grade_id, is_test, role

ROOT = Path(__file__).parents[1]
NAMES = [lab.name for lab in labs.released()]
every_lab = pytest.mark.parametrize("name", NAMES)


@pytest.fixture(scope="module")
def course(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The root of a course with every lab in it, and things that must not be released."""
    root = tmp_path_factory.mktemp("course")
    shutil.copy(ROOT / "nbgrader_config.py", root)
    for path, text in build.build(ROOT).items():
        if path.parts[0] == "solutions":
            (root / path).parent.mkdir(parents=True)
            (root / path).write_text(text, "utf-8")
            shutil.copy(ROOT / "solutions" / f"{path.stem}.py", root / "solutions")
            shutil.copy(ROOT / "solutions" / f"{path.stem}.py", root / path.parent)
            (root / path).with_suffix(".md").write_text("a secret")
    return root


def nbgrader(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run nbgrader from an environment that is not activated."""
    environment = {**os.environ, "PATH": os.defpath, "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, "-m", "nbgrader", *arguments],
        cwd=root,
        env=environment,
        capture_output=True,
        text=True,
    )


@pytest.fixture(scope="module")
def generated(course: Path) -> Path:
    """The course, every lab of it released by one command."""
    done = nbgrader(course, "generate_assignment", "--assignment=*")
    assert done.returncode == 0, done.stderr
    return course


@pytest.mark.slow
@every_lab
def test_a_teacher_who_generates_the_release_gets_the_committed_one(
    generated: Path, name: str
) -> None:
    released = [p for p in (generated / "labs" / name).rglob("*") if p.is_file()]
    assert released == [generated / "labs" / name / f"{name}.ipynb"], "no .py, no .md"
    committed = ROOT / build.RELEASED / f"{name}.ipynb"
    assert released[0].read_bytes() == committed.read_bytes()


def test_only_the_folders_of_solutions_are_assignments(course: Path) -> None:
    config = build.settings(course / "nbgrader_config.py")
    assert set(NbGraderAPI(config=config).get_source_assignments()) == set(NAMES)


def validated(root: Path, path: str, invert: bool = False) -> str:
    """What `nbgrader validate` says: by the command for one lab, else by what it calls."""
    if NAMES[0] in path:
        done = nbgrader(root, "validate", path, *["--invert"] * invert)
        return done.stdout
    config = build.settings(ROOT / "nbgrader_config.py")
    validator = Validator(config=config, invert=invert)
    validator.stream = io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")
        validator.validate_and_print(str(root / path))
    return str(validator.stream.getvalue())


@pytest.mark.slow
@every_lab
def test_the_solution_validates_in_half_a_minute(course: Path, name: str) -> None:
    started = time.monotonic()
    said = validated(course, f"solutions/{name}/{name}.ipynb")
    assert "Success! Your notebook passes all the tests." in said, said
    assert time.monotonic() - started < 30


@pytest.mark.slow
@every_lab
def test_the_starter_passes_none_of_its_tests(name: str, tmp_path: Path) -> None:
    shutil.copy(ROOT / build.RELEASED / f"{name}.ipynb", tmp_path)
    said = validated(tmp_path, f"{name}.ipynb", invert=True)
    assert "Success! The notebook does not pass any tests." in said, said


@every_lab
def test_points_are_whole_and_are_those_of_the_exercises(name: str) -> None:
    cells = dict(next(lab for lab in labs.released() if lab.name == name).named())
    points = {n: c.metadata.nbgrader.points for n, c in cells.items() if is_test(c)}
    expected = {}
    for exercise in LABS[name]:
        expected[f"{exercise.name}_test"], expected[f"{exercise.name}_hidden"] = (
            exercise.points
        )
    assert points == expected
    by_hand = [
        c.metadata.nbgrader.points
        for c in cells.values()
        if role(c, "grade") and not is_test(c)
    ]
    assert len(by_hand) == 1, "one open question"
    assert all(isinstance(p, int) for p in [*points.values(), *by_hand])
    for cell in cells.values():  # a task that is also graded counts twice
        assert not (
            role(cell, "task") and (role(cell, "grade") or cell.metadata.nbgrader.points)
        )


@every_lab
def test_the_names_of_a_released_lab_are_frozen(name: str) -> None:
    """nbgrader cannot grade a submission to a lab whose cells have changed since.

    A lab that no class has yet can be frozen anew: delete its line in the data file.
    """
    frozen = json.loads((ROOT / "tests/data/released_cells.json").read_text())
    cells = next(lab for lab in labs.released() if lab.name == name).named()
    now = {n: [c.cell_type, c.metadata.nbgrader.get("points")] for n, c in cells}
    assert now == frozen[name]


@every_lab
def test_a_lab_holds_nothing_that_fails_when_it_is_graded(name: str) -> None:
    nb = notebooks.read(ROOT / build.RELEASED / f"{name}.ipynb")
    code = [c.source for c in nb.cells if c.cell_type == "code"]
    for source in code:
        tree = ast.parse(source)  # no magics, no shell
        called = {n.func.id for n in ast.walk(tree) if is_named_call(n)}  # type: ignore[attr-defined]
        assert not called & {"input", "breakpoint"}
        modules = set(re.findall(r"^(?:from|import) (\w+)", source, re.MULTILINE))
        assert modules <= {"math", "torch", "tinyrl"}, "nothing beside what is installed"
    assert not re.search(r"(?<![\w:/])/(home|work|tmp|Users|root)/", "\n".join(code))


def is_named_call(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name)


@every_lab
def test_a_test_cell_imports_its_check_itself_and_returns_nothing(name: str) -> None:
    """A notebook's own `check` is not used, and no value is read as partial credit."""
    nb = notebooks.read(ROOT / build.RELEASED / f"{name}.ipynb")
    tests = [cell for cell in nb.cells if is_test(cell)]
    for cell in tests:
        imported, *asked = ast.parse(cell.source).body
        assert ast.unparse(imported) == "from tinyrl.course import check as _check"
        assert asked
        for line in asked:
            exercise = (grade_id(cell) or "").removesuffix("_test").removesuffix("_hidden")
            assert ast.unparse(line).startswith(f"_check('{exercise}', {exercise}")
    assert len(tests) >= 16


@pytest.mark.parametrize(
    "path",
    ["gradebook.db", "submitted/a/lab/lab.ipynb", "feedback/a/lab.html", "regraded/x.csv"],
)
def test_what_a_class_hands_in_and_gets_is_never_committed(path: str) -> None:
    config = build.settings(ROOT / "nbgrader_config.py").CourseDirectory
    for folder in ("submitted", "autograded", "feedback"):
        assert config[f"{folder}_directory"] == f"classroom/{folder}"
    assert str(config.db_url).endswith("classroom/gradebook.db")
    ignored = ["git", "check-ignore", "-q", f"classroom/{path}"]
    assert subprocess.run(ignored, cwd=ROOT).returncode == 0


def answered(name: str, folder: Path) -> Path:
    """The solution as a learner's file."""
    folder.mkdir()
    path = folder / f"{name}.ipynb"
    path.write_text(
        sources.dumps(sources.parse(ROOT / "solutions" / f"{name}.py")), "utf-8"
    )
    return path


@pytest.fixture(scope="module")
def fork() -> Iterator[Callable[[], Process]]:
    """Processes for answers that need not import torch again, where there can be any."""
    if not FORKS:
        yield Process
        return
    made = Template()
    yield made
    made.end()


@every_lab
def test_lab_check_gives_full_marks_to_the_solution_and_none_to_the_starter(
    tmp_path: Path,
    fork: Callable[[], Process],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    name: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TINYRL_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(grading, "grade", partial(grading.grade, launch=fork))
    path = answered(name, tmp_path / name)
    total = sum(sum(exercise.points) for exercise in LABS[name])
    assert labcheck.run(name[:5]) == labcheck.FULL
    out = capsys.readouterr().out
    assert f"{total} of {total} points" in out
    for exercise in LABS[name]:
        assert re.search(rf"✓ +{exercise.name} +{sum(exercise.points)}/", out)
    shutil.copy(ROOT / build.RELEASED / path.name, path)
    assert labcheck.run(name) == labcheck.LESS
    assert f"0 of {total} points" in capsys.readouterr().out


def test_lab_check_judges_the_file_from_top_to_bottom_and_by_the_lab_s_own_tests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Cells run out of order by hand, and edited tests, earn nothing here."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TINYRL_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("COLUMNS", "200")
    name = "lab01_two_policies"
    path = answered(name, tmp_path / name)
    nb = notebooks.read(path)
    cells = {grade_id(cell): cell for cell in nb.cells}
    cells["ratio"].source += "\nratio = made_in_a_later_cell"
    cells["masked_mean"].source = "def masked_mean(*args):\n    return 0.0"
    cells["masked_mean_test"].source = "print('right')"
    turned = nbformat.v4.new_markdown_cell(cells["token_delta"].source)
    nb.cells[nb.cells.index(cells["token_delta"])] = turned
    path.write_text(notebooks.dumps(nb))
    assert labcheck.run(path) == labcheck.LESS
    out = capsys.readouterr().out
    assert re.search(r"✗ +masked_mean +0/2", out)
    assert re.search(r"✓ +ratio +3/3", out)  # defined before the line that fails
    assert re.search(r"✓ +token_delta +2/2", out)  # turned to markdown by accident
    assert "Handed in like this it can lose marks" in out


@pytest.mark.parametrize(
    ("content", "said"),
    [(None, "no notebook called"), ("", "is empty"), ("{", "no notebook")],
)
def test_lab_check_says_what_is_wrong_with_a_file_that_is_none(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    content: str | None,
    said: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    if content is not None:
        (tmp_path / "lab01_two_policies.ipynb").write_text(content)
    assert labcheck.run("lab01") == labcheck.USAGE
    assert said in capsys.readouterr().out
