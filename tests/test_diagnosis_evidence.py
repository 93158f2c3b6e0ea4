"""Too little to tell: few contexts, logprobs stored in coarse steps."""

import math
from collections import Counter

import pytest
import torch

from faults import choices, constant, cut, rounded, temperature
from policies import causes, policy, top_p
from tinyrl.diagnosis import diagnose

# Few contexts


@pytest.mark.parametrize("bias", [1e-3, 0.1, 0.5])
@pytest.mark.parametrize("jitter", [1e-5, 1e-3, 1e-2])
@pytest.mark.parametrize("side", ["rollout", "trainer"])
def test_answers_of_one_token_from_four_choices_show_nothing(bias, jitter, side):
    for seed in range(20):
        x, y = choices(seed, bias, jitter)
        a, b = (x, y) if side == "rollout" else (y, x)
        verdict = diagnose(a, b)
        assert verdict.findings == (), (seed, verdict.findings)
    assert "too few different tokens" in verdict.rest.en


def test_many_prompts_of_four_choices_show_a_temperature():
    found = Counter()
    for seed in range(24):
        g = torch.Generator().manual_seed(seed)
        z = 1.5 * torch.randn(256, 4, generator=g)
        ids = torch.multinomial((z / 0.6).softmax(-1), 1, generator=g)
        pair = ((z / 0.6).log_softmax(-1).gather(1, ids), z.log_softmax(-1).gather(1, ids))
        found.update(causes(*pair))
    assert found["scale"] >= 20
    assert set(found) == {"scale"}


# Coarse steps


def stored(x, step, how):
    return how(x / step) * step


@pytest.mark.parametrize("step", [0.5, 0.1, 0.01])
@pytest.mark.parametrize("how", [torch.trunc, torch.floor, torch.round])
@pytest.mark.parametrize("side", ["rollout", "trainer"])
def test_logprobs_stored_in_steps_have_no_offset_and_no_scale(step, how, side):
    for seed in range(20):
        p = policy(seed)
        a, b = rounded(p)
        if side == "rollout":
            a = stored(a, step, how)
        else:
            b = stored(b, step, how)
        verdict = diagnose(a, b, p.mask)
        assert not {found.cause for found in verdict.findings} & {"offset", "scale"}, seed
        assert f"the {side}'s logprobs are multiples of {step:g}" in verdict.rest.en


@pytest.mark.parametrize(
    ("step", "cause", "make"),
    [
        (0.01, "offset", constant),
        (0.01, "offset", lambda p: cut(p, lambda z: top_p(z, 0.8))),
        (0.1, "scale", lambda p: temperature(p, 0.5)),
        (0.01, "scale", lambda p: temperature(p, 0.7)),
    ],
)
def test_a_fault_larger_than_the_steps_is_found(step, cause, make):
    found = Counter()
    for seed in range(24):
        p = policy(seed)
        a, b = make(p)
        found.update(causes(stored(a, step, torch.round), b, p.mask))
    assert found[cause] >= 20
    assert set(found) == {cause}


def test_floats_of_any_width_are_in_no_steps():
    for seed in range(24):
        p = policy(seed)
        a, b = rounded(p)
        for dtype in (torch.float32, torch.bfloat16, torch.float16):
            rest = diagnose(a.to(dtype), b.to(dtype), p.mask).rest.en
            assert "multiples" not in rest
    assert "multiples" not in diagnose([[-1.0] * 40], [[-1.5] * 40]).rest.en
    assert "multiples" not in diagnose([[0.0] * 40], [[-math.pi] * 40]).rest.en


# One value, or nearly one


def flat(seed, spread=0.3):
    """A policy that likes each of 150,000 tokens about as much."""
    g = torch.Generator().manual_seed(seed)
    return -11.9 + spread * torch.randn(64, 32, generator=g).double()


@pytest.mark.parametrize("far", [-800.0, -1e4])
def test_probabilities_beyond_what_a_float_holds_are_no_crash(far):
    a = flat(0)
    for b in (a + far, torch.full_like(a, far)):
        assert "0 on average" in str(diagnose(a, b))
        diagnose(b, a)


def test_all_zeros_are_missing_logprobs_and_no_clamp():
    a, b = torch.zeros(20, 20), -torch.rand(20, 20, generator=torch.manual_seed(0))
    for x, y in ((a, b), (b, a)):
        (found,) = diagnose(x, y).findings
        assert found.cause == "zeros"
    assert "clamp" not in causes(torch.full((20, 20), -1e-3), b)


@pytest.mark.parametrize("k", [1 / math.log(2), 1.1, 0.5])
def test_a_multiple_of_a_flat_policy_is_named_beside_the_offset(k):
    for seed in range(10):
        for found in diagnose(flat(seed), k * flat(seed)).findings:
            assert "multiplied by" in found.what.en
            assert f"{k:.4g}" in found.what.en
