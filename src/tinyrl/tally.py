"""What the numbers of a batch are made of: sums over the tokens of each response.

A mean over tokens is a sum over responses of such sums, divided by another one. So what is
kept per response, `[B]`, is enough for every mean here and for its interval: a bootstrap
draws whole responses and adds their rows up again (`intervals.py`).

The arrays are read once, some rows at a time, in float64: no copy of them is made.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .agreement import TopK, top_k_agreement
from .correction import BLOCK, Correction
from .logprobs import (
    TOLERANCE,
    as_logp,
    as_mask,
    as_tensor,
    check_logps,
    masked_sum,
    number,
    refuse,
    same_shape,
)

MAX_LOG = 300.0
"""Log-ratios are cut at +-300 before `exp`. No model means such a ratio, and uncut its
square would be inf: one such token would make every resample of it NaN."""


@dataclass(frozen=True)
class Tally:
    """Sums over the tokens of each response; float64, on the CPU."""

    sums: dict[str, Tensor]
    """By name `[B]`. `sequences` is 1, `tokens` their number; the others are explained
    where they are made. Which of them are there depends on what was given."""
    extremes: dict[str, Tensor]
    """`d_min` and `d_max` of each response, `[B]`; `gap_max`, the largest |p_train -
    p_rollout|, with `probabilities`."""

    def total(self, counts: Tensor | None = None) -> dict[str, Tensor]:
        """Each sum over the responses; with `counts [R, B]`, over each of R resamples."""
        table = torch.stack(list(self.sums.values()), 1)
        totals = table.sum(0) if counts is None else counts.to(table) @ table
        return dict(zip(self.sums, totals.unbind(-1), strict=True))

    def merged(self, groups: Tensor) -> Tally:
        """The same with the rows of each group added up; `groups [B]` are 0 .. G - 1."""
        G = int(groups.max()) + 1
        sums = {
            name: x.new_zeros(G).index_add(0, groups, x) for name, x in self.sums.items()
        }
        extremes = {
            name: x.new_zeros(G).scatter_reduce(
                0, groups, x, "amin" if name == "d_min" else "amax", include_self=False
            )
            for name, x in self.extremes.items()
        }
        return Tally(sums, extremes)


@torch.no_grad()
def tally(
    logp_rollout: Any,
    logp_train: Any,
    mask: Any = None,
    *,
    clip: float = 0.2,
    probabilities: bool = False,
    rewards: Any = None,
    kept: Any = None,
    correction: Correction | None = None,
    top_rollout: TopK | None = None,
    top_train: TopK | None = None,
) -> Tally:
    """Sums of d = logp_train - logp_rollout and of what else is given, by response.

    `logp_*` and `mask` are `[B, T]`, torch or numpy. Each of these adds its own sums:

    - `probabilities`: of p = exp(logp) too, at half the price of all others
    - `rewards [B]`: one a response
    - `kept [B, T]`: the mask that a correction returned
    - `correction`: whose bounds the ratios are held against; it is not applied
    - `top_rollout`, `top_train`: the likeliest tokens of either side, both or neither

    Raises `ValueError` as `check_logps` does, and on a `kept` that is no part of `mask`.
    """
    if not 0 < number("clip", clip) < math.inf:
        raise ValueError(f"clip must be above 0, not {clip}")
    if correction is not None and not isinstance(correction, Correction):
        raise ValueError(f"correction must be a Correction, not {correction!r}")
    roll, train, real = _arrays(logp_rollout, logp_train, mask)
    tokens, T = real.sum(1, dtype=torch.int32), roll.shape[1]
    order = tokens.argsort()  # of like length together: little padding in a block
    parts = []
    for at in order.tensor_split(-(-len(order) // max(1, BLOCK // T))):
        m, width = real.index_select(0, at), max(1, int(tokens[at[-1]]))
        width = T if m[:, width:].any() else width  # a mask may have holes
        left, right = (x[:, :width].index_select(0, at) for x in (roll, train))
        parts.append(_block(left, right, m[:, :width], clip, correction, probabilities))
    back = order.argsort()
    sums = {name: torch.cat([p[name] for p in parts])[back].cpu() for name in parts[0]}
    highest = sums.pop("logp_max")
    sound = sums["logp_rollout"].isfinite() & sums["d"].isfinite() & (sums["tokens"] > 0)
    if not (sound & (highest <= TOLERANCE)).all():
        check_logps(mask, logp_rollout=roll, logp_train=train)  # says which, and where
    ends: tuple[str, ...] = ("d_min", "d_max", "gap_max")
    extremes = {name: sums.pop(name) for name in ends if name in sums}
    sums |= _of_sequences(sums) | _of_weights(sums, roll, train, real)
    if correction is not None:
        sums |= _of_bounds(sums, correction)
    if rewards is not None:
        sums |= _of_rewards(rewards, sums)
    if kept is not None:
        sums |= _of_kept(kept, real, sums["tokens"])
    if top_rollout is not None or top_train is not None:
        by_token = top_k_agreement(top_rollout, top_train, real)
        sums |= {k: masked_sum(x, real, 1).cpu() for k, x in by_token.items()}
    return Tally(sums, extremes)


@torch.no_grad()
def deltas(logp_rollout: Any, logp_train: Any, mask: Any = None) -> Tensor:
    """d of all real tokens, row by row, `[N]` float64: of arrays that `tally` took."""
    roll, train, real = _arrays(logp_rollout, logp_train, mask)
    d, at = torch.empty(int(real.sum()), dtype=torch.float64), 0
    step = max(1, BLOCK // real.shape[1])
    for start in range(0, len(real), step):  # all at once would need indices of all
        rows = slice(start, start + step)
        m = real[rows]
        part = train[rows][m].double() - roll[rows][m]
        d[at : at + len(part)] = part
        at += len(part)
    return d


def _arrays(logp_rollout: Any, logp_train: Any, mask: Any) -> tuple[Tensor, Tensor, Tensor]:
    arrays = {
        "logp_rollout": as_logp("logp_rollout", logp_rollout).detach(),
        "logp_train": as_logp("logp_train", logp_train).detach(),
    }
    same_shape(arrays)
    roll, train = arrays.values()
    return roll, train, as_mask(mask, roll)


def _block(
    roll: Tensor,
    train: Tensor,
    mask: Tensor,
    clip: float,
    correction: Correction | None,
    probabilities: bool,
) -> dict[str, Tensor]:
    """Sums over the tokens of some rows. Padding is 0, and each term is 0 where d is."""
    roll, train = torch.where(mask, roll, 0.0), torch.where(mask, train, 0.0)
    logp = roll.double()
    d = train.double().sub_(logp)
    cut = d.clamp(-MAX_LOG, MAX_LOG)
    e, back = torch.expm1(cut), torch.expm1(-cut)  # rho - 1 and 1 / rho - 1: right where
    # they are 1e-9 too, and neither made from the other: at d = -40 that would be noise
    tokens, low, high = mask.sum(1), d.amin(1), d.amax(1)
    if ((tokens < mask.shape[1]) & ((low == 0) | (high == 0))).any():  # maybe padding's 0
        low = torch.where(mask, d, torch.inf).amin(1)
        high = torch.where(mask, d, -torch.inf).amax(1)
    room = torch.empty_like(d)  # for one term after the other: they stay in the cache

    def total(f: Callable[..., Tensor], *of: Any) -> Tensor:
        return f(*of, out=room).sum(1)

    out = {
        "sequences": torch.ones_like(low),
        "tokens": tokens.double(),
        "logp_rollout": logp.sum(1),
        "logp_max": torch.maximum(roll.amax(1), train.amax(1)).double(),
        "d_min": low,
        "d_max": high,
        "d": d.sum(1),
        "abs": total(torch.abs, d),
        "square": total(torch.mul, d, d),
        "grow": total(torch.maximum, e, back),  # exp|d| - 1
        "e": e.sum(1),
        "e_square": total(torch.mul, e, e),
        "k3": total(torch.sub, e, d),
        "k3_reverse": total(torch.add, d, back),
        "low": total(torch.lt, e, -clip),
        "high": total(torch.gt, e, clip),
    }
    if correction is not None and correction.level == "token":
        least, most = correction.log_bounds
        out |= {"below": total(torch.lt, d, least), "above": total(torch.gt, d, most)}
    if probabilities:
        p = torch.where(mask, logp.exp(), 0.0)
        gap = p * e
        q = p + gap  # the trainer's
        out |= {"p": p.sum(1), "p_square": total(torch.mul, p, p), "q": q.sum(1)}
        out |= {"q_square": total(torch.mul, q, q), "pq": total(torch.mul, p, q)}
        out |= {"gap_square": total(torch.mul, gap, gap), "gap_max": gap.abs_().amax(1)}
        out["gap"] = gap.sum(1)
    twice = torch.mul(e, back, out=room)  # 2 - rho - 1 / rho
    out["cosh"] = twice.div_(-4).log1p_().sum(1) / 2  # log cosh(d / 2)
    return out


def _of_sequences(sums: dict[str, Tensor]) -> dict[str, Tensor]:
    """What is no sum over tokens: functions of Delta = sum of d, of T and of the logp."""
    T, Delta = sums["tokens"], sums["d"]
    mean_logp, mean = sums["logp_rollout"] / T, Delta / T
    w = (Delta - Delta.max()).clamp(min=-MAX_LOG).exp()  # up to a factor
    return {
        "abs_Delta": Delta.abs(),
        "abs_mean": mean.abs(),
        "mean": mean,
        "walk": Delta.square() / T,
        "w": w,
        "w_square": w * w,
        "W": torch.expm1(Delta.clamp(-MAX_LOG, MAX_LOG)),
        "W_square": torch.expm1((2 * Delta).clamp(-2 * MAX_LOG, 2 * MAX_LOG)),
        "geometric": torch.expm1((2 * mean).clamp(-2 * MAX_LOG, 2 * MAX_LOG)),
        "log_ppl": -mean_logp,
        "ppl_rollout": (-mean_logp).clamp(max=MAX_LOG).exp(),
        "ppl_train": (-mean_logp - mean).clamp(max=MAX_LOG).exp(),
        "ppl_ratio": torch.expm1(-mean.clamp(-MAX_LOG, MAX_LOG)),
    }


def _of_weights(
    sums: dict[str, Tensor], roll: Tensor, train: Tensor, mask: Tensor
) -> dict[str, Tensor]:
    """Tokens' weights rho and their squares, up to a factor that is the same for all."""
    v, v_square = (
        sums["tokens"] + sums["e"],
        sums["tokens"] + 2 * sums["e"] + sums["e_square"],
    )
    if v.sum() < 1e-3 * sums["tokens"].sum():  # so small that 1 + e does not hold them
        d, owner = deltas(roll, train, mask), mask.nonzero()[:, 0].cpu()
        w = (d - d.max()).clamp(min=-MAX_LOG).exp()
        v, v_square = (torch.zeros_like(v).index_add(0, owner, x) for x in (w, w * w))
    return {"v": v, "v_square": v_square}


