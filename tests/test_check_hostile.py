"""What no answer can do to the checks: fool them, end them, or call for help."""

from __future__ import annotations

import builtins
import contextlib
import logging
import signal
import sys
import threading
import time
import warnings
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from asking import Answer, failure, token_delta
from tinyrl.course.checking import guarded_call as attempt_module
from tinyrl.course.checking.guarded_call import attempt
from tinyrl.course.checking.judging import judge
from tinyrl.course.exercises import find
from tinyrl.logprobs import masked_mean as library_masked_mean

pytestmark = pytest.mark.usefixtures("own_state")


class AlwaysEqual:
    def __getattr__(self, name: str) -> Any:
        return self

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return 0

    def __le__(self, other: object) -> bool:
        return True

    def __sub__(self, other: object) -> Any:
        return self

    __rsub__ = __add__ = __radd__ = __mul__ = __rmul__ = __abs__ = __neg__ = __call__


class Sly(Tensor):
    def __eq__(self, other: object) -> Any:
        return True

    __hash__ = Tensor.__hash__


def patched_tensor(a: Tensor, b: Tensor, m: Tensor) -> Tensor:
    fake = torch.zeros_like(a)
    for method in ("detach", "to", "numpy", "double", "is_complex", "copy", "cpu"):
        setattr(fake, method, AlwaysEqual())
    return fake


@pytest.mark.parametrize(
    "answer",
    [
        lambda *args: AlwaysEqual(),
        lambda *args: token_delta(*args).as_subclass(Sly),
        lambda *args: torch.nn.Parameter(token_delta(*args)),
        lambda *args: token_delta(*args).to(torch.complex64),
        lambda *args: token_delta(*args).tolist(),
        lambda *args: np.array([AlwaysEqual, None], dtype=object),
        lambda *args: token_delta(*args).numpy().view(np.matrix),
        lambda *args: str(token_delta(*args)),
        lambda *args: torch.zeros(2, 3, device="meta"),
        lambda *args: (x for x in token_delta(*args)),
    ],
)
def test_only_plain_numbers_count(answer: Answer) -> None:
    assert "has to be a torch tensor or a plain number" in str(
        failure("token_delta", answer)
    )


def test_methods_set_on_a_tensor_are_not_used() -> None:
    assert "is wrong" in str(failure("token_delta", patched_tensor))


def test_patched_builtins_do_not_help(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(builtins, "abs", lambda x: 0.0)
    monkeypatch.setattr(builtins, "all", lambda xs: True)
    monkeypatch.setattr(builtins, "zip", lambda *args, **kwargs: iter(()))
    verdict = judge(find("token_delta"), lambda a, b, m: a)
    monkeypatch.undo()
    assert verdict.outcome != "right"


def zeroes_padding_in_place(a: Tensor, b: Tensor, m: Tensor) -> Tensor:
    a[~m] = 0
    return token_delta(a, b, m)


def test_writing_into_an_argument_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    error = failure("token_delta", zeroes_padding_in_place)
    assert "writes into `logp_train`" in str(error)
    x = torch.tensor([[1.0, float("nan")]])
    made = attempt(lambda a: a.fill_(0), (x,))
    assert made.changed == [0]
    assert x[0, 0] == 1
    assert attempt(lambda a: a * 2, (x,)).changed == []


def test_wrong_values_are_told_before_the_writing() -> None:
    assert failure("token_delta", lambda a, b, m: a.sub_(b).neg_() * m).mistake == "sign"


def targets_in_place(ids: Tensor, prompt: Tensor, length: Tensor) -> tuple[Tensor, Tensor]:
    """`targets` is a view, and so are the inputs that the writing spoils."""
    targets, t = ids[:, 1:], torch.arange(1, ids.shape[1])
    targets[(t < prompt[:, None]) | (t >= length[:, None])] = -100
    return ids[:, :-1], targets


def test_writing_that_spoils_a_view_is_told_and_nothing_else() -> None:
    for seed in (None, 5):
        error = failure("shift_targets", targets_in_place, seed=seed)
        assert "`shift_targets` writes into `ids`" in str(error)
        assert error.mistake is None
    as_numpy: Answer = lambda *args: [x.numpy() for x in targets_in_place(*args)]  # noqa: E731
    assert "writes into `ids`" in str(failure("shift_targets", as_numpy))


def test_a_view_that_is_wrong_for_another_reason_is_told_as_wrong() -> None:
    def late(ids: Tensor, prompt: Tensor, length: Tensor) -> tuple[Tensor, Tensor]:
        return targets_in_place(ids, prompt + 1, length)

    assert str(failure("shift_targets", late)).startswith("`targets` is wrong: ")


def test_writing_is_named_beside_a_wrong_value_that_it_may_explain() -> None:
    def hazard(wrong: Tensor, length: Tensor) -> Tensor:
        before = wrong
        before[:, 1:] = wrong[:, :-1].cummax(1).values  # and so `wrong` has changed
        real = torch.arange(wrong.shape[1]) < length[:, None]
        return (wrong & real).sum(0) / real.sum(0)

    said = "`hazard` is wrong: four answers"
    also = "And your function writes into `wrong`, which belongs to the caller"
    for seed in (None, 5):
        told = str(failure("hazard", hazard, seed=seed))
        assert told.startswith(said)
        assert also in told
    copied: Answer = lambda wrong, length: hazard(wrong.clone(), length)  # noqa: E731
    told = str(failure("hazard", copied))
    assert told.startswith(said)
    assert "writes into" not in told


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (lambda *args: sys.exit(0), "ends Python with `exit`"),
        (lambda *args: input("?"), "calls `input()`"),
        (lambda *args: exec("raise KeyboardInterrupt"), "was interrupted"),
        (lambda *args: exec("raise MemoryError"), "runs out of memory"),
    ],
)
def test_answers_that_would_end_or_block_the_notebook(answer: Answer, said: str) -> None:
    assert said in str(failure("token_delta", answer))
    assert said in str(failure("token_delta", answer, seed=1))


