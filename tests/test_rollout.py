"""Rollouts: the right distribution, reported rightly, and equal to scoring."""

from __future__ import annotations

import pytest
import torch

from tinyrl.checkpoints import load
from tinyrl.kernels import Kernels, Numerics
from tinyrl.model import GPT, GPTConfig
from tinyrl.positions import Positions
from tinyrl.rollout import rollout
from tinyrl.sampling import Sampler, gumbel
from tinyrl.scoring import response_logits, score
from tinyrl.stack import PRESETS, Stack, replace_at
from tinyrl.tasks import CumSum
from tinyrl.trainer import generate

TASK = CumSum()
EXACT = PRESETS["true_on_policy"]


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def sample(stack: Stack, B: int = 64, seed: int = 0):
    generator = seeded(seed)
    return generate(load("sft"), TASK, TASK.prompts(B, generator), stack, generator)


@pytest.mark.parametrize(
    "stack",
    [
        Stack(),
        EXACT,
        Stack(positions=Positions(2)),
        Stack(sampler=Sampler(0.7)),
        Stack(sampler=Sampler(0.7, logprobs="raw")),
    ],
    ids=str,
)
def test_the_trainer_agrees_when_nothing_differs(stack):
    """Same weights, tokens and stack: only the order of additions is left."""
    batch = sample(stack)
    with torch.no_grad():
        scored = score(load("sft"), batch.prompt, batch.response, stack)
    d = (scored.logp - batch.logp_rollout)[batch.mask]
    assert d.abs().max() < 5e-5
    same = (scored.top1 == batch.top1_rollout)[batch.mask].float().mean()
    assert same > 0.999


@pytest.mark.parametrize("numerics", [Numerics(), Numerics("bf16", "bf16", "int8")])
@pytest.mark.parametrize("B", [1, 7, 96])
def test_true_on_policy_is_exact(numerics, B):
    stack = Stack(numerics, Kernels("naive", "fixed"))
    for seed in range(3):
        batch = sample(stack, B, seed)
        with torch.no_grad():
            logp = score(load("sft"), batch.prompt, batch.response, stack).logp
        assert torch.equal(logp[batch.mask], batch.logp_rollout[batch.mask])


def test_sampled_tokens_follow_the_distribution():
    """Counts of the first token against the exact softmax, within 5 standard errors."""
    model, n = GPT(GPTConfig(), seeded(5)), 20_000
    stack = Stack(sampler=Sampler(1.5))
    prompt = TASK.prompts(1, seeded(1))
    p = torch.softmax(response_logits(model, prompt, prompt[:, :1], stack)[0, 0] / 1.5, -1)
    batch = rollout(
        model, prompt.expand(n, -1), stack, seeded(2), max_new=1, eos_id=2, pad_id=0
    )
    counts = torch.bincount(batch.response[:, 0], minlength=16) / n
    error = (p * (1 - p) / n).sqrt()
    assert ((counts - p).abs() <= 5 * error).all()


def test_gumbel_noise_has_its_mean_and_variance():
    noise = gumbel((200_000,), seeded()).double()
    assert noise.mean().item() == pytest.approx(0.5772156649, abs=5 * 1.2825 / 200_000**0.5)
    assert noise.var().item() == pytest.approx(torch.pi**2 / 6, rel=0.02)


def test_mask_ends_with_the_end_token_and_the_rest_is_padding():
    batch = sample(Stack(sampler=Sampler(3.0)), B=256)
    lengths = batch.mask.sum(1)
    assert lengths.min() < batch.mask.shape[1]  # at T = 3 some end early
    for row, mask, n in zip(batch.response, batch.mask, lengths.tolist(), strict=True):
        assert mask[:n].all()
        assert not mask[n:].any()
        assert (row[: n - 1] != 2).all()
        assert row[n - 1] == 2 or n == batch.mask.shape[1]
        assert (row[n:] == 0).all()
    assert not batch.logp_rollout[~batch.mask].any()


def test_raw_reports_the_model_and_processed_the_sampler():
    raw, processed = (
        sample(Stack(sampler=Sampler(0.7, logprobs=how))) for how in ("raw", "processed")
    )
    assert torch.equal(raw.response, processed.response)
    logits = response_logits(load("sft"), raw.prompt, raw.response, Stack()).double()
    picked = raw.response[..., None]
    for batch, T in ((raw, 1.0), (processed, 0.7)):
        wanted = (logits / T).log_softmax(-1).gather(-1, picked)[..., 0]
        torch.testing.assert_close(
            batch.logp_rollout.double()[batch.mask], wanted[batch.mask], rtol=0, atol=2e-5
        )


