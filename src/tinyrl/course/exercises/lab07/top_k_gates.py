"""What a router does: choose k experts for a token and weigh them."""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from tinyrl.course.exercise import Case, Exercise, Mistakes
from tinyrl.course.exercises.lab07 import routed
from tinyrl.course.words import Words


def reference(logits: Tensor, k: int) -> Tensor:
    top, experts = logits.topk(k)
    return torch.zeros_like(logits).scatter(-1, experts, torch.softmax(top, -1))


def _chosen(logits: Tensor, k: int) -> Tensor:
    return logits >= logits.topk(k).values[..., -1:]


def _masked(logits: Tensor, k: int) -> Tensor:
    return logits.masked_fill(~_chosen(logits, k), -torch.inf).softmax(-1)


def _renormalised(logits: Tensor, k: int) -> Tensor:
    kept = logits.softmax(-1) * _chosen(logits, k)
    return kept / kept.sum(-1, keepdim=True)


def _unprotected(logits: Tensor, k: int) -> Tensor:
    kept = logits.exp() * _chosen(logits, k)
    return kept / kept.sum(-1, keepdim=True)


def _one_maximum(logits: Tensor, k: int) -> Tensor:
    kept = (logits - logits.max()).exp() * _chosen(logits, k)
    return kept / kept.sum(-1, keepdim=True)


def _sigmoid(logits: Tensor, k: int) -> Tensor:
    kept = logits.sigmoid() * _chosen(logits, k)
    return kept / kept.sum(-1, keepdim=True)


def _raw(logits: Tensor, k: int) -> Tensor:
    kept = logits * _chosen(logits, k)
    return kept / kept.sum(-1, keepdim=True)


MISTAKES: Mistakes = {
    "no_choice": (
        lambda logits, k: logits.softmax(-1),
        Words(
            en="Every expert gets a gate. Only the k with the largest logits are asked; "
            "the others have gate 0 and are never computed.",
            zh="你给每个专家都分了权重。只有 logit 最大的 k 个会被选中；其余权重为 0，根本"
            "不参与计算。",
        ),
    ),
    "not_renormalised": (
        lambda logits, k: logits.softmax(-1) * _chosen(logits, k),
        Words(
            en="The gates are probabilities among all experts, so those of the chosen sum "
            "to less than 1. Some models do it that way (`norm_topk_prob` says so); here "
            "take the softmax over the chosen alone.",
            zh="你的权重是在全部专家上的概率，被选中的加起来小于 1。也有模型按这种写法做（"
            "由 `norm_topk_prob` 指定），但这里的 softmax 只在被选中的专家上取。",
        ),
    ),
    "zeros_left_in": (
        lambda logits, k: torch.softmax(logits * _chosen(logits, k), -1),
        Words(
            en="You set the other logits to 0 before the softmax, and exp(0) is 1: they "
            "still get a share. Minus infinity is the logit of an expert that is out.",
            zh="你在 softmax 之前把其他 logit 置成 0，而 exp(0) = 1，它们仍分到权重。要排"
            "除一个专家，它的 logit 应当是负无穷。",
        ),
    ),
    "one_too_many": (
        lambda logits, k: reference(logits, min(k + 1, logits.shape[-1])),
        Words(en="You choose k + 1 experts.", zh="你选了 k + 1 个专家。"),
    ),
    "best_only": (
        lambda logits, k: reference(logits, 1),
        Words(
            en="Only the best expert gets a gate. Here k of them share the token.",
            zh="只有最好的那个专家有权重。这里由 k 个专家共同处理一个 token。",
        ),
    ),
    "smallest": (
        lambda logits, k: reference(-logits, k),
        Words(
            en="These are the k smallest logits. The router asks those with the largest.",
            zh="你选的是最小的 k 个 logit。路由器应当选最大的。",
        ),
    ),
    "equal_shares": (
        lambda logits, k: _chosen(logits, k) / k,
        Words(
            en="Each chosen expert gets 1 / k. Gates come from the logits; without that no "
            "gradient would reach the router.",
            zh="每个被选中的专家都得到 1 / k。权重应当来自 logits；否则梯度传不到路由器。",
        ),
    ),
    "sigmoid": (
        _sigmoid,
        Words(
            en="You normalise sigmoids, as DeepSeek-V3 does. Asked for is a softmax over "
            "the chosen logits.",
            zh="你对 sigmoid 做了归一化（DeepSeek-V3 的做法）。这里要求在被选中的 logits "
            "上取 softmax。",
        ),
    ),
    "raw_logits": (
        _raw,
        Words(
            en="You divide logits by their sum. They can be negative: exponentiate first.",
            zh="你用 logit 除以它们的和。logit 可能为负，应当先取指数。",
        ),
    ),
    "experts_choose": (
        lambda logits, k: reference(logits.T, min(k, len(logits))).T,
        Words(
            en="Here each expert chooses k tokens (that scheme exists: expert choice). "
            "Asked for: each token, a row, chooses k experts.",
            zh="你让每个专家去选 k 个 token（确有这种方案：expert choice）。这里要求每个 "
            "token（一行）选 k 个专家。",
        ),
    ),
    "one_beyond": (
        lambda z, k: z.masked_fill(~routed.above_next(z, k), -torch.inf).softmax(-1),
        routed.BEYOND,
    ),
    "compact": (
        lambda logits, k: logits.topk(k).values.softmax(-1),
        Words(
            en="The gates are right, but nobody knows whose they are: put each into the "
            "column of its expert, `[N, E]`, with 0 elsewhere.",
            zh="权重算对了，但看不出属于哪个专家：请放到对应专家的列里，形状 `[N, E]`，其余"
            "为 0。",
        ),
    ),
    "unprotected": (
        _unprotected,
        Words(
            en="exp of a logit above 88 is inf in float32 (above 709 in float64), and "
            "inf / inf is NaN. `torch.softmax` subtracts the largest logit first.",
            zh="logit 超过 88 时 exp 在 float32 里是 inf（float64 里是超过 709），"
            "inf / inf 得 NaN。`torch.softmax` 会先减去最大的 logit。",
        ),
    ),
    "one_maximum": (
        _one_maximum,
        Words(
            en="You subtract one maximum of all tokens. A token whose logits lie far below "
            "it underflows to 0 / 0: each token has its own.",
            zh="你对所有 token 只减了一个最大值。logit 远低于它的 token 会下溢成 0 / 0：每"
            "个 token 要用自己的。",
        ),
    ),
    "detach": (
        lambda logits, k: reference(logits, k).detach(),
        Words(
            en="The gates are right, but no gradient reaches the logits. The choice has "
            "none; the gates are the only way by which a router learns.",
            zh="权重数值正确，但梯度传不到 logits。选择本身没有梯度，权重是路由器学习的唯"
            "一途径。",
        ),
    ),
    "finite_fill": (
        lambda z, k: z.masked_fill(~_chosen(z, k), -6e4).softmax(-1),
        routed.FINITE,
    ),
    "border_out": (
        lambda z, k: z.masked_fill(z <= z.topk(k).values[:, -1:], -1e9).softmax(-1),
        Words(
            en="The k-th largest logit itself is left out, so k - 1 experts are chosen. "
            "The border is inside: `>=`.",
            zh="第 k 大的 logit 自己被排除了，只选中 k - 1 个专家。边界在集合内：用 `>=`。",
        ),
    ),
}

