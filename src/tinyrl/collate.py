"""How conversations of different lengths come to lie in one tensor for the trainer.

A rollout reads each conversation by itself. The trainer's pass holds many, so they are
padded or packed, and every token has to be told two things that the tensor does not show:
its position, and which tokens it may look at. Told rightly, no layout changes a logprob.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from .formats import check_choices
from .model import GPT
from .stack import Stack
from .tokens import Ids


@dataclass(frozen=True)
class Collator:
    """Where tokens are put, and what they are told of it.

    `layout`: one conversation a row with padding behind it ("right"), or padding in front
    of the prompt, so that all responses begin in one column ("left"; what is left over is
    padded behind); or several conversations a row, one after the other ("packed").
    `positions`: a token's place in its conversation ("tokens") or in its row ("columns").
    `visible`: a token sees its "own" conversation, or "all" that lies before it in the row.
    """

    layout: Literal["right", "left", "packed"] = "right"
    positions: Literal["tokens", "columns"] = "tokens"
    visible: Literal["own", "all"] = "own"

    def __post_init__(self) -> None:
        check_choices(self)


@dataclass(frozen=True)
class Layout:
    """B conversations in R rows of L columns, and where their responses are."""

    ids: Tensor
    """Token ids `[R, L]`."""
    positions: Tensor
    """What each token is told, `[R, L]`."""
    segments: Tensor
    """`[R, L]`: tokens of one number in a row see each other, backwards."""
    mask: Tensor
    """Boolean `[B, T]`, true on the real tokens of each response; right-padded."""
    row: Tensor
    """`[B]`: the row in which a conversation lies."""
    start: Tensor
    """`[B]`: the column of its first response token."""

    @property
    def columns(self) -> Tensor:
        """`[B, T]`: the column of each response token; in padding that of the last one."""
        t = torch.arange(self.mask.shape[1])
        return self.start[:, None] + torch.minimum(t, self.mask.sum(1, keepdim=True) - 1)

    @property
    def tokens(self) -> Tensor:
        """Ids of the responses, `[B, T]`; in padding that of the last one."""
        return self.ids[self.row[:, None], self.columns]

    @property
    def response(self) -> Tensor:
        """Boolean `[R, L]`, true on response tokens."""
        found = torch.zeros_like(self.ids, dtype=torch.bool)
        found[self.row[:, None], self.columns] = True
        return found


def lay_out(
    prompts: Sequence[Ids],
    responses: Sequence[Ids],
    collator: Collator,
    *,
    pad_id: int,
    width: int,
) -> Layout:
    """Lay conversations out in rows of at most `width` tokens, in the order given.

    A packed conversation goes into the first row that has room for it.
    """
    pairs = _checked(prompts, responses)
    placed = _place(pairs, collator.layout, width)
    sizes = [len(prompt) + len(response) for prompt, response in pairs]
    R = 1 + max(row for row, _ in placed)
    L = max(column + size for (_, column), size in zip(placed, sizes, strict=True))
    ids, own = torch.full((R, L), pad_id), torch.full((R, L), -1)  # -1: padding
    counted, order = torch.zeros(R, L, dtype=torch.long), torch.arange(L).repeat(R, 1)
    for b, (row, column) in enumerate(placed):
        some = slice(column, column + sizes[b])
        ids[row, some], own[row, some] = torch.cat(pairs[b]), b
        counted[row, some] = torch.arange(sizes[b])
    lengths = torch.tensor([len(response) for _, response in pairs])
    prompt_lengths = torch.tensor([len(prompt) for prompt, _ in pairs])
    rows, columns = torch.tensor(placed).T
    return Layout(
        ids,
        counted if collator.positions == "tokens" else order,
        own if collator.visible == "own" else torch.zeros_like(own),
        torch.arange(int(lengths.max())) < lengths[:, None],
        rows,
        columns + prompt_lengths,
    )


def score_layout(model: GPT, layout: Layout, stack: Stack) -> Tensor:
    """Logprob of each response token, `[B, T]` as `layout.mask`; garbage in padding.

    What `scoring.score` says of one conversation at a time, for all of them at once.
    A layout does not hold what a rollout's sampler kept or what a penalty counts.
    """
    sampler = stack.sampler
    if sampler.replay != "own" or sampler.repetition_penalty != 1.0:
        raise ValueError(
            "a layout is scored without sampler.replay and sampler.repetition_penalty: "
            "score such conversations one at a time, with scoring.score"
        )
    return stack.reported(layout_logits(model, layout, stack), layout.tokens)


def layout_logits(model: GPT, layout: Layout, stack: Stack) -> Tensor:
    """Logits `[B, T, V]` that the response tokens are drawn from, before the sampler."""
    if stack.router.replay != "none":
        raise ValueError(
            f"router.replay is {stack.router.replay!r}: a layout has no routes to follow"
        )
    moved = layout.response if stack.positions.of == "response" else True
    positions = layout.positions + stack.positions.offset * moved
    at = model.places(positions, segments=layout.segments)
    logits: Tensor = model(layout.ids, stack.ops(), at)
    return logits[layout.row[:, None], layout.columns - 1]


def _place(
    pairs: list[tuple[Tensor, Tensor]], layout: str, width: int
) -> list[tuple[int, int]]:
    """Row and first column of each conversation."""
    longest = max(len(prompt) for prompt, _ in pairs)
    placed: list[tuple[int, int]] = []
    ends: list[int] = []  # of the rows so far
    for b, (prompt, response) in enumerate(pairs):
        size = len(prompt) + len(response)
        room = [row for row, end in enumerate(ends) if end + size <= width]
        if layout == "packed" and room:
            row, column = room[0], ends[room[0]]
        else:
            row, column = len(ends), longest - len(prompt) if layout == "left" else 0
            ends.append(0)
        ends[row] = column + size
        if ends[row] > width:
            raise ValueError(f"conversation {b} needs {ends[row]} columns of {width}")
        placed.append((row, column))
    return placed


def _checked(
    prompts: Sequence[Ids], responses: Sequence[Ids]
) -> list[tuple[Tensor, Tensor]]:
    """Each conversation as two tensors of ids."""
    if len(prompts) != len(responses) or not len(prompts):
        found = f"{len(prompts)} and {len(responses)}"
        raise ValueError(f"prompts and responses must be as many, and some: {found}")
    for name, each in (("prompts", prompts), ("responses", responses)):
        for b, ids in enumerate(each):
            if not len(ids):
                raise ValueError(f"{name}[{b}] is empty: it needs a token at least")
            if torch.as_tensor(ids).dtype not in (torch.int64, torch.int32):
                raise ValueError(f"{name}[{b}] holds other things than whole ids: {ids}")
    return [
        (torch.as_tensor(prompt), torch.as_tensor(response))
        for prompt, response in zip(prompts, responses, strict=True)
    ]
