"""Training: it learns, it reproduces, it does what its arguments say."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from statistics import mean

import pytest
import torch

from tinyrl.checkpoints import HERE, MOE_STEPS, SHIPPED, load, train_moe, train_sft
from tinyrl.correction import Correction
from tinyrl.metrics import compare
from tinyrl.model import GPT
from tinyrl.moe import expert_load
from tinyrl.objectives import LossView
from tinyrl.sampling import Sampler
from tinyrl.scoring import score
from tinyrl.stack import PRESETS, Stack
from tinyrl.tasks import CumSum
from tinyrl.trainer import Recipe, Step, generate, pass_rate, rl

TASK = CumSum()
EXACT = PRESETS["true_on_policy"]


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def train(steps: int = 3, seed: int = 0, **how) -> tuple[GPT, list[Step]]:
    model = load("sft")
    return model, list(rl(model, TASK, generator=seeded(seed), steps=steps, **how))


def same_weights(a: GPT, b: GPT) -> bool:
    pairs = zip(a.parameters(), b.parameters(), strict=True)
    return all(torch.equal(x, y) for x, y in pairs)


@pytest.mark.slow
def test_sft_makes_the_shipped_checkpoint_and_rl_masters_the_task():
    """The command behind the checkpoint still does it; then a third becomes nine tenths."""
    for step, (made, loss) in enumerate(train_sft()):  # noqa: B007
        pass
    assert step == 249
    assert loss < 0.6
    shipped = load("sft")
    n = 1024
    both = [pass_rate(m, TASK, Stack(), seeded(1), n) for m in (made, shipped)]
    # another processor sums in another order, so weights may differ; what they do may not:
    # both near (1 - 0.08)^12 = 0.37, and apart by less than 5 standard errors
    assert abs(both[0] - both[1]) < 5 * (2 * 0.25 / n) ** 0.5
    assert 0.25 < both[0] < 0.45
    for _ in rl(made, TASK, generator=seeded(2)):
        pass
    assert pass_rate(made, TASK, Stack(), seeded(3), n) >= 0.85


@pytest.mark.slow
def test_sft_makes_the_shipped_mixture_and_rl_improves_it():
    """As above, within 5 standard errors; and its balance loss keeps every expert busy."""
    for step, (made, _) in enumerate(train_moe()):  # noqa: B007
        pass
    assert step + 1 == MOE_STEPS
    n = 1024
    both = [pass_rate(m, TASK, Stack(), seeded(1), n) for m in (made, load("moe"))]
    assert abs(both[0] - both[1]) < 5 * (2 * 0.25 / n) ** 0.5
    assert 0.25 < both[0] < 0.45
    for model in (made, load("moe")):
        batch = generate(model, TASK, TASK.prompts(n, seeded(2)), Stack(), seeded(3))
        share = expert_load(batch.routes, batch.read)
        assert share.min() > 1 / 16
        assert share.max() < 1 / 4
    for _ in rl(made, TASK, generator=seeded(2), steps=60):
        pass
    assert pass_rate(made, TASK, Stack(), seeded(3), n) > both[0] + 0.2


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_checkpoint_is_a_folder_that_transformers_loads(name):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    assert (HERE / name / "model.safetensors").stat().st_size < 2e6
    model = AutoModelForCausalLM.from_pretrained(HERE / name)
    tokenizer = AutoTokenizer.from_pretrained(HERE / name)
    talk = [{"role": "user", "content": " ".join("314159265358")}]
    ids = tokenizer.apply_chat_template(
        talk, add_generation_prompt=True, return_tensors="pt", return_dict=False
    )
    assert ids[0].tolist() == TASK.tokenizer.chat(talk)
    ours = load(name)(ids, Stack().ops())
    with torch.no_grad():
        assert (model(ids).logits - ours).abs().max() <= 1e-5


def test_same_generator_same_run_and_another_seed_another():
    (one, a), (two, b), (three, _) = train(seed=1), train(seed=1), train(seed=2)
    assert same_weights(one, two)
    assert [s.loss for s in a] == [s.loss for s in b]
    assert not same_weights(one, three)


def test_true_on_policy_training_never_sees_a_delta():
    _, steps = train(6, rollout_stack=EXACT, train_stack=EXACT)
    assert all(s.mismatch.max_abs == 0 for s in steps)
    _, ordinary = train(2)
    assert all(s.mismatch.max_abs > 0 for s in ordinary)


def test_the_first_minibatch_is_on_policy_where_the_trainer_recomputes():
    """Ratio 1, so nothing is clipped; with the INT4 rollout's logprobs as old, much is."""
    one = Recipe(minibatches=1)
    int4 = {"rollout_stack": PRESETS["int4_weights"], "recipe": one}
    _, (recomputed,) = train(1, **int4)
    _, (bypass,) = train(1, view=LossView("rollout"), **int4)
    assert recomputed.clip_fraction == 0
    assert bypass.clip_fraction > 0.005
    assert recomputed.mismatch == bypass.mismatch


