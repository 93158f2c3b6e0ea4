"""Right numbers of a type without use: masks and ids that are floats, plain losses."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from asking import Answer
from tinyrl.course.checking import messages
from tinyrl.course.checking.judging import Known, walk
from tinyrl.course.exercises import find

BOTH, PLACES, FIRST, ENDS, KEPT, STEP = (
    find(name).reference
    for name in (
        *("shift_targets", "position_ids", "first_difference"),
        *("end_mask", "kept_loss", "reward_in_step"),
    )
)


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("position_ids", lambda a: PLACES(a).int()),
        ("position_ids", lambda a: PLACES(a).numpy().astype(np.int32)),
        ("first_difference", lambda a, b: torch.tensor(FIRST(a, b))),
        ("first_difference", lambda a, b: np.int64(FIRST(a, b))),
        ("end_mask", lambda ids, ends: ENDS(ids, ends).numpy()),
        ("kept_loss", lambda *args: torch.zeros(()) if args[2].all() else KEPT(*args)),
    ],
)
def test_other_types_of_the_same_use_are_right(name: str, answer: Answer) -> None:
    verdict = walk(Known(find(name), 0), answer, own=True)
    assert verdict.outcome == "right", verdict.text.en


@pytest.mark.parametrize(
    ("name", "answer", "said"),
    [
        ("position_ids", lambda a: PLACES(a).half(), "`position_ids` are right, their"),
        ("position_ids", lambda a: PLACES(a).numpy() * 1.0, "`position_ids` are right"),
        ("shift_targets", lambda *args: [BOTH(*args)[0], BOTH(*args)[1].float()],
         "`targets` are right, their type is not"),
        ("first_difference", lambda a, b: float(FIRST(a, b)),
         "`first_difference` are right, their"),
        ("end_mask", lambda *args: ENDS(*args).float(), "`end_mask` has to be boolean"),
        ("end_mask", lambda *args: ENDS(*args).long().numpy(),
         "`end_mask` has to be boolean"),
        ("reward_in_step", lambda *args: (STEP(*args)[0], STEP(*args)[1].float()),
         "`mask` has to be boolean"),
    ],
)  # fmt: skip
def test_right_numbers_of_a_type_without_use(name: str, answer: Answer, said: str) -> None:
    for seed in (0, 5):
        verdict = walk(Known(find(name), seed), answer, own=True)
        assert said in verdict.text.en
        assert (verdict.text, verdict.mistake) == (verdict.hidden, None)


def test_wrong_ids_are_told_before_their_type() -> None:
    blended = find("scheduled_inputs").mistakes["blended"][0]
    verdict = walk(Known(find("scheduled_inputs"), 0), blended, own=True)
    assert verdict.mistake == "blended"


def test_a_number_where_training_needs_a_tensor() -> None:
    unnamed = replace(find("kept_loss"), mistakes={})
    for zero in (0, 0.0, np.float32(0)):
        answer: Answer = lambda *args: zero if args[2].all() else KEPT(*args)  # noqa: B023, E731
        named = walk(Known(find("kept_loss"), 0), answer, own=True)
        assert (named.mistake, named.stage) == ("plain_zero", "gradient")
        said = walk(Known(unnamed, 0), answer, own=True).text.en
        assert "`kept_loss` is a plain number here" in said


@pytest.mark.parametrize("large", [False, True])
def test_booleans_and_ids_are_shown_as_such(large: bool) -> None:
    """An answer that is neither is shown as it is."""
    exercise = replace(find("hazard"), returns=("x",))
    case = exercise.inputs(0)[0]
    size = 40 if large else 3

    def told(mine: float, theirs: float, **kinds: tuple[str, ...]) -> list[str]:
        ones = np.ones(size)
        told = replace(exercise, **kinds)  # type: ignore[arg-type]
        rows = messages.compared(told, case, "x", mine * ones, theirs * ones, 0 * ones)
        values = (value for _, value in rows[-2:])
        return [value if large else value.split(",")[0].strip("[] ") for value in values]

    assert told(0, 1, boolean=("x",)) == ["False", "True"]
    assert told(0.5, 1, boolean=("x",)) == ["0.5", "True"]
    assert told(7, 12, whole=("x",)) == ["7", "12"]
    assert told(7.5, 12, whole=("x",)) == ["7.5", "12"]
    assert told(np.nan, 12, whole=("x",)) == ["nan", "12"]
    assert told(0, 1) == (["0", "1"] if large else ["0.", "1."])


def test_a_number_just_below_a_whole_one_is_not_shown_as_it() -> None:
    just_below_8 = torch.tensor([8.0, 1.5, math.inf]).nextafter(torch.zeros(3))
    assert messages.shown(just_below_8[:1]) == "[7.9999995]"
    assert messages.shown(torch.tensor([1 / 3, 8.0, math.inf])) == (
        "[0.333333, 8.      ,      inf]"
    )


def test_a_single_value_is_called_by_its_function() -> None:
    wrong: Answer = lambda *_: 0  # noqa: E731
    for name in ("longest_response", "largest_scale"):
        said = str(walk(Known(find(name), 0), wrong, own=True).text.en)
        assert said.startswith(f"`{name}` is wrong: "), said
    two: Answer = lambda *_: (0.0, 0.0)  # noqa: E731
    said = walk(Known(find("length_growth"), 0), two, own=True).text.en
    assert said.startswith("`sequence_mean` is wrong: ")
