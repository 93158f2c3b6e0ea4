"""What following the routes of another pass does: R3, R2, gates, gradients, errors."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from mixtures import BF16, EXACT, INT4, TASK, P, sample, scored, seeded
from tinyrl.checkpoints import load
from tinyrl.kernels import Kernels
from tinyrl.metrics import compare
from tinyrl.model import GPT
from tinyrl.moe import Router, Routes
from tinyrl.routing import compare_routes, flips
from tinyrl.scoring import response_pass, score
from tinyrl.stack import Stack, replace_at
from tinyrl.trainer import Recipe, rl

R2, R3 = Router("train"), Router("rollout")
FOLLOW = Stack(router=R3)


@pytest.mark.parametrize("rollout", [BF16, INT4], ids=["bf16", "int4"])
def test_r3_follows_the_rollout_with_gates_of_its_own(rollout):
    batch = sample(rollout, B=256)
    free, told = scored(batch, Stack()), scored(batch, FOLLOW)
    at = told.routes.asked
    assert torch.equal(told.routes.experts[at], batch.routes.experts[at])
    assert flips(free.routes.experts, batch.routes.experts)[at].any()
    wanted = torch.softmax(told.routes.logits.gather(-1, told.routes.experts.clamp(0)), -1)
    torch.testing.assert_close(told.routes.gates[at], wanted[at], rtol=0, atol=1e-6)
    assert not torch.equal(told.routes.gates[at], batch.routes.gates[at])


def test_r3_changes_only_what_comes_after_a_flip():
    batch = sample(BF16, B=256)
    free, told = scored(batch, Stack()), scored(batch, FOLLOW)
    differ = flips(free.routes.experts, batch.routes.experts) & told.routes.asked
    after = differ.any(-1).cumsum(1)[:, P - 1 :] > 0
    change = (free.logp - told.logp).abs()
    assert change[~after & batch.mask].max() < 5e-5
    assert change[after & batch.mask].max() > 1e-3


def test_replay_of_ones_own_routes_changes_nothing():
    batch = sample(INT4)
    with torch.no_grad():
        free = score(load("moe"), batch.prompt, batch.response, EXACT)
        told = score(
            load("moe"),
            batch.prompt,
            batch.response,
            replace(EXACT, router=R2),
            old_routes=free.routes,
        )
    assert torch.equal(free.logp, told.logp)


@pytest.mark.parametrize("B", [1, 7, 96])
@pytest.mark.parametrize("router", [Router(), R3], ids=["own", "replay"])
@pytest.mark.parametrize("low", [False, True])
def test_true_on_policy_is_exact(B, router, low):
    stack = replace(EXACT, router=router)
    if low:
        stack = replace(stack, numerics=BF16.numerics)
    for seed in range(3):
        batch = sample(stack, B, seed)
        told = scored(batch, stack)
        assert torch.equal(told.logp[batch.mask], batch.logp_rollout[batch.mask])
        at = told.routes.asked
        assert torch.equal(told.routes.experts[at], batch.routes.experts[at])


def test_the_gradient_under_replay_is_that_of_fixed_routes():
    """The directional derivative, by differences in float64; it reaches the router."""
    model = load("moe").double()
    batch = sample(INT4, B=8)
    step = {n: torch.randn(p.shape, generator=seeded(1)) for n, p in named(model)}

    def loss() -> Tensor:
        logits, _ = response_pass(model, batch.prompt, batch.response, FOLLOW, batch.routes)
        return torch.log_softmax(logits, -1)[batch.mask].square().mean()

    loss().backward()
    slope = sum((p.grad * step[n]).sum() for n, p in named(model))
    assert all(p.grad.abs().max() > 0 for n, p in named(model) if "mlp.gate" in n)
    values = []
    for h in (1e-5, -1e-5):
        with torch.no_grad():
            for n, p in named(model):
                p.add_(h * step[n])
            values.append(loss().item())
            for n, p in named(model):
                p.sub_(h * step[n])
    assert slope.item() == pytest.approx((values[0] - values[1]) / 2e-5, rel=1e-4)


def named(model: GPT) -> list[tuple[str, Tensor]]:
    return list(model.named_parameters())


def test_r2_keeps_the_trainers_own_routes_of_the_old_policy():
    """The scoring pass chooses; a pass with later weights follows it, not the rollout."""
    batch, stack = sample(INT4), Stack(router=R2)
    old = scored(batch, stack)
    assert torch.equal(old.logp, scored(batch, Stack()).logp)
    later = load("moe")
    with torch.no_grad():
        for n, p in named(later):
            p.add_(0.02 * torch.randn(p.shape, generator=seeded(len(n))))
        told = score(
            later, batch.prompt, batch.response, stack, batch.routes, old.routes
        ).routes
    at = told.asked
    assert torch.equal(told.experts[at], old.routes.experts[at])
    assert flips(told.own, told.experts)[at].any()
    assert flips(told.experts, batch.routes.experts)[at].any()


def test_a_parallel_split_can_flip_experts():
    """Partial sums move the hidden state that the router reads: nothing else differs."""
    split = Stack(kernels=Kernels("naive", "fixed", tensor_parallel=2))
    split = replace_at(split, "numerics.partial", "bf16")
    batch = sample(split, B=256)
    plain = scored(batch, EXACT)
    assert compare_routes(batch, plain).flipped_tokens > 0
    told = scored(batch, replace(EXACT, router=R3))
    assert compare_routes(batch, told).flipped_tokens == 0
    same = scored(batch, split)
    assert compare_routes(batch, same).flipped_tokens == 0


# ---- training


def train(router: Router = Router(), steps: int = 3, **how):  # noqa: B008
    how = {"rollout_stack": INT4, "train_stack": Stack(router=router)} | how
    model = load("moe")
    return model, list(rl(model, TASK, generator=seeded(), steps=steps, **how))


def test_rl_trains_with_and_without_replay():
    (own, a), (r3, b), (r2, c) = (train(r) for r in (Router(), R3, R2))
    assert all(s.routes.flipped_tokens > 0 for s in (*a, *c))
    assert all(s.routes.flipped_tokens == 0 for s in b)
    assert a[0].mismatch == c[0].mismatch != b[0].mismatch
    weights = [m.layers[0].mlp.gate.weight for m in (own, r3, r2)]
    assert not torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])
    assert train(R3)[1][-1].loss == b[-1].loss


def test_r2_matters_only_after_an_update():
    """With one minibatch the update's weights are the old policy's, and so are routes."""
    one = Recipe(minibatches=1)
    (own, _), (r2, _) = train(recipe=one, steps=1), train(R2, recipe=one, steps=1)
    for x, y in zip(own.parameters(), r2.parameters(), strict=True):
        assert torch.equal(x, y)


@pytest.mark.parametrize("router", [Router(), R3], ids=["own", "replay"])
def test_true_on_policy_training_never_sees_a_delta(router):
    stack = replace(EXACT, router=router)
    _, steps = train(rollout_stack=stack, train_stack=stack)
    assert all(s.mismatch.max_abs == 0 for s in steps)
    assert all(s.routes.flipped_tokens == 0 for s in steps)


@pytest.mark.parametrize("extra", [{"balance": 1.0}, {"consistency": 1.0}])
def test_router_losses_reach_the_router(extra):
    plain, _ = train(steps=1)
    weighted, _ = train(steps=1, recipe=Recipe(**extra))
    assert not torch.equal(
        plain.layers[0].mlp.gate.weight, weighted.layers[0].mlp.gate.weight
    )


# ---- what cannot be


def other(routes: Routes, **how: Tensor) -> Routes:
    return replace(routes, **how)


def test_what_cannot_be_followed_is_told():
    batch, model = sample(Stack(), B=4), load("moe")
    how = (batch.prompt, batch.response, FOLLOW)
    with pytest.raises(ValueError, match="is 'rollout', but no routes were given"):
        score(model, *how)
    with pytest.raises(ValueError, match=r"routes must be \[B, S, layers, k\] = \[4, 28"):
        score(model, *how, batch.routes[:, :-1])
    with pytest.raises(ValueError, match=r"= \[4, .*got \[3, "):
        score(model, *how, batch.routes[:3])
    experts = batch.routes.experts
    with pytest.raises(ValueError, match=r"an expert outside 0..7 where one is due"):
        score(model, *how, other(batch.routes, experts=experts + 7))
    unasked = experts.clone()
    unasked[1, P + 2] = -1
    with pytest.raises(ValueError, match=r"an expert outside 0..7 where one is due"):
        score(model, *how, other(batch.routes, experts=unasked))


@pytest.mark.parametrize("router", [R2, R3], ids=["train", "rollout"])
def test_a_dense_model_follows_nobody(router):
    batch = sample(Stack(), B=4, name="sft")
    with pytest.raises(ValueError, match=r"router.replay is .*but the model is dense"):
        scored(batch, Stack(router=router), load("sft"))
    ids = batch.prompt
    with pytest.raises(ValueError, match="routes to follow, but the model is dense"):
        load("sft").routed(ids, Stack().ops(), follow=sample(Stack(), B=4).routes)
    with pytest.raises(ValueError, match="for experts, but the model is dense"):
        next(rl(load("sft"), TASK, generator=seeded(), recipe=Recipe(balance=0.1)))


@pytest.mark.parametrize("name", ["balance", "consistency"])
def test_weights_of_losses_are_not_negative(name):
    with pytest.raises(ValueError, match=f"{name} must be 0 or more, not -1"):
        Recipe(**{name: -1.0})


def test_a_misspelt_replay_is_named():
    with pytest.raises(ValueError, match=r"replay must be one of .*not 'R3'"):
        Router("R3")


def test_replay_lowers_the_mismatch_of_tokens_that_had_flipped():
    """BF16 rollout, FP32 trainer, one model: seen 0.07 to 0.09 on three seeds."""
    batch = sample(BF16, B=512)
    free, told = scored(batch, Stack()), scored(batch, FOLLOW)
    flipped = flips(free.routes.experts[:, P - 1 :], batch.routes.experts[:, P - 1 :]).any(
        -1
    )
    at = batch.mask & flipped
    one, two = (
        compare(batch.logp_rollout[at][None], s.logp[at][None]).mean_abs
        for s in (free, told)
    )
    assert two < 0.7 * one
