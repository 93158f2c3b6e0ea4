"""Truncated rollouts: log S, replay of the kept set, and what cannot be scored."""

from __future__ import annotations

from copy import deepcopy

import pytest
import torch
from torch import Tensor
from transformers import (
    LogitsProcessorList,
    MinPLogitsWarper,
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from tinyrl.checkpoints import load
from tinyrl.metrics import compare
from tinyrl.rollout import Batch
from tinyrl.sampling import Sampler
from tinyrl.scoring import response_logits, score
from tinyrl.stack import PRESETS, Stack, replace_at
from tinyrl.tasks import CumSum
from tinyrl.trainer import Recipe, generate, rl

TASK = CumSum()
EXACT = PRESETS["true_on_policy"]
REPLAY = Stack(sampler=Sampler(replay="rollout"))
CUTS = [
    Sampler(top_k=3),
    Sampler(top_p=0.9),
    Sampler(min_p=0.05),
    Sampler(0.7, top_k=8, top_p=0.95, min_p=0.01, repetition_penalty=1.2),
]
cuts = pytest.mark.parametrize("sampler", CUTS, ids=str)


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def sample(stack: Stack, B: int = 64, seed: int = 0) -> Batch:
    generator = seeded(seed)
    return generate(load("sft"), TASK, TASK.prompts(B, generator), stack, generator)


def logp_under(stack: Stack, batch: Batch, kept: Tensor | None = None) -> Tensor:
    with torch.no_grad():
        return score(load("sft"), batch.prompt, batch.response, stack, kept=kept).logp


def kept_of(batch: Batch) -> Tensor:
    assert batch.kept is not None
    return batch.kept


@cuts
def test_a_rollout_is_that_of_transformers_processors(sampler: Sampler) -> None:
    """Their chain on float64 logits of the trainer's pass, one step after the other.

    The kept set may differ from ours at a token whose float32 sum decides otherwise: such
    a place is one in thousands, and the sampled token is never outside.
    """
    s, batch = sampler, sample(Stack(sampler=sampler))
    logits = response_logits(
        load("sft").double(), batch.prompt, batch.response, Stack()
    ).detach()
    ids = torch.cat([batch.prompt, batch.response], 1)
    P, same = batch.prompt.shape[1], []
    for t in range(batch.mask.shape[1]):
        chain = LogitsProcessorList(
            [RepetitionPenaltyLogitsProcessor(s.repetition_penalty)]
        )
        chain.append(TemperatureLogitsWarper(s.temperature))
        chain += [TopKLogitsWarper(s.top_k)] if s.top_k else []
        chain += [TopPLogitsWarper(s.top_p)] if s.top_p < 1 else []
        chain += [MinPLogitsWarper(s.min_p)] if s.min_p else []
        scores = chain(ids[:, : P + t], logits[:, t].clone())
        real = batch.mask[:, t]
        agree = (scores.isfinite() == kept_of(batch)[:, t]).all(-1) & real
        same.append(agree.sum() / real.sum())
        wanted = scores.log_softmax(-1).gather(1, batch.response[:, t, None])[:, 0]
        mine = batch.logp_rollout[:, t].double()
        torch.testing.assert_close(mine[agree], wanted[agree], rtol=0, atol=5e-5)
    assert torch.stack(same).mean() > 0.99


@cuts
def test_the_sampled_token_is_kept_and_something_is_cut(sampler: Sampler) -> None:
    batch = sample(Stack(sampler=sampler))
    kept = kept_of(batch)
    assert kept.shape == (*batch.mask.shape, 16)
    assert kept.gather(-1, batch.response[..., None])[..., 0][batch.mask].all()
    assert not kept.all()


def test_nothing_is_recorded_where_nothing_is_cut() -> None:
    for sampler in (Sampler(), Sampler(0.7, repetition_penalty=1.2)):
        assert sample(Stack(sampler=sampler), B=4).kept is None


@pytest.mark.parametrize("sampler", CUTS[:3], ids=str)
def test_a_trainer_of_all_tokens_is_off_by_log_s(sampler: Sampler) -> None:
    """delta = log S, the mass of the kept set, at every token: in float64."""
    batch = sample(Stack(sampler=sampler))
    double = load("sft").double()
    p = response_logits(double, batch.prompt, batch.response, Stack()).softmax(-1)
    log_S = (p * kept_of(batch)).sum(-1).log()
    delta = logp_under(Stack(), batch) - batch.logp_rollout
    off = (delta.double() - log_S)[batch.mask].abs().max()
    assert off < 5e-5
    assert log_S[batch.mask].min() < -0.05, "else nothing was there to see"


@cuts
def test_replay_leaves_rounding_alone(sampler: Sampler) -> None:
    batch = sample(Stack(sampler=sampler))
    trainer = Stack(sampler=Sampler(
        sampler.temperature, repetition_penalty=sampler.repetition_penalty, replay="rollout"
    ))  # fmt: skip
    delta = (logp_under(trainer, batch, batch.kept) - batch.logp_rollout)[batch.mask]
    assert delta.abs().max() < 5e-5
    full = replace_at(trainer, "sampler.replay", "own")
    plain = (logp_under(full, batch, batch.kept) - batch.logp_rollout)[batch.mask]
    assert plain.abs().max() > 0.01


@cuts
def test_with_fixed_shapes_truncation_is_true_on_policy(sampler: Sampler) -> None:
    """To the last bit, whether the trainer cuts for itself or replays."""
    for replay in ("own", "rollout"):
        stack = replace_at(
            Stack(EXACT.numerics, EXACT.kernels, sampler=sampler), "sampler.replay", replay
        )
        batch = sample(stack, B=96)
        logp = logp_under(stack, batch, batch.kept)
        assert torch.equal(logp[batch.mask], batch.logp_rollout[batch.mask])


def test_replay_of_a_rollout_that_cut_nothing_is_no_cut() -> None:
    batch = sample(Stack())
    assert torch.equal(logp_under(REPLAY, batch), logp_under(Stack(), batch))


def test_a_forgotten_mask_is_told_where_the_trainer_cuts() -> None:
    """Without it the trainer would score over everything, and say nothing of it."""
    batch = sample(Stack(sampler=Sampler(top_p=0.5)))
    cutting = replace_at(REPLAY, "sampler.top_p", 0.5)
    with pytest.raises(ValueError, match=r"kept is missing: sampler\.replay is 'rollout'"):
        logp_under(cutting, batch)
    kept = batch.kept
    assert kept is not None
    kept = kept.clone()
    kept[1, 2] = False
    with pytest.raises(ValueError, match=r"kept keeps no token at \[1, 2\]"):
        logp_under(cutting, batch, kept)


def test_a_trainer_that_cuts_for_itself_can_exclude_what_was_sampled() -> None:
    """Rounding moves the border, and the checks name the first place."""
    rollout = replace_at(PRESETS["int4_weights"], "sampler.top_p", 0.9)
    batch, own = sample(rollout, B=256), Stack(sampler=Sampler(top_p=0.9))
    logp = logp_under(own, batch, batch.kept)
    out = (logp == -torch.inf) & batch.mask
    row, column = out.nonzero()[0].tolist()
    with pytest.raises(ValueError, match=rf"logp_train row {row}, column {column} is inf"):
        compare(batch.logp_rollout, logp, batch.mask)
    assert logp_under(REPLAY, batch, batch.kept)[batch.mask].isfinite().all()


@cuts
def test_entropy_is_that_of_the_kept_tokens(sampler: Sampler) -> None:
    stack = Stack(sampler=sampler)
    batch = sample(stack, B=8)
    told = score(load("sft"), batch.prompt, batch.response, stack).entropy
    logits = response_logits(load("sft"), batch.prompt, batch.response, Stack())
    before = sampler.before(batch.prompt, batch.response, 16)
    scores = sampler.process(logits, before).double()
    wanted = torch.special.entr(scores.softmax(-1)).sum(-1)
    torch.testing.assert_close(told.double(), wanted, rtol=0, atol=1e-5)


@cuts
def test_entropy_under_replay_is_that_of_what_the_rollout_kept(sampler: Sampler) -> None:
    """The trainer cuts nothing itself, so over all tokens the entropy would be larger."""
    batch = sample(Stack(sampler=sampler), B=8)
    how = load("sft"), batch.prompt, batch.response
    told = score(*how, REPLAY, kept=batch.kept).entropy.double()
    p = response_logits(*how, Stack()).double().softmax(-1) * kept_of(batch)
    wanted = torch.special.entr(p / p.sum(-1, keepdim=True)).sum(-1)
    torch.testing.assert_close(told, wanted, rtol=0, atol=1e-5)
    over_all = score(*how, Stack()).entropy.double()
    assert (over_all - told)[batch.mask].max() > 0.1


def test_the_likeliest_token_is_that_of_the_penalised_logits() -> None:
    stack = Stack(sampler=Sampler(repetition_penalty=4.0))
    batch = sample(stack, B=64)
    plain, own = (
        score(load("sft"), batch.prompt, batch.response, s).top1 for s in (Stack(), stack)
    )
    real = batch.mask
    assert (own == batch.top1_rollout)[real].float().mean() > 0.999
    assert (plain == batch.top1_rollout)[real].float().mean() < 0.99


def test_greedy_is_top_k_1() -> None:
    batch = sample(Stack(sampler=Sampler(top_k=1)))
    assert torch.equal(batch.response[batch.mask], batch.top1_rollout[batch.mask])
    assert (batch.logp_rollout == 0).all()


def test_the_gradient_under_replay_is_that_of_the_renormalised_policy() -> None:
    """The directional derivative, by differences in float64."""
    batch = sample(Stack(sampler=Sampler(top_k=4)), B=8)
    model = load("sft").double()
    step = [torch.randn(p.shape, generator=seeded(1)) for p in model.parameters()]

    def loss() -> Tensor:
        how = (model, batch.prompt, batch.response, REPLAY)
        return score(*how, kept=batch.kept).logp[batch.mask].square().mean()

    loss().backward()  # type: ignore[no-untyped-call]
    pairs = list(zip(model.parameters(), step, strict=True))
    slope = sum((p.grad * d).sum().item() for p, d in pairs if p.grad is not None)
    values = []
    for h in (1e-6, -2e-6):
        with torch.no_grad():
            for p, d in pairs:
                p.add_(h * d)
            values.append(loss().item())
    assert slope == pytest.approx((values[0] - values[1]) / 2e-6, rel=1e-4)


def test_rl_replays() -> None:
    """Without replay the mismatch of the first step is log S; with it, rounding."""
    rollout, seen = Stack(sampler=Sampler(top_p=0.95)), {}
    for name, trainer in (("own", Stack()), ("replay", REPLAY)):
        model = deepcopy(load("sft"))
        how = {"rollout_stack": rollout, "train_stack": trainer, "recipe": Recipe(groups=4)}
        seen[name] = list(rl(model, TASK, generator=seeded(), steps=2, **how))  # type: ignore[arg-type]
    assert seen["own"][0].mismatch.mean < -1e-3
    assert all(s.mismatch.max_abs < 1e-4 for s in seen["replay"])
    assert seen["own"][1].loss != seen["replay"][1].loss
    stack = Stack(EXACT.numerics, EXACT.kernels, sampler=Sampler(top_p=0.95))
    how = {"rollout_stack": stack, "train_stack": stack, "recipe": Recipe(groups=4)}
    steps = list(rl(deepcopy(load("sft")), TASK, generator=seeded(), steps=2, **how))  # type: ignore[arg-type]
    assert all(s.mismatch.max_abs == 0 for s in steps)


def test_rl_replays_in_the_update_too() -> None:
    """One minibatch: new and old logprobs are of the same pass, so no ratio leaves 1."""
    recipe = Recipe(groups=8, minibatches=1, clip_low=0.02, clip_high=0.02)
    how = {"rollout_stack": Stack(sampler=Sampler(top_p=0.95)), "train_stack": REPLAY}
    (step,) = rl(load("sft"), TASK, generator=seeded(), steps=1, recipe=recipe, **how)  # type: ignore[arg-type]
    assert step.clip_fraction == 0
    assert step.loss == pytest.approx(0, abs=0.05)
