"""Batch normalisation of weights: a mean of 1 over what is kept."""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from tinyrl.course.exercise import Case, Exercise, Mistakes
from tinyrl.course.exercises.lab01 import batch
from tinyrl.course.exercises.lab09 import slips
from tinyrl.course.exercises.lab09.weighed import DETACH, NAN_TIMES, NO_GRADIENT, NOTHING
from tinyrl.course.exercises.lab09.weighed import weights as drawn
from tinyrl.course.words import Words


def _over(w: Tensor, mean: Tensor) -> Tensor:
    """Clean weights over a mean of them, which may be 0."""
    return torch.where(mean > 0, w / mean, 0.0)


def _clean(weight: Tensor, kept: Tensor) -> Tensor:
    return torch.where(kept, weight.detach(), 0.0)


def reference(weight: Tensor, kept: Tensor) -> Tensor:
    w = _clean(weight, kept)
    return _over(w, w.sum() / kept.sum().clamp(min=1))


def _selected(weight: Tensor, kept: Tensor) -> Tensor:
    out = torch.zeros_like(weight)
    some = weight.data[kept]
    if some.any():
        out[kept] = some / some.mean()
    return out.detach()


def _one_by_one(weight: Tensor, kept: Tensor) -> Tensor:
    pairs = [(b, t, weight[b, t].item()) for b, t in kept.nonzero().tolist()]
    total = sum(w for _, _, w in pairs)
    out = torch.zeros(weight.shape, dtype=torch.float64)
    for b, t, w in pairs:
        out[b, t] = w * len(pairs) / total if total else 0.0
    return out


def _columns(weight: Tensor, kept: Tensor) -> Tensor:
    w = _clean(weight, kept)
    return _over(w, w.mean())


def _by_response(weight: Tensor, kept: Tensor) -> Tensor:
    w = _clean(weight, kept)
    return _over(w, w.sum(1, keepdim=True) / kept.sum(1, keepdim=True).clamp(min=1))


def _mean_of_means(weight: Tensor, kept: Tensor) -> Tensor:
    w = _clean(weight, kept)
    return _over(w, (w.sum(1) / kept.sum(1).clamp(min=1)).mean())


def _geometric(weight: Tensor, kept: Tensor) -> Tensor:
    w = _clean(weight, kept)
    logs = torch.where(w > 0, w, 1.0).log()
    return w / (logs.sum() / kept.sum().clamp(min=1)).exp()


def _positive(weight: Tensor, kept: Tensor) -> Tensor:
    w = _clean(weight, kept)
    return _over(w, w.sum() / (w > 0).sum().clamp(min=1))


def _unguarded(weight: Tensor, kept: Tensor) -> Tensor:
    w = _clean(weight, kept)
    return torch.where(kept | ~kept.any(), w / (w.sum() / kept.sum()), 0.0)


def _mean_alone(weight: Tensor, kept: Tensor) -> Tensor:
    out = torch.zeros_like(weight).detach()
    w = weight.detach()[kept]
    out[kept] = w / w.mean()
    return out


def _everywhere(weight: Tensor, kept: Tensor) -> Tensor:
    w = _clean(weight, kept)
    mean = w.sum() / kept.sum().clamp(min=1)
    return torch.where(kept, _over(w, mean), 1.0)


def _times(weight: Tensor, kept: Tensor) -> Tensor:
    w = weight.detach() * kept
    return _over(w, w.sum() / kept.sum().clamp(min=1))


def _attached(weight: Tensor, kept: Tensor) -> Tensor:
    w = torch.where(kept, weight, 0.0)
    return w / (w.sum() / kept.sum().clamp(min=1)) if w.any() else w.detach() * 0


