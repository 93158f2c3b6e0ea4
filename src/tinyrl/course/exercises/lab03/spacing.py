"""The gap between neighbours: what a format can tell apart around x."""

from __future__ import annotations

import math

import torch
from torch import Generator, Tensor

from tinyrl.course.exercise import Case, Exercise, Function, Mistakes
from tinyrl.course.exercises.lab03.numbers import (
    BIAS_NOT_A_POWER,
    NARROW,
    OTHERS,
    WHOLE_POWER,
    bias,
    signs,
    smallest_normal,
    spread,
    whole,
)
from tinyrl.course.words import Words


def reference(x: Tensor, exponent_bits: int, mantissa_bits: int) -> Tensor:
    _, exponent = torch.frexp(x.abs().clamp(min=smallest_normal(exponent_bits)))
    return 2.0 ** (exponent - 1 - mantissa_bits)


def _by_bits(x: Tensor, exponent_bits: int, mantissa_bits: int) -> Tensor:
    """float32 keeps the exponent in its own bits: clear the mantissa."""
    size = x.float().abs().clamp(min=smallest_normal(exponent_bits))
    power = (size.view(torch.int32) & 0x7F800000).view(torch.float32)
    return power * 2.0**-mantissa_bits


def _by_log2(x: Tensor, exponent_bits: int, mantissa_bits: int) -> Tensor:
    """In float64, where the logarithm of a float32 does not round up to a whole number."""
    exponent = x.double().abs().log2().floor().clamp(min=1 - bias(exponent_bits))
    return 2.0 ** (exponent - mantissa_bits)


def _frexp_exponent(x: Tensor, exponent_bits: int, mantissa_bits: int) -> Tensor:
    return 2 * reference(x, exponent_bits, mantissa_bits)


def _log2(x: Tensor, exponent_bits: int, mantissa_bits: int) -> Tensor:
    exponent = x.abs().log2().floor().clamp(min=1 - bias(exponent_bits))
    return 2.0 ** (exponent - mantissa_bits)


def _natural_log(x: Tensor, exponent_bits: int, mantissa_bits: int) -> Tensor:
    exponent = (x.double().abs().log() / math.log(2)).floor()
    return 2.0 ** (exponent.clamp(min=1 - bias(exponent_bits)) - mantissa_bits)


def _cut(x: Tensor, exponent_bits: int, mantissa_bits: int) -> Tensor:
    exponent = x.double().abs().log2().trunc().clamp(min=1 - bias(exponent_bits))
    return 2.0 ** (exponent - mantissa_bits)


def _whole_power(x: Tensor, exponent_bits: int, mantissa_bits: int) -> Tensor:
    _, exponent = torch.frexp(x.abs().clamp(min=smallest_normal(exponent_bits)))
    return torch.tensor(2) ** (exponent - 1 - mantissa_bits)


def _of_signed(x: Tensor, exponent_bits: int, mantissa_bits: int) -> Tensor:
    exponent = x.double().log2().floor().clamp(min=1 - bias(exponent_bits))
    return 2.0 ** (exponent - mantissa_bits)


def _clamped_away(x: Tensor, exponent_bits: int, mantissa_bits: int) -> Tensor:
    return reference(x.clamp(min=0.0), exponent_bits, mantissa_bits)


def _ceil(x: Tensor, exponent_bits: int, mantissa_bits: int) -> Tensor:
    return 2.0 ** (x.double().abs().log2().ceil() - mantissa_bits)


def _nearest_power(x: Tensor, exponent_bits: int, mantissa_bits: int) -> Tensor:
    return 2.0 ** (x.double().abs().log2().round() - mantissa_bits)


def _no_subnormals(x: Tensor, exponent_bits: int, mantissa_bits: int) -> Tensor:
    return 2.0 ** (torch.frexp(x.abs())[1] - 1 - mantissa_bits)


def _down_to(lowest: Function) -> Function:
    """Another exponent of the smallest normal number."""

    def wrong(x: Tensor, exponent_bits: int, mantissa_bits: int) -> Tensor:
        size = x.abs().clamp(min=2.0 ** lowest(exponent_bits))
        return 2.0 ** (torch.frexp(size)[1] - 1 - mantissa_bits)

    return wrong


def _lowest_one_off(x: Tensor, exponent_bits: int, mantissa_bits: int) -> Tensor:
    size = x.abs().clamp(min=smallest_normal(exponent_bits) / 2)
    return 2.0 ** (torch.frexp(size)[1] - 1 - mantissa_bits)


