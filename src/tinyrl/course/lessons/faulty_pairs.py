"""A rollout and a trainer with one fault between them, and what a batch of them shows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, get_args

import torch
from torch import Tensor

from tinyrl.agreement import top_k
from tinyrl.intervals import Interval, intervals
from tinyrl.model import GPT
from tinyrl.monitoring import monitor
from tinyrl.objectives import one_of
from tinyrl.scoring import response_logits
from tinyrl.stack import Stack
from tinyrl.tasks import Task
from tinyrl.trainer import generate

Slip = Literal["none", "column", "prompt"]
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
    slip: Slip = "none"

    def __post_init__(self) -> None:
        for name in ("engine", "trainer"):
            if not isinstance(getattr(self, name), Stack):
                raise TypeError(f"{name} must be a Stack, not {getattr(self, name)!r}")
        if not (self.weights is None or isinstance(self.weights, GPT)):
            raise TypeError(f"weights must be a GPT or None, not {self.weights!r}")
        one_of("slip", self.slip, get_args(Slip))


class Look(NamedTuple):
    """A batch of a pair."""

    arrays: tuple[Tensor, Tensor, Tensor]
    """logp_rollout, logp_train, mask, each `[B, T]`."""
    more: dict[str, Any]
    """What else `tally.tally` takes: rewards, probabilities, sets of likeliest tokens."""


@torch.no_grad()
def look(
    policy: GPT,
    task: Task,
    pair: Pair,
    generator: torch.Generator,
    n: int = 256,
    k: int = K,
) -> Look:
    """`n` responses of `policy` under the pair's engine, as both sides see them.

    With `k` 0 the sets of likeliest tokens are left out, and a forward pass with them.
    Raises `ValueError` where `n` is too small for the pair's slip to happen.
    """
    whole("n", n)
    whole("k", k, 0)
    if pair.slip == "prompt" and n <= ONE_IN // 2:
        raise ValueError(f"n must be above {ONE_IN // 2} for a slip of one prompt, not {n}")
    asked = task.prompts(n, generator)
    read = asked.clone()
    if pair.slip == "prompt":
        late = torch.arange(n) % ONE_IN == ONE_IN // 2
        read[late] = asked.roll(-1, 0)[late]
    x = generate(policy, task, read, pair.engine, generator)
    mine = response_logits(pair.weights or policy, asked, x.response, pair.trainer)
    logp = x.logp_rollout
    if pair.slip == "column":
        logp = torch.where(x.mask, logp.roll(1, 1), 0.0)
    more = {
        "rewards": task.reward(asked, x.response, x.mask),
        "probabilities": True,
    }
    if k:
        theirs = response_logits(policy, read, x.response, pair.engine)
        more["top_rollout"] = top_k(pair.engine.sampler.process(theirs), k)
        more["top_train"] = top_k(pair.trainer.sampler.process(mine), k)
    return Look((logp, pair.trainer.reported(mine, x.response), x.mask), more)


def measured(
    looks: Sequence[Look], generator: torch.Generator, resamples: int = 300
) -> dict[str, list[Interval]]:
    """Every number of each batch with its interval.

    No resample goes beyond a sample's own extremes: theirs is the range over the batches,
    so there must be two of these or more.
    """
    if len(looks) < 2:
        raise ValueError(f"looks must be two batches or more, not {len(looks)}")
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
    """`intervals` of each `size` responses of a large batch, as if it were all there is.

    The batch must hold a whole number of such parts.
    """
    B = len(arrays[0]) if arrays else 0
    if whole("size", size, 2) > B or B % size:
        raise ValueError(f"size must divide the batch of {B} responses, not {size}")
    chunks = zip(*(torch.split(x, size) for x in arrays), strict=True)
    return [intervals(*x, generator=generator, resamples=resamples) for x in chunks]


def whole(name: str, value: Any, least: int = 1) -> int:
    """`value`, or a `ValueError` that says what `name` must be."""
    if type(value) is not int or value < least:
        raise ValueError(f"{name} must be a whole number from {least}, not {value!r}")
    return value
