"""A wrong argument of an objective is told by its name, its row and its column."""

import math

import pytest
import torch

from batches import batch
from plain_losses import GATES, NAMES, loss

NAMED = ("logp", "logp_old", "advantages", "mask")


def arrays(**change):
    right = dict(zip(NAMED, batch(0), strict=True))
    right["mask"] = torch.ones(5, 7, dtype=torch.bool)
    return {**right, **change}


def call(name, **change):
    given = arrays(**change)
    return loss(name, *(given.pop(n) for n in NAMED), **given)


def spoiled(x, value):
    y = x.clone()
    y[3, 5] = value
    return y


WRONG = [
    ({"logp": torch.zeros(5)}, r"logp must be \[B, T\], got shape \[5\]"),
    ({"logp": torch.ones(5, 7).long()}, "logp must hold floats, not int64"),
    ({"logp_old": torch.zeros(5, 6)}, r"logp and logp_old differ in shape"),
    ({"advantages": torch.zeros(7)}, r"advantages must be \[B\] or .*, got \[7\]"),
    ({"advantages": torch.full((5,), math.nan)}, "advantages row 0, column 0 is not"),
    ({"mask": torch.ones(5, 6)}, r"mask has shape \[5, 6\], logprobs have \[5, 7\]"),
    ({"mask": torch.full((5, 7), 0.5)}, "mask row 0, column 0 is neither 0 nor 1"),
    ({"weight": torch.ones(5)}, r"weight must be \[B, T\] = \[5, 7\], got \[5\]"),
    ({"weight": torch.full((5, 7), math.inf)}, "weight row 0, column 0 is not finite"),
    ({"counted": torch.ones(7, 5)}, r"counted must be \[B, T\] = \[5, 7\], got \[7, 5\]"),
    ({"counted": torch.zeros(5, 7)}, "counted row 0, column 0 is false where mask is true"),
]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("change", "message"), WRONG)
def test_a_wrong_array(name, change, message):
    with pytest.raises(ValueError, match=message):
        call(name, **change)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("array", "value", "why"),
    [
        ("logp", math.nan, "is not a number"),
        ("logp", -math.inf, "is infinite"),
        ("logp", 0.3, "is positive, so no logprob"),
        ("logp_old", math.nan, "is not a number"),
        ("logp_old", -math.inf, "is infinite"),
        ("advantages", math.nan, "is not finite"),
        ("weight", math.nan, "is not finite"),
        ("mask", 2.0, "is neither 0 nor 1"),
        ("counted", math.nan, "is neither 0 nor 1"),
        ("counted", 0.0, "is false where mask is true"),
    ],
)
def test_one_wrong_value_is_told_by_its_place(name, array, value, why):
    given = arrays(weight=torch.ones(5, 7), counted=torch.ones(5, 7))
    given["mask"] = given["mask"].double()
    given["advantages"] = given["advantages"][:, None].repeat(1, 7)
    given[array] = spoiled(given[array], value)
    with pytest.raises(ValueError, match=f"^{array} row 3, column 5 {why}"):
        call(name, **given)
    given = {n: x if n != "mask" else spoiled(x, 0.0) for n, x in given.items()}
    if array != "mask":  # the same value in padding is nobody's business
        given["counted"] = None if array == "counted" else given["counted"]
        assert call(name, **given).isfinite()


WIDTHS = [
    ({"eps_low": -0.1}, "clip widths must be .*, not -0.1 and "),
    ({"eps_low": 1.5}, "clip widths"),
    ({"eps_high": math.nan}, "clip widths"),
    ({"eps_high": math.inf}, "clip widths"),
    ({"eps_high": "0.2"}, "eps_high must be a number, not '0.2'"),
]


@pytest.mark.parametrize(
    "name", [n for n in NAMES if "eps_low" in GATES[n] and n != "cispo"]
)
@pytest.mark.parametrize(("change", "message"), WIDTHS)
def test_a_wrong_width(name, change, message):
    with pytest.raises(ValueError, match=message):
        call(name, **change)


@pytest.mark.parametrize("name", [n for n in NAMES if n not in ("dapo", "dr_grpo")])
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"aggregation": "mean"}, "aggregation must be one of token_mean, sequence_mean"),
        ({"aggregation": "constant"}, "length must be given for aggregation 'constant'"),
        ({"length": 5}, "length is for aggregation 'constant', not for"),
    ],
)
def test_a_wrong_average(name, change, message):
    with pytest.raises(ValueError, match=message):
        call(name, **change)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"logp_ref": torch.zeros(5, 6)}, r"logp and logp_ref differ in shape"),
        ({"logp_ref": torch.full((5, 7), -math.inf)}, "logp_ref row 0, column 0 is inf"),
        ({"logp_ref": torch.zeros(5, 7), "beta": "x"}, "beta must be a number, not 'x'"),
    ],
)
def test_a_wrong_reference(change, message):
    with pytest.raises(ValueError, match=message):
        call("grpo", **change)
