"""Round to the nearest number with M mantissa bits, a tie to the even one."""

from __future__ import annotations

import math

import torch
from torch import Generator, Tensor

from tinyrl.course.exercise import Case, Exercise, Function, Mistakes
from tinyrl.course.exercises.lab03.numbers import (
    WHOLE_POWER,
    signs,
    spread,
    to_bits,
    uniform,
    whole,
)
from tinyrl.course.words import Words


def reference(x: Tensor, mantissa_bits: int) -> Tensor:
    return to_bits(x, mantissa_bits)


def _by_division(x: Tensor, mantissa_bits: int) -> Tensor:
    """Count steps of the gap between neighbours."""
    step = 2.0 ** (torch.frexp(x)[1] - 1 - mantissa_bits)
    return (x / step).round() * step


def _by_adding(x: Tensor, mantissa_bits: int) -> Tensor:
    """Veltkamp's splitting: a sum that needs all 53 bits of float64 rounds for us."""
    big = x.double() * (2.0 ** (52 - mantissa_bits) + 1)
    return big - (big - x.double())


def _steps(rounding: Function, extra: int = 0) -> Function:
    """Another rounding of the number of steps, or `extra` bits."""

    def wrong(x: Tensor, mantissa_bits: int) -> Tensor:
        fraction, exponent = torch.frexp(x)
        steps = 2.0 ** (mantissa_bits + 1 + extra)
        return torch.ldexp(rounding(fraction * steps) / steps, exponent)

    return wrong


def _fixed_point(x: Tensor, mantissa_bits: int) -> Tensor:
    return (x * 2.0**mantissa_bits).round() / 2.0**mantissa_bits


def _by_log(x: Tensor, mantissa_bits: int) -> Tensor:
    step = 2.0 ** (x.abs().log2().floor() - mantissa_bits)
    return torch.where(x == 0, torch.nan, (x / step).round() * step)


def _away(v: Tensor) -> Tensor:
    return v.sign() * (v.abs() + 0.5).floor()


def _limits_of_fp16(x: Tensor, mantissa_bits: int) -> Tensor:
    _, exponent = torch.frexp(x.abs().clamp(min=2.0**-14))
    step = 2.0 ** (exponent - 1 - mantissa_bits)
    y = (x / step).round() * step
    return torch.where(y.abs() < 2.0**16, y, y * math.inf)


def _clamped(x: Tensor, mantissa_bits: int) -> Tensor:
    _, exponent = torch.frexp(x.abs().clamp(min=1e-3))
    step = 2.0 ** (exponent - 1 - mantissa_bits)
    return (x / step).round() * step


def _whole_power(x: Tensor, mantissa_bits: int) -> Tensor:
    step = torch.tensor(2) ** (torch.frexp(x)[1] - 1 - mantissa_bits)
    return (x / step).round() * step


MISTAKES: Mistakes = {
    "truncated": (
        _steps(torch.trunc),
        Words(
            en="You cut the bits off, which rounds towards 0: the error is up to a whole "
            "gap and has a sign. Round to the nearest.",
            zh="你直接截掉了低位，也就是向 0 舍入：误差可达一整个间距，而且带符号。应当舍入"
            "到最近的数。",
        ),
    ),
    "floored": (
        _steps(torch.floor),
        Words(
            en="You round down, negative numbers too. Round to the nearest.",
            zh="你总是向下取整，负数也一样。应当舍入到最近的数。",
        ),
    ),
    "half_up": (
        _steps(lambda v: (v + 0.5).floor()),
        Words(
            en="Right but for ties, which you send up. A tie goes to the neighbour whose "
            "last bit is 0, or else sums drift upwards.",
            zh="除了恰好居中的情形都对：你总把它们向上舍入。居中时应取末位为 0 的邻居，否则"
            "求和会持续偏大。",
        ),
    ),
    "half_away": (
        _steps(_away),
        Words(
            en="Right but for ties, which you send away from 0. A tie goes to the "
            "neighbour "
            "whose last bit is 0.",
            zh="除了恰好居中的情形都对：你把它们向远离 0 的方向舍入。居中时应取末位为 0 的"
            "邻居。",
        ),
    ),
    "fixed_point": (
        _fixed_point,
        Words(
            en="You keep M bits behind the point, whatever the size of x: that is fixed "
            "point. In floating point the step follows the exponent of x.",
            zh="不管 x 多大，你都保留小数点后 M 位：这是定点数。浮点数的步长随 x 的指数变"
            "化。",
        ),
    ),
    "one_bit_fewer": (
        _steps(torch.round, -1),
        Words(
            en="One bit too few: you count the leading 1 among the M bits. It is not "
            "stored.",
            zh="少了一位：你把前导 1 也算进了 M 位。它是不存储的。",
        ),
    ),
    "one_bit_more": (
        _steps(torch.round, 1),
        Words(
            en="One bit too many: `frexp` gives a fraction in [0.5, 1), whose leading 1 "
            "stands already behind the point.",
            zh="多了一位：`frexp` 给出的小数在 [0.5, 1)，它的前导 1 已经在小数点之后了。",
        ),
    ),
    "sign_lost": (
        lambda x, mantissa_bits: to_bits(x.abs(), mantissa_bits),
        Words(
            en="The sign is lost: round |x|, then give it back.",
            zh="丢了符号：对 |x| 舍入之后要把符号还回去。",
        ),
    ),
    "zero_is_nan": (
        _by_log,
        Words(
            en="0 becomes NaN: it has no logarithm, and 0 / 0 follows. `torch.frexp` knows "
            "what to do with 0.",
            zh="0 变成了 NaN：0 没有对数，随后出现 0 / 0。`torch.frexp` 能正确处理 0。",
        ),
    ),
    "limits_of_fp16": (
        _limits_of_fp16,
        Words(
            en="Large numbers become infinite and tiny ones 0, as in FP16. Here only the "
            "mantissa is short: the exponent has no limits.",
            zh="大数变成了无穷大，极小的数变成了 0，就像 FP16 那样。这里只限制尾数：指数没"
            "有上下限。",
        ),
    ),
    "clamped": (
        _clamped,
        Words(
            en="Tiny numbers become 0: you clamp |x| from below, and the step no longer "
            "follows it. `torch.frexp` needs no clamp, not even for 0.",
            zh="极小的数变成了 0：你给 |x| 设了下限，步长就不再随它变小。`torch.frexp` 不需"
            "要 clamp，对 0 也不需要。",
        ),
    ),
    "rounded_twice": (
        lambda x, mantissa_bits: to_bits(to_bits(x, mantissa_bits + 3), mantissa_bits),
        Words(
            en="You round twice, first to a few bits more. What lay just past the middle "
            "becomes a tie, and the tie may go the other way.",
            zh="你舍入了两次：先舍入到多几位，再舍入一次。略过中点的数先变成恰好居中，第二"
            "次"
            "就可能舍向另一边。",
        ),
    ),
    "power_of_whole_numbers": (_whole_power, WHOLE_POWER),
}

