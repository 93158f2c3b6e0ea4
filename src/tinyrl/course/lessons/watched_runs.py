"""Training watched step by step, with a fault that comes in on the way; then served."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor
from tqdm.auto import tqdm

from tinyrl.correction import Correction
from tinyrl.course.lessons.faulty_pairs import whole
from tinyrl.model import GPT
from tinyrl.monitoring import monitor
from tinyrl.recipe import Recipe
from tinyrl.snapshots import restore, snapshot
from tinyrl.stack import Stack
from tinyrl.tasks import Task
from tinyrl.trainer import Trainer, generate


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


Fault = Stack | Literal["none", "weights stop"]
"""A stack takes the engine's place; "weights stop": no new version reaches the engine."""


def live(
    policy: GPT,
    task: Task,
    engine: Stack,
    trainer: Stack,
    generator: torch.Generator,
    *,
    steps: int,
    after: int,
    faults: Mapping[str, Fault],
    recipe: Recipe | None = None,
) -> dict[str, Watched]:
    """Train copies of `policy`, one a fault, which comes in after the step number `after`.

    Up to there the runs are one, and trained once. `0 <= after < steps`. Shows a bar while
    it trains.
    """
    if whole("after", after, 0) >= whole("steps", steps):
        raise ValueError(f"after must be below steps, {steps}, not {after}: no fault comes")
    if not faults:
        raise ValueError("faults must name one at least")
    for name, fault in faults.items():
        if not (isinstance(fault, Stack) or fault in ("none", "weights stop")):
            raise ValueError(
                f"faults[{name!r}] must be a Stack, 'none' or 'weights stop', not {fault!r}"
            )

    def fresh(watch: Watch, generator: torch.Generator) -> Trainer:
        return Trainer(
            deepcopy(policy),
            task,
            generator=generator,
            rollout_stack=engine,
            train_stack=trainer,
            correction=watch,
            recipe=recipe,
        )

    watch = Watch()
    begun = fresh(watch, generator)
    with tqdm(total=after + len(faults) * (steps - after), leave=False) as bar:
        rewards = [_rewarded(begun, bar) for _ in range(after)]
        state, runs = snapshot(begun), {}
        for name, fault in faults.items():
            watched = Watched([*watch.seen], [*rewards], fresh(Watch(), torch.Generator()))
            restore(watched.trainer, state)
            runs[name] = _go_on(watched, fault, steps - after, bar)
    return runs


def _rewarded(trainer: Trainer, bar: Any) -> float:
    bar.update()
    return trainer.step().reward


def _go_on(run: Watched, fault: Fault, steps: int, bar: Any) -> Watched:
    trainer = run.trainer
    assert isinstance(trainer.correction, Watch)
    if isinstance(fault, Stack):
        trainer.rollout_stack = fault
    stuck = trainer.versions[0]
    for _ in range(steps):
        if fault == "weights stop":
            trainer.versions[0] = stuck
        run.rewards.append(_rewarded(trainer, bar))
    return run._replace(numbers=run.numbers + trainer.correction.seen)


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
    whole("n", n)
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
