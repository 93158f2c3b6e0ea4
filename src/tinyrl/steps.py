"""What an RL step updates from, what it saw, and how long it took."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, fields
from typing import NamedTuple

from torch import Tensor

from .metrics import Mismatch
from .moe import Routes
from .rollout import Batch
from .routing import RouteMismatch


class Data(NamedTuple):
    """What updates read, a row for each sequence."""

    batch: Batch
    routes_old: Routes | None
    logp_old: Tensor
    advantages: Tensor
    weight: Tensor
    kept: Tensor
    values_old: Tensor
    targets: Tensor

    def at(self, rows: Tensor) -> Data:
        """These sequences."""
        whole = {f.name: getattr(self.batch, f.name) for f in fields(Batch)}
        some = {name: x[rows] for name, x in whole.items() if x is not None}
        routes = None if self.routes_old is None else self.routes_old[rows]
        return Data(Batch(**some), routes, *(x[rows] for x in self[2:]))


@dataclass(frozen=True)
class Step:
    """What one RL step saw. Means over its minibatches where there are several."""

    step: int
    reward: float
    """Mean reward of the sampled responses: the rollout policy's, not the trainer's."""
    mismatch: Mismatch
    """Rollout against trainer, before any update of this step."""
    loss: float
    """The objective's, with those of routers; a critic's is apart."""
    grad_norm: float
    clip_fraction: float
    """Share of kept tokens whose advantage is not 0, but whose gradient the clip made 0."""
    entropy: float
    """Of the training stack's next-token distributions, nats a token."""
    kept: float
    """Share of tokens that the correction kept."""
    seconds: dict[str, float] = field(repr=False, compare=False)
    """Wall time of generate, score, backward (with its forward) and bookkeeping."""
    routes: RouteMismatch | None = None
    """The same of a mixture's routes; None for a dense model."""
    length: float = 0.0
    """Mean length of the sampled responses, in tokens."""
    used: float = 1.0
    """Share of the sampled responses that were trained on: see `Recipe.sampling`."""
    value_loss: float | None = None
    """The critic's, before its coefficient; None without one."""


class Update(NamedTuple):
    """What one minibatch saw; see `Step`."""

    loss: float
    grad_norm: float
    clip_fraction: float
    value_loss: float = 0.0


def mean(updates: list[Update]) -> Update:
    """Of each number; zeros where there was no update."""
    columns = zip(*updates or [Update(0.0, 0.0, 0.0)], strict=True)
    return Update(*(sum(column) / len(column) for column in columns))


class Clock:
    """Wall time, split by what it was spent on."""

    def __init__(self) -> None:
        self.laps = dict.fromkeys(("generate", "score", "backward", "bookkeeping"), 0.0)
        self._last = time.perf_counter()

    def lap(self, name: str) -> None:
        """Book the time since the last lap under `name`."""
        now = time.perf_counter()
        self.laps[name] += now - self._last
        self._last = now
