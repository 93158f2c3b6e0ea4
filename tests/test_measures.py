"""Numbers of a batch: against plain Python, their symmetries, and extreme inputs."""

import math
from decimal import Decimal, getcontext

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tinyrl.agreement import top_k
from tinyrl.correction import Correction
from tinyrl.measures import EXTREMES, NUMBERS, QUANTILES, of_totals
from tinyrl.metrics import Mismatch, compare
from tinyrl.monitoring import monitor
from tinyrl.tally import tally

seeds = st.integers(0, 2**32 - 1)


def batch(seed, B=6, T=8, spread=0.3):
    g = torch.Generator().manual_seed(seed)
    roll = -3 * torch.rand(B, T, generator=g, dtype=torch.float64) - 0.5
    noise = torch.randn(B, T, generator=g, dtype=torch.float64)
    length = torch.randint(1, T + 1, (B, 1), generator=g)
    return roll, (roll + spread * noise).clamp(max=0), torch.arange(T) < length


def quantile(values, q):
    ordered = sorted(values)
    place = q * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (place - low) * (ordered[high] - ordered[low])


def pearson(x, y):
    mx, my = math.fsum(x) / len(x), math.fsum(y) / len(y)
    xy = math.fsum((a - mx) * (b - my) for a, b in zip(x, y, strict=True))
    xx, yy = (math.fsum((a - m) ** 2 for a in v) for v, m in ((x, mx), (y, my)))
    return xy / math.sqrt(xx * yy)


def plain(roll, train, mask, rewards, clip=0.2):
    """Each number from its definition, by loops."""
    rows = [
        [(x, y) for x, y, m in zip(*row, strict=True) if m]
        for row in zip(roll.tolist(), train.tolist(), mask.tolist(), strict=True)
    ]
    pairs = [pair for row in rows for pair in row]
    d = [y - x for x, y in pairs]
    rho = [math.exp(v) for v in d]
    n, B = len(d), len(rows)
    Delta = [math.fsum(y - x for x, y in row) for row in rows]
    T = [len(row) for row in rows]
    mean = [D / t for D, t in zip(Delta, T, strict=True)]
    log_ppl = [-math.fsum(x for x, _ in row) / len(row) for row in rows]
    log_ppl_train = [-math.fsum(y for _, y in row) / len(row) for row in rows]
    W = [math.exp(D) for D in Delta]
    R = rewards.tolist()
    p, q = [math.exp(x) for x, _ in pairs], [math.exp(y) for _, y in pairs]
    gap = [abs(b - a) for a, b in zip(p, q, strict=True)]
    mean_gap, mean_rho = math.fsum(gap) / n, math.fsum(rho) / n

    def avg(values):
        values = list(values)
        return math.fsum(values) / len(values)

    return {
        "mean": avg(d),
        "mean_abs": avg(map(abs, d)),
        "k1": -avg(d),
        "k2": avg(v * v / 2 for v in d),
        "k3": avg(r - 1 - v for r, v in zip(rho, d, strict=True)),
        "k3_reverse": avg(1 / r - 1 + v for r, v in zip(rho, d, strict=True)),
        "log_cosh": avg(math.log(math.cosh(v / 2)) for v in d),
        "error_factor": avg(math.exp(abs(v)) for v in d),
        "ratio_mean": mean_rho,
        "ratio_std": math.sqrt(avg((r - mean_rho) ** 2 for r in rho)),
        "chi2": avg(r * r for r in rho) - 1,
        "ess": math.fsum(rho) ** 2 / math.fsum(r * r for r in rho) / n,
        "clip_low": avg(r < 1 - clip for r in rho),
        "clip_high": avg(r > 1 + clip for r in rho),
        "clip_fraction": avg(not 1 - clip <= r <= 1 + clip for r in rho),
        "seq_mean": avg(Delta),
        "seq_mean_abs": avg(map(abs, Delta)),
        "seq_per_token": avg(map(abs, mean)),
        "seq_walk": math.sqrt(avg(D * D / t for D, t in zip(Delta, T, strict=True))),
        "seq_ratio_mean": avg(W),
        "chi2_seq": avg(w * w for w in W) - 1,
        "chi2_geometric": avg(math.exp(m) ** 2 for m in mean) - 1,
        "ess_seq": math.fsum(W) ** 2 / math.fsum(w * w for w in W) / B,
        "rollout_log_ppl": avg(log_ppl),
        "train_log_ppl": avg(log_ppl_train),
        "log_ppl_diff": avg(-m for m in mean),
        "rollout_ppl": avg(map(math.exp, log_ppl)),
        "train_ppl": avg(map(math.exp, log_ppl_train)),
        "ppl_ratio": avg(math.exp(-m) for m in mean),
        "prob_gap": mean_gap,
        "prob_gap_std": math.sqrt(math.fsum((g - mean_gap) ** 2 for g in gap) / (n - 1)),
        "prob_corr": pearson(p, q),
        "reward_mean": avg(R),
        "reward_corr": pearson(Delta, R),
        "reward_gap": math.fsum(w * r for w, r in zip(W, R, strict=True)) / math.fsum(W)
        - avg(R),
        "max_abs": max(map(abs, d)),
        "ratio_min": min(rho),
        "ratio_max": max(rho),
        "seq_max_abs": max(map(abs, Delta)),
        "log_ppl_diff_min": min(-m for m in mean),
        "log_ppl_diff_max": max(-m for m in mean),
        "prob_gap_max": max(gap),
        "p50_abs": quantile(map(abs, d), 0.5),
        "p90_abs": quantile(map(abs, d), 0.9),
        "p99_abs": quantile(map(abs, d), 0.99),
        "ratio_p01": quantile(rho, 0.01),
        "ratio_p50": quantile(rho, 0.5),
        "ratio_p99": quantile(rho, 0.99),
    }


