"""Exposure bias: what a model reads in training, what it reads in use, and errors by place.

Teacher forcing reads the gold prefix, free running the model's own. `drive` does either and
all between, with slips put in; `own_prefixes` trains on such drives: scheduled sampling
(arXiv 1506.03099) and DAgger (arXiv 1011.0686) differ in who says what comes next.

T is the length of an answer; a place is one of its columns.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from .model import GPT, Cache
from .rollout import prefill
from .sampling import gumbel
from .stack import Stack
from .tasks import CumSum
from .trainer import Mixer

Guide = Literal["gold", "expert"]
ENGINE = Stack()
"""What drives: made once, since checking its fields takes as long as a step."""


class Drive(NamedTuple):
    """Answers as they were driven. All ids `[B, T]`."""

    said: Tensor
    """What the model sampled at each place."""
    read: Tensor
    """What it then read there: its own token, the guide's, or a slip."""
    guide: Tensor
    """What the guide would have said at each place."""


@torch.no_grad()
def drive(
    model: GPT,
    task: CumSum,
    prompts: Tensor,
    generator: torch.Generator,
    *,
    own: float = 1.0,
    slips: Tensor | None = None,
    guide: Guide = "gold",
) -> Drive:
    """Answer `prompts [B, P]`, reading the model's own token with probability `own`.

    Else the guide's is read: the gold answer's token at that place, or the expert's, who
    goes on from what was read before. Where `slips` (bool `[B, T]`) is true, a digit
    that is read is one more than it was. `own` 0 is teacher forcing, 1 free running. A
    drive doesn't stop at an end token: all places are compared.
    """
    _check_guide(guide)
    _check_probabilities(own=own)
    (B, P), T, stack = prompts.shape, task.max_new, ENGINE
    slips = torch.zeros((B, T), dtype=torch.bool) if slips is None else slips
    if slips.shape != (B, T) or slips.dtype != torch.bool:
        found = f"{slips.dtype} {list(slips.shape)}"
        raise ValueError(f"slips must be bool {[B, T]}, not {found}")
    ops, cache = stack.ops(), Cache(model.config, B)
    at = model.places(stack.positions.ids(P, P + T))
    noise = gumbel((T, B, model.config.vocab_size), generator)
    mine = torch.rand((B, T), generator=generator) < own
    guided = task.answer(prompts)
    said, read = torch.zeros((2, B, T), dtype=torch.long)
    logits = prefill(model, prompts, ops, at, cache)
    for t in range(T):
        if guide == "expert":
            guided[:, t] = task.expert(prompts, read[:, : t + 1])[:, t]
        said[:, t] = (logits + noise[t]).argmax(-1)
        token = torch.where(mine[:, t], said[:, t], guided[:, t])
        read[:, t] = torch.where(slips[:, t], slip(token, task), token)
        if t + 1 < T:
            place = at.part(slice(P + t, P + t + 1))
            logits = model.forward(read[:, t : t + 1], ops, place, cache)[:, 0]
    return Drive(said, read, guided)


def slip(tokens: Tensor, task: CumSum) -> Tensor:
    """Ids whose digits are one more, modulo 10; others stay."""
    zero = task.tokenizer.digit_0
    return torch.where(tokens < zero, tokens, zero + (tokens - zero + 1) % 10)


