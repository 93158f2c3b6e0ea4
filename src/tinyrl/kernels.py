"""The same operations, done in different orders: what a kernel changes.

A forward pass is a dozen operations. Each has one definition in real numbers and many in
floating point: they differ in where they round and in what order they add. Two frozen
descriptions, `Numerics` (what a number is) and `Kernels` (in which order), make the `Ops`
through which all arithmetic of `model.GPT` goes.

Shapes in one letter: B sequences, T query tokens, S cached tokens, H query heads, K key
heads, D head size, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .attention import Way, attend, pad_rows
from .formats import FormatName, Overflow, check_choices, quantise

WIDE: tuple[FormatName, ...] = ("fp32", "fp16", "bf16")
"""Formats that engines use for everything; narrower ones only enter matrix products."""

GEMM_ROWS = 16
"""Row counts are padded to a multiple of this when shapes are fixed. A BLAS library picks
its inner loop, and so its order of additions, by the number of rows; from this size on it
was seen to pick the same one whatever the batch (asserted where it is claimed)."""

VOCAB_PARTS = 4
"""Parts of the vocabulary that "chunked" sums one by one."""


LogSumExp = Literal["fused", "naive", "chunked"]


@dataclass(frozen=True)
class Numerics:
    """The format of every number in a forward pass.

    `weights` is the format of every matrix, embedding and head included (engines often
    leave those two wide); INT has a scale for each output, FP8 none. `kv` is that of the
    cache. `activations` is the format of the result of each method of `Ops`, rounded once
    at its end, as a fused kernel does. Narrower than 16 bits it applies to what enters a
    layer's weights only, as in engines with 8-bit kernels; the rest stays FP32, so that
    what is seen is the narrow format's doing. `router` is that of an MoE router: its
    weights, what enters them and its logits. `overflow`: see `formats.round_to`.

    The rest is about single places. `head`: the LM head's weights and what enters it;
    "same" is as `weights` and `activations` say. `logits`: how they leave the head; "same"
    is its 16 or 32 bits. `rope`: the table of cosines and sines. `boundary`: what one layer
    hands to the next. `partial`: the sums that tensor-parallel ranks exchange.
    """

    weights: FormatName = "fp32"
    activations: FormatName = "fp32"
    kv: FormatName = "fp32"
    router: FormatName = "fp32"
    head: Literal["same", FormatName] = "same"
    logits: Literal["same", FormatName] = "same"
    rope: FormatName = "fp32"
    boundary: FormatName = "fp32"
    partial: FormatName = "fp32"
    overflow: Overflow = "saturate"

    def __post_init__(self) -> None:
        check_choices(self)


@dataclass(frozen=True)
class Kernels:
    """The order of the arithmetic.

    `attention`: torch's fused kernel, or one of the orders in `attention`. `shapes`: "free"
    lets each matrix have the size that the step happens to have (one row when decoding, all
    when scoring), and decoding its own kernel, as engines do: a single query leaves
    nothing to fuse, and at the course's sizes the formula is quicker. "fixed" pads every
    product and the key axis to fixed sizes, so that a token's arithmetic does not depend
    on what is computed beside it; torch's fused kernel ("sdpa") alone is not bound by that.

    `norm`: "fused" rounds its result, "unfused" the result of each of its steps.
    `norm_eps`: what is added to the mean square; 0 is the model's own. `logsumexp`: see
    `log_softmax`. `tensor_parallel`: ranks that share the inputs of a row-parallel product.
    `prefill`: prompt tokens that a rollout reads in one pass; 0 is all.
    """

    attention: Way = "sdpa"
    shapes: Literal["free", "fixed"] = "free"
    norm: Literal["fused", "unfused"] = "fused"
    norm_eps: float = 0.0
    logsumexp: LogSumExp = "fused"
    tensor_parallel: Literal[1, 2, 4] = 1
    prefill: int = 0

    def __post_init__(self) -> None:
        check_choices(self)
        if not 0 <= self.norm_eps < torch.inf:
            raise ValueError(f"norm_eps must be 0 or more, not {self.norm_eps}")
        if self.prefill < 0:
            raise ValueError(f"prefill must be 0 or more tokens, not {self.prefill}")


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
        head = numerics.head if numerics.head in WIDE else self._result
        self._logits = head if numerics.logits == "same" else numerics.logits
        same = (numerics.weights, numerics.activations)
        self._head = same if numerics.head == "same" else (numerics.head, numerics.head)
        self._rounded: dict[tuple[nn.Module, ...], Tensor] = {}

    def _round(self, x: Tensor, fmt: FormatName) -> Tensor:
        if fmt == "fp32":  # asked a hundred times a token
            return x
        return quantise(x, fmt, overflow=self.numerics.overflow)

    def _weight(self, layers: tuple[nn.Linear, ...], fmt: FormatName) -> Tensor:
        """Rounded weights `[sum of outputs, inputs]`; one scale per output in INT8/INT4."""
        if layers not in self._rounded:
            w = torch.cat([layer.weight for layer in layers])
            self._rounded[layers] = self._round(w, fmt)
        return self._rounded[layers]

    def _shares(self, layer: nn.Linear) -> Tensor:
        """Each rank's inputs of the matrix, rounded: `[ranks, outputs, inputs / ranks]`."""
        if (layer,) not in self._rounded:
            ranks, inputs = self.kernels.tensor_parallel, layer.in_features
            if inputs % ranks:
                raise ValueError(f"tensor_parallel {ranks} does not divide {inputs} inputs")
            # rounded before it is cut: a scale belongs to a whole row of the checkpoint
            w = self._round(layer.weight, self.numerics.weights)
            self._rounded[(layer,)] = torch.stack(w.chunk(ranks, 1))
        return self._rounded[(layer,)]

    def _product(self, x: Tensor, w: Tensor, fmt: FormatName) -> Tensor:
        """`x @ w.T`, x rounded to `fmt` first: `[..., inputs] -> [..., outputs]`."""
        x = self._round(x, fmt)
        if not self.fixed:
            return F.linear(x, w)
        rows = x.reshape(-1, x.shape[-1])
        y = F.linear(pad_rows(rows, GEMM_ROWS), w)[: len(rows)]
        return y.view(*x.shape[:-1], -1)

    def embed(self, ids: Tensor, table: nn.Embedding) -> Tensor:
        """`[B, T]` token ids to `[B, T, hidden]`."""
        if (table,) not in self._rounded:
            self._rounded[(table,)] = self._round(table.weight, self.numerics.weights)
        return self._round(F.embedding(ids, self._rounded[(table,)]), self._result)

    def linear(self, x: Tensor, *layers: nn.Linear) -> Tensor:
        """`x @ W.T` for the layers side by side: `[..., inputs] -> [..., all outputs]`."""
        w = self._weight(layers, self.numerics.weights)
        return self._round(self._product(x, w, self.numerics.activations), self._result)

    def row_parallel(self, x: Tensor, layer: nn.Linear) -> Tensor:
        """`linear` with the inputs shared out among ranks (Megatron, arXiv 1909.08053).

        Each rank rounds what it holds, multiplies, and sends its sum; sums are added in the
        order of the ranks. What travels, and what has been added, is in `partial`.
        """
        n, ranks = self.numerics, self.kernels.tensor_parallel
        if ranks == 1:
            return self.linear(x, layer)
        shares = zip(x.chunk(ranks, -1), self._shares(layer), strict=True)
        first, *others = (
            self._round(self._product(part, w, n.activations), n.partial)
            for part, w in shares
        )
        for partial in others:
            first = self._round(first + partial, n.partial)
        return self._round(first, self._result)

    def head(self, x: Tensor, layer: nn.Linear) -> Tensor:
        """Logits `[..., V]` of what the last norm left, `[..., hidden]`."""
        weights, entering = self._head
        y = self._product(x, self._weight((layer,), weights), entering)
        return self._round(y, self._logits)

    def boundary(self, x: Tensor) -> Tensor:
        """What one layer hands to the next, as it would travel between machines."""
        return self._round(x, self.numerics.boundary)

    @cached_property
    def router(self) -> Ops:
        """The operations of a router, which has a format of its own."""
        fmt, overflow = self.numerics.router, self.numerics.overflow
        return Ops(self.kernels, Numerics(weights=fmt, activations=fmt, overflow=overflow))

    def norm(self, x: Tensor, gain: Tensor, eps: float) -> Tensor:
        """RMSNorm over the last axis (arXiv 1910.07467, eq. 4)."""
        eps, gain = self.kernels.norm_eps or eps, self._round(gain, self._gains)
        if self.kernels.norm == "fused":
            return self._round(F.rms_norm(x, x.shape[-1:], eps=eps) * gain, self._result)
        square = self._round(x * x, self._result)
        mean = self._round(square.mean(-1, keepdim=True), self._result)
        scale = self._round(torch.rsqrt(mean + eps), self._result)
        return self._round(self._round(x * scale, self._result) * gain, self._result)

    def rope(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """Rotate the halves of each head (arXiv 2104.09864, eq. 34): `[B, T, H, D]`."""
        cos, sin = (self._round(table, self.numerics.rope) for table in (cos, sin))
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

        `visible` is a boolean `[T, S]` or `[B, T, S]`, true where a query may look.
        """
        way, how = self.kernels.attention, (q, k, v, visible)
        if way == "sdpa" and q.shape[2] == 1 and not self.fixed:
            return self._round(attend(*how, "naive"), self._result)
        y = attend(*how, way, self.fixed, lambda x: self._round(x, self._result))
        return self._round(y, self._result)


def log_softmax(logits: Tensor, way: LogSumExp = "fused") -> Tensor:
    """Log-softmax over the last axis.

    "fused" is torch's: (x - max) - log sum exp(x - max). "naive" takes the logsumexp first
    and subtracts it whole, as trainers that gather one logit do: a large maximum then eats
    the last bits. "chunked" merges the logsumexps of parts of the vocabulary, as kernels
    that never hold all logits at once do, and vocabulary-parallel ranks.
    """
    if way == "fused":
        return torch.log_softmax(logits, -1)
    if way == "naive":
        top = logits.detach().amax(-1, keepdim=True)
        return logits - (top + (logits - top).exp().sum(-1, keepdim=True).log())
    if way != "chunked":
        ways = ", ".join(get_args(LogSumExp))
        raise ValueError(f"logsumexp must be one of {ways}, not {way!r}")
    parts = [part.logsumexp(-1, keepdim=True) for part in logits.chunk(VOCAB_PARTS, -1)]
    return logits - torch.cat(parts, -1).logsumexp(-1, keepdim=True)
