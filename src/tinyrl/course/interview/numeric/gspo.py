"""Drills on GSPO: the ratio of a whole response, its width, its noise."""

from __future__ import annotations

import math
import random

from tinyrl.course.interview.numeric.drawing import (
    drill,
    every,
    listed,
    row,
    signed,
    task,
    three,
    uniform,
)
from tinyrl.course.interview.numeric.tasks import Task
from tinyrl.course.words import Words
from tinyrl.logprobs import as_tensor
from tinyrl.objectives import diagnostics, ratio


def gspo_ratio(generator: random.Random) -> Task:
    """The geometric mean of token ratios."""
    d = [signed(generator, 0.1, 0.9) for _ in range(4)]
    token, s, product = (
        ratio(row(d), every(row(d)), level) for level in ("token", "geometric", "sequence")
    )
    answer = s[0, 0].item()
    way = f"exp({sum(d):.2f} / 4) = exp({sum(d) / 4:.4f}) = {three(answer)}"
    return task(
        Words(
            en="A response of four tokens has log-ratios ln(π / π_old) = "
            f"{listed(d)}. What is GSPO's ratio s of the response?",
            zh=f"一条四个 token 的回答，对数比 ln(π / π_old) = {listed(d)}。"
            "GSPO 的序列比值 s 是多少？",
        ),
        answer,
        Words(
            en=f"The exponential of the mean log-ratio: {way}.",
            zh=f"对数比取平均，再取指数：{way}。",
        ),
        (
            product[0, 0].item(),
            "That is the product; GSPO takes its T-th root.",
            "这是乘积；GSPO 还要开 T 次方。",
        ),
        (
            token.mean().item(),
            "That is the arithmetic mean of the ratios.",
            "这是比值的算术平均。",
        ),
        (sum(d) / 4, "That is ln s; take its exponential.", "这是 ln s，还要取指数。"),
        (1 / answer, "That is old over new.", "这是旧比新，反了。"),
    )


def product_of_ratios(generator: random.Random) -> Task:
    """What the same small log-ratio makes of a long response."""
    T, b = generator.randrange(60, 400), uniform(generator, 0.004, 0.012, 3)
    d = row([b] * T)
    answer = ratio(d, every(d), "sequence")[0, 0].item()
    way = f"exp({T} × {b}) = exp({T * b:.3f}) = {three(answer)}"
    return task(
        Words(
            en=f"Each of a response's {T} tokens has the log-ratio ln(π / π_old) = {b}. "
            "How large is the product of their ratios, which GSPO does not use?",
            zh=f"一条回答有 {T} 个 token，每个的对数比 ln(π / π_old) 都是 {b}。"
            "各比值的乘积有多大（GSPO 不用它）？",
        ),
        answer,
        Words(
            en=f"{way}; GSPO's s is {math.exp(b):.4f} at any length.",
            zh=f"{way}；GSPO 的 s 不论多长都是 {math.exp(b):.4f}。",
        ),
        (
            ratio(d, every(d), "geometric")[0, 0].item(),
            "That is GSPO's s, the geometric mean.",
            "这是 GSPO 的 s，即几何平均。",
        ),
        (
            1 + T * b,
            "Ratios multiply; their excesses over 1 do not add up.",
            "比值是相乘的，超出 1 的部分不能相加。",
        ),
        (
            T * b,
            "That is the sum of log-ratios; take its exponential.",
            "这是对数比之和，还要取指数。",
        ),
        (T * math.exp(b), "That is the sum of the ratios.", "这是比值之和。"),
    )


def gspo_noise(generator: random.Random) -> Task:
    """The mean over T tokens calms independent noise by sqrt(T)."""
    root, s = generator.randrange(8, 33), uniform(generator, 0.02, 0.2)
    answer = s / root
    return task(
        Words(
            en=f"The log-ratios of a response's {root**2} tokens are independent, "
            "with mean "
            f"zero and standard deviation {s}. What is the standard deviation of ln s, s "
            "being GSPO's ratio?",
            zh=f"一条回答有 {root**2} 个 token，各对数比相互独立，均值为零，标准差 {s}。"
            "GSPO 的比值为 s，ln s 的标准差是多少？",
        ),
        answer,
        Words(
            en=f"ln s is their mean: {s} / √{root**2} = {s} / {root} = {three(answer)}.",
            zh=f"ln s 是它们的平均：{s} / √{root**2} = {s} / {root} = {three(answer)}。",
        ),
        (
            s * root,
            "That is their sum: the log of the product.",
            "这是它们之和，即乘积的对数。",
        ),
        (s, "That is one token's.", "这是单个 token 的。"),
        (
            s / root**2,
            "Independent noise of a mean falls with √T.",
            "独立噪声取平均，按 √T 下降。",
        ),
    )


def gspo_clipped(generator: random.Random) -> Task:
    """Responses whose ratio has left GSPO's narrow band in the direction of A."""
    A = [generator.choice([-1, 1]) for _ in range(6)]
    m = [signed(generator, 0.5, 9.5, 1) for _ in A]
    if any(abs(abs(x) - bound) < 0.15 for x in m for bound in (3, 4)):
        return gspo_clipped(generator)
    logp = row(x * 1e-4 - 1 for x in m).T
    old, advantages = logp * 0 - 1, as_tensor("A", A)
    widths = {"eps_low": 3e-4, "eps_high": 4e-4}
    clip = diagnostics(logp, old, advantages, every(logp), level="geometric", **widths)
    answer = clip["clip_fraction"]  # a share: a count would be read off the question
    stopped, out = round(6 * answer), sum(x < -3 or x > 4 for x in m)
    pairs = "; ".join(f"{x}e-4, {a:+d}" for x, a in zip(m, A, strict=True))
    return task(
        Words(
            en="GSPO's clip is 3e-4 below 1 and 4e-4 above 1. Six responses have, as mean "
            f"log-ratio and advantage: {pairs}. What share gets no gradient?",
            zh="GSPO 的裁剪宽度是 1 以下 3e-4、1 以上 4e-4。六条回答的平均对数比和 "
            "advantage："
            f"{pairs}。得不到梯度的占几分之几？",
        ),
        answer,
        Words(
            en=f"Outside: {out}; stopped are those above with A = +1 and those below "
            f"with A = -1: {stopped} / 6 = {three(answer)}.",
            zh=f"{out} 条在区间外；被挡住的是偏高且 A = +1、偏低且 A = -1 的："
            f"{stopped} / 6 = {three(answer)}。",
        ),
        (
            out / 6,
            "Outside against the direction of A there is a gradient.",
            "逆着 A 的方向出界的仍有梯度。",
        ),
        (1 - answer, "That is the share that gets one.", "这是有梯度的比例。"),
        (stopped, "That is their number.", "这是条数。"),
        (
            sum((x > 3 and a > 0) or (x < -4 and a < 0) for x, a in zip(m, A, strict=True))
            / 6,
            "The wider side is the upper one.",
            "较宽的是上侧。",
        ),
        (
            0,
            "The widths are those of a mean: they are small.",
            "这是平均值的宽度，本来就小。",
        ),
        (1, "Inside the band there is a gradient.", "区间之内有梯度。"),
    )


DRILLS = (
    drill("gspo_ratio", "VI", gspo_ratio),
    drill("product_of_ratios", "VI", product_of_ratios),
    drill("gspo_noise", "VI", gspo_noise),
    drill("gspo_clipped", "VI", gspo_clipped),
)
