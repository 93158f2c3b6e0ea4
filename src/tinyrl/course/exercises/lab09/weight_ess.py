"""Effective sample size: how much of a batch carries its weights."""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from tinyrl.course.exercise import Case, Exercise, Mistakes
from tinyrl.course.exercises.lab01 import batch
from tinyrl.course.exercises.lab09 import slips
from tinyrl.course.exercises.lab09.weighed import NAN_TIMES, NOTHING, weights
from tinyrl.course.words import Words


def _share(w: Tensor, n: Tensor | float) -> Tensor:
    """Of clean weights, scaled by the largest so that no square overflows."""
    top = w.max()
    if top == 0:
        return top
    w = w / top
    return w.sum() ** 2 / (n * w.square().sum())


def reference(weight: Tensor, mask: Tensor) -> Tensor:
    return _share(torch.where(mask, weight, 0.0), mask.sum())


def _by_variation(weight: Tensor, mask: Tensor) -> Tensor:
    """1 / (1 + the squared coefficient of variation)."""
    w = weight[mask]
    if not w.any():
        return torch.zeros(())
    w = w / w.max()
    w = w / w.mean()
    return 1 / (1 + (w - 1).square().mean())


def _shares(weight: Tensor, mask: Tensor) -> Tensor:
    """From the share of each weight in their sum."""
    w = weight[mask]
    if not (w > 0).any():
        return torch.zeros(())
    p = w / w.max()
    p = p / p.sum()
    return 1 / (len(w) * p.square().sum())


def _clean(weight: Tensor, mask: Tensor) -> Tensor:
    return torch.where(mask, weight, 0.0)


def _nonzero(weight: Tensor, mask: Tensor) -> Tensor:
    w = _clean(weight, mask)
    return _share(w, (w > 0).sum())


def _variance(weight: Tensor, mask: Tensor) -> Tensor:
    w = weight[mask]
    if not w.any():
        return torch.zeros(())
    return 1 / (1 + w.var(correction=0))


def _row_mean(weight: Tensor, mask: Tensor) -> Tensor:
    rows = zip(_clean(weight, mask), mask.sum(1), strict=True)
    return torch.stack([_share(w, n) for w, n in rows]).mean()


def _abs_ratio(weight: Tensor, mask: Tensor) -> Tensor:
    w = _clean(weight, mask)
    return w.sum() / (mask.sum() * w.max().clamp(min=1e-30))


def _unscaled(weight: Tensor, mask: Tensor) -> Tensor:
    w = _clean(weight, mask)
    if not w.any():
        return torch.zeros(())
    return w.sum() ** 2 / (mask.sum() * w.square().sum())


def _top_of_all(weight: Tensor, mask: Tensor) -> Tensor:
    w = _clean(weight, mask)
    if not w.any():
        return torch.zeros(())
    w = w / weight.max()
    return w.sum() ** 2 / (mask.sum() * w.square().sum())


def _no_guard(weight: Tensor, mask: Tensor) -> Tensor:
    w = _clean(weight, mask)
    w = w / w.max()
    return w.sum() ** 2 / (mask.sum() * w.square().sum())


MISTAKES: Mistakes = {
    "not_a_share": (
        lambda weight, mask: reference(weight, mask) * mask.sum(),
        Words(
            en="This is a number of tokens. Divide by how many there are.",
            zh="这是 token 的个数，还要除以总数。",
        ),
    ),
    "upside_down": (
        lambda weight, mask: 1 / reference(weight, mask).clamp(min=1e-30),
        Words(
            en="Upside down: equal weights give 1, and all others less.",
            zh="倒过来了：权重相等时得 1，其余都小于 1。",
        ),
    ),
    "lost": (
        lambda weight, mask: 1 - reference(weight, mask),
        Words(
            en="This is the share that is lost. Asked for is the one that is left.",
            zh="这是损失的比例，题目要的是剩下的。",
        ),
    ),
    "columns": (
        lambda weight, mask: _share(_clean(weight, mask), float(mask.numel())),
        Words(
            en="You count padding among the tokens.",
            zh="你把 padding 也算进了 token 数。",
        ),
    ),
    "nonzero": (
        _nonzero,
        Words(
            en="You count only tokens of weight above 0. What a mask dropped is lost, and "
            "belongs into the count: else a batch with one token left would be perfect.",
            zh="你只数了权重大于 0 的 token。被屏蔽丢掉的也要计入，否则只剩一个 token 的 "
            "batch 就成了满分。",
        ),
    ),
    "variance_alone": (
        _variance,
        Words(
            en="1 / (1 + variance) is right for weights of mean 1 only: divide the "
            "variance by the squared mean. ESS does not change if all weights double.",
            zh="1 / (1 + 方差) 只在权重均值为 1 时成立：方差要除以均值的平方。所有权重翻倍"
            "时 ESS 不变。",
        ),
    ),
    "mean_over_largest": (
        _abs_ratio,
        Words(
            en="This is the mean weight over the largest one. ESS compares the square of "
            "the sum with the sum of squares.",
            zh="这是平均权重与最大权重之比。ESS 比的是和的平方与平方和。",
        ),
    ),
    "by_response": (
        _row_mean,
        Words(
            en="You take the mean of each response's ESS. The tokens of the batch make "
            "one sample: weights differ between responses, too.",
            zh="你对每条回答的 ESS 取了平均。整个 batch 的 token 是一个样本：权重在回答之"
            "间也不同。",
        ),
    ),
    "root": (
        lambda weight, mask: reference(weight, mask).sqrt(),
        Words(
            en="This is the square root: the sum over the root of n times the squares. "
            "Square the sum.",
            zh="这是平方根：分子的和还要平方。",
        ),
    ),
    "clamped": (
        lambda weight, mask: reference(weight.clamp(0.5, 2.0), mask),
        Words(
            en="You clamp the weights into [1/2, 2] first (verl did, up to 0.7.1): that "
            "hides the ones which make ESS small.",
            zh="你先把权重截到了 [1/2, 2]（verl 到 0.7.1 为止就这样做）：拉低 ESS 的恰恰是"
            "被藏起来的那些。",
        ),
    ),
    "times_mask": (lambda weight, mask: _share(weight * mask, mask.sum()), NAN_TIMES),
    "nothing_left": (
        _no_guard,
        Words(
            en="Where every weight is 0 this is 0 / 0. Nothing is left: return 0.",
            zh="权重全为 0 时这是 0 / 0。什么也没剩下，应返回 0。",
        ),
    ),
    "top_of_padding": (
        _top_of_all,
        Words(
            en="You take the largest weight before the padding is cleaned: what stands "
            "there, NaN or a large number, is the largest then.",
            zh="你在清理 padding 之前就取了最大值：那里的 NaN 或很大的数成了最大的权重。",
        ),
    ),
    "overflow": (
        _unscaled,
        Words(
            en="The square of a large weight overflows in float32, and inf / inf is NaN. "
            "Divide by the largest weight first: ESS does not change.",
            zh="大权重的平方在 float32 里溢出，inf / inf 得 NaN。先除以最大的权重，ESS 不"
            "变。",
        ),
    ),
} | slips.ESS

