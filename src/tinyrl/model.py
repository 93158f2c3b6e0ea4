"""A GPT in the shape of Qwen3, small enough for a laptop and real enough for an engine.

Pre-norm RMSNorm, grouped-query attention with normalised queries and keys, rotary
positions, SwiGLU: one MLP, or with `experts` a mixture of them. The modules only hold
parameters; all arithmetic goes through `kernels.Ops`, so one set of weights can be run by a
training stack and by a rollout stack. `pretrained` writes it as `transformers` reads it.

Shapes in one letter: B sequences, T tokens, H query heads, K key heads, D head size,
V vocabulary.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from .formats import check_choices
from .kernels import Ops
from .moe import MoE, Routes, check_routes, embedding, linear
from .positions import Places, places


@dataclass(frozen=True)
class GPTConfig:
    """The model's shape. The defaults learn the course's task in seconds."""

    vocab_size: int = 16
    hidden: int = 32
    layers: int = 2
    heads: int = 2
    kv_heads: int = 1
    head_dim: int = 32  # the smallest that CPU engines accept
    intermediate: int = 96  # narrower ones learn less reliably
    experts: int = 0  # 0: dense
    experts_per_token: int = 2
    moe_intermediate: int = 48  # of each expert: two are as wide as the dense layer
    norm_topk: bool = True  # gates sum to 1
    block_size: int = 32  # the longest sequence, and the length of a fixed cache
    # "learned" ones are added to the tokens, as in GPT-2
    position: Literal["rope", "learned"] = "rope"
    rope_base: float = 100.0  # for short sequences; larger ones learn less reliably
    eps: float = 1e-6

    def __post_init__(self) -> None:
        check_choices(self)
        sizes = ("vocab_size", "hidden", "layers", "heads", "kv_heads", "head_dim")
        for name in (*sizes, "intermediate", "moe_intermediate", "block_size"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)}")
        for name in ("rope_base", "eps"):
            if not 0 < getattr(self, name) < torch.inf:
                raise ValueError(f"{name} must be above 0, not {getattr(self, name)}")
        if self.heads % self.kv_heads:
            raise ValueError(
                f"heads ({self.heads}) must be a multiple of kv_heads ({self.kv_heads})"
            )
        if self.head_dim % 2:
            raise ValueError(f"head_dim ({self.head_dim}) must be even: RoPE turns pairs")
        k, E = self.experts_per_token, self.experts
        if E < 0:
            raise ValueError(f"experts must be 0 (dense) or more, not {E}")
        if E and not 1 <= k <= E:
            raise ValueError(f"experts_per_token must be 1 to experts ({E}), not {k}")


class Cache:
    """Keys and values of the tokens so far, kept as the stack's `kv` format holds them.

    Of a mixture of experts, the routes that the tokens took as well.
    """

    def __init__(self, config: GPTConfig, batch: int) -> None:
        c = config
        shape = (c.layers, 2, batch, c.kv_heads, c.block_size, c.head_dim)
        self.kv, self.length = torch.zeros(shape), 0
        self.routes: Routes | None = None
        if c.experts:
            size = (batch, c.block_size, c.layers, c.experts, c.experts_per_token)
            self.routes = Routes.blank(*size)

    def rows(self, rows: slice) -> Cache:
        """These sequences alone, in the same memory; its length is its own."""
        part = copy(self)
        part.kv = self.kv[:, :, rows]
        part.routes = None if self.routes is None else self.routes[rows]
        return part

    def extend(self, tokens: int, routes: Routes | None) -> None:
        """All layers have written these tokens, which took these `routes`."""
        end = self.length + tokens
        if self.routes is not None and routes is not None:
            self.routes[:, self.length : end].copy_(routes)
        self.length = end

    def write(self, layer: int, k: Tensor, v: Tensor, full: bool) -> tuple[Tensor, Tensor]:
        """Append `[B, K, T, D]`; return all so far, or (`full`) the whole padded store."""
        store, end = self.kv[layer], self.length + k.shape[2]
        store[0, :, :, self.length : end] = k
        store[1, :, :, self.length : end] = v
        seen = store if full else store[:, :, :, :end]
        return seen[0], seen[1]


class Attention(nn.Module):
    """Grouped-query attention with RMSNorm on queries and keys (Qwen3, 2505.09388)."""

    def __init__(self, config: GPTConfig, layer: int) -> None:
        super().__init__()
        c = self.config = config
        self.layer = layer
        self.q_proj = linear(c.hidden, c.heads * c.head_dim)
        self.k_proj = linear(c.hidden, c.kv_heads * c.head_dim)
        self.v_proj = linear(c.hidden, c.kv_heads * c.head_dim)
        self.o_proj = linear(c.heads * c.head_dim, c.hidden)
        self.q_norm = RMSNorm(c.head_dim)
        self.k_norm = RMSNorm(c.head_dim)

    def forward(
        self, x: Tensor, ops: Ops, at: Places, cache: Cache | None, since: int
    ) -> Tensor:
        (B, T, _), c = x.shape, self.config
        H, K, D = c.heads, c.kv_heads, c.head_dim
        qkv = ops.linear(x, self.q_proj, self.k_proj, self.v_proj).view(B, T, -1, D)
        # queries and keys are normalised and rotated alike, so they travel together
        gain = torch.cat([self.q_norm.weight.expand(H, D), self.k_norm.weight.expand(K, D)])
        qk = ops.norm(qkv[:, :, : H + K], gain, c.eps)
        qk = ops.rope(qk, at.cos, at.sin) if c.position == "rope" else qk
        qk, v = qk.transpose(1, 2), qkv[:, :, H + K :].transpose(1, 2)  # [B, heads, T, D]
        q, k, v = qk[:, :H, since:], ops.kv(qk[:, H:]), ops.kv(v)
        if cache is not None:
            k, v = cache.write(self.layer, k, v, full=ops.fixed)
        elif ops.fixed:  # the key axis has the cache's length, whoever asks
            k, v = (nn.functional.pad(t, (0, 0, 0, c.block_size - T)) for t in (k, v))
        y = ops.attention(q, k, v, at.visible[..., since:, :])
        return ops.row_parallel(y.transpose(1, 2).reshape(B, T - since, H * D), self.o_proj)


class RMSNorm(nn.Module):
    """The gain of a norm; the arithmetic is `Ops.norm`."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))


