"""Drills on number formats: spacing, rounding, integer scales."""

from __future__ import annotations

import math
import random

from tinyrl.course.interview.numeric.drawing import (
    drill,
    listed,
    signed,
    task,
    three,
    uniform,
)
from tinyrl.course.interview.numeric.tasks import Task
from tinyrl.course.words import Words
from tinyrl.formats import (
    FORMATS,
    FormatName,
    neighbours,
    quantise,
    round_to,
    spacing,
)
from tinyrl.logprobs import as_tensor


def rounded(x: float, fmt: FormatName) -> float:
    return round_to(as_tensor("x", [x]), fmt).item()


def bf16_spacing(generator: random.Random) -> Task:
    """The gap between BF16 numbers at x."""
    x = round(2 ** generator.uniform(2, 9), 1)
    step = {fmt: spacing(as_tensor("x", [x]), fmt).item() for fmt in FORMATS}
    k, answer = math.frexp(x)[1] - 1, step["bf16"]
    return task(
        Words(
            en="BF16 stores 7 bits of mantissa. How far apart are two neighbouring BF16 "
            f"numbers around {x}?",
            zh=f"BF16 存 7 位尾数。在 {x} 附近，相邻的两个 BF16 数相差多少？",
        ),
        answer,
        Words(
            en=f"{x} is between 2^{k} and 2^{k + 1}: 2^({k} − 7) = {three(answer)}.",
            zh=f"{x} 在 2^{k} 与 2^{k + 1} 之间：2^({k} − 7) = {three(answer)}。",
        ),
        (
            2**-7,
            "That is the gap at 1: it grows with x.",
            "这是 1 附近的间隔，它随 x 变大。",
        ),
        (
            step["fp16"],
            "That is FP16's, with 10 bits of mantissa.",
            "这是 FP16 的间隔，尾数 10 位。",
        ),
        (
            x * 2**-7,
            "The gap is constant between powers of two: round x down to one.",
            "间隔在两个二的幂之间不变：先把 x 降到二的幂。",
        ),
        (answer / 2, "That is the largest error of rounding.", "这是舍入的最大误差。"),
    )


def bf16_one_plus_x(generator: random.Random) -> Task:
    """What is left of a small number that is added to one."""
    x, step = uniform(generator, 0.004, 0.05, 4), 2**-7
    answer, n = rounded(1 + x, "bf16") - 1, x / 2**-7
    if 0.42 < n % 1 < 0.58:
        return bf16_one_plus_x(generator)
    way = f"{x} / {step:g} = {n:.2f}; {answer / step:.0f} × {step:g} = {three(answer)}"
    return task(
        Words(
            en=f"The sum 1 + {x} is stored in BF16 (7 bits of mantissa), rounded to "
            "nearest. How much larger than 1 is what is stored?",
            zh=f"把 1 + {x} 存成 BF16（尾数 7 位，就近舍入）。存下来的数比 1 大多少？",
        ),
        answer,
        Words(
            en=f"Above 1, BF16 counts in steps of 2^-7 = {step:g}: {way}.",
            zh=f"在 1 之上，BF16 的步长是 2^-7 = {step:g}：{way}。",
        ),
        (x, "It is not stored exactly.", "这个数存不精确。"),
        (math.floor(n) * step, "That is cut off, not rounded.", "这是截断，不是舍入。"),
        (math.ceil(n) * step, "The other neighbour is nearer.", "另一个邻居更近。"),
        (
            rounded(1 + x, "fp8_e4m3") - 1,
            "That is E4M3, with 3 bits.",
            "那是尾数 3 位的 E4M3。",
        ),
        (
            step,
            "That is one step; how many are nearest to x?",
            "这只是一步；离 x 最近的是几步？",
        ),
    )


def e4m3_rounding(generator: random.Random) -> Task:
    """The FP8 number that a weight becomes."""
    x = round(2 ** generator.uniform(1, 7.5), 2)
    at = as_tensor("x", [x])
    low, high = (side.item() for side in neighbours(at, "fp8_e4m3"))
    step, answer = spacing(at, "fp8_e4m3").item(), rounded(x, "fp8_e4m3")
    if not 0.05 < (x - low) / step < 0.95 or abs((x - low) / step - 0.5) < 0.08:
        return e4m3_rounding(generator)
    return task(
        Words(
            en=f"To which number is {x} rounded in FP8 E4M3, with 3 bits of mantissa?",
            zh=f"FP8 E4M3（尾数 3 位）会把 {x} 舍入成哪个数？",
        ),
        answer,
        Words(
            en=f"Steps are {step:g} there: {low:g} or {high:g}; {three(answer)} is nearer.",
            zh=f"那里的步长是 {step:g}：候选 {low:g} 与 {high:g}，{three(answer)} 更近。",
        ),
        (low + high - answer, "The other neighbour is nearer.", "另一个邻居更近。"),
        (rounded(x, "fp8_e5m2"), "That is E5M2, with 2 bits.", "这是尾数 2 位的 E5M2。"),
        (step, "That is the distance of neighbours.", "这是相邻两数的间隔。"),
        within=0.005,
    )


def int8_weight(generator: random.Random) -> Task:
    """What a small weight becomes in a row with a large one."""
    large = generator.choice([-1, 1]) * uniform(generator, 2, 12)
    scale = abs(large) / 127
    x = round(scale * generator.uniform(0.6, 4.4), 3)
    others = [signed(generator, 0.2, 1.5), signed(generator, 0.2, 1.5)]
    weights = [x, others[0], large, others[1]]
    answer = quantise(as_tensor("w", weights).float(), "int8")[0].item()
    n = x / scale
    if 0.42 < n % 1 < 0.58:
        return int8_weight(generator)
    way = f"{x} / {scale:.4g} = {n:.2f}; {round(n)} × {scale:.4g} = {three(answer)}"
    return task(
        Words(
            en=f"A row of weights is {listed(weights)}. It is stored in symmetric "
            "INT8, one "
            "scale for the row, no clipping. What does the first weight become?",
            zh=f"一行权重是 {listed(weights)}，按对称 INT8 存储，整行一个 scale，不截断。"
            "第一个权重变成多少？",
        ),
        answer,
        Words(
            en=f"The scale is {abs(large)} / 127 = {scale:.4g}: {way}.",
            zh=f"scale = {abs(large)} / 127 = {scale:.4g}：{way}。",
        ),
        (x, "It is no whole number of steps.", "它不是步长的整数倍。"),
        (math.floor(n) * scale, "That is cut off, not rounded.", "这是截断，不是舍入。"),
        (math.ceil(n) * scale, "The other neighbour is nearer.", "另一个邻居更近。"),
        (scale, "That is the scale: one step.", "这是 scale，也就是一步。"),
        (round(n), "That is the integer; times the scale.", "这是整数码，还要乘 scale。"),
    )


DRILLS = (
    drill("bf16_spacing", "IV", bf16_spacing),
    drill("bf16_one_plus_x", "IV", bf16_one_plus_x),
    drill("e4m3_rounding", "IV", e4m3_rounding),
    drill("int8_weight", "IV", int8_weight),
)
