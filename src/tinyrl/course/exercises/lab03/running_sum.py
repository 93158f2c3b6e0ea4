"""A sum that is kept in a few bits: why an accumulator is FP32."""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from tinyrl.course.exercise import Case, Exercise, Function, Mistakes
from tinyrl.course.exercises.lab03.numbers import to_bits, uniform, whole
from tinyrl.course.words import Words


def reference(x: Tensor, mantissa_bits: int) -> Tensor:
    total = torch.zeros((), dtype=x.dtype)
    for value in x:
        total = to_bits(total + value, mantissa_bits)
    return total


def _by_steps(x: Tensor, mantissa_bits: int) -> float:
    """In Python floats, counting steps of the gap at the sum."""
    total = 0.0
    for value in x.tolist():
        total += value
        if total:
            step = 2.0 ** (torch.frexp(torch.tensor(total))[1].item() - 1 - mantissa_bits)
            total = round(total / step) * step
    return total


def _recursive(x: Tensor, mantissa_bits: int) -> Tensor:
    if len(x) == 0:
        return torch.zeros(())
    return to_bits(_recursive(x[:-1], mantissa_bits) + x[-1], mantissa_bits)


def _pairwise(x: Tensor, mantissa_bits: int) -> Tensor:
    if len(x) == 1:
        return to_bits(x[0], mantissa_bits)
    middle = len(x) // 2
    parts = (_pairwise(part, mantissa_bits) for part in (x[:middle], x[middle:]))
    return to_bits(sum(parts, torch.zeros(())), mantissa_bits)


def _truncated(x: Tensor, mantissa_bits: int) -> Tensor:
    total = torch.zeros(())
    for value in x:
        fraction, exponent = torch.frexp(total + value)
        steps = 2.0 ** (mantissa_bits + 1)
        total = torch.ldexp((fraction * steps).trunc() / steps, exponent)
    return total


def _fixed_point(x: Tensor, mantissa_bits: int) -> Tensor:
    total, step = torch.zeros(()), 2.0**-mantissa_bits
    for value in x:
        total = ((total + value) / step).round() * step
    return total


def _first_kept(x: Tensor, mantissa_bits: int) -> Tensor:
    total = x[0]
    for value in x[1:]:
        total = to_bits(total + value, mantissa_bits)
    return total


def _by_log(size: Function) -> Function:
    """The gap from a logarithm, of the sum or of its size; 0 has none."""

    def wrong(x: Tensor, mantissa_bits: int) -> Tensor:
        total = torch.zeros(())
        for value in x:
            total = total + value
            step = 2.0 ** (torch.frexp(total)[1] - 1 - mantissa_bits)
            total = torch.where(size(total) > 0, (total / step).round() * step, torch.nan)
        return total

    return wrong


def _a_little_added(x: Tensor, mantissa_bits: int) -> Tensor:
    total = torch.zeros(())
    for value in x:
        total = total + value
        step = 2.0 ** (torch.frexp(total.abs() + 1e-12)[1] - 1 - mantissa_bits)
        total = (total / step).round() * step
    return total


