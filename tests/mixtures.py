"""Mixtures of experts, random and trained, for tests of routers and their replay."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tinyrl.checkpoints import load
from tinyrl.kernels import Kernels, Numerics, Ops
from tinyrl.model import GPT, GPTConfig
from tinyrl.rollout import Batch
from tinyrl.scoring import Score, score
from tinyrl.stack import PRESETS, Stack, replace_at
from tinyrl.tasks import CumSum
from tinyrl.trainer import generate

TASK, EXACT = CumSum(), PRESETS["true_on_policy"]
BF16 = replace_at(PRESETS["bf16"], "numerics.router", "bf16")
INT4 = PRESETS["int4_weights"]
P = TASK.prompts(1, torch.Generator()).shape[1]
COURSE = GPTConfig(experts=8)
ODD = GPTConfig(
    hidden=48,
    layers=3,
    heads=4,
    kv_heads=2,
    experts=5,
    experts_per_token=3,
    moe_intermediate=21,
    norm_topk=False,
)
SHAPES = pytest.mark.parametrize("config", [COURSE, ODD], ids=["course", "odd"])


def plain() -> Ops:
    return Ops(Kernels(), Numerics())


def gpt(config: GPTConfig = COURSE, seed: int = 0) -> GPT:
    return GPT(config, torch.Generator().manual_seed(seed))


def random_ids(batch: int, length: int, seed: int = 1) -> Tensor:
    return torch.randint(0, 16, (batch, length), generator=seeded(seed))


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def sample(stack: Stack, B: int = 64, seed: int = 0, name: str = "moe") -> Batch:
    generator = seeded(seed)
    return generate(load(name), TASK, TASK.prompts(B, generator), stack, generator)


def scored(batch: Batch, stack: Stack, model: GPT | None = None) -> Score:
    with torch.no_grad():
        return score(
            model or load("moe"), batch.prompt, batch.response, stack, batch.routes
        )
