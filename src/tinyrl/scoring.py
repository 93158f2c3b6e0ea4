"""Teacher-forced logprobs: what a trainer's forward pass makes of given tokens."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from .model import GPT
from .stack import Stack


class Score(NamedTuple):
    """What one stack says of a response. All `[B, T]`, padding included (garbage there)."""

    logp: Tensor
    """Logprob of each response token under the stack's sampler; carries the gradient."""
    top1: Tensor
    """The likeliest token at each place."""
    entropy: Tensor
    """Entropy of each next-token distribution, in nats, without gradient."""


def score(model: GPT, prompt: Tensor, response: Tensor, stack: Stack) -> Score:
    """Score `response [B, T]` behind `prompt [B, P]` in one full forward pass."""
    logits = response_logits(model, prompt, response, stack)
    logp = stack.sampler.reported(logits, response)
    with torch.no_grad():
        logq = torch.log_softmax(stack.sampler.process(logits), -1)
        entropy = -(logq.exp() * logq).sum(-1)
    return Score(logp, logits.argmax(-1), entropy)


def response_logits(model: GPT, prompt: Tensor, response: Tensor, stack: Stack) -> Tensor:
    """Logits `[B, T, V]` that the response tokens are drawn from, before the sampler."""
    if prompt.dim() != 2 or response.dim() != 2 or len(prompt) != len(response):
        shapes = f"{list(prompt.shape)} and {list(response.shape)}"
        raise ValueError(f"prompt and response must be [B, P] and [B, T], got {shapes}")
    if prompt.shape[1] == 0 or response.shape[1] == 0:
        raise ValueError("prompt and response need at least one token each")
    P = prompt.shape[1]
    ids = torch.cat([prompt, response], 1)[:, :-1]
    positions = stack.positions.ids(P, ids.shape[1])
    return model.forward(ids, stack.ops(), positions, since=P - 1)