class MLP(nn.Module):
    """SwiGLU feed-forward layer."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.gate_proj = linear(config.hidden, config.intermediate)
        self.up_proj = linear(config.hidden, config.intermediate)
        self.down_proj = linear(config.intermediate, config.hidden)

    def forward(self, x: Tensor, ops: Ops) -> Tensor:
        h = ops.swiglu(ops.linear(x, self.gate_proj, self.up_proj))
        return ops.row_parallel(h, self.down_proj)


class Block(nn.Module):
    """A layer: attention, then MLP, each behind a norm and beside a residual."""

    def __init__(self, config: GPTConfig, layer: int) -> None:
        super().__init__()
        self.eps = config.eps
        self.input_layernorm = RMSNorm(config.hidden)
        self.self_attn = Attention(config, layer)
        self.post_attention_layernorm = RMSNorm(config.hidden)
        c = config
        sizes = (c.hidden, c.experts, c.experts_per_token, c.moe_intermediate, c.norm_topk)
        self.mlp = MoE(*sizes) if c.experts else MLP(c)

    def forward(
        self,
        x: Tensor,
        ops: Ops,
        at: Places,
        cache: Cache | None,
        since: int,
        follow: Tensor | None,
    ) -> tuple[Tensor, Routes | None]:
        h = ops.norm(x, self.input_layernorm.weight, self.eps)
        x = ops.add(x[:, since:], self.self_attn(h, ops, at, cache, since))
        h = ops.norm(x, self.post_attention_layernorm.weight, self.eps)
        if isinstance(self.mlp, MoE):
            y, routes = self.mlp(h, ops, follow)
        else:
            y, routes = self.mlp(h, ops), None
        return ops.add(x, y), routes


class GPT(nn.Module):
    """The policy: token ids to logits."""

    def __init__(self, config: GPTConfig, generator: torch.Generator) -> None:
        super().__init__()
        if not isinstance(generator, torch.Generator):  # None is the global one
            raise TypeError(f"generator must be a torch.Generator, not {generator!r}")
        self.config = config
        self.embed_tokens = embedding(config.vocab_size, config.hidden)
        self.layers = nn.ModuleList(Block(config, i) for i in range(config.layers))
        self.norm = RMSNorm(config.hidden)
        self.lm_head = linear(config.hidden, config.vocab_size)
        self.embed_positions: nn.Embedding | None = None
        if config.position == "learned":
            self.embed_positions = embedding(config.block_size, config.hidden)
        for module in self.modules():
            if isinstance(module, nn.Embedding):
                nn.init.normal_(module.weight, std=0.5, generator=generator)
            elif isinstance(module, nn.Linear):
                std = 0.5 * module.in_features**-0.5
                nn.init.normal_(module.weight, std=std, generator=generator)

    def forward(
        self,
        ids: Tensor,
        ops: Ops,
        positions: Tensor | Places | None = None,
        cache: Cache | None = None,
        since: int = 0,
    ) -> Tensor:
        """Logits `[B, T - since, V]` of the token that follows each of `ids [B, T]`.

        With a `cache`, `ids` continue what it holds. `positions [T]` or `[B, T]` default to
        the order; they can come as the `places` made of them.
        Columns before `since` end as keys and values of the last layer: nobody asks what
        follows them.
        """
        return self.routed(ids, ops, positions, cache, since)[0]

    def routed(
        self,
        ids: Tensor,
        ops: Ops,
        positions: Tensor | Places | None = None,
        cache: Cache | None = None,
        since: int = 0,
        follow: Routes | None = None,
    ) -> tuple[Tensor, Routes | None]:
        """The logits of `forward`, and the routes `[B, T, ...]` of a mixture of experts.

        Its routers choose the experts of `follow` where it is given.
        """
        start = cache.length if cache is not None else 0
        self._check(ids, start, follow, since)
        end = start + ids.shape[1]
        if positions is None:
            positions = torch.arange(start, end)
        if isinstance(positions, Tensor):
            positions = self.places(positions, start)
        at = positions.part(slice(None), self.config.block_size if ops.fixed else end)
        x, last = self._embed(ids, at.positions, ops), len(self.layers) - 1
        passed: list[Routes] = []
        for layer, block in enumerate(self.layers):
            skip = since if layer == last else 0
            told = None if follow is None else follow.experts[:, skip:, layer]
            x, chosen = block(x, ops, at, cache, skip, told)
            x = ops.boundary(x) if layer < last else x
            passed += [chosen] if chosen is not None else []
        routes = Routes.of_layers(passed, ids.shape[1]) if passed else None
        if cache is not None:
            cache.extend(end - start, routes)
        x = ops.norm(x, self.norm.weight, self.config.eps)
        return ops.head(x, self.lm_head), routes

    def places(
        self, positions: Tensor, start: int = 0, segments: Tensor | None = None
    ) -> Places:
        """What follows from being told `positions [T]` or `[B, T]`, behind `start` tokens.

        `segments [B, start + T]`, where given, say which tokens see each other. Made once
        for all steps of a rollout, it saves a dozen small operations a step.
        """
        c = self.config
        if positions.dim() not in (1, 2):
            raise ValueError(
                f"positions must be [T] or [B, T], not {list(positions.shape)}"
            )
        return places(positions, start, c.block_size, c.head_dim, c.rope_base, segments)

    def _embed(self, ids: Tensor, positions: Tensor, ops: Ops) -> Tensor:
        try:
            x = ops.embed(ids, self.embed_tokens)
        except IndexError:  # looking beforehand would cost every step of a rollout
            last = self.config.vocab_size - 1
            row = int(((ids < 0) | (ids > last)).any(1).nonzero()[0])
            found = ids[row].tolist()
            raise ValueError(
                f"ids row {row} has an id outside 0..{last}: {found}"
            ) from None
        if self.embed_positions is None:
            return x
        try:
            return ops.add(x, ops.embed(positions, self.embed_positions))
        except IndexError:
            last = self.config.block_size - 1
            outside = positions[(positions < 0) | (positions > last)].tolist()
            raise ValueError(
                f"positions {outside} were never learned: this model has 0..{last}"
            ) from None

    def _check(self, ids: Tensor, start: int, follow: Routes | None, since: int) -> None:
        c = self.config
        if ids.dim() != 2 or ids.numel() == 0:
            raise ValueError(f"ids must be [B, T] with tokens, got {list(ids.shape)}")
        end = start + ids.shape[1]
        if end > c.block_size:
            raise ValueError(f"{end} tokens do not fit in block_size {c.block_size}")
        if follow is not None and not c.experts:
            raise ValueError("there are routes to follow, but the model is dense")
        if follow is not None:
            shape = (*ids.shape, c.layers, c.experts_per_token)
            check_routes(follow, shape, c.experts, since)
