"""`tinyrl run` in real kernels: what it tells, what it leaves alone, and how it fails."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import nbformat
import psutil
import pytest

from tinyrl.course import execute

MIB = 2**20


def notebook(path: Path, *cells: str, kernel: str = "python3") -> Path:
    """A notebook file with these code cells."""
    nb = nbformat.v4.new_notebook()
    nb.metadata.kernelspec = {"name": kernel, "display_name": kernel, "language": "python"}
    nb.cells = [nbformat.v4.new_markdown_cell("# A notebook")]
    nb.cells += [
        nbformat.v4.new_code_cell(cell, id=f"c{n}") for n, cell in enumerate(cells)
    ]
    path.parent.mkdir(exist_ok=True)
    nbformat.write(nb, path)
    return path


class Told:
    """Runs notebooks as the command does, and keeps the exit code and what was said."""

    def __init__(self, capsys: pytest.CaptureFixture[str], output: Path) -> None:
        self.capsys, self.output = capsys, output

    def __call__(self, *paths: Path, timeout: float = 60) -> tuple[int, str]:
        code = execute.run(paths, output=self.output, timeout=timeout)
        out, err = self.capsys.readouterr()
        return code, out + err


@pytest.fixture
def told(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Told:
    return Told(capsys, tmp_path / "pages")


def test_runs_in_the_notebooks_folder_and_writes_a_page(told: Told, tmp_path: Path) -> None:
    path = notebook(tmp_path / "deep" / "a.ipynb", "import os", "print('in', os.getcwd())")
    before = path.read_bytes()
    code, said = told(path)
    assert code == 0
    assert "1 of 1 notebooks ran (limit: 60 s each)" in said
    assert f"in {path.parent}" in (tmp_path / "pages/a.html").read_text()
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


def test_a_text_notebook_runs_as_it_is(told: Told, tmp_path: Path) -> None:
    path = tmp_path / "text.py"
    path.write_text(
        "# %% [markdown]\n# # Words\n# %%\nx = 6\n# %%\nprint('gives', 7 * x)\n"
    )
    code, _ = told(path)
    assert code == 0
    assert "gives 42" in (tmp_path / "pages/text.html").read_text()
    assert [p.name for p in tmp_path.glob("text*")] == ["text.py"]


@pytest.mark.parametrize(
    ("cells", "where"),
    [
        (
            ["x = 1", "y = 2\n\nx / 0"],
            "cell 3 (id c1), line 3: ZeroDivisionError: division by",
        ),
        (
            ["def f():\n    return [][1]", "x = 1\nf()"],
            "cell 3 (id c1), line 2: IndexError: ",
        ),
        (["x = 1\ny = = 2"], "cell 2 (id c0), line 2: SyntaxError: invalid syntax"),
        (["x = 1", "raise SystemExit('bye')"], "cell 3 (id c1), line 1: SystemExit: bye"),
        (["input('?')"], "cell 2 (id c0), line 1: StdinNotImplementedError"),
        (["raise ValueError('one\\ntwo')"], "cell 2 (id c0), line 1: ValueError: one\n"),
        (  # an error that shows itself in one line, as a failed check does
            [
                "class Failed(Exception):\n    def _render_traceback_(self): return ['no']",
                "x = 1\nraise Failed('not yet')",
            ],
            "cell 3 (id c1), line 2: Failed: not yet",
        ),
    ],
    ids=["error", "in a function", "syntax", "exit", "input", "many lines", "check"],
)
def test_a_failure_names_notebook_cell_line_and_reason(
    told: Told, tmp_path: Path, cells: list[str], where: str
) -> None:
    path = notebook(tmp_path / "bad.ipynb", *cells, "print('not reached')")
    code, said = told(path)
    assert code == 1
    assert f"✗ {path}, {where}" in said
    assert "Traceback" not in said
    assert "0 of 1 notebooks ran" in said
    page = (tmp_path / "pages/bad.html").read_text()
    assert 'class="output_area' in page or "jp-OutputArea-output" in page
    assert page.count("not reached") == 1  # the source of that cell, not its output


def test_the_others_still_run(told: Told, tmp_path: Path) -> None:
    bad = notebook(tmp_path / "a.ipynb", "1 / 0")
    good = notebook(tmp_path / "b.ipynb", "1 / 1")
    code, said = told(bad, good)
    assert code == 1
    assert f"✓ {good}" in said
    assert "1 of 2 notebooks ran" in said


@pytest.mark.parametrize(
    "loop",
    [
        "while True:\n    pass",
        "while True:\n    try: import time; time.sleep(60)\n    except: 0",
    ],
    ids=["interruptible", "deaf"],
)
def test_the_limit_stops_a_loop_and_its_kernel(
    told: Told, tmp_path: Path, loop: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(execute, "GRACE", 1.0)
    path = notebook(tmp_path / "loop.ipynb", "import time; time.sleep(2)", loop)
    code, said = told(path, timeout=3)
    assert code == 1
    assert f"✗ {path}, cell 3 (id c1)" in said
    assert "not done after 3 s, the limit of a notebook (--timeout)" in said
    assert psutil.Process().children(recursive=True) == []


def test_the_limit_is_for_all_cells_together(tmp_path: Path) -> None:
    nb = execute.load(notebook(tmp_path / "a.ipynb", "1"))
    client = execute._Client(nb, tmp_path, 60.0, lambda: None)
    for passed, left in ((0, 60), (20, 40), (59, 1), (300, 0)):
        client.start = time.monotonic() - passed
        assert client._left(nb.cells[0]) == pytest.approx(left + execute.GRACE, abs=0.5)


def test_a_dead_kernel_is_named(told: Told, tmp_path: Path) -> None:
    last_words = "import sys; print('CUDA is on fire', file=sys.__stderr__, flush=True)"
    path = notebook(tmp_path / "dead.ipynb", last_words, "import os; os._exit(3)")
    code, said = told(path)
    assert code == 1
    assert f"✗ {path}, cell 3 (id c1): the kernel died" in said


def test_memory_is_the_peak_of_the_kernel_and_its_children(tmp_path: Path) -> None:
    """300 MiB here and 300 in a child, at once and freed again."""
    hold = "import time; x = b'1' * (300 * 2**20); time.sleep(1)"
    small = notebook(tmp_path / "small.ipynb", "1")
    cells = [
        "import subprocess, sys, time",
        f"child = subprocess.Popen([sys.executable, '-c', {hold!r}])",
        hold,
        "child.wait(); del x",
    ]
    large = notebook(tmp_path / "large.ipynb", *cells)
    peaks = [
        execute.execute(execute.load(path), tmp_path, timeout=60).peak_bytes
        for path in (small, large)
    ]
    assert 600 * MIB < peaks[1] - peaks[0] < 700 * MIB
    assert psutil.Process().children(recursive=True) == []


def test_a_folder_means_its_notebooks_in_order(tmp_path: Path) -> None:
    for name in ("b/2.ipynb", "a/1.ipynb", "a/.ipynb_checkpoints/1.ipynb", "a/1.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    found = execute.find([tmp_path])
    assert [str(p.relative_to(tmp_path)) for p in found] == ["a/1.ipynb", "b/2.ipynb"]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda d: d / "gone.ipynb", "gone.ipynb: there is no such file"),
        (lambda d: _text(d / "x.ipynb", "{ not json"), "x.ipynb:1: no notebook: "),
        (lambda d: _text(d / "x.ipynb", ""), "x.ipynb is empty"),
        (lambda d: _text(d / "x.ipynb", '{"nbformat": 4}'), "x.ipynb is no valid notebook"),
        (lambda d: _text(d / "x.txt", ""), "a notebook's name ends in .ipynb or .py"),
        (lambda d: _text(d / "x.py", "# %% [markdown]\n# hi\n"), "x.py has no code cell"),
        (lambda d: d, "no notebook in "),
        (lambda d: notebook(d / "r.ipynb", "1", kernel="ir"), "asks for the kernel 'ir'"),
    ],
    ids=[
        "missing",
        "corrupt",
        "empty",
        "invalid",
        "suffix",
        "no code",
        "no notebook",
        "kernel",
    ],
)
def test_what_cannot_run_is_told_before_anything_does(
    told: Told, tmp_path: Path, make: object, message: str
) -> None:
    first = notebook(tmp_path / "first" / "a.ipynb", "open('ran', 'w')")
    (tmp_path / "given").mkdir()
    code, said = told(first, make(tmp_path / "given"))  # type: ignore[operator]
    assert code == 2
    assert message in said
    assert len(said.splitlines()) == 1
    assert not (first.parent / "ran").exists()


def _text(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_an_empty_list_is_told(told: Told) -> None:
    assert told() == (2, "tinyrl run: no notebook was named\n")


def test_pages_do_not_overwrite_one_another(told: Told, tmp_path: Path) -> None:
    both = [notebook(tmp_path / d / "same.ipynb", "1") for d in "ab"]
    code, said = told(*both)
    assert code == 2
    assert "two notebooks have the same name" in said


def test_an_output_folder_that_cannot_be_is_told(told: Told, tmp_path: Path) -> None:
    (tmp_path / "pages").write_text("a file is in the way")
    code, said = told(notebook(tmp_path / "a.ipynb", "1"))
    assert code == 2
    assert f"{tmp_path / 'pages'} cannot hold the pages" in said


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="root writes everywhere")
def test_a_read_only_output_folder_is_told(told: Told, tmp_path: Path) -> None:
    (tmp_path / "pages").mkdir(mode=0o500)
    code, said = told(notebook(tmp_path / "a.ipynb", "1"))
    assert code == 2
    assert "is read-only" in said


def test_ctrl_c_stops_everything(tmp_path: Path) -> None:
    """In the middle of the first notebook: the second is not started, no kernel stays."""
    forever = "open('here', 'w'); import time; time.sleep(600)"
    paths = [notebook(tmp_path / "a.ipynb", forever), notebook(tmp_path / "b.ipynb", "1")]
    command = [sys.executable, "-c", "from tinyrl.cli import main; main()", "run"]
    process = subprocess.Popen(
        [*command, *map(str, paths), "--output", str(tmp_path)], stderr=subprocess.PIPE
    )
    watched = psutil.Process(process.pid)
    while not (tmp_path / "here").exists():
        assert process.poll() is None
    kernels = watched.children(recursive=True)
    watched.send_signal(2)
    _, said = process.communicate(timeout=30)
    assert process.returncode == 130
    assert said.decode() == "tinyrl run: stopped\n"
    assert kernels
    gone, alive = psutil.wait_procs(kernels, timeout=10)
    assert (len(gone), alive) == (len(kernels), [])
