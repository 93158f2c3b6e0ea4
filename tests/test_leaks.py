"""What a student of a class may not have: solutions, hidden tests, marking schemes.

Each secret carries a canary, and the canaries are looked for wherever a student can look.
The feedback pages are looked through in test_adversaries.py.
"""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from jupytext import TextFileContentsManager
from nbformat import NotebookNode
from tornado.web import HTTPError

from tinyrl.course import notebooks
from tinyrl.course.authoring.build import RELEASED
from tinyrl.course.classroom.preprocessors import HideSecrets, split_lines
from tinyrl.course.sources import parse

ROOT = Path(__file__).parents[1]
CANARY = "TINYRL-" + "CANARY-"
SOLUTIONS = sorted((ROOT / "solutions").glob("*.py"))
REGIONS = re.compile(r"BEGIN (SOLUTION|HIDDEN TESTS|MARK SCHEME).*?END \1", re.DOTALL)


@functools.cache
def secrets() -> frozenset[str]:
    """The canaries, and the lines of hidden tests that ask with a seed."""
    text = "".join(source.read_text("utf-8") for source in SOLUTIONS)
    cells = [cell.source for source in SOLUTIONS for cell in parse(source).cells]
    lines = {line for cell in cells for line in split_lines(cell)[1] if "seed=" in line}
    found = set(re.findall(CANARY + r"[\w-]+", text)) | lines
    assert len(found) > 30
    return frozenset(found)


def leaks(text: str) -> set[str]:
    """The secrets in a text, which may be a notebook's JSON with its quotes escaped."""
    plain = text.replace('\\"', '"')
    return {secret for secret in {*secrets(), CANARY} if secret in plain}


@pytest.mark.parametrize("source", SOLUTIONS, ids=lambda path: path.stem)
def test_every_secret_carries_a_canary(source: Path) -> None:
    regions = [
        match[0] for cell in parse(source).cells for match in REGIONS.finditer(cell.source)
    ]
    assert len(regions) > 12
    for region in regions:
        assert CANARY in region, region


def test_the_release_and_the_lessons_hold_no_secret() -> None:
    files = [*(ROOT / "labs").rglob("*"), *(ROOT / RELEASED).rglob("*")]
    files += (ROOT / "notebooks").rglob("*")
    texts = {path: path.read_text("utf-8", "replace") for path in files if path.is_file()}
    assert any(path.suffix == ".ipynb" and "labs" in path.parts for path in texts)
    assert {path: found for path, text in texts.items() if (found := leaks(text))} == {}


def test_no_committed_notebook_is_paired_with_a_text_notebook() -> None:
    for path in [*(ROOT / "labs").rglob("*.ipynb"), *(ROOT / "notebooks").glob("*.ipynb")]:
        if ".ipynb_checkpoints" not in path.parts:
            assert "jupytext" not in notebooks.read(path).metadata, path


def opened(folder: Path, name: str) -> str:
    """What JupyterLab shows of a notebook where jupytext is installed."""
    manager = TextFileContentsManager()
    manager.root_dir = str(folder)
    try:
        return str(manager.get(name, type="notebook")["content"])
    except HTTPError as refused:  # of an outdated pair; the message shows what differs
        return str(refused)


