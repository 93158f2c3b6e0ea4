"""Drills on estimators: K1, K2, K3, chi2, perplexities, probabilities, quantiles."""

from __future__ import annotations

import math
import random

from tinyrl.course.interview.numeric.drawing import (
    D,
    drill,
    engines,
    listed,
    row,
    signed,
    task,
    three,
    uniform,
)
from tinyrl.course.interview.numeric.tasks import Task
from tinyrl.course.words import Words
from tinyrl.metrics import compare
from tinyrl.monitoring import monitor


def measured(d: list[float]) -> dict[str, float]:
    """All numbers of one response whose tokens have these deltas."""
    return monitor(row(d) * 0 - 20, row(d) - 20)


def two_tokens(generator: random.Random) -> list[float]:
    return [signed(generator, 0.2, 1.2), signed(generator, 0.2, 1.2)]


def k1_of_two_tokens(generator: random.Random) -> Task:
    """The mean of -d: it may be negative."""
    d = two_tokens(generator)
    k = measured(d)
    answer = k["k1"]
    if abs(answer) < 0.02:
        return k1_of_two_tokens(generator)
    return task(
        Words(
            en=f"{D.en} Two tokens, sampled by the rollout, have d = {listed(d)}. What is "
            "K1, as an estimate of KL(rollout || trainer)?",
            zh=f"{D.zh}rollout 采出的两个 token 的 d = {listed(d)}。"
            "作为 KL(rollout || 训练端) 的估计，K1 是多少？",
        ),
        answer,
        Words(
            en=f"The mean of −d: −({sum(d):.2f}) / 2 = {three(answer)}. Of a few tokens it "
            "may be negative, though KL is not.",
            zh=f"−d 的平均：−({sum(d):.2f}) / 2 = {three(answer)}。"
            "样本少时它可以为负，尽管 KL 不会。",
        ),
        (
            -answer,
            "The rollout sampled: it is logp of the rollout minus the trainer's.",
            "样本来自 rollout：应是 rollout 的 logp 减训练端的。",
        ),
        (2 * answer, "That is the sum; take the mean.", "这是总和，应取平均。"),
        (k["k2"], "That is K2, the mean of d^2 / 2.", "这是 K2，即 d^2 / 2 的平均。"),
        (k["k3"], "That is K3.", "这是 K3。"),
    )


def k2_of_two_tokens(generator: random.Random) -> Task:
    """The mean of d^2 / 2."""
    d = two_tokens(generator)
    k = measured(d)
    answer = k["k2"]
    squares = " + ".join(f"{x * x:.4f}" for x in d)
    return task(
        Words(
            en=f"{D.en} Two tokens have d = {listed(d)}. What is K2, the mean over tokens?",
            zh=f"{D.zh}两个 token 的 d = {listed(d)}。K2（对 token 取平均）是多少？",
        ),
        answer,
        Words(
            en=f"The mean of d^2 / 2: ({squares}) / 2 / 2 = {three(answer)}.",
            zh=f"d^2 / 2 的平均：({squares}) / 2 / 2 = {three(answer)}。",
        ),
        (
            2 * answer,
            "Each square is halved, and then the mean is taken.",
            "每个平方先除以二，再取平均。",
        ),
        (
            sum(d) ** 2 / 4 / 2,
            "Square each d, not their mean.",
            "要对每个 d 平方，不是先平均。",
        ),
        (k["k3"], "That is K3.", "这是 K3。"),
        (k["k1"], "That is K1, the mean of −d.", "这是 K1，即 −d 的平均。"),
    )


