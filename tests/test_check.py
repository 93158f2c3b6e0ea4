"""The checks: what they say to each kind of answer, and what no answer can do to them."""

from __future__ import annotations

import io
import logging
import os
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from asking import Answer, failure, token_delta
from tinyrl.course.checking.checks import NotAttempted, check
from tinyrl.course.checking.judging import Known, walk
from tinyrl.course.exercises import find
from tinyrl.course.words import set_language

pytestmark = pytest.mark.usefixtures("own_state")


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
    cases = len(find("token_delta").inputs(0))
    assert out == f"✓ token_delta: Token delta\n  `token_delta` is right: {cases} cases.\n"
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
    verdict = walk(Known(find(name), 0), answer, own=True)
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
    cases = len(find("token_delta").inputs(0))
    assert f"{cases} cases" in right[0].data["text/html"]