@pytest.mark.parametrize("age", [-3600, 0, 3600], ids=["older", "same age", "newer"])
@pytest.mark.parametrize("source", SOLUTIONS, ids=lambda path: path.stem)
def test_jupytext_shows_no_secret_whatever_lies_beside_the_release(
    tmp_path: Path, source: Path, age: int
) -> None:
    shutil.copy(ROOT / "jupytext.toml", tmp_path)
    notebook = tmp_path / f"{source.stem}.ipynb"
    shutil.copy(ROOT / "labs" / source.stem / notebook.name, notebook)
    beside = tmp_path / source.name
    shutil.copy(source, beside)
    at = notebook.stat().st_mtime + age
    os.utime(beside, (at, at))
    assert leaks(opened(tmp_path, notebook.name)) == set()
    # The same look at a paired notebook finds them, so this test can fail.
    nb = notebooks.read(notebook)
    nb.metadata.jupytext = {"formats": "ipynb,py:percent"}
    notebook.write_text(notebooks.dumps(nb))
    os.utime(notebook, (at - age, at - age))
    assert len(leaks(opened(tmp_path, notebook.name))) > 20


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Wheel and sdist, built from a copy of the whole working tree, secrets included."""
    folder = tmp_path_factory.mktemp("built")
    made = {"build", "dist", "artifacts", "classroom"}  # what git ignores at the root
    everywhere = shutil.ignore_patterns(".*", "*.egg-info", "__pycache__")

    def skip(of: str, names: list[str]) -> set[str]:
        return everywhere(of, names) | (made if Path(of) == ROOT else set())

    shutil.copytree(ROOT, folder / "tree", ignore=skip)
    command = [sys.executable, "-m", "build", "--no-isolation", "--sdist", "--wheel"]
    done = subprocess.run(
        [*command, "--outdir", folder], cwd=folder / "tree", capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return folder


def contents(folder: Path) -> Iterator[tuple[str, str]]:
    (wheel,), (sdist,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    with zipfile.ZipFile(wheel) as file:
        for name in file.namelist():
            yield f"wheel: {name}", file.read(name).decode("utf-8", "replace")
    with tarfile.open(sdist) as file:
        for member in file.getmembers():
            if member.isfile() and (stream := file.extractfile(member)):
                yield f"sdist: {member.name}", stream.read().decode("utf-8", "replace")


@pytest.mark.slow
def test_neither_wheel_nor_sdist_holds_a_secret(built: Path) -> None:
    texts = dict(contents(built))
    for kind in ("wheel: ", "sdist: "):
        names = [name for name in texts if name.startswith(kind)]
        assert any(
            name.endswith("classroom/released/lab01_two_policies.ipynb") for name in names
        )
        assert not any(
            f"/{folder}/" in name for folder in ("solutions", "tests") for name in names
        )
    assert {name: found for name, text in texts.items() if (found := leaks(text))} == {}


def test_what_a_student_prints_of_the_hidden_tests_is_taken_out_of_the_feedback() -> None:
    shown_too, line = "from tinyrl import check", "_check('f', \"f\", seed=4711)"
    hidden = f"### BEGIN HIDDEN TESTS\n{shown_too}\n{line}\n)\n### END HIDDEN TESTS"
    test = f"{shown_too}\n_check('f', f)\n{hidden}"
    trace = ["File <cell>", f"----> 3 {line}", "ValueError: no"]
    locked = {"locked": True, "grade": True}
    cells: list[dict[str, object]] = [
        {"source": test, "metadata": {"nbgrader": locked}, "outputs": [error(trace)]},
        {"source": "In", "metadata": {}, "outputs": [shown(repr([test]))]},
        {"source": "print(*In)", "metadata": {}, "outputs": [printed(test)]},
        {"source": "1 / 0", "metadata": {}, "outputs": [error(trace)]},
    ]
    nb, _ = HideSecrets().preprocess(NotebookNode(notebooks.copy(notebook(cells))), {})
    outputs = [cell.outputs[0] for cell in nb.cells]
    assert "4711" not in str(outputs)
    assert outputs[0].traceback == ["ValueError: no"]
    assert outputs[3].traceback[1] == "----> 3 (hidden)"
    assert outputs[2].text == test.replace(line, "(hidden)"), "what is shown anyway stays"
    assert HideSecrets().enabled, "nbconvert leaves its own preprocessors out by default"


def notebook(cells: list[dict[str, object]]) -> NotebookNode:
    code = {"cell_type": "code", "execution_count": None}
    return NotebookNode(
        cells=[{**code, **cell} for cell in cells],
        metadata={},
        nbformat=4,
        nbformat_minor=5,
    )


def error(trace: list[str]) -> dict[str, object]:
    return {
        "output_type": "error",
        "ename": "ValueError",
        "evalue": "no",
        "traceback": trace,
    }


def shown(text: str) -> dict[str, object]:
    return {"output_type": "execute_result", "data": {"text/plain": text}, "metadata": {}}


def printed(text: str) -> dict[str, object]:
    return {"output_type": "stream", "name": "stdout", "text": text}
