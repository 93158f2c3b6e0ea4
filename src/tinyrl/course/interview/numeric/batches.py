"""Drills on batches: what a mean counts, where a token stands, what a cut-off costs."""

from __future__ import annotations

import random

from tinyrl.advantages import gae
from tinyrl.collate import Collator, lay_out
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
from tinyrl.logprobs import as_tensor, masked_mean
from tinyrl.objectives import aggregate


def prompt_tokens_counted(generator: random.Random) -> Task:
    """A denominator that counts the prompt, where there is no loss."""
    P, n = generator.randrange(3, 13), generator.randrange(3, 5)
    x = [uniform(generator, 0.2, 2.5) for _ in range(n)]
    all_of_it = row([0] * P + x)
    response = row([0] * P + [1] * n) == 1
    answer = aggregate(all_of_it, response, "token_mean", counted=every(all_of_it)).item()
    right = aggregate(all_of_it, response, "token_mean").item()
    return task(
        Words(
            en=f"A prompt of {P} tokens is followed by {n} response tokens with losses "
            f"{listed(x)}. Prompt tokens are set to loss zero, but the mean over tokens "
            "counts them. What comes out?",
            zh=f"prompt 有 {P} 个 token，后面 {n} 个回答 token 的 loss 为 {listed(x)}。"
            "prompt 的 loss 被置零，但对 token 取平均时把它们也数了进去。结果是多少？",
        ),
        answer,
        Words(
            en=f"{sum(x):.2f} / ({P} + {n}) = {three(answer)}, instead of {right:.4f}: the "
            "longer the prompt, the smaller the step.",
            zh=f"{sum(x):.2f} / ({P} + {n}) = {three(answer)}，本应是 {right:.4f}："
            "prompt 越长，步子越小。",
        ),
        (right, "That is what it should be.", "这是应有的结果。"),
        (sum(x), "That is the sum.", "这是总和。"),
        (sum(x) / P, "The response counts too.", "回答的 token 也要数。"),
    )


def padding_counted(generator: random.Random) -> Task:
    """A mean over a padded array is lower than that over its tokens."""
    lengths = [generator.randrange(20, 100) for _ in range(3)]
    T, k = max(lengths), uniform(generator, 0.001, 0.009, 4)
    mask = as_tensor("mask", [[t < n for t in range(T)] for n in lengths])
    values = mask.double() * k
    answer = masked_mean(values, every(values)).item()
    return task(
        Words(
            en=f"Three responses of {lengths[0]}, {lengths[1]} and {lengths[2]} tokens are "
            f"padded to the longest. K3 is {k} on average over real tokens and zero in "
            "padding. What does a mean over the whole array show?",
            zh=f"三条回答各有 {lengths[0]}、{lengths[1]}、{lengths[2]} 个 token，"
            f"都补 padding 到最长的那条。K3 在真实 token 上平均为 {k}，padding 处为零。"
            "对整个数组取平均会得到多少？",
        ),
        answer,
        Words(
            en=f"Real are {sum(lengths)} of 3 × {T} = {3 * T}: {k} × {sum(lengths)} / "
            f"{3 * T} = {three(answer)}.",
            zh=f"3 × {T} = {3 * T} 个位置中有 {sum(lengths)} 个是真实的：{k} × "
            f"{sum(lengths)} / {3 * T} = {three(answer)}。",
        ),
        (
            k,
            "That is over real tokens; padding dilutes it.",
            "这是真实 token 上的平均，padding 会把它稀释。",
        ),
        (k * 3 * T / sum(lengths), "Padding lowers the mean.", "padding 会拉低平均值。"),
        (k * (1 - sum(lengths) / 3 / T), "That is what is missing.", "这是少掉的部分。"),
    )


def left_padded_position(generator: random.Random) -> Task:
    """Position ids that count columns, padding included."""
    short, n = generator.randrange(4, 30), generator.randrange(2, 9)
    longest = short + generator.randrange(3, 30)
    prompts, responses = [[1] * longest, [1] * short], [[2] * n, [2] * n]
    collator = Collator(layout="left", positions="columns")
    layout = lay_out(prompts, responses, collator, pad_id=0, width=longest + n)
    answer = int(layout.positions[1, layout.columns[1, n - 1]])
    right = short + n - 1
    return task(
        Words(
            en=f"Two prompts of {longest} and {short} tokens are padded on the left to one "
            "length. Position ids count columns from zero, padding included. Which id does "
            f"response token number {n} behind the shorter prompt get, counting "
            "from 1?",
            zh=f"两个 prompt 分别有 {longest} 和 {short} 个 token，左侧补 padding "
            "到同样长。"
            "position id 从零开始按列数，padding 也算。较短的 prompt 之后，"
            f"回答的第 {n} 个 token（从 1 数起）的 id 是多少？",
        ),
        answer,
        Words(
            en=f"Column {longest} + {n} − 1 = {three(answer)}. Counting its own tokens it "
            f"is {short} + {n} − 1 = {right}: all are off by {longest - short}.",
            zh=f"列号 {longest} + {n} − 1 = {three(answer)}。只数自己的 token 是 "
            f"{short} + {n} − 1 = {right}：全部偏了 {longest - short}。",
        ),
        (
            right,
            "That is the right id; columns were counted.",
            "这是正确的 id，但这里数的是列。",
        ),
        (answer + 1, "Ids start from zero.", "id 从零开始。"),
        (n - 1, "The prompt has ids too.", "prompt 也占 id。"),
        (longest - short, "That is the number of pads.", "这是 padding 的个数。"),
        within=0,
    )


