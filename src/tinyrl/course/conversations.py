"""The conversations of lesson 05: of three kinds, answered by a policy, scored again.

They are the course's task in a chat: a rollout reads each of them alone, a trainer makes
ids of the messages once more and lays all of them out in one tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import tokenizers
import torch
from torch import Generator, Tensor

from ..collate import Collator, Layout, lay_out, score_layout
from ..model import GPT, GPTConfig
from ..objectives import grpo
from ..rollout import rollout
from ..stack import Stack
from ..tasks import CumSum
from ..tokens import Chat, Tokenizer

KINDS = {"short": 2, "plain": 3, "turn": 3}
"""Digits of the question; "turn" comes behind an earlier question and its answer."""

WIDTH = 32
"""Columns that the models of the lesson read."""

TOKENIZER = Tokenizer()
Talk = list[dict[str, str]]


def talks(n: int, kind: str, generator: Generator) -> tuple[list[Talk], Tensor, Tensor]:
    """`n` conversations of a kind; their last question alone `[n, P]`; answers `[n, T]`."""
    task = CumSum(KINDS[kind])
    asked, answers = task.demonstrations(n, generator)
    before = task.demonstrations(n, generator) if kind == "turn" else None
    return spoken(asked, before), asked, answers


def spoken(asked: Tensor, before: tuple[Tensor, Tensor] | None = None) -> list[Talk]:
    """The task's prompts `[n, P]` as messages, behind earlier ones and their answers."""
    said = [[_say("user", question[2:-2])] for question in asked]
    if before is None:
        return said
    earlier = [
        [_say("user", p[2:-2]), _say("assistant", a[:-1])]
        for p, a in zip(*before, strict=True)
    ]
    return [then + now for then, now in zip(earlier, said, strict=True)]


def _say(role: str, ids: Tensor) -> dict[str, str]:
    return {"role": role, "content": TOKENIZER.decode(ids)}


def encoded(said: Sequence[Talk], chat: Chat | None = None) -> list[Tensor]:
    """The ids of each conversation under a template, the right one by default."""
    tokenizer = TOKENIZER if chat is None else Tokenizer(chat)
    return [torch.tensor(tokenizer.chat(talk)) for talk in said]


class Mixed:
    """What `trainer.sft` learns from: in each step conversations of one kind."""

    def __init__(self, generator: Generator, size: int = 1000) -> None:
        self.pool: dict[str, tuple[Tensor, Tensor]] = {}
        for kind in KINDS:
            said, _, answers = talks(size, kind, generator)
            self.pool[kind] = torch.stack(encoded(said)), answers

    def demonstrations(self, n: int, generator: Generator) -> tuple[Tensor, Tensor]:
        """Prompts `[n, P]` and answers `[n, T]` of a kind drawn for the whole batch."""
        kind = list(KINDS)[int(torch.randint(len(KINDS), (), generator=generator))]
        return self.some(kind, n, generator)

    def some(self, kind: str, n: int, generator: Generator) -> tuple[Tensor, Tensor]:
        """The same of one kind."""
        prompts, answers = self.pool[kind]
        rows = torch.randint(len(prompts), (n,), generator=generator)
        return prompts[rows], answers[rows]


@dataclass
class Answered:
    """Conversations that a policy answered, one entry each; nothing is padded."""

    said: list[Talk] = field(default_factory=list)
    prompts: list[Tensor] = field(default_factory=list)
    responses: list[Tensor] = field(default_factory=list)
    logp: list[Tensor] = field(default_factory=list)
    reward: list[float] = field(default_factory=list)

    def off(self, logp: Sequence[Tensor]) -> Tensor:
        """Delta of a trainer's logprobs against the rollout's, all tokens in a row."""
        pairs = zip(logp, self.logp, strict=True)
        return torch.cat([mine - theirs for mine, theirs in pairs])


@torch.no_grad()
def answered(
    policy: GPT,
    generator: Generator,
    n: int = 64,
    kinds: Sequence[str] = tuple(KINDS),
    *,
    max_new: int = 6,
    repeat: int = 1,
) -> Answered:
    """`n` conversations of each kind, each answered `repeat` times, each read alone."""
    x = Answered()
    for kind in kinds:
        said, asked, _ = talks(n, kind, generator)
        said = [talk for talk in said for _ in range(repeat)]
        asked = asked.repeat_interleave(repeat, 0)
        y = rollout(
            policy,
            torch.stack(encoded(said)),
            Stack(),
            generator,
            max_new=max_new,
            eos_id=TOKENIZER.eos_id,
            pad_id=TOKENIZER.pad_id,
        )
        x.said += said
        x.prompts += list(y.prompt)
        x.responses += [ids[k] for ids, k in zip(y.response, y.mask, strict=True)]
        x.logp += [logp[k] for logp, k in zip(y.logp_rollout, y.mask, strict=True)]
        x.reward += CumSum(KINDS[kind]).reward(asked, y.response, y.mask).tolist()
    return x


