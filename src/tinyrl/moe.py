"""A mixture of experts: each token is sent to k of E small MLPs, and which k is a *choice*.

A choice jumps. Two logits that nearly tie change order under the smallest rounding, and the
token then passes through another expert: a mixture turns tiny differences into large ones.
So a pass leaves its `Routes`, and a pass can be told to follow given ones (routing replay:
R3, arXiv 2510.11370), with gates from its own logits, so that the router still learns.

Shapes in one letter: B sequences, S tokens that were read, L layers, E experts, k chosen.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal

import torch
from torch import Tensor, nn

from .formats import check_choices
from .kernels import Ops
from .logprobs import as_mask, masked_mean

TOKENS = 256
"""Tokens that pass the experts at once: what they make of them stays in the processor's
cache, which took 51 ms instead of 66 for a pass over 7,168 tokens."""


@dataclass(frozen=True)
class Routes:
    """What the routers of a pass chose, and what they chose from.

    The last layer reads a prompt for its last token only. Where a router was not asked,
    `experts` is -1 and the rest is 0.
    """

    experts: Tensor
    """The chosen experts `[B, S, L, k]`, or those of the pass that was followed."""
    gates: Tensor
    """Their weights `[B, S, L, k]`."""
    logits: Tensor
    """The router's logits `[B, S, L, E]`; carries the gradient."""

    @property
    def asked(self) -> Tensor:
        """Boolean `[B, S, L]`: where there is a choice."""
        return self.experts[..., 0] >= 0

    @property
    def own(self) -> Tensor:
        """The experts `[B, S, L, k]` that these logits choose, whoever was followed."""
        k = self.experts.shape[-1]
        return self.logits.topk(k).indices.masked_fill(~self.asked[..., None], -1)

    @property
    def margins(self) -> Tensor:
        """`[B, S, L]`: how far the k-th largest logit is above the next; inf if k = E.

        An error of half this size in two logits is what it takes to choose otherwise.
        """
        k, E = self.experts.shape[-1], self.logits.shape[-1]
        if k == E:
            return torch.full_like(self.logits[..., 0], torch.inf)
        top = self.logits.topk(k + 1).values
        return top[..., k - 1] - top[..., k]

    def __getitem__(self, at: Tensor | slice | tuple[slice, ...]) -> Routes:
        """These sequences, or with two slices these sequences and tokens."""
        return Routes(*(getattr(self, f.name)[at] for f in fields(self)))

    def copy_(self, other: Routes) -> None:
        """Take over what `other` holds, in this memory."""
        for f in fields(self):
            getattr(self, f.name).copy_(getattr(other, f.name))

    def of_response(self, prompt_length: int) -> Routes:
        """Those at which the T response tokens were decided: `[B, T, L, ...]`.

        A token is decided where the one before it is read.
        """
        return self[:, prompt_length - 1 :]

    @classmethod
    def blank(cls, batch: int, length: int, layers: int, experts: int, k: int) -> Routes:
        """Nobody asked yet."""
        shape = (batch, length, layers)
        chosen = torch.full((*shape, k), -1)
        return cls(chosen, torch.zeros(*shape, k), torch.zeros(*shape, experts))

    @classmethod
    def of_layers(cls, layers: list[Routes], length: int) -> Routes:
        """One pass: the layers' `[B, S, 1, ...]`, filled up where the last one is short."""
        *whole, last = layers
        B, S, _, k = last.experts.shape
        skipped = cls.blank(B, length - S, 1, last.logits.shape[-1], k)
        return cls._cat([*whole, cls._cat([skipped, last], 1)], 2)

    @classmethod
    def _cat(cls, parts: list[Routes], dim: int) -> Routes:
        each = ([getattr(part, f.name) for part in parts] for f in fields(cls))
        return cls(*(torch.cat(tensors, dim) for tensors in each))


@dataclass(frozen=True)
class Router:
    """Whose choice of experts a training pass follows.

    "none": its own. "rollout": the rollout's (R3). "train": that of the pass in which this
    engine scored the old policy, so that updates of one batch keep its choice (R2); that
    pass itself chooses. Gates come from the pass's own logits, over the followed experts.
    """

    replay: Literal["none", "rollout", "train"] = "none"

    def __post_init__(self) -> None:
        check_choices(self)

    def follow(self, rollout: Routes | None, old: Routes | None) -> Routes | None:
        """Which of the routes at hand to follow; None is to choose."""
        if self.replay == "rollout" and rollout is None:
            raise ValueError("router.replay is 'rollout', but no routes were given")
        return {"none": None, "rollout": rollout, "train": old}[self.replay]


