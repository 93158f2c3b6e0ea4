"""RL as a short loop with its diagnostics beside the loss: `Trainer.step` is all of it.

A rollout stack samples with some version of the weights, a training stack scores the same
tokens with the newest, and what lies between the two is measured at every step.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from copy import deepcopy
from functools import partial

import torch
from torch import Tensor

from .advantages import group_advantages
from .correction import Correction
from .critic import Critic, Listener, ValueHead, ppo_advantages, value_loss
from .experience import collect, generate, pass_rate
from .logprobs import masked_mean
from .metrics import compare
from .model import GPT
from .objectives import LossView, Objective, grpo
from .recipe import Recipe
from .routing import compare_routes
from .scoring import response_pass, score
from .sft import Mixer, router_losses, sft
from .stack import Stack
from .steps import Clock, Data, Step, Update, mean
from .tasks import Task

__all__ = [  # all of training can be had from here: sft, recipe, experience lie below
    "Mixer",
    "Recipe",
    "Step",
    "Trainer",
    "generate",
    "pass_rate",
    "rl",
    "router_losses",
    "sft",
]


def rl(
    model: GPT,
    task: Task,
    *,
    generator: torch.Generator,
    steps: int = 135,
    rollout_stack: Stack | None = None,
    train_stack: Stack | None = None,
    view: LossView | None = None,
    objective: Objective | None = None,
    correction: Correction | None = None,
    staleness: int = 0,
    recipe: Recipe | None = None,
    critic: Critic | None = None,
) -> Iterator[Step]:
    """Train `model` in place; yields a `Step` after each.

    `objective` None is GRPO (arXiv 2402.03300) as `view` and `recipe` say: with the mean
    over tokens of DAPO (arXiv 2503.14476) and PPO's clip. Any other brings its own clip and
    average, `partial(gspo, eps_low=3e-4)`. With a `critic`, advantages are PPO's.

    Rollouts come from the weights of `staleness` steps ago under `rollout_stack`; the loss
    is computed under `train_stack`. `view.anchor` says whose probability is the old one in
    the ratio: recomputed by the trainer, or as the rollout reported it. `correction`
    weighs or masks tokens by (trainer's old) / (rollout's) probability; with the rollout as
    anchor the ratio holds that factor already, so only the mask is taken.
    `train_stack.router` says whose experts the trainer of a mixture follows, and
    `train_stack.sampler.replay` whose cut of the vocabulary.
    """
    trainer = Trainer(
        model,
        task,
        generator=generator,
        rollout_stack=rollout_stack,
        train_stack=train_stack,
        view=view,
        objective=objective,
        correction=correction,
        staleness=staleness,
        recipe=recipe,
        critic=critic,
    )
    return (trainer.step() for _ in range(steps))


class Trainer:
    """A policy in training, and all that its next step depends on; arguments: see `rl`."""

    def __init__(
        self,
        model: GPT,
        task: Task,
        *,
        generator: torch.Generator,
        rollout_stack: Stack | None = None,
        train_stack: Stack | None = None,
        view: LossView | None = None,
        objective: Objective | None = None,
        correction: Correction | None = None,
        staleness: int = 0,
        recipe: Recipe | None = None,
        critic: Critic | None = None,
    ) -> None:
        self.model, self.task, self.generator = model, task, generator
        self.rollout_stack = rollout_stack or Stack()
        self.train_stack = train_stack or Stack()
        self.view = view or LossView()
        self.correction = correction or Correction()
        self.recipe = recipe or Recipe()
        self.critic = critic
        _check(self.view, objective, self.correction, staleness, self.recipe, critic)
        self.objective: Objective = objective or partial(
            grpo,
            eps_low=self.recipe.clip_low,
            eps_high=self.recipe.clip_high,
            aggregation=self.view.aggregation,
        )
        self.sampler, self.head = deepcopy(model), ValueHead(model.config.hidden)
        learning: list[tuple[torch.nn.Module, float]] = [(model, self.recipe.lr)]
        if critic:
            learning.append((self.head, critic.lr))
        self.rates = [lr for _, lr in learning]
        groups = [{"params": list(part.parameters())} for part, _ in learning]
        self.optimizer = torch.optim.Adam(groups, betas=(0.9, 0.99), fused=True)
        self.versions = deque([weights_of(model)], maxlen=staleness + 1)
        self.done = 0

    def step(self) -> Step:
        """Sample, score, weigh, update."""
        recipe, clock = self.recipe, Clock()

        # the rollout engine samples, with the weights that it has
        self.sampler.load_state_dict(self.versions[0])
        batch, reward, earned, used = collect(
            self.sampler, self.task, self.rollout_stack, self.generator, recipe
        )
        clock.lap("generate")

        # the trainer scores the same tokens, with the newest weights
        ops = Listener(self.train_stack)
        with torch.no_grad():
            old = score(
                self.model,
                batch.prompt,
                batch.response,
                self.train_stack,
                batch.routes,
                kept=batch.kept,
                ops=ops,
            )
            values = self.head(ops.hidden)
        clock.lap("score")

        # what lies between the two policies, and what is done about it
        mismatch = compare(
            batch.logp_rollout,
            old.logp,
            batch.mask,
            clip=recipe.clip_high,
            top1_rollout=batch.top1_rollout,
            top1_train=old.top1,
        )
        weight, kept = self.correction.apply(old.logp, batch.logp_rollout, batch.mask)
        logp_old = old.logp
        if self.view.anchor == "rollout":  # the ratio is new/rollout: it holds the weight
            logp_old, weight = batch.logp_rollout, torch.ones_like(weight)

        # who did better than expected: than the group, or than the critic thought
        if self.critic:
            advantages, targets = ppo_advantages(earned, values, batch.mask, self.critic)
        else:
            advantages = group_advantages(earned, recipe.group_size, std=recipe.std)
            targets = values
        data = Data(batch, old.routes, logp_old, advantages, weight, kept, values, targets)
        clock.lap("bookkeeping")

        # the policy moves, minibatch by minibatch
        for group, lr in zip(self.optimizer.param_groups, self.rates, strict=True):
            group["lr"] = lr * min(1, (self.done + 1) / recipe.warmup)
        updates = []
        for rows in self._minibatches(used):
            updates.append(self._update(data.at(rows), clock))
        self.versions.append(weights_of(self.model))
        self.done += 1

        seen = mean(updates)
        return Step(
            step=self.done - 1,
            reward=reward.mean().item(),
            mismatch=mismatch,
            loss=seen.loss,
            grad_norm=seen.grad_norm,
            clip_fraction=seen.clip_fraction,
            entropy=old.entropy[batch.mask].mean().item(),
            kept=(kept.sum() / batch.mask.sum()).item(),
            seconds=clock.laps,
            routes=None if old.routes is None else compare_routes(batch, old),
            length=batch.mask.sum(1).double().mean().item(),
            used=used.double().mean().item(),
            value_loss=seen.value_loss if self.critic else None,
        )

    def _minibatches(self, used: Tensor) -> tuple[Tensor, ...]:
        """The rows that are `used`, shuffled and dealt out; nothing if there are none."""
        rows = used.nonzero().flatten()
        order = torch.randperm(len(rows), generator=self.generator)
        return rows[order].chunk(self.recipe.minibatches) if len(rows) else ()

    def _update(self, data: Data, clock: Clock) -> Update:
        """One step of the optimizer on these sequences."""
        batch, recipe, ops = data.batch, self.recipe, Listener(self.train_stack)
        logits, routes = response_pass(
            self.model,
            batch.prompt,
            batch.response,
            self.train_stack,
            batch.routes,
            data.routes_old,
            ops,
        )
        logp = self.train_stack.reported(logits, batch.response, batch.prompt, batch.kept)
        logp.retain_grad()
        loss = self.objective(
            logp,
            data.logp_old,
            data.advantages,
            data.kept,
            weight=data.weight,
            counted=self.correction.counted(batch.mask),
        )
        loss = loss + router_losses(
            routes, recipe.balance, recipe.consistency, batch.routes, batch.read
        )
        total, missed = loss, torch.zeros(())
        if self.critic:
            values = self.head(ops.hidden)
            missed = value_loss(
                values, data.values_old, data.targets, batch.mask, self.critic.clip
            )
            total = loss + self.critic.coefficient * missed
        self.optimizer.zero_grad()
        total.backward()  # type: ignore[no-untyped-call]
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), recipe.max_grad_norm)
        self.optimizer.step()
        clock.lap("backward")
        clipped = _stopped(logp.grad, data.advantages, data.kept)
        seen = Update(loss.item(), norm.item(), clipped, missed.item())
        clock.lap("bookkeeping")
        return seen


def _check(
    view: LossView,
    objective: Objective | None,
    correction: Correction,
    staleness: int,
    recipe: Recipe,
    critic: Critic | None,
) -> None:
    """Refuse what would silently do something else than it says."""
    if isinstance(staleness, bool) or not isinstance(staleness, int):
        raise ValueError(f"staleness must be a whole number of steps, not {staleness!r}")
    if staleness < 0:
        raise ValueError(f"staleness must be at least 0, not {staleness}")
    if view.anchor == "rollout" and _truncates(correction):
        raise ValueError(
            "with anchor 'rollout' the ratio is already new/rollout: a truncated weight "
            "would count old/rollout twice. Use anchor 'recompute', or no correction"
        )
    if critic and recipe.sampling != "all":
        raise ValueError(
            f"sampling {recipe.sampling!r} leaves out groups of equal rewards: they have "
            "no group advantage, but a critic's. Use sampling 'all' with a critic"
        )
    asked = view.aggregation, recipe.clip_low, recipe.clip_high
    if objective and asked != (LossView.aggregation, Recipe.clip_low, Recipe.clip_high):
        raise ValueError(
            f"aggregation and clip {asked} are those of the default objective; yours "
            "brings its own: partial(objective, eps_low=..., aggregation=...)"
        )


def _truncates(correction: Correction | None) -> bool:
    if correction is None:
        return False
    return correction.operation == "truncate" or _truncates(correction.also)


def _stopped(grad: Tensor | None, advantages: Tensor, kept: Tensor) -> float:
    """The share of kept tokens that were to be pushed, and got no gradient."""
    A = advantages[:, None] if advantages.dim() == 1 else advantages
    still = (grad == 0) & kept
    low, high = (masked_mean((still & x).double(), kept).item() for x in (A < 0, A > 0))
    return low + high


def weights_of(module: torch.nn.Module) -> dict[str, Tensor]:
    """Copies of a module's parameters, by name."""
    return {name: p.detach().clone() for name, p in module.state_dict().items()}
