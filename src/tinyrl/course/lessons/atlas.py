"""The atlas: every field of a setting, changed alone, and what that does to logprobs.

For each field the same checkpoint and the same responses, scored twice: by the base
setting and by the one with the field changed, as sampler and trainer would. So rows can be
compared. Words for people are those of `labels`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor

from tinyrl.course.lessons.atlas_inputs import (
    Answers,
    converse,
    converse_in_turns,
    inputs,
    read,
)
from tinyrl.metrics import Mismatch, compare, token_delta
from tinyrl.model import GPT
from tinyrl.objectives import LossView
from tinyrl.rollout import Batch
from tinyrl.scoring import score
from tinyrl.stack import PRESETS, Stack, replace_at
from tinyrl.tasks import Task
from tinyrl.trainer import generate

Checkpoint = Literal["dense", "moe"]
Changes = Mapping[str, Any]
AGE = 8  # updates between the weights of the row "weights"


@dataclass(frozen=True)
class Entry:
    """A field, what it is changed to, and what has to hold for it to act at all.

    `given` is set on both sides. "generate" is for what acts in rollouts only: responses
    are then sampled anew from the same noise. "replay" is for what needs the routes of a
    rollout, here one in BF16, "cut" for what needs its kept tokens, here of top-p 0.9.
    "view" is for what the loss takes as old logprobs, here of a rollout on INT4 weights.
    "ask" is for what a trainer makes of messages; with "turns" the questions are short and
    half of them stand behind an earlier one and its answer, so that lengths differ.
    """

    path: str
    to: Any
    given: Changes = field(default_factory=dict)
    checkpoint: Checkpoint = "dense"
    by: Literal["score", "generate", "replay", "cut", "view", "ask", "turns"] = "score"


BF16, FP8 = ({f"numerics.{part}": fmt for part in ("weights", "activations")}
             for fmt in ("bf16", "fp8_e4m3"))  # fmt: skip
LEFT, PACKED = {"collator.layout": "left"}, {"collator.layout": "packed"}
SPLIT, MOVED = {"kernels.tensor_parallel": 2}, {"positions.offset": 1}

ENTRIES: tuple[Entry, ...] = (
    Entry("weights", AGE),
    Entry("chat.bos", "twice", by="ask"),
    Entry("chat.system", "7", by="ask"),
    Entry("chat.generation_prompt", False, by="ask"),
    Entry("chat.history", "last", by="turns"),
    Entry("collator.layout", "left", by="turns"),
    Entry("collator.positions", "columns", LEFT, by="turns"),
    Entry("collator.visible", "all", PACKED, by="turns"),
    Entry("numerics.weights", "bf16"),
    Entry("numerics.activations", "bf16"),
    Entry("numerics.kv", "fp8_e4m3"),
    Entry("numerics.head", "bf16"),
    Entry("numerics.logits", "bf16"),
    Entry("numerics.rope", "bf16"),
    Entry("numerics.boundary", "bf16"),
    Entry("numerics.partial", "bf16", SPLIT),
    Entry("numerics.overflow", "nan", FP8),
    Entry("numerics.router", "bf16", checkpoint="moe"),
    Entry("kernels.attention", "online"),
    Entry("kernels.shapes", "fixed"),
    Entry("kernels.norm", "unfused", BF16),
    Entry("kernels.norm_eps", 1e-5),
    Entry("kernels.logsumexp", "naive"),
    Entry("kernels.tensor_parallel", 2),
    Entry("kernels.prefill", 4, by="generate"),
    Entry("positions.offset", 1),
    Entry("positions.of", "all", MOVED),
    Entry("router.replay", "rollout", checkpoint="moe", by="replay"),
    Entry("sampler.temperature", 0.7),
    Entry("sampler.top_k", 2, by="generate"),
    Entry("sampler.top_p", 0.9, by="generate"),
    Entry("sampler.min_p", 0.1, by="generate"),
    Entry("sampler.repetition_penalty", 1.1),
    Entry("sampler.logprobs", "raw", {"sampler.temperature": 0.7}),
    Entry("sampler.replay", "rollout", by="cut"),
    Entry("view.anchor", "rollout", by="view"),
    Entry("view.aggregation", "sequence_mean", by="view"),
)
"""Weights, tokens, the stack's fields in their own order, the loss view."""


