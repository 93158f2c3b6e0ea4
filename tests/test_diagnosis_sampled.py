"""Whether the rollout can have sampled the tokens: a bound that needs no assumption."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from faults import choices, cut, learned, raw_logprobs, rounded, temperature
from policies import Policy, logp, policy, seeds, top_k, top_p
from tinyrl.diagnosis import diagnose
from tinyrl.diagnosis.sampled import SURE, against, means

SEEDS = range(12)


def foreign(verdict):
    return any("were not sampled by the rollout" in note.en for note in verdict.notes)


# The bound


@given(seeds, st.floats(0.1, 5), st.booleans())
def test_the_evidence_is_on_average_no_evidence(seed, far, cuts):
    """The mean of exp(against) over the rollout's own samples, by enumeration: 1, and
    below it if the rollout cuts a tail."""
    g = torch.Generator().manual_seed(seed)
    z = torch.randn(20, generator=g, dtype=torch.float64)
    mu = (top_k(z, 5) if cuts else z).log_softmax(-1)
    p = (z + far * torch.randn(20, generator=g, dtype=torch.float64)).log_softmax(-1)
    mean = sum(
        math.exp(mu[v] + against((p[v] - mu[v])[None])) for v in range(20) if mu[v] > -99
    )
    assert mean <= 1 + 1e-9
    assert cuts or mean == pytest.approx(1)


@given(seeds, st.floats(0.3, 3))
def test_the_evidence_of_a_batch_too(seed, far):
    """Two tokens after one another, the second in a context that the first decides."""
    g = torch.Generator().manual_seed(seed)
    z = 2 * torch.randn(5, 4, generator=g, dtype=torch.float64)
    mu = z.log_softmax(-1)
    p = (z + far * torch.randn(5, 4, generator=g, dtype=torch.float64)).log_softmax(-1)
    mean = 0.0
    for i in range(4):
        for j in range(4):
            d = torch.stack([p[0, i] - mu[0, i], p[1 + i, j] - mu[1 + i, j]])
            mean += math.exp(mu[0, i] + mu[1 + i, j] + against(d))
    assert mean == pytest.approx(1)


@pytest.mark.parametrize("far", [0.3, 1.0, 3.0])
def test_heavy_tails_raise_no_alarm(far):
    """Rollouts so far from the trainer that single tokens decide the mean ratio."""
    for seed in range(40):
        p = policy(seed)
        roll = p.logits() + far * p.normal(*p.logits().shape)
        ids = p.sample(roll)
        verdict = diagnose(logp(roll, ids), logp(p.logits(), ids), p.mask)
        assert not foreign(verdict), seed


def test_cut_tails_raise_no_alarm():
    for seed in SEEDS:
        p = policy(seed)
        for how in (lambda z: top_k(z, 2), lambda z: top_p(z, 0.7), lambda z: top_k(z, 8)):
            assert not foreign(diagnose(*cut(p, how), p.mask))
        assert not foreign(diagnose(*temperature(p, 0.7), p.mask))


# What it finds


def other_samples(p):
    z = p.logits()
    return logp(z, p.sample(z)), logp(z, p.sample(z))


def other_rows(p):
    """A tenth of the rows come from another batch: few enough to be named one by one."""
    a, b = rounded(p)
    z = p.logits()
    rows = torch.arange(len(b)) % 10 == 0
    return a, torch.where(rows[:, None], logp(z, p.sample(z)), b)


def swapped(p):
    roll = p.logits("int4")
    ids = p.sample(roll)
    return logp(p.logits(), ids), logp(roll, ids)


@pytest.mark.parametrize("fault", [other_samples, other_rows, swapped])
def test_tokens_that_the_rollout_did_not_sample_are_told(fault):
    found = 0
    for seed in range(24):
        p = policy(seed)
        verdict = diagnose(*fault(p), p.mask)
        found += foreign(verdict) or (fault is other_rows and verdict.notes != ())
        assert "near 1" not in verdict.rest.en
        assert not foreign(verdict) or "并非采样端所抽" in verdict.rest.zh
    assert found >= 22


def test_a_trainer_that_made_a_step_is_among_what_is_named():
    """Its offset says so already; where none is named, this does."""
    found = 0
    for seed in SEEDS:
        p = policy(seed)
        verdict = diagnose(*learned(p), p.mask)
        if foreign(verdict):
            found += 1
            assert "has made a step on these tokens" in verdict.notes[0].en
        else:
            assert [f.cause for f in verdict.findings] == ["offset"]
    assert found < 12


def test_raw_logprobs_are_told_by_their_temperature():
    """Sampled at T and reported at 1: the tokens are not the report's own."""
    for seed in SEEDS:
        p = policy(seed)
        verdict = diagnose(*raw_logprobs(p, 0.6), p.mask)
        assert foreign(verdict) or verdict.findings[0].cause == "scale"


# Words


def test_near_1_is_said_only_of_what_is_known_to_be():
    near = unknown = 0
    for seed in range(40):
        p = policy(seed)
        roll = p.logits() + (0.02, 0.3, 1.3)[seed % 3] * p.normal(*p.logits().shape)
        ids = p.sample(roll)
        verdict = diagnose(logp(roll, ids), logp(p.logits(), ids), p.mask)
        m = verdict.means
        if "near 1" in verdict.rest.en:
            near += 1
            assert abs(m.ratio - 1) < 4 * m.ratio_error <= 0.2
            assert f"({m.shown})" in verdict.rest.en
        unknown += "shows nothing" in verdict.rest.en
    assert near >= 13
    assert unknown >= 3


def test_numbers_by_hand():
    d = torch.tensor([math.log(2.0), math.log(0.5), 0.0, 0.0], dtype=torch.float64)
    m = means(d)
    assert m.ratio == pytest.approx((2 + 0.5 + 1 + 1) / 4)
    assert m.ratio_error == pytest.approx(torch.tensor([2, 0.5, 1, 1]).std().item() / 2)
    assert m.d == pytest.approx(0)
    assert m.few == 1
    assert not m.foreign
    assert means(torch.full((100,), 0.5, dtype=torch.float64)).against > SURE
    assert not means(torch.full((100,), 0.5, dtype=torch.float64), step=0.5).foreign
    assert means(d[:1]).ratio_error == math.inf


def test_four_choices_and_steps_are_not_called_foreign():
    for seed in SEEDS:
        a, b = choices(seed, 0.5)
        assert not foreign(diagnose(a, b))
        p = policy(seed)
        a, b = rounded(p)
        for how in (torch.floor, torch.trunc):
            assert not foreign(diagnose(how(a / 0.1) * 0.1, b, p.mask))
            assert not foreign(diagnose(a, how(b / 0.1) * 0.1, p.mask))


def test_a_policy_that_is_the_same_has_a_ratio_of_1():
    p = Policy.draw(0, 64, 32, 64, (1, 12))
    a, b = rounded(p)
    m = diagnose(a, b, p.mask).means
    assert m.shown.startswith("1") or m.shown.startswith("0.99")
    assert m.known
