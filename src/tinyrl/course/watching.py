"""A rollout and a trainer with one fault between them, watched: once, live, and served."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import torch
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from torch import Tensor

from ..advantages import group_advantages
from ..agreement import top_k
from ..correction import Correction
from ..intervals import Interval, intervals
from ..model import GPT
from ..monitoring import monitor
from ..objectives import grpo
from ..recipe import Recipe
from ..scoring import response_logits, score
from ..stack import Stack
from ..tasks import Task
from ..trainer import Trainer, generate
from . import style

K = 4
"""Of the likeliest tokens that both sides hand over."""
ONE_IN = 256
"""Requests of which one is answered after another one's prompt."""


@dataclass(frozen=True)
class Pair:
    """Who samples and who scores; `slip` is a fault of bookkeeping between them.

    "column": logprobs come one column late. "prompt": one request in `ONE_IN` is answered
    after the next one's prompt, as by a cache hit that was none.
    """

    engine: Stack = field(default_factory=Stack)
    weights: GPT | None = None
    """The trainer's; None: those that sample."""
    trainer: Stack = field(default_factory=Stack)
    slip: Literal["none", "column", "prompt"] = "none"


class Look(NamedTuple):
    """A batch of a pair."""

    arrays: tuple[Tensor, Tensor, Tensor]
    """logp_rollout, logp_train, mask, each `[B, T]`."""
    more: dict[str, Any]
    """What else `tally.tally` takes: rewards, probabilities, top-k sets."""


@torch.no_grad()
def look(
    policy: GPT, task: Task, pair: Pair, generator: torch.Generator, n: int = 256
) -> Look:
    """`n` responses of `policy` under the pair's engine, as both sides see them."""
    asked = task.prompts(n, generator)
    read = asked.clone()
    if pair.slip == "prompt":
        late = torch.arange(n) % ONE_IN == ONE_IN // 2
        read[late] = asked.roll(-1, 0)[late]
    x = generate(policy, task, read, pair.engine, generator)
    mine = response_logits(pair.weights or policy, asked, x.response, pair.trainer)
    theirs = response_logits(policy, read, x.response, pair.engine)
    logp = x.logp_rollout
    if pair.slip == "column":
        logp = torch.where(x.mask, logp.roll(1, 1), 0.0)
    more = {
        "rewards": task.reward(asked, x.response, x.mask),
        "probabilities": True,
        "top_rollout": top_k(pair.engine.sampler.process(theirs), K),
        "top_train": top_k(pair.trainer.sampler.process(mine), K),
    }
    return Look((logp, pair.trainer.reported(mine, x.response), x.mask), more)


def measured(
    looks: Sequence[Look], generator: torch.Generator, resamples: int = 300
) -> dict[str, list[Interval]]:
    """Every number of each batch with its interval.

    No resample goes beyond a sample's own extremes: theirs is the range over the batches.
    """
    found: dict[str, list[Interval]] = {}
    points = [monitor(*x.arrays, **x.more) for x in looks]
    for x in looks:
        ends = intervals(*x.arrays, generator=generator, resamples=resamples, **x.more)
        for name, interval in ends.items():
            found.setdefault(name, []).append(interval)
    for name in points[0]:
        if name not in found:
            values = [point[name] for point in points]
            found[name] = [Interval(v, min(values), max(values)) for v in values]
    return found


def in_parts(
    arrays: Sequence[Tensor], size: int, generator: torch.Generator, resamples: int = 300
) -> list[dict[str, Interval]]:
    """`intervals` of each `size` responses of a large batch, as if it were all there is."""
    chunks = zip(*(torch.split(x, size) for x in arrays), strict=True)
    return [intervals(*x, generator=generator, resamples=resamples) for x in chunks]


BLIND, DROWNED, SEES = 0, 1, 2


def sight(found: Interval, equal: Interval, healthy: Interval) -> int:
    """What a number makes of a fault: `SEES`, `DROWNED` in rounding or `BLIND`.

    It stands out from another pair if its interval lies apart from that one's, farther
    from what equal policies have. `equal` is a pair that differs in last bits alone: what
    stands out from that and not from a `healthy` one is drowned.
    """
    ideal = round(equal.estimate)  # 0 or 1

    def out(other: Interval) -> bool:
        apart = found.low > other.high or found.high < other.low
        return apart and abs(found.estimate - ideal) > abs(other.estimate - ideal)

    if not out(equal):
        return BLIND
    return SEES if out(healthy) else DROWNED


def sights(
    found: Mapping[str, Mapping[str, list[Interval]]],
    numbers: Sequence[str],
    *,
    equal: str,
    healthy: str,
) -> Tensor:
    """`[numbers, pairs]`, of every pair but `equal`: the worst sight over its batches."""
    pairs = [name for name in found if name != equal]
    return torch.tensor(
        [
            [
                min(
                    sight(*three)
                    for three in zip(
                        *(found[x][number] for x in (pair, equal, healthy)), strict=True
                    )
                )
                for pair in pairs
            ]
            for number in numbers
        ]
    )


