"""The load-balancing loss of Switch and GShard."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Generator, Tensor

from tinyrl.course.exercise import Case, Exercise, Function, Mistakes
from tinyrl.course.exercises.lab01.batch import NAN, RANDOM, mask_of
from tinyrl.course.exercises.lab07 import routed
from tinyrl.course.words import Words


def _chosen(logits: Tensor, k: int) -> Tensor:
    """1 where an expert is among a token's k, 0 elsewhere, as `logits`."""
    return torch.zeros_like(logits).scatter(-1, logits.topk(k).indices, 1.0)


def reference(logits: Tensor, mask: Tensor, k: int) -> Tensor:
    z = logits[mask]  # [n, E]
    f, P = _chosen(z, k).mean(0), z.softmax(-1).mean(0)
    return z.shape[-1] * (f * P).sum()


def _with_counts(logits: Tensor, mask: Tensor, k: int) -> Tensor:
    z = torch.where(mask[..., None], logits, 0.0)
    E, n = z.shape[-1], mask.sum()
    counts = torch.bincount(z.topk(k).indices[mask].flatten(), minlength=E)
    P = (z.softmax(-1) * mask[..., None]).sum((0, 1)) / n
    return E * (counts.to(P) @ P) / n


def _by_experts(logits: Tensor, mask: Tensor, k: int) -> Tensor:
    z = logits[mask]
    p, border = z.softmax(-1), z.topk(k).values[:, -1]
    total = torch.zeros((), dtype=z.dtype)
    for e in range(z.shape[-1]):
        total = total + (z[:, e] >= border).to(z.dtype).mean() * p[:, e].mean()
    return z.shape[-1] * total


def _of(loss: Callable[[Tensor, Tensor, Tensor, int], Tensor]) -> Function:
    """`loss(z [n, E], chosen [n, E], p [n, E], k)` of the real tokens."""

    def wrong(logits: Tensor, mask: Tensor, k: int) -> Tensor:
        z = logits[mask]
        return loss(z, _chosen(z, k), z.softmax(-1), k)

    return wrong


def _product(f: Tensor, P: Tensor) -> Tensor:
    return f.shape[-1] * (f * P).sum()


def _gates(z: Tensor, chosen: Tensor, p: Tensor, k: int) -> Tensor:
    kept = p * chosen
    return _product(chosen.mean(0), (kept / kept.sum(-1, keepdim=True)).mean(0))


def _variation(z: Tensor, chosen: Tensor, p: Tensor, k: int) -> Tensor:
    importance = p.sum(0)
    return importance.var(correction=0) / importance.mean() ** 2


def _no_idle_expert(z: Tensor, chosen: Tensor, p: Tensor, k: int) -> Tensor:
    return _product(torch.bincount(z.topk(k).indices.flatten()) / len(z), p.mean(0))


def _per_sequence(logits: Tensor, mask: Tensor, k: int) -> Tensor:
    rows = range(len(mask))
    return torch.stack([reference(logits[[b]], mask[[b]], k) for b in rows]).mean()


def _all_columns(logits: Tensor, mask: Tensor, k: int) -> Tensor:
    return reference(logits, mask, k) * (mask.sum() / mask.numel()) ** 2


def _times_mask(logits: Tensor, mask: Tensor, k: int) -> Tensor:
    real, n = mask[..., None], mask.sum()
    f = (_chosen(logits, k) * real).sum((0, 1)) / n
    return _product(f, (logits.softmax(-1) * real).sum((0, 1)) / n)


def _where_after(logits: Tensor, mask: Tensor, k: int) -> Tensor:
    real, n = mask[..., None], mask.sum()
    f = torch.where(real, _chosen(logits, k), 0.0).sum((0, 1)) / n
    return _product(f, torch.where(real, logits.softmax(-1), 0.0).sum((0, 1)) / n)


