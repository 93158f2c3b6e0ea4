"""What a trainer may be told about its loss: a view of the data, or a whole objective."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

from torch import Tensor

from ..formats import check_choices
from .aggregation import Aggregation


@dataclass(frozen=True)
class LossView:
    """Which old logprobs the loss sees, and how it averages tokens."""

    anchor: Literal["recompute", "rollout"] = "recompute"
    """Old logprobs as the trainer recomputes them, or as the rollout reported them."""
    aggregation: Aggregation = "token_mean"

    def __post_init__(self) -> None:
        check_choices(self)
        if self.aggregation == "constant":
            raise ValueError(
                "aggregation 'constant' needs a length, which a view does not hold: choose "
                "the objective dr_grpo with its length"
            )


class Objective(Protocol):
    """A policy loss as a trainer calls it: every objective, with its own settings bound.

    `functools.partial(dr_grpo, length=16)` is one, and so is any function of yours.
    """

    def __call__(
        self,
        logp: Tensor,
        logp_old: Tensor,
        advantages: Tensor,
        mask: Tensor,
        *,
        weight: Tensor | None = None,
        counted: Tensor | None = None,
    ) -> Tensor:
        """The scalar to minimise; only `logp [B, T]` gets a gradient."""