MISTAKES: Mistakes = {
    "columns": (
        _columns,
        Words(
            en="Your mean is over all columns, padding and dropped tokens with 0. It is "
            "over what is kept: that is what has mean 1 afterwards.",
            zh="你的均值取遍了所有列，padding 和被丢掉的以 0 计入。均值只取留下的：之后均"
            "值为 1 的正是它们。",
        ),
    ),
    "by_response": (
        _by_response,
        Words(
            en="You normalise each response by itself, which makes all responses alike: "
            "what the weights said about responses is gone. One mean for the batch.",
            zh="你对每条回答单独归一化，于是回答之间的差别没有了。整个 batch 只有一个均"
            "值。",
        ),
    ),
    "mean_of_means": (
        _mean_of_means,
        Words(
            en="You divide by the mean of the responses' means, in which short responses "
            "count as much as long ones. Here every kept token counts once.",
            zh="你除以了各回答均值的均值，短回答和长回答分量相同。这里每个留下的 token 计"
            "一次。",
        ),
    ),
    "sums_to_one": (
        lambda weight, kept: reference(weight, kept) / kept.sum().clamp(min=1),
        Words(
            en="Your weights sum to 1. Their mean is to be 1: else every step is smaller "
            "by the number of tokens.",
            zh="你的权重之和为 1。应让均值为 1，否则每一步都缩小了 token 数那么多倍。",
        ),
    ),
    "by_largest": (
        lambda weight, kept: _over(_clean(weight, kept), _clean(weight, kept).max()),
        Words(
            en="You divide by the largest weight. One outlier then shrinks all others; "
            "divide by the mean.",
            zh="你除以了最大的权重，一个离群值就把其余全部缩小。应除以均值。",
        ),
    ),
    "geometric": (
        _geometric,
        Words(
            en="You divide by the geometric mean of the weights; the ordinary mean is "
            "asked for.",
            zh="你除以了权重的几何平均，题目要的是算术平均。",
        ),
    ),
    "shifted": (
        lambda weight, kept: torch.where(
            kept,
            _clean(weight, kept) - _clean(weight, kept).sum() / kept.sum().clamp(min=1) + 1,
            0.0,
        ),
        Words(
            en="You move the weights so that their mean is 1; some may turn negative. "
            "Divide.",
            zh="你把权重平移到均值为 1，有的可能变成负数。应当用除法。",
        ),
    ),
    "positive": (
        _positive,
        Words(
            en="You leave weights of 0 out of the mean. A kept token can have weight 0 "
            "(it underflowed); it counts.",
            zh="你在均值里漏掉了权重为 0 的 token。留下的 token 权重也可能是 0（下溢），要"
            "算在内。",
        ),
    ),
    "everywhere": (
        _everywhere,
        Words(
            en="What is not kept has weight 1 here. It has weight 0.",
            zh="没有留下的位置成了 1，应为 0。",
        ),
    ),
    "times_kept": (_times, NAN_TIMES),
    "nothing_left": (
        _unguarded,
        Words(
            en="Where nothing is kept this is 0 / 0. Return zeros.",
            zh="什么也没留下时这是 0 / 0。应返回全零。",
        ),
    ),
    "all_zero": (
        _mean_alone,
        Words(
            en="Where all kept weights are 0 this is 0 / 0. Return zeros there, too.",
            zh="留下的权重全为 0 时这是 0 / 0。这时也应返回全零。",
        ),
    ),
    "attached": (_attached, DETACH),
} | slips.NORMALISED

HAND = Words(en="three kept weights, one dropped", zh="留下三个权重，丢掉一个")
ONES = Words(en="weights of mean 1 stay as they are", zh="均值已为 1 的权重保持不变")
RANDOM = Words(
    en="random weights, some dropped, some kept with weight 0",
    zh="随机权重，有些丢掉，有些以权重 0 留下",
)
LARGE = Words(en="large random weights, some dropped", zh="很大的随机权重，有些丢掉")
TINY = Words(en="kept weights of e^-20, 0 and 0", zh="留下的权重约为 e^-20、0 和 0")
ZEROS = Words(en="all that is kept has weight 0", zh="留下的权重全为 0")


def cases(generator: Generator) -> list[Case]:
    def some(
        rows: int, columns: int, padding: batch.Padding = "finite"
    ) -> tuple[Tensor, Tensor]:
        w, mask = drawn(generator, rows, columns, padding)
        w = w * torch.linspace(0.6, 2.0, rows)[:, None]
        kept = mask.clone()
        kept[:, 1] = False  # dropped by some bound
        w[0, 0] = 0.0
        w[1, 1] = float("nan") if padding == "nan" else 7.0
        return w, kept

    hand = torch.tensor([[1.0, 5.0], [2.0, 3.0]])
    up = torch.rand(1, 3, generator=generator) / 2
    ones = torch.cat([1 + up, 1 - up])
    w, kept = some(3, 6)
    large, some_kept = some(5, 9)
    large[0, 2] *= 300  # one weight outweighs all others
    tiny, few = some(4, 6)
    few[:], few[1, :3] = False, True
    tiny[1, :3] = torch.tensor([1.0, 0.0, 0.0])
    return [
        Case("example", HAND, (hand, torch.tensor([[True, False], [True, True]]))),
        Case("property", ONES, (ones, torch.ones(2, 3, dtype=torch.bool))),
        Case("inputs", RANDOM, some(3, 6)),
        Case("inputs", LARGE, (large * 2e4, some_kept)),
        Case("padding", batch.NAN, some(3, 7, "nan")),
        Case("gradient", NO_GRADIENT, some(3, 7, "nan")),
        Case("numbers", NOTHING, (w, torch.zeros_like(kept))),
        Case("numbers", ZEROS, (torch.where(kept, 0.0, w), kept)),
        Case("numbers", TINY, (tiny * 2e-9, few)),
    ]


EXERCISE = Exercise(
    name="normalised_weights",
    title=Words(en="Weights of mean 1", zh="均值为 1 的权重"),
    reference=reference,
    returns=("weights",),
    cases=cases,
    mistakes=MISTAKES,
    alternatives={"selected": _selected, "one_by_one": _one_by_one},
    hints=(
        Words(
            en="Divide by a mean. Over which tokens, and what if there are none?",
            zh="除以一个均值。取哪些 token 的均值？如果一个也没有呢？",
        ),
        Words(
            en="0 where not kept, by `torch.where`; the sum over `kept.sum()`; detach.",
            zh="没留下的用 `torch.where` 置 0；总和除以 `kept.sum()`；记得 detach。",
        ),
        Words(
            en="`mean = w.sum() / kept.sum().clamp(min=1)`, then `w / mean` where the "
            "mean is above 0, else zeros.",
            zh="先 `mean = w.sum() / kept.sum().clamp(min=1)`，均值大于 0 时返回 `w / "
            "mean`，否则返回全零。",
        ),
    ),
    points=(1, 1),
    minutes=5,
    data=("weight",),
)
