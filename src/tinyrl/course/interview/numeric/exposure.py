"""Drills on exposure bias: errors that stay, are undone, or are read in training."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from tinyrl.course.interview.numeric.drawing import drill, task, three, uniform
from tinyrl.course.interview.numeric.tasks import Task
from tinyrl.course.words import Words
from tinyrl.exposure import expected_errors, hazard
from tinyrl.logprobs import as_tensor

if TYPE_CHECKING:
    from torch import Tensor

TOTALS = Words(
    en="A model writes running totals modulo 10. Each step goes wrong with probability "
    "{h}, by 1 to 9, all alike, whatever it has read",
    zh="模型逐步写出模 10 的累加和。不管读到什么，每步都以概率 {h} 出错，"
    "错的幅度在 1 到 9 之间等可能",
)


def right_prefix(generator: random.Random) -> Task:
    """(1 - e)^T: an error wrecks the rest."""
    e, T = uniform(generator, 0.004, 0.04, 3), generator.randrange(20, 81)
    answer = (1 - e) ** T
    way = f"(1 − {e})^{T} = {three(answer)}"
    return task(
        Words(
            en=f"A model errs at each token with probability {e}, whatever it has read. "
            f"What is the probability that a whole response of {T} tokens is right?",
            zh=f"不管读到什么，模型在每个 token 上都以概率 {e} 出错。"
            f"一条 {T} 个 token 的回答全对的概率是多少？",
        ),
        answer,
        Words(en=f"All have to be right: {way}.", zh=f"每个 token 都得对：{way}。"),
        (1 - answer, "That is the share with an error.", "这是出了错的比例。"),
        (
            1 - e * T,
            "Probabilities of being right multiply; errors do not just add up.",
            "要把做对的概率相乘，不能把错误率直接相加。",
        ),
        (
            1 - e,
            "That is one token, as under teacher forcing.",
            "这只是一个 token，相当于 teacher forcing。",
        ),
    )


def expected_prefix(generator: random.Random) -> Task:
    """How many tokens come before the first error, of T."""
    e, T = uniform(generator, 0.05, 0.25), generator.randrange(6, 21)
    answer = sum((1 - e) ** t for t in range(1, T + 1))
    q = round(1 - e, 2)
    way = f"{q} (1 − {q}^{T}) / {e} = {three(answer)}"
    return task(
        Words(
            en=f"A model errs at each token with probability {e}, whatever it has read. "
            f"In a response of {T} tokens, how many stand before the first error, on "
            f"average? Without an error all {T} count.",
            zh=f"不管读到什么，模型在每个 token 上都以概率 {e} 出错。"
            f"一条 {T} 个 token 的回答里，第一个错误之前平均有多少个 token？"
            f"没有错误就算全部 {T} 个。",
        ),
        answer,
        Words(
            en=f"Token t counts if the first t are right: the sum of {q}^t is {way}.",
            zh=f"前 t 个都对，第 t 个才算数：对 {q}^t 求和，{way}。",
        ),
        (
            T * (1 - e),
            "That is the number of right ones if errors did not end the count.",
            "这是错了也继续数时正确 token 的个数。",
        ),
        (
            (1 - e) / e,
            "That is without an end; the response stops.",
            "那是无限长时的结果，而回答会结束。",
        ),
        (
            1 / e,
            "That counts the error itself, and no end.",
            "这把错误本身也算上了，还没有尽头。",
        ),
        (
            T * (1 - e) ** T,
            "Prefixes that break off count too.",
            "中途出错之前的那一段也要算。",
        ),
    )


def free_running_error(generator: random.Random) -> Task:
    """Errors that a later one may undo settle at nine tenths."""
    h, t = uniform(generator, 0.05, 0.3), generator.randrange(3, 16)
    q = 1 - 10 * h / 9
    answer = expected_errors(_kernel(h), t)[-1].item()
    way = f"0.9 × (1 − {q:.4f}^{t}) = {three(answer)}"
    return task(
        Words(
            en=f"{TOTALS.en.format(h=h)}. Free running, the share of right totals moves "
            "towards 1/10 and its distance from there is multiplied by 1 − 10 h / "
            "9 at each "
            f"step, h = {h}. What share is wrong after {t} steps?",
            zh=f"{TOTALS.zh.format(h=h)}。自由生成时，正确的比例向 1/10 靠拢，"
            f"与它的距离每步乘以 1 − 10 h / 9，h = {h}。{t} 步之后错误的比例是多少？",
        ),
        answer,
        Words(en=f"1 − 10 h / 9 = {q:.4f}; {way}.", zh=f"1 − 10 h / 9 = {q:.4f}；{way}。"),
        (
            expected_errors(_kernel(h), t, own=0.0)[-1].item(),
            "That is under teacher forcing, where no error is read.",
            "那是 teacher forcing：错误不会被读到。",
        ),
        (
            1 - (1 - h) ** t,
            "That is if no later error could undo one.",
            "这假设后面的错误不会抵消前面的。",
        ),
        (
            h * t,
            "Errors do not add up: what is wrong settles at 0.9.",
            "错误率不能相加：出错的比例最后停在 0.9。",
        ),
        (1 - answer, "That is the share that is right.", "这是正确的比例。"),
    )


def half_own_prefix(generator: random.Random) -> Task:
    """The second place where a coin says whether the model's own token is read."""
    h, own = uniform(generator, 0.2, 0.6), uniform(generator, 0.3, 0.7)
    answer = expected_errors(_kernel(h), 2, own=own)[1].item()
    read = own * h
    way = f"{read:.4g} × (1 − {h} / 9) + (1 − {read:.4g}) × {h} = {three(answer)}"
    return task(
        Words(
            en=f"{TOTALS.en.format(h=h)}. Before the second step it reads its own first "
            f"total with probability {own}, else the right one. How often is the second "
            "total wrong?",
            zh=f"{TOTALS.zh.format(h=h)}。第二步之前，它以概率 {own} 读自己写的第一个和，"
            "否则读正确的。第二个和出错的概率是多少？",
        ),
        answer,
        Words(
            en=f"A wrong one is read with {own} × {h} = {read:.4g}, and undone with "
            f"{h} / 9. So {way}.",
            zh=f"读到错误和的概率是 {own} × {h} = {read:.4g}，被抵消的概率是 {h} / 9。"
            f"所以 {way}。",
        ),
        (
            expected_errors(_kernel(h), 2)[1].item(),
            "That is free running: its own token is always read.",
            "那是自由生成：总是读自己的 token。",
        ),
        (h, "That is if only right totals are read.", "那是只读正确前文时的结果。"),
        (read, "That is how often a wrong total is read.", "这是读到错误和的概率。"),
    )


