"""Drills on logprobs, deltas and ratios."""

from __future__ import annotations

import math
import random
from itertools import count

from tinyrl.course.interview.numeric.drawing import (
    D,
    added,
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
from tinyrl.metrics import compare, token_delta
from tinyrl.monitoring import apart, monitor
from tinyrl.objectives import ratio


def ratio_of_logprobs(generator: random.Random) -> Task:
    """exp(logp_train - logp_rollout) of one token."""
    rollout = uniform(generator, -4, -1.2)
    train = round(rollout + signed(generator, 0.1, 0.9), 2)
    delta = token_delta(row([rollout]), row([train])).item()
    answer = math.exp(delta)
    way = f"Δ = {train} − ({rollout}) = {delta:.2f}; exp(Δ) = {three(answer)}"
    return task(
        Words(
            en=f"A token has logp {rollout} in the rollout engine and {train} in the "
            "trainer. What is its importance ratio, trainer over rollout?",
            zh=f"某个 token 在 rollout 引擎中的 logp 是 {rollout}，"
            f"在训练端是 {train}。重要性比值（训练端比 rollout）是多少？",
        ),
        answer,
        Words(en=f"{way}.", zh=f"{way}。"),
        (
            1 / answer,
            "That is the rollout over the trainer.",
            "这是 rollout 比训练端，反了。",
        ),
        (
            train / rollout,
            "Logprobs are subtracted, not divided.",
            "logprob 要相减，而不是相除。",
        ),
        (delta, "That is Δ; take its exponential.", "这是 Δ，还要取指数。"),
    )


def ratio_of_response(generator: random.Random) -> Task:
    """The product of a response's token ratios."""
    d = [signed(generator, 0.05, 0.6) for _ in range(3)]
    r = ratio(row(d), every(row(d)), "sequence")[0, 0].item()
    token = ratio(row(d), every(row(d)))
    way = f"exp({added(d)}) = exp({sum(d):.2f}) = {three(r)}"
    return task(
        Words(
            en=f"{D.en} The three tokens of a response have d = {listed(d)}. What is the "
            "importance ratio of the whole response, trainer over rollout?",
            zh=f"{D.zh}一条回答有三个 token，d = {listed(d)}。"
            "整条回答的重要性比值（训练端比 rollout）是多少？",
        ),
        r,
        Words(
            en=f"Probabilities of tokens multiply, so their d add up: {way}.",
            zh=f"各 token 的概率相乘，d 就相加：{way}。",
        ),
        (
            math.exp(sum(d) / 3),
            "That is the geometric mean of the ratios: GSPO's, not the product.",
            "这是各比值的几何平均（GSPO 的定义），不是乘积。",
        ),
        (
            token.mean().item(),
            "That is the mean of the tokens' ratios; multiply them.",
            "这是各 token 比值的平均，应当相乘。",
        ),
        (
            sum(d),
            "That is the log-ratio; take its exponential.",
            "这是对数比，还要取指数。",
        ),
        (
            math.exp(-sum(d)),
            "That is the rollout over the trainer.",
            "这是 rollout 比训练端，反了。",
        ),
    )


def delta_per_token(generator: random.Random) -> Task:
    """The length-normalised sequence delta, |Delta| / T."""
    d = [signed(generator, 0.02, 0.4) for _ in range(generator.choice([4, 5]))]
    m = compare(row(d) * 0 - 5, row(d) - 5)
    way = f"|{added(d)}| = {three(m.seq_mean_abs)}"
    return task(
        Words(
            en=f"{D.en} The tokens of a response have d = {listed(d)}. What is its "
            "length-normalised sequence delta, |Δ| / T?",
            zh=f"{D.zh}一条回答各 token 的 d = {listed(d)}。"
            "按长度归一化的序列差 |Δ| / T 是多少？",
        ),
        m.seq_per_token,
        Words(
            en=f"|Δ| = {way}; over T = {len(d)} tokens: {three(m.seq_per_token)}.",
            zh=f"|Δ| = {way}；除以 T = {len(d)}，得 {three(m.seq_per_token)}。",
        ),
        (
            m.mean_abs,
            "That is the mean of |d|: within a response signs may cancel.",
            "这是 |d| 的平均；在一条回答里正负可以抵消。",
        ),
        (m.seq_mean_abs, "That is |Δ|; divide by T.", "这是 |Δ|，还要除以 T。"),
    )


def mean_ratio_of_noise(generator: random.Random) -> Task:
    """Errors that cancel in logprobs do not cancel in ratios."""
    x = uniform(generator, 0.5, 1.6)
    answer = monitor(row([-5, -5]), row([x - 5, -x - 5]))["ratio_mean"]
    way = f"(exp({x}) + exp(-{x})) / 2 = {three(answer)}"
    return task(
        Words(
            en=f"{D.en} In half of the tokens d = {x}, in the others d = -{x}. What is the "
            "mean of the tokens' ratios exp(d)?",
            zh=f"{D.zh}一半 token 的 d = {x}，另一半 d = -{x}。"
            "各 token 比值 exp(d) 的平均是多少？",
        ),
        answer,
        Words(
            en=f"{way}: above 1, since exp lifts more than it lowers.",
            zh=f"{way}：大于 1，因为 exp 往上拉得比往下压得多。",
        ),
        (1.0, "The d cancel, their exponentials do not.", "d 会抵消，取指数后不会抵消。"),
        (math.exp(x), "That is the upper half alone.", "这只是上面那一半。"),
        (
            math.exp(x * x / 2),
            "That is for d with a normal distribution of this deviation.",
            "这是 d 服从同样标准差的正态分布时的结果。",
        ),
    )


def noise_of_a_response(generator: random.Random) -> Task:
    """Independent errors of T tokens grow as sqrt(T)."""
    T, s = generator.choice([4, 5, 6, 8, 9, 10, 12]) ** 2, uniform(generator, 0.03, 0.12)
    root = math.isqrt(T)
    answer = math.exp(s * root)
    way = f"{s} × √{T} = {s * root:g}; exp({s * root:g}) = {three(answer)}"
    return task(
        Words(
            en=f"{D.en} In a response of {T} tokens the d are independent, with mean zero "
            f"and standard deviation {s}. By which factor is the response's ratio off "
            "when Δ = sum of d is one standard deviation above zero?",
            zh=f"{D.zh}一条 {T} 个 token 的回答，各 d 相互独立，均值为零，标准差 {s}。"
            "Δ（d 之和）比零高一个标准差时，整条回答的比值偏了多少倍？",
        ),
        answer,
        Words(en=f"Noise adds up as √T: {way}.", zh=f"噪声按 √T 累积：{way}。"),
        (
            math.exp(s * T),
            "That is a bias, which grows with T; noise grows with √T.",
            "那是偏差，按 T 增长；噪声按 √T 增长。",
        ),
        (math.exp(s), "That is one token's.", "这只是一个 token 的。"),
        (s * root, "That is Δ; take its exponential.", "这是 Δ，还要取指数。"),
        (
            1 + s * root,
            "exp(x) is 1 + x for small x only.",
            "只有 x 很小时 exp(x) 才约等于 1 + x。",
        ),
    )


def noise_against_bias(generator: random.Random) -> Task:
    """Where a bias, which grows with T, overtakes noise, which grows with sqrt(T)."""
    s, b = uniform(generator, 0.02, 0.09), uniform(generator, 0.002, 0.009, 3)
    answer = (s / b) ** 2
    way = f"T × {b} = √T × {s}, √T = {s} / {b} = {s / b:.4g}, T = {three(answer)}"
    return task(
        Words(
            en=f"{D.en} The d of a response's T tokens are independent, with mean {b} and "
            f"standard deviation {s}. At which T is the mean of their sum as large as its "
            "standard deviation?",
            zh=f"{D.zh}一条回答有 T 个 token，各 d 相互独立，均值 {b}，标准差 {s}。"
            "T 是多少时，d 之和的均值与它的标准差相等？",
        ),
        answer,
        Words(
            en=f"{way}. From there on the bias decides.",
            zh=f"{way}。再长就由偏差决定。",
        ),
        (s / b, "That is √T; square it.", "这是 √T，还要平方。"),
        (s * s / b, "Both sides are squared: b too.", "两边都要平方，均值也要。"),
    )


def tokens_until_clip(generator: random.Random) -> Task:
    """How soon equal small errors carry a response's ratio past a clip."""
    b, eps = uniform(generator, 0.004, 0.03, 3), generator.choice([0.2, 0.25, 0.28, 0.3])
    rows = (row([b] * n) for n in count(1))
    passed = (ratio(d, every(d), "sequence")[0, 0] > 1 + eps for d in rows)
    n = 1 + next(i for i, out in enumerate(passed) if out)
    exact = math.log1p(eps) / b
    if not 0.1 < exact % 1 < 0.9:
        return tokens_until_clip(generator)
    way = f"ln({1 + eps:g}) / {b} = {exact:.1f}"
    return task(
        Words(
            en=f"{D.en} Each token of a long response has d = {b}. After how many tokens "
            f"is the product of their ratios for the first time above 1 + {eps}?",
            zh=f"{D.zh}一条长回答的每个 token 都有 d = {b}。"
            f"到第几个 token 时，比值的乘积首次超过 1 + {eps}？",
        ),
        n,
        Words(en=f"{way}: after {n} tokens.", zh=f"{way}：到第 {n} 个 token。"),
        (
            math.ceil(eps / b),
            "The bound is on exp(Δ), so Δ has to pass ln(1 + ε), not ε.",
            "界加在 exp(Δ) 上，Δ 要超过的是 ln(1 + ε)，不是 ε。",
        ),
        (
            math.ceil((1 + eps) / b),
            "Take the logarithm of the bound first.",
            "要先对界取对数。",
        ),
        (n - 1, "There the product is still inside.", "那时乘积还没有出界。"),
        within=0,
    )


def wrong_anchor(generator: random.Random) -> Task:
    """The ratio of a loss whose old logprob is the sampler's."""
    roll = uniform(generator, -3, -1.5)
    old = round(roll + signed(generator, 0.08, 0.4), 2)
    new = round(old + signed(generator, 0.08, 0.4), 2)
    parts = apart(row([roll]), row([old]), row([new]))
    seen, meant = (p["ratio_mean"] for p in (parts.both, parts.staleness))
    way = f"exp({new} − ({roll})) = exp({new - roll:.2f}) = {three(seen)}"
    return task(
        Words(
            en=f"A token has logp {roll} in the rollout engine, {old} in the trainer with "
            f"the same weights, and {new} in the trainer after some updates. The loss "
            "takes the rollout's logprob as the old one. Which ratio does it see?",
            zh=f"某个 token 的 logp：rollout 引擎 {roll}；训练端用同一份权重 {old}；"
            f"训练端更新几步后 {new}。loss 拿 rollout 的 logprob 当 old，"
            "它看到的比值是多少？",
        ),
        seen,
        Words(
            en=f"{way}. Against the trainer's own old logprob it would be {meant:.3g}.",
            zh=f"{way}。若以训练端自己的 old 为准，应是 {meant:.3g}。",
        ),
        (
            meant,
            "That is with the trainer's own old logprob, which this loss does not use.",
            "这是用训练端自己的 old 算出来的，而这个 loss 没有用它。",
        ),
        (
            parts.mismatch["ratio_mean"],
            "That is the mismatch of the engines alone, without the updates.",
            "这只是两个引擎的不一致，没有算上更新。",
        ),
        (1 / seen, "That is old over new.", "这是旧比新，反了。"),
    )


DRILLS = (
    drill("ratio_of_logprobs", "III", ratio_of_logprobs),
    drill("ratio_of_response", "III", ratio_of_response),
    drill("delta_per_token", "III", delta_per_token),
    drill("mean_ratio_of_noise", "III", mean_ratio_of_noise),
    drill("noise_of_a_response", "III", noise_of_a_response),
    drill("noise_against_bias", "III", noise_against_bias),
    drill("tokens_until_clip", "III", tokens_until_clip),
    drill("wrong_anchor", "III", wrong_anchor),
)
