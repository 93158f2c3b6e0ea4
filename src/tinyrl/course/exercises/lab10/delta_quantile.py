"""A percentile of |delta|: how large the worst hundredth is, which no mean says."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Generator, Tensor

from tinyrl.course.exercise import Case, Exercise, Function, Mistakes
from tinyrl.course.exercises.lab01 import batch
from tinyrl.course.exercises.lab10 import slips
from tinyrl.course.exercises.lab10.told import PADDING
from tinyrl.course.words import Words


def _size(logp_train: Tensor, logp_rollout: Tensor, mask: Tensor) -> Tensor:
    """|delta| of the real tokens in a row, rising."""
    return (logp_train[mask] - logp_rollout[mask]).abs().sort().values


def _between(x: Tensor, place: float) -> Tensor:
    low = min(max(math.floor(place), 0), len(x) - 1)
    high = min(low + 1, len(x) - 1)
    return x[low] + (place - low) * (x[high] - x[low])


def reference(logp_train: Tensor, logp_rollout: Tensor, mask: Tensor, q: float) -> Tensor:
    x = _size(logp_train, logp_rollout, mask)
    return _between(x, q * (len(x) - 1))


def _torch(logp_train: Tensor, logp_rollout: Tensor, mask: Tensor, q: float) -> Tensor:
    return torch.quantile((logp_train - logp_rollout)[mask].abs(), q)


def _nan(logp_train: Tensor, logp_rollout: Tensor, mask: Tensor, q: float) -> Tensor:
    d = torch.where(mask, logp_train - logp_rollout, torch.nan)
    return d.abs().double().nanquantile(q)


def _lists(logp_train: Tensor, logp_rollout: Tensor, mask: Tensor, q: float) -> float:
    sizes = []
    for p, m, real in zip(logp_train, logp_rollout, mask, strict=True):
        some = zip(p.tolist(), m.tolist(), real.tolist(), strict=True)
        sizes += [abs(a - b) for a, b, r in some if r]
    sizes.sort()
    place = q * (len(sizes) - 1)
    i = int(place)
    j = min(i + 1, len(sizes) - 1)
    return float((1 - (place - i)) * sizes[i] + (place - i) * sizes[j])


def _of(f: Callable[[Tensor, float], Tensor]) -> Function:
    """`f` of the rising |delta| of real tokens, and of q."""
    return lambda p, m, mask, q: f(_size(p, m, mask), q)


def _rows(logp_train: Tensor, logp_rollout: Tensor, mask: Tensor, q: float) -> Tensor:
    rows = zip(logp_train, logp_rollout, mask, strict=True)
    return torch.stack([reference(p, m, real, q) for p, m, real in rows]).mean()


def _zeros(logp_train: Tensor, logp_rollout: Tensor, mask: Tensor, q: float) -> Tensor:
    d = torch.where(mask, logp_train - logp_rollout, 0.0)
    return torch.quantile(d.abs(), q)


MISTAKES: Mistakes = {
    "signed": (
        lambda p, m, mask, q: torch.quantile((p - m)[mask], q),
        Words(
            en="This is a quantile of delta with its sign. A token that the trainer finds "
            "far too unlikely then lies at the other end. Take |delta|.",
            zh="这是带符号的 delta 的分位数：训练端认为太不可能的 token 会跑到另一端。应当"
            "先取 |delta|。",
        ),
    ),
    "padding_is_0": (
        _zeros,
        Words(
            en="Padding counts as a delta of 0, so every quantile is too low. Choose the "
            "real tokens first: `x[mask]`.",
            zh="padding 被当成 delta 为 0 的 token，所有分位数都偏低。应当先用 `x[mask]` 选"
            "出真实 token。",
        ),
    ),
    "padding_counted": (
        lambda p, m, mask, q: torch.quantile((p - m).abs(), q),
        PADDING,
    ),
    "lower": (
        _of(lambda x, q: x[math.floor(q * (len(x) - 1))]),
        Words(
            en="You take the token just below. Between two tokens interpolate: place q * "
            "(N - 1), counted from 0.",
            zh="你取的是下方最近的那个 token。位置 q * (N - 1)（从 0 数起）落在两者之间时要"
            "线性插值。",
        ),
    ),
    "higher": (
        _of(lambda x, q: x[math.ceil(q * (len(x) - 1))]),
        Words(
            en="You take the token just above the place q * (N - 1). Interpolate.",
            zh="你取的是位置 q * (N - 1) 上方最近的那个 token。应当插值。",
        ),
    ),
    "nearest": (
        _of(lambda x, q: x[round(q * (len(x) - 1))]),
        Words(
            en="You round the place to the nearest token. Interpolate between the two.",
            zh="你把位置四舍五入到最近的 token。应当在两者之间插值。",
        ),
    ),
    "n_places": (
        _of(lambda x, q: _between(x, min(q * len(x), len(x) - 1))),
        Words(
            en="The place is q * N. The smallest is at 0 and the largest at N - 1, so the "
            "place of a quantile is q * (N - 1).",
            zh="你用的位置是 q * N。最小值在 0，最大值在 N - 1，所以分位数的位置是 q * (N -"
            " 1)。",
        ),
    ),
    "other_tail": (
        _of(lambda x, q: _between(x, (1 - q) * (len(x) - 1))),
        Words(
            en="This is the quantile 1 - q: you sorted the other way round.",
            zh="这是 1 - q 分位数：排序方向反了。",
        ),
    ),
    "row_quantiles": (
        _rows,
        Words(
            en="You average the quantiles of the responses. No quantile of a batch is "
            "that: sort all real tokens together.",
            zh="你把每条回答的分位数取了平均。那不是整批的分位数：应当把所有真实 token 放在"
            "一起排序。",
        ),
    ),
    "of_the_ratio": (
        _of(lambda x, q: torch.expm1(_between(x, q * (len(x) - 1)))),
        Words(
            en="This is of |ratio - 1|. Asked for is |delta|, in nats.",
            zh="这是 |ratio - 1| 的分位数。题目要的是 |delta|，单位 nat。",
        ),
    ),
    "tail_mean": (
        _of(lambda x, q: x[math.ceil(q * (len(x) - 1)) :].mean()),
        Words(
            en="This is the mean of the tokens beyond the quantile (the expected "
            "shortfall). Asked for is where that tail begins.",
            zh="这是分位数之外那些 token 的平均值（尾部均值）。题目要的是尾部从哪里开始。",
        ),
    ),
    "largest": (
        _of(lambda x, q: x[-1]),
        Words(
            en="This is the largest |delta|. It is one token's, and grows with the batch.",
            zh="这是最大的 |delta|。它只属于一个 token，而且批次越大它越大。",
        ),
    ),
    "average": (
        _of(lambda x, q: x.mean()),
        Words(
            en="This is the mean of |delta|, and knows nothing of q.",
            zh="这是 |delta| 的平均值，与 q 无关。",
        ),
    ),
    "clamped": (
        _of(lambda x, q: _between(x.clamp(max=20), q * (len(x) - 1))),
        batch.CLAMPED,
    ),
    "nonzero": (
        _of(lambda x, q: torch.quantile(x[x > 0], q) if (x > 0).any() else x[0]),
        Words(
            en="You leave out real tokens on which both sides agree exactly. They count, "
            "with 0: only the mask says which tokens are real.",
            zh="你漏掉了两边完全一致的真实 token。它们的 0 也要计入：哪些 token 真实只由 "
            "mask 决定。",
        ),
    ),
} | slips.QUANTILE

Q90 = Words(en="five tokens by hand, q = 0.9", zh="五个可手算的 token，q = 0.9")
ONE = Words(
    en="one real token, impossible to one side",
    zh="只有一个真实 token，其中一边认为它不可能",
)
TIES = Words(en="many equal deltas", zh="许多相等的 delta")


def _case(generator: Generator, q: float, **how: object) -> tuple[Tensor, ...]:
    return (*batch.policies(generator, **how), q)  # type: ignore[arg-type]


def cases(generator: Generator) -> list[Case]:
    same, _, mask = batch.policies(generator)
    agreed = batch.policies(generator, columns=8)
    batch.agree_on_two(*agreed[:2])
    one, other, _ = batch.policies(generator, rows=1, columns=3, padding="nan")
    one[0, 0], other[0, 0] = -0.5, -40 - 20 * torch.rand((), generator=generator)
    first = torch.tensor([[True, False, False]])
    train, rollout, real = batch.policies(generator, rows=4, columns=9)
    coarse = rollout + ((train - rollout) * 4).round() / 4
    return [
        Case("example", Q90, (batch.TRAIN, batch.ROLLOUT, batch.MASK, 0.9)),
        Case("property", batch.SAME, (same, same, mask, 0.75)),
        Case("inputs", batch.RANDOM, _case(generator, 0.9)),
        Case("inputs", batch.RANDOM, _case(generator, 0.31, rows=5, columns=10)),
        Case("inputs", batch.RANDOM, _case(generator, 0.62, rows=2, columns=9)),
        Case("inputs", batch.AGREED, (*agreed, 0.4)),
        Case("inputs", TIES, (coarse - 1, rollout - 1, real, 0.66)),
        Case("inputs", ONE, (one, other, first, 0.99)),
        Case("padding", batch.NAN, _case(generator, 0.8, padding="nan")),
        Case("numbers", batch.LONG, _case(generator, 0.99, rows=2, columns=300)),
    ]


EXERCISE = Exercise(
    name="delta_quantile",
    title=Words(en="A percentile of |delta|", zh="|delta| 的分位数"),
    reference=reference,
    returns=("quantile",),
    cases=cases,
    mistakes=MISTAKES,
    alternatives={"torch": _torch, "nan": _nan, "lists": _lists},
    hints=(
        Words(
            en="Which numbers are sorted: with or without sign, with or without padding?",
            zh="要排序的是哪些数：带不带符号，含不含 padding？",
        ),
        Words(
            en="The smallest stands at place 0, the largest at N - 1; the quantile at q * "
            "(N - 1), between two tokens on the straight line.",
            zh="最小值在位置 0，最大值在 N - 1；分位数在 q * (N - 1)，落在两个 token 之间时"
            "取直线上的点。",
        ),
        Words(
            en="`torch.quantile((logp_train - logp_rollout)[mask].abs(), q)`.",
            zh="即 `torch.quantile((logp_train - logp_rollout)[mask].abs(), q)`。",
        ),
    ),
    points=(1, 1),
    minutes=5,
)