@pytest.mark.parametrize("staleness", [0, 1, 2])
def test_staleness_is_counted_in_steps(staleness):
    """Step s samples from the weights after max(0, s - staleness) updates, by hand."""
    how = {"rollout_stack": EXACT, "train_stack": EXACT, "staleness": staleness}
    trained = load("sft")
    versions, steps = [deepcopy(trained)], []
    for step in rl(trained, TASK, generator=seeded(), steps=5, **how):
        steps.append(step)
        versions.append(deepcopy(trained))
    generator = seeded()
    for s, step in enumerate(steps):  # the same draws: prompts, noise, minibatches
        prompts = TASK.prompts(12, generator).repeat_interleave(8, 0)
        sampler = versions[max(0, s - staleness)]
        batch = generate(sampler, TASK, prompts, EXACT, generator)
        torch.randperm(96, generator=generator)
        with torch.no_grad():
            logp = score(versions[s], batch.prompt, batch.response, EXACT).logp
        assert compare(batch.logp_rollout, logp, batch.mask).k3 == step.mismatch.k3
        assert (step.mismatch.k3 > 0) == (staleness > 0 and s > 0)


def test_a_correction_reaches_the_loss():
    int4 = {"rollout_stack": PRESETS["int4_weights"]}
    plain, steps = train(1, **int4)
    masked, kept = train(1, correction=Correction("token", "mask", 0.9, 1.1), **int4)
    weighted, _ = train(1, correction=Correction("sequence", "truncate"), **int4)
    assert steps[0].kept == 1
    assert 0.5 < kept[0].kept < 1
    assert not same_weights(plain, masked)
    assert not same_weights(plain, weighted)


def test_with_the_rollout_as_anchor_nothing_is_weighted_twice():
    """A mask still drops tokens; a truncated weight is refused."""
    how = {"rollout_stack": PRESETS["int4_weights"], "view": LossView("rollout")}
    band = Correction("token", "mask", 0.9, 1.1)
    _, (step,) = train(1, correction=band, **how)
    assert 0.5 < step.kept < 1
    with pytest.raises(ValueError, match="would count old/rollout twice"):
        train(1, correction=Correction("token", "truncate"), **how)


def test_the_clip_is_what_hurts_where_old_logprobs_are_the_rollouts():
    """Same anchor, clip opened: the exact ratio is a sound importance weight."""
    how = {"rollout_stack": PRESETS["int4_weights"], "view": LossView("rollout")}
    _, (clipped,) = train(1, recipe=Recipe(minibatches=1), **how)
    wide = Recipe(minibatches=1, clip_low=1.0, clip_high=1e6)
    _, (opened,) = train(1, recipe=wide, **how)
    assert clipped.clip_fraction > 0 == opened.clip_fraction


def test_aggregation_reaches_the_loss():
    # when hot, lengths differ; many groups, so that some response is still right
    hot = {"rollout_stack": Stack(sampler=Sampler(1.6)), "recipe": Recipe(groups=64)}
    token, _ = train(1, **hot)
    sequence, _ = train(1, view=LossView(aggregation="sequence_mean"), **hot)
    assert not same_weights(token, sequence)


def test_a_new_model_leaves_the_global_generator_alone():
    before = torch.get_rng_state()
    load("sft")
    assert torch.equal(torch.get_rng_state(), before)


def test_times_are_split():
    _, steps = train(2)
    assert set(steps[0].seconds) == {"generate", "score", "backward", "bookkeeping"}
    assert all(t > 0 for t in steps[0].seconds.values())


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"staleness": -1}, "staleness must be at least 0, not -1"),
        ({"recipe": {"groups": 0}}, "groups must be at least 1, not 0"),
        ({"recipe": {"group_size": 1}}, "group_size must be at least 2, not 1"),
        ({"recipe": {"minibatches": 5}}, "96 sequences do not split into 5 equal"),
    ],
)
def test_bad_arguments_are_named(how, message):
    how = dict(how)
    recipe = how.pop("recipe", {})
    with pytest.raises(ValueError, match=message):
        train(1, recipe=replace(Recipe(), **recipe), **how)


@pytest.mark.science
def test_from_a_third_to_nine_tenths_on_five_seeds():
    """SFT and RL from nothing, five seeds; and what INT4 old logprobs do to each."""
    started, ended, ruined = [], [], []
    for seed in range(5):
        for model, _ in train_sft(seed):  # noqa: B007
            pass
        faulty = deepcopy(model)
        started.append(pass_rate(model, TASK, Stack(), seeded(50 + seed), 1024))
        for _ in rl(model, TASK, generator=seeded(60 + seed)):
            pass
        ended.append(pass_rate(model, TASK, Stack(), seeded(70 + seed), 1024))
        how = {"rollout_stack": PRESETS["int4_weights"], "view": LossView("rollout")}
        for _ in rl(faulty, TASK, generator=seeded(60 + seed), steps=60, **how):
            pass
        ruined.append(pass_rate(faulty, TASK, Stack(), seeded(70 + seed), 1024))
    assert 0.25 < mean(started) < 0.45, started
    assert mean(ended) >= 0.90, ended
    assert all(r < 0.5 * s for r, s in zip(ruined, started, strict=True)), ruined
