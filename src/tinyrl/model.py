"""A GPT in the shape of Qwen3, small enough for a laptop and real enough for an engine.

Pre-norm RMSNorm, grouped-query attention with normalised queries and keys, rotary
positions, SwiGLU. The modules only hold parameters, under the names that `transformers`
gives them in `Qwen3ForCausalLM`; all arithmetic goes through `kernels.Ops`, so one set of
weights can be run by a training stack and by a rollout stack.

Shapes in one letter: B sequences, T tokens, H query heads, K key heads, D head size,
V vocabulary.
"""

from __future__ import annotations

import json
from copy import copy
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn.utils import skip_init

from .formats import check_choices
from .kernels import Ops


@dataclass(frozen=True)
class Positions:
    """Which position a token is told it has.

    RoPE sees differences only: moving `of="all"` tokens by `offset` changes nothing, moving
    the "response" alone puts a gap between it and its prompt.
    """

    offset: int = 0
    of: Literal["response", "all"] = "response"

    def __post_init__(self) -> None:
        check_choices(self)

    def ids(self, prompt_length: int, length: int) -> Tensor:
        """Position ids `[length]` of a prompt and the response behind it."""
        positions = torch.arange(length)
        if self.of == "all":
            return positions + self.offset
        return torch.where(positions < prompt_length, positions, positions + self.offset)


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
    block_size: int = 32  # the longest sequence, and the length of a fixed cache
    rope_base: float = 100.0  # for short sequences; larger ones learn less reliably
    eps: float = 1e-6

    def __post_init__(self) -> None:
        if self.heads % self.kv_heads:
            raise ValueError(
                f"heads ({self.heads}) must be a multiple of kv_heads ({self.kv_heads})"
            )
        if self.head_dim % 2:
            raise ValueError(f"head_dim ({self.head_dim}) must be even: RoPE turns pairs")


class Cache:
    """Keys and values of the tokens so far, kept as the stack's `kv` format holds them."""

    def __init__(self, config: GPTConfig, batch: int) -> None:
        c = config
        shape = (c.layers, 2, batch, c.kv_heads, c.block_size, c.head_dim)
        self.kv, self.length = torch.zeros(shape), 0

    def rows(self, rows: slice) -> Cache:
        """These sequences alone, in the same memory; its length is its own."""
        part = copy(self)
        part.kv = self.kv[:, :, rows]
        return part

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
        qk = ops.rope(ops.norm(qkv[:, :, : H + K], gain, c.eps), at.cos, at.sin)
        qk, v = qk.transpose(1, 2), qkv[:, :, H + K :].transpose(1, 2)  # [B, heads, T, D]
        q, k, v = qk[:, :H, since:], ops.kv(qk[:, H:]), ops.kv(v)
        if cache is not None:
            k, v = cache.write(self.layer, k, v, full=ops.fixed)
        elif ops.fixed:  # the key axis has the cache's length, whoever asks
            k, v = (nn.functional.pad(t, (0, 0, 0, c.block_size - T)) for t in (k, v))
        y = ops.attention(q, k, v, at.visible[since:])
        return ops.linear(y.transpose(1, 2).reshape(B, T - since, H * D), self.o_proj)


def linear(inputs: int, outputs: int) -> nn.Linear:
    """A matrix without values yet: torch would draw them from its global generator."""
    layer: nn.Linear = skip_init(  # type: ignore[no-untyped-call]
        nn.Linear, inputs, outputs, bias=False
    )
    return layer


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
        return ops.linear(
            ops.swiglu(ops.linear(x, self.gate_proj, self.up_proj)), self.down_proj
        )


class Block(nn.Module):
    """A layer: attention, then MLP, each behind a norm and beside a residual."""

    def __init__(self, config: GPTConfig, layer: int) -> None:
        super().__init__()
        self.eps = config.eps
        self.input_layernorm = RMSNorm(config.hidden)
        self.self_attn = Attention(config, layer)
        self.post_attention_layernorm = RMSNorm(config.hidden)
        self.mlp = MLP(config)

    def forward(
        self, x: Tensor, ops: Ops, at: Places, cache: Cache | None, since: int
    ) -> Tensor:
        h = ops.norm(x, self.input_layernorm.weight, self.eps)
        x = ops.add(x[:, since:], self.self_attn(h, ops, at, cache, since))
        h = ops.norm(x, self.post_attention_layernorm.weight, self.eps)
        return ops.add(x, self.mlp(h, ops))


@dataclass(frozen=True)
class Places:
    """Where the tokens of one forward pass are and what they may look at.

    `cos` and `sin` are `[T, 1, D]`, `visible` is boolean `[T, S]`.
    """

    cos: Tensor
    sin: Tensor
    visible: Tensor


