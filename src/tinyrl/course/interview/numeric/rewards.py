"""Drills on rewards and advantages of a group of responses."""

from __future__ import annotations

import random

from tinyrl.advantages import group_advantages, informative, leave_one_out, overlong_penalty
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
from tinyrl.logprobs import as_tensor
from tinyrl.objectives import Aggregation, aggregate


def grpo_advantage(generator: random.Random) -> Task:
    """(R - mean) / std, with the deviation said."""
    R = [uniform(generator, 0, 1, 1) for _ in range(4)]
    if max(R) - min(R) < 0.3:
        return grpo_advantage(generator)
    rewards = as_tensor("R", R)
    sample, population, centred = (
        group_advantages(rewards, 4, std=std)[0].item()
        for std in ("sample", "population", "none")
    )
    mean, squares = sum(R) / 4, sum((x - sum(R) / 4) ** 2 for x in R)
    way = f"({R[0]} − {mean:g}) / √({squares:.4g} / 3) = {three(sample)}"
    return task(
        Words(
            en=f"A group of four responses has rewards {listed(R)}. What is the "
            "first one's "
            "GRPO advantage, with the sample deviation (divided by n − 1)?",
            zh=f"一组四条回答的 reward 是 {listed(R)}。第一条的 GRPO advantage 是多少？"
            "标准差用样本标准差（除以 n − 1）。",
        ),
        sample,
        Words(en=f"{way}.", zh=f"{way}。"),
        (population, "That divides by n, not by n − 1.", "这除以的是 n，不是 n − 1。"),
        (
            centred,
            "That is Dr. GRPO: no division by the deviation.",
            "这是 Dr. GRPO：不除标准差。",
        ),
        (leave_one_out(rewards, 4)[0].item(), "That is leave-one-out.", "这是留一法。"),
        (-sample, "The sign is that of reward minus mean.", "符号应是 reward 减均值。"),
    )


def leave_one_out_advantage(generator: random.Random) -> Task:
    """The reward less the mean of the others."""
    R = [uniform(generator, 0, 1, 1) for _ in range(4)]
    rewards = as_tensor("R", R)
    answer = leave_one_out(rewards, 4)[0].item()
    if abs(answer) < 0.05:
        return leave_one_out_advantage(generator)
    others = sum(R[1:]) / 3
    return task(
        Words(
            en=f"A group of four responses has rewards {listed(R)}. What is the "
            "first one's "
            "advantage with the leave-one-out baseline (RLOO)?",
            zh=f"一组四条回答的 reward 是 {listed(R)}。"
            "用留一法基线（RLOO），第一条的 advantage 是多少？",
        ),
        answer,
        Words(
            en=f"The mean of the others is {others:.4f}: {R[0]} − {others:.4f} = "
            f"{three(answer)}.",
            zh=f"其余三条的均值是 {others:.4f}：{R[0]} − {others:.4f} = {three(answer)}。",
        ),
        (
            group_advantages(rewards, 4, std="none")[0].item(),
            "The baseline holds the reward itself: take the others.",
            "基线里含有它自己的 reward；只取其余的。",
        ),
        (
            group_advantages(rewards, 4)[0].item(),
            "That is GRPO's, divided by the deviation.",
            "这是 GRPO 的，除了标准差。",
        ),
        (-answer, "It is reward minus baseline.", "应是 reward 减基线。"),
        (others, "That is the baseline.", "这是基线。"),
    )


def dropped_groups(generator: random.Random) -> Task:
    """DAPO's dynamic sampling: groups of equal rewards teach nothing."""
    n = generator.randrange(6, 9)
    groups = [
        generator.choice([[0] * 4, [1] * 4, [generator.randrange(2) for _ in range(4)]])
        for _ in range(n)
    ]
    kept = informative(as_tensor("R", [r for g in groups for r in g]), 4)
    answer = int((~kept).sum())
    shown = "; ".join("".join(map(str, g)) for g in groups)
    solved = sum(g == [1] * 4 for g in groups)
    return task(
        Words(
            en="Rewards of groups of four responses, right or wrong, are "
            f"{shown}. How many groups does DAPO's dynamic sampling drop?",
            zh=f"每组四条回答，只有对错，各组 reward 是 {shown}。"
            "DAPO 的动态采样会丢掉几组？",
        ),
        answer,
        Words(
            en=f"Those of equal rewards, all right ({solved}) or all wrong "
            f"({answer - solved}): {three(answer)}.",
            zh=f"reward 全相同的：全对 {solved} 组，全错 {answer - solved} 组，"
            f"共 {three(answer)} 组。",
        ),
        (n - answer, "That is how many are kept.", "这是保留的组数。"),
        (
            answer - solved,
            "Groups that are all right teach nothing either.",
            "全对的组同样学不到东西。",
        ),
        (
            solved,
            "Groups that are all wrong teach nothing either.",
            "全错的组同样学不到东西。",
        ),
        (4 * answer, "That counts responses.", "这数的是回答。"),
        within=0,
    )


