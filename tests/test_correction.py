"""Corrections against plain Python, and their expectation by enumeration."""

import itertools
import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from plain_corrections import BOUNDS, LEVELS, batch, corrections, plain, seeds
from tinyrl.correction import Correction


@given(seeds, corrections())
def test_every_correction_in_plain_python(seed, c):
    train, roll, mask = batch(seed)
    weight, kept = c.apply(train, roll, mask)
    lengths = mask.sum(1).tolist()
    deltas = [(train - roll)[b, :n].tolist() for b, n in enumerate(lengths)]
    for b, (w, k) in enumerate(zip(*plain(c, deltas), strict=True)):
        n = lengths[b]
        assert weight[b, :n].tolist() == pytest.approx(w, rel=1e-12)
        assert kept[b, :n].tolist() == k
        assert not kept[b, n:].any()
        assert (weight[b, n:] == 1).all()


@given(seeds, corrections())
def test_equal_policies_are_left_alone(seed, correction):
    _, roll, mask = batch(seed)
    weight, kept = correction.apply(roll, roll, mask)
    assert (weight == 1).all()
    assert torch.equal(kept, mask)


@given(seeds)
def test_none_changes_nothing_and_looks_at_no_bound(seed):
    train, roll, mask = batch(seed)
    for bounds in ((None, 2.0), (None, None), (3.0, 0.1)):
        weight, kept = Correction("token", "none", *bounds).apply(train, roll, mask)
        assert (weight == 1).all()
        assert torch.equal(kept, mask)


