"""One importance weight at three levels: token, product of tokens, geometric mean."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Generator, Tensor

from tinyrl.course.exercise import Case, Exercise, Function, Mistakes
from tinyrl.course.exercises.lab01 import batch
from tinyrl.course.exercises.lab09.weighed import DETACH, NAN_TIMES, NO_GRADIENT
from tinyrl.course.words import Words

Three = tuple[Tensor, Tensor, Tensor]


def _levels(d: Tensor, mask: Tensor, length: Tensor | int | None = None) -> Three:
    """Of clean deltas; `length` is what a sum is divided by, else the real tokens."""
    total = d.sum(1, keepdim=True)
    n = mask.sum(1, keepdim=True).clamp(min=1) if length is None else length
    spread = [torch.where(mask, x, 0.0).exp() for x in (total, total / n)]
    return d.exp(), spread[0], spread[1]


def reference(logp_train: Tensor, logp_rollout: Tensor, mask: Tensor) -> Three:
    return _levels(torch.where(mask, logp_train - logp_rollout, 0.0).detach(), mask)


@torch.no_grad()
def _row_by_row(logp_train: Tensor, logp_rollout: Tensor, mask: Tensor) -> Three:
    token, product, geometric = (torch.ones_like(logp_train) for _ in range(3))
    for b, real in enumerate(mask):
        d = logp_train[b][real] - logp_rollout[b][real]
        if len(d):
            token[b][real] = d.exp()
            product[b][real] = d.sum().exp()
            geometric[b][real] = d.mean().exp()
    return token, product, geometric


def _spread(logp_train: Tensor, logp_rollout: Tensor, mask: Tensor) -> Three:
    """Sum and mean of each response by an einsum with the mask, spread by another."""
    d = (logp_train.detach() - logp_rollout.detach()).masked_fill(~mask, 0)
    real = mask.to(d.dtype)
    total = torch.einsum("bt,bt->b", d, real)
    product, geometric = (
        torch.einsum("b,bt->bt", x, real).exp() for x in (total, total / real.sum(1))
    )
    return d.exp(), product, geometric


def _but(change: Callable[[Tensor, Tensor, Tensor], Three]) -> Function:
    """The right answer, but for what `change` makes of its three parts."""

    def wrong(*args: Tensor) -> Three:
        return change(*reference(*args))

    return wrong


def _clean(logp_train: Tensor, logp_rollout: Tensor, mask: Tensor) -> Tensor:
    return torch.where(mask, logp_train - logp_rollout, 0.0).detach()


def _sum_of_ratios(logp_train: Tensor, logp_rollout: Tensor, mask: Tensor) -> Three:
    token, _, geometric = reference(logp_train, logp_rollout, mask)
    total = (token * mask).sum(1, keepdim=True)
    return token, torch.where(mask, total, 1.0), geometric


def _mean_of_ratios(logp_train: Tensor, logp_rollout: Tensor, mask: Tensor) -> Three:
    token, product, _ = reference(logp_train, logp_rollout, mask)
    mean = (token * mask).sum(1, keepdim=True) / mask.sum(1, keepdim=True).clamp(min=1)
    return token, product, torch.where(mask, mean, 1.0)


def _columns(logp_train: Tensor, logp_rollout: Tensor, mask: Tensor) -> Three:
    d = _clean(logp_train, logp_rollout, mask)
    return _levels(d, mask, d.shape[1])


def _nonzero(logp_train: Tensor, logp_rollout: Tensor, mask: Tensor) -> Three:
    d = _clean(logp_train, logp_rollout, mask)
    return _levels(d, mask, (d != 0).sum(1, keepdim=True).clamp(min=1))


def _root_of_product(logp_train: Tensor, logp_rollout: Tensor, mask: Tensor) -> Three:
    token, product, _ = reference(logp_train, logp_rollout, mask)
    return token, product, product ** (1 / mask.sum(1, keepdim=True).clamp(min=1))


def _batch(logp_train: Tensor, logp_rollout: Tensor, mask: Tensor) -> Three:
    d = _clean(logp_train, logp_rollout, mask)
    total = d.sum()
    n = mask.sum().clamp(min=1)
    product, geometric = (torch.where(mask, x, 0.0).exp() for x in (total, total / n))
    return d.exp(), product, geometric


def _running(logp_train: Tensor, logp_rollout: Tensor, mask: Tensor) -> Three:
    d = _clean(logp_train, logp_rollout, mask)
    token, _, geometric = _levels(d, mask)
    return token, torch.where(mask, d.cumsum(1), 0.0).exp(), geometric


def _spread_over_padding(logp_train: Tensor, logp_rollout: Tensor, mask: Tensor) -> Three:
    token, product, geometric = reference(logp_train, logp_rollout, mask)
    every = [x[:, :1].expand_as(x) for x in (product, geometric)]  # first tokens are real
    return token, every[0], every[1]


def _times_mask(logp_train: Tensor, logp_rollout: Tensor, mask: Tensor) -> Three:
    return _levels(((logp_train - logp_rollout) * mask).detach(), mask)


def _padding(logp_train: Tensor, logp_rollout: Tensor, mask: Tensor) -> Three:
    d = (logp_train - logp_rollout).detach()
    return _levels(d, torch.ones_like(mask))


def _attached(logp_train: Tensor, logp_rollout: Tensor, mask: Tensor) -> Three:
    return _levels(torch.where(mask, logp_train - logp_rollout, 0.0), mask)


MISTAKES: Mistakes = {
    "inverted": (
        _but(lambda token, product, geometric: (1 / token, 1 / product, 1 / geometric)),
        Words(
            en="All three are upside down. The rollout sampled, so its probability goes "
            "below: p_train / p_rollout.",
            zh="三个都倒过来了。样本来自 rollout，它的概率在分母：p_train / p_rollout。",
        ),
    ),
    "no_exp": (
        _but(
            lambda token, product, geometric: (token.log(), product.log(), geometric.log())
        ),
        Words(
            en="These are logarithms of the weights; take exp. Padding then has 1.",
            zh="这是权重的对数，还要取 exp；padding 处就是 1。",
        ),
    ),
    "swapped": (
        _but(lambda token, product, geometric: (token, geometric, product)),
        Words(
            en="Product and geometric mean are swapped. The product is exp of the sum of "
            "deltas, the geometric mean exp of their mean.",
            zh="连乘和几何平均写反了。连乘是 delta 之和的 exp，几何平均是 delta 均值的 exp"
            "。",
        ),
    ),
    "sum_of_ratios": (
        _sum_of_ratios,
        Words(
            en="You add ratios. A response's probability is a product, so its ratio is "
            "one: exp of the sum, not the sum of exps. Equal policies must give 1, not T.",
            zh="你把比值加了起来。回答的概率是连乘，比值也是：先求和再取 exp，不是先取 "
            "exp 再求和。两个策略相同时应得 1，而不是 T。",
        ),
    ),
    "mean_of_ratios": (
        _mean_of_ratios,
        Words(
            en="Your third weight is the arithmetic mean of token ratios. The geometric "
            "one is exp of the mean of deltas: ratios 2 and 1/2 give 1, not 1.25.",
            zh="第三个权重成了 token 比值的算术平均。几何平均是 delta 均值的 exp：2 和 "
            "1/2 应得 1，而不是 1.25。",
        ),
    ),
    "columns": (
        _columns,
        Words(
            en="You divide by the number of columns. A response is as long as it has real "
            "tokens.",
            zh="你除以了列数。回答的长度是真实 token 的个数。",
        ),
    ),
    "nonzero": (_nonzero, batch.NONZERO),
    "root_of_product": (
        _root_of_product,
        Words(
            en="The product of thousands of ratios underflows to 0 (or overflows) before "
            "its root is taken. Divide the sum of deltas, then take exp.",
            zh="几千个比值的连乘在开方之前就已下溢成 0（或上溢）。先把 delta 之和除以长度，"
            "再取 exp。",
        ),
    ),
    "whole_batch": (
        _batch,
        Words(
            en="You sum over the whole batch. Each response has a weight of its own.",
            zh="你对整个 batch 求和了。每条回答有自己的权重。",
        ),
    ),
    "running": (
        _running,
        Words(
            en="Your product stops at the token itself. The weight of a response is one "
            "number for all of its tokens: also what comes later decides the reward.",
            zh="你的连乘只到该 token 为止。整条回答的权重是所有 token 共用的一个数：后面"
            "的 token 也决定奖励。",
        ),
    ),
    "zero_in_padding": (
        lambda *args: tuple(part * args[2] for part in reference(*args)),
        Words(
            en="Padding has weight 0 here; asked for is 1, exp(0): a weight of 0 would "
            "say that a token was dropped.",
            zh="padding 处的权重成了 0，题目要求 1，即 exp(0)：权重 0 表示 token 被丢掉。",
        ),
    ),
    "spread_over_padding": (
        _spread_over_padding,
        Words(
            en="The weight of the response also stands in its padding. Asked for is 1 "
            "there: choose with the mask.",
            zh="padding 处也填了整条回答的权重。那里应为 1：请用 mask 选择。",
        ),
    ),
    "times_mask": (_times_mask, NAN_TIMES),
    "padding_kept": (
        _padding,
        Words(
            en="The padding is still in the sums. Set delta to 0 there first.",
            zh="padding 还在求和里。先把那里的 delta 置 0。",
        ),
    ),
    "attached": (_attached, DETACH),
}

FAR = 80.0  # e^80, times five other ratios, is a number in float32; e^89 is none
IMPOSSIBLE = Words(
    en="a token of probability e^-80 on one side alone, on either side",
    zh="每一边各有一个 token，只有这一边认为它的概率是 e^-80",
)
UNLIKELY = Words(
    en="long responses, one with a product that is 0 in float32",
    zh="很长的回答，其中一条的连乘在 float32 里是 0",
)


def cases(generator: Generator) -> list[Case]:
    same, _, mask = batch.policies(generator)
    same[:, 1] = 0.0  # a token of probability 1
    apart, other, some = batch.policies(generator)
    apart[0, 0] -= FAR
    other[1, 0] -= FAR
    agreed = batch.policies(generator, rows=5, columns=10)
    batch.agree_on_two(*agreed[:2])
    long = batch.policies(generator, rows=2, columns=2000, spread=0.02)
    long[0][0] -= 0.2  # of 800 tokens or more: e^-144 at most, and below 2^-149 it is 0
    padded = batch.policies(generator, padding="nan")
    return [
        Case("example", batch.BY_HAND, (batch.TRAIN, batch.ROLLOUT, batch.MASK)),
        Case("property", batch.SAME, (same, same, mask)),
        Case("inputs", batch.RANDOM, batch.policies(generator)),
        Case("inputs", batch.AGREED, agreed),
        Case("padding", batch.NAN, padded),
        Case("padding", batch.INF, batch.policies(generator, padding="inf")),
        Case("gradient", NO_GRADIENT, batch.policies(generator, padding="nan")),
        Case("numbers", UNLIKELY, long),
        Case("numbers", IMPOSSIBLE, (apart, other, some)),
    ]


EXERCISE = Exercise(
    name="weight_levels",
    title=Words(en="One weight, three levels", zh="一个权重，三个层级"),
    reference=reference,
    returns=("token", "product", "geometric"),
    cases=cases,
    mistakes=MISTAKES,
    alternatives={"row_by_row": _row_by_row, "spread": _spread},
    hints=(
        Words(
            en="All three are exp of something made of deltas: of one, of their sum, of "
            "their mean. What should padding add to a sum?",
            zh="三者都是对 delta 的某种组合取 exp：单个、总和、均值。padding 应给总和添多"
            "少？",
        ),
        Words(
            en="Clean delta first: 0 in padding, detached. Count real tokens with "
            "`mask.sum(1, keepdim=True)`.",
            zh="先清理 delta：padding 置 0，并 detach。用 `mask.sum(1, keepdim=True)` 数真"
            "实 token。",
        ),
        Words(
            en="`total = d.sum(1, keepdim=True)`; the weights are `d.exp()` and "
            "`torch.where(mask, x, 0.0).exp()` of `total` and of `total / n`.",
            zh="先 `total = d.sum(1, keepdim=True)`；三个权重是 `d.exp()`，以及对 `total` "
            "和 `total / n` 作 `torch.where(mask, x, 0.0).exp()`。",
        ),
    ),
    points=(1, 2),
    minutes=8,
    data=("logp_train", "logp_rollout"),
    floor=2.0**-107,  # 16 eps of it is 2^-126: what is smaller may be 0 in float32
)
