"""The same operations, done in different orders: what a kernel changes.

A forward pass is a dozen operations. Each has one definition in real numbers and many in
floating point: they differ in where they round and in what order they add. `make` turns
two frozen descriptions, `Numerics` (what a number is) and `Kernels` (in which order), into
the `Ops` through which all arithmetic of `model.GPT` goes.

Shapes in one letter: B sequences, T query tokens, S cached tokens, H query heads, K key
heads, D head size.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .formats import FormatName, Overflow, check_choices, quantise

WIDE: tuple[FormatName, ...] = ("fp32", "fp16", "bf16")
"""Formats that engines use for everything; narrower ones only enter matrix products."""

GEMM_ROWS, QUERY_ROWS = 16, 8
"""Row counts are padded to multiples of these when shapes are fixed. A BLAS library picks
its inner loop, and so its order of additions, by the number of rows; from these sizes on
it was seen to pick the same one whatever the batch (asserted where it is claimed)."""


@dataclass(frozen=True)
class Numerics:
    """The format of every number in a forward pass.

    `weights` is the format of every matrix, embedding and head included (engines often
    leave those two wide); INT has a scale for each output, FP8 none. `kv` is that of the
    cache. `activations` is the format of the result of each method of `Ops`, rounded once
    at its end, as a fused kernel does. Narrower than 16 bits it applies to what enters a
    layer's weights only, as in engines with 8-bit kernels; the rest stays FP32, so that
    what is seen is the narrow format's doing. `overflow`: see `formats.round_to`.
    """

    weights: FormatName = "fp32"
    activations: FormatName = "fp32"
    kv: FormatName = "fp32"
    overflow: Overflow = "saturate"

    def __post_init__(self) -> None:
        check_choices(self)


@dataclass(frozen=True)
class Kernels:
    """The order of the arithmetic.

    `attention`: torch's fused kernel, or the formula as written. `shapes`: "free" lets
    each matrix have the size that the step happens to have (one row when decoding, all
    when scoring), and decoding its own kernel, as engines do: a single query leaves
    nothing to fuse, and at the course's sizes the formula is quicker. "fixed" pads every
    product and the key axis to fixed sizes, so that a token's arithmetic does not depend
    on what is computed beside it.
    """

    attention: Literal["sdpa", "naive"] = "sdpa"
    shapes: Literal["free", "fixed"] = "free"

    def __post_init__(self) -> None:
        check_choices(self)


class Ops:
    """The operations of a forward pass under one `Kernels` and one `Numerics`.

    Make one for each pass or rollout: rounded weights are kept for as long as it lives, so
    a weight must not change meanwhile.
    """

    def __init__(self, kernels: Kernels, numerics: Numerics) -> None:
        self.kernels, self.numerics = kernels, numerics
        self.fixed = kernels.shapes == "fixed"
        wide = numerics.activations in WIDE
        self._result: FormatName = numerics.activations if wide else "fp32"
        self._gains: FormatName = numerics.weights if numerics.weights in WIDE else "fp32"
        self._rounded: dict[tuple[int, ...], Tensor] = {}

    def _round(self, x: Tensor, fmt: FormatName) -> Tensor:
        return quantise(x, fmt, overflow=self.numerics.overflow)

    def _weight(self, layers: tuple[nn.Linear, ...]) -> Tensor:
        """Rounded weights `[sum of outputs, inputs]`; one scale per output in INT8/INT4."""
        key = tuple(id(layer) for layer in layers)
        if key not in self._rounded:
            w = torch.cat([layer.weight for layer in layers])
            self._rounded[key] = self._round(w, self.numerics.weights)
        return self._rounded[key]

    def embed(self, ids: Tensor, table: nn.Embedding) -> Tensor:
        """`[B, T]` token ids to `[B, T, hidden]`."""
        key = (id(table),)
        if key not in self._rounded:
            self._rounded[key] = self._round(table.weight, self.numerics.weights)
        return self._round(F.embedding(ids, self._rounded[key]), self._result)

    def linear(self, x: Tensor, *layers: nn.Linear) -> Tensor:
        """`x @ W.T` for the layers side by side: `[..., inputs] -> [..., all outputs]`."""
        w = self._weight(layers)
        x = self._round(x, self.numerics.activations)
        if not self.fixed:
            return self._round(F.linear(x, w), self._result)
        rows = x.reshape(-1, x.shape[-1])
        y = F.linear(pad_rows(rows, GEMM_ROWS), w)[: len(rows)]
        return self._round(y.view(*x.shape[:-1], -1), self._result)

    def norm(self, x: Tensor, gain: Tensor, eps: float) -> Tensor:
        """RMSNorm over the last axis (arXiv 1910.07467, eq. 4)."""
        y = F.rms_norm(x, x.shape[-1:], eps=eps) * self._round(gain, self._gains)
        return self._round(y, self._result)

    def rope(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """Rotate the halves of each head (arXiv 2104.09864, eq. 34): `[B, T, H, D]`."""
        a, b = x.chunk(2, -1)
        turned = torch.addcmul(x * cos, torch.cat([-b, a], -1), sin)
        return self._round(turned, self._result)

    def kv(self, x: Tensor) -> Tensor:
        """A key or value as the cache stores it; one scale per head and token if INT."""
        return self._round(x, self.numerics.kv)

    def swiglu(self, gate_up: Tensor) -> Tensor:
        """SiLU(gate) * up (arXiv 2002.05202, eq. 6): `[..., 2 F] -> [..., F]`.

        With fixed shapes SiLU is written out: the built-in one rounds differently in the
        vector body and in the scalar tail of an array, so a row's place would matter.
        """
        gate, up = gate_up.chunk(2, -1)
        silu = gate / (1 + torch.exp(-gate)) if self.fixed else F.silu(gate)
        return self._round(silu * up, self._result)

    def add(self, x: Tensor, y: Tensor) -> Tensor:
        """The residual connection."""
        return self._round(x + y, self._result)

    def attention(self, q: Tensor, k: Tensor, v: Tensor, visible: Tensor) -> Tensor:
        """Attention of `q [B, H, T, D]` to `k, v [B, K, S, D]`: `[B, H, T, D]`.

        `visible` is a boolean `[T, S]`, true where a query may look.
        """
        one = q.shape[2] == 1 and not self.fixed
        if self.kernels.attention == "naive" or one:
            y = self._naive_attention(q, k, v, visible)
        else:
            y = F.scaled_dot_product_attention(q, k, v, attn_mask=visible, enable_gqa=True)
        return self._round(y, self._result)

    def _naive_attention(self, q: Tensor, k: Tensor, v: Tensor, visible: Tensor) -> Tensor:
        """softmax(q k / sqrt(D)) v. The query heads of one key head are its rows."""
        (B, H, T, D), K = q.shape, k.shape[1]
        rows = q.reshape(B, K, H // K * T, D)
        rows = pad_rows(rows, QUERY_ROWS) if self.fixed else rows
        scores = rows @ k.transpose(-1, -2) * D**-0.5  # [B, K, rows, S]
        if T > 1 or self.fixed:  # else the one query sees all there is
            hidden = ~visible.repeat(H // K, 1)
            hidden = F.pad(hidden, (0, 0, 0, rows.shape[2] - len(hidden)))
            scores = scores.masked_fill(hidden, -torch.inf)
        p = torch.softmax(scores, -1)
        return (p @ v)[:, :, : H // K * T].reshape(B, H, T, D)


def pad_rows(x: Tensor, multiple: int) -> Tensor:
    """`[..., rows, D]` with zero rows added up to a multiple."""
    missing = -x.shape[-2] % multiple
    return F.pad(x, (0, 0, 0, missing)) if missing else x


def make(kernels: Kernels, numerics: Numerics) -> Ops:
    """The operations of a forward pass done this way."""
    return Ops(kernels, numerics)
