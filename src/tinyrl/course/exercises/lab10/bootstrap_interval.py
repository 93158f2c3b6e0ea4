"""An interval on mean |delta|: whole responses are drawn again, not tokens."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Generator, Tensor

from tinyrl.course.exercise import Case, Exercise, Function, Mistakes
from tinyrl.course.exercises.lab01 import batch
from tinyrl.course.exercises.lab10 import slips
from tinyrl.course.exercises.lab10.told import PADDING
from tinyrl.course.words import Words

Two = tuple[Tensor, Tensor]
Inputs = tuple[Tensor, Tensor, Tensor, Tensor, float]


def _sums(logp_train: Tensor, logp_rollout: Tensor, mask: Tensor) -> Two:
    """Summed |delta| and number of tokens of each response."""
    size = torch.where(mask, logp_train - logp_rollout, 0.0).abs()
    return size.sum(1), mask.sum(1).to(size)


def _ends(drawn: Tensor, level: float) -> Two:
    x, tail = drawn.sort().values, (1 - level) / 2
    return _at(x, tail), _at(x, 1 - tail)


def _at(x: Tensor, q: float) -> Tensor:
    place = min(max(q, 0.0), 1.0) * (len(x) - 1)
    low = math.floor(place)
    return x[low] + (place - low) * (x[min(low + 1, len(x) - 1)] - x[low])


def reference(
    logp_train: Tensor, logp_rollout: Tensor, mask: Tensor, draws: Tensor, level: float
) -> Two:
    size, tokens = _sums(logp_train, logp_rollout, mask)
    return _ends(size[draws].sum(1) / tokens[draws].sum(1), level)


def _gathered(
    logp_train: Tensor, logp_rollout: Tensor, mask: Tensor, draws: Tensor, level: float
) -> Two:
    """Row by row, all tokens of the responses that were drawn in one heap."""
    means = []
    for rows in draws:
        means.append((logp_train - logp_rollout)[rows][mask[rows]].abs().mean())
    ends = torch.tensor([(1 - level) / 2, (1 + level) / 2]).to(means[0])
    low, high = torch.quantile(torch.stack(means), ends)
    return low, high


def _counted(
    logp_train: Tensor, logp_rollout: Tensor, mask: Tensor, draws: Tensor, level: float
) -> Two:
    """How often each response was drawn, times its sums."""
    counts = torch.nn.functional.one_hot(draws, len(mask)).sum(1).double()
    size, tokens = _sums(logp_train.double(), logp_rollout.double(), mask)
    return _ends((counts @ size) / (counts @ tokens), level)


def _of(f: Callable[[Tensor, Tensor, Tensor], Tensor]) -> Function:
    """Percentiles of resampled numbers, `f` of sums, tokens and draws."""

    def wrong(p: Tensor, q: Tensor, mask: Tensor, draws: Tensor, level: float) -> Two:
        return _ends(f(*_sums(p, q, mask), draws), level)

    return wrong


def _from(f: Callable[[Tensor, Tensor, float], Two]) -> Function:
    """`f` of the right resamples, the batch's own number and the level."""

    def wrong(p: Tensor, q: Tensor, mask: Tensor, draws: Tensor, level: float) -> Two:
        size, tokens = _sums(p, q, mask)
        drawn = size[draws].sum(1) / tokens[draws].sum(1)
        return f(drawn, size.sum() / tokens.sum(), level)

    return wrong


def _tokens(p: Tensor, q: Tensor, mask: Tensor, draws: Tensor, level: float) -> Two:
    """Draws of tokens in place of responses."""
    return _ends((p - q)[mask].abs()[draws].mean(1), level)


def _signed(p: Tensor, q: Tensor, mask: Tensor, draws: Tensor, level: float) -> Two:
    d = torch.where(mask, p - q, 0.0).sum(1)
    return _ends(d[draws].sum(1) / mask.sum(1)[draws].sum(1), level)


def _padded(p: Tensor, q: Tensor, mask: Tensor, draws: Tensor, level: float) -> Two:
    return _ends((p - q).abs()[draws].mean((1, 2)), level)


def _clamped(p: Tensor, q: Tensor, *rest: Any) -> Two:
    return reference((p - q).clamp(-20, 20), 0 * q, *rest)


def _normal(drawn: Tensor, here: Tensor, level: float) -> Two:
    z = math.sqrt(2) * torch.erfinv(torch.tensor(level, dtype=drawn.dtype))
    return here - z * drawn.std(), here + z * drawn.std()


