"""The share of gradients that a format turns into 0, at a loss scale."""

from __future__ import annotations

import math

import torch
from torch import Generator, Tensor

from tinyrl.course.exercise import Case, Exercise, Function, Mistakes
from tinyrl.course.exercises.lab03.numbers import (
    bias,
    signs,
    smallest_normal,
    uniform,
    whole,
)
from tinyrl.course.words import Words


def _below(limit: Function) -> Function:
    """Share of the gradients, zeros apart, at or below a limit."""

    def share(grad: Tensor, scale: float, exponent_bits: int, mantissa_bits: int) -> Tensor:
        some = grad[grad != 0].abs() * scale
        flushed: Tensor = some <= limit(exponent_bits, mantissa_bits)
        return flushed.sum() / len(some)

    return share


def _half(exponent_bits: int, mantissa_bits: int) -> float:
    """Half of the smallest number."""
    return math.ldexp(smallest_normal(exponent_bits), -mantissa_bits - 1)


def reference(grad: Tensor, scale: float, exponent_bits: int, mantissa_bits: int) -> Tensor:
    limit = _half(exponent_bits, mantissa_bits)
    some = grad != 0
    flushed = some & ((grad * scale).abs() <= limit)
    return flushed.sum() / some.sum()


def _by_rounding(
    grad: Tensor, scale: float, exponent_bits: int, mantissa_bits: int
) -> Tensor:
    """Round to the steps of the subnormal numbers and look what is 0."""
    step = smallest_normal(exponent_bits) * 2.0**-mantissa_bits
    some = grad[grad != 0].double() * scale
    return ((some / step).round() == 0).double().mean()


def _counting(grad: Tensor, scale: float, exponent_bits: int, mantissa_bits: int) -> float:
    sizes = [abs(g) for g in grad.flatten().tolist() if g]
    limit = _half(exponent_bits, mantissa_bits) / scale
    return len([size for size in sizes if size <= limit]) / len(sizes)


def _of_all(grad: Tensor, scale: float, exponent_bits: int, mantissa_bits: int) -> Tensor:
    flushed = (grad != 0) & ((grad * scale).abs() <= _half(exponent_bits, mantissa_bits))
    return flushed.double().mean()


def _zeros_too(
    grad: Tensor, scale: float, exponent_bits: int, mantissa_bits: int
) -> Tensor:
    return ((grad * scale).abs() <= _half(exponent_bits, mantissa_bits)).double().mean()


def _signed(grad: Tensor, scale: float, exponent_bits: int, mantissa_bits: int) -> Tensor:
    some = grad[grad != 0]
    return (some * scale <= _half(exponent_bits, mantissa_bits)).double().mean()


def _ties_kept(
    grad: Tensor, scale: float, exponent_bits: int, mantissa_bits: int
) -> Tensor:
    some = grad[grad != 0].abs() * scale
    return (some < _half(exponent_bits, mantissa_bits)).double().mean()


def _epsilon(exponent_bits: int, mantissa_bits: int) -> float:
    return math.ldexp(1.0, -mantissa_bits)


MISTAKES: Mistakes = {
    "below_the_smallest_normal": (
        _below(lambda E, M: smallest_normal(E) * (1 - 2.0**-M)),
        Words(
            en="You count everything below the smallest normal number. Subnormal numbers "
            "lose bits, but they are not 0.",
            zh="你把小于最小规格化数的都算上了。次正规数会丢失精度，但并不是 0。",
        ),
    ),
    "below_the_smallest": (
        _below(lambda E, M: 1.999 * _half(E, M)),
        Words(
            en="You count what is below the smallest subnormal number. The upper half of "
            "that rounds up to it; what is flushed is half of it or less.",
            zh="你数的是小于最小次正规数的。其中大的一半会向上舍入；被冲成 0 的是不超过它一"
            "半"
            "的。",
        ),
    ),
    "below_epsilon": (
        _below(_epsilon),
        Words(
            en="You compare with the machine epsilon, the gap at 1. Small numbers have "
            "small gaps: the limit is set by the exponent's range.",
            zh="你用机器精度（1 附近的间距）来比较。小数附近的间距也小：界限由指数范围决"
            "定。",
        ),
    ),
    "tie_kept": (
        _ties_kept,
        Words(
            en="Exactly half of the smallest number is a tie between it and 0; ties go to "
            "the even one, and that is 0.",
            zh="恰好等于最小数的一半时，与它和 0 的距离相等；居中取偶，结果是 0。",
        ),
    ),
    "zeros_in_the_denominator": (
        _of_all,
        Words(
            en="You divide by all gradients. Those that were 0 before lose nothing and "
            "don't count.",
            zh="你除以了全部梯度。本来就是 0 的没有损失，不应计入。",
        ),
    ),
    "zeros_counted_as_flushed": (
        _zeros_too,
        Words(
            en="You count gradients that were 0 before as flushed.",
            zh="你把本来就是 0 的梯度也算作被冲掉了。",
        ),
    ),
    "negative_ones_flushed": (
        _signed,
        Words(
            en="Every negative gradient counts as small. Compare |g|.",
            zh="所有负梯度都被当成了很小的数。应当比较 |g|。",
        ),
    ),
    "scale_ignored": (
        lambda grad, scale, exponent_bits, mantissa_bits: reference(
            grad, 1.0, exponent_bits, mantissa_bits
        ),
        Words(
            en="The loss scale is not used: the gradient that is stored is scale * g.",
            zh="没有使用 loss scale：实际存储的梯度是 scale * g。",
        ),
    ),
    "divided_by_the_scale": (
        lambda grad, scale, exponent_bits, mantissa_bits: reference(
            grad, 1 / scale, exponent_bits, mantissa_bits
        ),
        Words(
            en="You divide by the loss scale. The loss is multiplied by it, so all its "
            "gradients are.",
            zh="你除以了 loss scale。损失是乘以它的，所以所有梯度也都乘以它。",
        ),
    ),
    "always_fp16": (
        _below(lambda E, M: 2.0**-25),
        Words(
            en="You use FP16 whatever the format is: its limit, 2^-25, or torch's cast. "
            "The limit follows from E and M, half of 2^(1 - bias - M).",
            zh="不管什么格式，你都按 FP16 来算：用了它的界限 2^-25，或者 torch 的类型转换。"
            "界限由 E 和 M 决定，是 2^(1 - bias - M) 的一半。",
        ),
    ),
    "share_kept": (
        lambda grad, scale, exponent_bits, mantissa_bits: (
            1 - reference(grad, scale, exponent_bits, mantissa_bits)
        ),
        Words(
            en="This is the share that survives; asked for is the share that is lost.",
            zh="这是保留下来的比例，题目要的是丢失的比例。",
        ),
    ),
    "count": (
        lambda grad, scale, exponent_bits, mantissa_bits: (
            reference(grad, scale, exponent_bits, mantissa_bits) * (grad != 0).sum()
        ),
        Words(
            en="This is how many are lost; divide by how many there were.",
            zh="这是丢失的个数，还要除以总数。",
        ),
    ),
}

