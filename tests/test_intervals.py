"""Intervals: the arithmetic against numpy, the coverage by simulation of known truths."""

import math
import time

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tinyrl.intervals import (
    intervals,
    percentile,
    resample,
    token_quantiles,
)
from tinyrl.measures import EXTREMES, of_totals
from tinyrl.monitoring import monitor
from tinyrl.tally import tally

seeds = st.integers(0, 2**32 - 1)
NORMAL = torch.distributions.Normal(0.0, 1.0)


def correlated(g, B, T, sigma=0.1, c=0.3, groups=None):
    """Deltas that are normal with deviation sigma, those of one response correlated by c
    (with `groups [B]`, those of one group)."""
    shared = torch.randn(B, 1, generator=g, dtype=torch.float64)
    shared = shared if groups is None else shared[groups]
    own = torch.randn(B, T, generator=g, dtype=torch.float64)
    roll = torch.full((B, T), -20.0, dtype=torch.float64)
    return roll, roll + sigma * (math.sqrt(c) * shared + math.sqrt(1 - c) * own)


def truths(T, sigma=0.1, c=0.3):
    s = sigma * math.sqrt(T + c * T * (T - 1))  # deviation of Delta
    half = math.exp(sigma**2 / 2)
    return {
        "mean": 0.0,
        "mean_abs": sigma * math.sqrt(2 / math.pi),
        "k1": 0.0,
        "k2": sigma**2 / 2,
        "k3": half - 1,
        "ratio_mean": half,
        "ess": math.exp(-(sigma**2)),
        "chi2": math.exp(2 * sigma**2) - 1,
        "error_factor": 2 * half * NORMAL.cdf(torch.tensor(sigma)).item(),
        "seq_mean_abs": s * math.sqrt(2 / math.pi),
        "seq_walk": s / math.sqrt(T),
        "chi2_seq": math.exp(2 * s * s) - 1,
        "ess_seq": math.exp(-s * s),
        "p50_abs": 0.6744897501960817 * sigma,
        "p90_abs": 1.6448536269514722 * sigma,
        "ratio_p50": 1.0,
    }


def share_held(trials, B, T, draw, names, **more):
    """Of each number's intervals, those that hold the truth."""
    g = torch.Generator().manual_seed(0)
    truth, held = truths(T), dict.fromkeys(names, 0)
    for _ in range(trials):
        found = intervals(*draw(g), generator=g, resamples=300, **more)
        for name in names:
            _, low, high = found[name]
            held[name] += low <= truth[name] <= high
    return {name: count / trials for name, count in held.items()}


HONEST = (
    *("mean", "mean_abs", "k1", "k2", "k3", "ratio_mean", "ess", "chi2", "error_factor"),
    *("seq_mean_abs", "seq_walk", "p50_abs", "p90_abs", "ratio_p50"),
)


@pytest.mark.slow
def test_a_90_percent_interval_holds_the_truth_in_about_90_percent():
    trials, B, T = 600, 128, 12
    held = share_held(trials, B, T, lambda g: correlated(g, B, T), HONEST)
    noise = 4 * math.sqrt(0.9 * 0.1 / trials)  # four, since there are many numbers
    assert max(abs(share - 0.9) for share in held.values()) <= noise, held


@pytest.mark.slow
def test_over_tokens_it_holds_the_truth_far_too_rarely():
    """The same data, every token taken for a response of its own."""
    B, T = 128, 12

    def draw(g):
        return tuple(x.reshape(-1, 1) for x in correlated(g, B, T))

    names = ("mean", "k1", "ratio_mean", "chi2", "ratio_p50")
    held = share_held(100, B, T, draw, names)
    assert max(held.values()) < 0.75, held


@pytest.mark.parametrize(("c", "factor"), [(0.0, 1.0), (0.3, math.sqrt(1 + 23 * 0.3))])
def test_how_much_too_narrow_it_is_over_tokens(c, factor):
    """By the root of 1 + (T - 1) c, the design effect; not at all without correlation."""
    g = torch.Generator().manual_seed(1)
    arrays = correlated(g, 256, 24, c=c)
    right = intervals(*arrays, generator=g)["k1"]
    naive = intervals(*(x.reshape(-1, 1) for x in arrays), generator=g)["k1"]
    ratio = (right.high - right.low) / (naive.high - naive.low)
    assert ratio == pytest.approx(factor, rel=0.15)


