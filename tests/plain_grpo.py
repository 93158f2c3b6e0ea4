"""GRPO in one function, as paper and course tell it: what `trainer.rl` has to equal.

No options but those that change the order of its draws. Written apart from the trainer.
"""

from __future__ import annotations

from copy import deepcopy

import torch

from tinyrl.model import GPT
from tinyrl.rollout import rollout
from tinyrl.scoring import response_logits
from tinyrl.stack import Stack
from tinyrl.tasks import CumSum


def plain_grpo(
    model: GPT, task: CumSum, g: torch.Generator, steps: int, stale: int
) -> None:
    """`steps` steps with the defaults of `Recipe`, rollouts `stale` steps old."""
    optimizer = torch.optim.Adam(model.parameters(), 5e-4, (0.9, 0.99), fused=True)
    versions = [deepcopy(model)]
    tok = task.tokenizer
    end = {"max_new": task.max_new, "eos_id": tok.eos_id, "pad_id": tok.pad_id}
    for step in range(steps):
        prompts = task.prompts(12, g).repeat_interleave(8, 0)
        batch = rollout(versions[max(0, step - stale)], prompts, Stack(), g, **end)

        def logps(rows: torch.Tensor, batch=batch) -> torch.Tensor:
            ids = batch.prompt[rows], batch.response[rows]
            logits = response_logits(model, *ids, Stack())
            return logits.log_softmax(-1).gather(-1, ids[1][..., None])[..., 0]

        with torch.no_grad():
            old = logps(torch.arange(96))
        R = task.reward(batch.prompt, batch.response, batch.mask).view(12, 8)
        A = (R - R.mean(1, keepdim=True)) / (R.std(1, keepdim=True) + 1e-6)
        A = torch.where(R.amax(1, keepdim=True) == R.amin(1, keepdim=True), 0.0, A).view(-1)
        optimizer.param_groups[0]["lr"] = 5e-4 * min(1, (step + 1) / 10)
        for rows in torch.randperm(96, generator=g).chunk(2):
            mask, a = batch.mask[rows], A[rows, None]
            d = torch.where(mask, logps(rows), 0.0) - torch.where(mask, old[rows], 0.0)
            r = d.exp()
            loss = torch.max(-r * a, -r.clamp(0.8, 1.2) * a)
            loss = torch.where(mask, loss, 0.0).sum() / mask.sum()
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
        versions.append(deepcopy(model))
