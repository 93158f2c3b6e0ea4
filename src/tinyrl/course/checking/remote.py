"""A student's notebook at arm's length: call its functions, never run its code here.

`Notebook` starts worker.py, has it run the cells, and offers what they define. A checker
calls a `RemoteFunction` as it would call the student's own: values and gradients come
back as plain arrays. Whatever the student's process does to itself (ends, hangs, patches
this package, floods its output), the caller sees an exception at most, and the next call
finds a new process in the same state.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from tinyrl.course.checking import wire
from tinyrl.course.checking.guarded_call import AsksKeyboard, OutOfTime
from tinyrl.course.checking.start_worker import Child, started
from tinyrl.course.checking.worker import tensors_in

START_SECONDS = 60.0  # for a new process to import torch on a busy machine
CELL_SECONDS = 10.0
CALL_SECONDS = 10.0
MOST_SKIPPED = 3  # statements of one cell, before the whole cell is left out
MOST_RESTARTS = 10  # of one notebook's process because of its cells

GONE = "the answer ended its process"

# What a student's code raises is raised here again where its type tells a check something.
RAISED: dict[str, Callable[[str], BaseException]] = {
    kind.__name__: kind
    for kind in (
        *(NotImplementedError, ValueError, TypeError, IndexError, KeyError, NameError),
        *(ZeroDivisionError, AttributeError, RuntimeError, OverflowError, RecursionError),
        *(AssertionError, MemoryError, SystemExit, KeyboardInterrupt),
    )
} | {"AsksKeyboard": lambda _: AsksKeyboard(), "OutOfTime": lambda _: OutOfTime()}


class Ended(Exception):
    """The student's process ended, or was ended because it took too long or sent rubbish.

    `at` is the last position that it announced, -1 before the first.
    """

    def __init__(self, reason: str, at: int) -> None:
        super().__init__(reason)
        self.at = at


class NoProcess(Exception):
    """This machine's fault, not the student's: nothing can be marked here."""


class Raised(RuntimeError):
    """An exception of the student's code: the name of its type, and its message."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(f"{kind}: {message}")
        self.kind, self.message = kind, message


class Process:
    """One worker process, warming up as soon as it is made; raises `NoProcess`."""

    def __init__(self) -> None:
        try:
            self.folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
            self.popen = self._start()
        except OSError as error:  # no memory, no room, too many processes or files
            raise NoProcess(f"no process could be started for answers: {error}") from error
        self.ready = False

    def _start(self) -> Child:
        pipe = subprocess.PIPE
        return started(self.folder.name, pipe, pipe)

    def ask(self, request: dict[str, Any], seconds: float) -> tuple[dict[str, Any], int]:
        """The reply, and the last position announced on the way; raises `Ended`."""
        if not self.ready:
            try:
                self._exchange(None, START_SECONDS)
            except Ended as ended:
                raise NoProcess(
                    f"no process could be started for answers: {ended}"
                ) from None
            self.ready = True
        return self._exchange(request, seconds)

    def _exchange(
        self, request: dict[str, Any] | None, seconds: float
    ) -> tuple[dict[str, Any], int]:
        """Write and read in a thread of their own: a hostile process can block either."""
        at, result = [-1], list[dict[str, Any] | Exception]()
        stdin, stdout = self.popen.stdin, self.popen.stdout
        assert stdin is not None
        assert stdout is not None

        def exchange() -> None:
            try:
                if request is not None:
                    wire.send(stdin, request)
                while "at" in (reply := wire.receive(stdout)):
                    at.append(int(reply["at"]))
                result.append(reply)
            except Exception as error:
                result.append(error)

        thread = threading.Thread(target=exchange, daemon=True)
        thread.start()
        thread.join(seconds)
        if result and isinstance(result[0], dict):
            return result[0], at[-1]
        reason = result[0] if result else f"no answer within {seconds:.0f} s"
        self.end()
        raise Ended(str(reason), at[-1])

    def end(self) -> None:
        """End the process and what it has started in its own group."""
        with contextlib.suppress(OSError, AttributeError):
            os.killpg(self.popen.pid, signal.SIGKILL)
        self.popen.kill()
        self.popen.wait()
        self.folder.cleanup()


