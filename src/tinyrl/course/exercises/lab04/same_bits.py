"""Are two results equal to the bit? The question behind every invariance test."""

from __future__ import annotations

import numpy as np
import torch
from torch import Generator, Tensor

from tinyrl.course.exercise import Case, Exercise, Mistakes
from tinyrl.course.exercises.lab04.draws import normal, whole
from tinyrl.course.words import Words


def _bits(x: Tensor) -> Tensor:
    return x.view(torch.int64 if x.dtype == torch.float64 else torch.int32)


def reference(together: Tensor, alone: Tensor) -> Tensor:
    return (_bits(together) == _bits(alone)).all(-1)


def _bytes(together: Tensor, alone: Tensor) -> list[bool] | Tensor:
    pairs = zip(together, alone, strict=True)
    return torch.tensor([a.numpy().tobytes() == b.numpy().tobytes() for a, b in pairs])


def _no_bit_differs(together: Tensor, alone: Tensor) -> Tensor:
    return torch.count_nonzero(_bits(together) ^ _bits(alone), -1) == 0


def _any_nan(together: Tensor, alone: Tensor) -> Tensor:
    same = (together == alone) & (together.signbit() == alone.signbit())
    return (same | (together.isnan() & alone.isnan())).all(-1)


def _close(together: Tensor, alone: Tensor) -> Tensor:
    return torch.isclose(together, alone, equal_nan=True).all(-1)


def _values_or_nan(together: Tensor, alone: Tensor) -> Tensor:
    return ((together == alone) | (together.isnan() & alone.isnan())).all(-1)


def _small_difference(together: Tensor, alone: Tensor) -> Tensor:
    return ((together - alone).abs() < 1e-12).all(-1)


def _sorted(together: Tensor, alone: Tensor) -> Tensor:
    return reference(together.sort(-1).values, alone.sort(-1).values)


MISTAKES: Mistakes = {
    "close": (
        _close,
        Words(
            en="You allow a tolerance. Bits are equal or not; a last bit is what a changed "
            "order of additions leaves.",
            zh="你用了容差。比特要么相等要么不等；改变加法顺序留下的正是最后一位的差别。",
        ),
    ),
    "values": (
        lambda together, alone: (together == alone).all(-1),
        Words(
            en="`==` compares values: NaN equals nothing, not even the same NaN, and 0 "
            "equals -0, whose bits differ.",
            zh="`==` 比较的是数值：NaN 不等于任何数，连同一个 NaN 也不等；0 与 -0 数值相"
            "等，比特却不同。",
        ),
    ),
    "values_or_nan": (
        _values_or_nan,
        Words(
            en="NaN is handled, but 0 and -0 are not: equal values, different bits. View "
            "the numbers as integers.",
            zh="NaN 处理了，但 0 和 -0 没有：数值相等而比特不同。把浮点数看成整数再比较。",
        ),
    ),
    "any_nan": (
        _any_nan,
        Words(
            en="Any two NaNs are equal for you. There are millions of them, and these two "
            "differ in a bit.",
            zh="你把任意两个 NaN 都当作相等。NaN 有上千万种，这两个有一个比特不同。",
        ),
    ),
    "small_difference": (
        _small_difference,
        Words(
            en="A difference below a fixed bound is nothing to you. Tiny numbers differ by "
            "less than any bound, and 0 and -0 by 0.",
            zh="差小于某个固定界限时你就当作相等。极小的数之差可以比任何界限都小，0 与 -0 "
            "的差就是 0。",
        ),
    ),
    "any": (
        lambda together, alone: (_bits(together) == _bits(alone)).any(-1),
        Words(
            en="One equal number in a row is enough for you; all of them have to be.",
            zh="你只要求一行里有一个数相等；应当全部相等。",
        ),
    ),
    "one_answer": (
        lambda together, alone: (_bits(together) == _bits(alone)).all(),
        Words(
            en="This is one answer for the whole batch. Which rows changed is what you "
            "want to know.",
            zh="这是整个 batch 的一个答案。我们想知道的是哪些行变了。",
        ),
    ),
    "each_number": (
        lambda together, alone: _bits(together) == _bits(alone),
        Words(
            en="This is an answer for each number. Put those of a row together with `all`.",
            zh="这是每个数各自的答案。用 `all` 把一行合并起来。",
        ),
    ),
    "columns": (
        lambda together, alone: (_bits(together) == _bits(alone)).all(0),
        Words(
            en="You put columns together. A sequence is a row.",
            zh="你按列合并了。一条序列是一行。",
        ),
    ),
    "different": (
        lambda together, alone: ~reference(together, alone),
        Words(
            en="True where rows differ: the other way round.",
            zh="行不同时返回了真：反了。",
        ),
    ),
    "sorted": (
        _sorted,
        Words(
            en="You compare what numbers there are, or a sum over them, not where they "
            "stand.",
            zh="你只比较了有哪些数（或者它们的和），没有比较它们的位置。",
        ),
    ),
    "bfloat16": (
        lambda together, alone: reference(
            together.bfloat16().float(), alone.bfloat16().float()
        ),
        Words(
            en="You round to BF16 before you compare. Most last bits vanish by that.",
            zh="你在比较之前舍入到了 BF16。这样大部分最后一位的差别就消失了。",
        ),
    ),
}

