"""The process in which a student's code runs, and nothing else does.

It reads requests on stdin and answers on stdout, both taken out of the student's reach
before any of their code runs: what they print goes nowhere, `input()` finds no input.
Cells run in IPython, so that magics work, one statement at a time, each announced first:
when one kills the process or never ends, the other side knows which, and starts a new
process that leaves it out. Nothing in here is to be trusted by the other side (remote.py).

To import torch takes longer than to mark a notebook. So `template` imports everything once
and forks a process for each notebook, for forking.py; it runs no student's code.
"""

from __future__ import annotations

import ast
import contextlib
import ctypes
import gc
import json
import os
import re
import socket
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from IPython.core.interactiveshell import InteractiveShell
from torch import Tensor
from traitlets.config import Config

from tinyrl.course.checking import wire
from tinyrl.course.checking.guarded_call import Attempt, attempt

MEMORY = 16 << 30  # bytes of address space, most of which torch only reserves
TIMED = re.compile(r"\A\s*%%(time|capture)\b.*\n")  # the cell means the same without
MESSAGE = 1 << 16  # bytes to a template, at most: an environment and a path
NOT_DUMPABLE = 4, 0  # prctl: no other process of the user reads or writes the memory
KEPT_CALLS = 64  # whose graphs stay for a later request of their gradient


class Shell(InteractiveShell):
    """IPython without a screen: `%matplotlib inline` and the like change nothing."""

    def enable_gui(self, gui: str | None = None) -> None:
        pass


class Student:
    """One notebook's namespace, and the requests that can be made of it."""

    def __init__(self, announce: Callable[[dict[str, Any]], None]) -> None:
        self.announce = announce
        config = Config()
        config.HistoryManager.enabled = False
        config.InteractiveShell.colors = "nocolor"
        self.shell: Any = Shell.instance(config=config)
        self.made = 0
        self.calls: dict[int, Attempt] = {}

    def cell(self, source: str, skip: list[int]) -> dict[str, Any]:
        """Run a cell but for the statements in `skip`; stop at an error, like Jupyter."""
        code = self.shell.transform_cell(TIMED.sub("", source))
        try:
            statements = ast.parse(code).body
        except SyntaxError as error:
            return {"error": f"SyntaxError: {error.msg} (line {error.lineno})"}
        for at, statement in enumerate(statements):
            if at in skip:
                continue
            self.announce({"at": at})
            result = self.shell.run_cell(ast.unparse(statement), silent=True)
            failed = result.error_before_exec or result.error_in_exec
            if failed is not None:
                return {"error": f"{type(failed).__name__}: {failed}"[:2000]}
        return {"error": None}

    def look(self, name: str) -> dict[str, Any]:
        """What the notebook calls `name`: nothing, something to call, or a value."""
        if name not in self.shell.user_ns:
            return {"kind": "missing"}
        value = self.shell.user_ns[name]
        if callable(value) and not isinstance(value, Tensor):
            return {"kind": "function"}
        return {"kind": "value", "value": value}

    def call(self, name: str, args: list[Any], wants_grad: list[bool]) -> dict[str, Any]:
        """Call the function `name`; the arguments in `wants_grad` are to carry gradients.

        The reply holds the value, which of its tensors carry a gradient, the arguments
        that were written to, and the functions of the library that were entered.
        """
        made = attempt(self.shell.user_ns[name], tuple(args), wants_grad=tuple(wants_grad))
        if made.error is not None:
            raise made.error
        self.made += 1
        self.calls[self.made] = made
        self.calls.pop(self.made - KEPT_CALLS, None)
        return {
            "value": made.value,
            "call": self.made,
            "has_grad": [t.requires_grad for t in tensors_in(made.value)],
            "changed": {i: made.args[i] for i in made.changed},
            "borrowed": sorted(set(made.borrowed)),
        }

    def gradient(self, call: int, grads: list[Tensor | None]) -> dict[str, Any]:
        """Gradients of an earlier call's arguments, given those of its output tensors."""
        made = self.calls[call]
        inputs = [
            a if isinstance(a, Tensor) and a.requires_grad else None for a in made.args
        ]
        pairs = zip(tensors_in(made.value), grads, strict=True)
        used = [(output, grad) for output, grad in pairs if grad is not None]
        if not used:
            return {"grads": [None] * len(inputs)}
        # a sum has the same gradients; given some, torch imports sympy, for half a second
        total = torch.stack([(output * grad).sum().double() for output, grad in used]).sum()
        wanted = [t for t in inputs if t is not None]
        found = iter(
            torch.autograd.grad(total, wanted, retain_graph=True, allow_unused=True)
        )
        return {"grads": [None if t is None else next(found) for t in inputs]}