@given(seeds, corrections())
def test_rows_taken_one_by_one_are_the_same(seed, c):
    arrays = batch(seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tinyrl.correction.BLOCK", 1)
        apart = c.apply(*arrays)
    for x, y in zip(apart, c.apply(*arrays), strict=True):
        torch.testing.assert_close(x, y, rtol=1e-12, atol=0)


@given(seeds, corrections())
def test_padding_may_hold_anything(seed, correction):
    train, roll, mask = batch(seed)
    clean = correction.apply(train, roll, mask)
    dirty = correction.apply(
        torch.where(mask, train, math.nan), torch.where(mask, roll, math.inf), mask
    )
    assert all(torch.equal(x, y) for x, y in zip(clean, dirty, strict=True))


@given(seeds, corrections())
def test_a_mask_only_narrows(seed, correction):
    train, roll, mask = batch(seed)
    _, kept = correction.apply(train, roll, mask)
    assert not (kept & ~mask).any()


@given(seeds, st.sampled_from(LEVELS), st.sampled_from(["truncate", "mask"]), BOUNDS)
def test_bounds_hold_for_what_is_kept(seed, level, operation, bounds):
    train, roll, mask = batch(seed)
    weight, kept = Correction(level, operation, *bounds).apply(train, roll, mask)
    used = weight[kept]
    assert (used >= (bounds[0] or 0.0) * (1 - 1e-12)).all()
    assert (used <= (bounds[1] or math.inf) * (1 + 1e-12)).all()


@given(seeds, corrections(depth=0), st.sampled_from(["kept", "all"]))
def test_normalised_weights_have_mean_1(seed, correction, denominator):
    """Over tokens or over responses, of what the denominator counts."""
    train, roll, mask = batch(seed)
    c = replace(correction, normalise=True, denominator=denominator)
    weight, kept = c.apply(train, roll, mask)
    counted = kept if c.counted(mask) is None else c.counted(mask)
    if not kept.any():
        assert torch.equal(weight, replace(c, normalise=False).apply(train, roll, mask)[0])
    elif c.level == "token":
        assert (weight * kept)[counted].mean().item() == pytest.approx(1, rel=1e-12)
    else:
        rows = (weight * kept).amax(1)[counted.any(1)]
        assert rows.mean().item() == pytest.approx(1, rel=1e-12)


M = (1.5 + 0.8 + 0.5 + 1.8 + 1.25 + 1.0) / 6
ROWS = [[1.5, 0.8, 0.5], [2.0, 1.25, 1.0]]
"""Ratios of two responses: products 0.6 and 2.5."""


@pytest.mark.parametrize(
    ("correction", "weights", "kept"),
    [  # min(rho, C); min(prod rho, C); clip(rho, lo, hi)
        (
            Correction("token", "truncate", None, 1.2),
            [[1.2, 0.8, 0.5], [1.2, 1.2, 1]],
            "11",
        ),
        (Correction("sequence", "truncate", None, 2.0), [[0.6] * 3, [2.0] * 3], "11"),
        (Correction("token", "truncate", 0.7, 1.2), [[1.2, 0.8, 0.7], [1.2, 1.2, 1]], "11"),
        # rho 1{lo <= rho <= hi}; rho_seq 1{rho_seq <= C}; 1{lo <= exp(mean d) <= hi}
        (Correction("token", "mask", 0.6, 1.4), ROWS, [[0, 1, 0], [0, 1, 1]]),
        (Correction("sequence", "mask", None, 2.0), [[0.6] * 3, [2.5] * 3], "10"),
        (Correction("geometric", "mask", 0.9, 1.4, "one"), [[1] * 3] * 2, "01"),
        # any token below the veto; divided by the mean weight of tokens, of responses
        (Correction(veto=0.6), [[1] * 3] * 2, "01"),
        (
            Correction("token", "truncate", None, 1.8, normalise=True),
            [[1.5 / M, 0.8 / M, 0.5 / M], [1.8 / M, 1.25 / M, 1 / M]],
            "11",
        ),
        (
            Correction("sequence", "truncate", None, 2.0, normalise=True),
            [[0.6 / 1.3] * 3, [2.0 / 1.3] * 3],
            "11",
        ),
    ],
)
def test_the_formulas_on_two_responses(correction, weights, kept):
    roll = torch.full((2, 3), -3.0, dtype=torch.float64)
    mask = torch.ones(2, 3, dtype=torch.bool)
    weight, left = correction.apply(roll + torch.tensor(ROWS).double().log(), roll, mask)
    kept = [[int(x)] * 3 for x in kept] if isinstance(kept, str) else kept
    assert weight.flatten().tolist() == pytest.approx(
        [x for row in weights for x in row], rel=1e-6
    )
    assert left.int().tolist() == kept


def test_a_clip_is_a_truncation_with_two_bounds():
    """slime's clip and OpenRLHF's tis by torch's clamp; slime's truncate has 0 below."""
    train, roll, mask = batch(3)
    r = (train - roll).exp()
    for lower, upper, want in (
        (0.5, 2.0, r.clamp(0.5, 2.0)),
        (None, 2.0, r.clamp(0, 2.0)),
    ):
        weight, _ = Correction("token", "truncate", lower, upper).apply(train, roll, mask)
        assert torch.allclose(weight[mask], want[mask], rtol=1e-12)


def test_who_is_counted():
    _, _, mask = batch(0)
    assert Correction("token", "mask").counted(mask) is None
    assert torch.equal(Correction("token", "mask", denominator="all").counted(mask), mask)


def test_weights_carry_no_gradient():
    train, roll, mask = batch(0)
    weight, _ = Correction("token", "truncate").apply(train.requires_grad_(), roll, mask)
    assert not weight.requires_grad


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("sign", [1, -1])
def test_a_long_response_is_judged_without_overflow(level, sign):
    """1000 tokens of +-0.5: the product is e^(+-500), beyond float32."""
    roll = torch.full((1, 1000), -1.0)
    train, mask = roll + sign * 0.5, torch.ones(1, 1000, dtype=torch.bool)
    weight, kept = Correction(level, "truncate", 0.1, 2.0).apply(train, roll, mask)
    inside = level != "sequence"
    want = math.exp(sign * 0.5) if inside else {1: 2.0, -1: 0.1}[sign]
    assert weight[0, 0].item() == pytest.approx(want, rel=1e-6)
    weight, kept = Correction(level, "mask", 0.1, 2.0).apply(train, roll, mask)
    assert kept.all().item() == kept.any().item() == inside
    assert weight.isfinite().all()


def test_bounds_on_the_product_are_unfair_to_length():
    """The same 10 % of every token: 10 tokens pass a bound of 3, 100 do not."""
    for T, passes in ((10, True), (100, False)):
        roll = torch.full((1, T), -1.0)
        mask = torch.ones(1, T, dtype=torch.bool)
        for level, kept_at in (("sequence", passes), ("geometric", True)):
            _, kept = Correction(level, "mask", None, 3.0).apply(
                roll + math.log(1.1), roll, mask
            )
            assert kept.all().item() == kept_at


def test_product_weights_are_unbiased_token_weights_are_not():
    """E_mu[w f] over all 27 sequences of 3 tokens against E_pi[f], no sampling."""
    g = torch.Generator().manual_seed(0)
    mu, pi = (torch.randn(40, 3, generator=g, dtype=torch.float64) for _ in range(2))
    mu, pi = mu.log_softmax(-1), pi.log_softmax(-1)
    sequences = torch.tensor(list(itertools.product(range(3), repeat=3)))
    states = torch.stack(
        [
            torch.zeros(27, dtype=torch.long),
            1 + sequences[:, 0],
            4 + 3 * sequences[:, 0] + sequences[:, 1],
        ],
        1,
    )  # a row of logits for each prefix
    roll, train = mu[states, sequences], pi[states, sequences]
    f = torch.randn(27, generator=g, dtype=torch.float64)
    truth = (train.sum(1).exp() * f).sum().item()
    mask = torch.ones(27, 3, dtype=torch.bool)
    estimate = {}
    for level in LEVELS:
        weight, _ = Correction(level, "truncate", None, 1e6).apply(train, roll, mask)
        estimate[level] = (roll.sum(1).exp() * weight[:, -1] * f).sum().item()
    assert estimate["sequence"] == pytest.approx(truth, rel=1e-12)
    assert abs(estimate["token"] - truth) > 0.01
    assert abs(estimate["geometric"] - truth) > 0.01


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("batch", "mask"), "level must be one of token, sequence, geometric, not 'batch'"),
        (("token", "clip"), "operation must be one of none, truncate, mask, not 'clip'"),
        (("token", "mask", None, None), "operation mask needs a lower or an upper bound"),
        (("token", "mask", 2.0, 0.5), "0 <= lower <= 1 <= upper.* not 2.0 and 0.5"),
        (("token", "truncate", None, 0.28), "not None and 0.28: two equal policies"),
        (("token", "mask", 1.5, 2.0), "not 1.5 and 2.0"),
        (("token", "mask", -0.5, 2.0), "not -0.5 and 2.0"),
        (("token", "mask", None, math.nan), "not None and nan"),
        (("token", "mask", 1.0, 1.0), "lower < upper, not 1.0 and 1.0"),
    ],
)
def test_impossible_corrections(arguments, message):
    with pytest.raises(ValueError, match=message):
        Correction(*arguments)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"weight": "half"}, "weight must be one of ratio, one, not 'half'"),
        ({"operation": "truncate", "weight": "one"}, "weight 'one' is for operation mask"),
        ({"denominator": "some"}, "denominator must be one of kept, all, not 'some'"),
        ({"normalise": 1}, "normalise must be true or false, not 1"),
        ({"veto": 0}, "veto must be above 0 and below 1, not 0"),
        ({"veto": 1.0}, "veto must be above 0 and below 1, not 1.0"),
        ({"veto": math.nan}, "veto must be above 0 and below 1, not nan"),
        ({"veto": "1e-4"}, "veto must be a number, not '1e-4'"),
        ({"also": "geometric"}, "also must be a Correction, not 'geometric'"),
        (
            {"also": Correction(denominator="all")},
            "one denominator, not 'kept' and, in also",
        ),
    ],
)
def test_impossible_additions(change, message):
    with pytest.raises(ValueError, match=message):
        Correction(**{"operation": "mask", **change})


@pytest.mark.parametrize(
    ("train", "roll", "mask", "message"),
    [
        (torch.zeros(2, 3), torch.zeros(2, 2), torch.ones(2, 3), "differ in shape"),
        (torch.zeros(2, 3), torch.zeros(2, 3), torch.ones(3, 2), "mask has shape"),
        (torch.zeros(6), torch.zeros(6), torch.ones(6), r"logp_train must be \[B, T\]"),
        (torch.zeros(1, 1), torch.full((1, 1), math.nan), torch.ones(1, 1), "logp_rollout"),
    ],
)
def test_bad_arrays(train, roll, mask, message):
    for operation in ("none", "truncate", "mask"):
        with pytest.raises(ValueError, match=message):
            Correction("token", operation).apply(train, roll, mask)
