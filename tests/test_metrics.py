"""Mismatch against plain Python, exact enumeration, and 1e-9 that is no noise."""

import itertools
import math
from decimal import Decimal, getcontext
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tinyrl.metrics import (
    by_position,
    by_probability,
    compare,
    ess,
    kl_terms,
    sequence_delta,
    token_delta,
)

seeds = st.integers(0, 2**32 - 1)


def batch(seed, B=6, T=8, spread=0.2):
    g = torch.Generator().manual_seed(seed)
    roll = -3 * torch.rand(B, T, generator=g, dtype=torch.float64) - 0.5
    train = (roll + spread * torch.randn(B, T, generator=g, dtype=torch.float64)).clamp(
        max=0
    )
    length = torch.randint(1, T + 1, (B, 1), generator=g)
    return roll, train, torch.arange(T) < length


def plain(roll, train, mask, clip):
    rows = [
        [y - x for x, y, m in zip(*row, strict=True) if m]
        for row in zip(roll.tolist(), train.tolist(), mask.tolist(), strict=True)
    ]
    d = [x for row in rows for x in row]
    size = sorted(abs(x) for x in d)
    n, B = len(d), len(rows)
    Delta = [math.fsum(row) for row in rows]
    place = 0.99 * (n - 1)
    low = size[int(place)]
    p99 = low + (place - int(place)) * (size[min(int(place) + 1, n - 1)] - low)
    w, W = [math.exp(x) for x in d], [math.exp(x) for x in Delta]
    return {
        "tokens": n,
        "sequences": B,
        "mean": math.fsum(d) / n,
        "mean_abs": math.fsum(size) / n,
        "p99_abs": p99,
        "max_abs": size[-1],
        "k1": -math.fsum(d) / n,
        "k2": math.fsum(x * x for x in d) / 2 / n,
        "k3": math.fsum(math.exp(x) - 1 - x for x in d) / n,
        "seq_mean": math.fsum(Delta) / B,
        "seq_mean_abs": math.fsum(map(abs, Delta)) / B,
        "seq_max_abs": max(map(abs, Delta)),
        "seq_per_token": math.fsum(
            abs(D) / len(r) for D, r in zip(Delta, rows, strict=True)
        )
        / B,
        "ratio_min": min(w),
        "ratio_max": max(w),
        "clip_fraction": sum(not 1 - clip <= x <= 1 + clip for x in w) / n,
        "ess": sum(w) ** 2 / n / sum(x * x for x in w),
        "ess_seq": sum(W) ** 2 / B / sum(x * x for x in W),
        "top1_agreement": None,
    }


@given(seeds, st.floats(0.01, 0.9))
def test_every_number_in_plain_python(seed, clip):
    arrays = batch(seed)
    got = vars(compare(*arrays, clip=clip))
    want = plain(*arrays, clip)
    assert got.keys() == want.keys()
    for name, value in want.items():
        if value is None:
            assert got[name] is None
        else:
            assert got[name] == pytest.approx(value, rel=1e-9, abs=1e-13), name


@given(st.lists(st.tuples(st.integers(1, 5), st.integers(1, 5)), min_size=2, max_size=5))
def test_k1_and_k3_have_the_kl_for_their_mean_exactly(counts):
    """With mu in multiples of 1/N, the mean over N rows is the expectation."""
    mu = [Fraction(a, sum(a for a, _ in counts)) for a, _ in counts]
    pi = [Fraction(b, sum(b for _, b in counts)) for _, b in counts]
    kl = math.fsum(float(m) * math.log(m / p) for m, p in zip(mu, pi, strict=True))
    tokens = [v for v, (a, _) in enumerate(counts) for _ in range(a)]
    roll = torch.tensor([[math.log(mu[v])] for v in tokens], dtype=torch.float64)
    train = torch.tensor([[math.log(pi[v])] for v in tokens], dtype=torch.float64)
    m = compare(roll, train)
    assert m.k1 == pytest.approx(kl, abs=1e-14)
    assert m.k3 == pytest.approx(kl, abs=1e-14)


def test_k2_is_biased_where_k1_and_k3_are_not():
    roll = torch.tensor([[0.75]] * 3 + [[0.25]], dtype=torch.float64).log()
    train = torch.tensor([[0.25]] * 3 + [[0.75]], dtype=torch.float64).log()
    kl = 0.75 * math.log(3) - 0.25 * math.log(3)
    m = compare(roll, train)
    assert m.k1 == pytest.approx(kl)
    assert m.k3 == pytest.approx(kl)
    assert abs(m.k2 - kl) > 0.05