@given(seeds, st.floats(0.01, 0.9))
def test_every_number_in_plain_python(seed, clip):
    arrays = batch(seed)
    rewards = torch.rand(6, generator=torch.Generator().manual_seed(seed)).double()
    got = monitor(*arrays, clip=clip, rewards=rewards, probabilities=True)
    want = plain(*arrays, rewards, clip)
    assert got.keys() == want.keys()
    for name, value in want.items():
        assert got[name] == pytest.approx(value, rel=1e-9, abs=1e-12), name


def test_every_number_is_in_a_table():
    arrays = batch(0)
    logits = torch.randn(6, 8, 5, generator=torch.Generator().manual_seed(0))
    top = top_k(logits, 2)
    more = {"rewards": torch.arange(6.0), "kept": arrays[2], "correction": Correction()}
    more |= {"top_rollout": top, "top_train": top, "probabilities": True}
    got = monitor(*arrays, **more)
    assert got.keys() == NUMBERS.keys() | EXTREMES.keys() | QUANTILES.keys()


@given(seeds)
def test_a_name_of_mismatch_is_the_same_number(seed):
    arrays = batch(seed)
    got, want = monitor(*arrays), vars(compare(*arrays))
    shared = got.keys() & want.keys()
    assert len(shared) >= len(vars(compare(*arrays))) - 3  # sizes of the batch, and top-1
    for name in shared:
        assert got[name] == pytest.approx(want[name], rel=1e-10, abs=1e-13), name
    assert Mismatch.__dataclass_fields__.keys() - shared == {
        "tokens",
        "sequences",
        "top1_agreement",
    }


# Symmetries


