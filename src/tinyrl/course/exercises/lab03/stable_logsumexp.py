"""log of a sum of exps without overflow: the one number that every logprob contains."""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from tinyrl.course.exercise import Case, Exercise, Mistakes
from tinyrl.course.words import Words


def reference(z: Tensor) -> Tensor:
    top = z.max(-1, keepdim=True).values
    return ((z - top).exp().sum(-1, keepdim=True).log() + top).squeeze(-1)


def _from_softmax(z: Tensor) -> Tensor:
    """z minus its log softmax is the same number in every column."""
    return (z - z.log_softmax(-1)).mean(-1)


def _online(z: Tensor) -> Tensor:
    """One column after the other, as fused kernels do: keep the running pair."""
    total = z[..., 0]
    for column in z.unbind(-1)[1:]:
        total = torch.logaddexp(total, column)
    return total


def _global_max(z: Tensor) -> Tensor:
    return (z - z.max()).exp().sum(-1).log() + z.max()


def _min_subtracted(z: Tensor) -> Tensor:
    low = z.min(-1, keepdim=True).values
    return ((z - low).exp().sum(-1, keepdim=True).log() + low).squeeze(-1)


def _centred(z: Tensor) -> Tensor:
    mean = z.mean(-1, keepdim=True)
    return ((z - mean).exp().sum(-1, keepdim=True).log() + mean).squeeze(-1)


def _log_two(z: Tensor) -> Tensor:
    top = z.max(-1, keepdim=True).values
    return ((z - top).exp().sum(-1, keepdim=True).log2() + top).squeeze(-1)


def _mean_instead(z: Tensor) -> Tensor:
    top = z.max(-1, keepdim=True).values
    return ((z - top).exp().mean(-1, keepdim=True).log() + top).squeeze(-1)


MISTAKES: Mistakes = {
    "naive": (
        lambda z: z.exp().sum(-1).log(),
        Words(
            en="`exp` of a large logit is inf, of very low ones 0: the log is then inf or "
            "-inf. Subtract the row's maximum first, and add it back after the log.",
            zh="logit 很大时 `exp` 为 inf，很小时为 0，取对数后就是 inf 或 -inf。先减去该行"
            "的最大值，取对数之后再加回来。",
        ),
    ),
    "maximum_not_added_back": (
        lambda z: (z - z.max(-1, keepdim=True).values).exp().sum(-1).log(),
        Words(
            en="You subtract the maximum and never add it back.",
            zh="你减去了最大值，却没有加回来。",
        ),
    ),
    "one_maximum_for_all": (
        _global_max,
        Words(
            en="You subtract one maximum of the whole batch. A row far below it underflows "
            "to log 0. Each row has its own maximum.",
            zh="你对整个 batch 只减一个最大值。远低于它的行会下溢成 log 0。每一行要用自己的"
            "最大值。",
        ),
    ),
    "minimum": (
        _min_subtracted,
        Words(
            en="You subtract a logit that is not the largest (the minimum, the first of "
            "the row), so the largest still overflows. Subtract the maximum: then every "
            "exponent is at most 0.",
            zh="你减的不是最大的 logit（而是最小的，或者第一个），最大的仍会溢出。应当减最"
            "大值，这样所有指数都不超过 0。",
        ),
    ),
    "centred": (
        _centred,
        Words(
            en="You subtract the mean: a logit far above it still overflows. Subtract the "
            "maximum.",
            zh="你减的是平均值：远高于平均的 logit 仍会溢出。应当减最大值。",
        ),
    ),
    "clamped": (
        lambda z: z.clamp(-80, 80).exp().sum(-1).log(),
        Words(
            en="You clamp the logits. Nothing overflows, and the value is wrong as soon as "
            "a logit lies outside.",
            zh="你把 logit 截断了。虽然不会溢出，但只要有 logit 超出范围，数值就错了。",
        ),
    ),
    "maximum_only": (
        lambda z: z.max(-1).values,
        Words(
            en="This is the maximum alone: the limit for logits far apart. Add the log of "
            "the sum of exp(z - max).",
            zh="这只是最大值，即各 logit 相差很远时的极限。还要加上 exp(z - max) 之和的对"
            "数。",
        ),
    ),
    "mean": (
        _mean_instead,
        Words(
            en="You average the exps instead of adding them: too low by log V.",
            zh="你对 exp 取了平均而不是求和：结果小了 log V。",
        ),
    ),
    "no_log": (
        lambda z: z.exp().sum(-1),
        Words(
            en="The log is missing: this is the sum of exps.",
            zh="漏了对数：这是 exp 之和。",
        ),
    ),
    "log2": (
        _log_two,
        Words(
            en="You take a logarithm to base 2; it should be the natural one.",
            zh="你取了以 2 为底的对数，应当用自然对数。",
        ),
    ),
    "a_little_added": (
        lambda z: (z.softmax(-1).amax(-1).reciprocal() + 1e-6).log() + z.amax(-1),
        Words(
            en="You add a small number inside the log. The largest term is exp(0), which "
            "is 1: the sum can't be 0, and needs no help.",
            zh="你在对数里加了一个小数。最大的一项是 exp(0) = 1，和不可能为 0，不需要它。",
        ),
    ),
    "over_everything": (
        lambda z: z.flatten().logsumexp(0).expand(z.shape[:-1]),
        Words(
            en="You sum over the whole batch. Each row of V logits has its own sum.",
            zh="你对整个 batch 求和了。每一行 V 个 logit 有自己的和。",
        ),
    ),
    "detach": (
        lambda z: torch.tensor(reference(z).tolist()),
        Words(
            en="The value is right, but no gradient reaches the logits: `detach`, `item` "
            "or "
            "numpy cuts it. It should be softmax(z).",
            zh="数值正确，但梯度传不到 logit：被 `detach`、`item` 或 numpy 切断了。梯度应当"
            "是 softmax(z)。",
        ),
    ),
}

