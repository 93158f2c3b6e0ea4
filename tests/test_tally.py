"""Sums by response: against plain Python, in any block size, with garbage in padding."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tinyrl import tally as tally_module
from tinyrl.agreement import top_k
from tinyrl.correction import Correction
from tinyrl.tally import deltas, tally

seeds = st.integers(0, 2**32 - 1)


def batch(seed, B=6, T=8, spread=0.3):
    g = torch.Generator().manual_seed(seed)
    roll = -3 * torch.rand(B, T, generator=g, dtype=torch.float64) - 0.5
    noise = torch.randn(B, T, generator=g, dtype=torch.float64)
    length = torch.randint(1, T + 1, (B, 1), generator=g)
    return roll, (roll + spread * noise).clamp(max=0), torch.arange(T) < length


def by_row(roll, train, mask):
    """(logp_rollout, d) of the real tokens of each row."""
    rows = zip(roll.tolist(), train.tolist(), mask.tolist(), strict=True)
    return [[(x, y - x) for x, y, m in zip(*row, strict=True) if m] for row in rows]


PER_TOKEN = {
    "tokens": lambda x, d: 1,
    "logp_rollout": lambda x, d: x,
    "d": lambda x, d: d,
    "abs": lambda x, d: abs(d),
    "square": lambda x, d: d * d,
    "e": lambda x, d: math.expm1(d),
    "e_square": lambda x, d: math.expm1(d) ** 2,
    "k3": lambda x, d: math.expm1(d) - d,
    "k3_reverse": lambda x, d: math.expm1(-d) + d,
    "grow": lambda x, d: math.expm1(abs(d)),
    "cosh": lambda x, d: math.log(math.cosh(d / 2)),
    "low": lambda x, d: math.exp(d) < 0.8,
    "high": lambda x, d: math.exp(d) > 1.2,
    "p": lambda x, d: math.exp(x),
    "q": lambda x, d: math.exp(x + d),
    "p_square": lambda x, d: math.exp(x) ** 2,
    "q_square": lambda x, d: math.exp(x + d) ** 2,
    "pq": lambda x, d: math.exp(x) * math.exp(x + d),
    "gap": lambda x, d: abs(math.exp(x + d) - math.exp(x)),
    "gap_square": lambda x, d: (math.exp(x + d) - math.exp(x)) ** 2,
}
PER_RESPONSE = {  # of mean logp, Delta and T
    "sequences": lambda x, D, T: 1,
    "abs_Delta": lambda x, D, T: abs(D),
    "mean": lambda x, D, T: D / T,
    "abs_mean": lambda x, D, T: abs(D / T),
    "walk": lambda x, D, T: D * D / T,
    "W": lambda x, D, T: math.expm1(D),
    "W_square": lambda x, D, T: math.expm1(2 * D),
    "geometric": lambda x, D, T: math.expm1(2 * D / T),
    "log_ppl": lambda x, D, T: -x,
    "ppl_rollout": lambda x, D, T: math.exp(-x),
    "ppl_train": lambda x, D, T: math.exp(-x - D / T),
    "ppl_ratio": lambda x, D, T: math.expm1(-D / T),
}


@given(seeds)
def test_every_sum_in_plain_python(seed):
    arrays = batch(seed)
    got = tally(*arrays, probabilities=True)
    rows = by_row(*arrays)
    for name, f in PER_TOKEN.items():
        want = [math.fsum(f(x, d) for x, d in row) for row in rows]
        assert got.sums[name].tolist() == pytest.approx(want, rel=1e-12, abs=1e-15), name
    largest = max(math.fsum(d for _, d in row) for row in rows)
    for name, f in PER_RESPONSE.items():
        want = []
        for row in rows:
            mean = math.fsum(x for x, _ in row) / len(row)
            want.append(f(mean, math.fsum(d for _, d in row), len(row)))
        assert got.sums[name].tolist() == pytest.approx(want, rel=1e-12, abs=1e-14), name
    w = [math.exp(math.fsum(d for _, d in row) - largest) for row in rows]
    assert got.sums["w"].tolist() == pytest.approx(w, rel=1e-12)
    assert got.sums["w_square"].tolist() == pytest.approx([x * x for x in w], rel=1e-12)
    ends = {"d_min": min, "d_max": max}
    for name, f in ends.items():
        assert got.extremes[name].tolist() == [f(d for _, d in row) for row in rows]
    gaps = [max(abs(math.exp(x + d) - math.exp(x)) for x, d in row) for row in rows]
    assert got.extremes["gap_max"].tolist() == pytest.approx(gaps, rel=1e-12)
    for name, power in (("v", 1), ("v_square", 2)):
        want = [math.fsum(math.exp(power * d) for _, d in row) for row in rows]
        assert got.sums[name].tolist() == pytest.approx(want, rel=1e-12)
    known = {*PER_TOKEN, *PER_RESPONSE, "w", "w_square", "v", "v_square"}
    assert got.sums.keys() == known, "a sum without a test"


def test_the_smallest_delta_is_not_paddings_zero():
    """Deltas of one sign, so that padding's 0 would be the smallest or the largest."""
    mask = torch.tensor([[1, 1, 0], [1, 1, 0], [1, 1, 1]]).bool()
    d = torch.tensor([[0.5, 0.25, 0], [-0.5, -0.25, 0], [0.5, -0.5, 0.125]])
    got = tally(torch.full((3, 3), -2.0), d - 2, mask).extremes
    assert got["d_min"].tolist() == [0.25, -0.5, -0.5]
    assert got["d_max"].tolist() == [0.5, -0.25, 0.5]