MIRROR = {  # what becomes of a number when the sides change places
    "k3": lambda m: m["k3_reverse"],
    "k3_reverse": lambda m: m["k3"],
    "mean": lambda m: -m["mean"],
    "k1": lambda m: -m["k1"],
    "seq_mean": lambda m: -m["seq_mean"],
    "log_ppl_diff": lambda m: -m["log_ppl_diff"],
    "rollout_ppl": lambda m: m["train_ppl"],
    "rollout_log_ppl": lambda m: m["train_log_ppl"],
    "ratio_min": lambda m: 1 / m["ratio_max"],
    "log_ppl_diff_min": lambda m: -m["log_ppl_diff_max"],
    **{
        name: lambda m, name=name: m[name]
        for name in (
            *("mean_abs", "k2", "error_factor", "log_cosh", "max_abs", "seq_mean_abs"),
            *("seq_per_token", "seq_walk", "seq_max_abs", "p50_abs", "p90_abs", "p99_abs"),
        )
    },
}


@given(seeds)
def test_which_numbers_know_the_side(seed):
    roll, train, mask = batch(seed)
    one, two = monitor(roll, train, mask), monitor(train, roll, mask)
    for name, f in MIRROR.items():
        assert two[name] == pytest.approx(f(one), rel=1e-9, abs=1e-13), name
    for name in ("ess", "chi2", "ratio_mean"):
        assert two[name] != pytest.approx(one[name], rel=1e-6)


@given(seeds)
def test_neither_order_nor_repetition_of_responses_matters(seed):
    roll, train, mask = batch(seed)
    R = torch.rand(6, generator=torch.Generator().manual_seed(seed))
    order = torch.randperm(6, generator=torch.Generator().manual_seed(seed))
    want = monitor(roll, train, mask, rewards=R)
    for rows in (order, torch.cat([order, order])):
        got = monitor(roll[rows], train[rows], mask[rows], rewards=R[rows])
        for name in want.keys() - QUANTILES.keys():
            assert got[name] == pytest.approx(want[name], rel=1e-10, abs=1e-13), name


@given(seeds, st.floats(-0.5, 0.5))
def test_bounds_that_hold_for_any_batch(seed, offset):
    roll, train, mask = batch(seed)
    m = monitor(roll - 0.5, (train + offset).clamp(max=0), mask)
    T = m["rollout_log_ppl"]
    assert m["k3"] >= 0
    assert m["k3_reverse"] >= 0
    assert 0 < m["ess"] <= 1
    assert 1 / 6 <= m["ess_seq"] + 1e-12 <= 1 + 2e-12
    assert abs(m["mean"]) <= m["mean_abs"] + 1e-15 <= m["max_abs"] + 2e-15
    assert m["p50_abs"] <= m["p90_abs"] <= m["p99_abs"] <= m["max_abs"]
    assert m["ratio_min"] <= m["ratio_p01"] <= m["ratio_p50"] <= m["ratio_p99"]
    assert m["log_cosh"] <= m["mean_abs"] / 2 <= (m["error_factor"] - 1) / 2 + 1e-15
    assert m["chi2"] + 1 >= m["ratio_mean"] ** 2 - 1e-12
    assert m["train_log_ppl"] == pytest.approx(T + m["log_ppl_diff"], abs=1e-12)


# Extremes


def of(d, shape=(1, 1)):
    roll = torch.full(shape, -50.0, dtype=torch.float64)
    return monitor(roll, roll + d, rewards=torch.zeros(shape[0]))