def overlong(generator: random.Random) -> Task:
    """DAPO's soft punishment of a length."""
    longest = generator.choice([4096, 8192, 16384, 20480])
    cache = longest // generator.choice([4, 5, 8])
    y = longest - generator.randrange(cache // 20, cache - cache // 20)
    answer = overlong_penalty(as_tensor("lengths", [y]), longest, cache).item()
    start = longest - cache
    return task(
        Words(
            en=f"Responses may have {longest} tokens, and DAPO's soft overlong punishment "
            f"covers the last {cache} of them. What does it add to the reward of a "
            "response "
            f"of {y} tokens?",
            zh=f"回答最长 {longest} 个 token，DAPO 的软超长惩罚覆盖最后 {cache} 个。"
            f"一条 {y} 个 token 的回答，reward 要加上多少？",
        ),
        answer,
        Words(
            en=f"It falls from zero at {longest} − {cache} = {start} to -1 at the "
            f"limit: ({start} − {y}) / {cache} = {three(answer)}.",
            zh=f"从 {longest} − {cache} = {start} 处的零线性降到上限处的 -1："
            f"({start} − {y}) / {cache} = {three(answer)}。",
        ),
        (-answer, "It is a punishment: negative.", "这是惩罚，应为负。"),
        (-1.0, "It is -1 only at the limit and beyond.", "只有到了上限才是 -1。"),
        (0.0, "It begins before the limit.", "到上限之前就开始了。"),
        (
            (y - longest) / cache,
            "It is zero where the last stretch begins.",
            "最后一段的起点处才是零。",
        ),
    )


def dr_grpo_loss(generator: random.Random) -> Task:
    """A sum that is divided by a constant, whatever the length of the response."""
    n, longest = generator.randrange(30, 300), generator.choice([256, 400, 512, 1000, 1024])
    loss = signed(generator, 0.2, 2)
    if n >= longest:
        return dr_grpo_loss(generator)
    losses = as_tensor("x", [[loss] * n])
    mask = losses == losses

    def mean(how: Aggregation, length: int | None = None) -> float:
        return aggregate(losses, mask, how, length=length).item()

    answer = mean("constant", longest)
    return task(
        Words(
            en=f"A response of {n} tokens has loss {loss} at each of them. "
            "Generation allows "
            f"{longest} tokens. What does the response add to Dr. GRPO's loss, before the "
            "mean over responses?",
            zh=f"一条 {n} 个 token 的回答，每个 token 的 loss 是 {loss}，"
            f"生成长度上限 {longest}。按 Dr. GRPO，对回答取平均之前，它贡献多少 loss？",
        ),
        answer,
        Words(
            en=f"The sum over a constant length: {n} × ({loss}) / {longest} = "
            f"{three(answer)}.",
            zh=f"总和除以固定长度：{n} × ({loss}) / {longest} = {three(answer)}。",
        ),
        (
            mean("sequence_mean"),
            "That is GRPO: divided by its own length.",
            "这是 GRPO：除以自己的长度。",
        ),
        (
            mean("sequence_sum"),
            "That is the sum; divide by the limit.",
            "这是总和，还要除以上限。",
        ),
        (-answer, "The sign is that of the losses.", "符号应与 loss 一致。"),
    )


DRILLS = (
    drill("grpo_advantage", "VIII", grpo_advantage),
    drill("leave_one_out_advantage", "VIII", leave_one_out_advantage),
    drill("dropped_groups", "VIII", dropped_groups),
    drill("overlong", "VIII", overlong),
    drill("dr_grpo_loss", "VIII", dr_grpo_loss),
)
