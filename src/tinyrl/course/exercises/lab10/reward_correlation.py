"""Does the trainer rate good responses otherwise than the rollout did?"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Generator, Tensor

from tinyrl.course.exercise import Case, Exercise, Function, Mistakes
from tinyrl.course.exercises.lab01 import batch
from tinyrl.course.exercises.lab10 import rated
from tinyrl.course.exercises.lab10.told import PADDING
from tinyrl.course.words import Words


def _Delta(logp_train: Tensor, logp_rollout: Tensor, mask: Tensor) -> Tensor:
    return torch.where(mask, logp_train - logp_rollout, 0.0).sum(1)


def _unguarded(x: Tensor, y: Tensor) -> Tensor:
    x, y = x - x.mean(), y - y.mean()
    return (x * y).sum() / ((x * x).sum().sqrt() * (y * y).sum().sqrt())


def _pearson(x: Tensor, y: Tensor) -> Tensor:
    """Guarded by the ends: the mean of equal numbers need not be one of them."""
    constant = x.max() == x.min() or y.max() == y.min()
    return torch.zeros((), dtype=x.dtype) if constant else _unguarded(x, y)


def _flat(x: Tensor, scale: Tensor) -> bool:
    """Whether `x` does not vary: also where a check has moved it by a millionth."""
    return bool((x - x.mean()).abs().max() <= 1e-5 * scale)


def reference(
    logp_train: Tensor, logp_rollout: Tensor, rewards: Tensor, mask: Tensor
) -> Tensor:
    x = _Delta(logp_train, logp_rollout, mask)
    scale = torch.where(mask, logp_train.abs() + logp_rollout.abs(), 0.0).sum(1).max()
    if _flat(x, scale) or _flat(rewards, rewards.abs().max()):
        return torch.zeros_like(scale)
    return _pearson(x, rewards)


def _corrcoef(
    logp_train: Tensor, logp_rollout: Tensor, rewards: Tensor, mask: Tensor
) -> Tensor:
    both = torch.stack([_Delta(logp_train, logp_rollout, mask), rewards])
    constant = (both == both[:, :1]).all(1).any()
    return torch.tensor(0.0) if constant else torch.corrcoef(both)[0, 1]


def _scores(
    logp_train: Tensor, logp_rollout: Tensor, rewards: Tensor, mask: Tensor
) -> Tensor:
    x, y = _Delta(logp_train, logp_rollout, mask), rewards
    if 1 in (len(set(x.tolist())), len(set(y.tolist()))):
        return torch.tensor(0.0)
    a, b = (x - x.mean()) / x.std(), (y - y.mean()) / y.std()
    return (a * b).sum() / (len(x) - 1)


def _lists(
    logp_train: Tensor, logp_rollout: Tensor, rewards: Tensor, mask: Tensor
) -> float:
    x, y = _Delta(logp_train, logp_rollout, mask).tolist(), rewards.tolist()
    mx, my = math.fsum(x) / len(x), math.fsum(y) / len(y)
    xy = math.fsum((a - mx) * (b - my) for a, b in zip(x, y, strict=True))
    xx, yy = (math.fsum((a - m) ** 2 for a in z) for z, m in ((x, mx), (y, my)))
    return xy / math.sqrt(xx * yy) if xx * yy else 0.0


def _of(f: Callable[[Tensor, Tensor], Tensor]) -> Function:
    """`f` of the summed deltas and the rewards."""
    return lambda p, q, rewards, mask: f(_Delta(p, q, mask), rewards)


def _tokens(
    logp_train: Tensor, logp_rollout: Tensor, rewards: Tensor, mask: Tensor
) -> Tensor:
    each = rewards[:, None].expand(mask.shape)
    return _pearson((logp_train - logp_rollout)[mask], each[mask])


def _ranks(x: Tensor) -> Tensor:
    """Ranks, ties sharing the mean of theirs."""
    below, equal = x[:, None] > x, x[:, None] == x
    return below.sum(1) + (equal.sum(1) - 1) / 2


def _rounded(x: Tensor, y: Tensor) -> Tensor:
    """Guarded by its denominator alone, in which rounding may be left."""
    r = _unguarded(x, y)
    return torch.where(r.isnan(), 0.0, r)


def _cosine(x: Tensor, y: Tensor) -> Tensor:
    size = (x * x).sum().sqrt() * (y * y).sum().sqrt()
    return torch.zeros_like(size) if size == 0 else (x * y).sum() / size


def _one_pass(x: Tensor, y: Tensor) -> Tensor:
    vx, vy = (x * x).mean() - x.mean() ** 2, (y * y).mean() - y.mean() ** 2
    r = ((x * y).mean() - x.mean() * y.mean()) / (vx * vy).sqrt()
    constant = (x == x[0]).all() | (y == y[0]).all()
    return torch.where(constant, 0.0, r)


def _two_sizes(x: Tensor, y: Tensor) -> Tensor:
    return _pearson(x, y) * len(x) / max(len(x) - 1, 1)


def _slope(x: Tensor, y: Tensor) -> Tensor:
    spreads = y.std(correction=0) / x.std(correction=0)
    return _pearson(x, y) * spreads.nan_to_num(0.0, 0.0, 0.0)


MISTAKES: Mistakes = {
    "of_ratios": (
        _of(lambda x, r: _pearson(x.exp(), r)),
        Words(
            en="You correlate with exp(Delta): a few large ratios decide it. Here the log "
            "is taken.",
            zh="你用的是 exp(Delta)：少数几个大比值就能决定结果。这里要用它的对数。",
        ),
    ),
    "per_token": (
        lambda p, q, rewards, mask: _pearson(_Delta(p, q, mask) / mask.sum(1), rewards),
        Words(
            en="You divide each Delta by its length. The ratio of a response belongs to "
            "the sum.",
            zh="你把每条的 Delta 除以了长度。整条回答的比值对应的是总和。",
        ),
    ),
    "tokens": (
        _tokens,
        Words(
            en="You give each token the reward of its response and correlate tokens: long "
            "responses weigh more, and the noise of single tokens is in it. One point a "
            "response.",
            zh="你把奖励分给每个 token 再求相关：长回答权重更大，还混入了单个 token 的噪声"
            "。应当每条回答一个点。",
        ),
    ),
    "sign": (
        _of(lambda x, r: _pearson(-x, r)),
        Words(
            en="The sign is turned: Delta is train - rollout. Above 0 the trainer likes "
            "good responses better than the rollout did.",
            zh="符号反了：Delta 是 train - rollout。大于 0 表示训练端比采样端更看好得分高的"
            "回答。",
        ),
    ),
    "absolute": (
        _of(lambda x, r: _pearson(x.abs(), r)),
        Words(
            en="|Delta| says how far apart the sides are, not who likes the response "
            "better. Keep the sign.",
            zh="|Delta| 只说明两边差多远，不说明谁更看好这条回答。要保留符号。",
        ),
    ),
    "covariance": (
        _of(lambda x, r: ((x - x.mean()) * (r - r.mean())).mean()),
        Words(
            en="This is the covariance. Divide by both standard deviations.",
            zh="这是协方差。还要除以两个标准差。",
        ),
    ),
    "slope": (
        _of(_slope),
        Words(
            en="This is the slope of a line through the points, in units of reward. Divide "
            "by both standard deviations, not by one variance.",
            zh="这是拟合直线的斜率，单位是奖励。应当除以两个标准差，而不是一个方差。",
        ),
    ),
    "squared": (
        _of(lambda x, r: _pearson(x, r) ** 2),
        Words(
            en="This is r squared. It has lost its sign.",
            zh="这是 r 的平方，符号没有了。",
        ),
    ),
    "uncentred": (
        _of(_cosine),
        Words(
            en="The means are not taken off: this is a cosine, and a constant reward gives "
            "it a value.",
            zh="没有减去均值：这是余弦相似度，奖励为常数时它也不为 0。",
        ),
    ),
    "ranks": (
        _of(lambda x, r: _pearson(_ranks(x), _ranks(r))),
        Words(
            en="This is a correlation of ranks (Spearman). Asked for is Pearson's.",
            zh="这是秩相关（Spearman）。题目要的是 Pearson 相关系数。",
        ),
    ),
    "two_sizes": (
        _of(_two_sizes),
        Words(
            en="The covariance is divided by B - 1 and the deviations by B (or the other "
            "way round). The same on both, or neither.",
            zh="协方差除以 B - 1，标准差却除以 B（或反过来）。两处要一致。",
        ),
    ),
    "padding_counted": (
        lambda p, q, rewards, mask: _pearson((p - q).sum(1), rewards),
        PADDING,
    ),
    "no_guard": (
        _of(_unguarded),
        Words(
            en="0 / 0: where all rewards are equal, or all Deltas, nothing goes with "
            "anything. Return 0 there.",
            zh="0 / 0：所有奖励或所有 Delta 都相等时谈不上相关。此时应返回 0。",
        ),
    ),
    "sure": (
        _of(lambda x, r: _pearson(x, r) + ((x == x[0]).all() | (r == r[0]).all())),
        Words(
            en="You return 1 where all rewards or all Deltas are equal. Nothing goes with "
            "anything there: return 0.",
            zh="所有奖励或所有 Delta 都相等时你返回了 1。此时谈不上相关：应返回 0。",
        ),
    ),
    "clamped": (
        lambda p, q, r, mask: _pearson(_Delta((p - q).clamp(-20, 20), 0 * q, mask), r),
        batch.CLAMPED,
    ),
    "rounded": (
        _of(_rounded),
        Words(
            en="Equal rewards, or equal Deltas, do not get 0: their mean differs from them "
            "in the last bit, and noise over noise is 1 or -1. Compare the largest with "
            "the smallest before you divide.",
            zh="奖励（或 Delta）全部相等时没有得到 0：均值与它们差最后一位，噪声除以噪声得 "
            "1 或 -1。应当在相除之前比较最大值与最小值。",
        ),
    ),
    "one_pass": (
        _of(_one_pass),
        Words(
            en="mean(y^2) - mean(y)^2 is lost to rounding where rewards lie far from 0. "
            "Take the means off first, then multiply.",
            zh="奖励远离 0 时，mean(y^2) - mean(y)^2 会被舍入误差吃掉。应当先减去均值再相乘"
            "。",
        ),
    ),
}


def cases(generator: Generator) -> list[Case]:
    def case(rewards: Tensor, **how: object) -> tuple[Tensor, ...]:
        p, q, mask = batch.policies(generator, rows=len(rewards), **how)  # type: ignore[arg-type]
        return p, q, rewards, mask

    def real(rows: int) -> Tensor:
        return batch.uniform(generator, (rows,), -1.0, 3.0)

    same, _, mask = batch.policies(generator, rows=4)
    p, q, far, there = case(rated.coins(generator, 7))
    batch.agree_on_two(p, q)
    p[0, 0], q[0, 0] = -0.1, -36.0 - torch.rand((), generator=generator)
    p[1, 0], q[1, 0] = -26.0 - torch.rand((), generator=generator), -0.1
    small, other, tiny, real_ones = case(real(8))
    hand = torch.tensor([[True, True, False], [True, True, True], [True, False, False]])
    train = torch.tensor([[-0.5, -1.0, -7.0], [-0.25, -3.0, -1.0], [-2.0, 0.0, 0.0]])
    rollout = torch.tensor([[-0.75, -1.25, 0.0], [-0.5, -2.0, -1.5], [-1.0, -1.0, 0.0]])
    by_hand = train, rollout, torch.tensor([1.0, 1.0, 0.0]), hand
    return [
        Case("example", rated.THREE, by_hand),
        Case("property", batch.SAME, (same, same, real(4), mask)),
        Case("property", rated.SURE, case(torch.full((5,), 2.5))),
        Case("property", rated.ALONE, case(real(1))),
        Case("inputs", rated.RIGHT, case(rated.coins(generator, 9), columns=9)),
        Case("inputs", rated.REAL, case(real(6))),
        Case("inputs", rated.OUTLIER, (p, q, far, there)),
        Case("padding", batch.NAN, case(real(5), padding="nan")),
        Case("numbers", rated.OFFSET, case(4096 + rated.coins(generator, 9))),
        Case("numbers", rated.TINY, (small / 1e7, other / 1e7, tiny, real_ones)),
        Case("numbers", rated.ALIKE, rated.alike(generator)),
    ]


EXERCISE = Exercise(
    name="reward_correlation",
    title=Words(en="Reward against ratio", zh="奖励与比值的相关"),
    reference=reference,
    returns=("correlation",),
    cases=cases,
    mistakes=MISTAKES,
    alternatives={"corrcoef": _corrcoef, "scores": _scores, "lists": _lists},
    hints=(
        Words(
            en="One point a response: its summed delta and its reward. How many points?",
            zh="每条回答一个点：delta 之和与奖励。一共有几个点？",
        ),
        Words(
            en="Take the means off both, multiply, add up; divide by the root of both sums "
            "of squares. And if one does not vary? Rounding may be left in its sum.",
            zh="两者先减去均值，相乘再求和，除以两个平方和的平方根。其中一个不变化时怎么办？"
            "它的平方和里可能留有舍入误差。",
        ),
        Words(
            en="0 if `x.max() == x.min()` or so for y. Else `x, y = x - x.mean(), y - "
            "y.mean()` and `(x * y).sum() / ((x * x).sum().sqrt() * (y * "
            "y).sum().sqrt())`.",
            zh="若 `x.max() == x.min()`（y 同理）返回 0；否则 `x, y = x - x.mean(), y - "
            "y.mean()`，再 `(x * y).sum() / ((x * x).sum().sqrt() * (y * "
            "y).sum().sqrt())`。",
        ),
    ),
    points=(1, 2),
    minutes=8,
)
