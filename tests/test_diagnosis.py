"""Causes are found in policies that have them, and in no others."""

import math
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from faults import (
    constant,
    cut,
    early,
    last_missing,
    late,
    prefix,
    rounded,
    some_missing,
    temperature,
)
from policies import (
    NOISES,
    SHARP,
    Policy,
    causes,
    logp,
    policy,
    seeds,
    top_k,
    top_p,
)
from tinyrl.diagnosis import BANDS, diagnose
from tinyrl.diagnosis.bands import band
from tinyrl.diagnosis.statistics import logit, minority, quantile, rank_correlation
from tinyrl.diagnosis.temperature import _ends

# Nothing is found where nothing is wrong


@given(
    seeds,
    st.sampled_from(NOISES),
    st.sampled_from([1, 2, 3, 8, 32]),
    st.sampled_from([1, 2, 3, 13, 64]),
    st.sampled_from([4, 16, 64, 512]),
    st.sampled_from(SHARP),
    st.booleans(),
)
def test_rounding_and_old_weights_are_given_no_cause(seed, noise, B, T, V, sharp, swap):
    p = Policy.draw(seed, B, T, V, sharp)
    roll, train = p.logits(noise), p.logits()
    if swap:
        roll, train = train, roll
    ids = p.sample(roll)
    assert causes(logp(roll, ids), logp(train, ids), p.mask) == set()


@pytest.mark.parametrize("noise", NOISES)
def test_no_cause_in_large_batches_of_noise(noise):
    for seed in range(24):
        p = policy(seed)
        roll = p.logits(noise)
        ids = p.sample(roll)
        a, b = logp(roll, ids), logp(p.logits(), ids)
        verdict = diagnose(a, b, p.mask)
        assert verdict.findings == verdict.notes == (), f"seed {seed}"


@pytest.mark.parametrize("noise", ["fp16", "bf16", "logits"])
@pytest.mark.parametrize("size", [0.02, 0.25, 4.0, 10.0])
def test_first_tokens_that_are_unsure_or_very_sure_are_no_wrong_prefix(noise, size):
    """Noise follows 1 - p, and rounding the size of the logits: both at the start only."""
    V, sharp = (512, (0.5, 4)) if size > 1 else (64, (10, 40))
    for seed in range(40):
        p = Policy.draw(seed, 16, 32, V, sharp)
        p.hidden[:, :2] *= size
        roll = p.logits(noise)
        ids = p.sample(roll)
        assert causes(logp(roll, ids), logp(p.logits(), ids), p.mask) == set(), seed


def test_a_sampler_that_cuts_more_at_the_start_is_no_wrong_prefix():
    for seed in range(8):
        p = Policy.draw(seed, 16, 128, 1024, (4, 12))
        p.hidden[:, :3] *= 0.1
        roll = top_k(p.logits(), 50)
        ids = p.sample(roll)
        assert causes(logp(roll, ids), logp(p.logits(), ids), p.mask) == {"offset"}


@given(seeds)
def test_unrelated_arrays_are_given_no_cause(seed):
    p, q = (
        Policy.draw(seed, 32, 32, 64, (1, 12)),
        Policy.draw(seed + 1, 32, 32, 64, (1, 12)),
    )
    ids = p.sample(p.logits())
    verdict = diagnose(logp(p.logits(), ids), logp(q.logits(), ids), p.mask)
    assert verdict.findings == ()
    assert "none of the signatures" in verdict.rest.en


@pytest.mark.parametrize("noise", ["bf16", "w4a4", "int4", "stale"])
def test_certain_tokens_whose_logprob_is_honestly_zero_are_not_missing(noise):
    """Zeros of float32 stay innocent even where the trainer doubts many of them."""
    for seed in range(24):
        p = Policy.draw(seed, 32, 32, 16, (20, 200))
        roll = p.logits(noise)
        ids = p.sample(roll)
        a, b = logp(roll, ids), logp(p.logits(), ids)
        assert (a == 0).float().mean() > 0.2
        assert causes(a, b, p.mask) == set()


