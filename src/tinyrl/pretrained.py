"""A model as a folder that `transformers` and the engines read, and back.

`config.json` and `model.safetensors` of a `Qwen3ForCausalLM` or `Qwen3MoeForCausalLM`. Ours
holds all experts of a layer in one matrix; a folder has three for each expert.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from .model import GPT, GPTConfig


def save_pretrained(model: GPT, folder: Path | str) -> None:
    """Write `config.json` and `model.safetensors` as `transformers` reads them."""
    if model.config.position == "learned":
        raise ValueError("Qwen3 has no learned positions: only position='rope' is saved")
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    weights = {name: w.contiguous() for name, w in hf_weights(model).items()}
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    config = json.dumps(hf_config(model.config), indent=2)
    (folder / "config.json").write_text(config + "\n")


def load_pretrained(folder: Path | str) -> GPT:
    """Read what `save_pretrained` wrote; a clear error names a file that is amiss."""
    folder = Path(folder)
    path = folder / "model.safetensors"
    try:
        config = GPTConfig(**json.loads((folder / "config.json").read_text())["tinyrl"])
        found = load_file(path)
    except FileNotFoundError as error:
        raise FileNotFoundError(f"no checkpoint in {folder}: {error}") from None
    except (SafetensorError, ValueError, KeyError, TypeError) as error:
        raise ValueError(f"the checkpoint in {folder} is damaged: {error}") from None
    model = GPT(config, torch.Generator())
    own = hf_weights(model)  # views: what is copied into them is the model's
    for name in sorted(own.keys() | found.keys()):
        shapes = [_shape(weights, name) for weights in (own, found)]
        if shapes[0] != shapes[1]:
            raise ValueError(
                f"{path}: {name} is {shapes[1]}, config.json wants {shapes[0]}"
            )
        own[name].copy_(found[name])
    return model


def hf_weights(model: GPT) -> dict[str, Tensor]:
    """Views of the parameters, under `transformers`' names and in its shapes."""
    weights: dict[str, Tensor] = {}
    for name, w in model.state_dict().items():
        hf = name if name.startswith("lm_head") else f"model.{name}"
        if model.config.experts and "gate_up_proj" in name:
            weights |= _gate_up(w, hf, model.config.experts)
        elif model.config.experts and "down_proj" in name:
            weights |= _down(w, hf, model.config.experts)
        else:
            weights[hf] = w
    return weights


def _gate_up(w: Tensor, name: str, experts: int) -> dict[str, Tensor]:
    """`[E 2 F, hidden]` as two `[F, hidden]` for each expert."""
    parts = w.view(experts, 2, -1, w.shape[1])
    return {
        name.replace("gate_up_proj", f"experts.{e}.{kind}"): parts[e, i]
        for e in range(experts)
        for i, kind in enumerate(("gate_proj", "up_proj"))
    }


def _down(w: Tensor, name: str, experts: int) -> dict[str, Tensor]:
    """`[hidden, E F]` as one `[hidden, F]` for each expert."""
    parts = w.chunk(experts, 1)
    return {
        name.replace("down_proj", f"experts.{e}.down_proj"): w for e, w in enumerate(parts)
    }


def hf_config(c: GPTConfig) -> dict[str, Any]:
    """What `transformers` calls the model's shape, and ours beside it."""
    mixture = {
        "decoder_sparse_step": 1,
        "num_experts": c.experts,
        "num_experts_per_tok": c.experts_per_token,
        "moe_intermediate_size": c.moe_intermediate,
        "norm_topk_prob": c.norm_topk,
    }
    return {
        "architectures": ["Qwen3MoeForCausalLM" if c.experts else "Qwen3ForCausalLM"],
        "model_type": "qwen3_moe" if c.experts else "qwen3",
        "vocab_size": c.vocab_size,
        "hidden_size": c.hidden,
        "num_hidden_layers": c.layers,
        "num_attention_heads": c.heads,
        "num_key_value_heads": c.kv_heads,
        "head_dim": c.head_dim,
        "intermediate_size": c.intermediate,
        **(mixture if c.experts else {}),
        "max_position_embeddings": c.block_size,
        "rope_theta": c.rope_base,
        "rms_norm_eps": c.eps,
        "tie_word_embeddings": False,
        "attention_bias": False,
        "dtype": "float32",
        "tinyrl": asdict(c),
    }


def _shape(weights: dict[str, Tensor], name: str) -> list[int] | str:
    return list(weights[name].shape) if name in weights else "nothing"