def _of_rewards(rewards: Any, sums: dict[str, Tensor]) -> dict[str, Tensor]:
    """Moments of reward and Delta about the batch's means: far from 0 they would cancel."""
    R = as_tensor("rewards", rewards).detach().cpu().double()
    Delta, w = sums["d"], sums["w"]
    if R.shape != Delta.shape:
        raise ValueError(f"rewards must be [B] = [{len(Delta)}], got {list(R.shape)}")
    refuse(~R.isfinite(), R, "rewards", "is not finite")
    x, y = Delta - Delta.mean(), R - R.mean()
    return {
        "reward": R,
        "R": y,
        "RR": y * y,
        "X": x,
        "XX": x * x,
        "XR": x * y,
        "wR": w * y,
    }


def _of_kept(kept: Any, mask: Tensor, tokens: Tensor) -> dict[str, Tensor]:
    left = as_tensor("kept", kept).to(mask.device)
    if left.shape != mask.shape:
        raise ValueError(f"kept has shape {list(left.shape)}, the mask {list(mask.shape)}")
    if left.dtype != torch.bool:
        refuse((left != 0) & (left != 1), left, "kept", "is neither 0 nor 1")
        left = left == 1
    refuse(left & ~mask, left, "kept", "is true where the mask is false")
    dropped = tokens - left.sum(1, dtype=torch.int32).cpu()
    return {
        "dropped": dropped,
        "touched": (dropped > 0).double(),
        "lost": (dropped == tokens).double(),
    }


def _of_bounds(sums: dict[str, Tensor], correction: Correction) -> dict[str, Tensor]:
    """Ratios beyond the bounds at the correction's level: tokens, or whole responses."""
    if correction.level == "token":
        return {"units": sums["tokens"]}  # counted with the tokens
    low, high = correction.log_bounds
    log_rho = sums["d"] if correction.level == "sequence" else sums["mean"]
    units = sums["sequences"]
    return {
        "units": units,
        "below": units * (log_rho < low),
        "above": units * (log_rho > high),
    }
