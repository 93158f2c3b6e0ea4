"""A first update with the engine's old logprobs, against the one with the right ones."""

from __future__ import annotations

import pytest
import torch

from tinyrl import objectives as O
from tinyrl.advantages import group_advantages
from tinyrl.checkpoints import load
from tinyrl.course.lessons.one_update import GROUP, answered, first_update, push
from tinyrl.moe import Router
from tinyrl.scoring import score
from tinyrl.stack import PRESETS, Stack, replace_at
from tinyrl.tasks import CumSum

POLICY, TASK = load("sft"), CumSum()
HOT = replace_at(Stack(), "sampler.temperature", 1.5)


def noise(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_equal_engines_make_the_same_update_and_a_temperature_turns_it() -> None:
    asked = TASK.prompts(6, noise())
    same = answered(POLICY, TASK, asked, Stack(), noise(1))
    assert same.d.abs().max() < 1e-4
    update = first_update(O.grpo, same)
    assert update[:3] == pytest.approx((0, 1, 1), abs=1e-4)
    hot = answered(POLICY, TASK, TASK.prompts(32, noise()), HOT, noise(1))
    turned = first_update(O.grpo, hot)
    assert turned.cosine < 0.5
    assert turned.stopped_good > 0.5
    still = turned.push == 0
    for side, share in ((hot.A > 0, turned.stopped_good), (hot.A < 0, turned.stopped_bad)):
        assert still[hot.mask & side[:, None]].double().mean() == pytest.approx(share)


def test_an_update_is_the_gradient_of_the_whole_batch() -> None:
    """Groups that push nothing are scored without a gradient: none is missing by that."""
    asked = TASK.prompts(24, noise())
    b = answered(POLICY, TASK, asked, PRESETS["int4_weights"], noise(1))
    A = group_advantages(TASK.reward(b.x.prompt, b.x.response, b.mask), GROUP)
    assert torch.equal(A, b.A)
    assert (A == 0).any()
    logp = score(POLICY, b.x.prompt, b.x.response, Stack()).logp
    torch.testing.assert_close(b.logp, logp)
    grads = []
    for old in (logp.detach(), b.x.logp_rollout):
        loss = O.dapo(logp, old, A, b.mask)
        found = torch.autograd.grad(loss, [*POLICY.parameters()], retain_graph=True)
        grads.append(torch.cat([g.flatten() for g in found]))
    right, wrong = grads
    update = first_update(O.dapo, b)
    assert update.cosine == pytest.approx(torch.cosine_similarity(right, wrong, 0).item())
    assert update.length == pytest.approx((wrong.norm() / right.norm()).item(), rel=1e-4)
    r = (logp - b.x.logp_rollout).exp()
    out = torch.where(A[:, None] > 0, r > 1.28, r < 0.8)[b.pushed]
    assert 0 < update.stopped == pytest.approx(out.double().mean().item())


def test_a_trainer_may_follow_the_engine_s_experts() -> None:
    moe, asked = load("moe"), TASK.prompts(4, noise())
    replay = Stack(router=Router(replay="rollout"))
    b = answered(moe, TASK, asked, Stack(), noise(1), replay)
    assert b.d.abs().max() < 1e-4
    assert first_update(O.gspo, b).cosine == pytest.approx(1, abs=1e-3)


def test_a_batch_that_pushes_nothing_is_refused() -> None:
    greedy = replace_at(Stack(), "sampler.top_k", 1)
    with pytest.raises(ValueError, match="each of 3 groups"):
        answered(POLICY, TASK, TASK.prompts(3, noise()), greedy, noise(1))
    for wrong in (TASK.prompts(3, noise())[:0], TASK.prompts(3, noise())[0]):
        with pytest.raises(ValueError, match=r"prompts must be \[n, P\]"):
            answered(POLICY, TASK, wrong, Stack(), noise(1))


def test_a_push_is_the_slope_of_the_gate() -> None:
    d = torch.tensor([-1.0, -0.1, 0.0, 0.1, 1.0], dtype=torch.float64)
    for A in (2.0, -2.0):
        assert push(O.reinforce, d, A).tolist() == pytest.approx([1] * 5)
        side = A > 0
        inside = [1, 1, 1, 1, 0] if side else [0, 1, 1, 1, 1]
        clipped = (d.exp() * torch.tensor(inside)).tolist()
        assert push(O.ppo, d, A).tolist() == pytest.approx(clipped)
        h = 1e-6  # SAPO's gate, by finite differences in log pi
        tau = 1.0 if side else 1.05
        gate = [4 / tau * torch.sigmoid(tau * ((d + e).exp() - 1)) for e in (h, -h)]
        slope = ((gate[0] - gate[1]) / (2 * h)).tolist()
        assert push(O.sapo, d, A).tolist() == pytest.approx(slope, rel=1e-6)