def _of_the_mean(drawn: Tensor, here: Tensor, level: float) -> Two:
    low, high = _normal(drawn, drawn.mean(), level)
    root, middle = math.sqrt(len(drawn)), drawn.mean()
    return middle + (low - middle) / root, middle + (high - middle) / root


def _basic(drawn: Tensor, here: Tensor, level: float) -> Two:
    low, high = _ends(drawn, level)
    return 2 * here - high, 2 * here - low


def _once(size: Tensor, tokens: Tensor, draws: Tensor) -> Tensor:
    """Each response at most once, however often it was drawn."""
    there = torch.nn.functional.one_hot(draws, len(size)).amax(1).to(size)
    return (there @ size) / (there @ tokens)


def _nearest(drawn: Tensor, here: Tensor, level: float) -> Two:
    x, tail = drawn.sort().values, (1 - level) / 2
    n = len(x) - 1
    return x[math.floor(tail * n)], x[math.ceil((1 - tail) * n)]


MISTAKES: Mistakes = {
    "tokens": (
        _tokens,
        Words(
            en="You draw tokens. Those of one response share its prompt and prefix, their "
            "deltas go together: drawn one by one they pass for independent, and the "
            "interval is too narrow. `draws` are rows of the batch.",
            zh="你重抽的是 token。同一回答的 token 共享提示与前缀，delta 一起变动：逐个重抽"
            "等于把它们当成独立样本，区间会过窄。`draws` 是批次的行号。",
        ),
    ),
    "means_of_means": (
        _of(lambda s, n, draws: (s / n)[draws].mean(1)),
        Words(
            en="You average each response first, so tokens of short ones weigh more. Sum "
            "|delta| and tokens over what was drawn, then divide.",
            zh="你先在每条回答内取平均，短回答的 token 权重更大。应当对抽到的回答分别累加 "
            "|delta| 和 token 数，再相除。",
        ),
    ),
    "same_denominator": (
        _of(lambda s, n, draws: s[draws].sum(1) / n.sum()),
        Words(
            en="You divide by the tokens of the batch. A resample has its own number.",
            zh="你除以了原批次的 token 数。每次重抽都有自己的 token 数。",
        ),
    ),
    "padding_counted": (
        _padded,
        PADDING,
    ),
    "signed": (
        _signed,
        Words(
            en="This is an interval on the mean of delta with its sign. Take |delta|.",
            zh="这是带符号 delta 平均值的区间。应当先取 |delta|。",
        ),
    ),
    "each_once": (
        _of(_once),
        Words(
            en="You count a response once although it was drawn twice. That repetition is "
            "what makes the spread.",
            zh="某条回答被抽到两次，你只算了一次。重复正是离散程度的来源。",
        ),
    ),
    "whole_tail": (
        _from(
            lambda x, here, level: (
                _at(x.sort().values, 1 - level),
                _at(x.sort().values, level),
            )
        ),
        Words(
            en="You leave 1 - level out at each end. Half of it belongs to each.",
            zh="你在两端各去掉了 1 - level。每端只应去掉它的一半。",
        ),
    ),
    "upper_from_0": (
        _from(lambda x, here, level: (x.min(), _at(x.sort().values, level))),
        Words(
            en="This interval begins with the smallest resample. Leave out as much below "
            "as above.",
            zh="这个区间从最小的重抽值开始。上下两端应去掉同样多。",
        ),
    ),
    "normal": (
        _from(_normal),
        Words(
            en="Estimate and z standard deviations: symmetric, so it can reach below 0 "
            "where |delta| can't. Take percentiles of the resamples.",
            zh="这是估计值加减 z 个标准差：区间对称，可能伸到 0 以下，而 |delta| 不会为负。"
            "应当取重抽值的分位数。",
        ),
    ),
    "two_deviations": (
        _from(lambda x, _, level: (x.mean() - 2 * x.std(), x.mean() + 2 * x.std())),
        Words(
            en="Two standard deviations, whatever `level` is. Take percentiles.",
            zh="两个标准差与 `level` 无关。应当取重抽值的分位数。",
        ),
    ),
    "clamped": (_clamped, batch.CLAMPED),
    "of_the_mean": (
        _from(_of_the_mean),
        Words(
            en="You divided by the root of the number of resamples: more resamples would "
            "make the batch surer. Their spread itself is the uncertainty.",
            zh="你又除以了重抽次数的平方根：仿佛重抽越多批次就越可靠。重抽值本身的离散才是"
            "不确定性。",
        ),
    ),
    "basic": (
        _from(_basic),
        Words(
            en="This is the basic (reflected) interval, 2 * estimate - percentile. It may "
            "reach below 0. Here: the percentiles themselves.",
            zh="这是反射式（basic）区间：2 × 估计值 - 分位数，可能小于 0。这里直接取分位数"
            "。",
        ),
    ),
    "no_interpolation": (
        _from(_nearest),
        Words(
            en="The ends are resamples. Interpolate between two, as `torch.quantile` does.",
            zh="端点直接取了某次重抽值。应当像 `torch.quantile` 那样插值。",
        ),
    ),
    "range": (
        _from(lambda x, here, level: (x.min(), x.max())),
        Words(
            en="This is the range of all resamples: it grows with their number.",
            zh="这是全部重抽值的范围：重抽越多范围越大。",
        ),
    ),
    "order": (
        _from(lambda x, here, level: _ends(x, level)[::-1]),
        Words(
            en="The ends are the wrong way round: low, then high.",
            zh="两端顺序反了：先低后高。",
        ),
    ),
} | slips.BOOTSTRAP