BY_HAND = Words(en="1 and the next number up", zh="1 与它后面的一个浮点数")
SAME = Words(en="nothing has changed", zh="什么都没有变")
ROWS = Words(en="some rows changed in a last bit, some more", zh="有些行的最后一位变了")
ORDER = Words(
    en="two numbers of a row swapped, in another row bits that change both ways",
    zh="一行里有两个数互换了位置，另一行里比特的变化有增有减",
)
NAN = Words(en="the same NaN on both sides", zh="两边是同一个 NaN")
NANS = Words(
    en="NaNs that differ in a bit, in one row the sign",
    zh="NaN 有一个比特不同，其中一行是符号位",
)
TINY = Words(en="tiny numbers, a last bit apart", zh="极小的数，相差最后一位")
ZERO = Words(en="0 on one side, -0 on the other", zh="一边是 0，另一边是 -0")


def cases(generator: Generator) -> list[Case]:
    def pair(rows: int, columns: int = 5) -> tuple[Tensor, Tensor]:
        """Of each three rows one is equal, one a last bit off, one a good deal off."""
        x = normal(generator, rows, columns)
        y, at = x.clone(), torch.randint(columns, (rows,), generator=generator)
        for row in range(rows):
            upward = torch.full((), torch.inf)
            if row % 3 == 1:
                y[row, at[row]] = torch.nextafter(x[row, at[row]], upward)
            if row % 3 == 2:
                y[row, at[row]] += 0.5
        order = torch.randperm(rows, generator=generator)
        return x[order], y[order]

    up = float(np.nextafter(np.float32(1), np.float32(2)))
    x = normal(generator, 3, 4)
    swapped, nan, zero, minus = x.clone(), x.clone(), x.clone(), x.clone()
    swapped[1, :2] = x[1, :2].flip(0)
    swapped.view(torch.int32)[2, :2] ^= torch.tensor([1, -1], dtype=torch.int32)
    nan[1, 2], zero[2, 1], minus[2, 1] = torch.nan, 0.0, -0.0
    some, tiny = nan.clone(), 1e-30 * x
    some[0, 1] = torch.nan
    others = some.clone()
    others[0, 1] = -others[0, 1]
    others.view(torch.int32)[1, 2] ^= 1 << whole(generator, 0, 22)  # a NaN is free in them
    tiny[2, 2] = 1e-40  # subnormal
    tinier = tiny.clone()
    tinier.view(torch.int32)[1:, 2] ^= 1
    return [
        Case("example", BY_HAND, (torch.ones(2, 2), torch.tensor([[1, 1], [1, up]]))),
        Case("property", SAME, (x, x.clone())),
        Case("inputs", ROWS, pair(6)),
        Case("inputs", ROWS, pair(4)),
        Case("inputs", ORDER, (x, swapped)),
        Case("numbers", NAN, (nan, nan.clone())),
        Case("numbers", ZERO, (zero, minus)),
        Case("numbers", NANS, (some, others)),
        Case("numbers", TINY, (tiny, tinier)),
    ]


EXERCISE = Exercise(
    name="same_bits",
    title=Words(en="Equal to the bit", zh="逐位相等"),
    reference=reference,
    returns=("equal",),
    cases=cases,
    mistakes=MISTAKES,
    alternatives={"bytes": _bytes, "no_bit_differs": _no_bit_differs},
    hints=(
        Words(
            en="Which two pairs does `==` on floats judge otherwise than their bits?",
            zh="浮点数的 `==` 对哪两种情形的判断与比特不同？",
        ),
        Words(
            en="NaN == NaN is false and 0.0 == -0.0 is true. Look at the 32 bits as an "
            "integer and compare those.",
            zh="NaN == NaN 为假，0.0 == -0.0 为真。把 32 个比特当作整数来比较。",
        ),
        Words(
            en="`x.view(torch.int32)` reads the bits of a float32 tensor without changing "
            "them; `.all(-1)` puts a row together.",
            zh="`x.view(torch.int32)` 不改变比特，把 float32 张量读作整数；`.all(-1)` 合并"
            "一行。",
        ),
    ),
    points=(1, 1),
    minutes=5,
    exact=True,
    boolean=("equal",),
)