@given(st.floats(1e-12, 1e-3), st.sampled_from([1, -1]))
def test_k3_is_right_far_below_float32(size, sign):
    getcontext().prec = 60
    d = sign * size
    exact = Decimal(d).exp() - 1 - Decimal(d)
    got = kl_terms(torch.tensor([d], dtype=torch.float64))[2].item()
    assert abs(got - float(exact)) <= 1e-16 * size + 1e-9 * float(exact)
    m = compare(
        torch.full((1, 9), -1.0, dtype=torch.float64),
        torch.full((1, 9), -1.0 + d, dtype=torch.float64),
    )
    assert m.k3 >= 0
    assert m.k3 == pytest.approx(d * d / 2, rel=2e-3 + 1e-15 / size)


def test_equal_arrays_are_equal_exactly():
    roll, _, mask = batch(0)
    ids = mask.long()
    m = compare(roll.float(), roll.float(), mask, top1_rollout=ids, top1_train=ids)
    for name in ("mean_abs", "max_abs", "k1", "k2", "k3", "seq_max_abs", "clip_fraction"):
        assert getattr(m, name) == 0, name
    assert m.ratio_min == m.ratio_max == m.ess == m.top1_agreement == 1
    assert m.ess_seq == pytest.approx(1, abs=1e-15)


@given(seeds)
def test_padding_and_order_of_responses_do_not_matter(seed):
    roll, train, mask = batch(seed)
    order = torch.randperm(6, generator=torch.Generator().manual_seed(seed))
    dirty = [torch.where(mask, x, math.nan)[order] for x in (roll, train)]
    wide = [torch.cat([x, torch.full((6, 2), math.inf)], 1) for x in dirty]
    wide_mask = torch.cat([mask[order], torch.zeros(6, 2, dtype=torch.bool)], 1)
    one, two = vars(compare(roll, train, mask)), vars(compare(*wide, wide_mask))
    for name in one.keys() - {"top1_agreement"}:
        assert two[name] == pytest.approx(one[name], rel=1e-12, abs=1e-15), name


def test_numpy_and_half_precision_are_taken():
    roll, train, mask = batch(0)
    want = compare(roll.half().float(), train.half().float(), mask)
    assert compare(roll.half(), train.half(), mask) == want
    assert compare(roll.half().numpy(), train.half().numpy(), mask.numpy()) == want
    assert compare(roll.half(), train.half().requires_grad_(), mask.int()) == want


@given(seeds)
def test_weights_beyond_floats_still_have_an_effective_size(seed):
    roll, train, _ = batch(seed, T=1)
    d = (train - roll).flatten()
    assert ess(d + 5000) == pytest.approx(ess(d), rel=1e-9)
    assert ess(d - 5000) == pytest.approx(ess(d), rel=1e-9)
    assert 1 / 6 - 1e-12 <= ess(d) <= 1


def test_a_far_token_is_told_as_infinite_not_hidden():
    m = compare(torch.tensor([[-1000.0, -1.0]]), torch.tensor([[-1.0, -1.0]]))
    assert m.k3 == m.ratio_max == math.inf
    assert m.max_abs == 999
    assert m.ess == pytest.approx(0.5)


def test_one_sided_noise_shows_in_k1_two_sided_in_k3_only():
    """Signs cancel in K1, not in K3: an off-by-one hides from K1."""
    d = torch.tensor([[0.5, -0.5] * 8])
    m = compare(torch.full((1, 16), -2.0), torch.full((1, 16), -2.0) + d)
    assert m.k1 == pytest.approx(0, abs=1e-9)
    assert m.k3 > 0.1
    assert m.seq_max_abs == pytest.approx(0, abs=1e-6)


def test_top1_agreement_counts_real_tokens():
    roll, train, mask = batch(0, B=2, T=4)
    mask = torch.tensor([[True] * 4, [True, False, False, False]])
    a, b = torch.zeros(2, 4).long(), torch.zeros(2, 4).long()
    b[0, 1], b[1, 1:] = 1, 7
    m = compare(roll, train, mask, top1_rollout=a, top1_train=b.numpy())
    assert m.top1_agreement == pytest.approx(4 / 5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"clip": 0.0}, "clip must be above 0"),
        ({"clip": math.nan}, "clip must be above 0"),
        ({"top1_train": torch.zeros(6, 8)}, "give both top1_rollout and top1_train"),
        (
            {"top1_train": torch.zeros(6, 8).long(), "top1_rollout": torch.zeros(6).long()},
            r"top1_rollout has shape \[6\], logprobs have \[6, 8\]",
        ),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(ValueError, match=message):
        compare(*batch(0), **options)