HAND = Words(en="two responses, three resamples by hand", zh="两条短回答，三次重抽，可手算")
RANDOM = Words(en="random responses and resamples", zh="随机的回答和重抽")
WORST = Words(en="one response is far off", zh="有一条回答差得很远")


def _draws(generator: Generator, rows: int, resamples: int) -> Tensor:
    return torch.randint(rows, (resamples, rows), generator=generator)


def cases(generator: Generator) -> list[Case]:
    def case(level: float, resamples: int, **how: Any) -> Inputs:
        p, q, mask = batch.policies(generator, **how)
        return p, q, mask, _draws(generator, len(mask), resamples), level

    by_hand = torch.tensor([[0, 0], [1, 0], [1, 1]])
    hand = batch.TRAIN, batch.ROLLOUT, batch.MASK, by_hand, 0.5
    same, _, mask = batch.policies(generator)
    a, b, m = batch.policies(generator, rows=4, columns=8)
    batch.agree_on_two(a, b)
    p, q, real, draws, _ = case(0.8, 40, rows=6, columns=8)
    p = torch.where(torch.arange(6)[:, None] == 2, p - 30, p)
    return [
        Case("example", HAND, hand),
        Case("property", batch.SAME, (same, same, mask, _draws(generator, 3, 9), 0.9)),
        Case("inputs", RANDOM, case(0.9, 30, rows=5)),
        Case("inputs", RANDOM, case(0.77, 51, rows=7, columns=10)),
        Case("inputs", batch.AGREED, (a, b, m, _draws(generator, 4, 24), 0.6)),
        Case("inputs", WORST, (p, q, real, draws, 0.8)),
        Case("padding", batch.NAN, case(0.95, 36, rows=4, padding="nan")),
        Case("numbers", batch.LONG, case(0.9, 20, columns=400, spread=0.02)),
    ]


EXERCISE = Exercise(
    name="bootstrap_interval",
    title=Words(en="An interval by resampling responses", zh="重抽回答得到区间"),
    reference=reference,
    returns=("low", "high"),
    cases=cases,
    mistakes=MISTAKES,
    alternatives={"gathered": _gathered, "counted": _counted},
    hints=(
        Words(
            en="A row of `draws` says which responses make one resample. What is mean "
            "|delta| over the tokens of these?",
            zh="`draws` 的一行说明一次重抽由哪些回答组成。在它们的 token 上 |delta| 的平均"
            "是多少？",
        ),
        Words(
            en="Keep two sums a response, of |delta| and of tokens. Index them with "
            "`draws`, add up, divide; then cut (1 - level) / 2 off at each end.",
            zh="每条回答保存两个和：|delta| 与 token 数。用 `draws` 取出、相加、相除；再在"
            "两端各去掉 (1 - level) / 2。",
        ),
        Words(
            en="`m = size[draws].sum(1) / tokens[draws].sum(1)`, then `torch.quantile(m, "
            "(1 - level) / 2)` and `(1 + level) / 2`.",
            zh="`m = size[draws].sum(1) / tokens[draws].sum(1)`，再取 `torch.quantile(m, "
            "(1 - level) / 2)` 与 `(1 + level) / 2`。",
        ),
    ),
    points=(1, 3),
    minutes=10,
)
