"""The checks: what they say to each kind of answer, and what no answer can do to them."""

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
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tinyrl.course import attempt as attempt_module
from tinyrl.course.attempt import attempt
from tinyrl.course.checks import CheckFailed, NotAttempted, check
from tinyrl.course.exercise import Case, Exercise
from tinyrl.course.exercises import find
from tinyrl.course.judging import judge
from tinyrl.course.words import Words, set_language
from tinyrl.logprobs import masked_mean as library_masked_mean

Answer = Callable[..., Any]


@pytest.fixture(autouse=True)
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TINYRL_HOME", str(tmp_path))
    monkeypatch.setenv("TINYRL_LANG", "en")


def token_delta(logp_train: Tensor, logp_rollout: Tensor, mask: Tensor) -> Tensor:
    return torch.where(mask, logp_train - logp_rollout, 0.0)


def failure(name: str, answer: Any, **kwargs: Any) -> CheckFailed:
    with pytest.raises(CheckFailed) as caught:
        check(name, answer, **kwargs)
    return caught.value


# What a right answer may do.


def noisy(logp_train: Tensor, logp_rollout: Tensor, mask: Tensor) -> Tensor:
    warnings.warn("beware", stacklevel=1)
    warnings.simplefilter("always")
    warnings.warn("beware again", stacklevel=1)
    logging.warning("logged")
    logging.getLogger("mine").error("logged")
    print("to stdout")
    print("to stderr", file=sys.stderr)
    os.write(2, b"as C code does\n")
    return token_delta(logp_train, logp_rollout, mask)


@pytest.mark.filterwarnings("ignore:beware")
def test_right_answer_passes_without_a_byte_on_stderr(
    capfd: pytest.CaptureFixture[str],
) -> None:
    assert check("token_delta", noisy) is None  # type: ignore[func-returns-value]
    out, err = capfd.readouterr()
    assert err == ""
    assert out == "✓ token_delta: Token delta\n  `token_delta` is right: 8 cases.\n"
    assert logging.getLogger("mine").isEnabledFor(logging.ERROR)


@pytest.mark.filterwarnings("ignore:beware")
def test_log_handlers_of_the_notebook_stay_quiet() -> None:
    kernels_stderr = io.StringIO()  # as a handler made in an earlier cell holds it
    handler = logging.StreamHandler(kernels_stderr)
    logging.getLogger("mine").addHandler(handler)
    try:
        check("token_delta", noisy)
        assert kernels_stderr.getvalue() == ""
        logging.getLogger("mine").error("heard")
        assert kernels_stderr.getvalue() == "heard\n"
    finally:
        logging.getLogger("mine").removeHandler(handler)


def in_place_on_copies(logp_train: Tensor, logp_rollout: Tensor, mask: Tensor) -> Tensor:
    delta = logp_train.clone()
    delta -= logp_rollout
    delta[~mask] = 0
    return delta


class Callable_:
    def __call__(self, a: Tensor, b: Tensor, m: Tensor) -> Tensor:
        return token_delta(a, b, m)


K3 = find("kl_estimates").alternatives["float64_exp"]
CLIPPED = find("clip_fraction").alternatives["loops"]
COUNTED = find("longest_response").alternatives["counting"]


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("token_delta", in_place_on_copies),
        ("token_delta", Callable_()),
        ("token_delta", lambda *args: token_delta(*args).double()),
        ("token_delta", lambda a, b, m, extra=1: token_delta(a, b, m)),
        ("masked_mean", lambda x, mask: x.double()[mask].mean()),
        ("kl_estimates", lambda *args: [float(k) for k in K3(*args)]),
        ("clip_fraction", lambda *args: np.float32(CLIPPED(*args))),
        ("length_growth", lambda m, s, t: (np.array(m * t), torch.tensor(s * t**0.5))),
        ("longest_response", lambda *args: float(COUNTED(*args))),
    ],
)
def test_right_answers_of_other_kinds_pass(name: str, answer: Answer) -> None:
    verdict = judge(find(name), answer, own=True)
    assert verdict.outcome == "right", verdict.text.en
    assert verdict.passed == len(find(name).inputs(0)) > 0


# Answers that are not there yet.


def stub(logp_train: Tensor, logp_rollout: Tensor, mask: Tensor) -> Tensor:
    # YOUR CODE HERE
    raise NotImplementedError()


@pytest.mark.parametrize(
    ("name", "answer", "said"),
    [
        ("token_delta", stub, "is not written yet"),
        ("token_delta", lambda a, b, m: None, "returned None. Is its `return` missing?"),
        ("token_delta", lambda a, b, m: ..., "a placeholder: Ellipsis"),
        ("kl_estimates", lambda a, b, m: (None,) * 3, "a placeholder: (None, None, None)"),
        ("kl_estimates", lambda a, b, m: [...] * 3, "a placeholder: [Ellipsis,"),
        ("token_delta", None, "is not a function but a NoneType"),
        ("token_delta", torch.zeros(2, 3), "is not a function but a Tensor"),
    ],
)
def test_no_answer_yet(name: str, answer: Any, said: str) -> None:
    error = failure(name, answer)
    assert isinstance(error, NotAttempted)
    assert said in str(error)


