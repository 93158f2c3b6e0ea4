"""An alarm that a single spike does not ring, and NaN does."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Generator, Tensor

from tinyrl.course.exercise import Case, Exercise, Mistakes
from tinyrl.course.exercises.lab10 import series, slips
from tinyrl.course.words import Words

Compare = Callable[[float, float], bool]


def _above(value: float, bound: float) -> bool:
    """NaN lies above every bound."""
    return not value <= bound


def _below(value: float, bound: float) -> bool:
    return value < bound


def _walk(
    values: Tensor,
    high: float,
    low: float,
    patience: int,
    bad: Compare = _above,
    good: Compare = _below,
) -> Tensor:
    on, run, out = False, 0, []
    for value in values.tolist():
        run = run + 1 if bad(value, high) else 0
        if on and good(value, low):
            on = False
        elif run >= patience:
            on = True
        out.append(on)
    return torch.tensor(out, dtype=torch.bool)


def reference(values: Tensor, high: float, low: float, patience: int) -> Tensor:
    return _walk(values, high, low, patience)


def _by_windows(values: Tensor, high: float, low: float, patience: int) -> Tensor:
    """Starts and ends as vectors; the later of the last two decides."""
    bad, steps = ~(values <= high), torch.arange(len(values))
    padded = torch.cat([torch.zeros(patience, dtype=torch.bool), bad])
    start = padded.unfold(0, patience, 1)[1:].all(-1)
    began = torch.where(start, steps, -1).cummax(0).values
    ended = torch.where(values < low, steps, -1).cummax(0).values
    return began > ended


def _in_place(values: Tensor, high: float, low: float, patience: int) -> Tensor:
    out = torch.zeros(len(values), dtype=torch.bool)
    for t in range(len(values)):
        recent = values[max(0, t - patience + 1) : t + 1]
        long = len(recent) == patience and not bool((recent <= high).any())
        out[t] = long or (t > 0 and bool(out[t - 1]) and not bool(values[t] < low))
    return out


def _nan_is(value: float) -> Callable[[Tensor, float, float, int], Tensor]:
    """NaN read as another value."""
    return lambda x, high, low, n: _walk(torch.nan_to_num(x, nan=value), high, low, n)


def _total(values: Tensor, high: float, low: float, patience: int) -> Tensor:
    """Steps above the bound, in a row or not."""
    on, run, out = False, 0, []
    for value in values.tolist():
        run += _above(value, high)
        if on and value < low:
            on, run = False, 0
        elif run >= patience:
            on = True
        out.append(on)
    return torch.tensor(out)


def _backdated(values: Tensor, high: float, low: float, patience: int) -> Tensor:
    out = reference(values, high, low, patience)
    for t in range(1, len(out)):
        if out[t] and not out[t - 1]:
            out[max(0, t - patience + 1) : t] = True
    return out


def _patient_end(values: Tensor, high: float, low: float, patience: int) -> Tensor:
    """Off only after as many steps below."""
    on, run, calm, out = False, 0, 0, []
    for value in values.tolist():
        run = run + 1 if _above(value, high) else 0
        calm = calm + 1 if value < low else 0
        if on and calm >= patience:
            on = False
        elif run >= patience:
            on = True
        out.append(on)
    return torch.tensor(out)


def _mean(values: Tensor, high: float, low: float, patience: int) -> Tensor:
    """The mean of the last steps against the bounds."""
    on, out, xs = False, [], values.tolist()
    for t in range(len(xs)):
        some = xs[max(0, t - patience + 1) : t + 1]
        average = sum(some) / len(some)
        if on and average < low:
            on = False
        elif len(some) == patience and _above(average, high):
            on = True
        out.append(on)
    return torch.tensor(out)


MISTAKES: Mistakes = {
    "nan_is_silent": (
        lambda x, high, low, n: _walk(x, high, low, n, bad=lambda v, b: v > b),
        Words(
            en="NaN > high is false, so the worst value of all is silent. Ask `not value "
            "<= high`.",
            zh="NaN > high 为假，于是最糟的值反而不响。应当写 `not value <= high`。",
        ),
    ),
    "nan_is_good": (
        _nan_is(-math.inf),
        Words(
            en="NaN is read as a small number: it silences an alarm that is on. It has to "
            "ring.",
            zh="NaN 被当成了很小的数，会让正在响的警报停下。它必须算作报警。",
        ),
    ),
    "nan_is_a_number": (
        _nan_is(1e3),
        Words(
            en="NaN is read as a large number, or as the largest of the series. A bound "
            "can lie above it: NaN is worse than any number.",
            zh="NaN 被当成了某个大数，或序列里的最大值。阈值可能比它还高：NaN 比任何数都糟"
            "。",
        ),
    ),
    "not_finite": (
        lambda x, *bounds: _walk(torch.where(x == -math.inf, torch.nan, x), *bounds),
        Words(
            en="-inf counts as bad. It is no NaN: it lies below `low` and ends the alarm.",
            zh="-inf 被算作坏值了。它不是 NaN：它低于 `low`，应当让警报停下。",
        ),
    ),
    "sizes": (
        lambda x, *bounds: _walk(x.abs(), *bounds),
        Words(
            en="You look at |value|. A value far below 0 lies below `low`.",
            zh="你看的是绝对值。远小于 0 的值低于 `low`。",
        ),
    ),
    "no_hysteresis": (
        lambda x, high, low, n: _walk(x, high, high, n, good=lambda v, b: v <= b),
        Words(
            en="The alarm is switched off as soon as a value is not above `high`. It stays "
            "until one lies below `low`, so that it does not flicker at the bound.",
            zh="值一不超过 `high` 警报就停了。应当等到低于 `low` 才停，否则会在阈值附近反复"
            "跳动。",
        ),
    ),
    "latched": (
        lambda x, high, low, n: _walk(x, high, low, n, good=lambda v, b: False),
        Words(
            en="Once on it is never switched off again. A value below `low` ends it.",
            zh="一旦响起就再也不停。出现低于 `low` 的值就应当停下。",
        ),
    ),
    "at_once": (
        lambda x, high, low, n: _walk(x, high, low, 1),
        Words(
            en="One value above `high` rings it. It takes `patience` of them in a row.",
            zh="一个值超过 `high` 就响了。需要连续 `patience` 个。",
        ),
    ),
    "one_late": (
        lambda x, high, low, n: _walk(x, high, low, n + 1),
        Words(
            en="It rings a step late: at the step of the last of `patience` values, not "
            "after it.",
            zh="晚了一步：应当在连续第 `patience` 个值的那一步就响。",
        ),
    ),
    "not_in_a_row": (
        _total,
        Words(
            en="You count values above `high` whether or not others lie between. They have "
            "to follow each other.",
            zh="你累计的是所有超过 `high` 的值，中间隔着别的值也算。它们必须连续。",
        ),
    ),
    "backdated": (
        _backdated,
        Words(
            en="The whole streak is marked, from its first value on. At that step nobody "
            "could know how it goes on.",
            zh="你把整段从第一个值起都标上了。在那一步还无法知道后面会怎样。",
        ),
    ),
    "at_the_bound": (
        lambda x, high, low, n: _walk(x, high, low, n, bad=lambda v, b: not v < b),
        Words(
            en="A value equal to `high` counts. Above is above.",
            zh="等于 `high` 的值也被算上了。要严格大于。",
        ),
    ),
    "off_at_low": (
        lambda x, high, low, n: _walk(x, high, low, n, good=lambda v, b: v <= b),
        Words(
            en="A value equal to `low` ends it. Below is below.",
            zh="等于 `low` 的值就让警报停了。要严格小于。",
        ),
    ),
    "patient_end": (
        _patient_end,
        Words(
            en="You wait for `patience` values below `low`. The first one ends it.",
            zh="你等到连续 `patience` 个值低于 `low` 才停。第一个就应当停。",
        ),
    ),
    "mean_of_last": (
        _mean,
        Words(
            en="You compare the mean of the last values: one large spike rings it. Each of "
            "them has to lie above.",
            zh="你比较的是最近几个值的平均：一个大尖峰就会触发。应当每一个都超过。",
        ),
    ),
    "off": (
        lambda x, high, low, n: ~reference(x, high, low, n),
        Words(
            en="This is true where the alarm is silent.",
            zh="这里没有响时为真。方向反了。",
        ),
    ),
} | slips.ALARM

HAND = Words(en="nine steps by hand", zh="九步，可手算")
QUIET = Words(en="spikes, never enough of them in a row", zh="有尖峰，但从不连续够多次")
RANDOM = Words(en="a random series", zh="随机序列")
BORDER = Words(
    en="values on the bounds, and next to them", zh="恰好落在阈值上的值，和紧挨阈值的值"
)
BELOW = Words(en="values and a bound below 0", zh="有小于 0 的值和阈值")
ONE_BOUND = Words(en="`low` is `high`", zh="两个阈值相等")
SHORT = Words(en="fewer steps than `patience`", zh="步数少于 `patience`")
NANS = Words(en="a series with NaN", zh="含 NaN 的序列")
ALONE = Words(en="large numbers, and nothing bad but NaN", zh="数很大，只有 NaN 是坏值")
INFS = Words(en="inf, -inf and tiny values", zh="正负无穷大和极小的值")


def cases(generator: Generator) -> list[Case]:
    hand = torch.tensor([0.0, 3.0, 0.5, 3.0, 3.0, 1.5, 2.0, 0.5, 3.0])
    large = 2.0**60
    short = 2 + torch.rand(2, generator=generator)
    return [
        Case("example", HAND, (hand, 2.0, 1.0, 2)),
        Case("property", QUIET, (series.quiet(generator), 2.0, 1.0, 3)),
        Case("property", SHORT, (short, 1.5, 1.0, 3)),
        Case("inputs", RANDOM, (series.drawn(generator, 60, 2.0, 1.0), 2.0, 1.0, 2)),
        Case("inputs", BELOW, (series.drawn(generator, 80, 4.0, 1.0) - 3, 1.0, -2.0, 3)),
        Case("inputs", ONE_BOUND, (series.one_bound(generator), 2.0, 2.0, 1)),
        Case("inputs", BORDER, (series.at_bounds(generator), 2.0, 1.0, 2)),
        Case("numbers", NANS, (series.with_nan(generator, 50, 2.0, 1.0), 2.0, 1.0, 2)),
        Case("numbers", ALONE, (large * series.nan_alone(generator), 2 * large, large, 2)),
        Case("numbers", INFS, (series.with_inf(generator), 3.0, 1.5, 3)),
    ]


EXERCISE = Exercise(
    name="alarm_on",
    title=Words(en="An alarm over steps", zh="跨步的警报"),
    reference=reference,
    returns=("on",),
    cases=cases,
    mistakes=MISTAKES,
    alternatives={"by_windows": _by_windows, "in_place": _in_place},
    hints=(
        Words(
            en="Walk through the steps with two things in hand: is the alarm on, and how "
            "many values in a row lay above.",
            zh="逐步前进，手里记两样东西：警报是否在响，已经连续几个值超过上限。",
        ),
        Words(
            en="Every comparison with NaN is false. Which way round do you ask, so that "
            "NaN counts as bad and never as good?",
            zh="与 NaN 的任何比较都为假。该怎样提问，才能让 NaN 算坏、绝不算好？",
        ),
        Words(
            en="`run = 0 if v <= high else run + 1`; `if on and v < low: on = False`, "
            "`elif run >= patience: on = True`.",
            zh="先 `run = 0 if v <= high else run + 1`；再 `if on and v < low: on = False`"
            "，`elif run >= patience: on = True`。",
        ),
    ),
    points=(1, 2),
    minutes=9,
    exact=True,
    boolean=("on",),
)