class GPT(nn.Module):
    """The policy: token ids to logits."""

    def __init__(self, config: GPTConfig, generator: torch.Generator) -> None:
        super().__init__()
        self.config = config
        self.embed_tokens: nn.Embedding = skip_init(  # type: ignore[no-untyped-call]
            nn.Embedding, config.vocab_size, config.hidden
        )
        self.layers = nn.ModuleList(Block(config, i) for i in range(config.layers))
        self.norm = RMSNorm(config.hidden)
        self.lm_head = linear(config.hidden, config.vocab_size)
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
        positions: Tensor | None = None,
        cache: Cache | None = None,
        since: int = 0,
    ) -> Tensor:
        """Logits `[B, T - since, V]` of the token that follows each of `ids [B, T]`.

        With a `cache`, `ids` continue what it holds. `positions [T]` default to the order.
        Columns before `since` end as keys and values of the last layer: nobody asks what
        follows them.
        """
        if ids.dim() != 2 or ids.numel() == 0:
            raise ValueError(f"ids must be [B, T] with tokens, got {list(ids.shape)}")
        outside = ((ids < 0) | (ids >= self.config.vocab_size)).any(1)
        if outside.any():
            row = int(outside.nonzero()[0])
            last, found = self.config.vocab_size - 1, ids[row].tolist()
            raise ValueError(f"ids row {row} has an id outside 0..{last}: {found}")
        start = cache.length if cache is not None else 0
        end = start + ids.shape[1]
        if end > self.config.block_size:
            raise ValueError(
                f"{end} tokens do not fit in block_size {self.config.block_size}"
            )
        if positions is None:
            positions = torch.arange(start, end)
        at = self._places(positions, start, end, ops)
        x = ops.embed(ids, self.embed_tokens)
        last = len(self.layers) - 1
        for layer, block in enumerate(self.layers):
            x = block(x, ops, at, cache, since if layer == last else 0)
        if cache is not None:
            cache.length = end
        x = ops.norm(x, self.norm.weight, self.config.eps)
        return ops.linear(x, self.lm_head)

    def _places(self, positions: Tensor, start: int, end: int, ops: Ops) -> Places:
        c = self.config
        frequency = c.rope_base ** (-torch.arange(0, c.head_dim, 2) / c.head_dim)
        angle = (positions[:, None].float() * frequency).repeat(1, 2)[:, None]  # [T, 1, D]
        columns = torch.arange(c.block_size if ops.fixed else end)
        visible = columns <= torch.arange(start, end)[:, None]
        return Places(angle.cos(), angle.sin(), visible)

    def save_pretrained(self, folder: Path | str) -> None:
        """Write `config.json` and `model.safetensors` as `transformers` reads them."""
        folder, c = Path(folder), self.config
        folder.mkdir(parents=True, exist_ok=True)
        weights = {hf_name(k): v.contiguous() for k, v in self.state_dict().items()}
        save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
        config = {
            "architectures": ["Qwen3ForCausalLM"],
            "model_type": "qwen3",
            "vocab_size": c.vocab_size,
            "hidden_size": c.hidden,
            "num_hidden_layers": c.layers,
            "num_attention_heads": c.heads,
            "num_key_value_heads": c.kv_heads,
            "head_dim": c.head_dim,
            "intermediate_size": c.intermediate,
            "max_position_embeddings": c.block_size,
            "rope_theta": c.rope_base,
            "rms_norm_eps": c.eps,
            "tie_word_embeddings": False,
            "attention_bias": False,
            "dtype": "float32",
            "tinyrl": asdict(c),
        }
        (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")

    @classmethod
    def from_pretrained(cls, folder: Path | str) -> GPT:
        """Read what `save_pretrained` wrote; a clear error names a file that is amiss."""
        folder = Path(folder)
        path = folder / "model.safetensors"
        try:
            config = GPTConfig(**json.loads((folder / "config.json").read_text())["tinyrl"])
            weights = load_file(path)
        except FileNotFoundError as error:
            raise FileNotFoundError(f"no checkpoint in {folder}: {error}") from None
        except (SafetensorError, ValueError, KeyError, TypeError) as error:
            raise ValueError(f"the checkpoint in {folder} is damaged: {error}") from None
        model = cls(config, torch.Generator())
        own = {hf_name(name): value for name, value in model.state_dict().items()}
        for name in sorted(own.keys() | weights.keys()):
            wanted, found = (_shape(w, name) for w in (own, weights))
            if found != wanted:
                raise ValueError(f"{path}: {name} is {found}, config.json wants {wanted}")
            own[name].copy_(weights[name])
        return model


def hf_name(name: str) -> str:
    """The name of one of our parameters in `transformers`' `Qwen3ForCausalLM`."""
    return name if name.startswith("lm_head") else f"model.{name}"


def _shape(weights: dict[str, Tensor], name: str) -> list[int] | str:
    return list(weights[name].shape) if name in weights else "nothing"
