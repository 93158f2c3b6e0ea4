"""Objectives that weigh: no token loses its gradient, what moved far gets less of it."""

from __future__ import annotations

from torch import Tensor

from .aggregation import Aggregation, average
from .gates import softened, temperatures, weight_bounds
from .inputs import loss_arrays
from .ratios import exp_ratio


def sapo(
    logp: Tensor,
    logp_old: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    tau_pos: float = 1.0,
    tau_neg: float = 1.05,
    aggregation: Aggregation = "sequence_mean",
    weight: Tensor | None = None,
    counted: Tensor | None = None,
    length: float | None = None,
) -> Tensor:
    """SAPO (arXiv 2511.20347): a soft gate in place of the clip.

        f(r) = 4/tau sigmoid(tau (r - 1)),  tau = tau_pos where A > 0, else tau_neg
        L = -1/G sum_i 1/|y_i| sum_t f(r_t) A_t

    Its gradient by log pi is -A r 4 s (1 - s) with s = sigmoid(tau (r - 1)): that of
    REINFORCE at r = 1. The gate 4 s (1 - s) fades to both sides, for bad tokens a little
    sooner; times r it rises on, to about 1.6 near r = 2, and fades from there. The paper's
    temperatures, which verl and TRL have as defaults too.
    """
    pos, neg = temperatures(tau_pos, tau_neg)
    logp, logp_old, A, mask = loss_arrays(logp, logp_old, advantages, mask)
    r = exp_ratio(logp - logp_old)
    loss = softened(r, A, pos, neg)
    return average(loss, mask, aggregation, weight, counted, length)


def cispo(
    logp: Tensor,
    logp_old: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    eps_low: float = 1.0,
    eps_high: float | None = None,
    cap: float | None = None,
    aggregation: Aggregation = "token_mean",
    weight: Tensor | None = None,
    counted: Tensor | None = None,
    length: float | None = None,
) -> Tensor:
    """CISPO (arXiv 2506.13585): REINFORCE with a clipped weight that gets no gradient.

        L = -1/sum_i |o_i| sum_i sum_t sg[clip(r_t, 1 - eps_low, upper)] A_t log pi(y_t)

    Two conventions for the upper bound; give one, and neither takes the other's numbers:

    - `eps_high`, a width above 1, at most 1: upper = 1 + eps_high. The paper and verl,
      whose example has 0.2.
    - `cap`, the largest weight itself, above 1: upper = cap. ScaleRL (arXiv 2510.13786) and
      TRL, which calls it `epsilon_high` and recommends 5.0: PPO's 0.28 there would mean
      that no weight is larger than 0.28.

    eps_low = 1 is no lower bound, as in the paper.
    """
    lower, upper = weight_bounds(eps_low, eps_high, cap)
    logp, logp_old, A, mask = loss_arrays(logp, logp_old, advantages, mask)
    r = exp_ratio(logp - logp_old).clamp(lower, upper).detach()
    loss = -r * A * logp
    return average(loss, mask, aggregation, weight, counted, length)


def reinforce(
    logp: Tensor,
    logp_old: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    aggregation: Aggregation = "sequence_sum",
    weight: Tensor | None = None,
    counted: Tensor | None = None,
    length: float | None = None,
) -> Tensor:
    """REINFORCE (Williams 1992), with a weight w that gets no gradient.

        L = -1/G sum_i sum_t w_t A_t log pi(y_t)

    Unweighted, its gradient is that of the expected reward when the policy itself sampled.
    Bypass form (two policies; verl's loss_type "reinforce"): w = pi / mu, bounded, of the
    newest logprobs at every update,

        weight, kept = correction.apply(logp.detach(), logp_rollout, mask)
        reinforce(logp, logp_rollout, advantages, kept, weight=weight)

    `logp_old` is checked like everywhere, and plays no other part: there is no ratio here.
    """
    logp, _, A, mask = loss_arrays(logp, logp_old, advantages, mask)
    loss = -A * logp
    return average(loss, mask, aggregation, weight, counted, length)
