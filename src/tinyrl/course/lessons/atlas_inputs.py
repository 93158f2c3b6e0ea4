"""The atlas's rows of tokens: what a trainer makes of the conversations of a rollout.

Weights and stack are alike. The two sides differ in the chat template that turns messages
into ids, or in the collator that lays them out in one tensor.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Generator, Tensor

from tinyrl.collate import Collator, lay_out, layout_logits
from tinyrl.course.lessons.conversations import TOKENIZER, Talk, encoded, spoken
from tinyrl.model import GPT
from tinyrl.stack import Stack
from tinyrl.tasks import CumSum, Task
from tinyrl.tokens import Chat
from tinyrl.trainer import generate

SHORT = CumSum(5)
"""Two of its questions and two answers are what the checkpoint's columns have room for."""


@dataclass(frozen=True)
class Inputs:
    """How a trainer makes ids of messages, and one tensor of many ids."""

    chat: Chat
    collator: Collator


def inputs(changes: Mapping[str, Any]) -> Inputs:
    """The right ones, but for `changes` by path: `{"chat.bos": "twice"}`."""
    parts: dict[str, dict[str, Any]] = {"chat": {}, "collator": {}}
    for path, to in changes.items():
        part, field = path.split(".")
        parts[part][field] = to
    return Inputs(Chat(**parts["chat"]), Collator(**parts["collator"]))


@dataclass(frozen=True)
class Answers:
    """Conversations and what the policy answered, one entry each; nothing is padded."""

    said: list[Talk]
    responses: list[Tensor]


def converse(policy: GPT, task: Task, n: int, generator: Generator) -> Answers:
    """`n` prompts of the task, each a conversation, answered by the base stack."""
    return _answered(policy, task, spoken(task.prompts(n, generator)), generator)


def converse_in_turns(policy: GPT, n: int, generator: Generator) -> Answers:
    """`n` short questions; every other half stands behind an earlier one and its answer."""
    asked = SHORT.prompts(n, generator)
    late = asked[n // 2 :]
    before = SHORT.demonstrations(len(late), generator)
    x = _answered(policy, SHORT, spoken(asked[: n // 2]), generator)
    y = _answered(policy, SHORT, spoken(late, before), generator)
    return Answers(x.said + y.said, x.responses + y.responses)


def _answered(policy: GPT, task: Task, said: list[Talk], generator: Generator) -> Answers:
    batch = generate(policy, task, torch.stack(encoded(said)), Stack(), generator)
    pairs = zip(batch.response, batch.mask, strict=True)
    return Answers(said, [row[real] for row, real in pairs])


def read(policy: GPT, x: Answers, how: Inputs) -> tuple[Tensor, Tensor, Tensor]:
    """What a trainer says of the answers: logprobs, top-1 tokens and mask, all `[B, T]`."""
    prompts, width = encoded(x.said, how.chat), policy.config.block_size
    pad_id = TOKENIZER.pad_id
    made = lay_out(prompts, x.responses, how.collator, pad_id=pad_id, width=width)
    logits = layout_logits(policy, made, Stack())
    return Stack().reported(logits, made.tokens), logits.argmax(-1), made.mask
