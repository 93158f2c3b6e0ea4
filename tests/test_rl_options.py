"""What `rl` can be told: objectives, denominators, dynamic sampling, length."""

from __future__ import annotations

from dataclasses import fields, replace
from functools import partial

import pytest
import torch

from plain_grpo import plain_grpo
from tinyrl import objectives
from tinyrl.checkpoints import load
from tinyrl.correction import Correction
from tinyrl.critic import Critic
from tinyrl.experience import MAX_ROUNDS, collect, generate, join
from tinyrl.model import GPT
from tinyrl.objectives import LossView, diagnostics, grpo, gspo, ppo, reinforce
from tinyrl.rollout import Batch
from tinyrl.runs import OBJECTIVES
from tinyrl.sampling import Sampler
from tinyrl.scoring import score
from tinyrl.stack import PRESETS, Stack, replace_at
from tinyrl.tasks import CumSum
from tinyrl.trainer import Recipe, Step, Trainer, rl

TASK = CumSum()
INT4 = PRESETS["int4_weights"]
SMALL = Recipe(groups=4, group_size=4)


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def train(
    steps: int = 1, seed: int = 0, name: str = "sft", **how
) -> tuple[GPT, list[Step]]:
    model = load(name)
    return model, list(rl(model, TASK, generator=seeded(seed), steps=steps, **how))


def same_weights(a: GPT, b: GPT) -> bool:
    pairs = zip(a.parameters(), b.parameters(), strict=True)
    return all(torch.equal(x, y) for x, y in pairs)


@pytest.mark.parametrize("name", ["sft", "moe"])
@pytest.mark.parametrize("stale", [0, 2])
def test_by_default_it_is_grpo_to_the_last_bit(name: str, stale: int) -> None:
    by_hand, g = load(name), seeded(5)
    plain_grpo(by_hand, TASK, g, 4, stale)
    trained, h = load(name), seeded(5)
    list(rl(trained, TASK, generator=h, steps=4, staleness=stale))
    assert same_weights(by_hand, trained)
    assert torch.equal(g.get_state(), h.get_state())


def test_the_default_objective_by_its_name_is_the_default() -> None:
    default, a = train(2)
    named, b = train(2, objective=partial(grpo, aggregation="token_mean"))
    assert same_weights(default, named)
    assert a == b


@pytest.mark.parametrize("name", OBJECTIVES)
def test_every_objective_is_what_is_minimised(name: str) -> None:
    options = {"dr_grpo": {"length": 13}, "cispo": {"cap": 5.0}}.get(name, {})
    losses = []

    def watched(*arrays, **more):
        losses.append(getattr(objectives, name)(*arrays, **options, **more))
        return losses[-1]

    how = {"rollout_stack": INT4, "recipe": SMALL, "view": LossView("rollout")}
    start, (trained, (step,)) = load("sft"), train(objective=watched, **how)
    assert len(losses) == 2
    assert step.loss == sum(loss.item() for loss in losses) / 2
    assert step.grad_norm > 0
    assert not same_weights(start, trained)


def test_an_objective_of_your_own_gets_the_arrays_and_its_loss_is_told() -> None:
    seen = []

    def mine(logp, logp_old, advantages, mask, *, weight=None, counted=None):
        seen.append((logp.detach(), logp_old, advantages, mask, weight, counted))
        return (logp * advantages[:, None] * mask).sum()

    cut = Correction("token", "mask", 0.9, 1.1, denominator="all")
    one = replace(SMALL, minibatches=1)
    _, (step,) = train(objective=mine, rollout_stack=INT4, correction=cut, recipe=one)
    ((logp, old, A, mask, weight, counted),) = seen
    assert torch.equal(logp[mask], old[mask])
    assert step.loss == pytest.approx((logp * A[:, None] * mask).sum().item())
    assert step.kept == pytest.approx((mask.sum() / counted.sum()).item())
    assert (counted & ~mask).any()
    assert (weight[mask] != 1).any()
    assert ((weight[mask] > 0.9) & (weight[mask] < 1.1)).all()


