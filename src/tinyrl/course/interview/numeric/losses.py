"""Drills on objectives: clips, gates, caps, and means of means."""

from __future__ import annotations

import math
import random

from tinyrl.course.interview.numeric.drawing import (
    drill,
    engines,
    every,
    row,
    signed,
    task,
    three,
    uniform,
)
from tinyrl.course.interview.numeric.tasks import Task
from tinyrl.course.words import Words
from tinyrl.logprobs import as_tensor
from tinyrl.objectives import aggregate, cispo, clip, diagnostics, soft_gate


def ppo_loss(generator: random.Random) -> Task:
    """The clipped surrogate of one token."""
    r, A = uniform(generator, 0.5, 1.6), signed(generator, 0.5, 2.5, 1)
    answer = clip(row([r]), row([A]), 0.2, 0.2).item()
    held = min(max(r, 0.8), 1.2)
    if held == r:
        return ppo_loss(generator)
    return task(
        Words(
            en=f"A token has ratio r = {r} and advantage A = {A}. What is its PPO "
            "loss with "
            "clip 1 ± 0.2?",
            zh=f"某个 token 的比值 r = {r}，advantage A = {A}。"
            "裁剪区间 1 ± 0.2 时，它的 PPO loss 是多少？",
        ),
        answer,
        Words(
            en=f"−min(r A, clip(r) A) = −min({r * A:.4g}, {held * A:.4g}) = "
            f"{three(answer)}.",
            zh=f"−min(r A, clip(r) A) = −min({r * A:.4g}, {held * A:.4g}) = "
            f"{three(answer)}。",
        ),
        (
            -r * A if answer == -held * A else -held * A,
            "The smaller of r A and clip(r) A counts, before the sign.",
            "取负号之前，要选 r A 与 clip(r) A 中较小的。",
        ),
        (
            -answer,
            "A loss is minimised: it has a minus sign.",
            "loss 要最小化，前面有负号。",
        ),
        (-A, "That is at ratio 1.", "这是比值为 1 时的。"),
    )


def tokens_with_gradient(generator: random.Random) -> Task:
    """A clip stops what has left the band in the direction of A, and nothing else."""
    r = [uniform(generator, 0.5, 1.5) for _ in range(6)]
    A = [generator.choice([-1, 1]) for _ in r]
    if any(abs(x - bound) < 0.03 for x in r for bound in (0.8, 1.2)):
        return tokens_with_gradient(generator)
    rollout, train = engines(r)
    stopped = diagnostics(train, rollout, row(A), every(train))["clip_fraction"]
    answer, inside = 6 - round(6 * stopped), sum(0.8 < x < 1.2 for x in r)
    pairs = "; ".join(f"{x}, {a:+d}" for x, a in zip(r, A, strict=True))
    return task(
        Words(
            en=f"Six tokens have, as ratio and advantage: {pairs}. PPO's clip is 1 ± 0.2. "
            "How many of them get a gradient?",
            zh=f"六个 token 的比值和 advantage：{pairs}。PPO 的裁剪区间是 1 ± 0.2。"
            "有几个 token 有梯度？",
        ),
        answer,
        Words(
            en=f"Inside: {inside}. Of the others only those too high with A = +1 or too "
            f"low with A = -1 are stopped: {three(answer)} get one.",
            zh=f"区间内有 {inside} 个。区间外只有偏高且 A = +1、偏低且 A = -1 的被挡住："
            f"{three(answer)} 个有梯度。",
        ),
        (
            inside,
            "Outside against the direction of A there is a gradient.",
            "逆着 A 的方向出界的仍有梯度。",
        ),
        (6 - answer, "That is how many get none.", "这是没有梯度的个数。"),
        (
            sum(x < 1.2 for x in r),
            "With A = -1 it is the lower bound that stops.",
            "A = -1 时起作用的是下界。",
        ),
        within=0,
    )


