"""The numbers by which mismatch is watched, each with its definition and its meaning.

d = logp_train - logp_rollout of a token, rho = exp(d), Delta the sum of d over a response
of T tokens. Tokens are sampled by the rollout policy mu, so plain means are expectations
under it. A name that `metrics.Mismatch` has too is the same number; what frameworks call
them, and where one name means two things, is in `framework_names`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch
from torch import Tensor

Sums = Any
"""Totals of a `Tally` by attribute: floats, or one for each resample `[R]`."""


class Number(NamedTuple):
    says: str
    of: Callable[[Sums], Any]
    """The number from totals over responses."""
    needs: str = "tokens"
    """A sum that has to be there; those of optional arguments may not be."""


def _ess(total: Any, squares: Any, n: Any) -> Any:
    return (total * total / squares / n).clamp(max=1.0)


def _std(squares: Any, total: Any, n: Any) -> Any:
    return ((squares - total * total / n).clamp(min=0) / (n - 1)).sqrt()


def _pearson(x: Any, y: Any, xx: Any, yy: Any, xy: Any, n: Any) -> Any:
    """From sums of x, y, their squares and product; NaN where one does not vary."""
    vx, vy = xx - x * x / n, yy - y * y / n
    constant = (vx <= 1e-12 * xx) | (vy <= 1e-12 * yy)
    r = (xy - x * y / n) / (vx * vy).clamp(min=0).sqrt()
    return torch.where(constant, torch.nan, r.clamp(-1, 1))


NUMBERS: dict[str, Number] = {
    # Tokens
    "mean": Number(
        "mean of d: its sign says who rates tokens higher", lambda s: s.d / s.tokens
    ),
    "mean_abs": Number("mean of |d|", lambda s: s.abs / s.tokens),
    "k1": Number(
        "mean of -d: unbiased for KL(mu || train), either sign", lambda s: -s.d / s.tokens
    ),
    "k2": Number("mean of d^2 / 2: biased, small noise", lambda s: s.square / 2 / s.tokens),
    "k3": Number(
        "mean of rho - 1 - d: unbiased for KL(mu || train), never negative",
        lambda s: s.k3 / s.tokens,
    ),
    "k3_reverse": Number(
        "mean of 1 / rho - 1 + d. Under mu this is chi2(mu || train) - KL(mu || train), "
        "not KL(train || mu): one token that the trainer finds rare decides it",
        lambda s: s.k3_reverse / s.tokens,
    ),
    "log_cosh": Number(
        "mean of log cosh(d / 2), about d^2 / 8: NeMo-RL's js_divergence_error; under mu "
        "no estimate of the Jensen-Shannon divergence",
        lambda s: s.cosh / s.tokens,
    ),
    "error_factor": Number(
        "mean of exp|d|: 1 if equal, blind to the sign", lambda s: 1 + s.grow / s.tokens
    ),
    "ratio_mean": Number(
        "mean of rho: 1 in expectation if mu can sample all that the trainer can",
        lambda s: 1 + s.e / s.tokens,
    ),
    "ratio_std": Number(
        "standard deviation of rho over tokens",
        lambda s: (s.e_square / s.tokens - (s.e / s.tokens) ** 2).clamp(min=0).sqrt(),
    ),
    "chi2": Number(
        "mean of rho^2, less 1: chi2(train || mu). A sample's may be negative",
        lambda s: (2 * s.e + s.e_square) / s.tokens,
    ),
    "ess": Number(
        "effective sample size of weights rho, as a share of the tokens (Kish 1965)",
        lambda s: _ess(s.v, s.v_square, s.tokens),
    ),
    "clip_low": Number(
        "share of tokens with rho below 1 - clip", lambda s: s.low / s.tokens
    ),
    "clip_high": Number(
        "share of tokens with rho above 1 + clip", lambda s: s.high / s.tokens
    ),
    "clip_fraction": Number(
        "both of these: what PPO may clip at step 0", lambda s: (s.low + s.high) / s.tokens
    ),
    # Responses
    "seq_mean": Number("mean of Delta", lambda s: s.d / s.sequences),
    "seq_mean_abs": Number("mean of |Delta|", lambda s: s.abs_Delta / s.sequences),
    "seq_per_token": Number(
        "mean of |Delta| / T: the length-normalised sequence delta, the absolute gap of "
        "log-perplexities",
        lambda s: s.abs_mean / s.sequences,
    ),
    "seq_walk": Number(
        "root of the mean of Delta^2 / T: does not grow with T where d is unbiased and "
        "independent, as a random walk's",
        lambda s: (s.walk / s.sequences).sqrt(),
    ),
    "seq_ratio_mean": Number(
        "mean of exp(Delta), the product of a response's ratios: 1 in expectation",
        lambda s: 1 + s.W / s.sequences,
    ),
    "chi2_seq": Number(
        "mean of exp(2 Delta), less 1: chi2 of whole responses. Its tail is heavy: from "
        "hundreds of responses it says nearly nothing",
        lambda s: s.W_square / s.sequences,
    ),
    "chi2_geometric": Number(
        "mean of exp(2 Delta / T), less 1: of the geometric means of ratios",
        lambda s: s.geometric / s.sequences,
    ),
    "ess_seq": Number(
        "effective sample size of weights exp(Delta), as a share of the responses",
        lambda s: _ess(s.w, s.w_square, s.sequences),
    ),
    "rollout_log_ppl": Number(
        "mean over responses of -logp_rollout a token", lambda s: s.log_ppl / s.sequences
    ),
    "train_log_ppl": Number(
        "mean over responses of -logp_train a token",
        lambda s: (s.log_ppl - s.mean) / s.sequences,
    ),
    "log_ppl_diff": Number(
        "mean over responses of -Delta / T: above 0 if the trainer is less sure",
        lambda s: -s.mean / s.sequences,
    ),
    "rollout_ppl": Number(
        "mean over responses of their perplexity", lambda s: s.ppl_rollout / s.sequences
    ),
    "train_ppl": Number("the same of the trainer", lambda s: s.ppl_train / s.sequences),
    "ppl_ratio": Number(
        "mean over responses of exp(-Delta / T): not the ratio of the two means above",
        lambda s: 1 + s.ppl_ratio / s.sequences,
    ),
    # Probabilities, not their logarithms
    "prob_gap": Number("mean of |p_train - p_rollout|", lambda s: s.gap / s.tokens, "gap"),
    "prob_gap_std": Number(
        "standard deviation of |p_train - p_rollout| over tokens, divided by N - 1",
        lambda s: _std(s.gap_square, s.gap, s.tokens),
        "gap",
    ),
    "prob_corr": Number(
        "Pearson's correlation of both probabilities: near 1 as long as sure tokens are",
        lambda s: _pearson(s.p, s.q, s.p_square, s.q_square, s.pq, s.tokens),
        "gap",
    ),
    # Rewards
    "reward_mean": Number(
        "mean reward: of the rollout policy, which is not the one that is trained",
        lambda s: s.reward / s.sequences,
        "reward",
    ),
    "reward_corr": Number(
        "correlation of Delta and reward. If the trainer rates good responses otherwise "
        "than the rollout, the logged reward is not its own",
        lambda s: _pearson(s.X, s.R, s.XX, s.RR, s.XR, s.sequences),
        "reward",
    ),
    "reward_gap": Number(
        "reward of the trainer's policy less that of the rollout's: Cov(exp(Delta), R), "
        "self-normalised",
        lambda s: s.wR / s.w - s.R / s.sequences,
        "reward",
    ),
    # Corrections
    "dropped": Number(
        "share of tokens that a correction dropped",
        lambda s: s.dropped / s.tokens,
        "dropped",
    ),
    "dropped_some": Number(
        "share of responses that lost a token", lambda s: s.touched / s.sequences, "dropped"
    ),
    "dropped_whole": Number(
        "share of responses of which nothing is left",
        lambda s: s.lost / s.sequences,
        "dropped",
    ),
    "below": Number(
        "share of ratios below the correction's lower bound, at its level",
        lambda s: s.below / s.units,
        "units",
    ),
    "above": Number(
        "share above its upper bound: what it truncates or masks",
        lambda s: s.above / s.units,
        "units",
    ),
    # Likeliest tokens
    "top1_agreement": Number(
        "share of tokens where both sides have the same likeliest one",
        lambda s: s.top1 / s.tokens,
        "top1",
    ),
    "topk_overlap": Number(
        "share of the k likeliest that both sides have",
        lambda s: s.overlap / s.tokens,
        "top1",
    ),
    "topk_left": Number(
        "probability, to the rollout, of those that the trainer has not among its own",
        lambda s: s.left / s.tokens,
        "top1",
    ),
    "topk_entered": Number(
        "probability, to the trainer, of those that the rollout has not",
        lambda s: s.entered / s.tokens,
        "top1",
    ),
}
EXTREMES: dict[str, str] = {
    "max_abs": "largest |d|",
    "ratio_min": "smallest rho",
    "ratio_max": "largest rho",
    "seq_max_abs": "largest |Delta|",
    "log_ppl_diff_min": "smallest -Delta / T",
    "log_ppl_diff_max": "largest -Delta / T",
    "prob_gap_max": "largest |p_train - p_rollout|",
}
"""No interval: a bootstrap never draws what is beyond the sample's own extremes."""
QUANTILES: dict[str, float] = {
    "p50_abs": 0.5,
    "p90_abs": 0.9,
    "p99_abs": 0.99,
    "ratio_p01": 0.01,
    "ratio_p50": 0.5,
    "ratio_p99": 0.99,
}
"""Of |d| and of rho over tokens; between two of them by linear interpolation."""


def of_totals(totals: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Each of `NUMBERS` whose sums are there, from totals of any one shape."""
    s = SimpleNamespace(**totals)
    return {name: n.of(s) for name, n in NUMBERS.items() if n.needs in totals}