BY_HAND = Words(
    en="FP16, scale 1: 1e-8, -1e-7, 1e-3 and 0",
    zh="FP16，scale 为 1：1e-8、-1e-7、1e-3 和 0",
)
LARGE = Words(en="a scale that saves them all", zh="足够大的 scale，一个也不丢")
SCALED = Words(en="gradients of many sizes, scaled", zh="大小不一的梯度，乘以 scale")
TIES = Words(en="exactly half of the smallest number", zh="恰好是最小数的一半")
NARROW = Words(en="E = 4, M = 3, scaled", zh="E = 4，M = 3，乘以 scale")
BF16 = Words(en="BF16: powers of two of every size", zh="BF16：各种大小的 2 的幂")


def cases(generator: Generator) -> list[Case]:
    def gradients(
        n: int,
        scale: float,
        low: float,
        high: float,
        zeros: int,
        smallest: float = 2.0**-24,
    ) -> Tensor:
        """Sizes 2^low to 2^high of the smallest number once they are scaled, zeros among
        them, none so near the limit that float32 decides."""
        octaves = uniform(generator, n, low, high)
        octaves += torch.where((octaves + 1).abs() < 0.01, 0.1, 0.0)
        sizes = 2.0**octaves * smallest / scale
        sizes[:zeros] = 0
        return signs(generator, n) * sizes

    scale = 2.0 ** whole(generator, 3, 6)
    # The last one overflows E = 4: infinity is not 0.
    ties = torch.tensor([0.5, -0.5, 0.75, 0.25, -3.0, 0.0, 2.0**20]) / scale
    more = torch.cat([2.0**-24 * ties, gradients(5, scale, -6.0, 8.0, 0)])
    fp8 = 2 * _half(4, 3)
    narrow = torch.cat([fp8 * ties, gradients(30, scale, -24.0, 9.0, 4, fp8)])
    # Powers of two, which float32 holds down to 2^-149, far below its normal numbers.
    octaves = torch.cat(
        [torch.arange(-5, 4), torch.randint(4, 130, (9,), generator=generator)]
    )
    powers = [math.ldexp(1 / scale, int(k) + 1 - bias(8) - 7) for k in octaves]
    wide = signs(generator, len(powers)) * torch.tensor(powers)
    return [
        Case("example", BY_HAND, (torch.tensor([1e-8, -1e-7, 1e-3, 0.0]), 1.0, 5, 10)),
        Case("property", LARGE, (gradients(12, 1024.0, 2.0, 14.0, 3), 1024.0, 5, 10)),
        Case("inputs", SCALED, (gradients(60, scale, -6.0, 14.0, 6), scale, 5, 10)),
        Case("inputs", SCALED, (gradients(50, 2.0, -4.0, 14.0, 5), 2.0, 5, 10)),
        Case("inputs", NARROW, (narrow, scale, 4, 3)),
        Case("numbers", TIES, (more, scale, 5, 10)),
        Case("numbers", BF16, (wide, scale, 8, 7)),
    ]


EXERCISE = Exercise(
    name="flushed_share",
    title=Words(en="Flushed gradients", zh="被冲成 0 的梯度"),
    reference=reference,
    returns=("share",),
    cases=cases,
    mistakes=MISTAKES,
    alternatives={"rounding": _by_rounding, "counting": _counting},
    hints=(
        Words(
            en="What is the smallest number above 0 of the format, and what rounds down "
            "from it?",
            zh="这个格式大于 0 的最小数是多少？哪些数会舍入成 0？",
        ),
        Words(
            en="The smallest number is 2^(1 - bias - M), 1 - bias = 2 - 2^(E-1). Half of "
            "it "
            "and less becomes 0. Gradients that were 0 before count nowhere.",
            zh="最小数是 2^(1 - bias - M)，其中 1 - bias = 2 - 2^(E-1)。不超过它一半的变成 "
            "0。本来就是 0 的梯度不计入。",
        ),
        Words(
            en="`some = grad != 0`, `flushed = some & ((grad * scale).abs() <= limit)`, "
            "then one sum over another.",
            zh="`some = grad != 0`，`flushed = some & ((grad * scale).abs() <= limit)`，然"
            "后"
            "两个和相除。",
        ),
    ),
    points=(1, 2),
    minutes=7,
    exact=True,
)
