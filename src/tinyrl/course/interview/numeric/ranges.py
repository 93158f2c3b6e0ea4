"""Drills on the ends of a format: largest, smallest, overflow, underflow."""

from __future__ import annotations

import math
import random

from tinyrl.course.interview.numeric.drawing import drill, power, task, three, uniform
from tinyrl.course.interview.numeric.formats import rounded
from tinyrl.course.interview.numeric.tasks import Task
from tinyrl.course.words import Words
from tinyrl.formats import FORMATS, Format, spacing
from tinyrl.logprobs import as_tensor


def format_limits(generator: random.Random) -> Task:
    """The ends of a format, from its bits."""
    e, m = generator.randrange(3, 6), generator.randrange(2, 10)
    f = Format("fp16", e, m)  # of any widths: the name plays no part in its numbers
    bias = f.bias
    kept, all_used = f.max, Format("fp16", e, m, has_inf=False).max
    largest = (
        kept,
        f"(2 − 2^-{m}) × 2^{bias} = {three(kept)}",
        (2.0**bias, "Its mantissa is not zero.", "它的尾数不是零。"),
        (
            all_used,
            "The highest exponent is kept for inf and NaN.",
            "最高的指数留给了 inf 和 NaN。",
        ),
        (kept / 2**bias, "Times the power of two.", "还要乘以二的幂。"),
    )
    normal, tiny = f.smallest_normal, f.smallest_subnormal
    smallest = (
        normal,
        f"2^(1 − {bias}) = {three(normal)}",
        (tiny, "That is subnormal.", "这是次正规数。"),
        (
            2.0**-bias,
            "The exponent zero is that of subnormal numbers.",
            "指数零属于次正规数。",
        ),
        (f.epsilon, "That is the gap at 1.", "这是 1 处的间隔。"),
    )
    subnormal = (
        tiny,
        f"2^(1 − {bias}) × 2^-{m} = {three(tiny)}",
        (normal, "That is the smallest normal number.", "这是最小的正规数。"),
        (
            2.0**-bias * f.epsilon,
            "Their exponent is 1 − bias.",
            "次正规数的指数是 1 − bias。",
        ),
        (f.epsilon, "That is the gap at 1.", "这是 1 处的间隔。"),
    )
    which = {
        ("largest finite", "最大的有限"): largest,
        ("smallest positive normal", "最小的正的正规"): smallest,
        ("smallest positive subnormal", "最小的正的次正规"): subnormal,
    }
    (en, zh), (answer, way, *slips) = generator.choice([*which.items()])
    return task(
        Words(
            en=f"A float has a sign, {e} bits of exponent and {m} of mantissa, as IEEE 754 "
            f"lays them out. What is its {en} number?",
            zh=f"一种浮点数有符号位、{e} 位指数和 {m} 位尾数，按 IEEE 754 的规则编码。"
            f"它{zh}数是多少？",
        ),
        answer,
        Words(
            en=f"The bias is 2^({e} − 1) − 1 = {bias}: {way}.",
            zh=f"偏置（bias）是 2^({e} − 1) − 1 = {bias}：{way}。",
        ),
        *slips,
    )


def fp16_overflows(generator: random.Random) -> Task:
    """How many of five numbers become inf."""
    pick = [(20000, 32700), (33000, 65000), (65506, 65518), (65522, 65534), (66000, 130000)]
    x = [
        generator.randrange(*generator.choice([*pick, (131100, 200000)])) for _ in range(5)
    ]
    answer = sum(math.isinf(rounded(float(v), "fp16")) for v in x)
    largest = FORMATS["fp16"].max
    half = largest + spacing(as_tensor("x", [largest]), "fp16").item() / 2
    top, mid, beyond = f"{largest:.0f}", f"{half:.0f}", f"{2 * half - largest:.0f}"
    strict = sum(v > FORMATS["fp16"].max for v in x)
    return task(
        Words(
            en="Five numbers are cast to FP16, rounding to nearest: "
            f"{', '.join(map(str, x))}. "
            "How many become infinite?",
            zh=f"把五个数转成 FP16（就近舍入）：{', '.join(map(str, x))}。"
            "其中有几个变成无穷大？",
        ),
        answer,
        Words(
            en=f"The largest is {top}; the next would be {beyond}, and from halfway, "
            f"{mid}, on it is inf. Such: {three(answer)}.",
            zh=f"最大的数是 {top}，下一个本应是 {beyond}；从中点 {mid} 起变成无穷大："
            f"{three(answer)} 个。",
        ),
        (
            strict,
            f"Up to halfway, {mid}, it is rounded down to {top}.",
            f"不到中点 {mid} 的会舍入回 {top}。",
        ),
        (
            sum(v > 32768 for v in x),
            "That is the bound of 16-bit integers.",
            "那是 16 位整数的界。",
        ),
        (sum(v >= 131072 for v in x), "Its largest exponent is 15.", "它的最大指数是 15。"),
        (5 - answer, "That is how many stay finite.", "这是仍然有限的个数。"),
        within=0,
    )


