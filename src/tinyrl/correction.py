"""Importance-sampling corrections for tokens that another policy sampled.

rho = p_train / p_rollout, at one of three levels, put to use by one of two operations. The
field's acronyms (TIS, MIS) mean different things in different places, so none names a thing
here. What others call them (`presets` has their numbers):

| level     | operation | known as                                                   |
|-----------|-----------|------------------------------------------------------------|
| token     | truncate  | Token-TIS (Yao et al., Aug 2025; verl, TRL)                |
| token     | mask      | Token-MIS; IcePop with 0.5 and 5 (Ring-1T, arXiv 2510.18855) |
| sequence  | truncate  | Seq-TIS (Liu, Li et al., Sep 2025)                         |
| sequence  | mask      | Seq-MIS (the same); TRL's default, upper 3                 |
| geometric | mask      | Geo-RS with weight 1, for example 0.99 to 1.01 (SkyRL)     |

A clamp on both sides ("clip" in slime, "tis" in OpenRLHF) is truncate with two bounds: the
same number, so no third operation. Slime's truncate differs: it ignores its lower bound.

Where rho acts has two readings, which agree wherever nothing is clipped, since
(p_old / mu) (p_new / p_old) = p_new / mu, mu being the rollout's policy:

- decoupled, three policies (arXiv 2110.00641): the weight rho = p_old / mu stands outside a
  loss whose own ratio is p_new / p_old. The trainer's forward pass gives p_old.
- bypass, two policies: mu plays p_old, the loss's ratio is p_new / mu and holds rho inside
  its clip. A weight beside it would count rho twice.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from .formats import check_choices
from .logprobs import as_logp, as_mask, number, possible, same_shape
from .objectives import Level, exp_ratio, of_response, pool
from .objectives.inputs import pair, token_advantages

Operation = Literal["none", "truncate", "mask"]
Weight = Literal["ratio", "one"]
Denominator = Literal["kept", "all"]
Mode = Literal["decoupled", "bypass"]

BLOCK = 2**17
"""Tokens that are worked on at a time: so few that they stay in the processor's cache."""


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
    weight: Weight = "ratio"
    """Of what a mask keeps: rho, or "one", for a rejection that weighs nothing."""
    normalise: bool = False
    """Self-normalised: divide weights by their mean over the batch, after the operation.
    The mean is over tokens, at sequence and geometric level over responses: those that the
    denominator counts, where it is "all" with weight 0 for the dropped ones."""
    veto: float | None = None
    """Drop a response if any of its tokens has rho_t below this (slime: 1e-4)."""
    denominator: Denominator = "kept"
    """Whose tokens a loss divides by, see `counted`: frameworks disagree."""
    also: Correction | None = None
    """A second one of the same arrays: its weight multiplies, its mask narrows."""

    def __post_init__(self) -> None:
        check_choices(self)
        lower = 0.0 if self.lower is None else number("lower", self.lower)
        upper = math.inf if self.upper is None else number("upper", self.upper)
        if self.veto is not None and not 0 < number("veto", self.veto) < 1:
            raise ValueError(f"veto must be above 0 and below 1, not {self.veto}")
        if self.operation == "truncate" and self.weight == "one":
            raise ValueError("weight 'one' is for operation mask: truncate makes a weight")
        if self.also is not None:
            self._check_second(self.also)
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

        The numerator of rho = p_train / p_rollout comes first; `compare` takes the two in
        the order in which they are made.
        Bounds are compared on the log scale, where a long response cannot overflow; the
        weight itself is at most e^20 and at least e^-20, as in verl.
        """
        arrays = {
            "logp_train": as_logp("logp_train", logp_train),
            "logp_rollout": as_logp("logp_rollout", logp_rollout),
        }
        same_shape(arrays)
        train, roll = arrays.values()
        mask = as_mask(mask, train)
        weight = torch.ones_like(train, dtype=torch.promote_types(train.dtype, roll.dtype))
        kept = mask.clone()
        step: Correction | None = self
        while step is not None:
            if not step._apply_step(weight, kept, train, roll, mask):
                pair(mask, **arrays)  # says which, and where
            step = step.also
        return weight, kept

    @property
    def log_bounds(self) -> tuple[float, float]:
        """Of log rho, infinite where there is no bound or no operation."""
        if self.operation == "none":
            return -math.inf, math.inf
        low = math.log(self.lower) if self.lower else -math.inf
        return low, math.inf if self.upper is None else math.log(self.upper)

    def counted(self, mask: Tensor) -> Tensor | None:
        """What objectives take as `counted`, from the mask before `apply`.

        None, for the kept tokens, or with denominator "all" that mask itself: then what
        is dropped counts as a loss of 0, and the fewer are kept, the smaller the step.
        """
        return mask if self.denominator == "all" else None

    def _apply_step(
        self, weight: Tensor, kept: Tensor, train: Tensor, roll: Tensor, mask: Tensor
    ) -> bool:
        """Multiply `weight` and narrow `kept`, in place; False if a logprob is impossible.

        Some rows at a time: what lies between would be several arrays of the whole batch.
        """
        rows = max(1, BLOCK // mask.shape[1])
        blocks = [slice(at, at + rows) for at in range(0, len(mask), rows)]
        total, count, sound = 0.0, 0, True
        for at in blocks:
            m = mask[at]
            new, old = torch.where(m, train[at], 0.0), torch.where(m, roll[at], 0.0)
            sound &= possible(new) and possible(old)
            rho, left = self._weigh(new - old, m)
            if self.normalise:
                of, units = self._summed(rho, left, m)
                total, count = total + of, count + units
            weight[at] *= rho
            kept[at] &= left
        if total > 0:
            for at in blocks:
                weight[at] /= torch.where(mask[at], weight.new_tensor(total / count), 1.0)
        return sound

    def _weigh(self, delta: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Weights, not normalised, and the kept mask of some rows."""
        log_rho, kept = self._bounded(delta, mask)
        weighs = self.operation != "none" and self.weight == "ratio"
        weight = exp_ratio(log_rho) if weighs else torch.ones_like(delta)
        if weighs and self.level != "token":  # one for all tokens of a response
            weight = torch.where(mask, weight, 1.0)
        if self.veto is not None:
            kept = kept & ~(mask & (delta < math.log(self.veto))).any(1, keepdim=True)
        return weight, kept

    def _bounded(self, delta: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        if self.operation == "none":
            return delta, mask
        alone = self.level == "token"
        log_rho = delta if alone else of_response(delta, mask, self.level)
        low, high = self.log_bounds
        if self.operation == "truncate":
            return log_rho.clamp(low, high), mask
        return log_rho, mask & (log_rho >= low) & (log_rho <= high)

    def _summed(self, weight: Tensor, kept: Tensor, mask: Tensor) -> tuple[float, int]:
        """What these rows add to the mean weight: the sum, and of how many."""
        counted = mask if self.denominator == "all" else kept
        used = torch.where(kept, weight, 0.0)
        if self.level != "token":  # one weight a response: its tokens share it
            used, counted = used.amax(1), counted.any(1)
        return used.sum(dtype=torch.float64).item(), int(counted.sum())

    def _check_second(self, second: Correction) -> None:
        if not isinstance(second, Correction):
            raise ValueError(f"also must be a Correction, not {second!r}")
        if second.denominator != self.denominator:
            raise ValueError(
                f"one loss has one denominator, not {self.denominator!r} and, in also, "
                f"{second.denominator!r}"
            )


@torch.no_grad()
def off_policy_mask(
    logp: Tensor, logp_rollout: Tensor, advantages: Tensor, mask: Tensor, *, delta: float
) -> Tensor:
    """The mask that off-policy sequence masking keeps, `[B, T]` (arXiv 2512.02556 eq. 9).

    Tokens are dropped where A < 0 and the mean of log mu - log p_new over the response is
    above `delta`: bad responses that the policy has left behind. Good ones always stay.
    `logp` is of the policy that is being updated and `logp_rollout` mu's, so staleness and
    mismatch both count; `advantages` are `[B]` or `[B, T]`. TRL's example is 0.5, slime's
    default 1e-4 (there p_old stands in for mu unless mu is the anchor).
    """
    new, roll, mask = pair(mask, logp=logp, logp_rollout=logp_rollout)
    if not number("delta", delta) >= 0:
        raise ValueError(f"delta must be 0 or more, not {delta}")
    A = token_advantages(advantages, new, mask)
    return mask & ~((A < 0) & (pool(roll - new, mask, "geometric") > delta))
