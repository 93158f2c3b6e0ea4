"""The number that a pattern of bits stands for."""

from __future__ import annotations

import math

import torch
from torch import Generator, Tensor

from tinyrl.course.exercise import Case, Exercise, Mistakes
from tinyrl.course.exercises.lab03.numbers import WHOLE_POWER, bias, whole
from tinyrl.course.words import Words


def _fields(bits: Tensor, exponent_bits: int) -> tuple[float, int, float, int]:
    """Sign, stored exponent, mantissa as what stands behind the point, mantissa bits."""
    digits = "".join(str(b) for b in bits.tolist())
    cut = 1 + exponent_bits
    sign = -1.0 if digits[0] == "1" else 1.0
    M = len(digits) - cut
    return sign, int(digits[1:cut], 2), math.ldexp(int(digits[cut:], 2), -M), M


def reference(bits: Tensor, exponent_bits: int) -> float:
    sign, e, fraction, _ = _fields(bits, exponent_bits)
    middle = bias(exponent_bits)
    if e > 2 * bias(exponent_bits):
        return sign * math.inf
    if e == 0:
        return sign * fraction * 2.0 ** (1 - middle)
    return sign * (1 + fraction) * 2.0 ** (e - middle)


def _with_torch(bits: Tensor, exponent_bits: int) -> Tensor:
    """The mantissa bits are worth 1/2, 1/4, 1/8 ... of the leading one."""
    e_bits, m_bits = bits[1 : 1 + exponent_bits], bits[1 + exponent_bits :]
    e = (e_bits * 2 ** torch.arange(exponent_bits - 1, -1, -1)).sum()
    fraction = (m_bits * 0.5 ** torch.arange(1, len(m_bits) + 1)).sum()
    middle = bias(exponent_bits)
    size = (fraction + (e > 0)) * 2.0 ** (torch.clamp(e, min=1) - middle)
    size = torch.where(e > 2 * bias(exponent_bits), math.inf, size)
    return (1 - 2 * bits[0]) * size


def _in_steps(bits: Tensor, exponent_bits: int) -> float:
    """A whole number of steps: the leading one is worth 2^M of them."""
    sign, e, fraction, M = _fields(bits, exponent_bits)
    if e == 2 * bias(exponent_bits) + 1:
        return math.copysign(math.inf, sign)
    steps = math.ldexp(fraction + (e > 0), M)
    return math.ldexp(sign * steps, max(e, 1) - bias(exponent_bits) - M)


def _changed(
    *,
    hidden: int = 1,
    off: int = 0,
    lowest: int = 1,
    signed: bool = True,
    inf: bool = True,
) -> object:
    """The decoder with something else in it, for the mistakes."""

    def wrong(bits: Tensor, exponent_bits: int) -> float:
        sign, e, fraction, _ = _fields(bits, exponent_bits)
        sign = sign if signed else 1.0
        if inf and e > 2 * bias(exponent_bits):
            return sign * math.inf
        middle = bias(exponent_bits) + off
        leading = hidden if e else 0
        return sign * (leading + fraction) * 2.0 ** ((e or lowest) - middle)

    return wrong


def _no_bias(bits: Tensor, exponent_bits: int) -> float:
    sign, e, fraction, _ = _fields(bits, exponent_bits)
    return sign * (1 + fraction) * 2.0**e


def _twos_complement(bits: Tensor, exponent_bits: int) -> float:
    sign, e, fraction, _ = _fields(bits, exponent_bits)
    signed = e - 2 * (bias(exponent_bits) + 1) if e > bias(exponent_bits) else e
    return sign * (1 + fraction) * 2.0**signed


def _whole_mantissa(bits: Tensor, exponent_bits: int) -> float:
    sign, e, fraction, M = _fields(bits, exponent_bits)
    return sign * (1 + math.ldexp(fraction, M)) * 2.0 ** (e - bias(exponent_bits))


def _reversed(bits: Tensor, exponent_bits: int) -> float:
    cut = 1 + exponent_bits
    turned = torch.cat([bits[:1], bits[1:cut].flip(0), bits[cut:].flip(0)])
    return reference(turned, exponent_bits)


def _always_hidden(bits: Tensor, exponent_bits: int) -> float:
    sign, e, fraction, _ = _fields(bits, exponent_bits)
    if e > 2 * bias(exponent_bits):
        return sign * math.inf
    return sign * (1 + fraction) * 2.0 ** (e - bias(exponent_bits))


def _infinite_too_early(bits: Tensor, exponent_bits: int) -> float:
    sign, e, _, _ = _fields(bits, exponent_bits)
    if e >= 2 * bias(exponent_bits):
        return sign * math.inf
    return reference(bits, exponent_bits)


def _subnormal_too_long(bits: Tensor, exponent_bits: int) -> float:
    _, e, fraction, _ = _fields(bits, exponent_bits)
    return reference(bits, exponent_bits) * (fraction / (1 + fraction) if e == 1 else 1)


