"""Store a number in a small format: rounding, overflow to infinity, gradual underflow."""

from __future__ import annotations

import math

import torch
from torch import Generator, Tensor

from tinyrl.course.exercise import Case, Exercise, Function, Mistakes
from tinyrl.course.exercises.lab03.numbers import (
    BIAS_NOT_A_POWER,
    NARROW,
    WHOLE_POWER,
    bias,
    signs,
    smallest_normal,
    spread,
    to_bits,
    uniform,
)
from tinyrl.course.words import Words


def _largest(exponent_bits: int, mantissa_bits: int) -> float:
    top = math.ldexp(1.0, bias(exponent_bits))
    return 2 * top - math.ldexp(top, -mantissa_bits)


def _gradual(x: Tensor, exponent_bits: int, mantissa_bits: int) -> Tensor:
    """Rounded, with subnormal numbers, without a largest one."""
    _, e = torch.frexp(x.abs().clamp(min=smallest_normal(exponent_bits)))
    step = 2.0 ** (e - 1 - mantissa_bits)
    return (x / step).round() * step


def reference(x: Tensor, exponent_bits: int, mantissa_bits: int) -> Tensor:
    y = _gradual(x, exponent_bits, mantissa_bits)
    beyond = y.abs() > _largest(exponent_bits, mantissa_bits)
    return torch.where(beyond, y.sign() * math.inf, y)


def _two_ranges(x: Tensor, exponent_bits: int, mantissa_bits: int) -> Tensor:
    """Normal and subnormal numbers apart; the limit is the tie behind the largest one."""
    step = smallest_normal(exponent_bits) * 2.0**-mantissa_bits
    small = x.abs() < smallest_normal(exponent_bits)
    y = torch.where(small, (x / step).round() * step, to_bits(x, mantissa_bits))
    limit = 2.0 ** (bias(exponent_bits) + 1) * (1 - 2.0 ** (-mantissa_bits - 2))
    y[x >= limit], y[x <= -limit] = math.inf, -math.inf
    return y


def _from_a_list(x: Tensor, exponent_bits: int, mantissa_bits: int) -> Tensor:
    """Write all numbers down, as steps of the smallest, and look for the nearest."""
    top, M = 2**exponent_bits - 1, mantissa_bits
    codes = torch.arange(top * 2**M + 1)
    e, m = codes >> M, codes & (2**M - 1)
    leading = (e > 0) * 2**M
    power = 2.0 ** (e.clamp(min=1) - bias(exponent_bits) - M).double()
    numbers = (leading + m) * power  # the last one, 2^128 for BF16, is past float32
    distance = (x.abs()[:, None] - numbers).abs()
    distance[:, codes % 2 == 1] *= 1 + 2.0**-20  # of two that are as near, the even one
    nearest = distance.argmin(-1)
    sizes = torch.where(nearest == top * 2**M, math.inf, numbers[nearest])
    return x.sign() * sizes


def _past(limit: Function) -> Function:
    """Another treatment of what lies past the largest number."""

    def wrong(x: Tensor, exponent_bits: int, mantissa_bits: int) -> Tensor:
        y = _gradual(x, exponent_bits, mantissa_bits)
        return limit(x, y, _largest(exponent_bits, mantissa_bits))  # type: ignore[no-any-return]

    return wrong


def _below(low: Function) -> Function:
    """Another treatment of what lies below the smallest normal number."""

    def wrong(x: Tensor, exponent_bits: int, mantissa_bits: int) -> Tensor:
        y = reference(x, exponent_bits, mantissa_bits)
        lowest = smallest_normal(exponent_bits)
        small = (x.abs() < lowest) & (x != 0)
        return torch.where(small, low(x, y, lowest, mantissa_bits), y)

    return wrong


def _inf(y: Tensor, beyond: Tensor) -> Tensor:
    return torch.where(beyond, y.sign() * math.inf, y)


def _truncated(x: Tensor, exponent_bits: int, mantissa_bits: int) -> Tensor:
    _, e = torch.frexp(x.abs().clamp(min=smallest_normal(exponent_bits)))
    step = 2.0 ** (e - 1 - mantissa_bits)
    return _inf((x / step).trunc() * step, x.abs() >= 2.0 ** (bias(exponent_bits) + 1))


def _with_bias(biased: Function) -> Function:
    """Another bias, and with it other ends."""

    def wrong(x: Tensor, exponent_bits: int, mantissa_bits: int) -> Tensor:
        middle = biased(exponent_bits)
        _, e = torch.frexp(x.abs().clamp(min=2.0 ** (1 - middle)))
        step = 2.0 ** (e - 1 - mantissa_bits)
        y = (x / step).round() * step
        return _inf(y, y.abs() >= 2.0 ** (middle + 1))

    return wrong


def _whole_power(x: Tensor, exponent_bits: int, mantissa_bits: int) -> Tensor:
    _, e = torch.frexp(x.abs().clamp(min=smallest_normal(exponent_bits)))
    step = torch.tensor(2) ** (e - 1 - mantissa_bits)
    y = (x / step).round() * step
    return _inf(y, y.abs() > _largest(exponent_bits, mantissa_bits))


