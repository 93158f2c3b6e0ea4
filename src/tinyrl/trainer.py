"""Supervised warm start, then RL: two short loops with their diagnostics beside the loss.

`rl` is the picture of the course: a rollout stack samples with some version of the
weights, a training stack scores the same tokens with the newest, and what lies between
the two is measured at every step.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor

from .advantages import group_advantages
from .correction import Correction
from .metrics import Mismatch, compare
from .model import GPT
from .moe import Routes, balance_loss, router_kl
from .objectives import LossView, diagnostics, grpo
from .rollout import Batch, rollout
from .routing import RouteMismatch, compare_routes
from .scoring import response_pass, score
from .stack import Stack
from .tasks import Task


def generate(
    model: GPT, task: Task, prompts: Tensor, stack: Stack, generator: torch.Generator
) -> Batch:
    """A rollout with the task's end, padding and length."""
    tok = task.tokenizer
    return rollout(
        model,
        prompts,
        stack,
        generator,
        max_new=task.max_new,
        eos_id=tok.eos_id,
        pad_id=tok.pad_id,
    )


def pass_rate(
    model: GPT, task: Task, stack: Stack, generator: torch.Generator, n: int = 256
) -> float:
    """Share of `n` fresh prompts that are answered rightly when sampling under `stack`."""
    batch = generate(model, task, task.prompts(n, generator), stack, generator)
    return float(task.reward(batch.prompt, batch.response, batch.mask).mean())


Mixer = Callable[[float, Tensor, Tensor], tuple[Tensor, Tensor]]
"""(progress 0 .. 1, prompts [B, P], demonstrated responses [B, T]) -> the tokens that the
model reads and those that it is asked for, both [B, T]; -100 asks for none."""


def sft(
    model: GPT,
    task: Task,
    *,
    generator: torch.Generator,
    steps: int = 250,
    batch: int = 128,
    lr: float = 4e-3,
    balance: float = 0.0,
    mix: Mixer | None = None,
) -> Iterator[float]:
    """Learn from the task's demonstrations; yields the loss (nats a token) of each step.

    The demonstrations are sloppy on purpose: the skill is there afterwards, and RL has
    something left to do. `balance` times `balance_loss` is added for a mixture of experts.
    Teacher forcing reads what it is asked for; `mix` may put other tokens there.
    """
    optimizer = torch.optim.Adam(model.parameters(), lr, (0.9, 0.99), fused=True)
    for step in range(steps):
        warm = min(1, (step + 1) / 10)
        optimizer.param_groups[0]["lr"] = lr * warm * (1 - step / steps)
        prompts, responses = task.demonstrations(batch, generator)
        read, asked = mix(step / steps, prompts, responses) if mix else (responses,) * 2
        logits, routes = response_pass(model, prompts, read, Stack())
        loss = F.cross_entropy(logits.flatten(0, 1), asked.flatten())
        optimizer.zero_grad()
        total = loss + router_losses(routes, balance)
        total.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        yield loss.item()


