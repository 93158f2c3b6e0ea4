"""Drills on importance weights: truncated, masked, vetoed, and their sample size."""

from __future__ import annotations

import math
import random

from tinyrl.correction import Correction
from tinyrl.course.interview.numeric.drawing import (
    drill,
    engines,
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
from tinyrl.logprobs import as_tensor, masked_mean
from tinyrl.metrics import ess
from tinyrl.monitoring import apart
from tinyrl.objectives import ratio


def some_ratios(generator: random.Random, n: int) -> list[float]:
    return [round(math.exp(generator.uniform(-1.6, 1.6)), 1) for _ in range(n)]


def applied(correction: Correction, ratios: list[float]) -> tuple[list[float], list[bool]]:
    """Weights and kept tokens of one response."""
    rollout, train = engines(ratios)
    weight, kept = correction.apply(train, rollout, every(train))
    return weight[0].tolist(), kept[0].tolist()


def effective_sample_size(generator: random.Random) -> Task:
    """Kish: (sum w)^2 / (n sum w^2)."""
    w = some_ratios(generator, 4)
    answer = ess(row(math.log(x) for x in w))
    squares = sum(x * x for x in w)
    way = f"{sum(w):.1f}^2 / (4 × {squares:.2f}) = {three(answer)}"
    return task(
        Words(
            en=f"Four tokens have importance weights {listed(w)}. What is their effective "
            "sample size, as a share of the tokens?",
            zh=f"四个 token 的重要性权重是 {listed(w)}。"
            "有效样本量占 token 数的比例是多少？",
        ),
        answer,
        Words(
            en=f"The squared sum over n times the sum of squares: {way}.",
            zh=f"和的平方，除以 n 乘平方和：{way}。",
        ),
        (4 * answer, "That is their number; divide by n.", "这是个数，还要除以 n。"),
        (1 / answer, "It is the other way round: at most 1.", "反了，它不超过 1。"),
        (sum(w) / squares, "The sum has to be squared.", "和要先平方。"),
        (sum(w) / 4, "That is the mean weight.", "这是平均权重。"),
    )


def truncated_mean(generator: random.Random) -> Task:
    """What a cap leaves of the mean weight."""
    w, cap = some_ratios(generator, 5), generator.choice([1.5, 2, 2.5, 3])
    weights, _ = applied(Correction("token", "truncate", upper=cap), w)
    answer = sum(weights) / 5
    if max(w) <= cap:
        return truncated_mean(generator)
    below = [x for x in w if x <= cap]
    way = f"({' + '.join(f'{x:g}' for x in weights)}) / {len(w)} = {three(answer)}"
    return task(
        Words(
            en=f"Five tokens have ratios, trainer over rollout, {listed(w)}. Token weights "
            f"are truncated at {cap:g}. What is the mean weight?",
            zh=f"五个 token 的比值（训练端比 rollout）是 {listed(w)}。"
            f"token 级权重在 {cap:g} 处截断。平均权重是多少？",
        ),
        answer,
        Words(
            en=f"Larger ones become {cap:g}, none is dropped: {way}.",
            zh=f"超过的变成 {cap:g}，一个也不丢：{way}。",
        ),
        (sum(w) / 5, "That is without the cap.", "这是没有截断时的。"),
        (
            sum(below) / 5,
            "That masks: it drops what truncation keeps.",
            "这是屏蔽：截断会保留它们。",
        ),
        (
            sum(below) / max(1, len(below)),
            "That is of those below the cap; truncation drops none.",
            "这只算了界内的；截断一个也不丢。",
        ),
        (sum(weights), "That is the sum.", "这是总和。"),
    )


def masked_weight(generator: random.Random) -> Task:
    """The mean weight of what a two-sided token mask keeps."""
    w = some_ratios(generator, 6)
    lower, upper = generator.choice([(0.5, 2), (0.5, 1.5), (0.4, 2.5), (0.25, 2)])
    weights, kept = applied(Correction("token", "mask", lower, upper), w)
    left = [x for x, k in zip(weights, kept, strict=True) if k]
    if not 2 <= len(left) < 6 or lower in w or upper in w:
        return masked_weight(generator)
    answer = masked_mean(row(weights), row(kept) == 1).item()
    way = f"({' + '.join(f'{x:g}' for x in left)}) / {len(left)} = {three(answer)}"
    capped = [min(max(x, lower), upper) for x in w]
    return task(
        Words(
            en=f"Six tokens have ratios, trainer over rollout, {listed(w)}. A token mask "
            f"keeps those from {lower} to {upper}, with the ratio as weight. What is the "
            "mean weight of the kept tokens?",
            zh=f"六个 token 的比值（训练端比 rollout）是 {listed(w)}。"
            f"token 级屏蔽只保留 {lower} 到 {upper} 之间的，权重就是比值。"
            "保留下来的 token 平均权重是多少？",
        ),
        answer,
        Words(en=f"Kept: {len(left)}. {way}.", zh=f"保留 {len(left)} 个：{way}。"),
        (sum(left) / 6, "Divide by those that are kept.", "要除以保留的个数。"),
        (
            sum(capped) / 6,
            "That truncates: a mask drops them.",
            "这是截断；屏蔽会丢掉它们。",
        ),
        (sum(w) / 6, "That is without the mask.", "这是没有屏蔽时的。"),
        (len(left) / 6, "That is the share that is kept.", "这是保留的比例。"),
    )


def decoupled_factor(generator: random.Random) -> Task:
    """Truncated old / rollout, times new / old."""
    rollout = uniform(generator, -3.5, -2.5)
    old = round(rollout + signed(generator, 0.2, 1.2), 2)
    new = round(old + signed(generator, 0.05, 0.18), 2)
    w, _ = Correction("token", "truncate", upper=2).apply(
        row([old]), row([rollout]), every(row([old]))
    )
    r = ratio(row([new - old]), every(row([new])))
    answer, bare = (w * r).item(), math.exp(old - rollout)
    way = f"{w.item():.4f} × exp({new} − ({old})) = {three(answer)}"
    return task(
        Words(
            en=f"A token's logp is {rollout} in the rollout, {old} in the trainer with the "
            f"same weights and {new} after an update. The loss is decoupled: the weight "
            "old over rollout, truncated at 2, times the ratio new over old, which is "
            "not clipped here. By what is the advantage multiplied?",
            zh=f"某 token 的 logp：rollout {rollout}；训练端同一份权重 {old}；"
            f"更新后 {new}。"
            "loss 用解耦形式：权重 old 比 rollout，在 2 处截断，再乘比值 new 比 old"
            "（这里没有触发裁剪）。advantage 乘上了多少？",
        ),
        answer,
        Words(
            en=f"exp({old} − ({rollout})) = {bare:.4f}, truncated {w.item():.4f}; {way}.",
            zh=f"exp({old} − ({rollout})) = {bare:.4f}，截断后 {w.item():.4f}；{way}。",
        ),
        (w.item(), "That is the weight; times the ratio.", "这是权重，还要乘比值。"),
        (r.item(), "That is the ratio; times the weight.", "这是比值，还要乘权重。"),
        (math.exp(new - rollout), "The weight is truncated first.", "权重要先截断。"),
        (
            w.item() * math.exp(new - rollout),
            "New over rollout holds the weight already: it counts twice.",
            "new 比 rollout 里已含权重，这样算了两次。",
        ),
    )


def vetoed(generator: random.Random) -> Task:
    """One token that the trainer finds all but impossible costs a whole response."""
    lengths = [generator.randrange(20, 99) for _ in range(4)]
    worst = [uniform(generator, -13, -5, 1) for _ in lengths]
    bound = math.log(1e-4)
    if any(abs(x - bound) < 0.25 for x in worst):
        return vetoed(generator)
    T = max(lengths)
    d = as_tensor("d", [[x] + [0.0] * (T - 1) for x in worst])
    real = as_tensor("real", [[t < n for t in range(T)] for n in lengths])
    _, kept = Correction(veto=1e-4).apply(d - 20, d * 0 - 20, real)
    answer = int(kept.sum())
    out = sum(x < bound for x in worst)
    rows = "; ".join(f"{n}, {x}" for n, x in zip(lengths, worst, strict=True))
    return task(
        Words(
            en="A veto drops a response if the ratio, trainer over rollout, of any of its "
            "tokens is below 1e-4. Four responses have, as number of tokens and smallest "
            f"log-ratio: {rows}. How many tokens are left?",
            zh="只要有一个 token 的比值（训练端比 rollout）低于 1e-4，"
            "就一票否决（veto），丢掉整条回答。"
            f"四条回答的 token 数和最小对数比：{rows}。还剩多少个 token？",
        ),
        answer,
        Words(
            en=f"ln(1e-4) = {bound:.2f}. Dropped with all their tokens: {out}; tokens that "
            f"stay: {three(answer)}.",
            zh=f"ln(1e-4) = {bound:.2f}：{out} 条回答整条丢掉，剩 {three(answer)} "
            "个 token。",
        ),
        (
            sum(lengths) - out,
            "The whole response goes, not the token.",
            "丢的是整条回答，不是那个 token。",
        ),
        (4 - out, "That is how many responses are left.", "这是剩下的回答数。"),
        (sum(lengths) - answer, "That is how many are dropped.", "这是丢掉的 token 数。"),
        within=0,
    )


def geometric_rejection(generator: random.Random) -> Task:
    """A mask on the geometric mean of ratios: it does not tighten with length."""
    lengths = [generator.randrange(20, 99) for _ in range(4)]
    Delta = [signed(generator, 0.1, 2, 1) for _ in lengths]
    if any(abs(abs(x) / n - 0.01) < 0.0015 for x, n in zip(Delta, lengths, strict=True)):
        return geometric_rejection(generator)
    T = max(lengths)
    real = as_tensor("real", [[t < n for t in range(T)] for n in lengths])
    d = as_tensor("d", [[x / n] * T for x, n in zip(Delta, lengths, strict=True)])
    band = Correction("geometric", "mask", 0.99, 1.01, weight="one")
    _, kept = band.apply(d - 20, d * 0 - 20, real)
    answer = int(kept.any(1).sum())
    rows = "; ".join(f"{n}, {x}" for n, x in zip(lengths, Delta, strict=True))
    means = ", ".join(f"{x / n:.4f}" for x, n in zip(Delta, lengths, strict=True))
    return task(
        Words(
            en="Responses are kept whose geometric mean of token ratios, trainer over "
            "rollout, is from 0.99 to 1.01. Four have, as number of tokens and sum of "
            f"log-ratios: {rows}. How many are kept?",
            zh="只保留 token 比值（训练端比 rollout）的几何平均在 0.99 到 1.01 之间的回答。"
            f"四条回答的 token 数和对数比之和：{rows}。保留几条？",
        ),
        answer,
        Words(
            en=f"The sum over T: {means}; within about ± 0.01: {three(answer)}.",
            zh=f"和除以 T：{means}；在约 ± 0.01 之内的有 {three(answer)} 条。",
        ),
        (4 - answer, "That is how many are dropped.", "这是丢掉的条数。"),
        (
            sum(abs(x) < 0.01 for x in Delta),
            "That bounds the product; divide by T.",
            "这限制的是乘积；要除以 T。",
        ),
        (
            sum(x / n < 0.01 for x, n in zip(Delta, lengths, strict=True)),
            "Below the band they are dropped, too.",
            "低于下界的也要丢掉。",
        ),
        within=0,
    )


def mismatch_apart(generator: random.Random) -> Task:
    """The factor of p_new / mu that is the engines', not the updates'."""
    rollout = uniform(generator, -3, -1.5)
    old = round(rollout + signed(generator, 0.1, 0.7), 2)
    new = round(old + signed(generator, 0.1, 0.7), 2)
    parts = apart(row([rollout]), row([old]), row([new]))
    answer, stale, both = (part["ratio_mean"] for part in parts)
    return task(
        Words(
            en=f"A token's logp is {rollout} in the rollout, {old} in the trainer with the "
            f"same weights, and {new} in the trainer now. Which factor of p_now / "
            "p_rollout "
            "is the engines' mismatch, not staleness?",
            zh=f"某 token 的 logp：rollout {rollout}；训练端同一份权重 {old}；"
            f"训练端现在 {new}。"
            "p_now / p_rollout 中，哪个因子来自引擎不一致，而不是滞后？",
        ),
        answer,
        Words(
            en=f"exp({old} − ({rollout})) = {three(answer)}; staleness is {stale:.4g}, the "
            f"product {both:.4g}.",
            zh=f"exp({old} − ({rollout})) = {three(answer)}；滞后是 {stale:.4g}，"
            f"乘积是 {both:.4g}。",
        ),
        (stale, "That is staleness: the updates since.", "这是滞后：采样之后的更新。"),
        (both, "That is both causes together.", "这是两者的乘积。"),
        (
            1 / answer,
            "That is the rollout over the trainer.",
            "这是 rollout 比训练端，反了。",
        ),
    )


DRILLS = (
    drill("effective_sample_size", "VII", effective_sample_size),
    drill("truncated_mean", "VII", truncated_mean),
    drill("masked_weight", "VII", masked_weight),
    drill("decoupled_factor", "VII", decoupled_factor),
    drill("vetoed", "VII", vetoed),
    drill("geometric_rejection", "VII", geometric_rejection),
    drill("mismatch_apart", "VII", mismatch_apart),
)