def clip_higher(generator: random.Random) -> Task:
    """The share that an asymmetric clip stops."""
    n = generator.choice([5, 6, 8])
    r = [uniform(generator, 0.65, 1.45) for _ in range(n)]
    A = [generator.choice([-1, 1]) for _ in r]
    if any(abs(x - bound) < 0.02 for x in r for bound in (0.8, 1.2, 1.28)):
        return clip_higher(generator)
    rollout, train = engines(r)
    narrow, wide = (
        diagnostics(train, rollout, row(A), every(train), eps_high=eps)["clip_fraction"]
        for eps in (0.2, 0.28)
    )
    out = sum(x < 0.8 or x > 1.28 for x in r)
    pairs = "; ".join(f"{x}, {a:+d}" for x, a in zip(r, A, strict=True))
    return task(
        Words(
            en=f"DAPO clips at 1 − 0.2 and 1 + 0.28. Tokens have, as ratio and advantage: "
            f"{pairs}. What share of them is stopped by the clip?",
            zh="DAPO 的裁剪界是 1 − 0.2 和 1 + 0.28。各 token 的比值和 advantage："
            f"{pairs}。"
            "被裁剪挡住的占多大比例？",
        ),
        wide,
        Words(
            en=f"Above with A = +1 or below with A = -1: {round(wide * n)} / {n} = "
            f"{three(wide)}.",
            zh=f"偏高且 A = +1，或偏低且 A = -1：{round(wide * n)} / {n} = {three(wide)}。",
        ),
        (
            out / n,
            "Outside against the direction of A nothing is stopped.",
            "逆着 A 的方向出界的不受影响。",
        ),
        (narrow, "That is with PPO's 0.2 above.", "这用了 PPO 的上界 0.2。"),
        (1 - wide, "That is the share that is not stopped.", "这是没有被挡住的比例。"),
        (round(wide * n), "That is their number.", "这是个数，不是比例。"),
    )


def dual_clip(generator: random.Random) -> Task:
    """A bound on the loss of a bad token whose ratio has exploded."""
    r, A = uniform(generator, 1.3, 8, 1), -uniform(generator, 0.5, 2.5, 1)
    answer = clip(row([r]), row([A]), 0.2, 0.2, 3.0).item()
    way = f"min({-r * A:.4g}, {-3 * A:.4g}) = {three(answer)}"
    return task(
        Words(
            en=f"A token has ratio r = {r} and advantage A = {A}. What is its loss under "
            "PPO with clip 1 ± 0.2 and dual clip c = 3?",
            zh=f"某个 token 的比值 r = {r}，advantage A = {A}。"
            "PPO 裁剪区间 1 ± 0.2，dual clip c = 3，它的 loss 是多少？",
        ),
        answer,
        Words(
            en=f"With A below zero PPO gives −r A, and dual clip holds it at −c A: {way}.",
            zh=f"A 为负时 PPO 给出 −r A，dual clip 把它封顶在 −c A：{way}。",
        ),
        (
            -1.2 * A,
            "PPO's clip does not hold the loss of a bad token.",
            "PPO 的裁剪管不住坏 token 的 loss。",
        ),
        (
            -r * A if r > 3 else -3 * A,
            "The smaller of −r A and −c A counts.",
            "取 −r A 与 −c A 中较小的。",
        ),
        (
            -answer,
            "A loss is minimised: it has a minus sign.",
            "loss 要最小化，前面有负号。",
        ),
    )


def sapo_loss(generator: random.Random) -> Task:
    """The soft gate of one token."""
    r, A = uniform(generator, 0.3, 3), signed(generator, 0.5, 2.5, 1)
    tau = 1.0 if A > 0 else 1.05
    answer = soft_gate(row([r]), row([A])).item()
    s = 1 / (1 + math.exp(-tau * (r - 1)))
    way = f"−4 / {tau:g} × {s:.4f} × ({A}) = {three(answer)}"
    return task(
        Words(
            en=f"A token has ratio r = {r} and advantage A = {A}. What is its SAPO loss "
            "−(4 / τ) σ(τ (r − 1)) A, σ the logistic function, with τ = 1 for A above zero "
            "and 1.05 otherwise?",
            zh=f"某个 token 的比值 r = {r}，advantage A = {A}。它的 SAPO loss "
            "−(4 / τ) σ(τ (r − 1)) A 是多少？σ 是 logistic 函数，A 为正时 τ = 1，"
            "否则 1.05。",
        ),
        answer,
        Words(
            en=f"σ({tau:g} × ({r} − 1)) = {s:.4f}; {way}.",
            zh=f"σ({tau:g} × ({r} − 1)) = {s:.4f}；{way}。",
        ),
        (
            -answer,
            "A loss is minimised: it has a minus sign.",
            "loss 要最小化，前面有负号。",
        ),
        (
            answer / 4,
            "The factor 4 / τ makes the slope 1 at r = 1.",
            "系数 4 / τ 使 r = 1 处的斜率为 1。",
        ),
        (-r * A, "That is without a gate.", "这是没有软门时的。"),
        (
            -4 / tau * A / (1 + math.exp(-tau * r)),
            "The gate is centred at r = 1, not at zero.",
            "软门以 r = 1 为中心，不是零。",
        ),
    )


