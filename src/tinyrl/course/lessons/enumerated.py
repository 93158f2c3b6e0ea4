"""Every response of a tiny world, so that a weighted gradient's bias and noise are exact.

V tokens, T of them a response, a policy with logits of its own behind every prefix: few
enough responses to add up all of them, each as often as the rollout's policy samples it.
Nothing is drawn but the world itself.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from tinyrl.correction import Correction
from tinyrl.logprobs import number

LARGEST = 20_000
"""Responses that are still added up at once."""
SUREST = 20.0
"""How far `sure` may go: beyond, 1 - p of the right token drowns in float64's rounding."""


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
        if not number("responses", responses) > 0:
            raise ValueError(f"responses must be above 0, not {responses}")
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
        for name in ("logits_train", "logits_rollout"):
            logits = getattr(self, name)
            if not isinstance(logits, Tensor):
                raise TypeError(f"{name} must be a tensor, not {type(logits).__name__}")
            if logits.dim() != 2:
                raise ValueError(f"{name} must be [P, V], got {list(logits.shape)}")
        P, V = self.logits_train.shape
        wanted = _prefixes(V, self.length)
        if self.logits_rollout.shape != (P, V) or wanted != P:
            raise ValueError(
                f"logits must be [{wanted}, {V}] for {self.length} tokens of {V}, got "
                f"{[P, V]} and {list(self.logits_rollout.shape)}"
            )
        for name in ("logits_train", "logits_rollout"):
            logits = getattr(self, name)
            if logits.dtype != torch.float64:
                raise ValueError(f"{name} must be float64, not {logits.dtype}")
            bad = (~logits.isfinite()).nonzero().tolist()
            if bad:
                raise ValueError(f"{name} row {bad[0][0]} holds {logits[tuple(bad[0])]}")

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

    @property
    def size(self) -> float:
        """Mean |d| of the rollout's tokens, d = logp_train - logp_rollout."""
        each = (self.train - self.rollout).abs().mean(1)
        return (self.chances * each).sum().item()

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

    def directions(self, correction: Correction) -> tuple[float, float]:
        """Cosines of E[g] with the gradients of J(trainer) and J(rollout)."""
        g = self.expected(self._weights(correction)[0]).flatten()
        goals = (self.true_gradient, self.rollout_gradient)
        train, rollout = (torch.cosine_similarity(g, G.flatten(), 0).item() for G in goals)
        return train, rollout

    @cached_property
    def _advantage(self) -> Tensor:
        return (self.reward - (self.chances * self.reward).sum())[:, None]

    @cached_property
    def _lengths(self) -> Tensor:
        """|d log pi(token t) / d logits|^2 = |onehot - pi|^2, `[N, T]`."""
        p = self.logits_train.softmax(1)
        return (p.square().sum(1, keepdim=True) - 2 * p + 1)[self.prefix, self.ids]

    def moments(self, correction: Correction) -> Moments:
        """Bias and noise of the corrected gradient; what is dropped counts as a 0.

        So it divides by all tokens whatever `denominator` says: where a loss divides by
        those that are kept, E[g] of a large batch is this over `kept`, along the same line.
        `ValueError` for `normalise`: a batch's mean weight is no number of one response.
        """
        return self.of(*self._weights(correction))

    def _weights(self, correction: Correction) -> tuple[Tensor, Tensor]:
        step: Correction | None = correction
        while step is not None:
            if step.normalise:
                raise ValueError(
                    "normalise divides by the mean of a batch: one response has no moments"
                )
            step = step.also
        everything = torch.ones_like(self.ids, dtype=torch.bool)
        weight, kept = correction.apply(self.train, self.rollout, everything)
        return torch.where(kept, weight, 0.0), kept

    def of(self, weight: Tensor, kept: Tensor | None = None) -> Moments:
        """The same of any weights `[N, T]`, 0 where a token is dropped, and what was kept.

        `ValueError` where the true gradient is 0, which nothing can be told in lengths of.
        """
        kept = torch.ones_like(self.ids).bool() if kept is None else kept
        for name, x in (("weight", weight), ("kept", kept)):
            if x.shape != self.ids.shape:
                raise ValueError(
                    f"{name} must be {list(self.ids.shape)}, got {list(x.shape)}"
                )
        if kept.dtype != torch.bool:
            raise ValueError(f"kept must be boolean, not {kept.dtype}")
        bad = (~weight.isfinite()).nonzero().tolist()
        if bad:
            n, t = bad[0]
            raise ValueError(f"weight row {n}, column {t} is {weight[n, t].item()}")
        if not self.true_gradient.norm() > 0:
            raise ValueError("the true gradient is 0: logits_train leave nothing to learn")
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
    if not isinstance(generator, torch.Generator):
        raise TypeError(f"generator must be a torch.Generator, not {generator!r}")
    if not 0 <= number("gap", gap) < math.inf:
        raise ValueError(f"gap must be a number from 0, not {gap}")
    if not -SUREST <= number("sure", sure) <= SUREST:
        raise ValueError(f"sure must be from {-SUREST:g} to {SUREST:g}, not {sure}")
    P = _prefixes(vocab, length)
    own, off = (
        torch.randn(P, vocab, generator=generator, dtype=torch.float64) for _ in range(2)
    )
    logits = own / 2
    logits[:, 0] += sure
    return World(logits, logits + gap * off, length)


class Versus(NamedTuple):
    """One correction against another in the same worlds."""

    bias: list[float]
    """Over that of the other, in rising order."""
    noise: list[float]
    """Over that of the other, in rising order."""
    nearer: int
    """Worlds in which its cosine is nearer to 1."""

    def __str__(self) -> str:
        more = sum(b > 1 for b in self.bias)
        bias, noise = (f"{x[0]:.2f}-{x[-1]:.2f}" for x in (self.bias, self.noise))
        return (
            f"bias x {bias} (more in {more}), noise x {noise}, cosine higher in "
            f"{self.nearer}"
        )


def versus(worlds: Sequence[World], one: Correction, other: Correction) -> Versus:
    """How `one` fares against `other`, which must leave some bias in every world."""
    pairs = [(w.moments(one), w.moments(other)) for w in worlds]
    return Versus(
        sorted(a.bias / b.bias for a, b in pairs),
        sorted(a.noise / b.noise for a, b in pairs),
        sum(a.cosine > b.cosine for a, b in pairs),
    )


def table(columns: Mapping[str, Mapping[str, Moments]]) -> str:
    """Bias, noise of one response, cosine and ESS: a line for each name, as in each column.

    `columns` must not be empty, and all must have the names of the first.
    """
    names = list(next(iter(columns.values())))
    width = max(map(len, names)) + 2
    head = (f"{title + ': bias noise cosine  ESS':>32}" for title in columns)
    lines = [" " * width + "".join(head)]
    for name in names:
        each = (moments[name] for moments in columns.values())
        row = (f"{m.bias:14.3f}{m.noise:6.1f}{m.cosine:7.3f}{m.ess:5.0%}" for m in each)
        lines.append(f"{name:{width}}" + "".join(row))
    return "\n".join(lines)


def _prefixes(vocab: int, length: int) -> int:
    """How many prefixes there are, before anything so large is made."""
    for name, value, least in (("vocab", vocab, 2), ("length", length, 1)):
        if type(value) is not int or value < least:
            raise ValueError(f"{name} must be a whole number from {least}, not {value!r}")
    if length * math.log(vocab) > math.log(LARGEST):
        raise ValueError(f"{vocab}^{length} responses are too many to add up")
    return sum(vocab**t for t in range(length))
