"""Make the shipped checkpoints again: `python -m tinyrl.checkpoints [FOLDER]`."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from tqdm import tqdm

from ..stack import Stack
from ..tasks import CumSum
from ..trainer import pass_rate
from . import HERE, train_sft

torch.set_num_threads(1)
folder = Path(sys.argv[1]) if len(sys.argv) > 1 else HERE
for made, _ in tqdm(train_sft(), total=250, desc="sft", unit="step"):
    model = made
task = CumSum()
model.save_pretrained(folder / "sft")
task.tokenizer.save_pretrained(folder / "sft")
rate = pass_rate(model, task, Stack(), torch.Generator().manual_seed(1), n=1024)
print(f"{folder / 'sft'}: answers {rate:.2f} of 1024 fresh prompts")