def _divided_by_itself(x: Tensor, exponent_bits: int, mantissa_bits: int) -> Tensor:
    return x / x.abs() * reference(x.abs(), exponent_bits, mantissa_bits)


MISTAKES: Mistakes = {
    "saturated": (
        _past(lambda x, y, top: y.clamp(-top, top)),
        Words(
            en="You stop at the largest number. That is saturation, which some FP8 kernels "
            "do; here overflow gives infinity, as in FP16 and BF16.",
            zh="你停在了最大的数上。这叫饱和，有些 FP8 kernel 这样做；这里溢出要得到无穷"
            "大，与 FP16、BF16 一样。",
        ),
    ),
    "limit_before_rounding": (
        _past(lambda x, y, top: _inf(y, x.abs() > top)),
        Words(
            en="You compare before you round. A number a little past the largest one still "
            "rounds back to it; only from half a gap past it on is it infinite.",
            zh="你在舍入之前就比较了。略大于最大数的数仍会舍入回最大数；超过它半个间距才是"
            "无穷大。",
        ),
    ),
    "no_overflow": (
        _past(lambda x, y, top: y),
        Words(
            en="Nothing overflows. This format ends at (2 - 2^-M) * 2^bias.",
            zh="没有处理溢出。这个格式的最大数是 (2 - 2^-M) * 2^bias。",
        ),
    ),
    "overflow_to_nan": (
        _past(lambda x, y, top: torch.where(y.abs() > top, torch.nan, y)),
        Words(
            en="You return NaN for overflow. E4M3 on GPUs has no infinity and does that; "
            "here the answer is infinity, with the sign of x.",
            zh="你在溢出时返回 NaN。GPU 上的 E4M3 没有无穷大，是这样做的；这里应当返回带符"
            "号的无穷大。",
        ),
    ),
    "infinity_without_sign": (
        _past(lambda x, y, top: torch.where(y.abs() > top, math.inf, y)),
        Words(
            en="A large negative number becomes +inf: infinity has a sign.",
            zh="很大的负数变成了 +inf：无穷大也有符号。",
        ),
    ),
    "only_positive_overflow": (
        _past(lambda x, y, top: torch.where(y > top, math.inf, y)),
        Words(
            en="Only positive numbers overflow. Compare |y| with the limit.",
            zh="只有正数会溢出。应当用 |y| 与上限比较。",
        ),
    ),
    "highest_exponent_lost": (
        _past(lambda x, y, top: _inf(y, y.abs() > top / 2)),
        Words(
            en="You overflow one power of two too early. The largest exponent of a number "
            "is the bias: stored, 2^E - 2.",
            zh="溢出早了一个 2 的幂。数值的最大指数等于 bias，存储为 2^E - 2。",
        ),
    ),
    "highest_exponent_used": (
        _past(lambda x, y, top: _inf(y, y.abs() > 2 * top)),
        Words(
            en="You overflow one power of two too late: the highest stored exponent is "
            "kept for infinity and NaN.",
            zh="溢出晚了一个 2 的幂：最高的存储指数留给了无穷大和 NaN。",
        ),
    ),
    "flushed": (
        _below(lambda x, y, lowest, M: torch.zeros_like(x)),
        Words(
            en="You flush everything below the smallest normal number to 0. The subnormal "
            "numbers lie there, 2^M - 1 of them.",
            zh="你把小于最小规格化数的数全部变成了 0。那里还有 2^M - 1 个次正规数。",
        ),
    ),
    "no_subnormal_grid": (
        _below(lambda x, y, lowest, M: to_bits(x, M)),
        Words(
            en="Below the smallest normal number you go on with smaller and smaller steps. "
            "The exponent can't go lower: the step stays, and what is below half of it "
            "becomes 0.",
            zh="小于最小规格化数之后，你的步长还在变小。指数已经不能再低：步长不变，小于半"
            "个步长的数变成 0。",
        ),
    ),
    "never_zero": (
        _below(lambda x, y, lowest, M: torch.where(y == 0, x.sign() * lowest * 2.0**-M, y)),
        Words(
            en="A tiny number becomes the smallest one. Below half of it, 0 is nearer.",
            zh="极小的数变成了最小的次正规数。小于它一半时，0 更近。",
        ),
    ),
    "truncated": (
        _truncated,
        Words(
            en="You cut the bits off instead of rounding to the nearest number.",
            zh="你截掉了低位，而不是舍入到最近的数。",
        ),
    ),
    "always_e4m3": (
        lambda x, exponent_bits, mantissa_bits: reference(x, 4, 3),
        Words(
            en="You round to E = 4, M = 3 whatever is asked for. Use `exponent_bits` and "
            "`mantissa_bits`.",
            zh="不管要求什么格式，你都按 E = 4、M = 3 来舍入。应当使用 `exponent_bits` 和 "
            "`mantissa_bits`。",
        ),
    ),
    "bias_not_a_power": (_with_bias(lambda E: 2 * E - 1), BIAS_NOT_A_POWER),
    "power_of_whole_numbers": (_whole_power, WHOLE_POWER),
    "zero_is_nan": (
        _divided_by_itself,
        Words(
            en="0 becomes NaN: x / |x| is 0 / 0 there. `x.sign()` is 0 at 0.",
            zh="0 变成了 NaN：x / |x| 在那里是 0 / 0。`x.sign()` 在 0 处为 0。",
        ),
    ),
}