MISTAKES: Mistakes = {
    "no_factor": (
        _of(lambda z, chosen, p, k: (chosen.mean(0) * p.mean(0)).sum()),
        Words(
            en="The factor E is missing. With it the loss is k when the load is even, "
            "whatever the number of experts.",
            zh="少了因子 E。有了它，负载均匀时 loss 等于 k，与专家数无关。",
        ),
    ),
    "over_k": (
        _of(lambda z, chosen, p, k: _product(chosen.mean(0) / k, p.mean(0))),
        Words(
            en="Your f sums to 1; here it is the number of times that a token chooses the "
            "expert, and sums to k. Both are in use; only the weight of the loss differs.",
            zh="你的 f 之和是 1；这里 f 是每个 token 选中该专家的次数，之和为 k。两种写法都"
            "有人用，只是系数不同。",
        ),
    ),
    "gates": (
        _of(_gates),
        Words(
            en="Your P averages the renormalised gates. P is the probability among all "
            "experts, so that those left out get a gradient too.",
            zh="你的 P 是归一化后权重的平均。P 应当是在全部专家上的概率，这样落选的专家也有"
            "梯度。",
        ),
    ),
    "soft_only": (
        _of(lambda z, chosen, p, k: k * _product(p.mean(0), p.mean(0))),
        Words(
            en="You use probabilities twice. f counts choices: that is the load that a "
            "machine feels.",
            zh="你两次都用了概率。f 统计的是实际选择：那才是机器承受的负载。",
        ),
    ),
    "hard_only": (
        _of(lambda z, chosen, p, k: _product(chosen.mean(0), chosen.mean(0)) / k),
        Words(
            en="You use counts twice, and counts have no gradient. P, the mean "
            "probability, brings it.",
            zh="你两次都用了计数，而计数没有梯度。梯度来自 P，即平均概率。",
        ),
    ),
    "first_choice": (
        _of(lambda z, chosen, p, k: k * _product(_chosen(z, 1).mean(0), p.mean(0))),
        Words(
            en="f counts the best expert only. Each of a token's k experts has to work.",
            zh="f 只统计了最好的那个专家。每个 token 的 k 个专家都要干活。",
        ),
    ),
    "product_first": (
        _of(lambda z, chosen, p, k: z.shape[-1] * (chosen * p).sum(-1).mean()),
        Words(
            en="You multiply for each token and average then. First average over tokens: "
            "balance is a matter of the batch, and a single token cannot be balanced.",
            zh="你先在每个 token 上相乘再平均。应当先对 token 取平均：均衡是整个 batch 的"
            "事，单个 token 谈不上均衡。",
        ),
    ),
    "no_idle_expert": (
        _of(_no_idle_expert),
        Words(
            en="Your counts end at the last expert that was chosen, while P has all of "
            "them. An expert that nobody chose counts 0: `minlength`.",
            zh="你的计数只到最后一个被选中的专家为止，而 P 包含所有专家。没人选的专家计数"
            "为 0：用 `minlength`。",
        ),
    ),
    "one_beyond": (
        _of(
            lambda z, _, p, k: _product(routed.above_next(z, k).double().mean(0), p.mean(0))
        ),
        routed.BEYOND,
    ),
    "variation": (
        _of(_variation),
        Words(
            en="This is the squared coefficient of variation of the experts' importance "
            "(Shazeer 2017). Asked for is E sum f P.",
            zh="这是专家重要性的变异系数平方（Shazeer 2017）。题目要的是 E Σ f P。",
        ),
    ),
    "per_sequence": (
        _per_sequence,
        Words(
            en="You balance each response by itself and average. Asked for is the balance "
            "over all real tokens of the batch.",
            zh="你对每条回答单独求均衡再平均。题目要的是整个 batch 真实 token 上的均衡。",
        ),
    ),
    "all_columns": (
        _all_columns,
        Words(
            en="f and P are divided by B * T, padding included. Divide by the real tokens.",
            zh="f 和 P 都除以了 B * T，包含 padding。应当除以真实 token 数。",
        ),
    ),
    "padding_counted": (
        lambda logits, mask, k: reference(logits, torch.ones_like(mask), k),
        Words(
            en="The padding is routed too, and counted. Use the mask.",
            zh="padding 也被路由并计入了。请用 mask。",
        ),
    ),
    "times_mask": (
        _times_mask,
        Words(
            en="Multiplying by the mask does not remove NaN: NaN * 0 is NaN. Select the "
            "real tokens with `logits[mask]`.",
            zh="乘以 mask 去不掉 NaN：NaN * 0 还是 NaN。请用 `logits[mask]` 选出真实 token"
            "。",
        ),
    ),
    "where_after": (
        _where_after,
        Words(
            en="The value is right, the gradient is NaN: `where` after the softmax hides "
            "the garbage, and backward still goes through it. Select first.",
            zh="数值正确，但梯度是 NaN：在 softmax 之后才用 `where` 只是藏起了垃圾值，反向"
            "传播仍会经过它。请先选择。",
        ),
    ),
    "straight_through": (
        _of(lambda z, chosen, p, k: _product((chosen + p - p.detach()).mean(0), p.mean(0))),
        Words(
            en="The value is right, but a gradient flows through f too (straight-through). "
            "f counts as a constant; the gradient comes through P alone.",
            zh="数值正确，但 f 也带上了梯度（straight-through）。f 应当看作常数，梯度只来自"
            " P。",
        ),
    ),
    "detach": (
        lambda logits, mask, k: reference(logits, mask, k).detach(),
        Words(
            en="The value is right, but no gradient reaches the logits. f has none; P must "
            "keep its own.",
            zh="数值正确，但梯度传不到 logits。f 没有梯度，P 必须保留自己的梯度。",
        ),
    ),
}