BY_HAND = Words(en="the logs of 1 2 3 and of 2 2 4", zh="1 2 3 与 2 2 4 的对数")
SHIFT = Words(en="one logit alone is its own logsumexp", zh="只有一个 logit 时就是它本身")
RANDOM = Words(en="random logits", zh="随机 logit")
TOKENS = Words(en="the logits of B x T tokens", zh="B x T 个 token 的 logit")
LARGE = Words(en="logits near 1000", zh="接近 1000 的 logit")
LOW = Words(en="logits near -1000", zh="接近 -1000 的 logit")
APART = Words(en="rows that lie far apart", zh="彼此相差很远的行")
OUTLIER = Words(en="one logit far above the others", zh="一个远高于其他的 logit")
GRADIENT = Words(
    en="the same with gradients, one logit far above the others",
    zh="要求梯度，有一个 logit 远高于其他",
)


def cases(generator: Generator) -> list[Case]:
    def logits(rows: int, columns: int, middle: float = 0.0) -> Tensor:
        return middle + 3 * torch.randn(rows, columns, generator=generator)

    example = torch.tensor([[1.0, 2.0, 3.0], [2.0, 2.0, 4.0]]).log()
    offsets = torch.tensor([[0.0], [700.0], [-700.0]])
    outlier = logits(2, 5)
    # Where a naive sum overflows: that can be hidden from the value, not from backward.
    sloped = logits(3, 5)
    sloped[2, 1] += 150
    alone = logits(3, 1)
    alone[1] = 0.0
    far = torch.tensor([100.0, 300.0])  # from the lowest; from the mean of the row, too
    outlier[:, 2] = far + 2 * torch.rand(2, generator=generator)
    return [
        Case("example", BY_HAND, (example,)),
        Case("property", SHIFT, (alone,)),
        Case("inputs", RANDOM, (logits(3, 5),)),
        Case("inputs", TOKENS, (logits(6, 4).view(2, 3, 4),)),
        Case("inputs", TOKENS, (logits(5, 4).view(1, 5, 4),)),
        Case("gradient", GRADIENT, (sloped,)),
        Case("numbers", LOW, (logits(2, 5, -1000.0),)),
        Case("numbers", APART, (logits(3, 4) + offsets,)),
        Case("numbers", LARGE, (logits(2, 5, 1000.0),)),
        Case("numbers", OUTLIER, (outlier,)),
    ]


EXERCISE = Exercise(
    name="stable_logsumexp",
    title=Words(en="logsumexp without overflow", zh="不溢出的 logsumexp"),
    reference=reference,
    returns=("logsumexp",),
    cases=cases,
    mistakes=MISTAKES,
    alternatives={"log_softmax": _from_softmax, "online": _online},
    hints=(
        Words(
            en="exp(z) overflows, exp(z - c) need not. How does the result change with c?",
            zh="exp(z) 会溢出，exp(z - c) 则不一定。结果随 c 怎样变化？",
        ),
        Words(
            en="log sum exp(z) = c + log sum exp(z - c) for any c. Take the row's maximum.",
            zh="对任意 c，log sum exp(z) = c + log sum exp(z - c)。取该行的最大值作为 c。",
        ),
        Words(
            en="`top = z.max(-1, keepdim=True).values` keeps a column, so that `z - top` "
            "works row by row.",
            zh="`top = z.max(-1, keepdim=True).values` 保留一列，这样 `z - top` 就是逐行相"
            "减。",
        ),
    ),
    points=(1, 1),
    minutes=6,
    gradient=("z",),
)
