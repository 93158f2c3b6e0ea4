"""Softmax attention, in four orders of the same arithmetic.

Every way gives softmax(q k / sqrt(D)) v. They differ in what is summed first: the formula
needs all scores at once, the two others see a few keys at a time and repair what they had
when a larger score turns up. torch's own fused kernel is the fourth.

They differ, too, in what leaves the registers. In 16 bits the formula as written rounds
scores and weights; the two others keep scores, feed rounded weights to the second product
and add the unrounded ones up, as FlashAttention does; the fused kernel keeps all in FP32.

Shapes in one letter: B sequences, T query tokens, S keys, H query heads, K key heads,
D head size. The query heads of one key head are its rows: R = H / K * T.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

Way = Literal["sdpa", "naive", "online", "split_kv"]
Round = Callable[[Tensor], Tensor]

KEY_BLOCK = 8
"""Keys that "online" reads at a time. Real kernels take 64 or 128; the course's sequences
are about 30 tokens long."""

KEY_PARTS = 4
"""Parts into which "split_kv" cuts the keys there are, so the cuts move as these grow."""

QUERY_ROWS = 8
"""With fixed shapes, rows of queries are padded to a multiple of this (see `kernels`)."""

LOWEST = torch.finfo(torch.float32).min
"""Stands for "no score yet": unlike -inf it can be subtracted from itself."""


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    visible: Tensor,
    way: Way = "naive",
    fixed: bool = False,
    rounded: Round = lambda x: x,
) -> Tensor:
    """Attention of `q [B, H, T, D]` to `k, v [B, K, S, D]`: `[B, H, T, D]`.

    `visible` is a boolean `[T, S]` or `[B, T, S]`, true where a query may look; each query
    sees at least one key. `fixed` pads the rows, so that a query's arithmetic is the same
    beside others. `rounded` brings scores and weights to a format where a way rounds them.
    """
    if visible.shape[-2:] != (q.shape[2], k.shape[2]):
        found = [list(x.shape) for x in (visible, q, k)]
        raise ValueError("visible must be [T, S], got {} for q {} and k {}".format(*found))
    alike = visible.dim() == 2  # one picture for all sequences
    visible = visible if alike else visible[:, None]  # [B, 1, T, S]
    if way == "sdpa":
        return F.scaled_dot_product_attention(q, k, v, attn_mask=visible, enable_gqa=True)
    (B, H, T, D), K = q.shape, k.shape[1]
    rows = q.reshape(B, K, H // K * T, D)
    rows = pad_rows(rows, QUERY_ROWS) if fixed else rows
    hidden = None
    if T > 1 or fixed or not alike or not visible.all():  # one query may see all there is
        hidden = ~torch.cat([visible] * (H // K), -2)
        hidden = F.pad(hidden, (0, 0, 0, rows.shape[2] - hidden.shape[-2]))
    y = WAYS[way](rows, k, v, hidden, rounded)
    return y[:, :, : H // K * T].reshape(B, H, T, D)


def scores(rows: Tensor, k: Tensor, hidden: Tensor | None) -> Tensor:
    """q k / sqrt(D), and -inf where a query may not look: `[B, K, R, S]`."""
    s: Tensor = rows @ k.transpose(-1, -2) * rows.shape[-1] ** -0.5
    return s if hidden is None else s.masked_fill(hidden, -torch.inf)


def naive(
    rows: Tensor, k: Tensor, v: Tensor, hidden: Tensor | None, rounded: Round
) -> Tensor:
    """The formula as written ("eager"): scores and weights each go through memory."""
    p = rounded(torch.softmax(rounded(scores(rows, k, hidden)), -1))
    return p @ v


def online(
    rows: Tensor, k: Tensor, v: Tensor, hidden: Tensor | None, rounded: Round
) -> Tensor:
    """FlashAttention: a few keys at a time (arXiv 2307.08691, algorithm 1).

    `y` and `total` are the sums of exp(s - m) v and exp(s - m) over the keys so far, with
    m the largest score so far. A larger one shrinks both; only the last line divides.
    """
    y, total = torch.zeros_like(rows), torch.zeros_like(rows[..., :1])
    m = torch.full_like(total, LOWEST)
    for start in range(0, k.shape[2], KEY_BLOCK):
        keys = slice(start, start + KEY_BLOCK)
        s = scores(rows, k[:, :, keys], None if hidden is None else hidden[..., keys])
        higher = torch.maximum(m, s.detach().amax(-1, keepdim=True))
        p, shrink = torch.exp(s - higher), torch.exp(m - higher)
        y = y * shrink + rounded(p) @ v[:, :, keys]
        total = total * shrink + p.sum(-1, keepdim=True)
        m = higher
    return y / total


def split_kv(
    rows: Tensor, k: Tensor, v: Tensor, hidden: Tensor | None, rounded: Round
) -> Tensor:
    """Flash-decoding: a softmax for each part of the keys, merged by their logsumexp.

    softmax over all keys = sum over parts of exp(lse_part - lse) * softmax over the part.
    """
    outputs, lses = [], []
    size = -(-k.shape[2] // KEY_PARTS)
    for start in range(0, k.shape[2], size):
        keys = slice(start, start + size)
        s = scores(rows, k[:, :, keys], None if hidden is None else hidden[..., keys])
        m = s.detach().amax(-1, keepdim=True).clamp(min=LOWEST)
        p = torch.exp(s - m)
        total = p.sum(-1, keepdim=True).clamp(min=1)  # it is, unless all is hidden
        outputs.append(rounded(p) @ v[:, :, keys] / total)
        lses.append(m + total.log())
    shares = torch.softmax(torch.cat(lses, -1), -1).chunk(len(lses), -1)
    merged = shares[0] * outputs[0]
    for share, y in zip(shares[1:], outputs[1:], strict=True):
        merged = merged + share * y
    return merged


def pad_rows(x: Tensor, multiple: int) -> Tensor:
    """`[..., rows, D]` with zero rows added up to a multiple."""
    missing = -x.shape[-2] % multiple
    return F.pad(x, (0, 0, 0, missing)) if missing else x


WAYS: dict[Way, Callable[[Tensor, Tensor, Tensor, Tensor | None, Round], Tensor]] = {
    "naive": naive,
    "online": online,
    "split_kv": split_kv,
}
