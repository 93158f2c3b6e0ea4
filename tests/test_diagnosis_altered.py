"""Logprobs multiplied or clamped after log-softmax; what a finding may claim to explain."""

import math
from collections import Counter

import pytest
import torch

from faults import (
    constant,
    cut,
    early,
    floored,
    late,
    learned,
    logarithm,
    multiplied,
    prefix,
    raw_logprobs,
    rounded,
    some_missing,
    temperature,
    zeros_anywhere,
    zeros_at_the_end,
)
from policies import Policy, causes, logp, policy, top_k, top_p
from tinyrl.diagnosis import diagnose

SEEDS = range(24)


def peaked(seed):
    """Most tokens are nearly sure, a few are not."""
    return Policy.draw(seed, 32, 32, 64, (10, 40))


# Multiplied


@pytest.mark.parametrize("draw", [policy, peaked])
@pytest.mark.parametrize("side", ["rollout", "trainer"])
@pytest.mark.parametrize("base", [2, 10])
def test_a_logarithm_of_another_base_is_named_with_its_side(draw, side, base):
    alone = 0
    for seed in SEEDS:
        p = draw(seed)
        (found,) = diagnose(*logarithm(p, side, base), p.mask).findings
        assert found.cause == "scale"
        assert f"the {side}'s logprobs are in log{base}," in found.what.en
        assert f"multiply the {side}'s by {math.log(base):.4f}" in found.remedy.en
        assert found.explains > 0.8
        alone += "multiplied by" not in found.what.en
    assert alone >= 15 or draw is peaked  # too few unsure tokens to tell 0.69 from 0.70


NEAR_LOGARITHMS = [0.7, 1 / 0.7, 0.43, 2.3, 1 / 0.43, 1 / 2.3]


@pytest.mark.parametrize("k", NEAR_LOGARITHMS)
def test_a_round_multiple_near_a_logarithm_is_named_too_or_alone(k):
    alone = 0
    for seed in SEEDS:
        for p in (policy(seed), peaked(seed)):
            (found,) = diagnose(*multiplied(p, k), p.mask).findings
            assert "multiplied by" in found.what.en
            assert "after log-softmax" in found.remedy.en
            alone += "in log" not in found.what.en
    assert alone >= 15


@pytest.mark.parametrize("k", [0.5, 0.8, 1.25, 2.0, 7.0, *NEAR_LOGARITHMS])
def test_another_multiple_is_named_by_its_size(k):
    for seed in SEEDS:
        p = policy(seed)
        (found,) = diagnose(*multiplied(p, k), p.mask).findings
        assert found.cause == "scale"
        assert "multiplied by" in found.what.en
        assert found.value == pytest.approx(k, rel=0.01)
        assert "after log-softmax" in found.remedy.en


def test_a_multiple_without_rounding_leaves_nothing():
    p = policy(0)
    a, _ = rounded(p)
    verdict = diagnose(a, a / math.log(2), p.mask)
    assert verdict.findings[0].explains == pytest.approx(1, abs=1e-6)
    assert "the floor of float32" in verdict.rest.en


def test_what_lies_under_a_multiple_is_told_in_nats():
    """The rollout in log10: what is left is that of the rounding alone."""
    p = policy(0)
    a, b = rounded(p)
    before = diagnose(a, b, p.mask).rest.en.split(" over")[0]
    assert diagnose(a / math.log(10), b, p.mask).rest.en.startswith(before)


@pytest.mark.parametrize("T", [0.3, 0.6, 0.9, 1.1, 1.5, 3.0])
@pytest.mark.parametrize("fault", [temperature, raw_logprobs])
def test_a_temperature_is_no_multiple(T, fault):
    for seed in SEEDS:
        for p in (policy(seed), peaked(seed)):
            for found in diagnose(*fault(p, T), p.mask).findings:
                assert "trainer / rollout" not in found.what.en + found.evidence.en


@pytest.mark.parametrize("T", [0.5, 0.7])
def test_a_temperature_on_tokens_that_nobody_sampled_may_be_what_a_multiple_is(T):
    found = Counter()
    for seed in range(50):
        p = policy(seed)
        z = p.logits("bf16")
        ids = torch.randint(z.shape[-1], z.shape[:2], generator=p.generator)
        for finding in diagnose(logp(z / T, ids), logp(p.logits(), ids), p.mask).findings:
            if "quotient" in finding.evidence.en:
                found["multiple"] += 1
                assert "at a temperature, if neither side sampled these" in finding.what.en
    assert found["multiple"] >= 5


def test_an_offset_and_a_multiple_of_one_value_are_not_told_apart():
    a = torch.full((4, 20), -1.0)
    assert "scale" not in causes(a, 2 * a)


# Clamped


@pytest.mark.parametrize("side", ["rollout", "trainer"])
@pytest.mark.parametrize("bound", [-5.0, -3.0])
def test_a_clamp_is_named_or_nothing_is(side, bound):
    found = Counter()
    for seed in SEEDS:
        for p in (policy(seed), peaked(seed)):
            a, b = floored(p, side, bound)
            verdict = diagnose(a, b, p.mask)
            x, y = (a, b) if side == "rollout" else (b, a)
            many = (p.mask & (x == bound) & (y < bound)).sum() >= 50
            found[len(verdict.findings), bool(many)] += 1
            for clamp in verdict.findings:
                assert clamp.cause == "clamp"
                assert clamp.value == bound
                assert f"of the {side} are exactly {bound:g}" in clamp.what.en
    assert set(found) <= {(0, False), (1, False), (1, True)}
    assert found[1, True] >= 12


