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
model reads and those that it is asked for, both [B, S], where S may be another length than
T, as of a text that was tokenised anew; -100 asks for none."""


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
    Teacher forcing reads what it is asked for; `mix` may put other tokens there. A
    `ValueError` names what is wrong with these: shape, an id outside the vocabulary, or
    nothing asked for at all, whose mean loss would be NaN.
    """
    optimizer = torch.optim.Adam(model.parameters(), lr, (0.9, 0.99), fused=True)
    for step in range(steps):
        warm = min(1, (step + 1) / 10)
        optimizer.param_groups[0]["lr"] = lr * warm * (1 - step / steps)
        prompts, responses = task.demonstrations(batch, generator)
        read, asked = responses, responses
        if mix:
            read, asked = mix(step / steps, prompts, responses)
            _check_mixed(step, responses, model.config.vocab_size, read, asked)
        logits, routes = response_pass(model, prompts, read, Stack())
        loss = F.cross_entropy(logits.flatten(0, 1), asked.flatten())
        optimizer.zero_grad()
        total = loss + router_losses(routes, balance)
        total.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        yield loss.item()


def _check_mixed(step: int, gold: Tensor, V: int, read: Tensor, asked: Tensor) -> None:
    """What a mixer made of `gold [B, T]`: both [B, S], ids or, asked for, -100."""
    wide = read.dim() == 2 and len(read) == len(gold) and read.shape[1] > 0
    shape = list(read.shape) if wide else f"[{len(gold)}, S] with S > 0"
    for name, x in (("read", read), ("asked", asked)):
        where = f"mix, step {step}: {name}"
        if not wide or x.shape != read.shape or x.dtype != gold.dtype:
            found = f"{x.dtype} {list(x.shape)}"
            raise ValueError(f"{where} must be {gold.dtype} {shape}, not {found}")
        none = (x == -100) & (name == "asked")
        for row in (~none & ((x < 0) | (x >= V))).any(1).nonzero().flatten().tolist():
            ids = x[row].tolist()
            raise ValueError(f"{where}[{row}] has an id outside 0..{V - 1}: {ids}")
    if (asked == -100).all():
        raise ValueError(f"mix, step {step}: asked is -100 everywhere, so no loss")


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
