"""Which misconception is named, where it is known which mistakes agree when."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from tinyrl.course.checking.judging import Known, judge, walk
from tinyrl.course.exercise import Case, Exercise
from tinyrl.course.exercises import find
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


def test_a_mistake_that_raises_is_named_by_where_it_does() -> None:
    def upto_2(x: float) -> float:
        return [0.0, 0.0, 4.0][int(x)]

    exercise = small({"upto_2": upto_2, "square": lambda x: x * x})
    verdict = judge(exercise, lambda x: (1.0, 2.0, 4.0)[int(x)])
    assert (verdict.stage, verdict.mistake) == ("inputs", "upto_2")

    def other_error(x: float) -> float:
        if x == 3:
            raise ValueError
        return 2 * x

    assert judge(exercise, other_error).mistake is None


def replayed(train: Tensor, rollout: Tensor, k: int) -> Tensor:
    gates: Tensor = find("replayed_gates").reference(train, rollout, k)
    return gates


def test_a_rounding_error_is_no_gradient_into_data() -> None:
    """The gradient of sum q.detach() log q is 0; in float32 its terms leave some dust."""

    def dusty(train: Tensor, rollout: Tensor, mask: Tensor) -> Tensor:
        logp, logq = train[mask].log_softmax(-1), rollout[mask].log_softmax(-1)
        return (logq.exp().detach() * (logq - logp)).sum(-1).mean()

    exercise = find("router_consistency")
    train, rollout, mask = next(
        case.args for case in exercise.inputs(0) if case.stage == "gradient"
    )
    assert isinstance(rollout, Tensor)
    rollout = rollout.clone().requires_grad_()
    assert isinstance(train, Tensor)
    assert isinstance(mask, Tensor)
    (dust,) = torch.autograd.grad(dusty(train, rollout, mask), rollout)
    assert (dust != 0).any()
    assert judge(exercise, dusty).outcome == "right"


@pytest.mark.parametrize("size", [1e-3, 1e3])
def test_a_gradient_into_data_is_told_in_words_for_any_data(size: float) -> None:
    def leaks(train: Tensor, rollout: Tensor, k: int) -> Tensor:
        return replayed(train, rollout, k) + size * (rollout - rollout.detach())

    verdict = walk(Known(find("replayed_gates"), 0), leaks, own=True)
    assert (verdict.outcome, verdict.stage) == ("wrong", "gradient")
    assert "`logits_rollout`. That is data" in verdict.text.en


@pytest.mark.parametrize(
    ("name", "answer", "not_told"),
    [
        (
            "kl_estimates",
            lambda *args: [k * (1 + 5e-6) for k in find("kl_estimates").reference(*args)],
            "cancellation",
        ),
        (
            "top_k_gates",
            lambda z, k: gates_by_filling(z, k, -100.0),
            "unprotected",
        ),
        (
            "ratio",
            lambda *args: find("ratio").reference(*args) * (1 + 5e-6),
            "clamped",
        ),
    ],
)
def test_no_mistake_is_named_that_is_right_where_the_answer_is_not(
    name: str, answer: Answer, not_told: str
) -> None:
    """A little off, and so like every mistake whose own fault has not shown up yet."""
    for seed in range(5):
        verdict = walk(Known(find(name), seed), answer, own=True)
        assert verdict.mistake != not_told


def gates_by_filling(z: Tensor, k: int, low: float) -> Tensor:
    kth = z.topk(k, -1).values[..., -1:]
    return z.masked_fill(z < kth, low).softmax(-1)


def test_tiny_numbers_are_not_all_alike() -> None:
    """1e-9 is right, 0 a mistake: 3e-9 is another one."""
    tiny: dict[str, Answer] = {"nothing": lambda x: 0.0 * x}
    exercise = replace(small(tiny), reference=lambda x: 1e-9 * x)
    assert judge(exercise, lambda x: x - x).mistake == "nothing"
    verdict = judge(exercise, lambda x: 3e-9 * x)
    assert (verdict.outcome, verdict.mistake) == ("wrong", None)


def lost(logits: Tensor, kept: Tensor, mask: Tensor) -> Tensor:
    return torch.where(kept[mask], 0.0, logits[mask].softmax(1)).sum(1).mean()


def cut(logits: Tensor, kept: Tensor) -> Tensor:
    return logits.masked_fill(~kept, -torch.inf)


@pytest.mark.parametrize(
    ("answer", "mistake"),
    [
        (lambda z, k, m: lost(z, k, m).round(decimals=6), None),
        (lambda z, k, m: lost(z, k, m).clamp(min=1e-8), None),
        (lambda z, k, m: lost(z, k, m) + 1e-8, None),
        (lambda z, k, m: 1 - (z[m].softmax(1) * k[m]).sum(1).mean(), "subtracted"),
        (lambda z, k, m: (1 - (z[m].softmax(1) * k[m]).sum(1)).mean(), "subtracted"),
        (lambda z, k, m: 1 - torch.where(k, z.softmax(2), 0.0).sum(2)[m].mean(),
         "subtracted"),
        (lambda z, k, m: -torch.expm1(cut(z[m], k[m]).logsumexp(1) - z[m].logsumexp(1))
         .mean(), "subtracted"),
    ],
)  # fmt: skip
def test_a_tail_that_is_lost_is_told_as_a_difference_only_where_it_is_one(
    answer: Answer, mistake: str | None
) -> None:
    told = [judge(find("unreachable_mass"), answer, seed) for seed in range(20)]
    assert {(v.outcome, v.mistake) for v in told} == {("wrong", mistake)}