def test_bad_arrays_are_refused():
    roll, train, mask = batch(0)
    train[2, 0] = math.nan
    with pytest.raises(ValueError, match="logp_train row 2, column 0 is not a number"):
        compare(roll, train, mask)


def test_the_table_has_what_there_is():
    names = [name for name, _ in compare(*batch(0)).table()]
    assert "k3" in names
    assert "top1_agreement" not in names
    table = dict(compare(torch.full((1200, 1), -1.0), torch.full((1200, 1), -1.5)).table())
    assert table["tokens"] == "1,200"
    assert table["k1"] == "0.5"


# Deltas and profiles


@given(seeds)
def test_deltas_in_plain_python(seed):
    roll, train, mask = batch(seed)
    d = token_delta(torch.where(mask, roll, math.nan), train, mask)
    Delta = sequence_delta(d, mask)
    for b in range(6):
        n = mask[b].sum().item()
        want = [(train[b, t] - roll[b, t]).item() for t in range(n)]
        assert d[b, :n].tolist() == pytest.approx(want, rel=1e-14)
        assert (d[b, n:] == 0).all()
        assert Delta[b].item() == pytest.approx(math.fsum(want))


@given(seeds)
def test_profile_by_position(seed):
    roll, train, mask = batch(seed)
    delta = torch.where(mask, train - roll, math.nan)
    size, mean, count = by_position(delta, mask)
    for t in range(8):
        column = [delta[b, t].item() for b in range(6) if mask[b, t]]
        assert count[t].item() == len(column)
        if column:
            assert size[t].item() == pytest.approx(sum(map(abs, column)) / len(column))
            assert mean[t].item() == pytest.approx(sum(column) / len(column))
        else:
            assert math.isnan(size[t])
            assert math.isnan(mean[t])


@given(seeds, st.sampled_from([None, [0.0, 0.01, 0.1, 1.0], [0.05, 0.3]]))
def test_profile_by_probability(seed, edges):
    roll, train, mask = batch(seed)
    delta = train - roll
    given_edges = None if edges is None else torch.tensor(edges)
    got = by_probability(delta, torch.where(mask, roll, math.nan), mask, given_edges)
    bounds = [i / 10 for i in range(11)] if edges is None else edges
    for i, (low, high) in enumerate(itertools.pairwise(bounds)):
        members = [
            delta[b, t].item()
            for b in range(6)
            for t in range(8)
            if mask[b, t] and low < math.exp(roll[b, t].item()) <= high
        ]
        assert got.count[i].item() == len(members)
        if members:
            mean = sum(map(abs, members)) / len(members)
            assert got.mean_abs[i].item() == pytest.approx(mean)
            assert got.mean[i].item() == pytest.approx(sum(members) / len(members))
        else:
            assert math.isnan(got.mean_abs[i])


def test_every_token_falls_in_a_bin_certain_and_impossible_ones_too():
    roll = torch.tensor([[0.0, 5e-7, -800.0, -1.0]], dtype=torch.float64)
    mask = torch.ones(1, 4, dtype=torch.bool)
    got = by_probability(torch.zeros(1, 4), roll, mask)
    assert got.count.sum() == 4
    assert got.count[-1] == 2
    assert got.count[0] == 1


@pytest.mark.parametrize("edges", [[0.5], [0.0, 0.0, 1.0], [1.0, 0.0], [[0.0, 1.0]]])
def test_bad_edges(edges):
    with pytest.raises(ValueError, match="edges must be at least two rising numbers"):
        by_probability(
            torch.zeros(1, 1),
            torch.zeros(1, 1),
            torch.ones(1, 1).bool(),
            torch.tensor(edges),
        )


def test_metrics_agree_on_a_numpy_view_of_a_real_shape():
    """[64, 1024] in one go: the same numbers from float32 numpy with plain formulas."""
    rng = np.random.default_rng(0)
    roll = -rng.exponential(1.0, (64, 1024)).astype(np.float32)
    train = np.minimum(roll + 0.05 * rng.standard_normal((64, 1024)), 0).astype(np.float32)
    d = train.astype(np.float64) - roll
    m = compare(roll, train)
    assert m.k3 == pytest.approx((np.exp(d) - 1 - d).mean(), rel=1e-9)
    assert m.p99_abs == pytest.approx(np.quantile(np.abs(d), 0.99), rel=1e-12)
    w = np.exp(d.sum(1))
    assert m.ess_seq == pytest.approx(w.mean() ** 2 / (w**2).mean(), rel=1e-9)