@pytest.mark.parametrize("d", [1e-9, -1e-9, 1e-6, 0.1, -0.1, 40.0, -40.0])
def test_one_token_of_any_size_is_right(d):
    """Against 60 digits: 1e-9 is not noise, and 40 has not swallowed the rest."""
    getcontext().prec = 60
    roll = torch.tensor([[-50.0]], dtype=torch.float64)
    x = Decimal((roll + d).item()) - Decimal(-50)  # what is left of d in float64
    e, back = x.exp(), (-x).exp()
    want = {
        "k1": -x,
        "k2": x * x / 2,
        "k3": e - 1 - x,
        "k3_reverse": back - 1 + x,
        "log_cosh": (((x / 2).exp() + (-x / 2).exp()) / 2).ln(),
        "error_factor": max(e, back),
        "ratio_mean": e,
        "chi2": e * e - 1,
        "chi2_seq": e * e - 1,
        "chi2_geometric": e * e - 1,
        "ppl_ratio": back,
        "ess": Decimal(1),
        "seq_walk": abs(x),
        "p99_abs": abs(x),
    }
    got = of(d)
    for name, value in want.items():
        # K3's own terms are rounded to 1e-16 |d|, and a ratio is 1 and something
        noise = 3e-16 * abs(d) if name.startswith("k3") else 1e-30
        noise = 1e-15 if name in ("ratio_mean", "ppl_ratio") else noise
        assert got[name] == pytest.approx(float(value), rel=1e-12, abs=noise), name


def test_equal_sides_are_equal_exactly():
    roll, _, mask = batch(0)
    m = monitor(roll.float(), roll.float(), mask, rewards=torch.arange(6.0))
    ones = {"error_factor", "ratio_mean", "ess", "seq_ratio_mean", "ess_seq", "ppl_ratio"}
    ones |= {"ratio_min", "ratio_max", "ratio_p01", "ratio_p50", "ratio_p99"}
    sizes = {"rollout_ppl", "train_ppl", "rollout_log_ppl", "train_log_ppl", "reward_mean"}
    for name, value in m.items() - {("reward_corr", m["reward_corr"])}:
        if name not in sizes:
            assert value == (1 if name in ones else 0), name
    assert math.isnan(m["reward_corr"]), "Delta does not vary"


def test_equal_rewards_have_no_correlation_and_no_gap():
    roll, train, mask = batch(0)
    for R in (torch.zeros(6), torch.full((6,), 0.1)):
        m = monitor(roll, train, mask, rewards=R)
        assert math.isnan(m["reward_corr"])
        assert m["reward_gap"] == pytest.approx(0, abs=1e-15)


def test_nor_has_a_resample_of_equal_ones():
    """Where sums that should cancel leave some rounding."""
    R, g = torch.tensor([0.1] * 5 + [0.7]), torch.Generator().manual_seed(0)
    counts = torch.randint(0, 9, (200, 6), generator=g).double()
    counts[:, 0] += 1
    counts[:, 5] = 0
    drawn = of_totals(tally(*batch(0), rewards=R).total(counts))
    assert drawn["reward_corr"].isnan().all()
    assert drawn["reward_gap"].abs().max() < 1e-15


def test_where_rewards_lie_does_not_matter():
    arrays, R = batch(0), torch.tensor([0, 1, 1, 0, 1, 0], dtype=torch.float64)
    near, far = monitor(*arrays, rewards=R), monitor(*arrays, rewards=R + 1e9)
    for name in ("reward_corr", "reward_gap"):
        assert far[name] == pytest.approx(near[name], rel=1e-9)


def test_one_token_and_one_response_have_numbers():
    m = of(0.5)
    assert m["k1"] == -0.5
    assert m["ess"] == m["ess_seq"] == 1
    assert m["ratio_std"] == m["reward_gap"] == 0
    one = of(0.5, (1, 9))
    assert one["seq_mean"] == 4.5
    assert one["seq_walk"] == pytest.approx(1.5)


def test_a_far_token_does_not_make_nan():
    roll, train = torch.tensor([[-1000.0, -1.0]]), torch.tensor([[-1.0, -1.0]])
    for arrays in ((roll, train), (train, roll)):
        m = monitor(*arrays)
        assert not any(map(math.isnan, m.values()))
        assert m["max_abs"] == 999
    assert monitor(roll, train)["ess"] == pytest.approx(0.5)
    assert monitor(roll, train)["k3"] > 1e100
    assert monitor(train, roll)["k3"] == pytest.approx(998 / 2)
