"""PPO's value head: its targets, its clipped loss, and that it learns what it should."""

from __future__ import annotations

import math

import pytest
import torch

from tinyrl.checkpoints import load
from tinyrl.critic import Critic, Listener, ValueHead, ppo_advantages, value_loss
from tinyrl.experience import generate, pass_rate
from tinyrl.scoring import response_pass, score
from tinyrl.stack import PRESETS, Stack
from tinyrl.tasks import CumSum
from tinyrl.trainer import Recipe, Trainer, rl

TASK = CumSum()
MASK = torch.tensor([[True, True, True], [True, True, False]])


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def drawn(seed: int, B: int = 2, T: int = 3) -> torch.Tensor:
    return torch.randn(B, T, generator=seeded(seed), dtype=torch.float64)


@pytest.mark.parametrize(("gamma", "lam"), [(1.0, 1.0), (1.0, 0.0), (0.9, 0.7)])
def test_advantages_are_gae_whitened_and_targets_are_not(gamma: float, lam: float) -> None:
    """By the sum over temporal differences, for each token on its own."""
    V, R = drawn(1), torch.tensor([1.0, -0.5], dtype=torch.float64)
    raw = torch.zeros(2, 3, dtype=torch.float64)
    for b, n in enumerate((3, 2)):
        after = [*V[b, 1:n].tolist(), 0.0]
        delta = [
            (R[b].item() if t == n - 1 else 0.0) + gamma * after[t] - V[b, t].item()
            for t in range(n)
        ]
        for t in range(n):
            raw[b, t] = sum((gamma * lam) ** k * delta[t + k] for k in range(n - t))
    A, targets = ppo_advantages(R, V, MASK, Critic(gamma=gamma, lam=lam))
    torch.testing.assert_close(targets[MASK], (raw + V)[MASK])
    x = raw[MASK]
    expected = (x - x.mean()) / x.std(correction=0)
    torch.testing.assert_close(A[MASK], expected, atol=1e-6, rtol=1e-6)


def test_rewards_as_expected_push_nowhere() -> None:
    A, targets = ppo_advantages(torch.ones(2), torch.ones(2, 3), MASK, Critic())
    assert (A[MASK] == 0).all()
    assert (targets[MASK] == 1).all()


@pytest.mark.parametrize("clip", [0.1, 0.5, math.inf])
def test_the_value_loss_and_its_gradient_token_by_token(clip: float) -> None:
    old, target, mask = drawn(2, 6, 8), drawn(3, 6, 8), drawn(8, 6, 8) > -1
    V = (old + 0.4 * drawn(4, 6, 8)).requires_grad_()
    loss = value_loss(V, old, target, mask, clip)
    total, slope, n = 0.0, torch.zeros(6, 8, dtype=torch.float64), mask.sum().item()
    for b, t in mask.nonzero().tolist():
        v, o, R = (x[b, t].item() for x in (V, old, target))
        near = min(max(v, o - clip), o + clip)
        total += max((v - R) ** 2, (near - R) ** 2) / 2 / n
        free = (v - R) ** 2 > (near - R) ** 2 or near == v
        slope[b, t] = (v - R) / n if free else 0.0
    assert loss.item() == pytest.approx(total, rel=1e-12)
    loss.backward()
    torch.testing.assert_close(V.grad, slope)
    if clip == 0.1:
        assert (slope[mask] == 0).any()
        assert (slope[mask] != 0).any()
    if clip == math.inf:
        plain = ((V - target)[mask] ** 2).mean() / 2
        assert loss.item() == pytest.approx(plain.item())


def test_padding_may_hold_anything() -> None:
    V, old, target = drawn(5).requires_grad_(), drawn(6), drawn(7)
    plain = value_loss(V, old, target, MASK)
    dirty = [torch.where(MASK, x.detach(), x.new_tensor(y)) for x, y in
             ((V, math.nan), (old, math.inf), (target, -1e300))]  # fmt: skip
    dirty[0].requires_grad_()
    loss = value_loss(*dirty, MASK)
    assert loss.item() == plain.item()
    loss.backward()
    plain.backward()
    assert torch.equal(dirty[0].grad, V.grad)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"values": torch.tensor([[0.0, math.nan, 0.0]] * 2)},
         "values row 0, column 1 is not finite: nan"),
        ({"targets": torch.tensor([[0.0] * 3, [0.0, math.inf, 0.0]])},
         "targets row 1, column 1 is not finite: inf"),
        ({"values_old": torch.zeros(2, 4)}, "values and values_old differ in shape"),
        ({"mask": torch.ones(2, 4)}, r"mask has shape \[2, 4\]"),
        ({"clip": 0}, "clip must be above 0, not 0"),
    ],
)  # fmt: skip
def test_bad_values_are_named(change, message) -> None:
    good = {"values": drawn(1), "values_old": drawn(2), "targets": drawn(3), "mask": MASK}
    with pytest.raises(ValueError, match=message):
        value_loss(**good | change)


