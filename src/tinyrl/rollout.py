"""Batched generation with a KV cache: the inference engine of the pair.

It reports, for each sampled token, the logprob under the stack that sampled it. That is
the number which the trainer must later agree with.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from .kernels import Ops
from .model import GPT, Cache
from .moe import Routes
from .positions import Places
from .sampling import gumbel
from .stack import Stack
from .tokens import response_mask

PREFILL_ROWS = 64
"""Prompts that are read at once: what a layer makes of them stays in the processor's
cache, which took 7 ms instead of 12 for 256 prompts of 16 tokens."""


@dataclass(frozen=True)
class Batch:
    """Sampled responses. Rows are sequences, right-padded over T response columns."""

    prompt: Tensor
    """Token ids `[B, P]`."""
    response: Tensor
    """Token ids `[B, T]`; the pad id behind the end."""
    mask: Tensor
    """Boolean `[B, T]`, true up to and including the end token."""
    logp_rollout: Tensor
    """Logprob of each token as the rollout stack reported it, `[B, T]`; 0 in padding."""
    top1_rollout: Tensor
    """The rollout stack's likeliest token at each place, `[B, T]`."""
    routes: Routes | None = None
    """Of a mixture of experts: the routes of the tokens read, `[B, P + T - 1, ...]`."""
    kept: Tensor | None = None
    """Boolean `[B, T, V]`: what top-k, top-p, min-p left; None where nothing is cut."""

    @property
    def read(self) -> Tensor:
        """Boolean `[B, P + T - 1]`: tokens read on the way to a real response token."""
        prompt = torch.ones_like(self.prompt[:, 1:], dtype=torch.bool)
        return torch.cat([prompt, self.mask], 1)


@torch.no_grad()
def rollout(
    model: GPT,
    prompts: Tensor,
    stack: Stack,
    generator: torch.Generator,
    *,
    max_new: int,
    eos_id: int | Sequence[int],
    pad_id: int,
) -> Batch:
    """Sample one response of at most `max_new` tokens for each of `prompts [B, P]`.

    `eos_id` is one id, or all that end a response.
    """
    ends = torch.tensor(eos_id).flatten()
    if prompts.dim() != 2 or prompts.numel() == 0:
        raise ValueError(f"prompts must be [B, P] with tokens, got {list(prompts.shape)}")
    (B, P), longest = prompts.shape, model.config.block_size
    if longest < P:
        raise ValueError(f"prompts of {P} tokens do not fit in block_size {longest}")
    if max_new < 1 or P + max_new - 1 > longest:  # the last token is never read
        raise ValueError(
            f"max_new must be 1 to {longest + 1 - P} for prompts of {P} tokens and "
            f"block_size {longest}, not {max_new}"
        )
    ops, cache = stack.ops(), Cache(model.config, B)
    at = model.places(stack.positions.ids(P, P + max_new))
    sampler, V = stack.sampler, model.config.vocab_size
    if not 0 <= pad_id < V:
        raise ValueError(f"pad_id must be 0..{V - 1}, not {pad_id}")
    noise = gumbel((max_new, B, V), generator)
    logits = prefill(model, prompts, ops, at, cache)
    seen, kept, tokens = [], [], []
    penalises = sampler.repetition_penalty != 1.0
    before = one_hot(prompts, V).any(1) if penalises else None
    alive = torch.ones(B, dtype=torch.bool)
    for t in range(max_new):
        scores = sampler.process(logits, before)
        token = (scores + noise[t]).argmax(-1)
        seen.append(logits)
        tokens.append(torch.where(alive, token, pad_id))
        if sampler.cuts:
            kept.append(scores > -torch.inf)
        if before is not None:
            before = before.scatter(1, tokens[-1][:, None], True)
        alive = alive & (token[:, None] != ends).all(1)
        if t + 1 == max_new or not alive.any():
            break
        place = at.part(slice(P + t, P + t + 1))
        logits = model.forward(tokens[-1][:, None], ops, place, cache)[:, 0]
    response, all_logits = torch.stack(tokens, 1), torch.stack(seen, 1)
    mask = response_mask(response, ends.tolist())
    before = sampler.before(prompts, response, V)
    cut = torch.stack(kept, 1) if kept else None
    way = stack.kernels.logsumexp
    logp = sampler.reported(all_logits, response, way, before, cut).masked_fill(~mask, 0.0)
    top1 = sampler.penalised(all_logits, before).argmax(-1)
    routes = None if cache.routes is None else cache.routes[:, : cache.length]
    return Batch(prompts, response, mask, logp, top1, routes, cut)


def prefill(model: GPT, prompts: Tensor, ops: Ops, at: Places, cache: Cache) -> Tensor:
    """Read the prompts into the cache; the logits `[B, V]` of what follows them.

    `kernels.prefill` tokens in a pass: what an earlier pass left is read from the cache.
    """
    parts, P = [], prompts.shape[1]
    chunk = ops.kernels.prefill or P
    for start in range(0, len(prompts), PREFILL_ROWS):
        rows = slice(start, start + PREFILL_ROWS)
        view = cache.rows(rows)
        for first in range(0, P, chunk):
            some = slice(first, first + chunk)
            ids, place = prompts[rows, some], at.part(slice(first, min(P, some.stop)))
            logits = model.forward(ids, ops, place, view, ids.shape[1] - 1)[:, 0]
        parts.append(logits)
    cache.length = P
    return torch.cat(parts)
