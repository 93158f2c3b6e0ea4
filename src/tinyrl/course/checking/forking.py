"""Processes for many notebooks, forked from one that has imported everything.

To import torch takes longer than to mark a notebook. The template runs no student's code
(worker.py has its side), and each notebook still gets a process of its own.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import sys
import tempfile
from subprocess import DEVNULL
from typing import Any, BinaryIO

from tinyrl.course.checking import remote
from tinyrl.course.checking.remote import Process
from tinyrl.course.checking.start_worker import environment, started

FORKS = sys.platform == "linux"  # elsewhere what torch is built on may not survive it


class TemplateGone(OSError):
    """The template has ended, or does not answer: nothing comes from it any more."""


class Template:
    """A process that has imported everything. Each call forks one more `Process` from it.

    It runs no student's code (worker.py). The call raises `NoProcess` once it is gone.
    """

    def __init__(self) -> None:
        self.folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        # a message arrives whole, or not at all
        self.control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.control.settimeout(remote.START_SECONDS)
        with theirs:
            self.popen = started(self.folder.name, theirs, DEVNULL, "template")

    def __call__(self) -> Process:
        return _Forked(self)

    def ask(self, request: dict[str, Any], *descriptors: int) -> int:
        """The number with which the template answers; raises `TemplateGone`."""
        try:
            socket.send_fds(self.control, [json.dumps(request).encode()], descriptors)
            return int(self.control.recv(16))
        except (OSError, ValueError) as error:  # nothing, the end, is no number
            self.popen.kill()  # a student may have stopped it
            raise TemplateGone(f"the template is gone: {error}") from error

    def end(self) -> None:
        self.control.close()
        self.popen.kill()
        self.popen.wait()
        self.folder.cleanup()


class _Forked(Process):
    def __init__(self, template: Template) -> None:
        self.template = template
        super().__init__()

    def _start(self) -> _Child:
        return _Child(self.template, self.folder.name)


class _Child:
    """A child of the template, with what `Process` asks of a `Popen`."""

    def __init__(self, template: Template, folder: str) -> None:
        self.template = template
        (requests, stdin), (stdout, answers) = os.pipe(), os.pipe()
        self.stdin: BinaryIO = os.fdopen(stdin, "wb", buffering=0)
        self.stdout: BinaryIO = os.fdopen(stdout, "rb", buffering=0)
        try:
            fork = {"folder": folder, "environment": environment(folder)}
            self.pid = template.ask(fork, requests, answers)
        finally:
            os.close(requests)
            os.close(answers)

    def kill(self) -> None:
        with contextlib.suppress(OSError):
            os.kill(self.pid, signal.SIGKILL)

    def wait(self) -> None:
        """Let its parent reap it; until then no other process has its number."""
        with contextlib.suppress(TemplateGone):
            self.template.ask({"reap": self.pid})