@pytest.mark.parametrize("block", [1, 7, 17, 1000])
def test_the_size_of_blocks_does_not_matter(block, monkeypatch):
    arrays = batch(0)
    more = {"correction": Correction("token", "truncate", upper=1.1), "probabilities": True}
    want = tally(*arrays, **more)
    monkeypatch.setattr(tally_module, "BLOCK", block)
    got = tally(*arrays, **more)
    for name, x in (want.sums | want.extremes).items():
        same = pytest.approx(x.tolist(), rel=1e-13, abs=1e-15)
        assert (got.sums | got.extremes)[name].tolist() == same, name


@given(seeds, st.sampled_from([math.nan, math.inf, -math.inf, 7.0]))
def test_padding_may_hold_anything(seed, garbage):
    roll, train, mask = batch(seed)
    dirty = [torch.where(mask, x, garbage) for x in (roll, train)]
    want, got = tally(roll, train, mask), tally(*dirty, mask)
    for name, x in (want.sums | want.extremes).items():
        assert torch.equal((got.sums | got.extremes)[name], x), name
    assert torch.equal(deltas(*dirty, mask), (train - roll)[mask])


def test_numpy_half_precision_and_gradients_are_taken():
    roll, train, mask = (x for x in batch(0))
    want = tally(roll.half().float(), train.half().float(), mask).sums
    for arrays in (
        (roll.half().numpy(), train.half().numpy(), mask.numpy()),
        (roll.half(), train.half().requires_grad_(), mask.int()),
    ):
        got = tally(*arrays).sums
        assert all(torch.equal(got[name], want[name]) for name in want)


def test_float32_arrays_are_subtracted_in_float64():
    """Of -10 and its float32 neighbour; their difference in float32 is exact too, but not
    that of numbers of other sizes."""
    roll, train = torch.tensor([[-0.1]]), torch.tensor([[-10.3]])
    want = float(np.float32(-10.3)) - float(np.float32(-0.1))
    assert tally(roll, train).sums["d"].item() == want
    assert want != float(np.float32(-10.3) - np.float32(-0.1))


def test_a_mask_may_have_holes():
    """As in a dialogue, where the user's turns are not the policy's."""
    g = torch.Generator().manual_seed(0)
    roll, train, _ = batch(0)
    mask = torch.rand(6, 8, generator=g) < 0.4
    mask[:, 7] = True
    got = tally(torch.where(mask, roll, math.nan), train, mask).sums
    want = [math.fsum(d for _, d in row) for row in by_row(roll, train, mask)]
    assert got["d"].tolist() == pytest.approx(want, rel=1e-13)
    assert torch.equal(got["tokens"], mask.sum(1).double())


def test_no_ratio_overflows():
    roll = torch.tensor([[-900.0, -1.0], [-1.0, -1.0], [-1.0, -900.0]])
    train = torch.tensor([[-1.0, -1.0], [-900.0, -1.0], [-1.0, -1.0]])
    got = tally(roll, train, probabilities=True)
    for name, x in got.sums.items():
        assert x.isfinite().all(), name
    assert got.sums["d"].tolist() == [899.0, -899.0, 899.0]
    assert got.sums["abs"].tolist() == [899.0] * 3
    assert got.sums["k3"][0] > 1e100
    assert got.sums["k3"][1] == pytest.approx(898.0), "linear where d < 0, and not cut"


def test_weights_too_small_to_be_1_and_something_are_weighed_all_the_same():
    roll, train, mask = batch(0)
    want, got = tally(roll, train, mask).sums, tally(roll, train - 40, mask).sums
    for name in ("v", "v_square"):
        ratio = got[name] / want[name]
        assert (ratio > 0).all()
        assert ratio.tolist() == pytest.approx([ratio[0].item()] * 6, rel=1e-12)


def test_groups_are_added_up():
    arrays = batch(3)
    one = tally(*arrays)
    groups = torch.tensor([2, 0, 1, 0, 2, 2])
    got = one.merged(groups)
    for name, x in one.sums.items():
        want = [math.fsum(x[groups == g].tolist()) for g in range(3)]
        assert got.sums[name].tolist() == pytest.approx(want, rel=1e-13, abs=1e-15), name
    d_min, d_max = one.extremes["d_min"], one.extremes["d_max"]
    assert got.extremes["d_min"].tolist() == [d_min[groups == g].min() for g in range(3)]
    assert got.extremes["d_max"].tolist() == [d_max[groups == g].max() for g in range(3)]
    for name, total in got.total().items():
        assert total.item() == pytest.approx(one.total()[name].item(), rel=1e-12, abs=1e-14)