BY_HAND = Words(en="E = 4, M = 3: 1.1, 100, 300, 0.004", zh="E4M3 下的四个数")
KEPT = Words(en="what the format holds stays as it is", zh="格式里已有的数保持不变")
LARGE = Words(en="large numbers of both signs", zh="正负两边的大数")
EDGE = Words(en="around the largest number", zh="最大数附近")
TINY = Words(en="around the smallest number, and 0", zh="最小数附近，以及 0")
WIDE = Words(
    en="E = 8, M = 1, around the smallest number, and 0",
    zh="E = 8，M = 1，最小数附近，以及 0",
)
FP16 = Words(en="FP16, from end to end", zh="FP16，从一端到另一端")
BF16 = Words(en="BF16, from end to end", zh="BF16，从一端到另一端")


def cases(generator: Generator) -> list[Case]:
    kept = reference(spread(generator, 8, -9, 7), 4, 3)
    large = signs(generator, 8) * 2 ** uniform(generator, 8, 5.0, 11.0)
    large[:4] = torch.tensor([200.0, -200.0, 700.0, -700.0]) + uniform(generator, 4, 0, 9)

    def edge(E: int, M: int) -> Tensor:
        """The largest number, and what lies up to three half gaps past it."""
        half_gap = math.ldexp(1.0, bias(E) - M - 1)
        past = torch.tensor([-1.0, 0.0, 0.5, 0.98, 1.0, 1.02, 2.0, 3.0]) * half_gap
        return signs(generator, 8) * (_largest(E, M) + past)

    def tiny(E: int, M: int) -> Tensor:
        shares = torch.tensor([0.1, 0.45, 0.5, 0.55, 1.4, 1.5, 2.5, 6.3, 0.0])
        return signs(generator, 9) * shares * smallest_normal(E) * 2.0**-M

    # Nowhere a power of two that float32 has not, up or down: those would be its limits.
    low, high = spread(generator, 5, -118, -90), spread(generator, 5, 90, 126)
    past = _largest(8, 7) + torch.tensor([0.0, 0.9, 1.0, 1.9]) * 2.0**119  # half gaps
    carried = -1.97 * 2 ** uniform(generator, 1, -5, 6).round()  # up to a power of two
    return [
        Case("example", BY_HAND, (torch.tensor([1.1, 100.0, 300.0, 0.004]), 4, 3)),
        Case("property", KEPT, (kept, 4, 3)),
        Case("inputs", NARROW, (torch.cat([spread(generator, 12, -10, 9), carried]), 4, 3)),
        Case("inputs", LARGE, (large, 4, 3)),
        Case("inputs", FP16, (spread(generator, 16, -26, 18), 5, 10)),
        Case("inputs", BF16, (torch.cat([low, high, signs(generator, 4) * past]), 8, 7)),
        Case("numbers", EDGE, (edge(4, 3), 4, 3)),
        Case("numbers", TINY, (tiny(4, 3), 4, 3)),
        # The range of BF16 with a step of 2^-127: 2^127, its inverse, float32 has as well.
        Case("numbers", WIDE, (tiny(8, 1), 8, 1)),
        Case("numbers", EDGE, (edge(5, 10), 5, 10)),
        Case("numbers", TINY, (tiny(5, 10), 5, 10)),
    ]


EXERCISE = Exercise(
    name="cast",
    title=Words(en="Store a number", zh="存储一个数"),
    reference=reference,
    returns=("stored",),
    cases=cases,
    mistakes=MISTAKES,
    alternatives={"two_ranges": _two_ranges, "list": _from_a_list},
    hints=(
        Words(
            en="Three steps: the gap at x (exercise 2), round to it (exercise 3), look "
            "whether the result is past the largest number.",
            zh="三步：x 处的间距（第 2 题）、按它舍入（第 3 题）、看结果是否超过最大数。",
        ),
        Words(
            en="The gap is constant below the smallest normal number, 2^(1 - bias). The "
            "largest number is (2 - 2^-M) * 2^bias; compare after rounding.",
            zh="小于最小规格化数 2^(1 - bias) 时间距不变。最大数是 (2 - 2^-M) * 2^bias；"
            "要在舍入之后比较。",
        ),
        Words(
            en="After rounding, overflow is the same as |y| >= 2^(bias + 1), and "
            "`y.sign() * math.inf` is the infinity that belongs to y.",
            zh="舍入之后，溢出等价于 |y| >= 2^(bias + 1)，`y.sign() * math.inf` 就是 y 对应"
            "的无穷大。",
        ),
    ),
    points=(1, 2),
    minutes=10,
    exact=True,
)