def fp16_underflows(generator: random.Random) -> Task:
    """How many of five gradients become 0."""
    spans = [(0.4, 2.8), (3.2, 5.7), (3.2, 5.7), (6.2, 9.9)]
    g = [uniform(generator, *generator.choice(spans), 1) for _ in range(5)]
    answer = sum(rounded(v * 1e-8, "fp16") == 0 for v in g)
    least = FORMATS["fp16"].smallest_subnormal
    small, half = power(least, 2), power(least / 2, 2)
    return task(
        Words(
            en="Five gradients are cast to FP16, rounding to nearest: "
            f"{', '.join(f'{v}e-8' for v in g)}. How many become zero?",
            zh="把五个梯度转成 FP16（就近舍入）："
            f"{', '.join(f'{v}e-8' for v in g)}。其中有几个变成零？",
        ),
        answer,
        Words(
            en=f"The smallest subnormal is 2^-24 = {small}; up to half of it, {half}, "
            f"is rounded to zero: {three(answer)}.",
            zh=f"最小的次正规数是 2^-24 = {small}；不超过它的一半 {half} 的舍入为零："
            f"{three(answer)} 个。",
        ),
        (
            sum(v * 1e-8 < least for v in g),
            "Above half of the smallest subnormal it is rounded up.",
            "超过最小次正规数的一半就会向上舍入。",
        ),
        (
            5,
            "Below the smallest normal number, 2^-14, there are subnormals.",
            "在最小正规数 2^-14 之下还有次正规数。",
        ),
        (5 - answer, "That is how many stay.", "这是没有变成零的个数。"),
        within=0,
    )


def loss_scale(generator: random.Random) -> Task:
    """The power of two that lifts a gradient among FP16's normal numbers."""
    g = generator.randrange(20, 99) / 10 * 10 ** generator.choice([-7.0, -6.0])
    normal = FORMATS["fp16"].smallest_normal
    least = normal / g
    answer = 2.0 ** math.ceil(math.log2(least))
    return task(
        Words(
            en=f"A gradient is {power(g, 1)}. What is the smallest power of two "
            "that a loss must "
            "be scaled by for it to be at least FP16's smallest normal number, 2^-14?",
            zh=f"某个梯度是 {power(g, 1)}。loss 至少要乘以二的多少次幂（写出这个倍数），"
            "它才不小于 FP16 的最小正规数 2^-14？",
        ),
        answer,
        Words(
            en=f"2^-14 = {power(normal, 2)}; over {power(g, 1)} it is {least:.4g}; "
            "the next power of two is "
            f"{three(answer)}.",
            zh=f"2^-14 = {power(normal, 2)}，除以 {power(g, 1)} 得 {least:.4g}；"
            "下一个二的幂是 "
            f"{three(answer)}。",
        ),
        (answer / 2, "That is still below.", "这样还是不够大。"),
        (
            least,
            "That is the exact factor, no power of two.",
            "这是恰好的倍数，不是二的幂。",
        ),
        (
            math.log2(answer),
            "That is the exponent; the factor was asked for.",
            "这是指数，题目要的是倍数。",
        ),
        within=0,
    )


DRILLS = (
    drill("format_limits", "IV", format_limits),
    drill("fp16_overflows", "IV", fp16_overflows),
    drill("fp16_underflows", "IV", fp16_underflows),
    drill("loss_scale", "IV", loss_scale),
)
