"""One loss from those of tokens: which sum, and divided by how many.

With N_b tokens counted in row b, and S rows that have any:

| aggregation   | loss                      | used by          | name in verl            |
|---------------|---------------------------|------------------|-------------------------|
| token_mean    | sum_bt x / sum_b N_b      | DAPO, CISPO      | token-mean              |
| sequence_mean | sum_b (sum_t x / N_b) / S | GRPO, GSPO, SAPO | seq-mean-token-mean     |
| sequence_sum  | sum_bt x / S              | REINFORCE        | seq-mean-token-sum      |
| constant      | sum_bt x / (S length)     | Dr. GRPO         | seq-mean-token-sum-norm |

TRL's loss types `dapo`, `grpo` and `dr_grpo` have the first, the second and the last.

Tokens of the sum are those of `mask`; those of the denominator are `counted`, which a mask
that was thinned out by a correction makes a choice of its own. None counts what was kept
(verl, whose rejection edits the mask); the original mask counts all (TRL, AReaL, slime).

The factor B: verl up to 0.7.0 (January 2026) divided by the length alone, not by the rows,
so its Dr. GRPO loss was B times TRL's on a batch of B; from 0.7.1 (March 2026) the two
agree (verl#3741).
"""

from __future__ import annotations

import math
from typing import Literal, get_args

from torch import Tensor

from ..logprobs import (
    as_logp,
    as_mask,
    finite,
    masked_mean,
    masked_sum,
    number,
    one_of,
)
from .inputs import counted_tokens, weighted

Aggregation = Literal["token_mean", "sequence_mean", "sequence_sum", "constant"]


def aggregate(
    x: Tensor,
    mask: Tensor,
    how: Aggregation,
    *,
    counted: Tensor | None = None,
    length: float | None = None,
) -> Tensor:
    """One loss from those of tokens `x [B, T]`, each over the tokens of `mask [B, T]`.

    - token_mean: over all counted tokens of the batch, so long responses weigh more
      (DAPO, arXiv 2503.14476 §3.3)
    - sequence_mean: over the counted tokens of each response, then over the responses that
      have any (GRPO, arXiv 2402.03300 eq. 3)
    - sequence_sum: of each response, then the mean over the responses
    - constant: the same divided by `length`, the longest response that generation allows,
      whatever this batch holds (Dr. GRPO, arXiv 2503.20783)

    `counted [B, T]`, bool, has to include the tokens of `mask`; None is `mask` itself.
    """
    x = as_logp("x", x)
    mask = as_mask(mask, x)
    return average(finite("x", x, mask), mask, how, None, counted, length)


def average(
    loss: Tensor,
    mask: Tensor,
    how: Aggregation,
    weight: Tensor | None,
    counted: Tensor | None,
    length: float | None,
) -> Tensor:
    """`aggregate` of losses from checked arrays, each times its `weight [B, T]`."""
    constant = _constant(how, length)
    loss, counted = weighted(loss, weight, mask), counted_tokens(counted, mask)
    if how == "token_mean":
        return masked_sum(loss, mask) / counted.sum().clamp_min(1)
    rows = masked_sum(loss, mask, 1)
    if how == "sequence_mean":
        rows = rows / counted.sum(1).clamp_min(1)
    return masked_mean(rows, counted.any(1)) / constant


def _constant(how: Aggregation, length: float | None) -> float:
    """What divides each response's sum: 1 where nothing is to divide."""
    one_of("aggregation", how, get_args(Aggregation))
    if how == "constant" and length is None:
        raise ValueError("length must be given for aggregation 'constant'")
    if how != "constant" and length is not None:
        raise ValueError(f"length is for aggregation 'constant', not for {how!r}")
    if length is None:
        return 1.0
    if not 0 < number("length", length) < math.inf:
        raise ValueError(f"length must be above 0 and finite, not {length}")
    return number("length", length)
