"""Softmax policies with real rounding and real faults, for tests that look for causes."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from hypothesis import strategies as st
from torch import Tensor

from tinyrl.diagnosis import diagnose
from tinyrl.formats import quantise

NOISES = ("order", "fp16", "bf16", "int8", "fp8_e4m3", "int4", "w4a4", "logits", "stale")


@dataclass
class Policy:
    """Hidden states `[B, T, H]` and a head `[V, H]`, with sure and unsure contexts."""

    hidden: Tensor
    head: Tensor
    mask: Tensor
    generator: torch.Generator
    drawn: tuple[object, ...]  # the arguments of `draw`

    @classmethod
    def draw(cls, seed: int, B: int, T: int, V: int, sharp: tuple[float, float]) -> Policy:
        """Sharpness is log-uniform over contexts; lengths are uniform over T/2 to T."""
        g = torch.Generator().manual_seed(seed)
        low, high = (math.log(s) for s in sharp)
        scale = (low + (high - low) * torch.rand(B, T, 1, generator=g)).exp()
        hidden = scale * torch.randn(B, T, 32, generator=g) / 32**0.5
        length = torch.randint((T + 1) // 2, T + 1, (B, 1), generator=g)
        head, mask = torch.randn(V, 32, generator=g), torch.arange(T) < length
        return cls(hidden, head, mask, g, (seed, B, T, V, sharp))

    def logits(self, noise: str = "none") -> Tensor:
        """`[B, T, V]` from this head, or from it as a format, or a near one, has it."""
        h, W = self.hidden, self.head
        if noise == "order":
            return h.flip(-1) @ W.flip(-1).T
        if noise in ("fp16", "bf16"):
            return quantise(quantise(h, noise) @ quantise(W, noise).T, noise)
        if noise in ("int8", "int4", "fp8_e4m3"):
            return h @ quantise(W, noise).T
        if noise == "w4a4":
            return quantise(h, "int4") @ quantise(W, "int4").T
        if noise == "logits":
            return h @ W.T + 0.3 * self.normal(*h.shape[:2], len(W))
        if noise == "stale":
            return h @ (W + 0.1 * self.normal(*W.shape)).T
        return h @ W.T

    def behind_another_prefix(self, tokens: float, size: float = 0.5) -> Tensor:
        """Logits of states that a wrong prefix disturbs, less and less with distance."""
        fade = size * (-torch.arange(self.hidden.shape[1]) / tokens).exp()[:, None]
        norm = self.hidden.norm(dim=-1, keepdim=True) / 32**0.5
        return (self.hidden + fade * norm * self.normal(*self.hidden.shape)) @ self.head.T

    def sample(self, logits: Tensor) -> Tensor:
        noise = torch.empty_like(logits).exponential_(generator=self.generator).log()
        return (logits - noise).argmax(-1)

    def normal(self, *shape: int) -> Tensor:
        return torch.randn(*shape, generator=self.generator)

    def uniform(self, *shape: int) -> Tensor:
        return torch.rand(*shape, generator=self.generator)


def logp(logits: Tensor, ids: Tensor) -> Tensor:
    return torch.log_softmax(logits, -1).gather(-1, ids[..., None])[..., 0]


def top_p(logits: Tensor, p: float) -> Tensor:
    """Keep the likeliest tokens whose probabilities reach p, as engines do."""
    ordered, ids = logits.sort(-1, descending=True)
    prob = ordered.softmax(-1)
    kept = ordered.masked_fill(prob.cumsum(-1) - prob >= p, -math.inf)
    return torch.full_like(logits, -math.inf).scatter(-1, ids, kept)


def top_k(logits: Tensor, k: int) -> Tensor:
    return logits.masked_fill(logits < logits.topk(k, -1).values[..., -1:], -math.inf)


def one_late(x: Tensor, policy: Policy) -> Tensor:
    """Each logprob one column later, the first one that of a prompt token."""
    return torch.cat([-3 * policy.uniform(len(x), 1), x[:, :-1]], 1)


def one_early(x: Tensor, policy: Policy) -> Tensor:
    return torch.cat([x[:, 1:], -3 * policy.uniform(len(x), 1)], 1)


SHARP = [(1, 12), (0.5, 4), (4, 30)]  # entropies of about 1.5, 3 and 0.5 nats at V = 64
SHAPES = [(64, 32), (16, 128), (256, 13), (32, 64)]
seeds = st.integers(0, 2**32 - 1)


def policy(seed: int) -> Policy:
    """A policy of a realistic size, all kinds in turn."""
    (B, T), V, sharp = SHAPES[seed % 4], (16, 64, 512)[seed % 3], SHARP[seed // 3 % 3]
    return Policy.draw(seed, B, T, V, sharp)


def causes(a, b, mask=None):
    return {found.cause for found in diagnose(a, b, mask).findings}