def tensors_in(value: Any) -> list[Tensor]:
    """The tensors of nested lists, tuples and dicts, in order."""
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    items = value if isinstance(value, list | tuple) else []
    return [tensor for item in items for tensor in tensors_in(item)]


def limit_resources() -> None:
    """Bound what a runaway answer can take from the machine, where the system lets us."""
    if sys.platform != "linux":
        return
    import resource

    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (100 << 20, 100 << 20))


def serve(student: Student, requests: wire.Stream, answers: wire.Stream) -> None:
    """Answer requests until the other side hangs up."""
    while True:
        try:
            request = wire.receive(requests)
        except wire.WireError:
            return
        try:
            reply = getattr(student, request.pop("do"))(**request)
        except BaseException as error:  # SystemExit and KeyboardInterrupt are answers too
            reply = {"raised": type(error).__name__, "message": str(error)[:2000]}
        try:
            wire.send(answers, reply)
        except wire.WireError as error:
            wire.send(answers, {"raised": "ValueError", "message": str(error)})


def main() -> None:
    requests = os.fdopen(os.dup(0), "rb", buffering=0)
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nowhere, descriptor)
    limit_resources()
    os.environ["MPLBACKEND"] = "agg"
    torch.set_num_threads(1)
    student = Student(announce=lambda message: wire.send(answers, message))
    wire.send(answers, {"ready": True})
    serve(student, requests, answers)


def template() -> None:
    """Fork and reap, as asked over the socket on stdin, until the other side hangs up."""
    control = socket.socket(fileno=os.dup(0))
    nowhere = os.open(os.devnull, os.O_RDWR)
    os.dup2(nowhere, 0)
    os.close(nowhere)
    torch.set_num_threads(1)
    # what the first cell of a lab imports
    from tinyrl.course import check, hint, progress, set_language, solution  # noqa: F401

    if len(os.listdir("/proc/self/task")) > 1:  # a fork would lose what the others hold
        return
    ctypes.CDLL(None).prctl(*NOT_DUMPABLE)
    gc.freeze()  # collecting would copy what parent and child share
    while True:
        data, descriptors, _, _ = socket.recv_fds(control, MESSAGE, 2)
        if not data:
            return
        request = json.loads(data)
        if "reap" in request:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(request["reap"], 0)
            control.send(b"0")
        elif pid := os.fork():
            for descriptor in descriptors:
                os.close(descriptor)
            control.send(str(pid).encode())
        else:
            control.close()
            try:
                _forked(request["folder"], request["environment"], *descriptors)
            finally:
                os._exit(0)


def _forked(folder: str, environment: dict[str, str], requests: int, answers: int) -> None:
    """Be what a process of its own would be."""
    os.setsid()
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    del sys.argv[1:]
    os.dup2(requests, 0)
    os.dup2(answers, 1)
    os.close(requests)
    os.close(answers)
    torch.seed()  # Python's own draws are new in a fork, these are not
    np.random.seed()
    main()


if __name__ == "__main__":
    template() if sys.argv[1:] == ["template"] else main()