MISTAKES: Mistakes = {
    "not_rounded": (
        lambda x, mantissa_bits: x.sum(),
        Words(
            en="This is the exact sum. Here every intermediate sum is stored, and rounded.",
            zh="这是精确的和。这里每个中间和都要存储，因此都要舍入。",
        ),
    ),
    "rounded_at_the_end": (
        lambda x, mantissa_bits: to_bits(x.sum(), mantissa_bits),
        Words(
            en="You round once, at the end: that is an FP32 accumulator. Here the "
            "accumulator itself has M bits: round after each addition.",
            zh="你只在最后舍入一次：那是 FP32 累加器。这里累加器本身只有 M 位：每次相加之后"
            "都"
            "要舍入。",
        ),
    ),
    "terms_rounded": (
        lambda x, mantissa_bits: to_bits(x, mantissa_bits).sum(),
        Words(
            en="You round the terms and add them exactly. It is the sum that loses bits.",
            zh="你舍入的是每一项，然后精确相加。真正丢失比特的是累加和。",
        ),
    ),
    "terms_rounded_too": (
        lambda x, mantissa_bits: reference(to_bits(x, mantissa_bits), mantissa_bits),
        Words(
            en="You round each term as well. The terms are not stored in M bits, only the "
            "sum is: a term just past half of the sum's gap must not become that half.",
            zh="你把每一项也舍入了。只有累加和以 M 位存储，各项不是：略大于半个间距的项不能"
            "先变成恰好一半。",
        ),
    ),
    "first_kept": (
        _first_kept,
        Words(
            en="The first term goes into the sum as it is. Start at 0: 0 + x[0] is a sum, "
            "too, and is rounded.",
            zh="第一项没有舍入就成了累加和。应当从 0 开始：0 + x[0] 也是一次相加，也要舍"
            "入。",
        ),
    ),
    "pairwise": (
        _pairwise,
        Words(
            en="You add in pairs. That is a good way to lose less; asked for is one "
            "addition after another, from the left.",
            zh="你是两两相加的。这样确实损失更少；但题目要求从左到右逐个相加。",
        ),
    ),
    "from_the_right": (
        lambda x, mantissa_bits: reference(x.flip(0), mantissa_bits),
        Words(
            en="You add from the right. Rounded sums depend on the order: start at x[0].",
            zh="你是从右边开始加的。带舍入的求和与次序有关：要从 x[0] 开始。",
        ),
    ),
    "truncated": (
        _truncated,
        Words(
            en="You cut bits off after each addition. Round to the nearest, ties to even.",
            zh="你在每次相加之后截断低位。应当舍入到最近，居中取偶。",
        ),
    ),
    "fixed_point": (
        _fixed_point,
        Words(
            en="You round to M bits behind the point, whatever the size of the sum. The "
            "gap "
            "grows with the sum.",
            zh="不管和有多大，你都舍入到小数点后 M 位。间距会随着和变大。",
        ),
    ),
    "negative_sum_is_nan": (
        _by_log(lambda total: total),
        Words(
            en="A sum below 0 becomes NaN: it has no logarithm. The gaps of -x are those "
            "of x: take |sum|, and mind 0.",
            zh="和小于 0 时变成了 NaN：负数没有对数。-x 处的间距与 x 处相同：取和的绝对值，"
            "并注意 0。",
        ),
    ),
    "zero_sum_is_nan": (
        _by_log(torch.abs),
        Words(
            en="A sum of exactly 0 becomes NaN, and everything after it: 0 has no "
            "logarithm. `torch.frexp` knows what to do with 0.",
            zh="和恰好为 0 时变成了 NaN，之后也全是 NaN：0 没有对数。`torch.frexp` 能正确处"
            "理 0。",
        ),
    ),
    "a_little_added": (
        _a_little_added,
        Words(
            en="You add a small number so that 0 has a logarithm. Sums smaller than it get "
            "its gap, not their own. `torch.frexp` needs no help with 0.",
            zh="你加了一个很小的数，好让 0 有对数。比它还小的和就用了它的间距，而不是自己"
            "的。`torch.frexp` 处理 0 不需要帮忙。",
        ),
    ),
    "one_bit_more": (
        lambda x, mantissa_bits: reference(x, mantissa_bits + 1),
        Words(en="Your accumulator has one bit too many.", zh="你的累加器多了一位。"),
    ),
    "mean": (
        lambda x, mantissa_bits: reference(x, mantissa_bits) / len(x),
        Words(en="This is the mean; the sum is asked for.", zh="这是平均，题目要的是和。"),
    ),
}