def k3_of_two_tokens(generator: random.Random) -> Task:
    """The mean of exp(d) - 1 - d: each term is 0 or more."""
    d = two_tokens(generator)
    k = measured(d)
    answer = k["k3"]
    terms = ", ".join(f"{math.expm1(x) - x:.4f}" for x in d)
    return task(
        Words(
            en=f"{D.en} Two tokens, sampled by the rollout, have d = {listed(d)}. What is "
            "K3, the mean over tokens?",
            zh=f"{D.zh}rollout 采出的两个 token 的 d = {listed(d)}。"
            "K3（对 token 取平均）是多少？",
        ),
        answer,
        Words(
            en=f"exp(d) − 1 − d of each: {terms}; the mean is {three(answer)}.",
            zh=f"逐个算 exp(d) − 1 − d：{terms}；平均 {three(answer)}。",
        ),
        (
            k["k3_reverse"],
            "That has the sign of d turned: exp(−d) − 1 + d.",
            "d 的符号反了：这是 exp(−d) − 1 + d。",
        ),
        (k["k2"], "That is K2: near for small d only.", "这是 K2，只有 d 很小时才接近。"),
        (
            k["ratio_mean"] - 1,
            "That is exp(d) − 1; subtract d.",
            "这是 exp(d) − 1，还要减 d。",
        ),
        (2 * answer, "That is the sum; take the mean.", "这是总和，应取平均。"),
    )


def chi2_of_ratios(generator: random.Random) -> Task:
    """The mean square of ratios, less one."""
    r = [uniform(generator, 0.4, 2.2, 1) for _ in range(4)]
    m = monitor(*engines(r))
    answer = m["chi2"]
    if abs(answer) < 0.05:
        return chi2_of_ratios(generator)
    squares = " + ".join(f"{x * x:.2f}" for x in r)
    return task(
        Words(
            en="Four tokens sampled by the rollout have ratios, trainer over rollout, "
            f"{listed(r)}. What is the estimate of χ²(trainer || rollout)?",
            zh="rollout 采出的四个 token，比值（训练端比 rollout）为 "
            f"{listed(r)}。χ²(训练端 || rollout) 的估计是多少？",
        ),
        answer,
        Words(
            en=f"The mean square less 1: ({squares}) / 4 − 1 = {three(answer)}.",
            zh=f"平方的平均减 1：({squares}) / 4 − 1 = {three(answer)}。",
        ),
        (
            answer + 1,
            "Subtract 1: equal policies have χ² zero.",
            "还要减 1：策略相同时 χ² 为零。",
        ),
        (
            m["ratio_std"] ** 2,
            "That is the variance about this sample's own mean.",
            "这是围绕样本均值的方差。",
        ),
        (m["ratio_mean"] - 1, "Square the ratios first.", "先对比值平方。"),
    )


def perplexity_ratio(generator: random.Random) -> Task:
    """By which factor the trainer is more surprised by a response."""
    T, total = generator.randrange(4, 30), signed(generator, 0.8, 9, 1)
    m = measured([total / T] * T)
    answer = m["ppl_ratio"]
    way = f"exp(−({total}) / {T}) = exp({-total / T:.4f}) = {three(answer)}"
    return task(
        Words(
            en=f"A response of {T} tokens has a log-probability that is larger by {total} "
            "nats (negative: smaller) in the trainer than in the rollout. What is the "
            "trainer's perplexity over the rollout's?",
            zh=f"一条 {T} 个 token 的回答，训练端给出的对数概率比 rollout 大 {total} nat"
            "（负数表示更小）。训练端的困惑度是 rollout 的多少倍？",
        ),
        answer,
        Words(
            en=f"Perplexity is exp of minus the mean logprob: {way}.",
            zh=f"困惑度是负的平均 logprob 取指数：{way}。",
        ),
        (1 / answer, "Larger probability is smaller perplexity.", "概率越大，困惑度越小。"),
        (
            math.exp(-total),
            "Perplexity is per token: divide by T.",
            "困惑度按 token 平均：要除以 T。",
        ),
        (m["log_ppl_diff"], "That is the gap of log-perplexities.", "这是对数困惑度之差。"),
    )