HAND = Words(en="weights 1, 1, 2 and 0", zh="权重 1、1、2、0")
EQUAL = Words(en="equal weights", zh="权重相等")
DROPPED = Words(en="random weights, some dropped (0)", zh="随机权重，有些已丢掉（0）")
LARGE = Words(en="weights of e^50", zh="约 e^50 的权重")
TINY = Words(
    en="weights of e^-50, far larger numbers in the padding",
    zh="约 e^-50 的权重，padding 里是大得多的数",
)


def cases(generator: Generator) -> list[Case]:
    def some(rows: int, columns: int, padding: batch.Padding = "finite") -> list[Tensor]:
        """First tokens are dropped; each response has weights of another size."""
        w, mask = weights(generator, rows, columns, padding)
        w[:, 0] = 0.0
        w = w * torch.linspace(0.5, 3.0, rows)[:, None]
        return [w, mask]

    hand = torch.tensor([[1.0, 1.0, 9.0], [2.0, 0.0, 9.0]])
    real = torch.tensor([[True, True, False], [True, True, False]])
    w, mask = weights(generator)
    dead, gone = some(3, 6)
    large, there = some(3, 6)
    tiny, here = some(4, 7)
    return [
        Case("example", HAND, (hand, real)),
        Case("property", EQUAL, (torch.where(mask, 2.5, w), mask)),
        Case("inputs", DROPPED, (*some(3, 6),)),
        Case("inputs", DROPPED, (*some(5, 9),)),
        Case("padding", batch.NAN, (*some(3, 7, "nan"),)),
        Case("numbers", NOTHING, (torch.where(gone, 0.0, dead), gone)),
        Case("numbers", LARGE, (torch.where(there, large * 5e21, large), there)),
        Case("numbers", TINY, (torch.where(here, tiny * 2e-22, 1e4), here)),
    ]


EXERCISE = Exercise(
    name="weight_ess",
    title=Words(en="Effective sample size", zh="有效样本量"),
    reference=reference,
    returns=("ess",),
    cases=cases,
    mistakes=MISTAKES,
    alternatives={"by_variation": _by_variation, "shares": _shares},
    hints=(
        Words(
            en="Square of the sum over n times the sum of squares. What is n, and what "
            "does a dropped token add to each?",
            zh="和的平方，除以 n 乘平方和。n 是多少？被丢掉的 token 各添多少？",
        ),
        Words(
            en="0 in padding by `torch.where`; n counts real tokens, dropped ones too. If "
            "no weight is above 0 the answer is 0.",
            zh="padding 用 `torch.where` 置 0；n 数真实 token，包括被丢掉的。若没有权重大"
            "于 0，返回 0。",
        ),
        Words(
            en="Divide all weights by `w.max()` first, then `w.sum() ** 2 / (mask.sum() * "
            "w.square().sum())`.",
            zh="先把所有权重除以 `w.max()`，再算 `w.sum() ** 2 / (mask.sum() * "
            "w.square().sum())`。",
        ),
    ),
    points=(1, 1),
    minutes=6,
    # Logarithms of e^50: those of the squared sum and of the sum of squares are about 100,
    # which float32 holds to 50 eps each. ESS is 1 at most: 100 eps, 16 of them a unit.
    floor=100 / 16,
)
