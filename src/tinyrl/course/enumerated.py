"""Every response of a tiny world, so that a weighted gradient's bias and noise are exact.

V tokens, T of them a response, a policy with logits of its own behind every prefix: few
enough responses to add up all of them, each as often as the rollout's policy samples it.
Nothing is drawn but the world itself.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from ..correction import Correction

LARGEST = 20_000
"""Responses that are still added up at once."""


class Moments(NamedTuple):
    """Of the gradient that one weighted response gives, in lengths of the true gradient."""

    bias: float
    """|E[g] - G| / |G|: what no number of responses takes away."""
    noise: float
    """Root of the summed variances of g, / |G|: divide by the root of their number."""
    ess: float
    """(E w)^2 / E w^2 over tokens, what was dropped with weight 0."""
    kept: float
    """Share of the rollout's tokens that is kept."""
    mean: float
    """E w over tokens, what was dropped with weight 0."""
    cosine: float
    """Of E[g] and G."""

    def error(self, responses: float) -> float:
        """Root of the expected |mean of so many g - G|^2, / |G|."""
        return math.hypot(self.bias, self.noise / math.sqrt(responses))


@dataclass(frozen=True)
class World:
    """Two policies over all responses, and the reward of the one that is right.

    `logits_train [P, V]` and `logits_rollout [P, V]` float64, a row for each of the
    P = 1 + V + ... + V^(T-1) prefixes, shorter ones first. The right response is all 0s:
    reward 1, as in the course's tasks; every other has 0.
    """

    logits_train: Tensor
    logits_rollout: Tensor
    length: int

    def __post_init__(self) -> None:
        P, V = self.logits_train.shape
        wanted = sum(V**t for t in range(self.length))
        if self.logits_rollout.shape != (P, V) or wanted != P:
            raise ValueError(
                f"logits must be [{wanted}, {V}] for {self.length} tokens of {V}, got "
                f"{[P, V]} and {list(self.logits_rollout.shape)}"
            )
        if V**self.length > LARGEST:
            raise ValueError(f"{V}^{self.length} responses are too many to add up")

    @cached_property
    def ids(self) -> Tensor:
        """Every response, `[N, T]`."""
        V, T = self.logits_train.shape[1], self.length
        return torch.cartesian_prod(*[torch.arange(V)] * T).view(-1, T)

    @cached_property
    def prefix(self) -> Tensor:
        """The row of the logits behind which each token stands, `[N, T]`."""
        V, T = self.logits_train.shape[1], self.length
        digits = V ** torch.arange(T).flip(0)
        before = (self.ids * digits).cumsum(1) - self.ids * digits
        first = torch.tensor([sum(V**k for k in range(t)) for t in range(T)])
        return before // (digits * V) + first

    def logp(self, logits: Tensor) -> Tensor:
        """What a policy gives each token of each response, `[N, T]`."""
        return logits.log_softmax(1)[self.prefix, self.ids]

    @cached_property
    def train(self) -> Tensor:
        """The trainer's logprobs, `[N, T]`."""
        return self.logp(self.logits_train)

    @cached_property
    def rollout(self) -> Tensor:
        """The rollout's logprobs, `[N, T]`."""
        return self.logp(self.logits_rollout)

    @cached_property
    def reward(self) -> Tensor:
        """`[N]`."""
        return (self.ids == 0).all(1).double()

    @cached_property
    def chances(self) -> Tensor:
        """How often the rollout's policy gives each response, `[N]`."""
        return self.rollout.sum(1).exp()

    def gradient(self, chances: Tensor, coefficients: Tensor) -> Tensor:
        """sum_n chances[n] sum_t coefficients[n, t] d log pi(y_t) / d logits, `[P, V]`."""
        c = (chances[:, None] * coefficients).flatten()
        P, V = self.logits_train.shape
        place = (self.prefix * V + self.ids).flatten()
        chosen = torch.bincount(place, c, P * V).view(P, V)
        return chosen - chosen.sum(1, keepdim=True) * self.logits_train.softmax(1)

    @cached_property
    def true_gradient(self) -> Tensor:
        """That of the trainer's policy's own expected reward, `[P, V]`."""
        chances = self.train.sum(1).exp()
        return self.gradient(chances, self.reward[:, None].expand(self.ids.shape))

    @cached_property
    def rollout_gradient(self) -> Tensor:
        """That of the rollout's policy's expected reward by its own logits, `[P, V]`."""
        own = World(self.logits_rollout, self.logits_rollout, self.length)
        return own.true_gradient

    def expected(self, weight: Tensor) -> Tensor:
        """E[g] of g = sum_t w_t (R - b) d log pi_t, b the mean reward, `[P, V]`."""
        return self.gradient(self.chances, weight * self._advantage)

    @cached_property
    def _advantage(self) -> Tensor:
        return (self.reward - (self.chances * self.reward).sum())[:, None]

    @cached_property
    def _lengths(self) -> Tensor:
        """|d log pi(token t) / d logits|^2 = |onehot - pi|^2, `[N, T]`."""
        p = self.logits_train.softmax(1)
        return (p.square().sum(1, keepdim=True) - 2 * p + 1)[self.prefix, self.ids]

    def moments(self, correction: Correction) -> Moments:
        """Bias and noise of the corrected gradient; what is dropped counts as a 0."""
        everything = torch.ones_like(self.ids, dtype=torch.bool)
        weight, kept = correction.apply(self.train, self.rollout, everything)
        return self.of(torch.where(kept, weight, 0.0), kept)

    def of(self, weight: Tensor, kept: Tensor | None = None) -> Moments:
        """The same of any weights `[N, T]`."""
        kept = torch.ones_like(weight).bool() if kept is None else kept
        G, mean = self.true_gradient, self.expected(weight)
        # Places of one response stand behind different prefixes: their squares add up.
        square = (weight * self._advantage).square() * self._lengths
        variance = (self.chances * square.sum(1)).sum() - mean.square().sum()
        by_token = self.chances[:, None] / self.length
        w, w2 = (by_token * weight).sum(), (by_token * weight.square()).sum()
        return Moments(
            ((mean - G).norm() / G.norm()).item(),
            (variance.clamp(min=0).sqrt() / G.norm()).item(),
            (w * w / w2).item() if w2 > 0 else 0.0,
            (by_token * kept).sum().item(),
            w.item(),
            torch.cosine_similarity(mean.flatten(), G.flatten(), 0).item(),
        )


def world(
    generator: torch.Generator,
    *,
    gap: float,
    length: int = 5,
    vocab: int = 3,
    sure: float = 2.0,
) -> World:
    """A trainer that is right at most places, and a rollout whose logits are off by noise.

    `sure` is how far the right token's logit lies above the mean of the others'; `gap` the
    standard deviation of what the rollout's logits are off by. One generator gives the same
    trainer and the same noise, larger or smaller, at every gap.
    """
    if length < 1 or vocab < 2 or not 0 <= gap < math.inf:
        raise ValueError(
            f"length must be 1 or more, vocab 2 or more and gap 0 or more, not {length}, "
            f"{vocab} and {gap}"
        )
    P = sum(vocab**t for t in range(length))
    own, off = (
        torch.randn(P, vocab, generator=generator, dtype=torch.float64) for _ in range(2)
    )
    logits = own / 2
    logits[:, 0] += sure
    return World(logits, logits + gap * off, length)