def test_responses_to_one_prompt_are_drawn_together():
    g = torch.Generator().manual_seed(2)
    groups = torch.arange(256) // 8
    roll, train = correlated(g, 256, 1, c=0.5, groups=groups)
    alone = intervals(roll, train, generator=g)["k1"]
    together = intervals(roll, train, generator=g, groups=groups)["k1"]
    labels = intervals(roll, train, generator=g, groups=100 - 3 * groups)["k1"]
    ratio = (together.high - together.low) / (alone.high - alone.low)
    assert ratio == pytest.approx(math.sqrt(1 + 7 * 0.5), rel=0.3)
    assert labels.high - labels.low == pytest.approx(together.high - together.low, rel=0.15)
    assert together.estimate == pytest.approx(alone.estimate, abs=1e-15)


@pytest.mark.slow
def test_where_rare_responses_decide_no_interval_helps():
    """A negative result, kept: Delta has deviation 2, and the sampled chi2 of responses is
    nearly always too small, its interval with it."""
    B, T, sigma = 256, 16, 0.5
    g = torch.Generator().manual_seed(0)
    truth, held = truths(T, sigma, c=0.0), {"chi2_seq": 0, "ess_seq": 0, "k3": 0}
    for _ in range(60):
        found = intervals(*correlated(g, B, T, sigma, 0.0), generator=g, resamples=200)
        for name in held:
            held[name] += found[name].low <= truth[name] <= found[name].high
    assert held["chi2_seq"] < 0.3 * 60, held
    assert held["ess_seq"] < 0.5 * 60, held
    assert held["k3"] > 0.75 * 60, held


def bca(estimate, drawn, left_out, level=0.9):
    """Bias-corrected and accelerated, Efron 1987: for comparison only."""
    below = ((drawn < estimate).double().mean() + (drawn <= estimate).double().mean()) / 2
    z0 = NORMAL.icdf(below.clamp(1e-3, 1 - 1e-3).float()).double()
    gap = left_out.mean() - left_out
    a = (gap**3).sum() / (6 * (gap**2).sum() ** 1.5)
    z = NORMAL.icdf(torch.tensor([(1 - level) / 2, (1 + level) / 2])).double() + z0
    return torch.quantile(drawn, NORMAL.cdf((z0 + z / (1 - a * z)).float()).double())


@pytest.mark.slow
def test_bca_covers_no_better():
    """Why percentile: 64 responses whose scales differ, so that the numbers are skewed."""
    g = torch.Generator().manual_seed(0)
    names, trials = ("k3", "ess", "mean_abs", "ratio_std", "chi2", "clip_fraction"), 200

    def draw(B):
        scale = 0.05 * (0.5 * torch.randn(B, 1, generator=g, dtype=torch.float64)).exp()
        roll = torch.full((B, 16), -20.0, dtype=torch.float64)
        noise = torch.randn(B, 16, generator=g, dtype=torch.float64)
        return roll, roll + scale * noise

    truth = of_totals(tally(*draw(200_000)).total())
    held = {name: [0, 0] for name in names}
    for _ in range(trials):
        one = tally(*draw(64))
        drawn = of_totals(one.total(resample(64, 500, g)))
        point = of_totals(one.total())
        left_out = of_totals({n: x.sum() - x for n, x in one.sums.items()})
        for name in names:
            ends = percentile(point[name].item(), drawn[name])[1:]
            both = (ends, bca(point[name], drawn[name], left_out[name]))
            for i, (low, high) in enumerate(both):
                held[name][i] += bool(low <= truth[name] <= high)
    plain, corrected = (sum(h[i] for h in held.values()) for i in (0, 1))
    cells = trials * len(names)
    assert corrected <= plain + 0.02 * cells, held
    assert plain > 0.75 * cells


# Arithmetic


@given(seeds, st.integers(2, 9), st.integers(1, 9))
def test_quantiles_of_resamples_are_numpys(seed, B, T):
    g = torch.Generator().manual_seed(seed)
    values = torch.randn(B * T, generator=g, dtype=torch.float64).round(decimals=1)
    owner = torch.arange(B).repeat_interleave(T)[torch.randperm(B * T, generator=g)]
    counts, qs = resample(B, 7, g), [0.0, 0.01, 0.3, 0.5, 0.99, 1.0]
    got = token_quantiles(values, owner, counts, qs)
    for r in range(7):
        again = np.repeat(values.numpy(), counts[r][owner].long().numpy())
        want = np.quantile(again, qs)
        assert got[r].tolist() == pytest.approx(want.tolist(), rel=1e-12, abs=1e-14)


@given(seeds)
def test_each_response_is_drawn_as_often_as_any(seed):
    g = torch.Generator().manual_seed(seed)
    counts = resample(5, 400, g)
    assert (counts.sum(1) == 5).all()
    assert (counts == counts.round()).all()
    assert counts.mean(0).tolist() == pytest.approx([1] * 5, abs=0.25)


