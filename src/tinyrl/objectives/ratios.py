"""How far a policy has moved on sampled tokens: importance ratios at three levels."""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor

from ..logprobs import as_logp, as_mask, finite, masked_mean, masked_sum, one_of

Level = Literal["token", "sequence", "geometric"]

MAX_LOG_RATIO = 20.0
"""Log-ratios are clamped to +-20 before `exp`, as in verl: e^20 is 4.9e8. Beyond, a ratio
is finite and has no gradient; unclamped, a long sequence's would be inf, its loss NaN."""


def ratio(log_ratio: Tensor, mask: Tensor, level: Level = "token") -> Tensor:
    """Importance ratio of each token `[B, T]` from its log-ratio; 1 in padding.

    - token: r_t = exp(d_t)
    - sequence: exp(sum_t d_t), the product of its tokens' ratios, for each token of a row
    - geometric: exp(mean_t d_t), their geometric mean: s_i of GSPO, arXiv 2507.18071 eq. 7
    """
    return exp_ratio(at_level(log_ratio, mask, level))


def at_level(log_ratio: Tensor, mask: Tensor, level: Level) -> Tensor:
    """The logarithm of `ratio`, not clamped: `[B, T]`, 0 in padding."""
    log_ratio = as_logp("log_ratio", log_ratio)
    mask = as_mask(mask, log_ratio)
    one_of("level", level, get_args(Level))
    return pool(finite("log_ratio", log_ratio, mask), mask, level)


# Without checks, for what was checked already: padding is 0 and masks are boolean


def exp_ratio(log_ratio: Tensor) -> Tensor:
    """exp of a log-ratio, with the bound that keeps it finite."""
    return log_ratio.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()


def pool(d: Tensor, mask: Tensor, level: Level) -> Tensor:
    """`at_level` of checked arrays."""
    if level == "token":
        return d
    return torch.where(mask, of_response(d, mask, level), 0.0)


def of_response(d: Tensor, mask: Tensor, level: Level) -> Tensor:
    """The log-ratio that the tokens of a response share at this level, `[B, 1]`."""
    total = masked_sum if level == "sequence" else masked_mean
    return total(d, mask, 1)[:, None]
