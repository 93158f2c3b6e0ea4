"""Advantages of responses against plain arithmetic, and what DAPO does to rewards."""

import itertools
import math
import statistics

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tinyrl.advantages import (
    group_advantages,
    informative,
    leave_one_out,
    overlong_penalty,
)

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
STD = {
    "sample": lambda group, _: statistics.stdev(group),
    "population": lambda group, _: statistics.pstdev(group),
    "batch": lambda _, batch: statistics.stdev(batch),
    "none": lambda *_: None,
}


@given(rewards, st.sampled_from(sorted(STD)))
def test_equals_the_formula_written_out(case, std):
    n, groups = case
    flat = torch.tensor([r for group in groups for r in group], dtype=torch.float64)
    got = group_advantages(flat, n, std=std, eps=1e-6)
    want = []
    for group in groups:
        mean, deviation = math.fsum(group) / n, STD[std](group, flat.tolist())
        scale = 1.0 if deviation is None else deviation + 1e-6
        want += [(r - mean) / scale for r in group]
    assert got.tolist() == pytest.approx(want, rel=1e-9, abs=1e-7)


def test_verl_and_trl_differ_in_eps_only():
    r = torch.tensor([1.0, 0, 0, 0], dtype=torch.float64)
    verl, trl = group_advantages(r, 4, eps=1e-6), group_advantages(r, 4, eps=1e-4)
    assert verl[0].item() == pytest.approx(0.75 / (0.5 + 1e-6), rel=1e-12)
    assert trl[0].item() == pytest.approx(0.75 / (0.5 + 1e-4), rel=1e-12)


def test_trls_batch_scale_is_one_for_all_groups():
    """scale_rewards="batch": mean of the group, deviation of the batch, eps 1e-4."""
    r = torch.tensor([1.0, 0, 0, 0, 1, 1], dtype=torch.float64)
    got = group_advantages(r, 2, std="batch", eps=1e-4)
    by_hand = torch.tensor([0.5, -0.5, 0, 0, 0, 0]).double() / (r.std() + 1e-4)
    assert torch.allclose(got, by_hand, rtol=1e-15)


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
        (
            torch.ones(4),
            2,
            {"std": "biased"},
            "std must be one of sample, population, batch, none",
        ),
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


# Leave-one-out


@given(rewards)
def test_leave_one_out_is_the_formula_written_out(case):
    n, groups = case
    flat = torch.tensor([r for group in groups for r in group], dtype=torch.float64)
    want = [
        group[i] - math.fsum(group[:i] + group[i + 1 :]) / (n - 1)
        for group in groups
        for i in range(n)
    ]
    assert leave_one_out(flat, n).tolist() == pytest.approx(want, rel=1e-9, abs=1e-12)


@given(rewards)
def test_leave_one_out_is_a_longer_step_of_the_group_mean(case):
    n, groups = case
    flat = torch.tensor(groups, dtype=torch.float64).flatten()
    centred = group_advantages(flat, n, std="none") * n / (n - 1)
    assert torch.allclose(leave_one_out(flat, n), centred, rtol=1e-9, atol=1e-12)


@given(st.floats(0.05, 0.95), st.integers(2, 5))
def test_leave_one_out_has_no_bias_and_a_group_mean_is_1_over_n_short(p, n):
    """E[A dlogp] over every draw of n answers, right or wrong, of a one-parameter policy.

    Right with probability p = sigmoid(x): dlogp is 1 - p of a right one, -p of a wrong
    one, and the gradient of the expected reward is p (1 - p).
    """
    expected = {"leave one out": 0.0, "group mean": 0.0}
    for drawn in itertools.product([0.0, 1.0], repeat=n):
        chance = math.prod(p if r else 1 - p for r in drawn)
        slopes = torch.tensor([1 - p if r else -p for r in drawn], dtype=torch.float64)
        r = torch.tensor(drawn, dtype=torch.float64)
        for name, A in {
            "leave one out": leave_one_out(r, n),
            "group mean": group_advantages(r, n, std="none"),
        }.items():
            expected[name] += chance * (A * slopes).mean().item()
    assert expected["leave one out"] == pytest.approx(p * (1 - p), rel=1e-12)
    assert expected["group mean"] == pytest.approx(p * (1 - p) * (n - 1) / n, rel=1e-12)


def test_leave_one_out_of_equal_rewards_is_zero_though_sums_are_rounded():
    R = torch.full((3,), 0.1)
    assert (R - (R.sum() - R) / 2).abs().max() > 0
    assert not leave_one_out(R, 3).any()
    assert leave_one_out(torch.tensor([1, 0]), 2).tolist() == [1, -1]


# Dynamic sampling


@given(rewards)
def test_informative_groups_are_those_with_an_advantage(case):
    n, groups = case
    flat = torch.tensor(groups, dtype=torch.float64).flatten()
    told = informative(flat, n)
    assert told.tolist() == [len(set(group)) > 1 for group in groups]
    if told.any():
        rows = told.repeat_interleave(n)
        assert (group_advantages(flat, n).view(-1, n)[told] != 0).any(1).all()
        assert not group_advantages(flat, n)[~rows].any()


def test_all_right_and_all_wrong_teach_nothing():
    assert informative([1, 1, 0, 0, 1, 0], 2).tolist() == [False, False, True]


# The soft overlong punishment


@given(st.integers(1, 40), st.integers(0, 40), st.lists(st.integers(0, 120), min_size=1))
def test_overlong_penalty_is_the_papers_three_cases(cache, rest, lengths):
    longest = cache + rest
    want = []
    for y in lengths:
        if y <= longest - cache:
            want.append(0.0)
        elif y <= longest:
            want.append(((longest - cache) - y) / cache)
        else:
            want.append(-1.0)
    got = overlong_penalty(torch.tensor(lengths), longest, cache)
    assert got.tolist() == pytest.approx(want, abs=1e-6)


def test_overlong_penalty_at_the_papers_lengths():
    y = torch.tensor([1.0, 16384, 18432, 20480, 20481, 30000], dtype=torch.float64)
    assert overlong_penalty(y, 20480, 4096).tolist() == [0, 0, -0.5, -1, -1, -1]


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"cache": 0}, "cache must be between 1 and max_length 8, not 0"),
        ({"cache": 9}, "cache must be between 1 and max_length 8, not 9"),
        ({"cache": 1.5}, "cache must be a whole number, not 1.5"),
        ({"max_length": math.inf}, "max_length must be a whole number, not inf"),
        ({"lengths": torch.ones(2, 2)}, r"lengths must be \[B\], got shape \[2, 2\]"),
        ({"lengths": torch.tensor([1, -2])}, "lengths row 1 is no length: -2"),
        ({"lengths": torch.tensor([1, math.nan])}, "lengths row 1 is no length: nan"),
    ],
)
def test_bad_lengths(how, message):
    with pytest.raises(ValueError, match=message):
        overlong_penalty(**{"lengths": torch.ones(2), "max_length": 8, "cache": 2, **how})


@pytest.mark.parametrize("function", [leave_one_out, informative])
def test_bad_groups(function):
    with pytest.raises(ValueError, match="group_size must be at least 2, not 1"):
        function(torch.ones(4), 1)
    with pytest.raises(ValueError, match=r"multiple of group_size 2, got shape \[5\]"):
        function(torch.ones(5), 2)
    with pytest.raises(ValueError, match="rewards row 3 is not finite: inf"):
        function(torch.tensor([0, 1, 0, math.inf]), 2)
