"""Sixteen ways to ask a policy the wrong question, and what tells them apart.

Each goes through the real template, tokenizer, collator or mask. `compare_inputs` looks at
what the trainer was given, before any logprob: ids, positions, who is seen, what counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from ..collate import Collator, Layout
from ..model import GPT
from ..positions import Positions
from ..stack import Stack
from ..tokens import Chat, first_difference
from .conversations import TOKENIZER, Answered, Talk, encoded, laid_out, trained

PAD, END = TOKENIZER.pad_id, TOKENIZER.eos_id
Ids = list[int]
Handed = Callable[[Talk, Ids, Ids], Ids]
Count = Callable[[Tensor, int], Tensor]


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


def _real(buffer: Tensor, length: int) -> Tensor:
    return torch.arange(len(buffer)) < length


def _not_the_end(buffer: Tensor, length: int) -> Tensor:
    """All that is not the pad id, where that is the end's id as well."""
    return buffer.where(buffer != PAD, END) != END


def _all_of_it(buffer: Tensor, length: int) -> Tensor:
    return torch.ones_like(buffer, dtype=torch.bool)


@dataclass(frozen=True)
class Fault:
    """What a trainer does otherwise than the rollout. Without arguments: nothing.

    `handed` makes the ids of a response that the trainer gets; `count` says which tokens
    of its buffer, padding behind, are in the loss. `ends` are the ids that end a turn.
    """

    chat: Chat | None = None
    how: Collator = field(default_factory=Collator)
    stack: Stack = field(default_factory=Stack)
    handed: Handed = _as_sampled
    prompt_counts: bool = False
    count: Count = _real
    ends: tuple[int, ...] = (END,)


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
    "prompt counts": Fault(prompt_counts=True),
    "end does not count": Fault(count=_not_the_end),
    "padding counts": Fault(count=_all_of_it),
    "another end id": Fault(count=_all_of_it, ends=(TOKENIZER.system_id,)),
}
"""By name. The last trainer looks for an end that never comes and counts all there is."""


def compare_inputs(x: Answered, fault: Fault) -> set[str]:
    """What the trainer was given otherwise than the rollout; no model is asked.

    Each mark says of what kind: "ids: turn -1" are ids that part where the assistant's turn
    is opened, one token fewer. Marks ten times rarer than the commonest are left out: they
    are accidents, as of an answer that holds a special token.
    """
    prompts, responses = _given(x, fault)
    made, found = laid_out(prompts, responses, fault.how), Counter[str]()
    for b, response in enumerate(responses):
        sampled = x.prompts[b].tolist(), x.responses[b].tolist()
        marks = _of_ids(*sampled, prompts[b] + response) | _of_counts(response, fault)
        marks |= _of_layout(made, b, len(prompts[b]), len(response), fault)
        found.update(marks)
    return {mark for mark, n in found.items() if 10 * n > max(found.values())}


def measure(policy: GPT, x: Answered, fault: Fault) -> float:
    """Mean |delta| of the responses whose own ids are as sampled; 0 where none is."""
    prompts, responses = _given(x, fault)
    logp = trained(policy, prompts, responses, fault.how, fault.stack)
    same = [
        given == sampled.tolist()
        for given, sampled in zip(responses, x.responses, strict=True)
    ]
    triples = zip(logp, x.logp, same, strict=True)
    kept = [mine - theirs for mine, theirs, equal in triples if equal]
    return torch.cat(kept).abs().mean().item() if kept else 0.0


def look_alike(fingerprints: Iterable[Collection[Hashable]]) -> int:
    """How many faults were seen with a fingerprint that another one was seen with, too."""
    each = [set(found) for found in fingerprints]
    often = Counter(fingerprint for found in each for fingerprint in found)
    return sum(any(often[x] > 1 for x in found) for found in each)


def _given(x: Answered, fault: Fault) -> tuple[list[Ids], list[Ids]]:
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


def _of_counts(response: Ids, fault: Fault) -> set[str]:
    marks, length = set[str](), len(response)
    buffer = torch.tensor([*response, PAD, PAD])
    counted = fault.count(buffer, length)
    if fault.prompt_counts:
        marks.add("counts: prompt")
    if not counted[:length].all():
        marks.add("counts: no end")
    if counted[length:].any():
        marks.add("counts: behind")
    if END in response and not set(fault.ends) & set(response):
        marks.add("end: not seen")
    return marks