def test_endless_recursion() -> None:
    def answer(a: Tensor, b: Tensor, m: Tensor) -> Tensor:
        return answer(a, b, m)

    assert "calls itself without end" in str(failure("token_delta", answer))


def test_endless_loop_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempt_module, "SECONDS", 0.2)

    def answer(a: Tensor, b: Tensor, m: Tensor) -> Tensor:
        while True:
            with contextlib.suppress(Exception):
                time.sleep(0.01)

    started = time.monotonic()
    assert "Does its loop ever end?" in str(failure("token_delta", answer))
    assert time.monotonic() - started < 2


def test_what_was_there_before_is_there_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    rang: list[int] = []
    seen: list[str] = []
    old_handler = signal.signal(signal.SIGALRM, lambda *_: rang.append(1))
    old_timer = signal.setitimer(signal.ITIMER_REAL, 0.3)
    handlers = logging.root.handlers[:]
    logging.root.handlers.clear()
    ours = sys.getprofile(), builtins.input, sys.stdout, warnings.filters[:]

    def profile(frame: Any, event: str, arg: Any) -> None:
        seen.append(event)

    try:
        sys.setprofile(profile)
        attempt(lambda: logging.warning("adds a handler") or time.sleep(0.05), ())  # type: ignore[func-returns-value]
        assert logging.root.handlers == []
        assert sys.getprofile() is profile
        sys.setprofile(ours[0])
        time.sleep(0.4)
        assert rang == [1]
    finally:
        sys.setprofile(ours[0])
        logging.root.handlers[:] = handlers
        signal.signal(signal.SIGALRM, old_handler)
        signal.setitimer(signal.ITIMER_REAL, *old_timer)
    assert (builtins.input, sys.stdout, warnings.filters) == ours[1:]


def test_in_a_thread_where_no_alarm_can_ring() -> None:
    verdicts: list[str] = []
    answers: tuple[Answer, ...] = (token_delta, lambda a, b, m: a)

    def work() -> None:
        verdicts.extend(judge(find("token_delta"), answer).outcome for answer in answers)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert verdicts == ["right", "wrong"]


REFERENCE = find("masked_mean").reference


def by_the_library(x: Tensor, mask: Tensor) -> Tensor:
    return library_masked_mean(x, mask)


@pytest.mark.parametrize(
    ("answer", "called"),
    [
        (by_the_library, "logprobs.masked_mean"),
        (library_masked_mean, "logprobs.masked_mean"),
        (lambda *args: [by_the_library(*args)][0], "logprobs.masked_mean"),
        (REFERENCE, "course.exercises.lab01.masked_mean.reference"),
        (lambda *args: REFERENCE(*args), "course.exercises.lab01.masked_mean.reference"),
        (lambda *args: find("ratio").reference(*args), "course.exercises.__init__.find"),
    ],
)  # fmt: skip
def test_calling_the_library_is_recognised(answer: Answer, called: str) -> None:
    error = failure("masked_mean", answer)
    assert error.mistake == "borrowed"
    assert f"calls tinyrl's own `{called}`" in str(error)


def test_own_helpers_are_not_the_library() -> None:
    def masked_mean(x: Tensor, mask: Tensor) -> Tensor:
        return token_delta(x, torch.zeros_like(x), mask).sum() / mask.sum()

    assert judge(find("masked_mean"), masked_mean).outcome == "right"
