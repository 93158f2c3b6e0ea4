"""Supervised warm start: a short loop."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

from .model import GPT
from .moe import Routes, balance_loss, router_kl
from .scoring import response_pass
from .stack import Stack
from .tasks import Task

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
