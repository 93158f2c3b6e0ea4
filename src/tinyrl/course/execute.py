"""`tinyrl run`: execute notebooks from top to bottom in a real kernel, without a browser.

What is executed is a copy: the notebook's file is only read. Where a cell fails, the HTML
shows everything up to it, and one line names the notebook, the cell and the line.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import psutil
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import AsyncKernelManager
from jupyter_core.utils import ensure_async
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError
from nbconvert import HTMLExporter
from nbformat import NotebookNode
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from tinyrl.course import sources
from tinyrl.course.notebooks import BadNotebook, read
from tinyrl.course.printing import console

# Evaluated in the kernel after an error. The first frame of the traceback that belongs to
# a cell is the failing line; a cell that does not even compile has no frame.
FAILING_LINE = """next(
    (n for f, n in __import__("traceback").walk_tb(__import__("sys").last_traceback)
     if "ipykernel_" in f.f_code.co_filename),
    getattr(__import__("sys").last_value, "lineno", None))"""


GRACE = 5.0  # seconds


class CannotRun(Exception):
    """Nothing was executed: the arguments or this machine are not fit for it."""


@dataclass(frozen=True)
class Failure:
    """Where and why an execution stopped. `cell` and `line` count from 1."""

    cell: int
    cell_id: str
    line: int | None
    reason: str

    def __str__(self) -> str:
        line = "" if self.line is None else f", line {self.line}"
        return f"cell {self.cell} (id {self.cell_id}){line}: {self.reason}"


@dataclass(frozen=True)
class Execution:
    """One notebook, executed, outputs and all. `failure` is None if it ran through."""

    notebook: NotebookNode
    seconds: float
    peak_bytes: int
    failure: Failure | None

    @property
    def cost(self) -> str:
        return f"{self.seconds:.1f} s, peak {self.peak_bytes / 2**20:.0f} MiB"


def find(paths: Sequence[Path]) -> list[Path]:
    """The files that `paths` mean: of a folder, every .ipynb below it, by name."""
    found: list[Path] = []
    for path in paths:
        if not path.exists():
            raise CannotRun(f"{path}: there is no such file or folder")
        below = sorted(path.rglob("*.ipynb")) if path.is_dir() else [path]
        notebooks = [p for p in below if ".ipynb_checkpoints" not in p.parts]
        if not notebooks:
            raise CannotRun(f"no notebook in {path}")
        found += notebooks
    if not found:
        raise CannotRun("no notebook was named")
    return found


def load(path: Path) -> NotebookNode:
    """The notebook in a .ipynb or py:percent file, if it can be executed here."""
    if path.suffix not in (".ipynb", ".py"):
        raise CannotRun(f"{path}: a notebook's name ends in .ipynb or .py")
    try:
        notebook = read(path) if path.suffix == ".ipynb" else sources.parse(path)
    except (BadNotebook, sources.BuildError) as error:
        raise CannotRun(str(error)) from error
    except (OSError, UnicodeDecodeError) as error:
        raise CannotRun(f"{path} cannot be read: {error}") from error
    if not any(cell.cell_type == "code" for cell in notebook.cells):
        raise CannotRun(f"{path} has no code cell to execute")
    if _kernel(notebook) not in (known := KernelSpecManager().find_kernel_specs()):
        raise CannotRun(
            f"{path} asks for the kernel {_kernel(notebook)!r}; this environment has "
            f"{', '.join(sorted(known)) or 'none'}. Choose another in JupyterLab and save, "
            "or: python -m pip install ipykernel"
        )
    return notebook


def _kernel(notebook: NotebookNode) -> str:
    return str(notebook.metadata.get("kernelspec", {}).get("name", "python3"))


class _PeakMemory(threading.Thread):
    """The most memory that a process and its children held, seen ten times a second."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self.root, self.bytes, self.over = psutil.Process(pid), 0, threading.Event()

    def run(self) -> None:
        while not self.over.is_set():
            with contextlib.suppress(psutil.Error):  # a process may end between two lines
                tree = [self.root, *self.root.children(recursive=True)]
                self.bytes = max(self.bytes, sum(p.memory_info().rss for p in tree))
            self.over.wait(0.1)


class _Client(NotebookClient):
    """nbclient's, which also tells where it is, what it held, and the line that failed."""

    def __init__(
        self,
        notebook: NotebookNode,
        folder: Path,
        limit: float,
        on_cell: Callable[[], object],
    ) -> None:
        kernel = AsyncKernelManager(
            kernel_name=_kernel(notebook), transport_encryption="auto"
        )
        super().__init__(
            notebook,
            km=kernel,
            timeout_func=self._left,
            resources={"metadata": {"path": str(folder)}},
            on_notebook_start=self._started,
            on_cell_start=self._entered,
            on_cell_error=self._failed,
        )
        self.start, self.limit, self.overdue = time.monotonic(), limit, False
        self.on_cell = on_cell
        self.at = 0
        self.line: int | None = None
        self.memory: _PeakMemory | None = None

    def _left(self, _: NotebookNode) -> float:
        """Seconds until nbclient gives up on a cell that does not heed the interrupt."""
        return max(0.0, self.start + self.limit - time.monotonic()) + GRACE

    def _started(self, **_: Any) -> None:
        assert self.km is not None
        pid = getattr(self.km.provisioner, "pid", None)
        assert pid is not None  # kernels on this machine have one
        self.memory = _PeakMemory(pid)
        self.memory.start()
        loop = asyncio.get_running_loop()
        loop.call_later(self.limit, lambda: asyncio.ensure_future(self._overdue()))
        for name in (signal.SIGINT, signal.SIGTERM):  # nbclient would go on after Ctrl-C
            with contextlib.suppress(NotImplementedError):
                loop.remove_signal_handler(name)

    async def _overdue(self) -> None:
        """Interrupt the cell, as a person would: its traceback then names the line."""
        self.overdue = True
        if self.km is not None:
            await ensure_async(self.km.interrupt_kernel())

    def _entered(self, cell_index: int, **_: Any) -> None:
        self.at = cell_index
        self.on_cell()

    async def _failed(self, **_: Any) -> None:
        assert self.kc is not None
        asked = self.kc.execute("", silent=True, user_expressions={"n": FAILING_LINE})
        reply = await self.async_wait_for_reply(asked)
        assert reply is not None
        said = reply["content"]["user_expressions"]["n"].get("data", {}).get("text/plain")
        self.line = int(said) if said and said.isdigit() else None


