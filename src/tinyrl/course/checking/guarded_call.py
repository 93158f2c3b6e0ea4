"""Call a learner's function so that nothing it does is lost, and nothing harms the check.

It gets copies of the arguments. What it prints, warns or logs is kept from the cell (one
byte on stderr costs the mark in nbgrader), an endless loop is stopped, a question to the
keyboard is refused, and a call of the library's own functions is noticed.
"""

from __future__ import annotations

import builtins
import contextlib
import io
import logging
import os
import signal
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import Tensor

from tinyrl.course.exercise import Argument, Function

SECONDS = 5.0  # for one call; a right answer takes milliseconds
LIBRARY = str(Path(__file__).parents[2]) + os.sep
COURSE = str(Path(__file__).parents[1]) + os.sep
EXERCISES = COURSE + "exercises" + os.sep
UNWATCHED = "sys.setprofile"
SET_PROFILE = sys.setprofile  # known by identity, under whatever name it is called


class OutOfTime(BaseException):
    """Raised inside a function that runs too long; no `except Exception` stops it."""


class AsksKeyboard(Exception):
    """Raised by `input()`: nobody sits at the keyboard when an answer is graded."""


@dataclass
class Attempt:
    """What came of one call."""

    args: tuple[Argument, ...]  # the copies that the function got
    value: Any = None
    error: BaseException | None = None
    line: tuple[int, str] | None = None  # of the function, at which the error arose
    printed: str = ""
    changed: list[int] = field(default_factory=list)  # arguments written to in place
    borrowed: list[str] = field(default_factory=list)  # the library's functions it entered


def attempt(
    function: Function,
    args: tuple[Argument, ...],
    *,
    wants_grad: tuple[bool, ...] = (),
    guarded: bool = True,
) -> Attempt:
    """Call `function` on copies of `args`; `wants_grad` says which carry a gradient."""
    copies = tuple(a.detach().clone() if isinstance(a, Tensor) else a for a in args)
    for copy, wanted in zip(copies, wants_grad, strict=False):
        if wanted and isinstance(copy, Tensor):
            copy.requires_grad_()
    made = Attempt(copies)
    if not guarded:
        try:
            with as_shipped():
                made.value = function(*copies)
        except Exception as error:
            made.error = error.with_traceback(None)
        return made
    printed = io.StringIO()
    with _quiet(printed), _no_keyboard():
        try:
            with as_shipped(), _watched(made.borrowed), _deadline(SECONDS):
                made.value = function(*copies)
        except BaseException as error:  # SystemExit and the like must not end the kernel
            made.error, made.line = error, _line(error)
    made.printed = printed.getvalue()
    pairs = enumerate(zip(copies, args, strict=True))
    made.changed = [i for i, (copy, original) in pairs if _bytes(copy) != _bytes(original)]
    return made


def _line(error: BaseException) -> tuple[int, str] | None:
    """The number and the text of the learner's line that was running."""
    frames = traceback.extract_tb(error.__traceback__)
    error.__traceback__ = None  # it holds every tensor of the call
    theirs = [frame for frame in frames if not frame.filename.startswith(COURSE)]
    if not theirs or theirs[0].lineno is None or not theirs[0].line:
        return None
    return theirs[0].lineno, theirs[0].line


def _bytes(value: Argument) -> bytes:
    """The exact content of an argument: NaN equals itself here."""
    if not isinstance(value, Tensor):
        return b""
    try:
        return Tensor.detach(value).numpy().tobytes()
    except RuntimeError:  # made sparse, conjugate or the like in place
        return b"changed"


@contextlib.contextmanager
def as_shipped() -> Iterator[None]:
    """torch as it comes: float32 on the CPU, with gradients, whatever a notebook has set.

    Else what a learner switched off would be off for the truth as well, and agree.
    """
    dtype, device = torch.get_default_dtype(), torch.get_default_device()
    on_cpu = torch.device("cpu") if device.type != "cpu" else contextlib.nullcontext()
    torch.set_default_dtype(torch.float32)
    try:
        with on_cpu, torch.inference_mode(False), torch.enable_grad():
            yield
    finally:
        torch.set_default_dtype(dtype)


@contextlib.contextmanager
def _quiet(printed: io.StringIO) -> Iterator[None]:
    """Keep prints, and silence warnings, logging and what C code writes to stderr."""
    level, handlers = logging.root.manager.disable, logging.root.handlers[:]
    logging.disable(logging.CRITICAL)
    try:
        with (
            contextlib.redirect_stdout(printed),
            contextlib.redirect_stderr(printed),
            warnings.catch_warnings(),
            _no_stderr_of_c(),
        ):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(level)
        logging.root.handlers[:] = handlers  # logging.warning() adds one for `printed`


@contextlib.contextmanager
def _no_stderr_of_c() -> Iterator[None]:
    try:
        kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    except OSError:  # a process without a stderr
        yield
        return
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


@contextlib.contextmanager
def _no_keyboard() -> Iterator[None]:
    def refuse(*_: object) -> str:
        raise AsksKeyboard

    asks = builtins.input
    builtins.input = refuse
    try:
        yield
    finally:
        builtins.input = asks


@contextlib.contextmanager
def _watched(borrowed: list[str]) -> Iterator[None]:
    """Note every function of the library, outside the course, that is entered.

    The course's references are the library's, too. A right answer never gets there, and
    never takes the watch off: where that happened, `UNWATCHED` is noted.
    """

    def note(frame: FrameType, event: str, function: object) -> None:
        file = frame.f_code.co_filename
        if event == "c_call" and function is SET_PROFILE and file != __file__:
            borrowed.append(UNWATCHED)  # also where it is put back before the end
        if event != "call" or not file.startswith(LIBRARY):
            return
        if not file.startswith(COURSE) or file.startswith(EXERCISES):
            module = file.removeprefix(LIBRARY).removesuffix(".py").replace(os.sep, ".")
            borrowed.append(f"{module}.{frame.f_code.co_qualname}")

    before, in_threads = sys.getprofile(), threading.getprofile()
    sys.setprofile(note)
    threading.setprofile(note)
    try:
        yield
        if sys.getprofile() is not note:  # an error, as of endless recursion, may end it
            borrowed.append(UNWATCHED)
    finally:
        sys.setprofile(before)
        threading.setprofile(in_threads)


@contextlib.contextmanager
def _deadline(seconds: float) -> Iterator[None]:
    """Raise `OutOfTime` in the body after `seconds`, where the system can (main thread)."""
    main = threading.current_thread() is threading.main_thread()
    if not (main and hasattr(signal, "setitimer")):
        yield
        return

    def stop(*_: object) -> None:
        raise OutOfTime

    started = time.monotonic()
    handler = signal.signal(signal.SIGALRM, stop)
    waiting, interval = signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)
        if waiting:  # somebody else's alarm, a test runner's for one, goes on
            left = max(0.001, waiting - (time.monotonic() - started))
            signal.setitimer(signal.ITIMER_REAL, left, interval)