def laid_out(
    prompts: Sequence[Any], responses: Sequence[Any], how: Collator | None = None
) -> Layout:
    """As the trainer lays them out: padding on the right unless told otherwise."""
    return lay_out(
        prompts, responses, how or Collator(), pad_id=TOKENIZER.pad_id, width=WIDTH
    )


@torch.no_grad()
def trained(
    policy: GPT,
    prompts: Sequence[Any],
    responses: Sequence[Any],
    how: Collator | None = None,
    stack: Stack | None = None,
) -> list[Tensor]:
    """The trainer's logprobs, one tensor a response."""
    made = laid_out(prompts, responses, how)
    logp = score_layout(policy, made, stack or Stack())
    return [row[k] for row, k in zip(logp, made.mask, strict=True)]


def without_end(made: Layout) -> Tensor:
    """The mask `[B, T]` of all that is no `<end>`, as where padding has its id."""
    return made.mask & (made.tokens != TOKENIZER.eos_id)


def taught(
    lessons: Mixed,
    ends: Mapping[str, int],
    count: Callable[[Layout], Tensor],
    generator: Generator,
    steps: int = 120,
) -> GPT:
    """A fresh policy, taught by the tokens that `count` leaves of the demonstrations.

    `ends` says which id ends an answer of each kind.
    """
    policy = GPT(GPTConfig(), generator)
    optimizer = torch.optim.Adam(policy.parameters(), 8e-3, (0.9, 0.99), fused=True)
    for _ in range(steps):
        prompts: list[Tensor] = []
        answers: list[Tensor] = []
        for kind, end in ends.items():
            asked, good = lessons.some(kind, 32, generator)
            prompts.extend(asked)
            answers.extend(good.where(good != TOKENIZER.eos_id, end))
        made = laid_out(prompts, answers)
        loss = -score_layout(policy, made, Stack())[count(made)].mean()
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return policy


def nearby(policy: GPT, generator: Generator) -> GPT:
    """A policy a little off: the reference of a KL term, or an older version."""
    other = deepcopy(policy)
    with torch.no_grad():
        for w in other.parameters():
            w.add_(torch.randn(w.shape, generator=generator), alpha=0.02)
    return other


def digit_pairs() -> tokenizers.Tokenizer:
    """BPE over ten digits and five pairs: 12 is the id 1 and the id 2, or the id 10."""
    pairs = [("1", "2"), ("3", "4"), ("5", "6"), ("7", "8"), ("9", "0")]
    words = [*"0123456789", *(a + b for a, b in pairs)]
    made = tokenizers.Tokenizer(
        tokenizers.models.BPE({word: i for i, word in enumerate(words)}, pairs)
    )
    made.decoder = tokenizers.decoders.Fuse()
    return made


@dataclass(frozen=True)
class Pull:
    """Loss and gradient of one update, and how many tokens made them."""

    loss: float
    gradient: Tensor
    tokens: int

    def against(self, right: Pull) -> tuple[float, float]:
        """Cosine to the right gradient, and how many times as long this one is."""
        cosine = torch.cosine_similarity(self.gradient, right.gradient, 0)
        return cosine.item(), (self.gradient.norm() / right.gradient.norm()).item()


def pull(
    policy: GPT,
    made: Layout,
    advantages: Tensor,
    mask: Tensor | None = None,
    *,
    old: GPT | None = None,
    reference: GPT | None = None,
    beta: float = 0.1,
) -> Pull:
    """GRPO's loss over the tokens of `mask [B, T]` (all real ones) and its gradient.

    Sampled by `old`, the policy itself by default; with a `reference`, `beta` KL is added.
    """
    mask = made.mask if mask is None else mask
    logp = score_layout(policy, made, Stack())
    with torch.no_grad():
        logp_old = logp if old is None else score_layout(old, made, Stack())
        logp_ref = reference and score_layout(reference, made, Stack())
    how: dict[str, Any] = {"logp_ref": logp_ref, "aggregation": "token_mean"}
    loss = grpo(logp, logp_old.detach(), advantages, mask, beta=beta, **how)
    grads = torch.autograd.grad(loss, list(policy.parameters()))
    return Pull(loss.item(), torch.cat([g.flatten() for g in grads]), int(mask.sum()))
