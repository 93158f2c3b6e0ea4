"""Three averages of the same token losses, which three algorithms take."""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from tinyrl.course.exercise import Case, Exercise, Mistakes
from tinyrl.course.exercises.lab01.batch import (
    GRADIENT,
    INF,
    NAN,
    RANDOM,
    Padding,
    garbage,
    mask_of,
    uniform,
)
from tinyrl.course.words import Words

Three = tuple[Tensor, Tensor, Tensor]


def _rows(x: Tensor, mask: Tensor) -> Tensor:
    return torch.where(mask, x, 0.0).sum(1)


def reference(x: Tensor, mask: Tensor, length: int) -> Three:
    rows, n = _rows(x, mask), mask.sum(1)
    return rows.sum() / n.sum(), (rows / n).mean(), rows.mean() / length


def _by_loops(x: Tensor, mask: Tensor, length: int) -> Three:
    each = [row[real] for row, real in zip(x, mask, strict=True)]
    tokens, B = torch.cat(each), len(each)
    means = torch.stack([row.mean() for row in each])
    return tokens.mean(), means.sum() / B, tokens.sum() / (B * length)


def _weighted(x: Tensor, mask: Tensor, length: int) -> Three:
    """A weight for each token; then one sum."""
    clean, w = x.masked_fill(~mask, 0.0), mask.to(x.dtype)
    n, B = w.sum(1, keepdim=True), len(x)
    weights = w / w.sum(), w / (n * B), w / (B * length)
    token, sequence, constant = ((clean * some).sum() for some in weights)
    return token, sequence, constant


def _put(args: tuple[Tensor, Tensor, int], place: int, value: Tensor) -> Three:
    """The right three with one of them replaced."""
    right = list(reference(*args))
    right[place] = value
    first, second, third = right
    return first, second, third


def _columns(x: Tensor, mask: Tensor, length: int) -> Three:
    B, T = x.shape
    rows = _rows(x, mask)
    return rows.sum() / (B * T), (rows / T).mean(), rows.mean() / length


def _nonzero(x: Tensor, mask: Tensor, length: int) -> Three:
    rows, n = _rows(x, mask), (mask & (x != 0)).sum(1).clamp(min=1)
    return rows.sum() / n.sum(), (rows / n).mean(), rows.mean() / length


def _times(x: Tensor, mask: Tensor, length: int) -> Three:
    rows, n = (x * mask).sum(1), mask.sum(1)
    return rows.sum() / n.sum(), (rows / n).mean(), rows.mean() / length


MISTAKES: Mistakes = {
    "columns": (
        _columns,
        Words(
            en="The first two are divided by columns, padding included. Count the real "
            "tokens.",
            zh="前两个除的是列数，包含 padding。应当数真实的 token。",
        ),
    ),
    "token_by_rows": (
        lambda *args: _put(args, 0, reference(*args)[1]),
        Words(
            en="Your token mean is a mean of means: each response weighs the same, so a "
            "token of a short one weighs more. In the token mean all tokens weigh the "
            "same.",
            zh="你的 token 平均其实是平均的平均：每条回答权重相同，短回答的 token 权重更大"
            "。token 平均里每个 token 权重相同。",
        ),
    ),
    "sequence_by_tokens": (
        lambda *args: _put(args, 1, reference(*args)[0]),
        Words(
            en="Your sequence mean is the token mean: a long response weighs more. First "
            "the mean of each response, then the mean of these.",
            zh="你的序列平均其实是 token 平均：长回答权重更大。应当先在每条回答内平均，再对"
            "回答平均。",
        ),
    ),
    "sequence_sum": (
        lambda *args: _put(args, 1, _rows(*args[:2]).mean()),
        Words(
            en="The second is the mean of the responses' *sums*. Divide each by its own "
            "number of tokens first.",
            zh="第二个是各回答*之和*的平均。每条应当先除以自己的 token 数。",
        ),
    ),
    "factor_B": (
        lambda *args: _put(args, 2, _rows(*args[:2]).sum() / args[2]),
        Words(
            en="The constant form is divided by the length alone, so it is B times too "
            "large and grows with the batch (verl did that up to 0.7.0). Divide by the "
            "number of responses as well.",
            zh="常数形式只除以了 length，大了 B 倍，还随 batch 增大（verl 到 0.7.0 为止就"
            "是这样）。还要除以回答数。",
        ),
    ),
    "width": (
        lambda *args: _put(args, 2, _rows(*args[:2]).mean() / args[0].shape[1]),
        Words(
            en="The constant form is divided by the width of this batch, so it changes "
            "with the longest response that happens to be in it. Use `length`.",
            zh="常数形式除以了这个 batch 的宽度，会随其中最长的回答变化。应当用 `length`。",
        ),
    ),
    "constant_by_tokens": (
        lambda *args: _put(args, 2, reference(*args)[1] / args[2]),
        Words(
            en="In the constant form a response's *sum* is divided by `length`; you "
            "divided by its own number of tokens as well.",
            zh="常数形式里是用每条回答的*和*除以 `length`；你还除了它自己的 token 数。",
        ),
    ),
    "order": (
        lambda *args: (reference(*args)[1], reference(*args)[0], reference(*args)[2]),
        Words(
            en="The first two are in the wrong order: token mean, sequence mean, constant.",
            zh="前两个的顺序反了：token 平均、序列平均、常数。",
        ),
    ),
    "sums": (
        lambda *args: tuple(_rows(*args[:2]).sum() for _ in range(3)),
        Words(
            en="This is the sum, three times. What differs is what it is divided by.",
            zh="这是三个相同的和。区别在于除以什么。",
        ),
    ),
    "nonzero_counted": (
        _nonzero,
        Words(
            en="You count the tokens whose loss is not 0. A real token's loss can be "
            "exactly 0: it is stopped by a clip at 0, or its advantage is 0. How many are "
            "real is what the mask says.",
            zh="你数的是损失不为 0 的 token。真实 token 的损失也可以恰好为 0，例如 "
            "advantage 为 0。有多少个真实 token 要由 mask 来数。",
        ),
    ),
    "padding_counted": (
        lambda x, mask, length: reference(x, torch.ones_like(mask), length),
        Words(
            en="The padding is in all three: its garbage in the sums, its places in the "
            "counts. Use the mask.",
            zh="三个里都有 padding：垃圾值进了和，位置进了计数。请用 mask。",
        ),
    ),
    "times_mask": (
        _times,
        Words(
            en="Multiplying by the mask does not remove NaN: NaN * 0 is NaN. Choose with "
            "`torch.where`.",
            zh="乘以 mask 去不掉 NaN：NaN * 0 还是 NaN。请用 `torch.where` 来选择。",
        ),
    ),
    "detach": (
        lambda *args: tuple(value.detach() for value in reference(*args)),
        Words(
            en="The values are right, but no gradient reaches the losses of the tokens.",
            zh="数值正确，但梯度传不到各 token 的损失。",
        ),
    ),
    "one_detached": (
        lambda *args: _put(args, 1, reference(*args)[1].detach()),
        Words(
            en="The values are right, but no gradient flows through the sequence mean.",
            zh="数值正确，但序列平均没有梯度。",
        ),
    ),
}

