"""Hidden tests: other inputs, of which nothing may show, and the same diagnosis."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from asking import Answer, failure, token_delta
from tinyrl.course.exercises import find

pytestmark = pytest.mark.usefixtures("own_state")


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
