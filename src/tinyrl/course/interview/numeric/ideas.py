"""Drills on mismatch in general: outside of RL, in the loss, in the reward."""

from __future__ import annotations

import math
import random

from tinyrl.course.interview.numeric.drawing import (
    drill,
    engines,
    every,
    listed,
    signed,
    task,
    three,
    uniform,
)
from tinyrl.course.interview.numeric.tasks import Task
from tinyrl.course.words import Words
from tinyrl.logprobs import as_tensor, token_logp
from tinyrl.metrics import compare
from tinyrl.monitoring import monitor
from tinyrl.objectives import ppo


def skewed_feature(generator: random.Random) -> Task:
    """A classifier whose server computes a feature in another way."""
    w, b = uniform(generator, 0.5, 2, 1), signed(generator, 0.1, 1, 1)
    x, y = uniform(generator, -1, 1, 1), uniform(generator, -1, 1, 1)
    line = f"z = {w} x {'+' if b > 0 else '−'} {abs(b)}"
    trained, served = (_positive(w * at + b) for at in (x, y))
    answer = served - trained
    return task(
        Words(
            en=f"A classifier says p = 1 / (1 + exp(-z)) with {line}. In "
            f"training a feature was x = {x}; the server computes the same one as "
            f"x = {y}. By how much does p change, served minus trained?",
            zh=f"分类器给出 p = 1 / (1 + exp(-z))，{line}。"
            f"训练时某特征 x = {x}，线上算出来却是 x = {y}。"
            "p 变化多少（线上减训练）？",
        ),
        answer,
        Words(
            en=f"z = {w * x + b:.2f} in training, {w * y + b:.2f} served; "
            f"p = {trained:.4f} and {served:.4f}; the difference is {three(answer)}.",
            zh=f"训练时 z = {w * x + b:.2f}，线上 z = {w * y + b:.2f}；"
            f"p = {trained:.4f} 与 {served:.4f}，相差 {three(answer)}。",
        ),
        (-answer, "That is trained minus served.", "这是训练减线上。"),
        (
            w * (y - x),
            "That is the change of the log-odds z, not of p.",
            "这是对数几率 z 的变化，不是 p 的。",
        ),
        (
            served / trained,
            "That is the ratio of the two; subtract.",
            "这是两者之比，题目要的是差。",
        ),
    )


def _positive(z: float) -> float:
    """The probability of the first of two classes with logits z and 0."""
    logits = as_tensor("logits", [[[z, 0.0]]])
    return math.exp(token_logp(logits, as_tensor("ids", [[0]])).item())


def clipped_before_any_update(generator: random.Random) -> Task:
    """Two engines alone carry tokens past PPO's clip."""
    n = generator.choice([5, 6, 8])
    r = [uniform(generator, 0.55, 1.5) for _ in range(n)]
    if any(abs(x - bound) < 0.03 for x in r for bound in (0.8, 1.2)):
        return clipped_before_any_update(generator)
    answer = compare(*engines(r), clip=0.2).clip_fraction
    below, above = sum(x < 0.8 for x in r), sum(x > 1.2 for x in r)
    way = f"({below} + {above}) / {n} = {three(answer)}"
    return task(
        Words(
            en="No update has been made yet, and the rollout's logprobs serve as the old "
            f"ones. The tokens' ratios, trainer over rollout, are {listed(r)}. What share "
            "of them lies outside 1 ± 0.2?",
            zh="还没有做过任何更新，rollout 的 logprob 直接当作 old。"
            f"各 token 的比值（训练端比 rollout）是 {listed(r)}。"
            "落在 1 ± 0.2 之外的占多大比例？",
        ),
        answer,
        Words(
            en=f"{way}. Without a mismatch it would be zero: all ratios 1.",
            zh=f"{way}。没有不一致时应为零：比值全是 1。",
        ),
        (above / n, "Below the band counts too.", "低于下界的也要算。"),
        (below / n, "Above the band counts too.", "高于上界的也要算。"),
        (1 - answer, "That is the share inside.", "这是区间之内的比例。"),
        (below + above, "That is their number.", "这是个数，不是比例。"),
    )