BY_HAND = Words(
    en="two mantissa bits: 1.1, 1.2, -2.6, 5.9", zh="两位尾数：1.1、1.2、-2.6、5.9"
)
KEPT = Words(en="a number that fits stays as it is", zh="本来就能表示的数保持不变")
ANY = Words(en="numbers of any size", zh="大小不一的数")
TIES = Words(en="exactly in the middle of two neighbours", zh="恰好在两个邻居的正中间")
NEXT_POWER = Words(en="up to the next power of two", zh="向上舍入到下一个 2 的幂")
PAST = Words(en="just past the middle, and 0", zh="略过中点，以及 0")
FAR = Words(en="huge numbers and tiny ones", zh="极大和极小的数")


def cases(generator: Generator) -> list[Case]:
    def odd_halves(bits: int) -> Tensor:
        """Ties by an odd and an even number, of either sign, and below a power of two."""
        n = 2**bits + 2 * whole(generator, 0, 2 ** (bits - 2))
        top = 2 ** (bits + 1) - 0.5
        ties = torch.tensor([n + 0.5, n + 1.5, -n - 0.5, -n - 1.5, top])
        return ties * 2.0 ** whole(generator, -bits, 3)

    some = to_bits(spread(generator, 6, -3, 6), 4)
    ties = odd_halves(4)
    past = ties * (1 + 2.0**-11)  # further than float32 loses, nearer than three more bits
    power = 2.0 ** whole(generator, -3, 8)
    mixed = torch.cat([past, uniform(generator, 3, -4.0, 4.0), torch.zeros(1)])
    far = torch.cat([spread(generator, 4, -115, -100), spread(generator, 4, 112, 120)])
    return [
        Case("example", BY_HAND, (torch.tensor([1.1, 1.2, -2.6, 5.9]), 2)),
        Case("property", KEPT, (some, 4)),
        Case("inputs", ANY, (spread(generator, 8, -3, 8), 3)),
        Case("inputs", ANY, (spread(generator, 8, -8, 3), 10)),
        Case("inputs", TIES, (odd_halves(3), 3)),
        Case("numbers", PAST, (mixed, 4)),
        Case("numbers", FAR, (far, 5)),
        Case("numbers", NEXT_POWER, (signs(generator, 4) * 1.99 * power, 2)),
    ]


EXERCISE = Exercise(
    name="round_nearest",
    title=Words(en="Round to nearest, ties to even", zh="舍入到最近，居中取偶"),
    reference=reference,
    returns=("rounded",),
    cases=cases,
    mistakes=MISTAKES,
    alternatives={"division": _by_division, "veltkamp": _by_adding},
    hints=(
        Words(
            en="How many gaps is x? Round that count to a whole number, and turn it back.",
            zh="x 等于多少个间距？把这个个数取整，再换回来。",
        ),
        Words(
            en="The gap at x is 2^(k - M), k the exponent of x. Python's and torch's "
            "`round` already send a tie to the even number.",
            zh="x 处的间距是 2^(k - M)，k 是 x 的指数。Python 和 torch 的 `round` 本来就"
            "是居中取偶。",
        ),
        Words(
            en="`f, e = torch.frexp(x)`; f has its leading 1 behind the point, so f * "
            "2^(M+1) counts the gaps; `torch.ldexp` puts the exponent back.",
            zh="`f, e = torch.frexp(x)`；f 的前导 1 在小数点后第一位，所以 f * 2^(M+1) 就"
            "是间距的个数；再用 `torch.ldexp` 把指数放回去。",
        ),
    ),
    points=(1, 2),
    minutes=8,
    exact=True,
)