class Notebook:
    """A student's cells, run in order in a process of their own.

    `killed` maps the index of a cell to what went wrong when one of its statements ended
    the process or would not end: that statement is left out from then on. `errors` maps
    it to the error that stopped the cell, as it would have in Jupyter. `borrowed` maps a
    function's name to what it called of the library.
    """

    def __init__(self, cells: list[str], launch: Callable[[], Process] = Process) -> None:
        self.cells = list(cells)
        self.launch = launch
        self.process: Process | None = None
        self.skip: dict[int, list[int]] = {index: [] for index in range(len(cells))}
        self.killed: dict[int, str] = {}
        self.errors: dict[int, str] = {}
        self.borrowed: dict[str, set[str]] = {}

    def start(self) -> None:
        """Have a process, a new one if need be, in which every cell ran that lets it live.

        Raises `Ended` when the cells end one process after another.
        """
        for _ in range(MOST_RESTARTS):
            if self.process is not None:
                return
            process = self.launch()
            if self._run_cells(process):
                self.process = process
        if self.process is None:
            raise Ended(f"its cells ended {MOST_RESTARTS} processes one after another", -1)

    def _run_cells(self, process: Process) -> bool:
        for index, source in enumerate(self.cells):
            request = {"do": "cell", "source": source, "skip": self.skip[index]}
            try:
                reply, _ = process.ask(request, CELL_SECONDS)
            except Ended as ended:
                self.killed[index] = str(ended)
                self.skip[index].append(ended.at)
                if ended.at < 0 or len(self.skip[index]) > MOST_SKIPPED:
                    self.cells[index] = ""
                return False
            if error := reply.get("error") or reply.get("raised"):
                self.errors[index] = str(error)
        return True

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """The worker's reply; `Raised` for an exception of the student's code.

        A process that has ended stays so until the next `start`.
        """
        if self.process is None:
            raise RuntimeError(GONE)
        try:
            reply, _ = self.process.ask(request, CALL_SECONDS)
        except BaseException as error:
            self.end()
            if isinstance(error, Ended):
                raise RuntimeError(f"{GONE}: {error}") from None
            raise  # the deadline of `attempt`, or Ctrl-C
        if "raised" in reply:
            raise Raised(str(reply["raised"]), str(reply.get("message")))
        return reply

    def find(self, name: str) -> Any:
        """A `RemoteFunction` or a plain value; `KeyError` if there is no such name."""
        found = self.ask({"do": "look", "name": name})
        if found.get("kind") == "function":
            return RemoteFunction(self, name)
        if found.get("kind") != "value":
            raise KeyError(name)
        return found.get("value")

    def end(self) -> None:
        if self.process is not None:
            self.process.end()
            self.process = None


class RemoteFunction:
    """A function of the student's notebook; call it like the function itself.

    Tensors among the arguments that want a gradient get it through the student's own
    graph: the worker computes it when `backward` asks. What the function does to its
    arguments in place is done to the caller's, too.
    """

    def __init__(self, notebook: Notebook, name: str) -> None:
        self.notebook = notebook
        self.__name__ = self.__qualname__ = name

    def __call__(self, *args: Any) -> Any:
        wants = [isinstance(a, Tensor) and a.requires_grad for a in args]
        request = {"do": "call", "name": self.__name__, "wants_grad": wants}
        try:
            reply = self.notebook.ask({**request, "args": list(args)})
        except Raised as raised:
            known = RAISED.get(raised.kind)
            raise (known(raised.message) if known else raised) from None
        try:
            value, has_grad = reply["value"], [bool(g) for g in reply["has_grad"]]
            for index, changed in reply["changed"].items():
                with torch.no_grad():
                    args[index].copy_(changed)
            borrowed = self.notebook.borrowed.setdefault(self.__name__, set())
            borrowed.update(str(name) for name in reply["borrowed"])
            if not any(has_grad) or not any(wants):
                return value
            backward = _Backward(self.notebook, reply["call"], has_grad)
            linked = _Link.apply(backward, tensors_in(value), *args)  # type: ignore[no-untyped-call]
            return _with_tensors(value, iter(linked))
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise RuntimeError(f"the answer's process sent nonsense: {error}") from error


@dataclass(frozen=True)
class _Backward:
    """How to ask for the gradient of one call."""

    notebook: Notebook
    call: int
    has_grad: list[bool]

    def __call__(self, grads: tuple[Tensor | None, ...]) -> list[Tensor | None]:
        wanted = [g if has else None for g, has in zip(grads, self.has_grad, strict=True)]
        reply = self.notebook.ask({"do": "gradient", "call": self.call, "grads": wanted})
        return [g if isinstance(g, Tensor) else None for g in reply.get("grads", [])]


class _Link(torch.autograd.Function):
    """Joins the outputs of a remote call to its inputs in this process's graph."""

    @staticmethod
    def forward(
        ctx: Any, backward: _Backward, outputs: list[Tensor], *inputs: Any
    ) -> tuple[Tensor, ...]:
        ctx.ask = backward
        ctx.set_materialize_grads(False)
        plain = [t for t, has in zip(outputs, backward.has_grad, strict=True) if not has]
        ctx.mark_non_differentiable(*plain)
        return tuple(outputs)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        return (None, None, *ctx.ask(grads))


def _with_tensors(value: Any, tensors: Iterator[Tensor]) -> Any:
    """`value` with its tensors replaced, in the order of `tensors_in`."""
    if isinstance(value, Tensor):
        return next(tensors)
    if isinstance(value, dict):
        return {key: _with_tensors(item, tensors) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_with_tensors(item, tensors) for item in value)
    return value