def own_prefixes(
    model: GPT,
    task: CumSum,
    generator: torch.Generator,
    *,
    guide: Guide,
    own: float = 1.0,
    p_slip: float = 0.15,
    after: float = 1 / 3,
) -> Mixer:
    """For `sft`: from the share `after` of the steps on, half of a batch is driven.

    Of an odd number of rows it is the larger half, so a batch of one is driven, too. These
    rows read what `drive` makes of them with slips of probability `p_slip`, and are asked
    for what the guide says. "gold": scheduled sampling (arXiv 1506.03099), which asks for
    the token of the right answer, whatever was read before it. "expert": DAgger (arXiv
    1011.0686), which asks for the right continuation of what was read; what earlier
    versions of the model did is not kept.
    """
    _check_guide(guide)
    _check_probabilities(own=own, p_slip=p_slip, after=after)

    def mix(progress: float, prompts: Tensor, gold: Tensor) -> tuple[Tensor, Tensor]:
        if progress < after:
            return gold, gold
        rows = prompts[: (len(prompts) + 1) // 2]
        slips = torch.rand((len(rows), task.max_new), generator=generator) < p_slip
        driven = drive(model, task, rows, generator, own=own, slips=slips, guide=guide)
        read, asked = (
            torch.cat([half, gold[len(rows) :]]) for half in (driven.read, driven.guide)
        )
        return read, asked

    return mix


# ---- errors


def errors_by_position(said: Tensor, right: Tensor, where: Tensor | None = None) -> Tensor:
    """Ids `[B, T]` twice -> `[T]` float64: the share that is wrong at each place.

    Of the tokens where bool `where [B, T]` is true, if given; NaN where there is none.
    """
    _check_ids(said=said, right=right)
    if where is not None:
        _check_bool("where", where, said.shape)
    counted = torch.ones_like(said, dtype=torch.bool) if where is None else where
    return ((said != right) & counted).sum(0) / counted.sum(0).double()


def hazard(wrong: Tensor) -> Tensor:
    """Bool `[B, T]` -> `[T]` float64: share of answers right so far that err."""
    _check_bool("wrong", wrong)
    before = F.pad(wrong, (1, -1)).cummax(1).values
    return (wrong & ~before).sum(0) / (~before).sum(0).double()


def local_errors(said: Tensor, expert: Tensor, off: Tensor) -> tuple[float, float]:
    """Share of tokens that aren't the expert's, where `off [B, T]` is false and where true.

    Each is judged by what the model had read, so that an error counts once. NaN where
    there is no such token.
    """
    _check_ids(said=said, expert=expert)
    _check_bool("off", off, said.shape)
    wrong = (said != expert).double()
    return wrong[~off].mean().item(), wrong[off].mean().item()


def expected_errors(
    kernel: Tensor, T: int, own: float = 1.0, slips: Tensor | None = None
) -> Tensor:
    """The errors by place `[T]`, float64, of a model that errs alike whatever it has read.

    `kernel [10]` is the probability that one step is wrong by 0 .. 9. Errors add up modulo
    10: their distribution is convolved with the kernel step after step. `own` and `slips`
    (here the probability at each place, `[T]`) are those of `drive` with the gold guide.
    For errors uniform over 1 .. 9 with h in all, and free running, this is
    9/10 (1 - (1 - 10 h / 9)^t).
    """
    _check_probabilities(own=own)
    if T < 1:
        raise ValueError(f"T is {T}: it must be at least 1")
    _check_chances("kernel", kernel, 10)
    if abs((total := kernel.double().sum().item()) - 1) > 1e-5:
        raise ValueError(f"kernel sums to {total:g}: its probabilities must sum to 1")
    shift = (torch.arange(10)[:, None] - torch.arange(10)) % 10
    step, right = kernel.double()[shift], torch.eye(10, dtype=torch.double)[0]
    p_slip = torch.zeros(T) if slips is None else slips
    _check_chances("slips", p_slip, T)
    wrong, at = [], right  # at[e]: how often what was read is wrong by e
    for p in p_slip.double():
        said = step @ at
        wrong.append(1 - said[0])
        at = own * said + (1 - own) * right
        at = (1 - p) * at + p * at.roll(1)
    return torch.stack(wrong)


# ---- what arguments must be


def _check_guide(guide: Guide) -> None:
    if guide not in ("gold", "expert"):
        raise ValueError(f"guide is {guide!r}: it is 'gold' or 'expert'")


def _check_probabilities(**probabilities: float) -> None:
    for name, x in probabilities.items():
        if not 0 <= x <= 1:
            raise ValueError(f"{name} is {x}: it must be between 0 and 1")


def _check_chances(name: str, p: Tensor, length: int) -> None:
    """Probabilities `[length]`."""
    if p.shape != (length,):
        raise ValueError(f"{name} must be [{length}], not {list(p.shape)}")
    for row in (~((p >= 0) & (p <= 1))).nonzero().flatten().tolist():
        raise ValueError(f"{name}[{row}] is {p[row]}: it must be between 0 and 1")


def _check_bool(name: str, x: Tensor, shape: torch.Size | None = None) -> None:
    """Bool `[B, T]` with at least one token; of this shape, if given."""
    if x.dtype != torch.bool or x.shape != (shape or x.shape) or not _is_table(x):
        want = "[B, T]" if shape is None else list(shape)
        raise ValueError(f"{name} must be bool {want}, not {x.dtype} {list(x.shape)}")


def _check_ids(**two: Tensor) -> None:
    """Ids `[B, T]` with at least one token, of one shape."""
    (_, first), _ = two.items()
    for name, x in two.items():
        whole = not (x.is_floating_point() or x.is_complex() or x.dtype == torch.bool)
        if not whole or not _is_table(x) or x.shape != first.shape:
            want = list(first.shape) if _is_table(first) else "[B, T]"
            raise ValueError(
                f"{name} must be whole ids {want}, not {x.dtype} {list(x.shape)}"
            )


def _is_table(x: Tensor) -> bool:
    return x.dim() == 2 and x.numel() > 0
