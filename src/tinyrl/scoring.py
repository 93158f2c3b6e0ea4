"""Teacher-forced logprobs: what a trainer's forward pass makes of given tokens."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from .kernels import Ops
from .model import GPT
from .moe import Routes
from .stack import Stack


class Score(NamedTuple):
    """What one stack says of a response. All `[B, T]`, padding included (garbage there)."""

    logp: Tensor
    """Logprob of each response token under the stack's sampler; carries the gradient."""
    top1: Tensor
    """The likeliest token at each place."""
    entropy: Tensor
    """Entropy of each next-token distribution, in nats, without gradient."""
    routes: Routes | None = None
    """Of a mixture of experts: its routes `[B, P + T - 1, ...]`, logits with gradient."""


def score(
    model: GPT,
    prompt: Tensor,
    response: Tensor,
    stack: Stack,
    routes: Routes | None = None,
    old_routes: Routes | None = None,
    kept: Tensor | None = None,
    ops: Ops | None = None,
) -> Score:
    """Score `response [B, T]` behind `prompt [B, P]` in one full forward pass.

    `routes` are those that the rollout took (`Batch.routes`), `old_routes` those of the
    pass that scored the old policy: `stack.router` says which of them are followed.
    `kept` is what the rollout's sampler left (`Batch.kept`): `stack.sampler.replay` says
    whether the logprob is over these tokens. Else a stack that cuts, cuts for itself, and
    a token that it would never sample gets -inf, which `compare` refuses by row and column.
    `ops`: see `response_pass`.
    """
    logits, taken = response_pass(model, prompt, response, stack, routes, old_routes, ops)
    logp = stack.reported(logits, response, prompt, kept)
    sampler = stack.sampler
    with torch.no_grad():
        before = sampler.before(prompt, response, logits.shape[-1])
        logq = sampler.process(logits, before, sampler.follow(kept)).log_softmax(-1)
        # 0 log 0 = 0: what is cut adds nothing
        entropy = -(logq.exp() * logq.clamp(min=torch.finfo(logq.dtype).min)).sum(-1)
        top1 = sampler.penalised(logits, before).argmax(-1)
    return Score(logp, top1, entropy, taken)


def response_logits(model: GPT, prompt: Tensor, response: Tensor, stack: Stack) -> Tensor:
    """Logits `[B, T, V]` that the response tokens are drawn from, before the sampler."""
    return response_pass(model, prompt, response, stack)[0]


def response_pass(
    model: GPT,
    prompt: Tensor,
    response: Tensor,
    stack: Stack,
    routes: Routes | None = None,
    old_routes: Routes | None = None,
    ops: Ops | None = None,
) -> tuple[Tensor, Routes | None]:
    """The logits of `response_logits`, and the routes of a mixture of experts.

    `ops` are the stack's own unless someone listens to what passes (`critic.Listener`).
    """
    if prompt.dim() != 2 or response.dim() != 2 or len(prompt) != len(response):
        shapes = f"{list(prompt.shape)} and {list(response.shape)}"
        raise ValueError(f"prompt and response must be [B, P] and [B, T], got {shapes}")
    if prompt.shape[1] == 0 or response.shape[1] == 0:
        raise ValueError("prompt and response need at least one token each")
    replay = stack.router.replay
    if replay != "none" and not model.config.experts:
        raise ValueError(f"router.replay is {replay!r}, but the model is dense: no routes")
    P = prompt.shape[1]
    ids = torch.cat([prompt, response], 1)[:, :-1]
    positions = stack.positions.ids(P, ids.shape[1])
    follow = stack.router.follow(routes, old_routes)
    return model.routed(ids, ops or stack.ops(), positions, since=P - 1, follow=follow)
