"""From logits to a token, and to the logprob that is reported for it.

The distribution that a token is drawn from and the logprob that an engine reports need not
belong together: engines return it before ("raw") or after ("processed") temperature.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from .formats import check_choices
from .kernels import LogSumExp
from .logprobs import token_logp


@dataclass(frozen=True)
class Sampler:
    """How a stack turns logits into a distribution, and which logprob it reports."""

    temperature: float = 1.0
    logprobs: Literal["processed", "raw"] = "processed"

    def __post_init__(self) -> None:
        check_choices(self)
        if not self.temperature > 0:
            raise ValueError(f"temperature must be above 0, not {self.temperature}")

    def process(self, logits: Tensor) -> Tensor:
        """The logits that are sampled from, `[..., V]`."""
        return logits if self.temperature == 1.0 else logits / self.temperature

    def reported(self, logits: Tensor, ids: Tensor, way: LogSumExp = "fused") -> Tensor:
        """The logprob reported for `ids [B, T]` under `logits [B, T, V]`: `[B, T]`."""
        seen = self.process(logits) if self.logprobs == "processed" else logits
        return token_logp(seen, ids, way)


def gumbel(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """Gumbel noise: `argmax(logits + noise)` is a draw from softmax(logits).

    The same generator gives the same noise whatever the stack, so two stacks sample
    different tokens only where their distributions differ.
    """
    return -torch.empty(shape).exponential_(generator=generator).log()