def calm_loss(generator: random.Random) -> Task:
    """A policy loss is the mean of advantages, weighed by ratios near one."""
    A = [1, 1, -1, -1]
    r = [uniform(generator, 0.82, 1.18) for _ in A]
    rollout, train = (x.T for x in engines(r))
    loss = ppo(train, rollout, as_tensor("A", A), every(train)).item()
    if abs(loss) < 0.01:
        return calm_loss(generator)
    parts = [-a * x for a, x in zip(A, r, strict=True)]
    return task(
        Words(
            en="Four responses of one token each have advantages 1, 1, -1, -1 and ratios "
            f"{listed(r)}. What is PPO's loss, the mean over tokens? Its clip is 1 ± 0.2.",
            zh="四条回答各有一个 token，advantage 依次为 1、1、-1、-1，"
            f"比值为 {listed(r)}。PPO 的 loss（对 token 取平均）是多少？"
            "裁剪区间是 1 ± 0.2。",
        ),
        loss,
        Words(
            en=f"Nothing is clipped: the mean of −r A, that is of {listed(parts)}, is "
            f"{three(loss)}. With all ratios 1 it is zero, however bad the rollout is.",
            zh=f"没有 token 被裁剪：−r A 依次为 {listed(parts)}，平均 {three(loss)}。"
            "比值全为 1 时它就是零，rollout 再差也一样。",
        ),
        (-loss, "A loss is minimised: it has a minus sign.", "loss 要最小化，前面有负号。"),
        (sum(parts), "That is the sum; take the mean.", "这是总和，应取平均。"),
        (0.0, "It is that where all ratios are 1.", "比值全为 1 时才是零。"),
        (
            -sum(r) / 4,
            "Two of the advantages are negative.",
            "有两个 advantage 是负的。",
        ),
    )


def reward_gap(generator: random.Random) -> Task:
    """The logged reward is the rollout policy's, not that of the one that is trained."""
    w = [uniform(generator, 0.4, 1.8, 1) for _ in range(4)]
    R = [generator.choice([0, 1]) for _ in w]
    if sum(R) in (0, 4):
        return reward_gap(generator)
    rollout, train = (x.T for x in engines(w))
    answer = monitor(rollout, train, rewards=as_tensor("R", R))["reward_gap"]
    good = [x for x, reward in zip(w, R, strict=True) if reward]
    theirs, mine = sum(R) / 4, sum(good) / sum(w)
    return task(
        Words(
            en="The rollout policy sampled four responses with rewards "
            f"{listed(R)}. The trainer's policy gives them probabilities that are "
            f"{listed(w)} times as large. What is its mean reward, self-normalised, minus "
            "the one that is logged?",
            zh=f"rollout 策略采出四条回答，reward 为 {listed(R)}。"
            f"训练端策略给它们的概率分别是原来的 {listed(w)} 倍。"
            "训练端策略的平均 reward（自归一化）减去日志里的平均 reward 是多少？",
        ),
        answer,
        Words(
            en=f"{sum(good):.1f} / {sum(w):.1f} − {sum(R)} / {len(R)} = {mine:.4f} − "
            f"{theirs:g} = {three(answer)}.",
            zh=f"{sum(good):.1f} / {sum(w):.1f} − {sum(R)} / {len(R)} = {mine:.4f} − "
            f"{theirs:g} = {three(answer)}。",
        ),
        (-answer, "That is logged minus the trainer's.", "这是日志减训练端。"),
        (
            mine,
            "That is the trainer's reward; subtract.",
            "这是训练端的 reward，还要相减。",
        ),
        (
            sum(good) / 4 - theirs,
            "Self-normalised: divide by the sum of the weights, not by their number.",
            "自归一化要除以权重之和，不是个数。",
        ),
    )


DRILLS = (
    drill("skewed_feature", "I", skewed_feature),
    drill("clipped_before_any_update", "I", clipped_before_any_update),
    drill("calm_loss", "I", calm_loss),
    drill("reward_gap", "I", reward_gap),
)