def batch(B=12, T=6):
    g = torch.Generator().manual_seed(0)
    roll = -3 * torch.rand(B, T, generator=g, dtype=torch.float64) - 0.5
    train = roll + 0.1 * torch.randn(B, T, generator=g, dtype=torch.float64)
    mask = torch.arange(T) < torch.randint(1, T + 1, (B, 1), generator=g)
    return roll, train.clamp(max=0), mask


def test_estimates_are_what_monitor_gives_and_lie_within():
    arrays, g = batch(), torch.Generator().manual_seed(0)
    more = {"rewards": torch.rand(12, generator=g), "kept": arrays[2]}
    found = intervals(*arrays, generator=g, **more)
    want = monitor(*arrays, **more)
    assert found.keys() == want.keys() - EXTREMES.keys()
    for name, interval in found.items():
        assert interval.estimate == pytest.approx(want[name], rel=1e-12, abs=1e-15), name
        assert interval.low <= interval.high, name
    for name in ("mean", "k3", "seq_mean", "p50_abs"):
        assert found[name].low < found[name].estimate < found[name].high, name
    assert tuple(found["dropped"]) == (0, 0, 0)


def test_they_stay_in_a_numbers_range():
    found = intervals(*batch(), generator=torch.Generator().manual_seed(0), level=0.999)
    assert found["k3"].low >= 0
    assert 0 < found["ess"].low <= found["ess"].high <= 1
    assert found["clip_fraction"].low >= 0


def test_the_generator_decides():
    one, two, other = (
        intervals(*batch(), generator=torch.Generator().manual_seed(s)) for s in (0, 0, 1)
    )
    assert one == two
    assert one["k3"] != other["k3"]
    state = torch.random.get_rng_state()
    intervals(*batch(), generator=torch.Generator().manual_seed(0))
    assert torch.equal(state, torch.random.get_rng_state())


def test_a_higher_level_is_wider():
    width = []
    for level in (0.5, 0.9, 0.99):
        g = torch.Generator().manual_seed(0)
        found = intervals(*batch(), generator=g, level=level)["k3"]
        width.append(found.high - found.low)
    assert width == sorted(width)
    assert width[0] < width[2]


def test_equal_sides_have_intervals_of_no_width():
    roll, _, mask = batch()
    found = intervals(roll, roll, mask, generator=torch.Generator().manual_seed(0))
    assert found["k3"] == (0, 0, 0)
    assert found["ess"] == (1, 1, 1)


def test_resamples_without_a_value_are_left_out():
    """Two rewards differ: a resample without them has no correlation."""
    R = torch.zeros(12)
    R[:2] = 1
    g = torch.Generator().manual_seed(0)
    found = intervals(*batch(), generator=g, rewards=R)["reward_corr"]
    assert -1 <= found.low <= found.high <= 1
    none = intervals(*batch(), generator=g, rewards=0 * R)["reward_corr"]
    assert all(map(math.isnan, none))


def test_percentiles():
    drawn = torch.arange(101, dtype=torch.float64)
    want = pytest.approx((7.0, 5.0, 95.0), rel=1e-12)
    assert percentile(7.0, drawn, 0.9) == want
    with_nan = torch.cat([drawn, drawn.new_full((50,), math.nan)])
    assert percentile(7.0, with_nan, 0.9) == want


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"level": 1.0}, "level must be between 0 and 1"),
        ({"level": "most"}, "level must be a number"),
        ({"resamples": 0}, "resamples must be a whole number above 0"),
        ({"resamples": 2.5}, "resamples must be a whole number above 0"),
        ({"groups": torch.zeros(12)}, r"groups must be whole numbers \[B\] = \[12\]"),
        ({"groups": torch.zeros(11).long()}, r"groups must be whole numbers"),
        ({"groups": torch.zeros(12).long()}, "a bootstrap needs two responses"),
        ({"rewards": torch.zeros(3)}, "rewards must be"),
    ],
)
def test_bad_options_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        intervals(*batch(), generator=torch.Generator(), **options)


def test_one_response_has_no_interval():
    roll, train, _ = batch(1)
    with pytest.raises(ValueError, match="a bootstrap needs two responses"):
        intervals(roll, train, generator=torch.Generator())


def test_a_thousand_resamples_of_half_a_million_tokens_are_quick():
    g = torch.Generator().manual_seed(0)
    roll = -torch.rand(512, 1024, generator=g) - 0.5
    train = roll + 0.05 * torch.randn(512, 1024, generator=g)
    begun = time.process_time()
    intervals(roll, train.clamp(max=0), generator=g, resamples=1000)
    assert time.process_time() - begun < 5  # about 0.4 on one core
