"""Make the shipped checkpoints again: `python -m tinyrl.checkpoints [FOLDER]`."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from tqdm import tqdm

from ..pretrained import save_pretrained
from ..stack import Stack
from ..tasks import CumSum
from ..trainer import pass_rate
from . import HERE, SHIPPED

torch.set_num_threads(1)
folder = Path(sys.argv[1]) if len(sys.argv) > 1 else HERE
task = CumSum()
for name, train in SHIPPED.items():
    for made, _ in tqdm(train(), desc=name, unit="step"):
        model = made
    save_pretrained(model, folder / name)
    task.tokenizer.save_pretrained(folder / name)
    rate = pass_rate(model, task, Stack(), torch.Generator().manual_seed(1), n=1024)
    print(f"{folder / name}: answers {rate:.2f} of 1024 fresh prompts")
