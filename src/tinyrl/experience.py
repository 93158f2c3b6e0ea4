"""What one RL step learns from: prompts, sampled responses, and what they earned."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .advantages import informative, overlong_penalty
from .model import GPT
from .moe import Routes
from .recipe import Recipe
from .rollout import Batch, rollout
from .stack import Stack
from .tasks import Task

MAX_ROUNDS = 10
"""Rounds of prompts after which resampling trains on what it has found: verl's
`max_num_gen_batches` for DAPO. A policy that always or never succeeds would go on forever.
"""


def generate(
    model: GPT,
    task: Task,
    prompts: Tensor,
    stack: Stack,
    generator: torch.Generator,
    room: int = 0,
) -> Batch:
    """A rollout with the task's end, padding and length, which `room` tokens may exceed."""
    tok = task.tokenizer
    return rollout(
        model,
        prompts,
        stack,
        generator,
        max_new=task.max_new + room,
        eos_id=tok.eos_id,
        pad_id=tok.pad_id,
    )


def pass_rate(
    model: GPT, task: Task, stack: Stack, generator: torch.Generator, n: int = 256
) -> float:
    """Share of `n` fresh prompts that are answered rightly when sampling under `stack`."""
    batch = generate(model, task, task.prompts(n, generator), stack, generator)
    return float(task.reward(batch.prompt, batch.response, batch.mask).mean())


class Experience(NamedTuple):
    """What a step has sampled. The responses to a prompt stand one after the other."""

    batch: Batch
    reward: Tensor
    """The task's, `[B]`."""
    earned: Tensor
    """The same less the penalty for length, `[B]`: what advantages are made of."""
    used: Tensor
    """Boolean `[B]`: what is trained on; all of it without dynamic sampling."""


def collect(
    model: GPT, task: Task, stack: Stack, generator: torch.Generator, recipe: Recipe
) -> Experience:
    """Sample `recipe.groups` groups; with "resample", until so many are informative."""
    wanted, rounds = recipe.groups * recipe.group_size, []
    for _ in range(MAX_ROUNDS if recipe.sampling == "resample" else 1):
        prompts = task.prompts(recipe.groups, generator)
        prompts = prompts.repeat_interleave(recipe.group_size, 0)
        batch = generate(model, task, prompts, stack, generator, recipe.room)
        rounds.append(_judged(batch, task, recipe))
        if sum(int(found.used.sum()) for found in rounds) >= wanted:
            break
    batch = join([found.batch for found in rounds], task.tokenizer.pad_id)
    reward, earned, used = (torch.cat(x) for x in list(zip(*rounds, strict=True))[1:])
    # the last round may have found more than were missing
    return Experience(batch, reward, earned, used & (used.cumsum(0) <= wanted))


def _judged(batch: Batch, task: Task, recipe: Recipe) -> Experience:
    reward = earned = task.reward(batch.prompt, batch.response, batch.mask)
    if recipe.overlong:
        longest = task.max_new + recipe.room
        earned = reward + overlong_penalty(batch.mask.sum(1), longest, recipe.overlong)
    used = torch.ones_like(reward, dtype=torch.bool)
    if recipe.sampling != "all":  # by right and wrong, as the paper has it
        used = informative(reward, recipe.group_size)
        used = used.repeat_interleave(recipe.group_size)
    return Experience(batch, reward, earned, used)


def join(batches: list[Batch], pad_id: int) -> Batch:
    """These batches as one; prompts are equally long, shorter responses get padding."""
    if len(batches) == 1:
        return batches[0]
    T = max(batch.response.shape[1] for batch in batches)
    parts = [_wider(batch, T, pad_id) for batch in batches]
    joined = {f.name: _joined([getattr(x, f.name) for x in parts]) for f in fields(Batch)}
    return Batch(**joined)


def _wider(batch: Batch, T: int, pad_id: int) -> Batch:
    """With T response columns. Padding repeats the last column, where that may be."""
    P, short = batch.prompt.shape[1], batch.response.shape[1]
    real = torch.arange(T) < short
    column = torch.arange(T).clamp(max=short - 1)
    read = torch.arange(P + T - 1).clamp(max=P + short - 2)
    mask, routes = batch.mask[:, column] & real, batch.routes
    return Batch(
        prompt=batch.prompt,
        response=batch.response[:, column].masked_fill(~real, pad_id),
        mask=mask,
        logp_rollout=batch.logp_rollout[:, column].masked_fill(~mask, 0.0),
        top1_rollout=batch.top1_rollout[:, column],
        routes=None if routes is None else _each(lambda x: x[:, read], [routes]),
        kept=None if batch.kept is None else batch.kept[:, column],
    )


def _joined(parts: list[Any]) -> Any:
    """Tensors, or the tensors of routes, one below the other; None where there are none."""
    if parts[0] is None:
        return None
    if isinstance(parts[0], Routes):
        return _each(lambda *x: torch.cat(x), parts)
    return torch.cat(parts)


def _each(do: Callable[..., Tensor], routes: list[Routes]) -> Routes:
    return Routes(*(do(*(getattr(r, f.name) for r in routes)) for f in fields(Routes)))
