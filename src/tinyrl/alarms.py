"""Thresholds that somebody has published, judged on the numbers of a batch.

None is ours: each has its source, the date of the text that was read, and what it cannot
see. They disagree by orders of magnitude, because they were set for other models and for
other ends (a test that must pass, a warning in a log). A silent alarm is no proof: nothing
here sees tokens that mu never samples, or logprobs that are wrong on both sides alike.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from .intervals import Interval
from .logprobs import number

Kind = Literal["documentation", "code", "blog"]
Of = Literal["mismatch", "staleness"]


@dataclass(frozen=True)
class Alarm:
    """Rings where a number of `measures` lies outside `low .. high`."""

    name: str
    number: str
    low: float | None
    high: float | None
    source: str
    date: str
    """Of the text read: its last change."""
    kind: Kind
    says: str
    """What its source makes of it, in our words."""
    of: Of = "mismatch"
    """Whose ratio: p_train / mu, or p_new / p_old (see `monitoring.apart`)."""

    def rings(self, value: float) -> bool:
        low = -math.inf if self.low is None else self.low
        high = math.inf if self.high is None else self.high
        return not low <= value <= high

    @property
    def blind(self) -> str:
        """What can be wrong while it is silent."""
        return BLIND[self.number]


BLIND: dict[str, str] = {
    "ratio_mean": "errors of both signs that cancel, as those of rounding",
    "ess": "an offset that all tokens share, as the log S of a top-p cut: equal weights",
    "ratio_std": "an offset that all tokens share, as the log S of a top-p cut",
    "k1": "errors whose signs cancel: a shift by one token can leave it near 0",
    "k2": "which side is wrong, and rare tokens among very many",
    "k3": "which side is wrong, and rare tokens that the trainer finds far rarer: it grows "
    "only linearly there",
    "chi2": "tokens that the trainer finds far rarer: each lowers it, by 1 at the most",
    "error_factor": "the sign: a bias that adds up over a response looks like noise",
    "mean_abs": "the sign: a bias that adds up over a response looks like noise",
    "k3_reverse": "how many tokens are off: a single one may decide it",
    "log_cosh": "which side is wrong, and rare tokens: it grows only linearly",
}

VERL = "verl docs/algo/rollout_corr.md"
NEMO = "NeMo-RL docs/guides/grpo.md"
ALARMS: tuple[Alarm, ...] = (
    Alarm(
        "verl mean weight",
        "ratio_mean",
        0.5,
        2.0,
        VERL,
        "2026-04-30",
        "documentation",
        "Far from 1: a significant off-policy gap. verl itself takes the mean of the "
        "weights that it applies (since 0.8.0): cut at 2, its default, they have no mean "
        "above 2",
    ),
    Alarm(
        "verl ESS",
        "ess",
        0.3,
        None,
        VERL,
        "2026-04-30",
        "documentation",
        "Too low: few samples carry the weight. verl's is of weights cut to 0 .. C; up to "
        "0.7.1 they were cut to 1/C .. C, and with C = 2 it could not fall below 0.64",
    ),
    Alarm(
        "verl weight spread",
        "ratio_std",
        None,
        1.0,
        VERL,
        "2026-04-30",
        "documentation",
        "Too high. verl's is of weights cut to 0 .. C, and with C = 2 it cannot exceed 1",
    ),
    Alarm(
        "verl KL",
        "k1",
        -0.1,
        0.1,
        VERL,
        "2026-04-30",
        "documentation",
        "A significant off-policy gap, whatever the sign",
    ),
    Alarm(
        "verl chi2",
        "chi2",
        None,
        1.0,
        VERL,
        "2026-04-30",
        "documentation",
        "A severe shift of the distribution",
    ),
    Alarm(
        "NeMo-RL error factor",
        "error_factor",
        None,
        1.05,
        "NeMo-RL docs/adding-new-models.md, nemo_rl/algorithms/grpo.py",
        "2026-07-08",
        "documentation",
        "Investigate, at equal precision; spikes are tolerated, an upward trend is not",
    ),
    Alarm(
        "NeMo-RL KL",
        "k3",
        None,
        1e-3,
        NEMO,
        "2026-08-18",
        "documentation",
        "Below is acceptable; investigate spikes above",
    ),
    Alarm(
        "NeMo-RL KL, other way",
        "k3_reverse",
        None,
        1e-3,
        NEMO,
        "2026-08-18",
        "documentation",
        "Below is acceptable; their example of one token has 22,015",
    ),
    Alarm(
        "NeMo-RL JS",
        "log_cosh",
        None,
        1e-3,
        NEMO,
        "2026-08-18",
        "documentation",
        "Below is acceptable",
    ),
    Alarm(
        "Tinker KL v1",
        "k1",
        None,
        0.01,
        "tinker-cookbook skills/research/references/ops.md",
        "2026-05-21",
        "documentation",
        "Training was stable below. One bound: nothing is said of values below 0",
    ),
    Alarm(
        "Tinker KL v2",
        "k2",
        None,
        0.01,
        "tinker-cookbook skills/research/references/hyperparams.md",
        "2026-05-21",
        "documentation",
        "Training is stable below: said of KL, of neither of two estimators alone",
    ),
    Alarm(
        "prime-rl new model",
        "k3",
        None,
        0.015,
        "prime-rl docs/development.md",
        "2026-08-20",
        "documentation",
        "A new model is merged only if all of 20 steps are below",
    ),
    Alarm(
        "prime-rl small test",
        "k3",
        None,
        0.01,
        "prime-rl tests/integration/test_reverse_text.py",
        "2026-08-15",
        "code",
        "The mean of the last three steps of a small run must be below",
    ),
    Alarm(
        "slime CI",
        "mean_abs",
        None,
        0.1,
        "slime slime/utils/arguments.py",
        "2026-08-21",
        "code",
        "Bound asserted in tests; 1e-6 is named for aligned kernels. slime averages over "
        "each response first",
    ),
    Alarm(
        "slime dense band",
        "k3",
        None,
        1e-3,
        "Miles and slime blog (Awesome-ML-SYS-Tutorial rlhf/slime/mismatch/blog-en.md)",
        "2026-01",
        "blog",
        "Dense models are usually at 1e-5 .. 1e-3: above is unusual for one. No threshold "
        "of harm: their runs went on above it",
    ),
    Alarm(
        "slime MoE band",
        "k3",
        None,
        1e-1,
        "Miles and slime blog (Awesome-ML-SYS-Tutorial rlhf/slime/mismatch/blog-en.md)",
        "2026-01",
        "blog",
        "Mixtures of experts are usually at 1e-3 .. 1e-1: above is unusual even for one",
    ),
    Alarm(
        "slime first step",
        "k1",
        None,
        1e-8,
        "slime slime/backends/megatron_utils/model.py",
        "2026-08-21",
        "code",
        "At the first step nothing has been updated: p_new and p_old come of one pass",
        of="staleness",
    ),
)


@dataclass(frozen=True)
class Verdict:
    alarm: Alarm
    value: float
    rings: bool
    sure: bool | None
    """Whether the whole interval says the same, which NaN does not; None without one."""

    def __str__(self) -> str:
        state = "rings" if self.rings else "silent"
        doubt = " (the interval reaches across)" if self.sure is False else ""
        a = self.alarm
        bounds = " .. ".join("" if x is None else f"{x:g}" for x in (a.low, a.high))
        return (
            f"{a.name}: {state}{doubt}: {a.number} {self.value:.4g}, bounds {bounds} "
            f"[{a.source}, {a.date}]. Blind to {a.blind}."
        )


def judge(
    numbers: Mapping[str, float] | Mapping[str, Interval],
    *,
    of: Of = "mismatch",
    alarms: Iterable[Alarm] = ALARMS,
) -> list[Verdict]:
    """What each alarm says of `numbers`, from `monitor` or `intervals`; ringing ones first.

    With intervals, a verdict also says whether it is sure. Alarms whose number is not there
    are left out. Raises `ValueError` where that is all of them, and on NaN.
    """
    if not isinstance(numbers, Mapping):
        raise ValueError(f"numbers must map names to numbers, not {numbers!r}")
    verdicts = []
    for alarm in alarms:
        if alarm.of != of or alarm.number not in numbers:
            continue
        found = numbers[alarm.number]
        known = isinstance(found, Interval)
        estimate, *ends = found if isinstance(found, Interval) else (found,)
        estimate = number(alarm.number, estimate)
        if math.isnan(estimate):
            raise ValueError(f"{alarm.number} is NaN: no alarm can judge it")
        rings = alarm.rings(estimate)
        same = all(x == x and _side(alarm, x) == _side(alarm, estimate) for x in ends)
        verdicts.append(Verdict(alarm, estimate, rings, same if known else None))
    if not verdicts:
        raise ValueError(f"none of the numbers has an alarm: {', '.join(numbers)}")
    return sorted(verdicts, key=lambda verdict: not verdict.rings)


def _side(alarm: Alarm, value: float) -> int:
    """Below the bounds (-1), within (0) or above (1)."""
    if not alarm.rings(value):
        return 0
    return 1 if alarm.high is not None and value > alarm.high else -1
