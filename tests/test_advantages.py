"""Group advantages against plain arithmetic, for each convention of the deviation."""

import math
import statistics

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tinyrl.advantages import group_advantages

rewards = st.integers(2, 6).flatmap(
    lambda n: st.tuples(
        st.just(n),
        st.lists(
            st.lists(st.floats(-10, 10, width=32), min_size=n, max_size=n),
            min_size=1,
            max_size=4,
        ),
    )
)
STD = {"sample": statistics.stdev, "population": statistics.pstdev, "none": lambda _: None}


@given(rewards, st.sampled_from(sorted(STD)))
def test_equals_the_formula_written_out(case, std):
    n, groups = case
    flat = torch.tensor([r for group in groups for r in group], dtype=torch.float64)
    got = group_advantages(flat, n, std=std, eps=1e-6)
    want = []
    for group in groups:
        mean, deviation = math.fsum(group) / n, STD[std](group)
        scale = 1.0 if deviation is None else deviation + 1e-6
        want += [(r - mean) / scale for r in group]
    assert got.tolist() == pytest.approx(want, rel=1e-9, abs=1e-7)


def test_verl_and_trl_differ_in_eps_only():
    r = torch.tensor([1.0, 0, 0, 0], dtype=torch.float64)
    verl, trl = group_advantages(r, 4, eps=1e-6), group_advantages(r, 4, eps=1e-4)
    assert verl[0].item() == pytest.approx(0.75 / (0.5 + 1e-6), rel=1e-12)
    assert trl[0].item() == pytest.approx(0.75 / (0.5 + 1e-4), rel=1e-12)


def test_groups_do_not_see_each_other():
    one, two = torch.tensor([1.0, 0, 0]), torch.tensor([5.0, 7, 9])
    both = group_advantages(torch.cat([one, two]), 3)
    assert torch.equal(both[:3], group_advantages(one, 3))
    assert torch.equal(both[3:], group_advantages(two, 3))


@pytest.mark.parametrize("std", sorted(STD))
def test_equal_rewards_give_zero(std):
    assert group_advantages(torch.ones(6), 3, std=std).tolist() == [0] * 6


def test_integer_rewards_are_taken():
    assert group_advantages(torch.tensor([1, 0]), 2, std="none").tolist() == [0.5, -0.5]


@pytest.mark.parametrize(
    ("r", "size", "options", "message"),
    [
        (torch.ones(5), 2, {}, r"multiple of group_size 2, got shape \[5\]"),
        (torch.ones(0), 2, {}, r"got shape \[0\]"),
        (torch.ones(2, 2), 2, {}, r"got shape \[2, 2\]"),
        (torch.ones(4), 1, {}, "group_size must be at least 2, not 1"),
        (torch.tensor([0, 1, math.nan, 1]), 2, {}, "rewards row 2 is not finite: nan"),
        (torch.ones(4), 2, {"std": "biased"}, "std must be sample, population or none"),
        (torch.ones(4), 2, {"eps": 0.0}, "eps must be above 0"),
    ],
)
def test_bad_input(r, size, options, message):
    with pytest.raises(ValueError, match=message):
        group_advantages(r, size, **options)


def test_equal_rewards_push_nowhere_though_their_mean_is_rounded():
    """0.1 cannot be held exactly: the mean of seven of them differs in the last bit."""
    R = torch.full((7,), 0.1)
    assert (R - R.mean()).abs().max() > 0
    assert not group_advantages(R, 7).any()
