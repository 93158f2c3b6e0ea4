"""The checkpoint that the course ships, and how it was made.

`sft` answers the running-total task about a third of the time: it has learned from sloppy
demonstrations, and RL has the rest to do. `python -m tinyrl.checkpoints` makes it again.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import torch

from ..model import GPT, GPTConfig
from ..tasks import CumSum
from ..trainer import sft

HERE = Path(__file__).parent


def load(name: str = "sft") -> GPT:
    """The shipped policy `name`."""
    shipped = sorted(p.parent.name for p in HERE.glob("*/config.json"))
    if name not in shipped:
        raise ValueError(f"no checkpoint {name!r} is shipped; there is {shipped}")
    return GPT.from_pretrained(HERE / name)


def train_sft(seed: int = 0) -> Iterator[tuple[GPT, float]]:
    """Train `sft` from nothing; yields the model and the loss after each of 250 steps."""
    generator = torch.Generator().manual_seed(seed)
    task = CumSum()
    model = GPT(GPTConfig(), generator)
    for loss in sft(model, task, generator=generator):
        yield model, loss