def test_a_clamp_takes_no_offset_with_it_and_hides_none():
    for seed in (0, 1, 2, 3, 4):
        p = policy(seed)
        a, b = constant(p)
        assert causes(a.clamp(min=-3.0), b, p.mask) == {"clamp", "offset"}


def test_a_bound_that_both_sides_share_is_no_fault():
    for seed in SEEDS:
        p = policy(seed)
        a, b = (x.clamp(min=-3.0) for x in rounded(p))
        assert causes(a, b, p.mask) == set()


def test_one_token_of_one_context_sampled_often_is_no_clamp():
    """The rarest value occurs 20 times on each side, always as the same pair."""
    p = policy(0)
    a, b = rounded(p)
    a[:20, 0], b[:20, 0] = -40.0, -40.3
    assert causes(a, b, p.mask) == set()


@pytest.mark.parametrize("step", [0.01, 0.5, 1.0])
def test_logprobs_stored_in_steps_are_not_clamped(step):
    for seed in SEEDS:
        p = policy(seed)
        a, b = rounded(p)
        assert "clamp" not in causes((a / step).round() * step, b, p.mask)


# What a finding explains


FAULTS = {
    "late": late,
    "early": early,
    "zeros at the end": zeros_at_the_end,
    "zeros": zeros_anywhere,
    "one zero": lambda p: (rounded(p)[0], some_missing(p, rounded(p)[1], 0.001)),
    "prefix": lambda p: prefix(p, 2),
    "constant": constant,
    "top-k 2": lambda p: cut(p, lambda z: top_k(z, 2)),
    "top-k 8": lambda p: cut(p, lambda z: top_k(z, 8)),
    "top-p 0.9": lambda p: cut(p, lambda z: top_p(z, 0.9)),
    "top-p 0.5": lambda p: cut(p, lambda z: top_p(z, 0.5)),
    "T 0.7, top-p 0.9": lambda p: cut(p, lambda z: top_p(z / 0.7, 0.9)),
    "T 0.3": lambda p: temperature(p, 0.3),
    "T 2": lambda p: temperature(p, 2.0),
    "T 0.7, raw": lambda p: raw_logprobs(p, 0.7),
    "clamp": lambda p: floored(p, "rollout", -5.0),
    "log2": lambda p: logarithm(p, "trainer", 2),
    "learned": learned,
    "late, many zeros": lambda p: (some_missing(p, late(p)[0], 0.6), late(p)[1]),
    "log10, many zeros": lambda p: (
        some_missing(p, rounded(p)[0], 0.6),
        logarithm(p, "trainer", 10)[1],
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_what_is_named_explains_something_and_not_more_than_all(fault):
    for seed in SEEDS:
        for p in (policy(seed), peaked(seed)) if seed < 6 else (policy(seed),):
            verdict = diagnose(*FAULTS[fault](p), p.mask)
            shares = [found.explains for found in verdict.findings]
            assert all(0 < share <= 1 for share in shares), (seed, verdict.findings)
            assert sum(shares) <= 1 + 1e-12
            fitted = {"shift", "offset", "scale"}
            assert all(f.explains >= 0.01 for f in verdict.findings if f.cause in fitted)
            assert " 0%" not in str(verdict)


@pytest.mark.parametrize("mass", [0.8, 0.9])
def test_an_offset_explains_what_the_kept_mass_does(mass):
    """Token by token, the logarithm of the mass that top-p keeps is known here."""
    for seed in SEEDS:
        p = policy(seed)
        roll = p.logits("bf16")
        kept = top_p(roll, mass)
        ids = p.sample(kept)
        a, b = logp(kept, ids), logp(p.logits(), ids)
        log_mass = torch.where(kept > -math.inf, roll.softmax(-1), 0).sum(-1).log()
        d = (b - a)[p.mask]
        truth = 1 - ((d - log_mass[p.mask]).abs().sum() / d.abs().sum()).item()
        for found in diagnose(a, b, p.mask).findings:
            if found.at_most:
                assert truth < found.explains < truth + 0.25
                assert "up to" in found.share.en
            else:
                assert truth - 0.15 < found.explains < truth


def test_an_offset_that_hides_the_rest_says_so():
    p = policy(0)
    verdict = diagnose(*cut(p, lambda z: top_k(z, 8)), p.mask)
    assert "at least" in verdict.rest.en
    assert "hides the rest" in verdict.rest.en
    assert "explains up to" in str(verdict)


# A trainer that has learned the tokens


@pytest.mark.parametrize(("step", "way"), [(0.03, "from"), (-0.03, "against")])
def test_logprobs_after_a_step_on_these_tokens_carry_the_caveat(step, way):
    found = Counter()
    for seed in SEEDS:
        p = policy(seed)
        for finding in diagnose(*learned(p, step), p.mask).findings:
            found[finding.cause] += 1
            assert finding.cause == "offset"
            assert (
                f"or the trainer has already learned {way} these tokens" in finding.what.en
            )
            assert finding.remedy.en.startswith(
                "first make sure that the trainer's logprobs"
            )
    assert found["offset"] >= 12


def test_each_side_of_an_offset_has_the_caveat_of_its_sign():
    p = policy(0)
    a, b = constant(p)
    for x, y, side, way in ((a, b, "rollout", "against"), (b, a, "trainer", "from")):
        (found,) = diagnose(x, y, p.mask).findings
        assert f"the {side} alone renormalises" in found.what.en
        assert f"learned {way} these tokens" in found.what.en
        assert ("negative advantages" in found.remedy.en) == (way == "against")
