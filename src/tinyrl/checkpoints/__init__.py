"""The checkpoints that the course ships, and how they were made.

Both answer the running-total task about a third of the time: they have learned from sloppy
demonstrations, and RL has the rest to do. `sft` is dense; `moe` is a mixture of eight
experts, two for each token, as wide as `sft` where it is active. `python -m
tinyrl.checkpoints` makes them again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import torch

from ..model import GPT, GPTConfig
from ..pretrained import load_pretrained
from ..tasks import CumSum
from ..trainer import sft

HERE = Path(__file__).parent
MOE_STEPS = 400
"""After the 250 of `sft` some seeds of a mixture still answer an eighth only."""


def load(name: str = "sft") -> GPT:
    """The shipped policy `name`."""
    shipped = sorted(p.parent.name for p in HERE.glob("*/config.json"))
    if name not in shipped:
        raise ValueError(f"no checkpoint {name!r} is shipped; there is {shipped}")
    return load_pretrained(HERE / name)


def train_sft(seed: int = 0) -> Iterator[tuple[GPT, float]]:
    """Train `sft` from nothing; yields the model and the loss after each of 250 steps."""
    return _train(GPTConfig(), seed)


def train_moe(seed: int = 0) -> Iterator[tuple[GPT, float]]:
    """Train `moe` from nothing, with a balance loss; yields as `train_sft`, 400 times."""
    return _train(GPTConfig(experts=8), seed, steps=MOE_STEPS, balance=0.01)


def _train(
    config: GPTConfig, seed: int, steps: int = 250, balance: float = 0.0
) -> Iterator[tuple[GPT, float]]:
    generator = torch.Generator().manual_seed(seed)
    model = GPT(config, generator)
    learning = sft(model, CumSum(), generator=generator, steps=steps, balance=balance)
    return ((model, loss) for loss in learning)


SHIPPED: dict[str, Callable[[], Iterator[tuple[GPT, float]]]] = {
    "sft": train_sft,
    "moe": train_moe,
}
"""Each checkpoint's name and what trains it."""
