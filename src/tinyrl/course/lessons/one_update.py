"""A first update whose old logprobs the engine reported, against one with the right ones.

Nothing was learned yet: with old logprobs that the trainer recomputed every ratio is 1.
With the engine's it is p_train / p_engine, and an objective takes mismatch for an update.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from tinyrl.advantages import group_advantages
from tinyrl.model import GPT
from tinyrl.rollout import Batch
from tinyrl.scoring import score
from tinyrl.stack import Stack
from tinyrl.tasks import Task
from tinyrl.trainer import generate

GROUP = 8
"""Answers to a prompt."""
Loss = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
"""Of logp, logp_old, advantages and mask: an objective with its options."""


@dataclass(frozen=True)
class Groups:
    """Answers of an engine, a group to a prompt, as its trainer sees them."""

    x: Batch
    reward: Tensor
    """`[B]`."""
    A: Tensor
    """GRPO's advantages, `[B]`."""
    logp: Tensor
    """The trainer's, `[B, T]`, with a gradient to `weights`."""
    weights: list[Tensor]

    @property
    def mask(self) -> Tensor:
        """Real tokens, `[B, T]`."""
        return self.x.mask

    @property
    def pushed(self) -> Tensor:
        """Tokens of answers whose advantage is not 0, `[B, T]`."""
        return self.mask & (self.A != 0)[:, None]

    @property
    def d(self) -> Tensor:
        """Log ratio before any update, trainer's minus engine's, `[B, T]`; 0 in padding."""
        return torch.where(self.mask, self.logp.detach() - self.x.logp_rollout, 0.0)


def answered(
    policy: GPT,
    task: Task,
    prompts: Tensor,
    engine: Stack,
    generator: torch.Generator,
    trainer: Stack | None = None,
) -> Groups:
    """`GROUP` answers to each of `prompts [n, P]`, scored under `trainer`.

    Groups whose answers all earned the same push nothing: theirs get no gradient, so that
    many may be asked where few are of use. Raises `ValueError` where none is.
    """
    if prompts.dim() != 2 or not len(prompts):
        raise ValueError(f"prompts must be [n, P], n from 1, got {list(prompts.shape)}")
    asked = prompts.repeat_interleave(GROUP, 0)
    x = generate(policy, task, asked, engine, generator)
    reward = task.reward(asked, x.response, x.mask)
    A = group_advantages(reward, GROUP)
    some, stack = A != 0, trainer or Stack()
    if not some.any():
        raise ValueError(f"in each of {len(prompts)} groups all answers earned the same")
    with torch.no_grad():
        whole = score(policy, asked, x.response, stack, x.routes).logp
    routes = None if x.routes is None else x.routes[some]
    logp = score(policy, asked[some], x.response[some], stack, routes).logp
    logp = whole.index_put((some,), logp)
    return Groups(x, reward, A, logp, [*policy.parameters()])


class Update(NamedTuple):
    """What an objective makes of the engine's logprobs as old ones."""

    stopped: float
    """Share of the tokens of answers with A != 0 that get no gradient."""
    cosine: float
    """Of the gradient on the weights with the one of the right old logprobs."""
    length: float
    """Of that gradient, in lengths of the right one."""
    stopped_good: float
    """`stopped` of the tokens of answers with A > 0 alone."""
    stopped_bad: float
    """The same of A < 0."""
    push: Tensor
    """The loss's derivative by the logprob of each token, `[B, T]`."""


def first_update(objective: Loss, groups: Groups) -> Update:
    """The first update by `objective` on what the engine reported."""
    by_logp, by_weights = [], []
    for old in (groups.logp.detach(), groups.x.logp_rollout):
        loss = objective(groups.logp, old, groups.A, groups.mask)
        (push,) = torch.autograd.grad(loss, groups.logp, retain_graph=True)
        g = torch.autograd.grad(groups.logp, groups.weights, push, retain_graph=True)
        by_logp.append(push)
        by_weights.append(torch.cat([w.flatten() for w in g]))
    (right, wrong), (_, push) = by_weights, by_logp
    cosine = torch.cosine_similarity(right, wrong, 0).item()
    length = (wrong.norm() / right.norm()).item()
    stopped, good, bad = (
        (push[groups.mask & side[:, None]] == 0).double().mean().item()
        for side in (groups.A != 0, groups.A > 0, groups.A < 0)
    )
    return Update(stopped, cosine, length, good, bad, push)


def push(objective: Loss, d: Tensor, A: float) -> Tensor:
    """How hard a token is pushed whose log ratio is d, for each of `d [N]`: `[N]`.

    Minus the derivative by its logprob of the loss of a response of this one token, over
    its advantage A: 1 is the push of REINFORCE, and below 0 would be the wrong way.
    """
    old = torch.full((len(d), 1), -3.0, dtype=d.dtype)
    logp = (old + d[:, None]).requires_grad_()
    loss = objective(logp, old, torch.full_like(d, A), torch.ones_like(old).bool())
    (g,) = torch.autograd.grad(loss, logp)
    return -g[:, 0] * len(d) / A
