"""Importance-sampling corrections for tokens that another policy sampled.

rho = p_train / p_rollout, at one of three levels, put to use by one of two operations. The
field's acronyms (TIS, MIS) mean different things in different places, so none names a thing
here. What others call them:

| level     | operation | known as                                                   |
|-----------|-----------|------------------------------------------------------------|
| token     | truncate  | Token-TIS (Yao et al., Aug 2025; verl, TRL)                |
| token     | mask      | Token-MIS; IcePop with 0.5 and 5 (Ring-1T, arXiv 2510.18855) |
| sequence  | truncate  | Seq-TIS (Liu, Li et al., Sep 2025)                         |
| sequence  | mask      | Seq-MIS (the same); TRL's default, upper 3                 |
| geometric | mask      | Geo-RS, for example 0.99 to 1.01 (SkyRL), there with weight 1 |
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from .logprobs import as_logp, as_mask, checked_values, number, same_shape
from .objectives import Level, exp_ratio, one_of, pool

Operation = Literal["none", "truncate", "mask"]


@dataclass(frozen=True)
class Correction:
    """Level x operation x bounds. The weight multiplies a loss, the mask replaces its own.

    - none: weight 1, the mask as it was; bounds are not looked at
    - truncate: weight rho, clamped into the bounds
    - mask: weight rho; where rho is outside the bounds, tokens are dropped (all tokens of
      the response at sequence and geometric level)

    A bound of None is absent. "sequence" is the product over tokens, so its bounds get
    tighter with length: 1.01^1000 is 20,959. "geometric" is the length-normalised form.
    """

    level: Level = "token"
    operation: Operation = "none"
    lower: float | None = None
    upper: float | None = 2.0

    def __post_init__(self) -> None:
        one_of("level", self.level, get_args(Level))
        one_of("operation", self.operation, get_args(Operation))
        lower = 0.0 if self.lower is None else number("lower", self.lower)
        upper = math.inf if self.upper is None else number("upper", self.upper)
        if self.operation == "none":
            return
        if self.lower is None and self.upper is None:
            raise ValueError(f"operation {self.operation} needs a lower or an upper bound")
        if not 0 <= lower <= 1 <= upper or (lower == upper):
            raise ValueError(
                f"bounds must satisfy 0 <= lower <= 1 <= upper, lower < upper, not "
                f"{self.lower} and {self.upper}: two equal policies have ratio 1 and must "
                "be left alone"
            )

    @torch.no_grad()
    def apply(
        self, logp_train: Tensor, logp_rollout: Tensor, mask: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Weights `[B, T]`, without gradient and 1 in padding, and the mask that is kept.

        Bounds are compared on the log scale, where a long response cannot overflow; the
        weight itself is at most e^20 and at least e^-20, as in verl.
        """
        arrays = {
            "logp_train": as_logp("logp_train", logp_train),
            "logp_rollout": as_logp("logp_rollout", logp_rollout),
        }
        same_shape(arrays)
        mask = as_mask(mask, arrays["logp_train"])
        train, roll = (checked_values(name, x, mask) for name, x in arrays.items())
        if self.operation == "none":
            return torch.ones_like(train), mask
        log_rho = pool(train - roll, mask, self.level)
        low = -math.inf if not self.lower else math.log(self.lower)
        high = math.inf if self.upper is None else math.log(self.upper)
        if self.operation == "truncate":
            log_rho = log_rho.clamp(low, high)
        else:
            mask = mask & (log_rho >= low) & (log_rho <= high)
        return exp_ratio(log_rho), mask
