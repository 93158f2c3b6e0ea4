"""A task asks, and can verify the answer without a model: RL with verifiable rewards.

`CumSum` needs a chain of thought: each token is right only if every one before it was.
Its demonstrations are sloppy on purpose, so that supervised training stops at a pass rate
near (1 - p_slip)^n and leaves reinforcement learning something to sharpen.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import torch
from torch import Tensor

from .tokens import Tokenizer


class Task(Protocol):
    """What a trainer needs of a task."""

    @property
    def tokenizer(self) -> Tokenizer: ...

    @property
    def max_new(self) -> int:
        """Tokens that a right response needs, eos included."""
        ...

    def prompts(self, B: int, generator: torch.Generator) -> Tensor:
        """[B, P] ids, all of the same length, ending where the assistant's turn begins."""
        ...

    def demonstrations(self, B: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Prompts [B, P] and responses [B, T] to imitate."""
        ...

    def reward(self, prompts: Tensor, response: Tensor, mask: Tensor) -> Tensor:
        """[B, P], [B, T], bool [B, T] -> [B] float32."""
        ...


@dataclass(frozen=True)
class CumSum:
    """The user says n digits; the answer is their n running totals modulo 10, then eos.

    "3 1 4" -> "3 4 8 <end>". In a demonstration each step goes wrong with probability
    `p_slip`, by 1 to 9 uniformly, and the totals go on from the wrong one.
    """

    n: int = 12
    p_slip: float = 0.08

    def __post_init__(self) -> None:
        if not isinstance(self.n, int) or self.n < 1:
            raise ValueError(f"n is {self.n}: the task needs at least one digit")
        if not 0 <= self.p_slip <= 1:
            raise ValueError(f"p_slip is {self.p_slip}: a probability is between 0 and 1")

    @cached_property
    def tokenizer(self) -> Tokenizer:
        return Tokenizer()

    @property
    def max_new(self) -> int:
        return self.n + 1

    @cached_property
    def _blank(self) -> Tensor:
        """[P] ids of the prompt whose digits are all 0, through the real chat template."""
        zeros = " ".join("0" * self.n)
        return torch.tensor(self.tokenizer.chat([{"role": "user", "content": zeros}]))

    @cached_property
    def _is_digit(self) -> Tensor:
        """[P] bool: where the digits of a prompt are."""
        return self._blank == self.tokenizer.digit_0

    def prompts(self, B: int, generator: torch.Generator) -> Tensor:
        """[B, P] ids of conversations with n uniform digits, P = n + 4."""
        device = generator.device
        digits = torch.randint(10, (B, self.n), generator=generator, device=device)
        prompts = self._blank.to(device).repeat(B, 1)
        prompts[:, self._is_digit.to(device)] += digits
        return prompts

    def answer(self, prompts: Tensor) -> Tensor:
        """[B, P] -> [B, n + 1] ids of the right response, eos included."""
        return self._response(self._digits(prompts))

    def demonstrations(self, B: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Prompts [B, P] and sloppy responses [B, n + 1]."""
        prompts = self.prompts(B, generator)
        digits = self._digits(prompts)
        shape, device = digits.shape, generator.device
        slips = torch.rand(shape, generator=generator, device=device) < self.p_slip
        wrong_by = torch.randint(1, 10, shape, generator=generator, device=device)
        return prompts, self._response(digits + slips * wrong_by)

    def reward(self, prompts: Tensor, response: Tensor, mask: Tensor) -> Tensor:
        """[B] float32: 1 if the response is the answer, whole and nothing after it, else 0.

        `response` is [B, T] and `mask` bool [B, T]; T may be shorter or longer than the
        answer, and padding may hold anything.
        """
        _check_response(prompts, response, mask)
        answer = self.answer(prompts)
        T = min(response.shape[1], self.max_new)
        right = response[:, :T] == answer[:, :T]
        complete = mask.sum(1) == self.max_new
        return (complete & (right | ~mask[:, :T]).all(1)).float()

    def expert(self, prompts: Tensor, prefix: Tensor) -> Tensor:
        """[B, P], [B, T] -> [B, T] ids: the right next token given what was said before it.

        The expert of DAgger (arXiv 1011.0686): column t goes on from column t - 1 of
        `prefix`, be that total right or wrong. After n totals, and after anything that is
        no digit, it ends.
        """
        _check_prefix(prefix, len(prompts), self.tokenizer.vocab_size)
        before = torch.nn.functional.pad(prefix, (1, -1), value=self.tokenizer.digit_0)
        steps = torch.nn.functional.pad(self._digits(prompts), (0, prefix.shape[1]))
        totals = (before - self.tokenizer.digit_0 + steps[:, : prefix.shape[1]]) % 10
        goes_on = (before >= self.tokenizer.digit_0) & (
            torch.arange(prefix.shape[1], device=prefix.device) < self.n
        )
        return torch.where(goes_on, self.tokenizer.digit_0 + totals, self.tokenizer.eos_id)

    def _digits(self, prompts: Tensor) -> Tensor:
        """[B, P] ids -> [B, n] digits; ValueError naming a row that isn't such a prompt."""
        blank, is_digit = self._blank.to(prompts.device), self._is_digit.to(prompts.device)
        if prompts.ndim != 2 or prompts.shape[1] != len(blank):
            want, shape = f"[B, {len(blank)}] for n={self.n}", list(prompts.shape)
            raise ValueError(f"prompts must be {want}, not {shape}")
        digits = prompts - blank
        good = torch.where(is_digit, (digits >= 0) & (digits < 10), digits == 0).all(1)
        if not good.all():
            row = int((~good).nonzero()[0])
            text = prompts[row].tolist()
            raise ValueError(f"prompts[{row}] is not a prompt of {self}: {text}")
        return digits[:, is_digit]

    def _response(self, steps: Tensor) -> Tensor:
        """[B, n] additions -> [B, n + 1] ids of their running totals modulo 10, and eos."""
        totals = self.tokenizer.digit_0 + steps.cumsum(1) % 10
        return torch.nn.functional.pad(totals, (0, 1), value=self.tokenizer.eos_id)


@dataclass(frozen=True)
class EvenRoad(CumSum):
    """`CumSum` with even digits: no right total is odd, and without slips none is shown.

    An answer that slips by 1 stands where training has never been. Short, to be trained
    in seconds.
    """

    n: int = 8
    p_slip: float = 0.0

    def prompts(self, B: int, generator: torch.Generator) -> Tensor:
        """[B, P] ids of conversations with n digits of 0 2 4 6 8, uniform."""
        prompts = super().prompts(B, generator)
        prompts[:, self._is_digit.to(prompts.device)] -= self._digits(prompts) % 2
        return prompts

    def off_road(self, prefix: Tensor) -> Tensor:
        """[B, T] ids -> bool [B, T]: whether the total before each token is odd."""
        digit_0 = self.tokenizer.digit_0
        _check_prefix(prefix, len(prefix), self.tokenizer.vocab_size)
        before = torch.nn.functional.pad(prefix, (1, -1), value=digit_0)
        return (before >= digit_0) & ((before - digit_0) % 2 == 1)


@dataclass(frozen=True)
class Turns(EvenRoad):
    """`EvenRoad` as a chat: the user says one digit a turn, the assistant the total so far.

    What the assistant said in the turn before is part of the question. `prompts` hold the
    digits of all n turns, as those of the other tasks do.
    """

    n: int = 5

    def chat(self, prompts: Tensor, said: Tensor) -> Tensor:
        """[B, P], [B, k] totals said, k < n -> [B, 5 + 6 k] ids, up to the next answer.

        As the chat template renders these 2 k + 1 messages.
        """
        tok, (B, k) = self.tokenizer, said.shape
        if k >= self.n:
            raise ValueError(
                f"said holds {k} totals: with {self.n} turns, at most {self.n - 1}"
            )
        digits = tok.digit_0 + self._digits(prompts)[:, : k + 1]
        parts = {0: tok.user_id, 2: tok.eos_id, 3: tok.assistant_id, 5: tok.eos_id}
        turns = torch.zeros((B, k + 1, 6), dtype=torch.long, device=said.device)
        for at, token in parts.items():
            turns[:, :, at] = token
        turns[:, :, 1], turns[:, :k, 4] = digits, said
        begin = torch.full_like(turns[:, 0, :1], tok.bos_id)
        return torch.cat([begin, turns.flatten(1)], 1)[:, :-2]

    def demonstrations(self, B: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """The first turn's prompt [B, 5], and the rest of the chat [B, 6 n - 4]."""
        prompts = self.prompts(B, generator)
        answer = self.answer(prompts)
        chat = torch.cat([self.chat(prompts, answer[:, : self.n - 1]), answer[:, -2:]], 1)
        return chat[:, :5], chat[:, 5:]

    @cached_property
    def assistants(self) -> Tensor:
        """[6 n - 4] bool: which tokens of a demonstrated response are the assistant's."""
        return torch.arange(6 * self.n - 4) % 6 < 2


def _check_prefix(prefix: Tensor, B: int, V: int) -> None:
    if prefix.ndim != 2 or len(prefix) != B or not prefix.shape[1]:
        raise ValueError(f"prefix must be [{B}, T] with T > 0, not {list(prefix.shape)}")
    bad = ((prefix < 0) | (prefix >= V)).any(1)
    if bad.any():
        row = int(bad.nonzero()[0])
        raise ValueError(
            f"prefix[{row}] has an id outside 0..{V - 1}: {prefix[row].tolist()}"
        )


def _check_response(prompts: Tensor, response: Tensor, mask: Tensor) -> None:
    if response.ndim != 2 or len(response) != len(prompts) or not response.shape[1]:
        want = f"[{len(prompts)}, T] with T > 0"
        raise ValueError(f"response must be {want}, not {list(response.shape)}")
    if mask.shape != response.shape or mask.dtype != torch.bool:
        found = f"{mask.dtype} {list(mask.shape)}"
        raise ValueError(f"mask must be bool {list(response.shape)}, not {found}")
    holes = (mask[:, 1:] & ~mask[:, :-1]).any(1)
    for row in (~mask[:, 0] | holes).nonzero().flatten().tolist():
        what = "has a gap" if holes[row] else "has no token"
        raise ValueError(
            f"mask[{row}] {what}: true on the tokens of a response, then false"
        )