BY_HAND = Words(
    en="three tokens, two experts, k = 1, probabilities 3/4 and 1/4",
    zh="三个 token、两个专家、k = 1，概率为 3/4 和 1/4",
)
EVEN = Words(en="every load is the same: the loss is k", zh="负载都相同：loss 等于 k")
STEEP = Words(en="gradients; one logit far above others", zh="要求梯度，有些 logit 很大")
SURE = Words(en="thousands of tokens, logits near 1000", zh="几千个 token，logits 上千")

Inputs = tuple[Tensor, Tensor, int]


def _draw(generator: Generator, rows: int, columns: int, k: int, E: int = 6) -> Inputs:
    """Tokens that like some experts better, so that the load is uneven."""
    mask = mask_of(generator, rows, columns)
    logits = routed.router_logits(generator, rows, columns, E)
    logits = logits + torch.linspace(1.2, -0.8, E)
    return logits, mask, k


def _spoiled(logits: Tensor, mask: Tensor, k: int) -> Inputs:
    return torch.where(mask[..., None], logits, torch.nan), mask, k


def _even(generator: Generator) -> Tensor:
    """The same logits, turned on by one expert from token to token: `[2, 12, 6]`."""
    first = routed.router_logits(generator, 1, 6)[0]
    turns = torch.stack([first.roll(t) for t in range(6)])
    return turns.repeat(2, 1).expand(2, 12, 6).contiguous()


def cases(generator: Generator) -> list[Case]:
    a, b = [0.75, 0.25], [0.25, 0.75]
    small = torch.tensor([[a, a], [b, b]]).log()
    real = torch.tensor([[True, True], [True, False]])
    half = torch.tensor([[True] * 12, [True] * 6 + [False] * 6])
    idle, some, k = _draw(generator, 3, 8, 2)
    idle[..., -1] -= 10
    every = _draw(generator, 2, 5, 6)
    every[0][:, 0] = 0.0  # a token as real as any other
    long, mask, _ = _draw(generator, 2, 2000, 2)
    sloped = _spoiled(*_draw(generator, 3, 8, 2))
    sloped[0][:, 0, 1] += 150  # exp overflows: hidden from a value, not from backward
    return [
        Case("example", BY_HAND, (small, real, 1)),
        Case("property", EVEN, (_even(generator), half, 2)),
        Case("property", routed.IDLE, (idle, some, k)),
        Case("property", routed.ALL, every),
        Case("inputs", RANDOM, _draw(generator, 3, 8, 2)),
        Case("inputs", RANDOM, _draw(generator, 5, 10, 3, E=9)),
        Case("padding", NAN, _spoiled(*_draw(generator, 3, 8, 2))),
        Case("gradient", STEEP, sloped),
        Case("numbers", SURE, (500 * long, mask, 2)),
    ]


EXERCISE = Exercise(
    name="load_balance",
    title=Words(en="The balance loss", zh="负载均衡损失"),
    reference=reference,
    returns=("loss",),
    cases=cases,
    mistakes=MISTAKES,
    alternatives={"counts": _with_counts, "expert_by_expert": _by_experts},
    hints=(
        Words(
            en="Two averages over the same tokens, one of choices (0 or 1) and one of "
            "probabilities; then one product for each expert.",
            zh="对同一批 token 取两个平均：一个是选择（0 或 1），一个是概率；然后每个专家做"
            "一次乘积。",
        ),
        Words(
            en="f_e: how often a token chooses e. P_e: mean of the full softmax. Loss: "
            "E times the sum of f_e P_e. The gradient comes through P.",
            zh="f_e：每个 token 选中 e 的频率。P_e：完整 softmax 的平均。loss：E 乘以 f_e "
            "P_e 之和。梯度来自 P。",
        ),
        Words(
            en="`z = logits[mask]`; f from `topk` and `scatter` of ones, `.mean(0)`; P is "
            "`z.softmax(-1).mean(0)`.",
            zh="`z = logits[mask]`；f 由 `topk` 和 `scatter` 置 1 后 `.mean(0)` 得到；P 是"
            " `z.softmax(-1).mean(0)`。",
        ),
    ),
    points=(1, 2),
    minutes=8,
    gradient=("logits",),
)
