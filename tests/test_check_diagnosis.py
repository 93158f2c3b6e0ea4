"""Which misconception is named, where it is known which mistakes agree when."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from tinyrl.course.exercise import Case, Exercise
from tinyrl.course.exercises import find
from tinyrl.course.judging import judge
from tinyrl.course.words import Words

Answer = Callable[..., Any]


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


def test_agreement_by_chance_on_the_example_is_no_diagnosis() -> None:
    """On the example, where padding is 0, an inverted mask also gives nothing but zeros."""
    zeros: Answer = lambda a, b, m: torch.zeros_like(a)  # noqa: E731
    inverted = find("token_delta").mistakes["mask_inverted"][0]
    example = find("token_delta").inputs(0)[0].args
    assert torch.equal(zeros(*example), inverted(*example))
    verdict = judge(find("token_delta"), zeros)
    assert (verdict.outcome, verdict.mistake) == ("wrong", None)