BY_HAND = Words(en="two responses by hand, length 4", zh="两条可手算的回答，length 为 4")
EQUAL = Words(
    en="equally long responses: the first two agree",
    zh="回答一样长：前两个相等",
)
ZEROS = Words(en="real tokens whose loss is 0", zh="有些真实 token 的损失恰好为 0")
ONE = Words(
    en="one response of one token beside a long one", zh="一条只有一个 token，另一条很长"
)
SINGLE = Words(
    en="a batch of one response, all losses below 0",
    zh="batch 里只有一条回答，损失都小于 0",
)


def cases(generator: Generator) -> list[Case]:
    def batch(
        rows: int, columns: int, padding: Padding = "finite"
    ) -> tuple[Tensor, Tensor]:
        mask = mask_of(generator, rows, columns)
        x = uniform(generator, (rows, columns), -1.0, 3.0)
        return garbage(generator, x, mask, padding), mask

    x = torch.tensor([[1.0, 3.0, 5.0], [4.0, 7.0, 7.0]])
    mask = torch.tensor([[True] * 3, [True, False, False]])
    same = uniform(generator, (4, 5), -1.0, 3.0)
    zeros, real = batch(5, 8)
    zeros[:, :2] = 0.0
    short = torch.arange(40) < torch.tensor([[40], [1]])
    uneven = uniform(generator, (2, 40), 0.0, 3.0)
    single, its = batch(1, 9)
    return [
        Case("example", BY_HAND, (x, mask, 4)),
        Case("property", EQUAL, (same, torch.ones(4, 5, dtype=torch.bool), 9)),
        Case("inputs", RANDOM, (*batch(4, 7), 16)),
        Case("inputs", RANDOM, (*batch(6, 10), 12)),
        Case("inputs", ZEROS, (zeros, real, 10)),
        Case("padding", NAN, (*batch(4, 7, "nan"), 16)),
        Case("padding", INF, (*batch(3, 6, "inf"), 8)),
        Case("gradient", GRADIENT, (*batch(5, 8, "nan"), 11)),
        Case("numbers", ONE, (uneven, short, 64)),
        Case("numbers", SINGLE, (single - 4, its, 20)),
    ]


EXERCISE = Exercise(
    name="aggregates",
    title=Words(en="Three averages", zh="三种平均"),
    reference=reference,
    returns=("token_mean", "sequence_mean", "constant"),
    cases=cases,
    mistakes=MISTAKES,
    alternatives={"loops": _by_loops, "weighted": _weighted},
    hints=(
        Words(
            en="One sum for each response and one count for each response: all three are "
            "made of these.",
            zh="每条回答一个和、一个计数：三种平均都由它们组成。",
        ),
        Words(
            en="Sum of sums over sum of counts; mean of sum over count; mean of sums over "
            "`length`.",
            zh="和之和除以计数之和；各自和除以计数再平均；和的平均再除以 `length`。",
        ),
        Words(
            en="`rows = torch.where(mask, x, 0.0).sum(1)`, `n = mask.sum(1)`; "
            "`rows.sum() / n.sum()`, `(rows / n).mean()`, `rows.mean() / length`.",
            zh="先 `rows = torch.where(mask, x, 0.0).sum(1)` 和 `n = mask.sum(1)`，再 "
            "`rows.sum() / n.sum()`、`(rows / n).mean()`、`rows.mean() / length`。",
        ),
    ),
    points=(1, 2),
    minutes=7,
    gradient=("x",),
    floor=2.0,  # losses of both signs cancel
)