def router_losses(
    routes: Routes | None,
    balance: float,
    consistency: float = 0.0,
    rollout: Routes | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """What is added to the loss of a mixture of experts: each weight times its loss.

    `mask [B, S]` says which of the tokens read count. A dense model takes no weight.
    """
    total = torch.zeros(())
    if (balance or consistency) and routes is None:
        raise ValueError("balance and consistency are for experts, but the model is dense")
    if balance and routes is not None:
        total = total + balance * balance_loss(routes, mask)
    if consistency and routes is not None and rollout is not None:
        total = total + consistency * router_kl(routes, rollout, mask)
    return total


@dataclass(frozen=True)
class Recipe:
    """Sizes and rates of an RL run. The defaults learn the course's task from a third."""

    groups: int = 12
    group_size: int = 8
    minibatches: int = 2
    lr: float = 5e-4
    warmup: int = 10
    max_grad_norm: float = 1.0
    clip_low: float = 0.2
    clip_high: float = 0.2
    balance: float = 0.0
    """Weight of `moe.balance_loss`, for a mixture of experts."""
    consistency: float = 0.0
    """Weight of `moe.router_kl`: the trainer's routers to the rollout's recorded ones."""

    def __post_init__(self) -> None:
        for name, least in (("groups", 1), ("group_size", 2), ("minibatches", 1)):
            value = getattr(self, name)
            if value < least:
                raise ValueError(f"{name} must be at least {least}, not {value}")
        for name in ("balance", "consistency"):
            if not 0 <= getattr(self, name) < torch.inf:
                raise ValueError(f"{name} must be 0 or more, not {getattr(self, name)}")
        if self.groups * self.group_size % self.minibatches:
            raise ValueError(
                f"{self.groups * self.group_size} sequences do not split into "
                f"{self.minibatches} equal minibatches"
            )


@dataclass(frozen=True)
class Step:
    """What one RL step saw. Means over its minibatches where there are several."""

    step: int
    reward: float
    """Mean reward of the sampled responses: the rollout policy's, not the trainer's."""
    mismatch: Mismatch
    """Rollout against trainer, before any update of this step."""
    loss: float
    grad_norm: float
    clip_fraction: float
    entropy: float
    """Of the training stack's next-token distributions, nats a token."""
    kept: float
    """Share of tokens that the correction kept."""
    seconds: dict[str, float] = field(repr=False)
    """Wall time of generate, score, backward (with its forward) and bookkeeping."""
    routes: RouteMismatch | None = None
    """The same of a mixture's routes; None for a dense model."""


def rl(
    model: GPT,
    task: Task,
    *,
    generator: torch.Generator,
    steps: int = 135,
    rollout_stack: Stack | None = None,
    train_stack: Stack | None = None,
    view: LossView | None = None,
    correction: Correction | None = None,
    staleness: int = 0,
    recipe: Recipe | None = None,
) -> Iterator[Step]:
    """GRPO (arXiv 2402.03300) on `model` in place; yields a `Step` after each update.

    By default with the mean over tokens of DAPO (arXiv 2503.14476), see `LossView`.

    Rollouts come from the weights of `staleness` steps ago under `rollout_stack`; the loss
    is computed under `train_stack`. `view.anchor` says whose probability is the old one in
    the ratio: recomputed by the trainer, or as the rollout reported it. `correction`
    weighs or masks tokens by (trainer's old) / (rollout's) probability; with the rollout as
    anchor the ratio holds that factor already, so only the mask is taken.
    `train_stack.router` says whose experts the trainer of a mixture follows, and
    `train_stack.sampler.replay` whose cut of the vocabulary.
    """
    rollout_stack, train_stack = rollout_stack or Stack(), train_stack or Stack()
    view, correction = view or LossView(), correction or Correction()
    recipe = recipe or Recipe()
    if staleness < 0:
        raise ValueError(f"staleness must be at least 0, not {staleness}")
    if view.anchor == "rollout" and correction.operation == "truncate":
        raise ValueError(
            "with anchor 'rollout' the ratio is already new/rollout: a truncated weight "
            "would count old/rollout twice. Use anchor 'recompute', or no correction"
        )
    optimizer = torch.optim.Adam(model.parameters(), recipe.lr, (0.9, 0.99), fused=True)
    sampler = deepcopy(model)
    versions = deque([_weights(model)], maxlen=staleness + 1)
    for step in range(steps):
        clock = Clock()
        prompts = task.prompts(recipe.groups, generator)
        prompts = prompts.repeat_interleave(recipe.group_size, 0)
        sampler.load_state_dict(versions[0])
        batch = generate(sampler, task, prompts, rollout_stack, generator)
        clock.lap("generate")
        with torch.no_grad():
            how = model, batch.prompt, batch.response, train_stack
            old = score(*how, batch.routes, kept=batch.kept)
        clock.lap("score")
        reward = task.reward(batch.prompt, batch.response, batch.mask)
        mismatch = compare(
            batch.logp_rollout,
            old.logp,
            batch.mask,
            clip=recipe.clip_high,
            top1_rollout=batch.top1_rollout,
            top1_train=old.top1,
        )
        weight, kept = correction.apply(old.logp, batch.logp_rollout, batch.mask)
        if view.anchor == "rollout":
            weight = torch.ones_like(weight)
        advantages = group_advantages(reward, recipe.group_size)
        logp_old = old.logp if view.anchor == "recompute" else batch.logp_rollout
        clock.lap("bookkeeping")
        optimizer.param_groups[0]["lr"] = recipe.lr * min(1, (step + 1) / recipe.warmup)
        seen = []
        for rows in torch.randperm(len(reward), generator=generator).chunk(
            recipe.minibatches
        ):
            ids = batch.response[rows]
            theirs, own = (r if r is None else r[rows] for r in (batch.routes, old.routes))
            cut = None if batch.kept is None else batch.kept[rows]
            logits, routes = response_pass(
                model, batch.prompt[rows], ids, train_stack, theirs, own
            )
            logp = train_stack.reported(logits, ids, batch.prompt[rows], cut)
            arrays = (logp, logp_old[rows], advantages[rows], kept[rows])
            loss = grpo(
                *arrays,
                eps_low=recipe.clip_low,
                eps_high=recipe.clip_high,
                weight=weight[rows],
                aggregation=view.aggregation,
            )
            loss = loss + router_losses(
                routes, recipe.balance, recipe.consistency, theirs, batch.read[rows]
            )
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), recipe.max_grad_norm)
            optimizer.step()
            clock.lap("backward")
            health = diagnostics(
                *arrays, eps_low=recipe.clip_low, eps_high=recipe.clip_high
            )
            seen.append((loss.item(), norm.item(), health["clip_fraction"]))
            clock.lap("bookkeeping")
        versions.append(_weights(model))
        loss_, norm_, clipped = (sum(x) / len(seen) for x in zip(*seen, strict=True))
        yield Step(
            step=step,
            reward=reward.mean().item(),
            mismatch=mismatch,
            loss=loss_,
            grad_norm=norm_,
            clip_fraction=clipped,
            entropy=old.entropy[batch.mask].mean().item(),
            kept=(kept.sum() / batch.mask.sum()).item(),
            seconds=clock.laps,
            routes=None if old.routes is None else compare_routes(batch, old),
        )


class Clock:
    """Wall time, split by what it was spent on."""

    def __init__(self) -> None:
        self.laps: dict[str, float] = {}
        self._last = time.perf_counter()

    def lap(self, name: str) -> None:
        """Book the time since the last lap under `name`."""
        now = time.perf_counter()
        self.laps[name] = self.laps.get(name, 0.0) + now - self._last
        self._last = now


def _weights(model: GPT) -> dict[str, Tensor]:
    return {name: p.detach().clone() for name, p in model.state_dict().items()}
