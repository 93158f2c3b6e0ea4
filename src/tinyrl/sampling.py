"""From logits to a token, and to the logprob that is reported for it.

The distribution that a token is drawn from and the logprob that an engine reports need not
belong together: engines return it before ("raw") or after ("processed") all that happens
here. And what a sampler cuts it can never produce, whatever weight is put on it later.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from .formats import check_choices
from .kernels import LogSumExp
from .logprobs import token_logp

SMALLEST = 1e-6
"""Of a temperature or penalty: logits divided by less may leave the range of floats."""


@dataclass(frozen=True)
class Sampler:
    """How a stack turns logits into a distribution, and which logprob it reports.

    In the order of `transformers`: repetition penalty, temperature, top-k, top-p, min-p,
    each on what the one before has left. vLLM takes min-p before top-k and top-p, whose
    shares are then of what min-p has left: with both it may keep fewer.
    `top_k` 0 keeps all, 1 is greedy decoding. `replay`: "rollout" has a trainer cut to
    what the rollout kept (DeepSeek-V3.2's "keep sampling mask", arXiv 2512.02556 §3.1).
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    logprobs: Literal["processed", "raw"] = "processed"
    replay: Literal["own", "rollout"] = "own"

    def __post_init__(self) -> None:
        check_choices(self)
        for name in ("temperature", "repetition_penalty"):
            if not SMALLEST <= getattr(self, name) < torch.inf:
                raise ValueError(
                    f"{name} must be at least {SMALLEST:g}, not {getattr(self, name)}; "
                    "greedy decoding is top_k 1"
                )
        if self.top_k < 0:
            raise ValueError(f"top_k must be 0 (all) or more, not {self.top_k}")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p must be above 0 and at most 1, not {self.top_p}")
        if not 0 <= self.min_p <= 1:
            raise ValueError(f"min_p must be 0 to 1, not {self.min_p}")

    @property
    def cuts(self) -> bool:
        """Whether some tokens may become impossible."""
        return self.top_k > 0 or self.top_p < 1 or self.min_p > 0

    def follow(self, kept: Tensor | None) -> Tensor | None:
        """What a trainer cuts to, given what the rollout kept; None is its own choice.

        A rollout that cut nothing hands over None: following it is keeping all. A sampler
        that cuts itself is given something to follow, else it was forgotten.
        """
        if self.replay == "own":
            return None
        if kept is None and self.cuts:
            raise ValueError(
                "kept is missing: sampler.replay is 'rollout', so hand over Batch.kept. "
                "(None says that the rollout cut nothing; then cut nothing here either.)"
            )
        return torch.tensor(True) if kept is None else kept

    def before(self, prompt: Tensor | None, response: Tensor, V: int) -> Tensor | None:
        """What `penalised` needs: see `occurred`; None where nothing is penalised."""
        if self.repetition_penalty == 1.0:
            return None
        if prompt is None:
            raise ValueError("repetition_penalty needs the prompt: its tokens count too")
        return occurred(prompt, response, V)

    def penalised(self, logits: Tensor, before: Tensor | None = None) -> Tensor:
        """The logits `[..., V]` with those of tokens in `before` (boolean) made smaller.

        CTRL, arXiv 1909.05858 §4.1, divides by the penalty. As in `transformers` a logit
        below 0 is multiplied instead: divided, it would grow. How often does not count.
        """
        if self.repetition_penalty == 1.0:
            return logits
        if before is None:
            raise ValueError("repetition_penalty needs the tokens that stand before")
        if before.dtype != torch.bool or before.shape != logits.shape:
            found = f"{before.dtype} {list(before.shape)}"
            raise ValueError(f"before must be bool {list(logits.shape)}, not {found}")
        r = self.repetition_penalty
        return torch.where(before, torch.where(logits < 0, logits * r, logits / r), logits)

    def process(
        self, logits: Tensor, before: Tensor | None = None, kept: Tensor | None = None
    ) -> Tensor:
        """The logits that are sampled from, `[..., V]`; -inf for what is cut.

        `before`: see `penalised`. `kept`, boolean `[..., V]`, stands in place of the
        sampler's own top-k, top-p and min-p.
        """
        logits = self.penalised(logits, before)
        if self.temperature != 1.0:
            logits = logits / self.temperature
        if kept is not None:
            if kept.dtype != torch.bool or kept.shape not in ((), logits.shape):
                found = f"{kept.dtype} {list(kept.shape)}"
                raise ValueError(f"kept must be bool {list(logits.shape)}, not {found}")
            if not (some := kept.any(-1)).all():
                place = (~some).nonzero()[0].tolist()
                raise ValueError(f"kept keeps no token at {place}: nothing can be sampled")
            return logits.masked_fill(~kept, -torch.inf)
        if self.top_k:
            logits = logits.masked_fill(~top_k(logits, self.top_k), -torch.inf)
        if self.top_p < 1:
            logits = logits.masked_fill(~top_p(logits, self.top_p), -torch.inf)
        if self.min_p:
            logits = logits.masked_fill(~min_p(logits, self.min_p), -torch.inf)
        return logits

    def reported(
        self,
        logits: Tensor,
        ids: Tensor,
        way: LogSumExp = "fused",
        before: Tensor | None = None,
        kept: Tensor | None = None,
    ) -> Tensor:
        """The logprob reported for `ids [B, T]` under `logits [B, T, V]`: `[B, T]`.

        -inf for a token that is cut. `before` and `kept` are those of `process`.
        """
        processed = self.logprobs == "processed"
        seen = self.process(logits, before, kept) if processed else logits
        return token_logp(seen, ids, way)


@torch.no_grad()
def top_k(logits: Tensor, k: int) -> Tensor:
    """Boolean `[..., V]`: the k largest, and whatever ties with the last of them."""
    k = min(k, logits.shape[-1])
    return logits >= logits.topk(k).values[..., -1:]


@torch.no_grad()
def top_p(logits: Tensor, p: float) -> Tensor:
    """Boolean `[..., V]`: the nucleus (arXiv 1904.09751 §3.1), the likeliest tokens whose
    probabilities just reach p. The token that crosses p is in; of ties the sort decides.
    """
    rising, order = logits.sort()
    tail = rising.softmax(-1).cumsum(-1)  # from the unlikeliest up, this token included
    inside = tail > 1 - p
    inside[..., -1] = True
    return torch.empty_like(inside).scatter(-1, order, inside)


@torch.no_grad()
def min_p(logits: Tensor, share: float) -> Tensor:
    """Boolean `[..., V]`: at least `share` of the likeliest's probability (2407.01082)."""
    p = logits.softmax(-1)
    return p >= share * p.amax(-1, keepdim=True)


def occurred(prompt: Tensor, response: Tensor, V: int) -> Tensor:
    """Boolean `[B, T, V]`: the tokens that stand before each of `response [B, T]`."""
    if not prompt.shape[1]:
        raise ValueError("prompt is empty: it needs a token at least")
    ids = torch.cat([prompt, response], 1)[:, :-1]
    seen = torch.nn.functional.one_hot(ids, V).cumsum(1) > 0
    return seen[:, prompt.shape[1] - 1 :]


def gumbel(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """Gumbel noise: `argmax(logits + noise)` is a draw from softmax(logits).

    The same generator gives the same noise whatever the stack, so two stacks sample
    different tokens only where their distributions differ.
    """
    if not isinstance(generator, torch.Generator):  # None is the global one
        raise TypeError(f"generator must be a torch.Generator, not {generator!r}")
    return -torch.empty(shape).exponential_(generator=generator).log()