def cispo_loss(generator: random.Random) -> Task:
    """A capped weight without a gradient, times A log pi."""
    r, cap = uniform(generator, 1.2, 9, 1), generator.choice([2, 3, 4, 5])
    logp, A = -uniform(generator, 0.3, 2.5), signed(generator, 0.5, 2, 1)
    old = logp - math.log(r)
    arrays = row([logp]), row([old]), as_tensor("A", [A])
    answer = cispo(*arrays, every(row([logp])), cap=cap).item()
    w = min(r, cap)
    return task(
        Words(
            en=f"A token has ratio {r}, logprob {logp} under the policy that is trained, "
            f"and advantage {A}. What is its CISPO loss if weights are capped at {cap}?",
            zh=f"某个 token 的比值是 {r}，在被训练的策略下 logprob 是 {logp}，"
            f"advantage 是 {A}。权重上限 {cap} 时，它的 CISPO loss 是多少？",
        ),
        answer,
        Words(
            en=f"The weight is {w:g}: −w A logp = −{w:g} × ({A}) × ({logp}) = "
            f"{three(answer)}.",
            zh=f"权重是 {w:g}：−w A logp = −{w:g} × ({A}) × ({logp}) = {three(answer)}。",
        ),
        (
            -w * A,
            "The weight is beside the logprob: REINFORCE, not a ratio.",
            "权重要乘在 logprob 上：是 REINFORCE，不是比值。",
        ),
        (
            -max(r, cap) * A * logp,
            "The smaller of ratio and cap is the weight.",
            "权重是比值与上限中较小的。",
        ),
        (
            -answer,
            "A loss is minimised: it has a minus sign.",
            "loss 要最小化，前面有负号。",
        ),
        (-A * logp, "That is without a weight.", "这是没有权重时的。"),
    )


def mean_of_means(generator: random.Random) -> Task:
    """GRPO's average over responses of different lengths."""
    lengths = [generator.randrange(2, 10) * 10, generator.randrange(10, 50) * 10]
    x = [signed(generator, 0.1, 0.9), signed(generator, 0.1, 0.9)]
    T = max(lengths)
    mask = as_tensor("mask", [[t < n for t in range(T)] for n in lengths])
    losses = as_tensor("x", [[v] * T for v in x])
    sequence = aggregate(losses, mask, "sequence_mean").item()
    token = aggregate(losses, mask, "token_mean").item()
    ask, other = generator.choice([(sequence, token), (token, sequence)])
    by_token = ask == token
    if abs(ask) < 0.03:
        return mean_of_means(generator)
    name = "DAPO's mean over tokens" if by_token else "GRPO's mean over responses of means"
    said = "DAPO 的按 token 平均" if by_token else "GRPO 的先按回答平均、再对回答平均"
    n = sum(lengths)
    sums = f"{lengths[0]} × ({x[0]}) + {lengths[1]} × ({x[1]})"
    way = f"({sums}) / {n}" if by_token else f"(({x[0]}) + ({x[1]})) / 2"
    return task(
        Words(
            en=f"Two responses have {lengths[0]} tokens with loss {x[0]} each, and "
            f"{lengths[1]} with {x[1]} each. What is the loss under {name}?",
            zh=f"两条回答：一条 {lengths[0]} 个 token，每个 loss {x[0]}；"
            f"另一条 {lengths[1]} 个，每个 {x[1]}。用 {said}，loss 是多少？",
        ),
        ask,
        Words(en=f"{way} = {three(ask)}.", zh=f"{way} = {three(ask)}。"),
        (
            other,
            "Over all tokens long responses weigh more; over responses all weigh alike.",
            "按 token 平均，长回答权重大；按回答平均，各条一样。",
        ),
        (-ask, "The sign is that of the losses.", "符号应与 loss 一致。"),
        (
            sum(a * b for a, b in zip(lengths, x, strict=True)) / 2,
            "That is the mean of sums: REINFORCE's.",
            "这是各条之和的平均，即 REINFORCE 的做法。",
        ),
    )


DRILLS = (
    drill("ppo_loss", "VIII", ppo_loss),
    drill("tokens_with_gradient", "VIII", tokens_with_gradient),
    drill("clip_higher", "VIII", clip_higher),
    drill("dual_clip", "VIII", dual_clip),
    drill("sapo_loss", "VIII", sapo_loss),
    drill("cispo_loss", "VIII", cispo_loss),
    drill("mean_of_means", "VIII", mean_of_means),
)