MISTAKES: Mistakes = {
    "epsilon_everywhere": (
        lambda x, exponent_bits, mantissa_bits: torch.full_like(x, 2.0**-mantissa_bits),
        Words(
            en="This is the gap at 1, everywhere. It doubles with every power of two.",
            zh="这是 1 附近的间距，被用在了所有地方。每过一个 2 的幂，间距就翻倍。",
        ),
    ),
    "relative": (
        lambda x, exponent_bits, mantissa_bits: x.abs() * 2.0**-mantissa_bits,
        Words(
            en="You scale with |x| itself. Between two powers of two all gaps are equal: "
            "scale with the power of two below |x|.",
            zh="你用 |x| 本身来缩放。两个相邻的 2 的幂之间，所有间距都相等：应当用不大于 "
            "|x| 的那个 2 的幂。",
        ),
    ),
    "one_exponent_up": (
        _frexp_exponent,
        Words(
            en="Twice too large everywhere: `frexp` gives x = f * 2^e with f in "
            "[0.5, 1), so the power of two below |x| is 2^(e-1).",
            zh="处处大了一倍：`frexp` 给出 x = f * 2^e，其中 f 在 [0.5, 1)，所以不大于 |x|"
            " 的 2 的幂是 2^(e-1)。",
        ),
    ),
    "half": (
        lambda x, exponent_bits, mantissa_bits: (
            reference(x, exponent_bits, mantissa_bits) / 2
        ),
        Words(
            en="This is half the gap: the largest rounding error, or the gap of a format "
            "with one bit more. The leading 1 is not one of the M bits.",
            zh="这是间距的一半：是最大舍入误差，或者多一位尾数的格式的间距。前导 1 不算在 "
            "M 位之内。",
        ),
    ),
    "sign_lost_in_log": (
        _of_signed,
        Words(
            en="A negative x has no logarithm. The gaps of -x are those of x: take |x|.",
            zh="负数没有对数。-x 处的间距与 x 处相同：先取 |x|。",
        ),
    ),
    "negative_as_zero": (
        _clamped_away,
        Words(
            en="A negative x ends as the smallest number: take |x| before `clamp`.",
            zh="负的 x 被当成了最小的数：先取 |x|，再 `clamp`。",
        ),
    ),
    "rounded_up": (
        _ceil,
        Words(
            en="You take the power of two above |x|. The gap belongs to the one below.",
            zh="你取的是大于 |x| 的 2 的幂，应当取不大于 |x| 的那个。",
        ),
    ),
    "nearest_power": (
        _nearest_power,
        Words(
            en="You round the logarithm to the nearest. The gap changes at the power of "
            "two itself: round down.",
            zh="你把对数四舍五入了。间距恰好在 2 的幂处改变：应当向下取整。",
        ),
    ),
    "no_subnormals": (
        _no_subnormals,
        Words(
            en="Below the smallest normal number the gaps stay as they are: the exponent "
            "goes no lower. Yours go on shrinking.",
            zh="小于最小规格化数之后，间距不再变化：指数已经不能更低。而你的间距还在缩小。",
        ),
    ),
    "lowest_one_off": (
        _lowest_one_off,
        Words(
            en="The lowest exponent is 1 - bias, not -bias: stored exponent 0 is for the "
            "subnormal numbers, which have the gaps of the octave above them.",
            zh="最低的指数是 1 - bias，而不是 -bias：存储指数 0 留给次正规数，它们的间距与"
            "上面一个区间相同。",
        ),
    ),
    "bias_not_a_power": (_down_to(lambda E: 2 - 2 * E), BIAS_NOT_A_POWER),
    "always_fp16": (
        _down_to(lambda E: -14),
        Words(
            en="Your gaps stop shrinking at 2^-14 whatever the format is. That is FP16's "
            "smallest normal number; in general it is 2^(1 - bias), by `exponent_bits`.",
            zh="不管什么格式，你的间距都在 2^-14 处停止缩小。那是 FP16 的最小规格化数；一般"
            "应当是 2^(1 - bias)，由 `exponent_bits` 决定。",
        ),
    ),
    "float32_log2": (
        _log2,
        Words(
            en="Just below a power of two `log2` in float32 rounds up to a whole number, "
            "and your gap is twice too large. `torch.frexp` reads the exponent exactly.",
            zh="略小于 2 的幂时，float32 的 `log2` 会舍入成整数，于是间距大了一倍。"
            "`torch.frexp` 能精确读出指数。",
        ),
    ),
    "natural_log": (
        _natural_log,
        Words(
            en="log x / log 2, or `math.log(x, 2)`, misses a whole number by a last digit "
            "at some powers of two, 2^-29 for one, and `floor` then takes off 1. "
            "`torch.frexp` reads the exponent exactly; so does `log2` in float64.",
            zh="log x / log 2（或 `math.log(x, 2)`）在某些 2 的幂处（例如 2^-29）会差最后一"
            "位，`floor` 之后就少了 1。`torch.frexp` 能精确读出指数，float64 的 `log2` 也"
            "可以。",
        ),
    ),
    "cut_towards_zero": (
        _cut,
        Words(
            en="`int` and `trunc` cut towards 0. Below 1 the logarithm is negative, and "
            "you round it up: use `floor`.",
            zh="`int` 和 `trunc` 是向 0 截断的。小于 1 的数对数为负，你就把它向上取整了：应"
            "当用 `floor`。",
        ),
    ),
    "power_of_whole_numbers": (_whole_power, WHOLE_POWER),
}