# What is said of a fault is right


def test_a_nucleus_at_a_temperature_is_told_by_one_or_both():
    """Both cool the rollout, so one can hide the other; nothing else may be named."""
    found = Counter()
    for seed in range(24):
        p = policy(seed)
        seen = causes(*cut(p, lambda z: top_p(z / 0.7, 0.9)), p.mask)
        assert seen <= {"scale", "offset"}
        found.update(seen or {"nothing"})
    assert found["scale"] >= 18
    assert found["offset"] >= 10
    assert found["nothing"] <= 1


@given(seeds, st.sampled_from([0.6, 0.8, 0.9, 1.2, 1.5]))
def test_the_bounds_on_the_temperature_hold_it(seed, T):
    p = Policy.draw(seed, 64, 32, 64, (1, 12))
    roll = p.logits() / T
    ids = p.sample(roll)
    (found,) = diagnose(logp(roll, ids), logp(p.logits(), ids), p.mask).findings
    low, high = (float(x) for x in found.what.en.split("between ")[1].split(" and "))
    assert low - 0.005 <= T <= high + 0.005  # what two digits round off
    assert found.value == pytest.approx(T, rel=0.12)


@pytest.mark.parametrize("T", [0.6, 0.7, 0.8, 1.2])
def test_the_bounds_differ_and_hold_the_temperature_where_tokens_are_many(T):
    for seed in range(6):
        p = Policy.draw(seed, 256, 64, 64, (1, 12))
        (found,) = diagnose(*temperature(p, T), p.mask).findings
        low, high = found.what.en.split("between ")[1].split(" and ")
        assert float(low) <= T <= float(high)
        assert low != high
        assert "slope" not in found.evidence.en
        assert "expected of a temperature" in found.beside.en


def test_ends_have_the_digits_that_tell_them_apart():
    assert _ends(0.7, 0.7004) == ("0.7000", "0.7004")
    assert _ends(0.5, 0.61) == ("0.50", "0.61")
    assert _ends(0.7, 0.7) == ("0.700000", "0.700000")


@given(seeds, st.floats(0.3, 3))
def test_odds_at_another_temperature_by_renyi_entropy(seed, beta):
    """logit q = beta logit p + (beta - 1) H_beta(rest), token by token, exactly."""
    g = torch.Generator().manual_seed(seed)
    z = 2 * torch.randn(6, generator=g, dtype=torch.float64)
    p, q = z.log_softmax(-1), (beta * z).log_softmax(-1)
    for v in range(6):
        rest = torch.cat([z[:v], z[v + 1 :]]).softmax(-1)
        H = (rest**beta).sum().log() / (1 - beta) if beta != 1 else torch.tensor(0.0)
        expected = beta * logit(p[v]) + (beta - 1) * H
        assert logit(q[v]).item() == pytest.approx(expected.item(), abs=1e-9)
        assert -1e-9 <= H <= math.log(5) + 1e-9


def test_the_mean_ratio_is_the_kept_mass_by_enumeration():
    g = torch.Generator().manual_seed(0)
    z = torch.randn(50, generator=g, dtype=torch.float64)
    full, kept = z.log_softmax(-1), top_p(z, 0.9).log_softmax(-1)
    mean_ratio = (kept.exp() * (full - kept).exp()).nansum()
    assert mean_ratio.item() == pytest.approx(full[kept > -math.inf].exp().sum().item())