def _kernel(h: float) -> Tensor:
    return as_tensor("kernel", [1 - h, *[h / 9] * 9])


def hazard_at_third(generator: random.Random) -> Task:
    """First errors, of those who had none before."""
    N = generator.randrange(20, 61)
    first = [generator.randrange(2, N // 4) for _ in range(3)]
    places = [at for at, n in enumerate(first) for _ in range(n)]
    wrong = [[t == at for t in range(3)] for at in places]
    wrong += [[False] * 3] * (N - len(wrong))
    answer = hazard(as_tensor("wrong", wrong))[2].item()
    left = N - first[0] - first[1]
    way = f"{first[2]} / ({N} − {first[0]} − {first[1]}) = {first[2]} / {left}"
    return task(
        Words(
            en=f"Of {N} answers, {first[0]} have their first error at the first token, "
            f"{first[1]} at the second and {first[2]} at the third. What is the hazard at "
            "the third token?",
            zh=f"{N} 条回答中，首个错误出现在第一个 token 的有 {first[0]} 条，"
            f"第二个的有 {first[1]} 条，第三个的有 {first[2]} 条。"
            "第三个 token 处的风险率（hazard）是多少？",
        ),
        answer,
        Words(
            en=f"Only those without an error so far count: {way} = {three(answer)}.",
            zh=f"只算到此为止没出过错的：{way} = {three(answer)}。",
        ),
        (first[2] / N, "Those with an earlier error are out.", "此前已经出错的不再计入。"),
        (
            sum(first) / N,
            "That is the share with an error by then: it rises at a flat hazard too.",
            "这是到那时出过错的比例，风险率不变它也会上升。",
        ),
        (
            first[2] / (left - first[2]),
            "Those that err there were right before: they count.",
            "在这里才出错的，之前是对的，要算在分母里。",
        ),
    )


DRILLS = (
    drill("right_prefix", "II", right_prefix),
    drill("expected_prefix", "II", expected_prefix),
    drill("free_running_error", "II", free_running_error),
    drill("half_own_prefix", "II", half_own_prefix),
    drill("hazard_at_third", "II", hazard_at_third),
)