BY_HAND = Words(en="FP16 at 1, 1.5, 3 and 1000", zh="FP16 在 1、1.5、3、1000 处")
SIGN = Words(en="x and -x have the same gap", zh="x 与 -x 的间距相同")
POWERS = Words(en="powers of two, and numbers between", zh="2 的幂以及它们之间的数")
TINY = Words(en="below the smallest normal number, and 0", zh="小于最小规格化数，以及 0")
EXACT = Words(en="powers of two from 2^-64 to 2^63", zh="2^-64 到 2^63 的 2 的幂")
BELOW = Words(en="just below a power of two", zh="略小于 2 的幂")


def cases(generator: Generator) -> list[Case]:
    x = spread(generator, 4, -1, 5)
    power = 2.0 ** torch.arange(whole(generator, -1, 1), 3)
    powers = torch.cat([power, 1.4 * power, 1.6 * power])
    powers = signs(generator, len(powers)) * powers

    def tiny(E: int, M: int) -> tuple[Tensor, int, int]:
        shares = torch.cat([torch.tensor([0.0, 0.3, 1.0]), spread(generator, 5, -3, 1)])
        return smallest_normal(E) * shares, E, M

    exact = signs(generator, 128) * 2.0 ** torch.arange(-64, 64)
    below = 2.0 ** torch.tensor([2.0, whole(generator, 3, 6)]) * (1 - 2.0**-24)
    return [
        Case("example", BY_HAND, (torch.tensor([1.0, 1.5, 3.0, 1000.0]), 5, 10)),
        Case("property", SIGN, (torch.cat([x, -x]), 5, 3)),
        Case("inputs", POWERS, (powers, 5, 3)),
        Case("inputs", NARROW, (spread(generator, 8, -5, 7), 4, 3)),
        Case("inputs", OTHERS, (spread(generator, 8, -3, 12), 8, 7)),
        Case("numbers", TINY, tiny(4, 3)),
        Case("numbers", TINY, tiny(5, 10)),
        Case("numbers", TINY, tiny(8, 7)),
        Case("numbers", BELOW, (below, 5, 2)),
        Case("numbers", EXACT, (exact, 8, 7)),
    ]


EXERCISE = Exercise(
    name="spacing",
    title=Words(en="The gap between neighbours", zh="相邻两数的间距"),
    reference=reference,
    returns=("spacing",),
    cases=cases,
    mistakes=MISTAKES,
    alternatives={"bits": _by_bits, "log2_in_float64": _by_log2},
    hints=(
        Words(
            en="Between 2^k and 2^(k+1) lie 2^M numbers, evenly spaced. What is k for a "
            "given x?",
            zh="2^k 与 2^(k+1) 之间有 2^M 个数，等距排列。给定 x，k 是多少？",
        ),
        Words(
            en="The gap is 2^(k - M), k = floor(log2 |x|), but k is never lower than that "
            "of the smallest normal number, 1 - bias = 2 - 2^(E-1).",
            zh="间距是 2^(k - M)，k = floor(log2 |x|)，但 k 不会低于最小规格化数的指数 "
            "1 - bias = 2 - 2^(E-1)。",
        ),
        Words(
            en="`torch.frexp(x)` returns f and e with x = f * 2^e and f in [0.5, 1): k is "
            "e - 1. `x.abs().clamp(min=...)` first takes care of the small ones.",
            zh="`torch.frexp(x)` 返回 f 和 e，x = f * 2^e，f 在 [0.5, 1)：k 就是 e - 1。先"
            "用"
            " `x.abs().clamp(min=...)` 处理很小的数。",
        ),
    ),
    points=(1, 2),
    minutes=8,
    exact=True,
)
