"""Objectives that clip: a token whose ratio left the band gets no gradient.

PPO and what differs from it by the level of its ratio, its band or its average alone.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..logprobs import number
from .aggregation import Aggregation, average
from .gates import clipped
from .inputs import (
    dual_bound,
    loss_arrays,
    one_for_each_response,
    pair,
    widths,
)
from .ratios import MAX_LOG_RATIO, exp_ratio, pool


def ppo(
    logp: Tensor,
    logp_old: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    eps_low: float = 0.2,
    eps_high: float = 0.2,
    dual_clip: float | None = None,
    aggregation: Aggregation = "token_mean",
    weight: Tensor | None = None,
    counted: Tensor | None = None,
    length: float | None = None,
) -> Tensor:
    """PPO's clipped surrogate (arXiv 1707.06347 eq. 7), negated.

        r_t = pi(y_t) / pi_old(y_t)
        L = -mean_t min(r_t A_t, clip(r_t, 1 - eps_low, 1 + eps_high) A_t)

    With `dual_clip` c above 1, where A_t < 0 (dual-clip PPO, arXiv 1912.09729; verl's
    default is c = 3):

        L = -mean_t max(min(r_t A_t, clip(r_t, ...) A_t), c A_t)
    """
    low, high = widths(eps_low, eps_high)
    dual = dual_bound(dual_clip)
    logp, logp_old, A, mask = loss_arrays(logp, logp_old, advantages, mask)
    r = exp_ratio(logp - logp_old)
    loss = clipped(r, A, low, high, dual)
    return average(loss, mask, aggregation, weight, counted, length)


def grpo(
    logp: Tensor,
    logp_old: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    eps_low: float = 0.2,
    eps_high: float = 0.2,
    logp_ref: Tensor | None = None,
    beta: float = 0.04,
    aggregation: Aggregation = "sequence_mean",
    weight: Tensor | None = None,
    counted: Tensor | None = None,
    length: float | None = None,
) -> Tensor:
    """GRPO (arXiv 2402.03300 eq. 3): PPO's loss for group advantages, as a mean of means.

        L = -1/G sum_i 1/|o_i| sum_t [min(r A, clip(r, 1 - eps_low, 1 + eps_high) A)
                                      - beta D_KL(pi || pi_ref)]

    With `logp_ref [B, T]`, D_KL is estimated by K3 with x = ref / pi: x - log x - 1
    (eq. 4). `weight` does not touch that term: a token that is dropped by a weight of 0
    (TRL) is still held to the reference, one that is dropped from `mask` (verl) is not.
    """
    strength = number("beta", beta)
    if not 0 <= strength < math.inf:
        raise ValueError(f"beta must be 0 or more and finite, not {beta}")
    surrogate = ppo(
        logp,
        logp_old,
        advantages,
        mask,
        eps_low=eps_low,
        eps_high=eps_high,
        aggregation=aggregation,
        weight=weight,
        counted=counted,
        length=length,
    )
    if logp_ref is None:
        return surrogate
    logp, logp_ref, mask = pair(mask, logp=logp, logp_ref=logp_ref)
    log_x = (logp_ref.detach() - logp).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
    k3 = torch.expm1(log_x) - log_x
    kl = average(k3, mask, aggregation, None, counted, length)
    return surrogate + strength * kl


def dr_grpo(
    logp: Tensor,
    logp_old: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    length: float,
    eps_low: float = 0.2,
    eps_high: float = 0.2,
    weight: Tensor | None = None,
    counted: Tensor | None = None,
) -> Tensor:
    """Dr. GRPO (arXiv 2503.20783): GRPO without its two divisions that bias.

        L = -1/(G length) sum_i sum_t min(r A, clip(r, 1 - eps_low, 1 + eps_high) A)

    `length` is the longest response that generation allows, the same in every step: neither
    |o_i| nor the width of this batch. The other division, by the deviation of rewards, is
    left out by `group_advantages(..., std="none")`.
    """
    return ppo(
        logp,
        logp_old,
        advantages,
        mask,
        eps_low=eps_low,
        eps_high=eps_high,
        aggregation="constant",
        weight=weight,
        counted=counted,
        length=length,
    )


def dapo(
    logp: Tensor,
    logp_old: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    eps_low: float = 0.2,
    eps_high: float = 0.28,
    weight: Tensor | None = None,
    counted: Tensor | None = None,
) -> Tensor:
    """DAPO (arXiv 2503.14476 §3): PPO's loss with clip-higher and the mean over tokens.

        L = -1/sum_i |o_i| sum_i sum_t min(r A, clip(r, 1 - eps_low, 1 + eps_high) A)

    The paper divides by the tokens of a prompt's group; here, as in verl and TRL, by those
    of the batch (verl#2776). There is no KL. DAPO's other two parts act before the loss:
    `advantages.informative` and `advantages.overlong_penalty`.
    """
    return ppo(
        logp,
        logp_old,
        advantages,
        mask,
        eps_low=eps_low,
        eps_high=eps_high,
        aggregation="token_mean",
        weight=weight,
        counted=counted,
    )


def gspo(
    logp: Tensor,
    logp_old: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    eps_low: float = 3e-4,
    eps_high: float = 4e-4,
    aggregation: Aggregation = "sequence_mean",
    weight: Tensor | None = None,
    counted: Tensor | None = None,
    length: float | None = None,
) -> Tensor:
    """GSPO (arXiv 2507.18071 eq. 5): one ratio for a whole response, clipped as one.

        s_i = exp(1/|y_i| sum_t log r_t)                                   (eq. 7)
        L = -1/G sum_i min(s_i A_i, clip(s_i, 1 - eps_low, 1 + eps_high) A_i)

    Widths are the paper's (§5.1): s_i is a mean and moves far less than r_t. One advantage
    for each response. |y_i| is the number of its tokens in `mask`.
    """
    low, high = widths(eps_low, eps_high)
    logp, logp_old, A, mask = loss_arrays(logp, logp_old, advantages, mask)
    A = one_for_each_response(A, mask)
    s = exp_ratio(pool(logp - logp_old, mask, "geometric"))
    loss = clipped(s, A, low, high)
    return average(loss, mask, aggregation, weight, counted, length)


def gspo_token(
    logp: Tensor,
    logp_old: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    eps_low: float = 3e-4,
    eps_high: float = 4e-4,
    aggregation: Aggregation = "sequence_mean",
    weight: Tensor | None = None,
    counted: Tensor | None = None,
    length: float | None = None,
) -> Tensor:
    """GSPO-token (arXiv 2507.18071 §4.3): GSPO for advantages of tokens; verl's `gspo`.

        s_it = sg[s_i] pi(y_t) / sg[pi(y_t)]
        L = -1/G sum_i 1/|y_i| sum_t min(s_it A_it, clip(s_it, ...) A_it)

    s_it has the value of s_i and the gradient of its own token alone. Where a response's
    tokens share advantage and weight, value and gradient are those of `gspo`.
    """
    low, high = widths(eps_low, eps_high)
    logp, logp_old, A, mask = loss_arrays(logp, logp_old, advantages, mask)
    log_s = pool((logp - logp_old).detach(), mask, "geometric")
    s = exp_ratio(log_s + logp - logp.detach())
    loss = clipped(s, A, low, high)
    return average(loss, mask, aggregation, weight, counted, length)
