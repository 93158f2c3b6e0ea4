"""The conversations of lesson 05: of three kinds, answered by a policy, scored again.

They are the course's task in a chat: a rollout reads each of them alone, a trainer makes
ids of the messages once more and lays all of them out in one tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import tokenizers
import torch
import torch.nn.functional as F
from torch import Generator, Tensor
from torch.nn.utils import parameters_to_vector
from torch.optim import Optimizer

from tinyrl.collate import Collator, Layout, lay_out, score_layout
from tinyrl.model import GPT
from tinyrl.objectives import grpo
from tinyrl.rollout import rollout
from tinyrl.stack import Stack
from tinyrl.tasks import CumSum
from tinyrl.tokens import Chat, Tokenizer
from tinyrl.trainer import Mixer

KINDS = {"short": 2, "plain": 3, "turn": 3}
"""Digits of the question; "turn" comes after an earlier question and its answer."""

WIDTH = 32
"""Columns that the models of the lesson read."""

BETA = 0.1
"""Weight of a KL term to a reference."""

TOKENIZER = Tokenizer()
Talk = list[dict[str, str]]


def talks(n: int, kind: str, generator: Generator) -> tuple[list[Talk], Tensor, Tensor]:
    """`n` conversations of a kind; their last question alone `[n, P]`; answers `[n, T]`."""
    task = CumSum(KINDS[kind])
    asked, answers = task.demonstrations(n, generator)
    before = task.demonstrations(n, generator) if kind == "turn" else None
    return spoken(asked, before), asked, answers


def spoken(asked: Tensor, before: tuple[Tensor, Tensor] | None = None) -> list[Talk]:
    """The task's prompts `[n, P]` as messages, after earlier ones and their answers."""
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
    """What `trainer.sft` learns from: in each step conversations of one of the `kinds`."""

    def __init__(
        self, generator: Generator, kinds: Sequence[str] = tuple(KINDS), size: int = 1000
    ) -> None:
        self.pool: dict[str, tuple[Tensor, Tensor]] = {}
        for kind in kinds:
            said, _, answers = talks(size, kind, generator)
            self.pool[kind] = torch.stack(encoded(said)), answers

    def demonstrations(self, n: int, generator: Generator) -> tuple[Tensor, Tensor]:
        """Prompts `[n, P]` and answers `[n, T]` of a kind drawn for the whole batch."""
        kinds = list(self.pool)
        drawn = int(torch.randint(len(kinds), (), generator=generator))
        return self.some(kinds[drawn], n, generator)

    def some(self, kind: str, n: int, generator: Generator) -> tuple[Tensor, Tensor]:
        """The same of one kind."""
        prompts, answers = self.pool[kind]
        rows = torch.randint(len(prompts), (n,), generator=generator)
        return prompts[rows], answers[rows]


def second_end(progress: float, prompts: Tensor, answers: Tensor) -> tuple[Tensor, Tensor]:
    """A `Mixer`: answers of three digits end with `<system>`, the second id of an end."""
    if answers.shape[1] == 4:
        answers = answers.where(answers != TOKENIZER.eos_id, TOKENIZER.system_id)
    return answers, answers


def said_twice(generator: Generator) -> Mixer:
    """Half of the answers are said two times before they end."""

    def mix(progress: float, prompts: Tensor, answers: Tensor) -> tuple[Tensor, Tensor]:
        twice = torch.cat([answers[:, :-1], answers], 1)
        once = F.pad(answers, (0, answers.shape[1] - 1), value=TOKENIZER.pad_id)
        heads = torch.rand(len(answers), 1, generator=generator) < 0.5
        read = twice.where(heads, once)
        return read, read.where(read != TOKENIZER.pad_id, -100)

    return mix


@dataclass
class Rollouts:
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
def rolled_out(
    policy: GPT,
    generator: Generator,
    n: int = 64,
    kinds: Sequence[str] = tuple(KINDS),
    *,
    max_new: int = 6,
    repeat: int = 1,
    ends: Sequence[int] = (TOKENIZER.eos_id,),
) -> Rollouts:
    """`n` conversations of each kind, each answered `repeat` times, each read alone.

    The engine stops at any of `ends`.
    """
    x = Rollouts()
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
            eos_id=ends,
            pad_id=TOKENIZER.pad_id,
        )
        x.said += said
        x.prompts += list(y.prompt)
        x.responses += [ids[k] for ids, k in zip(y.response, y.mask, strict=True)]
        x.logp += [logp[k] for logp, k in zip(y.logp_rollout, y.mask, strict=True)]
        x.reward += CumSum(KINDS[kind]).reward(asked, y.response, y.mask).tolist()
    return x


