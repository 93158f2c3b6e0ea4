"""Drills on routers: gates, margins, loads, flips, and how far two routers are apart."""

from __future__ import annotations

import math
import random

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
from tinyrl.moe import MoE, Routes, balance_loss, router_kl
from tinyrl.routing import flips
from tinyrl.stack import Stack

E = 4


def routed(logits: list[float], k: int, norm_topk: bool) -> Routes:
    """What a real router makes of these logits: its matrix is the identity."""
    moe = MoE(E, E, k, 1, norm_topk).requires_grad_(False)
    for matrix in (moe.gate_up_proj, moe.down_proj):
        matrix.weight.zero_()
    moe.gate.weight.copy_(as_tensor("eye", [[i == j for j in range(E)] for i in range(E)]))
    x = as_tensor("logits", [[logits]]).float()
    _, routes = moe.forward(x, Stack().ops())
    return routes


def chosen(experts: list[list[int]], logits: list[list[float]]) -> Routes:
    """Routes of tokens in one layer, with these choices."""
    at = as_tensor("experts", [[[token] for token in experts]])
    raw = as_tensor("logits", [[[token] for token in logits]])
    return Routes(at, at.double(), raw)


def router_logits(generator: random.Random) -> list[float]:
    while True:
        z = [signed(generator, 0.1, 2.5, 1) for _ in range(E)]
        if len(set(z)) == E:
            return z


def top2_gate(generator: random.Random) -> Task:
    """The larger of two gates that are normalised again."""
    z = router_logits(generator)
    a, b, *_ = sorted(z, reverse=True)
    routes = routed(z, 2, norm_topk=True)
    answer = routes.gates.max().item()
    way = f"1 / (1 + exp({b} − ({a}))) = {three(answer)}"
    return task(
        Words(
            en=f"A router over four experts has logits {listed(z)}. The two likeliest are "
            "chosen and their gates renormalised to sum to 1. What is the larger gate?",
            zh=f"router 对四个专家的 logit 是 {listed(z)}。选概率最高的两个，"
            "门（gate）权重重新归一化，使其和为 1。较大的那个权重是多少？",
        ),
        answer,
        Words(
            en=f"A softmax over {a} and {b} alone: {way}.",
            zh=f"只对 {a} 和 {b} 做 softmax：{way}。",
        ),
        (1 - answer, "That is the smaller gate.", "这是较小的权重。"),
        (
            routed(z, 2, norm_topk=False).gates.max().item(),
            "That is the softmax over all four, not renormalised.",
            "这是对四个专家的 softmax，没有重新归一化。",
        ),
        (a - b, "That is the gap of the logits.", "这是两个 logit 之差。"),
    )


def router_margin(generator: random.Random) -> Task:
    """The error in router logits that changes the choice."""
    z = router_logits(generator)
    first, second, third, _ = sorted(z, reverse=True)
    margin = routed(z, 2, norm_topk=True).margins.double().item()
    answer = margin / 2
    return task(
        Words(
            en=f"A router over four experts has logits {listed(z)} and chooses two. Below "
            "which bound must the error of every logit stay for the choice to be safe?",
            zh=f"router 对四个专家的 logit 是 {listed(z)}，选两个。"
            "每个 logit 的误差要小于多少，选择才一定不变？",
        ),
        answer,
        Words(
            en=f"The margin is {second} − ({third}) = {margin:.1f}. One may fall and the "
            f"other rise: half of it, {three(answer)}.",
            zh=f"间隔是 {second} − ({third}) = {margin:.1f}。一个可能降、另一个可能升："
            f"取一半，{three(answer)}。",
        ),
        (margin, "Both logits may move, towards each other.", "两个 logit 可能相向移动。"),
        (
            (first - second) / 2,
            "The two that are chosen may swap: it is the same set.",
            "选中的两个互换也无妨，集合不变。",
        ),
        (
            (first - third) / 2,
            "The weaker of the chosen is displaced first.",
            "先被挤掉的是选中者里较弱的那个。",
        ),
    )