@dataclass(frozen=True)
class Sighting:
    """One entry on one seed: the tokens, and what `compare` says of them."""

    entry: Entry
    delta: Tensor
    """Changed minus base, `[B, T]`, 0 in padding."""
    mask: Tensor
    mismatch: Mismatch

    @property
    def growth(self) -> float | None:
        """p of sd(sum of t deltas) ~ t^p over whole responses; None where all is equal.

        0.5 is a random walk; an error that keeps its sign has 1. Fitted from the third
        token on: the first ones are the easiest, and would tilt the line.
        """
        whole = self.delta[self.mask.all(1)]
        t = torch.arange(3, whole.shape[1] + 1)
        sd = whole.double().cumsum(1)[:, t - 1].std(0) if len(whole) > 1 else t * 0.0
        if not (sd > 0).all():
            return None
        x = t.double().log() - t.double().log().mean()
        return (x @ sd.log() / (x @ x)).item()


def survey(
    versions: Sequence[GPT],
    moe: GPT,
    task: Task,
    seeds: Sequence[int],
    entries: Sequence[Entry] = ENTRIES,
    prompts: int = 128,
) -> Iterator[list[Sighting]]:
    """Each entry on each seed. `versions` are dense weights, one a step, the newest last.

    Raises `ValueError` if there are fewer versions than the oldest row is old.
    """
    if len(versions) <= AGE:
        raise ValueError(f"versions must be more than {AGE}, not {len(versions)}")
    models: dict[Checkpoint, GPT] = {"dense": versions[-1], "moe": moe}
    drawn: dict[tuple[Any, ...], Batch] = {}
    talked: dict[tuple[int, bool], Answers] = {}

    def sampled(checkpoint: Checkpoint, seed: int, stack: Stack) -> Batch:
        """Responses to the prompts of a seed, drawn once for each stack."""
        key = (checkpoint, seed, stack)
        if key not in drawn:
            generator = torch.Generator().manual_seed(seed)
            ids = task.prompts(prompts, generator)
            drawn[key] = generate(models[checkpoint], task, ids, stack, generator)
        return drawn[key]

    def answers(seed: int, turns: bool) -> Answers:
        """Conversations with the newest weights, drawn once for each kind."""
        if (seed, turns) not in talked:
            generator = torch.Generator().manual_seed(seed)
            talked[seed, turns] = (
                converse_in_turns(versions[-1], prompts, generator)
                if turns
                else converse(versions[-1], task, prompts, generator)
            )
        return talked[seed, turns]

    for entry in entries:
        model = models[entry.checkpoint]
        if entry.by in ("ask", "turns"):
            turns = entry.by == "turns"
            yield [_sight_inputs(entry, model, answers(seed, turns)) for seed in seeds]
            continue
        changed = versions[-1 - AGE] if entry.path == "weights" else model
        yield [_sight(entry, model, changed, sampled, seed) for seed in seeds]


ENGINES = {
    "replay": replace_at(PRESETS["bf16"], "numerics.router", "bf16"),
    "cut": replace_at(Stack(), "sampler.top_p", 0.9),
    "view": PRESETS["int4_weights"],
}
"""What samples where the base stack cannot: by `Entry.by`."""


@torch.no_grad()
def _sight(entry: Entry, model: GPT, changed: GPT, sampled: Any, seed: int) -> Sighting:
    base = _set(Stack(), entry.given)
    part = entry.path.split(".")[0]
    stack = base if part in ("weights", "view") else replace_at(base, entry.path, entry.to)
    if entry.by == "view":
        b = sampled(entry.checkpoint, seed, ENGINES["view"])
        first = other = score(model, b.prompt, b.response, base)
        one, top1 = first.logp, first.top1
        if LossView(**{entry.path.removeprefix("view."): entry.to}).anchor == "rollout":
            one, top1 = b.logp_rollout, b.top1_rollout
    elif entry.by == "generate":
        b = sampled(entry.checkpoint, seed, stack)
        one, top1 = b.logp_rollout, b.top1_rollout
        other = score(model, b.prompt, b.response, base)
    else:
        b = sampled(entry.checkpoint, seed, ENGINES.get(entry.by, base))
        first = score(model, b.prompt, b.response, base)
        one, top1 = first.logp, first.top1
        other = score(changed, b.prompt, b.response, stack, b.routes, kept=b.kept)
    told = compare(one, other.logp, b.mask, top1_rollout=top1, top1_train=other.top1)
    return Sighting(entry, token_delta(one, other.logp, b.mask), b.mask, told)


@torch.no_grad()
def _sight_inputs(entry: Entry, model: GPT, x: Answers) -> Sighting:
    one, top1, mask = read(model, x, inputs(entry.given))
    two, other, _ = read(model, x, inputs({**entry.given, entry.path: entry.to}))
    told = compare(one, two, mask, top1_rollout=top1, top1_train=other)
    return Sighting(entry, token_delta(one, two, mask), mask, told)


def _set(stack: Stack, changes: Changes) -> Stack:
    for path, to in changes.items():
        stack = replace_at(stack, path, to)
    return stack
