"""verl's flags for rollout correction, and how verl reads their values."""

from __future__ import annotations

import math
from typing import NamedTuple

from . import sampling
from .flags import Flag, FlagError, Flags, at_least_0, boolean, one_of, optional, plain

AGGREGATIONS = (
    *("token-mean", "token-sum", "seq-mean-token-mean"),
    *("seq-mean-token-sum", "seq-mean-token-sum-norm"),
)
LOSSES = (
    *("vanilla", "dppo_tv", "dppo_kl", "gspo", "sapo", "gpg", "clip_cov", "kl_cov"),
    *("geo_mean", "dro", "cispo"),
)
FLAGS = [
    Flag("rollout_is", optional(one_of("token", "sequence")), None),
    Flag("rollout_is_threshold", optional(plain), "2.0"),
    Flag("rollout_is_batch_normalize", boolean, False),
    Flag("rollout_rs", optional(plain), None),
    Flag("rollout_rs_threshold", optional(plain), None),
    Flag("bypass_mode", boolean, False),
    Flag("loss_type", one_of("ppo_clip", "reinforce"), "ppo_clip"),
    Flag("loss_mode", one_of(*LOSSES), "vanilla"),
    Flag("loss_agg_mode", one_of(*AGGREGATIONS), "token-mean"),
    Flag("clip_ratio_low", at_least_0, 0.2),
    Flag("clip_ratio_high", at_least_0, 0.2),
    *sampling.VERL,
]
REJECTIONS = (
    *(f"{at}_{k}" for at in ("token", "seq_sum", "seq_mean") for k in ("k1", "k2", "k3")),
    *("seq_max_k2", "seq_max_k3"),
)


class Weight(NamedTuple):
    """Level and bounds of the importance weight. With a lower bound it is IcePop's."""

    level: str
    low: float | None
    high: float


class Rejection(NamedTuple):
    """One of rollout_rs: a statistic (token, seq_sum, seq_mean, seq_max) of K1, K2 or K3,
    with bounds as given: on the ratio for K1, of K2 and K3 themselves."""

    name: str
    low: float
    high: float

    @property
    def statistic(self) -> str:
        """Over which tokens."""
        return self.name.rpartition("_")[0]

    @property
    def k(self) -> str:
        """Of what."""
        return self.name[-2:]


def weight(flags: Flags) -> Weight | None:
    """The weight that is computed; whether it is applied is another matter."""
    text = flags["rollout_is_threshold"]
    low, high = (None, math.inf) if text is None else _bounds("rollout_is_threshold", text)
    if flags["rollout_is"] is None or text is None:
        return None
    return Weight(flags["rollout_is"], low, high)


def rejections(flags: Flags) -> list[Rejection]:
    """What response_mask loses; every one must be passed."""
    names, threshold = flags["rollout_rs"], flags["rollout_rs_threshold"]
    if names is None:
        return []
    names = list(dict.fromkeys(x.strip() for x in names.split(",")))
    for name in names:
        try:
            one_of(*REJECTIONS)(name)
        except ValueError as error:
            raise FlagError(f"rollout_rs must be {error}, not {name!r}") from None
    if threshold is None:
        raise FlagError("rollout_rs needs rollout_rs_threshold: verl raises without it")
    given = [x.strip() for x in threshold.split(",")]
    given *= len(names) if len(given) == 1 else 1
    if len(given) != len(names):
        raise FlagError(
            f"rollout_rs_threshold must be one, or one for each of {len(names)} "
            f"rejections, not {len(given)}"
        )
    return [_rejection(name, text) for name, text in zip(names, given, strict=True)]


def _rejection(name: str, text: str) -> Rejection:
    low, high = _bounds("rollout_rs_threshold", text)
    if not name.endswith("k1"):
        if low is not None:
            raise FlagError(f"rollout_rs_threshold of {name} is one number, not {text!r}")
        return Rejection(name, 0.0, high)
    if low is None and high < 1:
        raise FlagError(
            f"rollout_rs_threshold of {name}: {text} alone has 1/{text} as lower bound, "
            "which lies above it"
        )
    return Rejection(name, 1 / high if low is None else low, high)


def _bounds(name: str, text: str) -> tuple[float | None, float]:
    try:
        *low, high = (float(x) for x in text.split("_", 1))
    except ValueError:
        low, high = [], math.nan
    if not all(0 < x < math.inf for x in (*low, high)) or (low and low[0] > high):
        raise FlagError(
            f"{name} must be a number above 0, or lower_upper such as 0.5_5.0, not {text!r}"
        )
    return (low[0] if low else None), high
