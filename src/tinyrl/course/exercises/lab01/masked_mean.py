"""The mean over real tokens: the average that every metric of the course is."""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from tinyrl.course.exercise import Case, Exercise, Mistakes
from tinyrl.course.exercises.lab01 import batch
from tinyrl.course.words import Words


def reference(x: Tensor, mask: Tensor) -> Tensor:
    return torch.where(mask, x, 0.0).sum() / mask.sum()


def _selected(x: Tensor, mask: Tensor) -> Tensor:
    return x[mask].mean()


def _weighted(x: Tensor, mask: Tensor) -> Tensor:
    """Mean of row means, each row weighted by its number of tokens."""
    count = mask.sum(-1)
    row_mean = x.masked_fill(~mask, 0.0).sum(-1) / count
    return (row_mean * count).sum() / count.sum()


def _row_means(x: Tensor, mask: Tensor) -> Tensor:
    return (torch.where(mask, x, 0.0).sum(-1) / mask.sum(-1)).mean()


def _by_length(x: Tensor, mask: Tensor) -> Tensor:
    return reference(x, torch.arange(mask.shape[1]) < mask.sum(-1, keepdim=True))


MISTAKES: Mistakes = {
    "all_columns": (
        lambda x, mask: torch.where(mask, x, 0.0).mean(),
        Words(
            en="You divide by B * T, padding included: the more padding, the smaller the "
            "mean. Divide by the number of real tokens, `mask.sum()`.",
            zh="你除以了 B * T，padding 也算在内：padding 越多，平均值越小。应当除以真实"
            " token 数 `mask.sum()`。",
        ),
    ),
    "row_means": (
        _row_means,
        Words(
            en="This is the mean of the rows' means: a token of a short response weighs "
            "more. Both are used (it is sample mean against token mean); here each token "
            "counts the same.",
            zh="这是各行平均值的平均：短回答里的 token 权重更大。两种写法都有人用（样本平"
            "均和 token 平均），这里要求每个 token 权重相同。",
        ),
    ),
    "sum": (
        lambda x, mask: torch.where(mask, x, 0.0).sum(),
        Words(
            en="This is the sum; divide by the number of real tokens.",
            zh="这是和，还要除以真实 token 数。",
        ),
    ),
    "per_row": (
        lambda x, mask: torch.where(mask, x, 0.0).sum(-1) / mask.sum(-1),
        Words(
            en="This is a mean for each response. Asked for is one number over all tokens "
            "of the batch.",
            zh="这是每条回答各自的平均。题目要的是整个 batch 所有 token 的平均，一个数。",
        ),
    ),
    "per_response": (
        lambda x, mask: torch.where(mask, x, 0.0).sum() / x.shape[0],
        Words(
            en="You divide by the number of responses. Divide by the number of tokens.",
            zh="你除以了回答的条数。应当除以 token 数。",
        ),
    ),
    "padding_counted": (
        lambda x, mask: x.mean(),
        Words(
            en="The padding is counted: the mask is not used at all.",
            zh="把 padding 也算进去了：根本没有用到 mask。",
        ),
    ),
    "times_mask": (
        lambda x, mask: (x * mask).sum() / mask.sum(),
        Words(
            en="Multiplying by the mask does not remove NaN: NaN * 0 is NaN, and one such "
            "token makes the whole mean NaN. Choose with `torch.where`.",
            zh="乘以 mask 去不掉 NaN：NaN * 0 还是 NaN，只要有一个，整个平均就是 NaN。请用"
            " `torch.where` 来选择。",
        ),
    ),
    "mask_inverted": (
        lambda x, mask: torch.where(~mask, x, 0.0).sum() / (~mask).sum(),
        Words(
            en="The mask is the wrong way round: this is the mean of the padding.",
            zh="mask 用反了：这是 padding 的平均。",
        ),
    ),
    "nonzero_counted": (
        lambda x, mask: (y := torch.where(mask, x, 0.0)).sum() / (y != 0).sum(),
        batch.NONZERO,
    ),
    "by_length": (
        _by_length,
        Words(
            en="You take the first n tokens of a response, n being how many are real. The "
            "mask may have holes, where a correction has dropped tokens: choose by `mask`.",
            zh="你取了每条回答的前 n 个 token，n 是真实 token 的个数。mask 中间可能有空洞"
            "（修正方法剔除了一些 token）：应当按 `mask` 来选。",
        ),
    ),
    "one_too_many": (
        lambda x, mask: torch.where(mask, x, 0.0).sum() / (mask.sum() + 1),
        Words(
            en="The count is one too high. A mask of real tokens is never empty here, so "
            "the denominator needs no `+ 1`.",
            zh="分母多了 1。这里的 mask 不会为空，分母不需要 `+ 1`。",
        ),
    ),
    "median": (
        lambda x, mask: x[mask].median(),
        Words(
            en="This is the median. It hides the rare, large deltas that a mean shows.",
            zh="这是中位数。它会掩盖少数很大的 delta，而平均能反映出来。",
        ),
    ),
    "absolute": (
        lambda x, mask: torch.where(mask, x, 0.0).abs().sum() / mask.sum(),
        Words(
            en="This is the mean of |x|: values of opposite sign no longer cancel.",
            zh="这是 |x| 的平均：正负值不再相互抵消。",
        ),
    ),
    "detach": (
        lambda x, mask: torch.tensor(reference(x, mask).item()),
        Words(
            en="The value is right, but no gradient reaches x: `.item()`, `detach` or "
            "numpy cuts it. A loss is a masked mean, too.",
            zh="数值正确，但梯度传不到 x：被 `.item()`、`detach` 或 numpy 切断了。loss 本"
            "身也是一个带 mask 的平均。",
        ),
    ),
}