BY_HAND = Words(
    en="two mantissa bits: 4 + 0.5 + 0.5 + 0.5", zh="两位尾数：4 + 0.5 + 0.5 + 0.5"
)
FITS = Words(en="a sum that loses nothing", zh="没有任何损失的和")
ANY = Words(en="terms of one size", zh="大小相近的项")
SMALL = Words(en="a large number, then many small ones", zh="一个大数，然后是许多小数")
ALONE = Words(en="one term alone, of more bits", zh="只有一项，位数更多")
PAST = Words(
    en="terms a little larger than half of the sum's gap",
    zh="略大于半个间距的项",
)
NEGATIVE = Words(en="sums below 0", zh="小于 0 的和")
CANCELLED = Words(en="a sum that is 0 on the way", zh="中途恰好为 0 的和")
TINY = Words(en="sums near 2^-100", zh="2^-100 左右的和")
STUCK = Words(en="a sum that stops growing", zh="不再增长的和")


def cases(generator: Generator) -> list[Case]:
    def terms(n: int, low: float, high: float) -> Tensor:
        """Terms of ten bits, so that float32 adds them exactly."""
        return (uniform(generator, n, low, high) * 2**9).round() / 2**9

    first = torch.tensor([float(whole(generator, 16, 32))])
    unit = 2.0 ** whole(generator, -3, 4)
    negative = unit * torch.tensor([-2.5, 0.75, -5.75, 1.0])
    cancelled = unit * torch.tensor([1.0, -1.0, -2.5, 0.75, -5.75])
    alone = unit * (1 + torch.tensor([whole(generator, 1, 8) / 32 + 1 / 64]))
    # Of more bits than BF16 has, which would make them ties.
    past = unit * torch.tensor([4.0] + 4 * [0.5 + whole(generator, 1, 3) / 1024])
    small = 2.0 ** -whole(generator, 95, 106)
    tiny = torch.full((48,), 2.0 ** whole(generator, -7, -4))
    return [
        Case("example", BY_HAND, (torch.tensor([4.0, 0.5, 0.5, 0.5]), 2)),
        Case("property", FITS, (torch.ones(whole(generator, 5, 16)), 4)),
        Case("inputs", ANY, (terms(16, 0.3, 2.0), 4)),
        Case("inputs", ANY, (terms(12, -1.0, 3.0), 3)),
        Case("inputs", SMALL, (torch.cat([first, terms(40, 0.1, 0.9)]), 5)),
        Case("inputs", PAST, (past, 2)),
        Case("numbers", ALONE, (alone, 2)),
        Case("numbers", NEGATIVE, (negative, 2)),
        Case("numbers", CANCELLED, (cancelled, 2)),
        Case("numbers", TINY, (small * torch.tensor([1.125, 0.75, 2.625]), 2)),
        Case("numbers", STUCK, (torch.cat([torch.ones(1), tiny]), 3)),
    ]


EXERCISE = Exercise(
    name="running_sum",
    title=Words(en="A sum in few bits", zh="用很少的比特求和"),
    reference=reference,
    returns=("total",),
    cases=cases,
    mistakes=MISTAKES,
    alternatives={"python": _by_steps, "recursive": _recursive},
    hints=(
        Words(
            en="What does 4 + 0.5 become, if the numbers near 4 are 4, 5, 6 ...?",
            zh="如果 4 附近的数只有 4、5、6……，那么 4 + 0.5 会变成什么？",
        ),
        Words(
            en="Start from 0; add x[0], round the sum to M bits; add x[1], round again.",
            zh="从 0 开始；加 x[0]，把和舍入到 M 位；再加 x[1]，再舍入。",
        ),
        Words(
            en="A loop over x with the rounding of exercise 3 in it: "
            "`total = round_nearest(total + value, mantissa_bits)`.",
            zh="对 x 循环，里面用第 3 题的舍入："
            "`total = round_nearest(total + value, mantissa_bits)`。",
        ),
    ),
    points=(1, 1),
    minutes=6,
    exact=True,
)