def test_an_unsupported_operation_is_an_attempt() -> None:
    def answer(a: Tensor, b: Tensor, m: Tensor) -> Tensor:
        raise NotImplementedError("'foo' is not implemented for 'Bool'")

    error = failure("token_delta", answer)
    assert not isinstance(error, NotAttempted)
    assert "not implemented for 'Bool'" in str(error)


def test_unknown_exercise() -> None:
    with pytest.raises(ValueError, match="did you mean 'token_delta'"):
        check("token_dleta", token_delta)


# What wrong answers are told.


def test_misconception_is_named_in_both_languages(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def swapped(a: Tensor, b: Tensor, m: Tensor) -> Tensor:
        return (b - a).masked_fill(~m, 0)

    error = failure("token_delta", swapped)
    assert error.mistake == "sign"
    assert "The sign is turned round" in str(error)
    out = capsys.readouterr().out
    assert "yours         [[-0.1 , -0.2 ,  0.5 ]," in out
    assert "expected      [[ 0.1 ,  0.2 , -0.5 ]," in out
    assert 'hint("token_delta")' in out
    set_language("zh")
    assert "符号反了" in str(failure("token_delta", swapped))
    assert "你的结果" in capsys.readouterr().out


def test_no_grad_is_told_as_detach() -> None:
    assert failure("token_delta", torch.no_grad()(token_delta)).mistake == "detach"


def test_numpy_is_told_to_stay_with_torch() -> None:
    def answer(x: Tensor, mask: Tensor) -> Any:
        return np.mean(x.numpy()[mask.numpy()])

    assert "Stay with torch operations" in str(failure("masked_mean", answer))


def test_two_mistakes_at_once_are_told_one_by_one() -> None:
    def sign_and_nan(a: Tensor, b: Tensor, m: Tensor) -> Tensor:
        return (b - a) * m

    assert failure("token_delta", sign_and_nan).mistake == "sign"
    assert (
        failure("token_delta", lambda a, b, m: sign_and_nan(b, a, m)).mistake
        == "times_mask"
    )


def test_wrong_in_an_unknown_way_names_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    error = failure("sequence_delta", lambda a, b, m: 1.1 * token_delta(a, b, m).sum(-1))
    assert error.mistake is None
    assert str(error) == "`sequence_delta` is wrong: two short responses, done by hand."
    out = capsys.readouterr().out
    assert "yours         [-0.22 , -0.825]" in out
    assert "expected      [-0.2 , -0.75]" in out


def test_first_difference_of_a_large_array(capsys: pytest.CaptureFixture[str]) -> None:
    def wrong_later(a: Tensor, b: Tensor, m: Tensor) -> Tensor:
        delta = token_delta(a, b, m)
        return delta if delta.shape[1] < 10 else delta.clamp(max=0.0)

    assert failure("token_delta", wrong_later).mistake is None
    out = capsys.readouterr().out
    assert "first difference  [" in out
    assert "/ 50)" in out


def test_shape_and_count_of_the_values() -> None:
    said = str(failure("sequence_delta", lambda a, b, m: token_delta(a, b, m)[:, 0]))
    assert "is wrong" in said
    said = str(failure("sequence_delta", lambda a, b, m: torch.zeros(2, 1)))
    assert said == "`sequence_delta` has shape [2, 1]; it should have [2]."
    said = str(failure("kl_estimates", lambda a, b, m: torch.zeros(3)))
    assert "returns 3 values, `return k1, k2, k3`" in said


def test_exceptions_show_the_line() -> None:
    def answer(a: Tensor, b: Tensor, m: Tensor) -> Tensor:
        return a.no_such_method()  # type: ignore[no-any-return,operator]

    said = str(failure("token_delta", answer))
    line = answer.__code__.co_firstlineno + 1
    assert f"raises AttributeError at line {line}, `return a.no_such_method()" in said
    assert "'Tensor' object has no attribute 'no_such_method'" in said
    assert "takes 2 positional arguments but 3" in str(
        failure("token_delta", lambda a, b: a)
    )


def test_prints_of_the_failing_call_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    def answer(a: Tensor, b: Tensor, m: Tensor) -> Tensor:
        print("rows", len(a))
        return a

    failure("token_delta", answer)
    assert "it printed    rows 2" in capsys.readouterr().out


# Diagnosis on an exercise of its own, where it is known which mistakes agree when.


def small(mistakes: dict[str, Answer], **kwargs: Any) -> Exercise:
    said = {name: Words(en=name, zh=name) for name in mistakes}

    def cases(generator: torch.Generator) -> list[Case]:
        what = Words(en="it", zh="它")
        return [Case("example", what, (2.0,)), Case("inputs", what, (3.0,))]

    return Exercise(
        name="double",
        title=Words(en="", zh=""),
        reference=lambda x: 2 * x,
        returns=("double",),
        cases=cases,
        mistakes={name: (function, said[name]) for name, function in mistakes.items()},
        alternatives={},
        hints=(Words(en="", zh=""),) * 3,
        points=(1, 1),
        minutes=1,
        **kwargs,
    )


def test_later_cases_decide_between_mistakes() -> None:
    exercise = small({"cube": lambda x: x**3, "times_4": lambda x: 4 * x})
    assert judge(exercise, lambda x: x * x * x).mistake == "cube"
    assert judge(exercise, lambda x: x * 4).mistake == "times_4"


def test_mistakes_that_agree_everywhere_are_not_named() -> None:
    exercise = small({"cube": lambda x: x**3, "cube again": lambda x: x * x**2})
    verdict = judge(exercise, lambda x: x**3)
    assert (verdict.outcome, verdict.mistake) == ("wrong", None)


def test_a_mistake_has_to_explain_the_cases_that_were_right_too() -> None:
    """The square is right at 2, as 2 + 2 is 2 * 2, so 'plus 6' explains it only at 3."""
    exercise = small({"plus_6": lambda x: x + 6, "square": lambda x: x * x})
    assert judge(exercise, lambda x: x * x).mistake == "square"
    exercise = small({"plus_6": lambda x: x + 6})
    assert judge(exercise, lambda x: x * x).mistake is None


# What no answer can do.


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


# Hidden tests.


def test_hidden_inputs_do_not_show(capsys: pytest.CaptureFixture[str]) -> None:
    def spy(a: Tensor, b: Tensor, m: Tensor) -> Tensor:
        print("seen", a)
        raise ValueError(f"seen {a}")

    for answer in (spy, lambda a, b, m: token_delta(a, b, m) + 1e-3, lambda a, b, m: b - a):
        error = failure("token_delta", answer, seed=5)
        shown = str(error) + capsys.readouterr().out
        assert not any(character.isdigit() for character in shown), shown
        assert "tensor" not in shown


def test_hidden_gradient_case_does_not_show(capsys: pytest.CaptureFixture[str]) -> None:
    def spy(a: Tensor, b: Tensor, m: Tensor) -> Tensor:
        if a.requires_grad:
            raise RuntimeError(f"seen {a}")
        return token_delta(a, b, m)

    assert "seen" in str(failure("token_delta", spy))
    capsys.readouterr()
    shown = str(failure("token_delta", spy, seed=5)) + capsys.readouterr().out
    assert "seen" not in shown


def test_hidden_tests_still_name_the_misconception() -> None:
    inverted: Answer = lambda a, b, m: token_delta(b, a, m)  # noqa: E731
    assert failure("token_delta", inverted, seed=5).mistake == "sign"


def test_agreement_by_chance_on_the_example_is_no_diagnosis() -> None:
    """On the example, where padding is 0, an inverted mask also gives nothing but zeros."""
    zeros: Answer = lambda a, b, m: torch.zeros_like(a)  # noqa: E731
    inverted = find("token_delta").mistakes["mask_inverted"][0]
    example = find("token_delta").inputs(0)[0].args
    assert torch.equal(zeros(*example), inverted(*example))
    assert failure("token_delta", zeros).mistake is None


def test_answers_learnt_by_heart_fail_on_other_inputs() -> None:
    known = {}
    for case in find("token_delta").inputs(0):
        known[case.args[0].numpy().tobytes()] = token_delta(*case.args)  # type: ignore[union-attr,arg-type]

    def by_heart(a: Tensor, b: Tensor, m: Tensor) -> Tensor:
        key = a.detach().numpy().tobytes()
        return known.get(key, torch.zeros_like(a)) + 0 * torch.where(m, a, 0.0)

    error = failure("token_delta", by_heart, seed=1)
    assert "property" not in str(error)
    assert error.mistake is None


# In Jupyter.

CELLS = """\
from tinyrl.course import check as _check; _check("token_delta", token_delta)
---
import torch, warnings
def token_delta(a, b, m):
    warnings.warn("beware")
    return torch.where(m, b - a, 0.0)
---
from tinyrl.course import check as _check; _check("token_delta", token_delta)
---
def token_delta(a, b, m):
    warnings.warn("beware")
    return torch.where(m, a - b, 0.0)
---
from tinyrl.course import check as _check; _check("token_delta", token_delta)
"""


def test_in_a_kernel(tmp_path: Path) -> None:
    import nbformat
    from nbclient import NotebookClient

    nb = nbformat.v4.new_notebook()
    nb.cells = [nbformat.v4.new_code_cell(source) for source in CELLS.split("---\n")]
    NotebookClient(nb, timeout=120, allow_errors=True).execute()
    missing, _, wrong, _, right = (cell.outputs for cell in nb.cells)
    assert missing[0].ename == "NameError"
    card, error = wrong
    assert "The sign is turned round" in card.data["text/html"]
    assert card.data["text/plain"].startswith("✗ token_delta: the simplest example")
    assert error.ename == "CheckFailed"
    assert len(error.traceback) == 1
    assert error.traceback[0].startswith("CheckFailed: The sign is turned round")
    assert [output.output_type for output in right] == ["display_data"]
    assert "8 cases" in right[0].data["text/html"]