def cut_response_advantage(generator: random.Random) -> Task:
    """The last token of a response that was cut off, with the cut taken for an end."""
    V, beyond = uniform(generator, 0.3, 0.9), uniform(generator, 0.3, 0.9)
    R, gamma = -uniform(generator, 0.1, 1, 1), generator.choice([0.9, 0.95, 0.98, 0.99])
    values = row([V])
    A, _ = gae(as_tensor("R", [R]), values, every(values), gamma=gamma)
    answer, boot = A.item(), R + gamma * beyond - V
    return task(
        Words(
            en=f"A response is cut at the length limit and gets reward {R}. The critic "
            f"says {V} for the state of its last token and {beyond} for the state behind "
            f"it; γ = {gamma}. What advantage does GAE give the last token if the cut "
            "counts as the end of the episode?",
            zh=f"一条回答在长度上限处被截断，reward 为 {R}。critic 对最后一个 token 的状态"
            f"给出 {V}，对其后的状态给出 {beyond}，γ = {gamma}。"
            "如果把截断当作一局结束，GAE 给最后一个 token 的 advantage 是多少？",
        ),
        answer,
        Words(
            en=f"Behind an end the value is zero: {R} + {gamma} × 0 − {V} = "
            f"{three(answer)}. Going on, it would be {R} + {gamma} × {beyond} − {V} = "
            f"{boot:.4f}.",
            zh=f"结束之后价值为零：{R} + {gamma} × 0 − {V} = {three(answer)}。"
            f"若当作未完，应是 {R} + {gamma} × {beyond} − {V} = {boot:.4f}。",
        ),
        (boot, "That is if the response went on.", "那是把回答当作未完时的结果。"),
        (-answer, "It is reward minus value.", "应当是 reward 减 value。"),
        (R, "That is the reward; subtract the value.", "这是 reward，还要减 value。"),
        (R + beyond - V, "That is going on, and without γ.", "那是当作未完，而且漏了 γ。"),
    )


def thinned_denominator(generator: random.Random) -> Task:
    """Two conventions for a mean whose mask a correction has thinned out."""
    n, kept = generator.randrange(6, 13), generator.randrange(2, 5)
    x = [signed(generator, 0.3, 2.5) for _ in range(kept)]
    losses = row(x + [9.0] * (n - kept))
    mask = row([1] * kept + [0] * (n - kept)) == 1
    answer = aggregate(losses, mask, "token_mean", counted=every(losses)).item()
    thin = aggregate(losses, mask, "token_mean").item()
    if abs(answer) < 0.02:
        return thinned_denominator(generator)
    return task(
        Words(
            en=f"Of a batch of {n} tokens a correction keeps {kept}, with losses "
            f"{listed(x)}. The mask was edited, but the mean still divides by the tokens "
            "from before. What is the loss?",
            zh=f"一个 batch 有 {n} 个 token，修正之后保留 {kept} 个，loss 为 {listed(x)}。"
            "mask 改了，取平均时仍除以修正之前的 token 数。loss 是多少？",
        ),
        answer,
        Words(
            en=f"{sum(x):.2f} / {n} = {three(answer)} (TRL's way); over what is kept it "
            f"would be {thin:.4f} (verl's).",
            zh=f"{sum(x):.2f} / {n} = {three(answer)}（TRL 的做法）；"
            f"除以保留的个数则是 {thin:.4f}（verl 的做法）。",
        ),
        (thin, "That divides by what is kept.", "这除以的是保留下来的个数。"),
        (sum(x), "That is the sum.", "这是总和。"),
        (-answer, "The sign is that of the losses.", "符号应与 loss 一致。"),
    )


DRILLS = (
    drill("prompt_tokens_counted", "V", prompt_tokens_counted),
    drill("padding_counted", "V", padding_counted),
    drill("left_padded_position", "V", left_padded_position),
    drill("cut_response_advantage", "V", cut_response_advantage),
    drill("thinned_denominator", "V", thinned_denominator),
)
