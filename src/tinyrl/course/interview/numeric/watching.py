"""Drills on watching a run: whom the reward belongs to, which steps ring."""

from __future__ import annotations

import random

from tinyrl.alarms import ALARMS, judge
from tinyrl.course.interview.numeric.drawing import (
    drill,
    listed,
    power,
    row,
    signed,
    task,
    three,
    uniform,
)
from tinyrl.course.interview.numeric.tasks import Task
from tinyrl.course.words import Words
from tinyrl.logprobs import as_tensor
from tinyrl.monitoring import monitor, series


def reward_correlation(generator: random.Random) -> Task:
    """Pearson's correlation of a response's delta and its reward."""
    Delta = [signed(generator, 0.1, 0.9, 1) for _ in range(4)]
    R = generator.sample([0, 0, 1, 1], 4)
    train = row(Delta).T - 20
    answer = monitor(train * 0 - 20, train, rewards=as_tensor("R", R))["reward_corr"]
    if not 0.1 < abs(answer) < 0.93:
        return reward_correlation(generator)
    mean = sum(Delta) / 4
    cov = sum((x - mean) * (r - 0.5) for x, r in zip(Delta, R, strict=True))
    var = sum((x - mean) ** 2 for x in Delta)
    way = f"{cov:.4f} / √({var:.4f} × 1) = {three(answer)}"
    return task(
        Words(
            en="Δ is the sum of trainer minus rollout logprobs over a response. Four "
            f"responses have Δ = {listed(Delta)} and rewards {listed(R)}. What is the "
            "correlation of the two?",
            zh="Δ 是一条回答上训练端减 rollout 的 logprob 之和。四条回答的 "
            f"Δ = {listed(Delta)}，reward = {listed(R)}。两者的相关系数是多少？",
        ),
        answer,
        Words(
            en=f"Sums of products about the means: {way}. If it is not zero, the trainer's "
            "reward is not the logged one.",
            zh=f"减去均值后求乘积之和：{way}。它不为零，训练端策略的 reward "
            "就和日志里的不同。",
        ),
        (
            -answer,
            "Its sign is that of good responses, trainer minus rollout.",
            "符号反了：好回答在训练端更可能，则为正。",
        ),
        (
            cov / 4,
            "That is the covariance; divide by the deviations.",
            "这是协方差，还要除以标准差。",
        ),
        (answer**2, "That is its square.", "这是它的平方。"),
        (
            cov / var,
            "That is a slope; divide by both deviations.",
            "这是斜率；要除以两个标准差。",
        ),
    )


def ringing_steps(generator: random.Random) -> Task:
    """A published bound, step after step."""
    alarm = next(a for a in ALARMS if a.name == "NeMo-RL KL")
    high = 1e-3 if alarm.high is None else alarm.high
    unit = high / 10  # what the question writes its steps in
    k3 = [uniform(generator, 3, 16, 1) for _ in range(8)]
    if any(abs(x - 10) < 0.3 for x in k3):
        return ringing_steps(generator)
    found = series({"k3": x * unit} for x in k3)["k3"].tolist()
    rings = [judge({"k3": x}, alarms=[alarm])[0].rings for x in found]
    answer = sum(rings)
    runs = "".join("x" if r else " " for r in rings).split()
    return task(
        Words(
            en=f"K3 of eight steps, in units of {power(unit)}, is {listed(k3)}. An "
            "alarm rings "
            f"above {power(high)}. At how many steps does it ring?",
            zh=f"八步的 K3，以 {power(unit)} 为单位，是 {listed(k3)}。超过 "
            f"{power(high)} 就报警。"
            "有几步报警？",
        ),
        answer,
        Words(
            en=f"{power(high)} is 10 units: steps above: {three(answer)}.",
            zh=f"{power(high)} 是 10 个单位：超过的有 {three(answer)} 步。",
        ),
        (8 - answer, "That is how many are silent.", "这是没有报警的步数。"),
        (
            max(map(len, runs), default=0),
            "That is the longest run of them.",
            "这是连续报警最长的步数。",
        ),
        (
            sum(x > 1 for x in k3),
            "Mind the unit: the bound is 10 of them.",
            "注意单位：上界等于 10 个单位。",
        ),
        (int(max(k3) > 10), "That says whether it rings at all.", "这只说明报没报过警。"),
        within=0,
    )


DRILLS = (
    drill("reward_correlation", "VII", reward_correlation),
    drill("ringing_steps", "VII", ringing_steps),
)