@pytest.mark.parametrize(
    ("field", "value"),
    [("lr", 0), ("clip", -1.0), ("coefficient", -0.1), ("gamma", 1.1), ("lam", -0.1)],
)
def test_a_bad_critic_is_named(field: str, value: float) -> None:
    with pytest.raises(ValueError, match=f"{field} must be .*, not {value}"):
        Critic(**{field: value})


@pytest.mark.parametrize("preset", ["fp32", "bf16", "true_on_policy"])
@pytest.mark.parametrize("name", ["sft", "moe"])
def test_what_is_heard_is_what_the_logits_are_made_of(name: str, preset: str) -> None:
    model, stack = load(name), PRESETS[preset]
    batch = generate(model, TASK, TASK.prompts(3, seeded()), Stack(), seeded())
    ids = model, batch.prompt, batch.response, stack
    ops = Listener(stack)
    with torch.no_grad():
        logits = response_pass(*ids, ops=ops)[0]
        assert torch.equal(logits, response_pass(*ids)[0])
        assert torch.equal(score(*ids).logp, score(*ids, ops=Listener(stack)).logp)
    assert ops.hidden.shape == (*batch.response.shape, model.config.hidden)
    made = stack.ops().head(ops.hidden, model.lm_head)
    assert (made - logits).abs().max() <= 1e-5


def test_the_head_starts_without_an_opinion_and_draws_nothing() -> None:
    before = torch.get_rng_state()
    head = ValueHead(32)
    assert torch.equal(torch.get_rng_state(), before)
    assert (head(torch.randn(2, 3, 32, generator=seeded())) == 0).all()


def test_own_learning_rates_and_one_warm_up() -> None:
    trainer = Trainer(
        load("sft"), TASK, generator=seeded(), critic=Critic(lr=0.05),
        recipe=Recipe(groups=2, lr=1e-3, warmup=4),
    )  # fmt: skip
    trainer.step()
    policy, head = trainer.optimizer.param_groups
    assert (policy["lr"], head["lr"]) == (1e-3 / 4, 0.05 / 4)
    assert {id(p) for p in head["params"]} == {id(p) for p in trainer.head.parameters()}
    # Adam's first steps are as long as its rate
    moved = trainer.head.bias.abs().item()
    assert 0.05 / 4 * 0.5 < moved < 0.05 / 4 * 2.1


def test_the_value_loss_reaches_the_trunk_by_its_coefficient() -> None:
    def after(coefficient: float) -> dict[str, torch.Tensor]:
        model, critic = load("sft"), Critic(coefficient=coefficient)
        how = {"generator": seeded(), "recipe": Recipe(groups=4), "critic": critic}
        assert next(iter(rl(model, TASK, **how))).value_loss > 0
        return dict(model.state_dict())

    none, some = after(0.0), after(1.0)
    assert not torch.equal(none["embed_tokens.weight"], some["embed_tokens.weight"])


def test_the_critic_comes_to_know_the_pass_rate_and_ppo_learns() -> None:
    """Seed 0, 40 steps: value of a prompt near the pass rate, which has risen by a half."""
    model = load("sft")
    before = pass_rate(model, TASK, Stack(), seeded(1), 512)
    trainer = Trainer(model, TASK, generator=seeded(), critic=Critic())
    for _ in range(40):
        trainer.step()
    after = pass_rate(model, TASK, Stack(), seeded(1), 512)
    assert after > 1.5 * before
    ops, stack = Listener(Stack()), Stack()
    batch = generate(model, TASK, TASK.prompts(512, seeded(2)), stack, seeded(2))
    with torch.no_grad():
        response_pass(model, batch.prompt, batch.response, stack, ops=ops)
        V = trainer.head(ops.hidden)
    R = TASK.reward(batch.prompt, batch.response, batch.mask)
    assert abs(V[:, 0].mean().item() - R.mean().item()) < 0.15
