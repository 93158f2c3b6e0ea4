"""Sixteen ways to ask a policy the wrong question, and what tells them apart.

Each goes through the real template, tokenizer, collator or mask. `compare_inputs` looks at
what the trainer was given, before any logprob: ids, positions, who is seen, what counts;
`in_loss` trains on it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from tinyrl.advantages import group_advantages
from tinyrl.collate import Collator, Layout
from tinyrl.course.lessons.conversations import (
    TOKENIZER,
    LossGrad,
    Rollouts,
    Talk,
    encoded,
    laid_out,
    loss_and_grad,
    trainer_logp,
)
from tinyrl.model import GPT
from tinyrl.positions import Positions
from tinyrl.stack import Stack
from tinyrl.tokens import Chat, first_difference

PAD, END = TOKENIZER.pad_id, TOKENIZER.eos_id
Ids = list[int]
Handed = Callable[[Talk, Ids, Ids], Ids]
Mask = Callable[[Layout], Tensor]


def _as_sampled(said: Talk, prompt: Ids, response: Ids) -> Ids:
    return response


def _text_and_back(said: Talk, prompt: Ids, response: Ids) -> Ids:
    """The response as text without special tokens, rendered again as a finished turn."""
    text = TOKENIZER.decode(response, skip_special_tokens=True)
    if not text.strip():  # nothing was said before the end
        return response
    told = [*said, {"role": "assistant", "content": text}]
    return TOKENIZER.chat(told, add_generation_prompt=False)[len(prompt) :]


def _end_trimmed(said: Talk, prompt: Ids, response: Ids) -> Ids:
    return response[:-1] if response[-1] == END and len(response) > 1 else response


def _responses(made: Layout) -> Tensor:
    return made.response


def _not_padding(made: Layout) -> Tensor:
    """The attention mask, taken for the loss's."""
    return made.segments >= 0


def _no_end(made: Layout) -> Tensor:
    """By id: the end has that of padding."""
    return made.response & (made.ids != END)


def _after_prompt(made: Layout) -> Tensor:
    """All columns from the first of the response on."""
    return torch.arange(made.ids.shape[1]) >= made.start[:, None]


def _to_first_pad(made: Layout) -> Tensor:
    """What a trainer keeps that ends a response at the id that it pads with, too."""
    is_pad = (_after_prompt(made) & (made.ids == PAD)).long()
    return _after_prompt(made) & (is_pad.cumsum(1) - is_pad == 0)


@dataclass(frozen=True)
class Fault:
    """What a trainer does otherwise than the rollout. Without arguments: nothing.

    `handed` makes the ids of a response that the trainer gets; `mask` says which tokens of
    a layout with one conversation a row are in the loss, `[R, L]`.
    """

    chat: Chat | None = None
    how: Collator = field(default_factory=Collator)
    stack: Stack = field(default_factory=Stack)
    handed: Handed = _as_sampled
    mask: Mask = _responses


FAULTS: dict[str, Fault] = {
    "<bos> twice": Fault(Chat(bos="twice")),
    "no <bos>": Fault(Chat(bos="none")),
    "system prompt": Fault(Chat(system="7")),
    "turn not opened": Fault(Chat(generation_prompt=False)),
    "history: last word": Fault(Chat(history="last")),
    "history: a number": Fault(Chat(history="number")),
    "text and back": Fault(handed=_text_and_back),
    "end trimmed": Fault(handed=_end_trimmed),
    "left, columns": Fault(how=Collator("left", "columns")),
    "left, all seen": Fault(how=Collator("left", visible="all")),
    "packed, all seen": Fault(how=Collator("packed", visible="all")),
    "gap before answer": Fault(stack=Stack(positions=Positions(1))),
    "prompt counts": Fault(mask=_not_padding),
    "end does not count": Fault(mask=_no_end),
    "padding counts": Fault(mask=_after_prompt),
    "another end id": Fault(mask=_to_first_pad),
}
"""By name. The last trainer knows one end id, with which it also pads; the engine stopped
at another, and so the first pad passes for the end."""


def compare_inputs(x: Rollouts, fault: Fault) -> set[str]:
    """What the trainer was given otherwise than the rollout; no model is asked.

    Each mark says of what kind: "ids: turn -1" are ids that part where the assistant's turn
    is opened, one token fewer. Marks ten times rarer than the commonest are left out: they
    are accidents, as of an answer that holds a special token.
    """
    prompts, responses = _given(x, fault)
    made, found = laid_out(prompts, responses, fault.how), Counter[str]()
    counted = fault.mask(made)
    extra, missing = counted & ~made.response, made.response & ~counted
    for b, response in enumerate(responses):
        sampled = x.prompts[b].tolist(), x.responses[b].tolist()
        marks = _of_ids(*sampled, prompts[b] + response)
        marks |= _of_layout(made, b, len(prompts[b]), len(response), fault)
        first, last = int(made.start[b]), int(made.start[b]) + len(response)
        marks |= _of_counts(extra[made.row[b]], missing[made.row[b]], first, last)
        found.update(marks)
    return {mark for mark, n in found.items() if 10 * n > max(found.values())}