def test_numbers_of_the_findings():
    p = policy(0)
    (found,) = diagnose(*late(p), p.mask).findings
    assert found.value == 1
    assert "late" in found.what.en
    (found,) = diagnose(*early(p), p.mask).findings
    assert found.value == -1
    assert "early" in found.what.en
    (found,) = diagnose(*constant(p), p.mask).findings
    assert found.value == pytest.approx(-0.05, abs=0.005)
    assert "nearly constant" in found.evidence.en
    assert "the rollout alone" in found.what.en
    a, b = rounded(p)
    (found,) = diagnose(last_missing(a, p.mask, 2), b, p.mask).findings
    assert found.value == pytest.approx(2 * len(a) / p.mask.sum().item(), rel=0.2)
    assert "of the rollout" in found.what.en
    (found,) = diagnose(a, last_missing(b, p.mask, 2), p.mask).findings
    assert "of the trainer" in found.what.en
    (found,) = diagnose(*prefix(p, 1), p.mask).findings
    assert found.value in (1, 2, 4)


def test_findings_are_ranked_by_what_they_explain():
    p = policy(0)
    a, b = temperature(p, 0.6)
    verdict = diagnose(some_missing(p, a, 0.01), b, p.mask)
    explained = [found.explains for found in verdict.findings]
    assert [found.cause for found in verdict.findings] == ["scale", "zeros"]
    assert explained == sorted(explained, reverse=True)
    assert 0 < sum(explained) <= 1


def test_a_missing_logprob_is_seen_in_the_smallest_batch():
    verdict = diagnose([[0.0, -1.0]], [[-2.0, -1.0]])
    assert verdict.findings[0].cause == "zeros"
    verdict = diagnose(np.zeros((1, 20)), np.full((1, 20), -2.0))
    assert "all of them" in verdict.findings[0].what.en
    assert verdict.rest.en == "nothing"


def test_padding_does_not_matter():
    p = policy(1)
    a, b = late(p)
    dirty = [torch.where(p.mask, x, math.nan) for x in (a, b)]
    assert str(diagnose(*dirty, p.mask)) == str(diagnose(a, b, p.mask))


def test_equal_arrays():
    p = policy(0)
    a, _ = rounded(p)
    verdict = diagnose(a, a, p.mask)
    assert verdict.band.name == "equal"
    assert verdict.findings == ()
    assert verdict.rest.en == "nothing"
    (note,) = verdict.notes
    assert "one array given twice" in note.en


def test_few_tokens_are_said_to_be_few():
    assert "too few tokens" in diagnose([[-1.0, -2.0]], [[-1.3, -1.5]]).rest.en


def test_bad_arrays_are_refused():
    with pytest.raises(ValueError, match="logp_train row 0, column 1 is not a number"):
        diagnose([[-1.0, -1.0]], [[-1.0, math.nan]])


# Parts


def test_bands_rise_and_name_their_source():
    bounds = [b.below for b in BANDS]
    assert bounds == sorted(bounds)
    assert all("20" in b.source.en for b in BANDS)
    assert band(0.0, 0.0).name == "equal"
    names = [band(k3, 1.0).name for k3 in (0.0, 1e-9, 1e-6, 5e-5, 5e-3, 0.05, 2.0)]
    assert names == ["floor", "floor", "small", "usual", "high", "alarming", "broken"]
    assert band(math.inf, math.inf).name == "broken"


def test_rank_correlation_with_ties():
    x = torch.tensor([1.0, 2.0, 2.0, 3.0])
    y = torch.tensor([10.0, 20.0, 30.0, 40.0])
    # Pearson of (1, 2.5, 2.5, 4) and (1, 2, 3, 4)
    assert rank_correlation(x, y) == pytest.approx(4.5 / math.sqrt(4.5 * 5))
    assert rank_correlation(x, torch.ones(4)) == 0
    assert rank_correlation(x, -x) == pytest.approx(-1)
    big = torch.randn(200_000, generator=torch.Generator().manual_seed(0))
    assert rank_correlation(big, big**3) == pytest.approx(1)


def test_small_statistics():
    assert minority(torch.tensor([-3.0, 1.0])) == pytest.approx(0.25)
    assert quantile(torch.arange(101.0), 0.9) == 90
    assert quantile(torch.tensor([7.0]), 0.9) == 7