def test_totals_of_resamples_are_of_rows_repeated():
    one = tally(*batch(4))
    counts = torch.tensor([[1, 1, 1, 1, 1, 1], [3, 0, 0, 2, 1, 0]])
    rows = [0, 0, 0, 3, 3, 4]
    for name, total in one.total(counts).items():
        x = one.sums[name]
        assert total.tolist() == pytest.approx([x.sum().item(), x[rows].sum().item()]), name


# What corrections leave


def test_what_is_dropped():
    roll, train, _ = batch(0, B=3, T=4)
    mask = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0], [1, 1, 0, 0]]).bool()
    kept = torch.tensor([[1, 0, 1, 0], [0, 0, 0, 0], [0, 1, 0, 0]])
    got = tally(roll, train, mask, kept=kept).sums
    assert got["dropped"].tolist() == [2, 2, 1]
    assert got["touched"].tolist() == [1, 1, 1]
    assert got["lost"].tolist() == [0, 1, 0]
    assert tally(roll, train, mask, kept=mask).sums["touched"].sum() == 0


@given(seeds, st.sampled_from(["token", "sequence", "geometric"]))
def test_ratios_beyond_the_bounds_at_each_level(seed, level):
    roll, train, mask = batch(seed)
    correction = Correction(level, "mask", lower=0.9, upper=1.15)
    got = tally(roll, train, mask, correction=correction).sums
    units = below = above = 0
    for row in by_row(roll, train, mask):
        d = [x for _, x in row]
        mean = {"sequence": 1, "geometric": len(d)}
        ratios = d if level == "token" else [math.fsum(d) / mean[level]]
        units += len(ratios)
        below += sum(math.exp(x) < 0.9 for x in ratios)
        above += sum(math.exp(x) > 1.15 for x in ratios)
    assert [got[name].sum() for name in ("units", "below", "above")] == [
        units,
        below,
        above,
    ]
    kept = correction.apply(train, roll, mask)[1]
    gone = (mask & ~kept).sum() if level == "token" else (~kept.any(1)).sum()
    assert gone == below + above


def test_bounds_that_are_absent_or_unused_hold_nothing_back():
    arrays = batch(0, spread=2.0)
    for correction in (Correction(), Correction("sequence", "truncate", 0.5, None)):
        got = tally(*arrays, correction=correction).sums
        assert got["above"].sum() == 0
    assert tally(*arrays, correction=Correction()).sums["below"].sum() == 0


# Bad input


def spoilt(name, value):
    arrays = dict(zip(("logp_rollout", "logp_train", "mask"), batch(0), strict=True))
    arrays[name] = arrays[name].clone()
    if value == "short":
        arrays[name] = arrays[name][:, :-1]
    elif value == "empty":
        arrays[name][2] = False
    else:
        arrays[name][2, 0] = value
    return arrays


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("logp_train", math.nan, "logp_train row 2, column 0 is not a number"),
        ("logp_rollout", math.nan, "logp_rollout row 2, column 0 is not a number"),
        ("logp_train", -math.inf, "logp_train row 2, column 0 is infinite"),
        ("logp_rollout", math.inf, "logp_rollout row 2, column 0 is infinite"),
        ("logp_train", 0.5, "logp_train row 2, column 0 is positive, so no logprob: 0.5"),
        ("logp_rollout", 0.5, "logp_rollout row 2, column 0 is positive"),
        ("logp_train", "short", "differ in shape"),
        ("mask", "short", "mask has shape"),
        ("mask", "empty", "mask row 2 has no real token"),
    ],
)
def test_bad_arrays_are_named_by_row_and_column(name, value, message):
    with pytest.raises(ValueError, match=message):
        tally(**spoilt(name, value))


def test_equal_infinities_are_not_a_delta_of_nothing():
    roll, train, mask = batch(0)
    roll[1, 0] = train[1, 0] = -math.inf
    with pytest.raises(ValueError, match="logp_rollout row 1, column 0 is infinite"):
        tally(roll, train, mask)


K = torch.ones(6, 8)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"clip": 0.0}, "clip must be above 0"),
        ({"clip": "wide"}, "clip must be a number"),
        ({"rewards": torch.zeros(5)}, r"rewards must be \[B\] = \[6\], got \[5\]"),
        ({"rewards": torch.full((6,), math.nan)}, "rewards row 0 is not finite: nan"),
        ({"kept": torch.ones(6, 7)}, r"kept has shape \[6, 7\], the mask \[6, 8\]"),
        ({"kept": 2 * K}, "kept row 0, column 0 is neither 0 nor 1"),
        ({"kept": K}, "kept row ., column . is true where the mask is false"),
        ({"top_train": top_k(torch.zeros(6, 8, 4), 2)}, "give both top_rollout and"),
    ],
)
def test_bad_options_are_named(more, message):
    with pytest.raises(ValueError, match=message):
        tally(*batch(0), **more)
