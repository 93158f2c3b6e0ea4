"""Watching mismatch: every number of a batch, two causes apart, many steps in a row.

What the numbers are is said in `measures`, how sure they are in `intervals`, which of them
have been called alarming and by whom in `alarms`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from .measures import QUANTILES, of_totals
from .metrics import Mismatch
from .tally import Tally, deltas, tally


def monitor(
    logp_rollout: Any, logp_train: Any, mask: Any = None, **more: Any
) -> dict[str, float]:
    """All numbers of a batch by name; what they are is said in the three tables above.

    Takes the arguments of `tally.tally`; rewards, a kept mask, a correction and top-k sets
    add their own numbers. Raises `ValueError` as it does. Quantiles take longest, since
    they sort all tokens in part: `averages(tally(...))` is everything else.
    """
    numbers = averages(tally(logp_rollout, logp_train, mask, **more))
    d = deltas(logp_rollout, logp_train, mask).numpy()
    of_size = {name: q for name, q in QUANTILES.items() if name.endswith("abs")}
    of_ratio = {name: q for name, q in QUANTILES.items() if name not in of_size}
    numbers |= _quantiles(d, of_ratio, np.exp)
    return numbers | _quantiles(np.abs(d, out=d), of_size, np.positive)


def averages(batch: Tally) -> dict[str, float]:
    """The numbers that come of sums over responses, and the extremes."""
    found = {name: x.item() for name, x in of_totals(batch.total()).items()}
    Delta, mean = batch.sums["d"], batch.sums["mean"]
    ends = batch.extremes
    low, high = ends["d_min"].min(), ends["d_max"].max()
    extremes = {
        "max_abs": torch.maximum(-low, high),
        "ratio_min": low.exp(),
        "ratio_max": high.exp(),
        "seq_max_abs": Delta.abs().max(),
        "log_ppl_diff_min": (-mean).min(),
        "log_ppl_diff_max": (-mean).max(),
    }
    if "gap_max" in ends:
        extremes["prob_gap_max"] = ends["gap_max"].max()
    return found | {name: x.item() for name, x in extremes.items()}


class Apart(NamedTuple):
    """Two causes of p_new / mu = (p_old / mu) (p_new / p_old), each with all numbers."""

    mismatch: dict[str, float]
    """p_old / mu: two engines, or two versions of the weights."""
    staleness: dict[str, float]
    """p_new / p_old: what updates since then have moved."""
    both: dict[str, float]
    """p_new / mu: what a loss in bypass form sees, and all that two arrays can show."""


def apart(
    logp_rollout: Any, logp_old: Any, logp_new: Any, mask: Any = None, **more: Any
) -> Apart:
    """Mismatch and staleness from three logprobs `[B, T]` of the same tokens.

    `logp_old` is the trainer's with the weights that the rollout had, `logp_new` with
    those of now. Only means of d add up (`mean`, `seq_mean`, K1): squares do not, and two
    causes may cancel. Tokens come from mu, so `staleness` tells of KL(old || new) only as
    far as mu is old.
    """
    return Apart(
        monitor(logp_rollout, logp_old, mask, **more),
        monitor(logp_old, logp_new, mask, **more),
        monitor(logp_rollout, logp_new, mask, **more),
    )


def series(steps: Iterable[Mapping[str, float] | Mismatch]) -> dict[str, Tensor]:
    """The numbers of many steps as one series each, `[S]`; NaN where a step has not got it.

    Takes what `monitor` or `metrics.compare` gave at each step.
    """
    rows = [vars(step) if isinstance(step, Mismatch) else step for step in steps]
    for s, row in enumerate(rows):
        if not isinstance(row, Mapping):
            raise ValueError(f"step {s} must map names to numbers, not {row!r}")
    names = dict.fromkeys(name for row in rows for name in row)
    values = {
        n: [math.nan if row.get(n) is None else row[n] for row in rows] for n in names
    }
    return {n: torch.tensor(x, dtype=torch.float64) for n, x in values.items()}


def _quantiles(
    x: np.ndarray[Any, Any], of: dict[str, float], f: Callable[[Any], Any]
) -> dict[str, float]:
    """Of f(x), f rising. Sorts `x` in part, in place."""
    place = np.array(list(of.values())) * (len(x) - 1)
    low = place.astype(int)
    high = np.minimum(low + 1, len(x) - 1)
    x.partition(np.unique([low, high]))
    with np.errstate(over="ignore"):  # a ratio may be inf
        a, b = f(x[low]), f(x[high])
    return dict(zip(of, (a + (place - low) * (b - a)).tolist(), strict=True))