def says_right(x: Rollouts) -> Tensor:
    """`[B]` bool: the response begins with the right totals and ends, however late."""
    found = []
    for talk, response in zip(x.said, x.responses, strict=True):
        digits = torch.tensor([int(digit) for digit in talk[-1]["content"].split()])
        totals = TOKENIZER.digit_0 + digits.cumsum(0) % 10
        begins = torch.equal(response[: len(totals)], totals)
        found.append(begins and TOKENIZER.eos_id in response)
    return torch.tensor(found)


def laid_out(
    prompts: Sequence[Any], responses: Sequence[Any], how: Collator | None = None
) -> Layout:
    """As the trainer lays them out: padding on the right unless told otherwise."""
    return lay_out(
        prompts, responses, how or Collator(), pad_id=TOKENIZER.pad_id, width=WIDTH
    )


@torch.no_grad()
def trainer_logp(
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


def row_logp(policy: GPT, made: Layout) -> Tensor:
    """Logprob of every token of every row, prompts and padding too, `[R, L]`.

    A row's first token has none, since nothing precedes it: 0 stands there.
    """
    at = policy.places(made.positions, segments=made.segments)
    logits = policy(made.ids, Stack().ops(), at)[:, :-1]
    return F.pad(Stack().reported(logits, made.ids[:, 1:]), (1, 0))


@dataclass(frozen=True)
class LossGrad:
    """A loss, its gradient by all weights `[W]`, and how many tokens were in it."""

    loss: float
    gradient: Tensor
    tokens: int

    def against(self, right: LossGrad) -> tuple[float, float]:
        """Cosine to the right gradient, and how many times as long this one is."""
        cosine = torch.cosine_similarity(self.gradient, right.gradient, 0)
        return cosine.item(), (self.gradient.norm() / right.gradient.norm()).item()

    def told(self, right: LossGrad) -> str:
        """The same in words."""
        return "cosine {:+.4f}, {:.3f} times as long".format(*self.against(right))


def loss_and_grad(
    policy: GPT,
    made: Layout,
    advantages: Tensor,
    mask: Tensor | None = None,
    *,
    old: GPT | None = None,
    reference: GPT | None = None,
) -> LossGrad:
    """GRPO's loss over the tokens of `mask [R, L]` (those of responses) and its gradient.

    `advantages [R]`, so each row holds one conversation. Sampled by `old`, the policy
    itself by default; with a `reference`, `BETA` times KL to it is added. A row's first
    token never counts: it has no logprob.
    """
    counted = (made.response if mask is None else mask)[:, 1:]
    logp = row_logp(policy, made)[:, 1:]
    with torch.no_grad():
        logp_old = logp if old is None else row_logp(old, made)[:, 1:]
        logp_ref = None if reference is None else row_logp(reference, made)[:, 1:]
    how: dict[str, Any] = {"logp_ref": logp_ref, "aggregation": "token_mean"}
    loss = grpo(logp, logp_old.detach(), advantages, counted, beta=BETA, **how)
    grads = torch.autograd.grad(loss, list(policy.parameters()))
    gradient = torch.cat([g.flatten() for g in grads])
    return LossGrad(loss.item(), gradient, int(counted.sum()))


def distance(
    policy: GPT,
    made: Layout,
    advantages: Tensor,
    factor: float,
    optimizer: Callable[..., Optimizer],
    *,
    lr: float,
    steps: int = 5,
) -> float:
    """How far updates on one batch move the weights; the gradient is multiplied first."""
    updated = deepcopy(policy)
    weights = list(updated.parameters())
    stepper = optimizer(weights, lr=lr)
    for _ in range(steps):
        pull = loss_and_grad(updated, made, advantages, old=policy).gradient * factor
        parts = torch.split(pull, [w.numel() for w in weights])
        for w, part in zip(weights, parts, strict=True):
            w.grad = part.view_as(w)
        stepper.step()
    old, new = (parameters_to_vector(p.parameters()) for p in (policy, updated))
    return torch.dist(new, old).item()


def digit_pairs() -> tokenizers.Tokenizer:
    """BPE over ten digits and five pairs: 12 is the id 1 and the id 2, or the id 10."""
    pairs = [("1", "2"), ("3", "4"), ("5", "6"), ("7", "8"), ("9", "0")]
    words = [*"0123456789", *(a + b for a, b in pairs)]
    made = tokenizers.Tokenizer(
        tokenizers.models.BPE({word: i for i, word in enumerate(words)}, pairs)
    )
    made.decoder = tokenizers.decoders.Fuse()
    return made