def measure(policy: GPT, x: Rollouts, fault: Fault) -> float:
    """Mean |delta| of what the trainer has of each response as it was sampled.

    A response that came back with other ids counts up to where they part; 0 where nothing
    is left.
    """
    prompts, responses = _given(x, fault)
    logp = trainer_logp(policy, prompts, responses, fault.how, fault.stack)
    kept = []
    for mine, theirs, given, sampled in zip(
        logp, x.logp, responses, x.responses, strict=True
    ):
        n = first_difference(given, sampled)
        n = len(given) if n is None else n
        kept.append(mine[:n] - theirs[:n])
    delta = torch.cat(kept)
    return delta.abs().mean().item() if delta.numel() else 0.0


def in_loss(
    policy: GPT, x: Rollouts, fault: Fault, advantages: Tensor, **how: GPT
) -> LossGrad:
    """GRPO's loss and gradient as this trainer has them, under the base stack.

    `advantages [B]`; one conversation a row; `how` as for `loss_and_grad`.
    """
    made = laid_out(*_given(x, fault), fault.how)
    return loss_and_grad(policy, made, advantages, fault.mask(made), **how)


def cut_rewards(
    right: Tensor, cut: Tensor, group_size: int
) -> dict[str, tuple[Tensor, Tensor]]:
    """Ways to treat cut responses: advantages `[B]`, and the responses that count `[B]`.

    `right [B]` bool is a verdict on the uncut answers, `cut [B]` bool says which are cut.
    Advantages are reward minus the group's mean (Dr. GRPO, arXiv 2503.20783).
    """
    every, fits = torch.ones_like(cut), (~cut).nonzero().flatten()
    full, zero = (
        group_advantages(reward.float(), group_size, std="none")
        for reward in (right, right & ~cut)
    )
    known = right.float().where(~cut, torch.nan).view(-1, group_size)
    alone = (known - known.nanmean(1, keepdim=True)).nan_to_num().flatten()
    late = torch.zeros_like(zero)
    late[fits] = zero[: len(fits)]
    return {
        "punished: reward 0": (zero, every),
        "ignored: in loss and mean": (alone, ~cut),
        "masked, 0 in the mean": (zero, ~cut),
        "reward of the uncut": (full, every),
        "rewards not filtered": (late, ~cut),
    }


def look_alike(fingerprints: Iterable[Collection[Hashable]]) -> int:
    """How many faults were seen with a fingerprint that another one was seen with, too.

    For each fault the fingerprints that it left, one a batch.
    """
    each = [set(found) for found in fingerprints]
    often = Counter(fingerprint for found in each for fingerprint in found)
    return sum(any(often[x] > 1 for x in found) for found in each)


def _given(x: Rollouts, fault: Fault) -> tuple[list[Ids], list[Ids]]:
    """Prompts and responses as the trainer gets them."""
    given = x.prompts if fault.chat is None else encoded(x.said, fault.chat)
    prompts = [ids.tolist() for ids in given]
    triples = zip(x.said, x.prompts, x.responses, strict=True)
    responses = [fault.handed(m, p.tolist(), r.tolist()) for m, p, r in triples]
    return prompts, responses


def _of_ids(prompt: Ids, response: Ids, given: Ids) -> set[str]:
    at = first_difference(prompt + response, given)
    if at is None:
        return set()
    zones = ("start", "history", "turn", "answer")
    opens = len(prompt) - 1  # the token that opens the assistant's turn
    zone = zones[(at > 1) + (at >= opens) + (at > opens)]
    return {f"ids: {zone} {len(given) - len(prompt + response):+d}"}


def _of_layout(made: Layout, b: int, P: int, T: int, fault: Fault) -> set[str]:
    """What conversation `b`, a prompt of P and a response of T tokens, is told."""
    row, first, marks = int(made.row[b]), int(made.start[b]) - P, set[str]()
    offset = fault.stack.positions.ids(P, P + T) - torch.arange(P + T)
    told = made.positions[row, first : first + P + T] + offset
    if (told.diff() != 1).any():
        marks.add("positions: a gap")
    elif told[0]:
        marks.add("positions: moved")
    segments = made.segments[row]
    if (segments[:first] == segments[first]).any():
        packed = fault.how.layout == "packed"
        marks.add("sees: neighbour" if packed else "sees: padding")
    return marks


def _of_counts(extra: Tensor, missing: Tensor, first: int, last: int) -> set[str]:
    """Of a row `[L]`: what counts and should not, what should; its response's columns."""
    marks, after = set[str](), int(extra[last:].sum())
    if extra[:first].any():
        marks.add("counts: prompt")
    if missing[first:last].any():
        marks.add("counts: no end")
    if after:
        marks.add(f"counts: {'one' if after == 1 else 'all'} after")
    return marks