class MoE(nn.Module):
    """A router and E SwiGLU experts of width F (Qwen3-MoE, arXiv 2505.09388).

    The experts are held, and computed, as one MLP of width E F whose hidden units are
    weighted with the gate of their expert, 0 for those not chosen. At this size a pass
    takes about twice as long as a dense one, and no token's arithmetic depends on another's
    choice. INT4 and INT8 have one scale for each row of this wide MLP.
    """

    def __init__(self, hidden: int, experts: int, k: int, width: int, norm_topk: bool):
        super().__init__()
        self.experts, self.k, self.norm_topk = experts, k, norm_topk
        self.gate = linear(hidden, experts)
        self.gate_up_proj = linear(hidden, experts * 2 * width)
        self.down_proj = linear(experts * width, hidden)

    def forward(
        self, x: Tensor, ops: Ops, follow: Tensor | None = None
    ) -> tuple[Tensor, Routes]:
        """`x [B, S, hidden]` through k experts: its own choice, or `follow [B, S, k]`."""
        logits = ops.router.linear(x, self.gate)
        chosen = logits.topk(self.k).indices if follow is None else follow
        gates = self._gates(logits, chosen)
        weight = torch.zeros_like(logits).scatter(-1, chosen, gates)  # [B, S, E]
        routes = Routes(*(t[:, :, None] for t in (chosen, gates, logits)))
        rows, shares = x.flatten(0, 1), weight.flatten(0, 1)
        parts = [slice(at, at + TOKENS) for at in range(0, len(rows), TOKENS)]
        y = torch.cat([self._experts(rows[part], shares[part], ops) for part in parts])
        return y.view_as(x), routes

    def _experts(self, x: Tensor, weight: Tensor, ops: Ops) -> Tensor:
        """`x [N, hidden]` through all experts, summed with `weight [N, E]`."""
        gate_up = ops.linear(x, self.gate_up_proj).view(len(x), self.experts, -1)
        h = ops.swiglu(gate_up) * weight[..., None]  # [N, E, F]
        return ops.row_parallel(h.flatten(1), self.down_proj)

    def _gates(self, logits: Tensor, chosen: Tensor) -> Tensor:
        """Probabilities of the chosen, in float32; with `norm_topk` their sum is 1."""
        if self.norm_topk:
            return torch.softmax(logits.gather(-1, chosen), -1)
        return torch.softmax(logits, -1).gather(-1, chosen)


class _Matrix(nn.Linear):
    def reset_parameters(self) -> None:
        """Draw nothing: torch would from its global generator."""


class _Table(nn.Embedding):
    def reset_parameters(self) -> None:
        """Draw nothing, as above. (`skip_init` would import 800 modules, for a second.)"""


def linear(inputs: int, outputs: int) -> nn.Linear:
    """A matrix without values yet."""
    return _Matrix(inputs, outputs, bias=False)


def embedding(size: int, width: int) -> nn.Embedding:
    """A table without values yet."""
    return _Table(size, width)


def check_routes(routes: Routes, wanted: tuple[int, ...], experts: int, since: int) -> None:
    """Refuse to follow routes that are not `wanted [B, S, L, k]` or lack a choice.

    The last layer needs none before `since`.
    """
    chosen = routes.experts
    if chosen.is_floating_point():
        raise ValueError(f"routes must hold whole numbers of experts, not {chosen.dtype}")
    if tuple(chosen.shape) != wanted:
        raise ValueError(
            f"routes must be [B, S, layers, k] = {list(wanted)}, got {list(chosen.shape)}"
        )
    needed = torch.cat([chosen[:, :, :-1].flatten(1), chosen[:, since:, -1].flatten(1)], 1)
    if ((needed < 0) | (needed >= experts)).any():
        raise ValueError(f"routes hold an expert outside 0..{experts - 1} where one is due")


def balance_loss(routes: Routes, mask: Tensor | None = None) -> Tensor:
    """E sum_e f_e P_e, mean over layers (Switch, arXiv 2101.03961, eq. 4; GShard).

    f_e is the number of times that expert e was chosen, P_e its mean probability, both per
    token: k when every expert has the same load. `mask [B, S]` says which tokens count.
    `transformers` pools f and P over layers first; for one layer the two are the same.
    """
    load = expert_load(routes, mask)  # [L, E], sums to 1
    P = _mean_over_tokens(torch.softmax(routes.logits, -1), routes, mask)
    E, k = routes.logits.shape[-1], routes.experts.shape[-1]
    return E * k * (load * P).sum(-1).mean()


def router_kl(train: Routes, rollout: Routes, mask: Tensor | None = None) -> Tensor:
    """KL(rollout's router || trainer's), mean over tokens and layers: a penalty.

    The other remedy: instead of following the rollout's choice, train the router to make
    the same one. The gradient goes to the trainer's router (and what feeds it) only.
    """
    shapes = [list(routes.logits.shape) for routes in (train, rollout)]
    if shapes[0] != shapes[1]:
        raise ValueError(f"train and rollout route other tokens: logits {shapes}")
    logq = torch.log_softmax(rollout.logits.detach(), -1)
    logp = torch.log_softmax(train.logits, -1)
    kl = (logq.exp() * (logq - logp)).sum(-1, keepdim=True)  # [B, S, L, 1]
    return _mean_over_tokens(kl, train, mask).mean()


@torch.no_grad()
def expert_load(routes: Routes, mask: Tensor | None = None) -> Tensor:
    """Share of the choices that went to each expert, `[L, E]`; each layer sums to 1."""
    E = routes.logits.shape[-1]
    counts = nn.functional.one_hot(routes.experts.clamp(min=0), E).float().mean(-2)
    return _mean_over_tokens(counts, routes, mask)


def _mean_over_tokens(x: Tensor, routes: Routes, mask: Tensor | None) -> Tensor:
    """Mean `[L, ...]` of `x [B, S, L, ...]` over the tokens at which routers were asked."""
    asked = routes.asked
    if mask is not None:
        asked = asked & as_mask(mask, asked[..., 0])[..., None]
    return masked_mean(x.flatten(0, 1), asked[..., None].expand_as(x).flatten(0, 1), 0)