def load_balance(generator: random.Random) -> Task:
    """Switch's auxiliary loss for two experts."""
    p = [uniform(generator, 0.1, 0.9) for _ in range(4)]
    if any(abs(x - 0.5) < 0.04 for x in p) or len({x > 0.5 for x in p}) < 2:
        return load_balance(generator)
    logits = [[math.log(x), math.log(1 - x)] for x in p]
    answer = balance_loss(chosen([[int(x < 0.5)] for x in p], logits)).item()
    f, P = sum(x > 0.5 for x in p) / 4, sum(p) / 4
    way = f"2 × ({f:g} × {P:.4f} + {1 - f:g} × {1 - P:.4f}) = {three(answer)}"
    return task(
        Words(
            en="A router sends each token to one of two experts. For four tokens "
            "the first "
            f"expert's probability is {listed(p)}. What is the balance loss E × Σ "
            "f P, with "
            "E experts, f the share of tokens of an expert and P its mean probability?",
            zh="router 把每个 token 送给两个专家之一。四个 token 上，第一个专家的概率是 "
            f"{listed(p)}。负载均衡损失 E × Σ f P 是多少？E 是专家数，"
            "f 是分到某专家的 token 比例，P 是它的平均概率。",
        ),
        answer,
        Words(
            en=f"The first has f = {f:g}, P = {P:.4f}: {way}. Even loads give 1.",
            zh=f"第一个专家 f = {f:g}，P = {P:.4f}：{way}。负载均匀时为 1。",
        ),
        (answer / 2, "Times the number of experts.", "还要乘专家数。"),
        (2 * f * P, "That is the first expert's part alone.", "这只是第一个专家那一项。"),
        (
            2 * (f * f + (1 - f) ** 2),
            "P is a probability, f a share of choices.",
            "P 是概率，f 才是选择的比例。",
        ),
        (1.0, "That is what even loads give.", "那是负载均匀时的值。"),
    )


def flipped_tokens(generator: random.Random) -> Task:
    """Another set is a flip, another order is not."""
    ours, theirs = [], []
    for _ in range(6):
        pair = generator.sample(range(1, 9), 2)
        kind = generator.choice(["same", "order", "one", "both"])
        other = [e for e in range(1, 9) if e not in pair]
        after = {"same": pair, "order": pair[::-1], "both": generator.sample(other, 2)}
        ours.append(pair)
        theirs.append(after.get(kind, [pair[0], generator.choice(other)]))
    a, b = as_tensor("a", ours), as_tensor("b", theirs)
    answer = int(flips(a, b).sum())
    pairs = "; ".join(
        f"{x[0]} {x[1]} | {y[0]} {y[1]}" for x, y in zip(ours, theirs, strict=True)
    )
    differ = sum(x != y for x, y in zip(ours, theirs, strict=True))
    return task(
        Words(
            en="A layer chooses two experts a token, in the order of their gates. For six "
            f"tokens, rollout | trainer: {pairs}. How many tokens flip, that is, pass "
            "through other experts?",
            zh="某层给每个 token 选两个专家，按门（gate）权重排列。六个 token 的选择"
            f"（rollout | 训练端）：{pairs}。"
            "有几个 token 翻转了，即经过的专家不同？",
        ),
        answer,
        Words(
            en=f"Choices that differ: {differ}, by order alone: {differ - answer}; flips: "
            f"{three(answer)}.",
            zh=f"{differ} 个 token 的写法不同，其中 {differ - answer} 个只是顺序不同："
            f"翻转 {three(answer)} 个。",
        ),
        (
            differ,
            "Another order of the same two is no flip.",
            "同样两个专家换个顺序不算翻转。",
        ),
        (6 - answer, "That is how many stay.", "这是没有翻转的个数。"),
        (
            int((a != b).sum()),
            "That counts experts, not tokens.",
            "这数的是专家，不是 token。",
        ),
        (
            sum(not set(x) & set(y) for x, y in zip(ours, theirs, strict=True)),
            "One other expert is enough.",
            "有一个专家不同就算翻转。",
        ),
        within=0,
    )


def router_divergence(generator: random.Random) -> Task:
    """KL between two routers' distributions over two experts."""
    q, p = uniform(generator, 0.1, 0.9, 1), uniform(generator, 0.1, 0.9, 1)
    rollout, train = (chosen([[0]], [[math.log(x), math.log(1 - x)]]) for x in (q, p))
    answer = router_kl(train, rollout).item()
    a, b = round(1 - q, 1), round(1 - p, 1)
    way = f"{q} × ln({q} / {p}) + {a} × ln({a} / {b}) = {three(answer)}"
    return task(
        Words(
            en=f"Of two experts the rollout's router gives the first probability {q}, the "
            f"trainer's {p}. What is KL(rollout || trainer), in nats?",
            zh=f"两个专家中的第一个，rollout 的 router 给的概率是 {q}，训练端是 {p}。"
            "KL(rollout || 训练端) 是多少（单位 nat）？",
        ),
        answer,
        Words(en=f"{way}.", zh=f"{way}。"),
        (
            router_kl(rollout, train).item(),
            "That is KL(trainer || rollout).",
            "这是 KL(训练端 || rollout)。",
        ),
        (q * math.log(q / p), "The other expert counts too.", "另一个专家也要算。"),
        (
            math.log(q / p),
            "Logs are weighted with the rollout's probabilities.",
            "对数要用 rollout 的概率加权。",
        ),
    )


DRILLS = (
    drill("top2_gate", "VI", top2_gate),
    drill("router_margin", "VI", router_margin),
    drill("load_balance", "VI", load_balance),
    drill("flipped_tokens", "VI", flipped_tokens),
    drill("router_divergence", "VI", router_divergence),
)