def draw_sights(
    axes: Axes,
    found: Mapping[str, Mapping[str, list[Interval]]],
    numbers: Sequence[str],
    *,
    equal: str,
    healthy: str,
) -> None:
    """`sights` in shades; written into them is what the first batch had."""
    grid = sights(found, numbers, equal=equal, healthy=healthy)
    pairs = [name for name in found if name != equal]
    shades = ListedColormap(["white", "#E3D8EC", style.DELTA])
    axes.imshow(grid, cmap=shades, vmin=BLIND, vmax=SEES, aspect="auto")
    for i, number in enumerate(numbers):
        for j, pair in enumerate(pairs):
            ink = "white" if grid[i, j] == SEES else style.INK
            text = f"{found[pair][number][0].estimate:.2g}"
            axes.text(j, i, text, color=ink, ha="center", va="center", fontsize=8)
    axes.set_xticks(range(len(pairs)), [name.replace(" ", "\n") for name in pairs])
    axes.set_yticks(range(len(numbers)), numbers)
    axes.xaxis.tick_top()
    axes.grid(False)


class Update(NamedTuple):
    """A first update with the rollout's logprobs as old, against that with one's own."""

    cosine: float
    """Of the two gradients."""
    stopped_good: float
    """Share of tokens with A > 0 whose gradient the clip made 0."""
    stopped_bad: float
    """The same of A < 0."""


def first_update(
    policy: GPT, task: Task, engine: Stack, generator: torch.Generator, groups: int = 32
) -> Update:
    """GRPO's gradient on groups of eight that were sampled under `engine`."""
    asked = task.prompts(groups, generator).repeat_interleave(8, 0)
    x = generate(policy, task, asked, engine, generator)
    A = group_advantages(task.reward(asked, x.response, x.mask), 8)
    logp = score(policy, asked, x.response, Stack()).logp
    found = []
    for old in (logp.detach(), x.logp_rollout):
        loss = grpo(logp, old, A, x.mask)
        wrt = [logp, *policy.parameters()]
        found.append(torch.autograd.grad(loss, wrt, retain_graph=True))
    right, wrong = (torch.cat([g.flatten() for g in grads[1:]]) for grads in found)
    still = found[1][0] == 0

    def stopped(chosen: Tensor) -> float:
        return still[chosen[:, None] & x.mask].double().mean().item()

    cosine = torch.cosine_similarity(right, wrong, 0).item()
    return Update(cosine, stopped(A > 0), stopped(A < 0))


@dataclass(frozen=True)
class Watch(Correction):
    """Corrects nothing: hands the logprobs of each step to the monitor."""

    seen: list[dict[str, float]] = field(default_factory=list, compare=False)

    def apply(
        self, logp_train: Tensor, logp_rollout: Tensor, mask: Tensor
    ) -> tuple[Tensor, Tensor]:
        self.seen.append(monitor(logp_rollout, logp_train, mask))
        return super().apply(logp_train, logp_rollout, mask)


class Watched(NamedTuple):
    """A run, step by step."""

    numbers: list[dict[str, float]]
    """All of `monitor`."""
    rewards: list[float]
    trainer: Trainer
    """As it is after the last step."""


def live(
    policy: GPT,
    task: Task,
    engine: Stack,
    trainer: Stack,
    generator: torch.Generator,
    *,
    steps: int,
    after: int,
    fault: Stack | Literal["none", "weights stop"] = "none",
    recipe: Recipe | None = None,
) -> Watched:
    """Train a copy of `policy`; a fault comes in after the step number `after`.

    A stack takes the engine's place; "weights stop": no new version reaches the engine.
    """
    watch, rewards = Watch(), []
    run = Trainer(
        deepcopy(policy),
        task,
        generator=generator,
        rollout_stack=engine,
        train_stack=trainer,
        correction=watch,
        recipe=recipe,
    )
    for step in range(steps):
        if step == after and isinstance(fault, Stack):
            run.rollout_stack = fault
        if step == after:
            stuck = run.versions[0]
        if step >= after and fault == "weights stop":
            run.versions[0] = stuck
        rewards.append(run.step().reward)
    return Watched(watch.seen, rewards, run)


class Served(NamedTuple):
    """What users of a policy get. Shares, and a mean length in tokens."""

    right: float
    length: float
    formatted: float
    """As long as a right answer, and ended."""


def serve(
    model: GPT,
    task: Task,
    stack: Stack,
    generator: torch.Generator,
    n: int = 512,
    *,
    bos_twice: bool = False,
) -> Served:
    """`n` fresh prompts answered under `stack`, after a template that may add `<bos>`."""
    asked = task.prompts(n, generator)
    read = torch.cat([asked[:, :1], asked], 1) if bos_twice else asked
    x = generate(model, task, read, stack, generator)
    length = x.mask.sum(1)
    ended = (x.response == task.tokenizer.eos_id).any(1)
    found = (
        task.reward(asked, x.response, x.mask),
        length,
        (length == task.max_new) & ended,
    )
    return Served(*(y.double().mean().item() for y in found))