def test_the_deviation_of_advantages_is_a_choice() -> None:
    seen = []

    def watched(*arrays, **more):
        seen.append(arrays[2])
        return grpo(*arrays, **more)

    for std in ("sample", "none"):
        train(seed=4, objective=watched, recipe=replace(SMALL, minibatches=1, std=std))
    divided, plain = (x.sort().values for x in seen)
    assert set(plain.tolist()) <= {-0.75, -0.5, -0.25, 0.0, 0.25, 0.5, 0.75}
    assert plain.any()
    assert not torch.equal(divided, plain)


def test_the_denominator_of_a_correction_reaches_the_loss() -> None:
    how = {"rollout_stack": INT4, "recipe": replace(SMALL, minibatches=1)}
    band = Correction("token", "mask", 0.9, 1.1)
    _, (kept,) = train(correction=band, **how)
    _, (every,) = train(correction=replace(band, denominator="all"), **how)
    assert 0.5 < kept.kept < 1
    assert every.loss == pytest.approx(kept.loss * kept.kept, rel=1e-5)


def test_clip_fraction_is_that_of_the_clip(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gradients that are 0 tell what `diagnostics` counts by comparing ratios."""
    how = {"rollout_stack": INT4, "view": LossView("rollout"), "recipe": SMALL}
    expected = []

    def watched(level, widths, objective, *arrays, **more):
        expected.append(diagnostics(*arrays, level=level, **widths)["clip_fraction"])
        return objective(*arrays, **widths, **more)

    for level, f, widths in (
        ("token", ppo, {"eps_low": 0.1, "eps_high": 0.05}),
        ("geometric", gspo, {"eps_low": 0.01, "eps_high": 0.02}),
    ):
        expected.clear()
        _, (step,) = train(objective=partial(watched, level, widths, f), **how)
        assert len(expected) == 2
        assert step.clip_fraction == pytest.approx(sum(expected) / 2)
        assert step.clip_fraction > 0
    _, (free,) = train(objective=reinforce, **how)
    assert free.clip_fraction == 0


def test_dropped_groups_are_those_without_variance() -> None:
    """All, and the informative alone: denominators apart, the gradient is the same."""
    how = {"recipe": replace(SMALL, minibatches=1, groups=8)}
    _, (every,) = train(seed=3, **how)
    dropping = replace(how["recipe"], sampling="drop")
    _, (some,) = train(seed=3, recipe=dropping)
    assert every.reward == some.reward
    assert every.mismatch == some.mismatch
    g = seeded(3)
    prompts = TASK.prompts(8, g).repeat_interleave(4, 0)
    batch = generate(load("sft"), TASK, prompts, Stack(), g)
    R = TASK.reward(batch.prompt, batch.response, batch.mask).view(8, 4)
    mixed = (R.sum(1) > 0) & (R.sum(1) < 4)
    assert 0 < mixed.sum() < 8
    assert every.used == 1
    assert some.used == mixed.double().mean().item()
    tokens = batch.mask.view(8, -1).sum(1)
    share = tokens[mixed].sum() / tokens.sum()
    assert every.grad_norm == pytest.approx(some.grad_norm * share.item(), rel=1e-4)


def test_resampling_fills_the_batch_with_informative_groups() -> None:
    recipe = replace(SMALL, groups=6, group_size=2, sampling="resample")
    model = load("sft")
    seen = collect(model, TASK, Stack(), seeded(1), recipe)
    assert len(seen.reward) > 12
    assert len(seen.reward) % 12 == 0
    assert seen.used.sum() == 12
    R, used = seen.reward.view(-1, 2), seen.used.view(-1, 2)
    assert (used.all(1) == used.any(1)).all()
    mixed = R.sum(1) == 1
    assert mixed.sum() > 6 > mixed[:-6].sum()  # six groups a round, and no round too many
    assert torch.equal(used.any(1), mixed & (mixed.cumsum(0) <= 6))
    # the first round is what would have been sampled without
    plain = collect(model, TASK, Stack(), seeded(1), replace(recipe, sampling="all"))
    assert torch.equal(plain.batch.response, seen.batch.response[:12])
    assert torch.equal(plain.reward, seen.reward[:12])


class Hopeless(CumSum):
    def reward(self, prompts, response, mask):
        return torch.zeros(len(prompts))


def test_where_nothing_is_informative_nothing_is_learned_and_it_ends() -> None:
    model = load("sft")
    start = load("sft")
    for sampling, rounds in (("drop", 1), ("resample", MAX_ROUNDS)):
        trainer = Trainer(
            model, Hopeless(), generator=seeded(), recipe=replace(SMALL, sampling=sampling)
        )
        step = trainer.step()
        assert step.mismatch.sequences == 16 * rounds
        assert (step.used, step.loss, step.grad_norm) == (0, 0, 0)
        assert same_weights(model, start)


def test_batches_of_different_lengths_are_joined() -> None:
    """Padding is as documented, a mixture's routes can be replayed, scores stay."""
    model, stack = load("moe"), replace_at(Stack(), "sampler.top_p", 0.9)
    long, short = (
        generate(model, TASK, TASK.prompts(3, seeded(i)), stack, seeded(9), room)
        for i, room in ((0, 4), (1, -5))
    )
    pad = TASK.tokenizer.pad_id
    both = join([long, short], pad)
    T, t = long.response.shape[1], short.response.shape[1]
    assert t < T
    for f in fields(Batch):
        if f.name not in ("routes", "prompt"):
            a, b = getattr(both, f.name)[:3], getattr(both, f.name)[3:, :t]
            assert torch.equal(a, getattr(long, f.name)), f.name
            assert torch.equal(b, getattr(short, f.name)), f.name
    assert (both.response[3:, t:] == pad).all()
    assert not both.mask[3:, t:].any()
    assert (both.logp_rollout[3:, t:] == 0).all()
    replay = replace_at(Stack(), "router.replay", "rollout")
    with torch.no_grad():
        whole = score(model, both.prompt, both.response, replay, both.routes)
        part = score(model, short.prompt, short.response, replay, short.routes)
    assert (whole.logp[3:, :t] - part.logp).abs().max() < 1e-5


def test_length_costs_reward_and_not_the_pass_rate() -> None:
    """A hot policy talks past the end: those answers earn less, by the paper's formula."""
    hot, room = Stack(sampler=Sampler(2.0)), 4
    recipe = Recipe(groups=32, group_size=2, room=room, overlong=4)
    seen = collect(load("sft"), TASK, hot, seeded(), recipe)
    length = seen.batch.mask.sum(1)
    assert (length > 13).any()
    for y, R, earned in zip(length.tolist(), seen.reward, seen.earned, strict=True):
        assert earned == R - max(0, y - 13) / 4
    how = {"rollout_stack": hot, "recipe": recipe}
    _, (step,) = train(**how)
    assert step.reward == seen.reward.mean().item()
    assert step.length == pytest.approx(length.double().mean().item())


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"staleness": 1.5}, "staleness must be a whole number of steps, not 1.5"),
        ({"staleness": True}, "staleness must be a whole number of steps, not True"),
        (
            {"objective": grpo, "view": LossView(aggregation="sequence_mean")},
            "yours brings its own",
        ),
        ({"objective": grpo, "recipe": Recipe(clip_low=0.1)}, "yours brings its own"),
        (
            {"critic": Critic(), "recipe": Recipe(sampling="drop")},
            "sampling 'drop' leaves out groups of equal rewards",
        ),
        (
            {
                "view": LossView("rollout"),
                "correction": Correction(
                    "token", "mask", 0.5, 2.0, also=Correction("sequence", "truncate")
                ),
            },
            "would count old/rollout twice",
        ),
    ],
)
def test_what_contradicts_itself_is_refused_at_the_call(how, message) -> None:
    with pytest.raises(ValueError, match=message):
        rl(load("sft"), TASK, generator=seeded(), **how)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("sampling", "none", "sampling must be one of"),
        ("std", "max", "std must be one of"),
        ("groups", 2.5, "groups must be a whole number, not 2.5"),
        ("lr", 0, "lr must be above 0, not 0"),
        ("lr", "fast", "lr must be a number, not 'fast'"),
        ("room", -1, "room must be 0 or more, not -1"),
        ("overlong", -1, "overlong must be 0 or more, not -1"),
        ("warmup", 0, "warmup must be at least 1, not 0"),
        ("max_grad_norm", -1.0, "max_grad_norm must be above 0, not -1.0"),
    ],
)
def test_a_recipe_names_what_is_wrong(field, value, message) -> None:
    with pytest.raises(ValueError, match=message):
        Recipe(**{field: value})