def _whole_power(bits: Tensor, exponent_bits: int) -> float:
    """As torch has it: 2 to the power of a negative whole number is 0."""
    _, e, _, _ = _fields(bits, exponent_bits)
    return 0.0 if 0 < e < bias(exponent_bits) else reference(bits, exponent_bits)


MISTAKES: Mistakes = {
    "no_hidden_one": (
        _changed(hidden=0),  # type: ignore[dict-item]
        Words(
            en="The leading 1 is missing. A normal number is 1.mantissa times a power of "
            "two; that 1 is not stored because it is always there.",
            zh="漏了前导 1。规格化数是 1.mantissa 乘以 2 的幂；这个 1 总是存在，所以不存"
            "储，但要加回来。",
        ),
    ),
    "no_bias": (
        _no_bias,
        Words(
            en="You use the stored exponent as it is. It is kept with a bias, "
            "2^(E-1) - 1, so that small numbers need no sign in the exponent.",
            zh="你直接用了存储的指数。它带有偏置 2^(E-1) - 1，这样表示小数时指数不需要"
            "符号位。",
        ),
    ),
    "bias_one_off": (
        _changed(off=1),  # type: ignore[dict-item]
        Words(
            en="Your bias is 2^(E-1), one too high: every number comes out half as large.",
            zh="你的偏置是 2^(E-1)，多了 1：每个数都小了一半。",
        ),
    ),
    "sign_ignored": (
        _changed(signed=False),  # type: ignore[dict-item]
        Words(
            en="The sign bit is not used: the first bit 1 means a negative number.",
            zh="没有使用符号位：第一位为 1 表示负数。",
        ),
    ),
    "exponent_in_twos_complement": (
        _twos_complement,
        Words(
            en="You read the exponent as a two's complement integer. Floats store it "
            "unsigned, with a bias.",
            zh="你把指数当成补码整数来读。浮点数的指数是无符号存储的，带偏置。",
        ),
    ),
    "whole_mantissa": (
        _whole_mantissa,
        Words(
            en="You add the mantissa as a whole number. Its M bits stand behind the point: "
            "divide by 2^M.",
            zh="你把尾数当成整数加了上去。它的 M 位在小数点之后：要除以 2^M。",
        ),
    ),
    "reversed": (
        _reversed,
        Words(
            en="You read the fields from the low end. The first bit of each field is its "
            "most significant one.",
            zh="你从低位开始读每个字段。每个字段的第一位是最高位。",
        ),
    ),
    "hidden_one_in_subnormals": (
        _always_hidden,
        Words(
            en="Where the stored exponent is 0 there is no leading 1 (and the exponent is "
            "that of the smallest normal number): these are the subnormal numbers and 0.",
            zh="存储的指数为 0 时没有前导 1（指数与最小规格化数相同）：这些是次正规数和 "
            "0。",
        ),
    ),
    "subnormal_exponent": (
        _changed(lowest=0),  # type: ignore[dict-item]
        Words(
            en="Subnormal numbers have the exponent of the smallest normal one, 1 - bias; "
            "with 0 - bias there would be a hole between the two.",
            zh="次正规数的指数与最小规格化数相同，是 1 - bias；若用 0 - bias，两者之间会"
            "出现空洞。",
        ),
    ),
    "no_infinity": (
        _changed(inf=False),  # type: ignore[dict-item]
        Words(
            en="The highest exponent, all ones, is no ordinary one: with mantissa 0 it "
            "stands for infinity.",
            zh="指数全为 1 时不是普通的数：尾数为 0 表示无穷大。",
        ),
    ),
    "infinity_without_sign": (
        lambda bits, E: v if math.isfinite(v := reference(bits, E)) else math.inf,
        Words(
            en="Infinity has a sign like any other number: with first bit 1 it is -inf.",
            zh="无穷大和其他数一样有符号：第一位为 1 时是 -inf。",
        ),
    ),
    "infinite_too_early": (
        _infinite_too_early,
        Words(
            en="The largest numbers become infinite: you are off by one at the top. Only "
            "the exponent with all ones, 2^E - 1, is special.",
            zh="最大的那些数变成了无穷大：上端差了 1。只有全为 1 的指数 2^E - 1 是特殊的。",
        ),
    ),
    "subnormal_too_long": (
        _subnormal_too_long,
        Words(
            en="Stored exponent 1 is an ordinary one, with a leading 1: it has the "
            "smallest normal numbers. Only exponent 0 is without.",
            zh="存储的指数为 1 时是普通的数，有前导 1：那是最小的规格化数。只有指数 0 没有"
            "前导 1。",
        ),
    ),
    "power_of_whole_numbers": (_whole_power, WHOLE_POWER),
}

