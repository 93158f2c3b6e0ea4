"""What is added to the loss of a mixture of experts, and the loads that it acts on."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from mixtures import SHAPES, gpt, plain, random_ids, seeded
from tinyrl.kernels import Kernels, Numerics, Ops
from tinyrl.moe import Routes, balance_loss, expert_load, router_kl
from tinyrl.routing import flips
from tinyrl.scoring import response_pass
from tinyrl.stack import Stack
from tinyrl.tasks import CumSum
from tinyrl.trainer import sft


@pytest.mark.parametrize("masked", [False, True])
@SHAPES
def test_balance_loss_is_that_of_transformers_layer_by_layer(config, masked):
    from transformers.models.qwen3_moe import modeling_qwen3_moe as hf

    model, ids = gpt(config, seed=2), random_ids(6, 20)
    mask = torch.rand(ids.shape, generator=seeded(4)) < 0.7 if masked else None
    _, routes = model.routed(ids, plain())
    logits = routes.logits.flatten(0, 1)
    wanted = torch.stack(
        [
            hf.load_balancing_loss_func(
                (logits[:, layer],),
                config.experts,
                config.experts_per_token,
                None if mask is None else mask.long(),
            )
            for layer in range(config.layers)
        ]
    ).mean()
    loss = balance_loss(routes, mask)
    torch.testing.assert_close(loss, wanted, rtol=1e-5, atol=0)
    router = model.layers[0].mlp.gate.weight
    mine, its = (torch.autograd.grad(x, router, retain_graph=True) for x in (loss, wanted))
    torch.testing.assert_close(mine, its, rtol=1e-4, atol=1e-7)


def test_balance_loss_of_even_and_of_one_sided_routers():
    """k if all experts share alike, E if everything goes to the same k."""
    even = torch.eye(8).roll(1, 0) + torch.eye(8)  # each expert in two rows
    routes = chosen_from(even[None, :, None] * 1e-6)
    assert balance_loss(routes).item() == pytest.approx(2, rel=1e-5)
    one = torch.zeros(1, 8, 1, 8)
    one[..., :2] = 50.0
    assert balance_loss(chosen_from(one)).item() == pytest.approx(8, rel=1e-5)


def chosen_from(logits: Tensor, k: int = 2) -> Routes:
    top = logits.topk(k)
    return Routes(top.indices, torch.softmax(top.values, -1), logits)


def test_loads_are_counts_and_skip_whom_nobody_asked():
    model, ids = gpt(), random_ids(4, 12)
    _, routes = model.routed(ids, plain(), since=9)
    mask = torch.rand(4, 12, generator=seeded(0)) < 0.6
    assert routes.asked[:, :, 0].all()
    assert not routes.asked[:, :9, 1].any()
    for layer, load in enumerate(expert_load(routes, mask)):
        chosen = routes.experts[:, :, layer][mask & routes.asked[:, :, layer]]
        wanted = torch.bincount(chosen.flatten(), minlength=8) / chosen.numel()
        torch.testing.assert_close(load, wanted)


def test_router_kl_is_the_divergence_and_pulls_only_the_trainer():
    g = seeded(0)
    trainer, rollout = (
        chosen_from(torch.randn(3, 5, 2, 8, generator=g).requires_grad_()) for _ in range(2)
    )
    mask = torch.rand(3, 5, generator=g) < 0.7
    p, q = (
        torch.distributions.Categorical(logits=r.logits.double())
        for r in (rollout, trainer)
    )
    wanted = torch.distributions.kl_divergence(p, q)[mask].mean()
    loss = router_kl(trainer, rollout, mask)
    assert loss.item() == pytest.approx(wanted.item(), rel=1e-5)
    loss.backward()
    assert rollout.logits.grad is None
    assert not trainer.logits.grad[~mask].any()
    assert router_kl(trainer, trainer, mask).item() == 0


def test_the_penalty_makes_a_router_choose_as_the_other_did():
    """Gradient descent on it alone: the trainer's routers meet routes that flipped."""
    model, ids = gpt(), random_ids(32, 28)
    with torch.no_grad():
        ops = Ops(Kernels(), Numerics(router="int4"))
        _, theirs = model.routed(ids, ops)
    routers = [block.mlp.gate.weight for block in model.layers]
    optimizer, shares = torch.optim.Adam(routers, 1e-2), []
    for _ in range(30):
        _, mine = model.routed(ids, plain())
        shares.append(flips(mine.experts, theirs.experts).float().mean().item())
        optimizer.zero_grad()
        router_kl(mine, theirs).backward()
        optimizer.step()
    assert shares[-1] < 0.9 * shares[0]


def test_a_balance_loss_evens_out_what_sft_learns():
    """Routers that start one-sided: 30 steps with it, and 30 without."""
    task, ended = CumSum(), []
    for weight in (0.0, 0.3):
        model = gpt()
        for block in model.layers:  # two experts have almost all
            block.mlp.gate.weight.data[:2] *= 20
        for _ in sft(model, task, generator=seeded(0), steps=30, balance=weight):
            pass
        prompt, response = task.demonstrations(64, seeded(1))
        _, routes = response_pass(model, prompt, response, Stack())
        ended.append(balance_loss(routes).item())
    assert ended[1] < 0.8 * ended[0]
