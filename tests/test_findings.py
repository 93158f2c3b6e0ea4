"""What notebook 01 says beyond its four claims, measured apart from it."""

from __future__ import annotations

from copy import deepcopy

import pytest
import torch

from tinyrl.checkpoints import load
from tinyrl.metrics import Mismatch, compare, token_delta
from tinyrl.model import GPT, GPTConfig
from tinyrl.objectives import LossView
from tinyrl.rollout import rollout
from tinyrl.scoring import score
from tinyrl.stack import PRESETS, Stack, replace_at
from tinyrl.tasks import CumSum
from tinyrl.trainer import Recipe, generate, pass_rate, rl

TASK, SEEDS = CumSum(), range(3)


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def mismatch(path: str, value: object, seed: int) -> Mismatch:
    """Sampled with one field changed, scored without."""
    model, stack = load("sft"), replace_at(Stack(), path, value)
    batch = generate(model, TASK, TASK.prompts(256, seeded(seed)), stack, seeded(seed))
    with torch.no_grad():
        logp = score(model, batch.prompt, batch.response, Stack()).logp
    return compare(batch.logp_rollout, logp, batch.mask)


@pytest.mark.parametrize("seed", SEEDS)
def test_three_mantissa_bits_are_a_factor_of_eight(seed):
    fp16, bf16, fp8 = (
        mismatch("numerics.weights", fmt, seed).mean_abs
        for fmt in ("fp16", "bf16", "fp8_e4m3")
    )
    assert 5 < bf16 / fp16 < 12
    assert fp8 / fp16 > 12  # the control: seven bits, not three


@pytest.mark.parametrize("seed", SEEDS)
def test_the_size_of_a_delta_does_not_tell_numerics_from_semantics(seed):
    int4 = mismatch("numerics.weights", "int4", seed).mean_abs
    hidden = mismatch("sampler.temperature", 0.7, seed).mean_abs
    shifted = mismatch("positions.offset", 1, seed).mean_abs
    assert 0.5 < int4 / hidden < 2
    assert shifted / hidden > 10


@pytest.mark.parametrize("seed", SEEDS)
def test_a_temperature_biases_a_long_response_and_rounding_hardly_does(seed):
    """Mean of the sequence delta over 256 tokens, in standard errors of 96 responses."""
    model = GPT(GPTConfig(block_size=264), seeded(seed))
    with torch.no_grad():
        model.lm_head.weight.mul_(4)
    start = torch.randint(6, 16, (96, 8), generator=seeded(seed))
    errors = {}
    for name, stack in {
        "bf16": PRESETS["bf16"],
        "cool": replace_at(Stack(), "sampler.temperature", 0.8),
    }.items():
        how = {"max_new": 256, "eos_id": -1, "pad_id": 0}
        b = rollout(model, start, stack, seeded(seed), **how)
        with torch.no_grad():
            logp = score(model, b.prompt, b.response, Stack()).logp
        Delta = token_delta(b.logp_rollout, logp, b.mask).sum(1)
        errors[name] = (Delta.mean().abs() / (Delta.std() / 96**0.5)).item()
    assert errors["cool"] > 8
    assert errors["bf16"] < 5


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0])
def test_the_centre_of_the_clip_does_the_harm(seed):
    centre_of_the_clip(seed)


@pytest.mark.science
@pytest.mark.parametrize("seed", range(1, 5))
def test_the_centre_of_the_clip_does_the_harm_on_more_seeds(seed):
    centre_of_the_clip(seed)


def centre_of_the_clip(seed: int) -> None:
    """INT4 rollouts, 60 steps: only the clip around their own logprobs destroys."""
    shipped, four_bits = load("sft"), PRESETS["int4_weights"]
    no_clip = Recipe(clip_low=1.0, clip_high=1e6)
    arms = {
        "same": (Stack(), "recompute", Recipe()),
        "bypass": (four_bits, "rollout", Recipe()),
        "clip off": (four_bits, "rollout", no_clip),
        "recomputed": (four_bits, "recompute", Recipe()),
    }
    born, final = pass_rate(shipped, TASK, Stack(), seeded(seed), 1024), {}
    for name, (stack, anchor, recipe) in arms.items():
        model, view = deepcopy(shipped), LossView(anchor)
        how = {"rollout_stack": stack, "view": view, "recipe": recipe, "steps": 60}
        for _ in rl(model, TASK, generator=seeded(seed), **how):
            pass
        final[name] = pass_rate(model, TASK, Stack(), seeded(seed), 1024)
    assert final["bypass"] < 0.5 * born
    assert min(final["clip off"], final["recomputed"]) > 0.85 * final["same"]