BY_HAND = Words(
    en="-2.5 in FP16: 1|10000|0100000000", zh="FP16 的 -2.5：1|10000|0100000000"
)
POWER = Words(en="a power of two has an empty mantissa", zh="2 的幂，尾数全为 0")
FP16 = Words(en="a normal number of FP16", zh="FP16 的一个规格化数")
BF16 = Words(en="a normal number of BF16", zh="BF16 的一个规格化数")
FP32 = Words(en="a normal number of FP32, M = 23", zh="FP32 的一个规格化数，M = 23")
ZERO = Words(en="0: all bits are 0", zh="0：所有位都是 0")
TINY = Words(en="a subnormal number: the exponent bits are 0", zh="次正规数：指数位全为 0")
INFINITE = Words(
    en="infinity: exponent all ones, mantissa 0", zh="无穷大：指数全 1，尾数 0"
)
LARGEST = Words(en="the largest finite number", zh="最大的有限数")
LOWEST = Words(en="the smallest normal number", zh="最小的规格化数")


def pattern(sign: int, e: int, m: int, exponent_bits: int, mantissa_bits: int) -> Tensor:
    text = f"{sign}{e:0{exponent_bits}b}{m:0{mantissa_bits}b}"
    return torch.tensor([int(digit) for digit in text])


def cases(generator: Generator) -> list[Case]:
    def near_one(exponent_bits: int, mantissa_bits: int, sign: int) -> Tensor:
        """A number of ordinary size; no part of it reads the same backwards."""
        middle = bias(exponent_bits)
        e = middle + (-1) ** sign * whole(generator, 2, 5)
        m = 2 * whole(generator, 1, 2 ** (mantissa_bits - 2)) + 2 ** (mantissa_bits - 1)
        return pattern(sign, e, m, exponent_bits, mantissa_bits)

    def tiny(E: int, sign: int) -> tuple[Tensor, int]:
        return pattern(sign, 0, whole(generator, 1, 8), E, whole(generator, 3, 6)), E

    def infinite(E: int, sign: int) -> tuple[Tensor, int]:
        return pattern(sign, 2**E - 1, 0, E, whole(generator, 2, 8)), E

    power = pattern(0, 15 + whole(generator, 1, 12), 0, 5, 10)
    sign, M = whole(generator, 0, 2), whole(generator, 2, 8)
    m = whole(generator, 2**9, 2**10) * 2**13 + 2895  # far from what half precision holds
    return [
        Case("example", BY_HAND, (pattern(1, 16, 256, 5, 10), 5)),
        Case("property", POWER, (power, 5)),
        Case("inputs", FP16, (near_one(5, 10, 0), 5)),
        Case("inputs", FP16, (near_one(5, 10, 1), 5)),
        Case("inputs", BF16, (near_one(8, 7, 0), 8)),
        Case("inputs", BF16, (near_one(8, 7, 1), 8)),
        Case("inputs", FP32, (pattern(1, 126 + whole(generator, 0, 4), m, 8, 23), 8)),
        *(Case("numbers", TINY, tiny(E, E % 2)) for E in (4, 5, 8)),
        *(Case("numbers", INFINITE, infinite(E, s)) for E in (4, 5, 8) for s in (0, 1)),
        *(
            Case("numbers", LARGEST, (pattern(sign, 2**E - 2, 2**M - 1, E, M), E))
            for E in (5, 8)
        ),
        *(Case("numbers", LOWEST, (pattern(1 - sign, 1, 0, E, M), E)) for E in (5, 8)),
        Case("numbers", ZERO, (pattern(0, 0, 0, 5, M), 5)),
    ]


EXERCISE = Exercise(
    name="decode",
    title=Words(en="From bits to a number", zh="从比特到数值"),
    reference=reference,
    returns=("value",),
    cases=cases,
    mistakes=MISTAKES,
    alternatives={"torch": _with_torch, "steps": _in_steps},
    hints=(
        Words(
            en="Cut the pattern into three fields: 1 bit, `exponent_bits` bits, the rest. "
            "Read the last two as whole numbers e and m.",
            zh="把比特串切成三段：1 位、`exponent_bits` 位、其余。后两段读成整数 e 和 m。",
        ),
        Words(
            en="With M mantissa bits a normal number is (1 + m / 2^M) * 2^(e - bias). Two "
            "exponents are special: 0 and all ones.",
            zh="设尾数有 M 位，规格化数是 (1 + m / 2^M) * 2^(e - bias)。有两个指数是特殊"
            "的：0 和全 1。",
        ),
        Words(
            en='`int("0101", 2)` reads a text of bits. For e = 0 the number is '
            "m / 2^M * 2^(1 - bias); for e = 2^E - 1 it is infinite.",
            zh='`int("0101", 2)` 可以读一串比特。e = 0 时数值是 m / 2^M * 2^(1 - bias)；'
            "e = 2^E - 1 时是无穷大。",
        ),
    ),
    points=(1, 2),
    minutes=10,
    exact=True,
)
