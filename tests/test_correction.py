"""Corrections against plain Python, and their expectation by enumeration."""

import itertools
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tinyrl.correction import Correction

LEVELS = ("token", "sequence", "geometric")
seeds = st.integers(0, 2**32 - 1)


def batch(seed, B=5, T=6, spread=0.5):
    g = torch.Generator().manual_seed(seed)
    roll = -2 * torch.rand(B, T, generator=g, dtype=torch.float64) - 0.5
    train = roll + spread * torch.randn(B, T, generator=g, dtype=torch.float64)
    length = torch.randint(1, T + 1, (B, 1), generator=g)
    return train.clamp(max=0), roll, torch.arange(T) < length


def rho(level, d):
    """Ratios of one response from its list of deltas."""
    if level == "token":
        return [math.exp(x) for x in d]
    total = math.fsum(d) / (len(d) if level == "geometric" else 1)
    return [math.exp(total)] * len(d)


@given(
    seeds,
    st.sampled_from(LEVELS),
    st.sampled_from(["truncate", "mask"]),
    st.sampled_from([(None, 2.0), (0.5, None), (0.8, 1.25), (0.0, 1.1)]),
)
def test_every_level_and_operation_in_plain_python(seed, level, operation, bounds):
    train, roll, mask = batch(seed)
    weight, kept = Correction(level, operation, *bounds).apply(train, roll, mask)
    low, high = bounds[0] or 0.0, bounds[1] or math.inf
    for b in range(len(roll)):
        n = mask[b].sum().item()
        expected = rho(level, (train - roll)[b, :n].tolist())
        for t, w in enumerate(expected):
            if operation == "truncate":
                w = min(max(w, low), high)
                assert kept[b, t]
            else:
                assert kept[b, t].item() == (low <= w <= high)
            assert weight[b, t].item() == pytest.approx(w, rel=1e-12)
        assert not kept[b, n:].any()
        assert (weight[b, n:] == 1).all()


@given(seeds, st.sampled_from(LEVELS), st.sampled_from(["truncate", "mask"]))
def test_equal_policies_are_left_alone(seed, level, operation):
    _, roll, mask = batch(seed)
    weight, kept = Correction(level, operation, 0.999, 1.001).apply(roll, roll, mask)
    assert (weight == 1).all()
    assert torch.equal(kept, mask)


@given(seeds)
def test_none_changes_nothing(seed):
    train, roll, mask = batch(seed)
    weight, kept = Correction().apply(train, roll, mask)
    assert (weight == 1).all()
    assert torch.equal(kept, mask)


@given(seeds, st.sampled_from(LEVELS), st.sampled_from(["truncate", "mask"]))
def test_padding_may_hold_anything(seed, level, operation):
    train, roll, mask = batch(seed)
    correction = Correction(level, operation, 0.5, 2.0)
    clean = correction.apply(train, roll, mask)
    dirty = correction.apply(
        torch.where(mask, train, math.nan), torch.where(mask, roll, math.inf), mask
    )
    assert all(torch.equal(x, y) for x, y in zip(clean, dirty, strict=True))


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
