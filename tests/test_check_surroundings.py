"""What a notebook set, and how an answer calls, changes nothing of a verdict."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from tinyrl.course.checking.judging import Known, judge, walk
from tinyrl.course.exercises import LABS, find

EXERCISES = [exercise.name for lab in LABS.values() for exercise in lab]
SETTINGS: dict[str, Callable[[], object]] = {
    "without gradients": lambda: torch.set_grad_enabled(False),
    "float64 by default": lambda: torch.set_default_dtype(torch.float64),
    "bfloat16 by default": lambda: torch.set_default_dtype(torch.bfloat16),
    "another device by default": lambda: torch.set_default_device("meta"),
}


@pytest.fixture
def torch_as_before() -> Iterator[None]:
    grad, dtype = torch.is_grad_enabled(), torch.get_default_dtype()
    yield
    torch.set_grad_enabled(grad)
    torch.set_default_dtype(dtype)
    torch.set_default_device(None)


def verdicts(name: str) -> dict[str, tuple[str, str | None]]:
    """Of all known answers, right and wrong, on the inputs that a learner sees."""
    exercise = find(name)
    known = Known(exercise, 0)
    answers = {n: f for n, (f, _) in exercise.mistakes.items()}
    answers |= {"reference": exercise.reference, **exercise.alternatives}
    told = {n: walk(known, f, own=True) for n, f in answers.items()}
    return {n: (verdict.outcome, verdict.mistake) for n, verdict in told.items()}


@pytest.mark.parametrize("name", EXERCISES)
def test_a_setting_of_torch_changes_no_verdict(name: str, torch_as_before: None) -> None:
    wanted = verdicts(name)
    for setting, make in SETTINGS.items():
        make()
        assert verdicts(name) == wanted, setting
        torch.set_default_device(None)
        torch.set_default_dtype(torch.float32)


def test_an_answer_that_turns_gradients_off_turns_them_off_for_itself_alone() -> None:
    right = find("ratio").reference

    def answer(*args: Tensor) -> Tensor:
        torch.set_grad_enabled(False)
        value: Tensor = right(*args)
        return value

    verdict = walk(Known(find("ratio"), 0), answer, own=True)
    assert verdict.outcome == "wrong"
    assert torch.is_grad_enabled()


REFERENCE = find("masked_mean").reference


def in_a_thread(x: Tensor, mask: Tensor) -> Any:
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(REFERENCE(x, mask)))
    thread.start()
    thread.join()
    return found[0]


def unwatched(x: Tensor, mask: Tensor) -> Any:
    sys.setprofile(None)
    return REFERENCE(x, mask)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (in_a_thread, "calls tinyrl's own `course.exercises.lab01.masked_mean.reference`"),
        (unwatched, "takes off what watches its calls"),
    ],
)
def test_a_hidden_call_of_the_library_is_told(
    answer: Callable[..., Any], said: str
) -> None:
    verdict = judge(find("masked_mean"), answer)
    assert (verdict.outcome, verdict.mistake) == ("wrong", "borrowed")
    assert said in verdict.text.en
    assert sys.getprofile() is None
    assert threading.getprofile() is None