BY_HAND = Words(en="two tokens, four experts, k = 2", zh="两个 token、四个专家、k = 2")
ONE = Words(en="k = 1: a gate of 1", zh="k = 1：权重就是 1")
NEAR = Words(en="logits that nearly tie", zh="几乎相等的 logits")
GRADIENT = Words(en="the same with gradients", zh="要求梯度")


def cases(generator: Generator) -> list[Case]:
    near, large = (routed.router_logits(generator, 6, 8) for _ in range(2))
    second, third = near.argsort(-1, descending=True)[:, 1:3].T
    rows = torch.arange(6)
    near[rows, third] = near[rows, second] - 1e-4
    large[3:] -= 400.0 * ~_chosen(large, 2)[3:]  # far apart within a token as well
    large += torch.tensor([1000.0, -1000.0, -100_000.0, 1000.0, -1000.0, 0.0])[:, None]
    small = torch.tensor([[2.0, 1.0, 0.5, -1.0], [-1.0, 0.25, -0.5, 0.0]])
    return [
        Case("example", BY_HAND, (small, 2)),
        Case("property", ONE, (routed.router_logits(generator, 6, 5), 1)),
        Case("property", routed.ALL, (routed.router_logits(generator, 6, 4), 4)),
        Case("inputs", NEAR, (near, 2)),
        Case("inputs", routed.TOKENS, (routed.router_logits(generator, 9, 16), 4)),
        Case("gradient", GRADIENT, (routed.router_logits(generator, 6, 8), 2)),
        Case("numbers", routed.LARGE, (large, 2)),
    ]


EXERCISE = Exercise(
    name="top_k_gates",
    title=Words(en="Choose k experts and weigh them", zh="选出 k 个专家并加权"),
    reference=reference,
    returns=("gates",),
    cases=cases,
    mistakes=MISTAKES,
    alternatives={"masked_softmax": _masked, "renormalised": _renormalised},
    hints=(
        Words(
            en="Two steps: which experts, then how much of each. The second looks only at "
            "those that the first has left.",
            zh="分两步：先选哪些专家，再定各占多少。第二步只看第一步留下的专家。",
        ),
        Words(
            en="`topk` gives values and indices; the softmax of the values are the gates. "
            "Put them into the columns that the indices name.",
            zh="`topk` 给出数值和下标；对数值取 softmax 就是权重，再放到下标所指的列。",
        ),
        Words(
            en="`torch.zeros_like(logits).scatter(-1, experts, gates)`.",
            zh="`torch.zeros_like(logits).scatter(-1, experts, gates)`，其中 experts 和 "
            "gates 来自 topk 与 softmax。",
        ),
    ),
    points=(1, 1),
    minutes=6,
    gradient=("logits",),
)