def probability_gap(generator: random.Random) -> Task:
    """|p_train - p_rollout|: what exp makes of the same delta where tokens are rare."""
    p = [uniform(generator, 0.05, 0.9), uniform(generator, 0.05, 0.9)]
    d = [signed(generator, 0.1, 0.6, 1) for _ in p]
    q = [a * math.exp(x) for a, x in zip(p, d, strict=True)]
    if max(q) > 0.95:
        return probability_gap(generator)
    rollout, train = (row(math.log(x) for x in side) for side in (p, q))
    m = monitor(rollout, train, probabilities=True)
    answer = m["prob_gap"]
    gaps = ", ".join(f"{abs(b - a):.4f}" for a, b in zip(p, q, strict=True))
    return task(
        Words(
            en=f"{D.en} Two tokens have probability {p[0]} and {p[1]} in the rollout, and "
            f"d = {listed(d)}. What is the mean of |p_train − p_rollout|?",
            zh=f"{D.zh}两个 token 在 rollout 中的概率为 {p[0]} 和 {p[1]}，d = {listed(d)}。"
            "|p_train − p_rollout| 的平均是多少？",
        ),
        answer,
        Words(
            en=f"p_train = p exp(d) = {q[0]:.4f} and {q[1]:.4f}; gaps {gaps}; the mean is "
            f"{three(answer)}.",
            zh=f"p_train = p exp(d) = {q[0]:.4f} 与 {q[1]:.4f}；差 {gaps}；"
            f"平均 {three(answer)}。",
        ),
        (
            m["mean_abs"],
            "That is the mean of |d|: logprobs, not probabilities.",
            "这是 |d| 的平均：是 logprob，不是概率。",
        ),
        (2 * answer, "That is the sum; take the mean.", "这是总和，应取平均。"),
        (m["error_factor"] - 1, "Multiply by the probabilities.", "还要乘上概率。"),
        (
            abs(sum(q) - sum(p)) / 2,
            "Take the size of each gap first.",
            "先对每个差取绝对值。",
        ),
    )


def p99_of_deltas(generator: random.Random) -> Task:
    """A quantile between two values, by linear interpolation."""
    n = generator.choice([5, 6, 11])
    d = [signed(generator, 0.01, 0.2) for _ in range(n - 1)]
    d.insert(generator.randrange(n), signed(generator, 0.6, 2.5))
    answer = compare(row(d) * 0 - 5, row(d) - 5).p99_abs
    *_, low, high = sorted(abs(x) for x in d)
    share = 0.99 * (n - 1) - (n - 2)
    way = f"{low:g} + {share:.2g} × ({high:g} − {low:g}) = {three(answer)}"
    return task(
        Words(
            en=f"{D.en} A batch has d = {listed(d)}. What is the 99th percentile of |d|, "
            "interpolated linearly between ranks, as numpy does?",
            zh=f"{D.zh}一个 batch 的 d = {listed(d)}。"
            "|d| 的第 99 百分位数是多少（像 numpy 那样在名次之间线性插值）？",
        ),
        answer,
        Words(
            en=f"Counted from zero its rank is 0.99 × {n - 1} = {0.99 * (n - 1):g}: {way}.",
            zh=f"从零数起，名次是 0.99 × {n - 1} = {0.99 * (n - 1):g}：{way}。",
        ),
        (sum(abs(x) for x in d) / n, "That is the mean of |d|.", "这是 |d| 的平均。"),
        (low, "That is the second largest.", "这是第二大的。"),
        (
            high,
            "That is the largest; a quantile interpolates.",
            "这是最大的；分位数要插值。",
        ),
        (sorted(abs(x) for x in d)[n // 2], "That is the median.", "这是中位数。"),
    )


DRILLS = (
    drill("k1_of_two_tokens", "VII", k1_of_two_tokens),
    drill("k2_of_two_tokens", "VII", k2_of_two_tokens),
    drill("k3_of_two_tokens", "VII", k3_of_two_tokens),
    drill("chi2_of_ratios", "VII", chi2_of_ratios),
    drill("perplexity_ratio", "VII", perplexity_ratio),
    drill("probability_gap", "VII", probability_gap),
    drill("p99_of_deltas", "VII", p99_of_deltas),
)