def execute(
    notebook: NotebookNode,
    folder: Path,
    *,
    timeout: float,
    on_cell: Callable[[], object] = lambda: None,
) -> Execution:
    """Execute `notebook` in place and in `folder`, for at most `timeout` seconds in all."""
    client = _Client(notebook, folder, timeout, on_cell)
    with tempfile.TemporaryFile("w+", errors="replace") as stderr:
        try:
            reason = _outcome(client, stderr)
        finally:
            if client.memory is not None:
                client.memory.over.set()
                client.memory.join()
    cell = notebook.cells[client.at]
    failure = Failure(client.at + 1, cell.get("id", "none"), client.line, reason or "")
    return Execution(
        notebook,
        seconds=time.monotonic() - client.start,
        peak_bytes=client.memory.bytes if client.memory else 0,
        failure=failure if reason else None,
    )


def _outcome(client: _Client, stderr: IO[str]) -> str | None:
    """Execute; the one line that says why it failed, None if it did not."""
    late = f"not done after {client.limit:g} s, the limit of a notebook (--timeout)"
    try:
        client.execute(cleanup_kc=True, stderr=stderr)
    except CellTimeoutError:
        return late
    except CellExecutionError as error:
        said = f"{error.ename}: {error.evalue}".splitlines()[0]
        return late if client.overdue else said
    except DeadKernelError:
        stderr.seek(0)
        last = stderr.read().strip().splitlines()[-1:]
        return ": ".join(["the kernel died (out of memory? os._exit?)", *last])
    except (RuntimeError, OSError) as error:
        return f"the kernel did not start: {error}"
    return None


def write_html(notebook: NotebookNode, path: Path) -> None:
    """The executed notebook as a page, whole or not at all."""
    exporter = HTMLExporter()  # type: ignore[no-untyped-call]
    text, _ = exporter.from_notebook_node(notebook, {"metadata": {"name": path.stem}})
    part = path.with_suffix(".part")
    part.write_text(text, "utf-8")
    part.replace(path)


def _pages(paths: Sequence[Path], folder: Path) -> dict[Path, Path]:
    """The page of each notebook; makes the folder."""
    pages = {path: folder / f"{path.stem}.html" for path in paths}
    if len(set(pages.values())) < len(pages):
        raise CannotRun("two notebooks have the same name: run them one after the other")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CannotRun(f"{folder} cannot hold the pages: {error.strerror}") from error
    if not os.access(folder, os.W_OK):
        raise CannotRun(f"{folder} is read-only: name another folder with --output")
    return pages


def run(paths: Sequence[Path], *, output: Path, timeout: float) -> int:
    """Execute every notebook. 0: all ran; 1: one failed; 2: nothing could be executed."""
    try:
        loaded = {path: load(path) for path in find(paths)}
        pages = _pages(list(loaded), output)
        return _run(loaded, pages, timeout)
    except CannotRun as error:
        print(f"tinyrl run: {error}", file=sys.stderr)
        return 2
    except (KeyboardInterrupt, asyncio.CancelledError):
        print("tinyrl run: stopped", file=sys.stderr)
        return 130


def _run(loaded: dict[Path, NotebookNode], pages: dict[Path, Path], timeout: float) -> int:
    out = console(markup=False, soft_wrap=True)
    failed = 0
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()
    quiet = not out.is_terminal
    with Progress(*columns, console=out, transient=True, disable=quiet) as progress:
        for path, notebook in loaded.items():
            bar = progress.add_task(str(path), total=len(notebook.cells))
            step = functools.partial(progress.advance, bar)
            result = execute(notebook, path.resolve().parent, timeout=timeout, on_cell=step)
            progress.remove_task(bar)
            failed += result.failure is not None
            write_html(notebook, pages[path])
            out.print(f"{_told(path, result)}  {pages[path]}")
    ran = f"{len(loaded) - failed} of {len(loaded)} notebooks ran"
    out.print(f"{ran} (limit: {timeout:g} s each)")
    return 1 if failed else 0


def _told(path: Path, result: Execution) -> str:
    if result.failure is None:
        return f"✓ {path}  {result.cost}"
    return f"✗ {path}, {result.failure}\n  {result.cost}"
