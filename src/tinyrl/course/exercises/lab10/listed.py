"""What two engines list: the k likeliest tokens of each place, with logprobs."""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from tinyrl.course.exercises.lab01 import batch


def draw(
    generator: Generator, rows: int, columns: int, k: int, vocab: int, padding: bool = False
) -> tuple[Tensor, ...]:
    """Sets of two sides and their logprobs `[B, T, k]`, and the mask."""
    shape = rows, columns, vocab
    rollout = batch.uniform(generator, shape, -3.0, 3.0)
    train = rollout + batch.uniform(generator, shape, -2.0, 2.0)
    mask = batch.mask_of(generator, rows, columns)
    out = []
    for logits in (rollout, train):
        logp, ids = logits.log_softmax(-1).topk(k)
        order = torch.rand(logp.shape, generator=generator).argsort(-1)
        logp, ids = logp.gather(-1, order), ids.gather(-1, order)
        if padding:
            logp = torch.where(mask[..., None], logp, torch.nan)
        out += [ids, logp]
    return (*out, mask)


def spread(ids: Tensor, apart: int = 256) -> Tensor:
    """The ids of a small vocabulary as ids of a large one: above 50 000, where half
    precision has steps of 32, and many of them multiples of `apart` from each other."""
    return 50_000 + ids // 3 + apart * (ids % 3)