X = torch.tensor([[1.0, 2.0, 6.0], [-4.0, 5.0, 0.0]])
HOLES = Words(
    en="a mask with a hole: a token in the middle of each response was dropped",
    zh="mask 中间有空洞：每条回答中间有一个 token 被剔除",
)
BELOW = Words(en="a mean below 0", zh="平均值小于 0")
ZEROS = Words(en="real tokens whose x is 0", zh="有些真实 token 的 x 恰好为 0")
CANCEL = Words(en="large numbers that nearly cancel", zh="几乎相互抵消的大数")


def cases(generator: Generator) -> list[Case]:
    def draw(
        rows: int, columns: int, padding: batch.Padding, low: float = -1.0
    ) -> tuple[Tensor, Tensor]:
        mask = batch.mask_of(generator, rows, columns)
        x = batch.uniform(generator, (rows, columns), low, low + 4)
        return batch.garbage(generator, x, mask, padding), mask

    x, mask = draw(3, 8, "finite")
    holes = mask.clone()
    holes[:, 1] = False
    zeros, real = draw(4, 8, "finite")
    zeros[:, :2] = 0
    sign = torch.tensor([1.0, -1.0]).repeat(100)
    cancel = 1e4 * sign + batch.uniform(generator, (2, 200), 0.0, 1.0)
    return [
        Case("example", batch.BY_HAND, (X, batch.MASK)),
        Case("property", HOLES, (x, holes)),
        Case("inputs", batch.RANDOM, draw(3, 6, "finite")),
        Case("inputs", BELOW, draw(5, 10, "finite", -3.5)),
        Case("inputs", ZEROS, (zeros, real)),
        Case("padding", batch.NAN, draw(3, 6, "nan")),
        Case("padding", batch.INF, draw(3, 6, "inf")),
        Case("gradient", batch.GRADIENT, draw(3, 6, "nan")),
        Case("numbers", CANCEL, (cancel, batch.mask_of(generator, 2, 200))),
    ]


EXERCISE = Exercise(
    name="masked_mean",
    title=Words(en="The mean over real tokens", zh="真实 token 上的平均"),
    reference=reference,
    returns=("masked_mean",),
    cases=cases,
    mistakes=MISTAKES,
    alternatives={"selection": _selected, "weighted_row_means": _weighted},
    hints=(
        Words(
            en="How many numbers go into the mean? Not B * T.",
            zh="参与平均的数一共有多少个？不是 B * T。",
        ),
        Words(
            en="Sum of x over real tokens, divided by how many there are. Garbage must be "
            "replaced before it is summed. Ask the mask, not a length: it may have holes.",
            zh="真实 token 上 x 之和，除以真实 token 的个数。求和之前要先替换掉垃圾值。要看"
            " mask 而不是长度：mask 中间可能有空洞。",
        ),
        Words(
            en="`x[mask]` picks the real tokens into one row; or "
            "`torch.where(mask, x, 0.0)` and `mask.sum()`.",
            zh="`x[mask]` 可以把真实 token 选成一行；也可以用 `torch.where(mask, x, 0.0)` "
            "和 `mask.sum()`。",
        ),
    ),
    points=(1, 1),
    minutes=5,
    gradient=("x",),
)