def test_same_generator_same_rollout_and_nearly_the_same_under_rounding():
    """Stacks share their noise, so rounding changes few tokens."""
    one, two = sample(Stack()), sample(Stack())
    assert torch.equal(one.response, two.response)
    assert torch.equal(one.logp_rollout, two.logp_rollout)
    rounded = sample(replace_at(Stack(), "numerics.weights", "bf16"))
    assert (one.response == rounded.response).float().mean() > 0.95


def test_entropy_is_that_of_the_distribution():
    batch = sample(Stack(), B=4)
    scored = score(load("sft"), batch.prompt, batch.response, Stack())
    logits = response_logits(load("sft"), batch.prompt, batch.response, Stack())
    wanted = torch.distributions.Categorical(logits=logits.double()).entropy()
    torch.testing.assert_close(scored.entropy.double(), wanted, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("prompts", "max_new", "message"),
    [
        (
            torch.zeros(0, 16).long(),
            13,
            r"prompts must be \[B, P\] with tokens, got \[0, 16\]",
        ),
        (torch.zeros(16).long(), 13, r"prompts must be \[B, P\] with tokens, got \[16\]"),
        (torch.zeros(2, 16).long(), 0, "max_new must be 1 to 17 for prompts of 16 tokens"),
        (torch.zeros(2, 16).long(), 18, "max_new must be 1 to 17 .*not 18"),
        (torch.full((2, 16), 99), 13, r"ids row 0 has an id outside 0..15: \[99"),
        (torch.zeros(2, 40).long(), 1, "prompts of 40 tokens do not fit in block_size 32"),
    ],
)
def test_what_cannot_be_sampled_is_told_at_once(prompts, max_new, message):
    with pytest.raises(ValueError, match=message):
        rollout(
            load("sft"), prompts, Stack(), seeded(), max_new=max_new, eos_id=2, pad_id=0
        )


def test_a_wrong_pad_id_and_no_generator_are_told():
    prompts, model = TASK.prompts(2, seeded()), load("sft")
    with pytest.raises(ValueError, match=r"pad_id must be 0\.\.15, not 99"):
        rollout(model, prompts, Stack(), seeded(), max_new=3, eos_id=2, pad_id=99)
    with pytest.raises(TypeError, match=r"generator must be a torch\.Generator, not None"):
        rollout(model, prompts, Stack(), None, max_new=3, eos_id=2, pad_id=0)


def test_each_of_several_ends_ends_a_response():
    """Rows that end at the second id hold padding behind it, and are otherwise the same."""
    prompts, model = TASK.prompts(64, seeded()), load("sft")
    one, two = (
        rollout(model, prompts, Stack(), seeded(), max_new=13, eos_id=ends, pad_id=0)
        for ends in (2, [2, 9])
    )
    ended = (one.response == 9) & one.mask
    assert ended.any(1).sum() > 30
    assert torch.equal(two.mask, one.mask & ~(ended.cumsum(1) - ended.long() > 0))
    assert torch.equal(two.response, one.response * two.mask)
    torch.testing.assert_close(two.logp_rollout, one.logp_rollout * two.mask)


def test_the_longest_response_fits_exactly():
    prompts = TASK.prompts(2, seeded())
    batch = rollout(load("sft"), prompts, EXACT, seeded(), max_new=17, eos_id=-1, pad_id=0)
    assert batch.response.shape == (2, 17)
    with torch.no_grad():
        logp = score(load("sft"), prompts, batch.response, EXACT).logp
    assert torch.equal(logp, batch.logp_rollout)


def test_what_cannot_be_scored_is_told():
    prompt, response = torch.zeros(2, 3).long(), torch.zeros(3, 3).long()
    with pytest.raises(ValueError, match=r"got \[2, 3\] and \[3, 3\]"):
        score(load("sft"), prompt, response, Stack())
    with pytest.raises(ValueError, match="at least one token each"):
        score(load("sft"), prompt, prompt[:, :0], Stack())
