"""How much a correction threw away: of tokens, of responses, of whole responses."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Generator, Tensor

from tinyrl.course.exercise import Case, Exercise, Function, Mistakes
from tinyrl.course.exercises.lab01 import batch
from tinyrl.course.exercises.lab10 import slips
from tinyrl.course.exercises.lab10.told import COLUMNS
from tinyrl.course.words import Words

Three = tuple[Tensor, Tensor, Tensor]


def _three(out: Tensor, mask: Tensor) -> Three:
    """Of `out [B, T]`, true on real tokens that were dropped."""
    lost, tokens = out.sum(1).double(), mask.sum(1)
    some, whole = (lost > 0).double(), (lost == tokens).double()
    return lost.sum() / tokens.sum(), some.mean(), whole.mean()


def reference(weight: Tensor, mask: Tensor) -> Three:
    return _three((weight == 0) & mask, mask)


def _by_kept(weight: Tensor, mask: Tensor) -> Three:
    kept = torch.where(mask, weight, 0.0) != 0
    share = kept.sum() / mask.sum()
    whole = ~kept.any(1)
    some = (kept != mask).any(1)
    return 1 - share, some.float().mean(), whole.float().mean()


def _lists(weight: Tensor, mask: Tensor) -> tuple[float, float, float]:
    rows = [
        [w == 0 for w, real in zip(ws, reals, strict=True) if real]
        for ws, reals in zip(weight.tolist(), mask.tolist(), strict=True)
    ]
    tokens = sum(len(row) for row in rows)
    return (
        sum(sum(row) for row in rows) / tokens,
        sum(any(row) for row in rows) / len(rows),
        sum(all(row) for row in rows) / len(rows),
    )


def _chosen(choose: Callable[[Tensor], Tensor]) -> Function:
    """The shares of tokens whose weight is one that `choose` picks."""
    return lambda weight, mask: _three(choose(weight) & mask, mask)


def _with(i: int, f: Callable[[Tensor, Tensor], Tensor]) -> Function:
    """The right numbers, but for the one at `i`: `f` of what was dropped and the mask."""

    def wrong(weight: Tensor, mask: Tensor) -> tuple[Tensor, ...]:
        right = list(reference(weight, mask))
        right[i] = f((weight == 0) & mask, mask)
        return tuple(right)

    return wrong


def _by_product(weight: Tensor, mask: Tensor) -> Three:
    """By the product of the weights, which is 0 although none of them is."""
    tokens, _, whole = reference(weight, mask)
    some = torch.where(mask, weight, 1.0).prod(1) == 0
    return tokens, some.double().mean(), whole


MISTAKES: Mistakes = {
    "kept": (
        lambda weight, mask: _three((weight != 0) & mask, mask),
        Words(
            en="These are the shares of what was kept. Asked for is what was dropped.",
            zh="这是被保留的比例。题目要的是被丢弃的比例。",
        ),
    ),
    "padding_dropped": (
        lambda weight, mask: _three(torch.where(mask, weight, 0.0) == 0, mask),
        Words(
            en="Padding counts as dropped. A correction drops real tokens; what never was "
            "one can't be lost.",
            zh="padding 被当成了被丢弃的 token。修正丢弃的是真实 token，padding 谈不上丢弃"
            "。",
        ),
    ),
    "all_columns": (
        _with(0, lambda out, mask: out.double().mean()),
        COLUMNS,
    ),
    "row_means": (
        _with(0, lambda out, mask: (out.sum(1) / mask.sum(1)).mean()),
        Words(
            en="The first share is averaged by response. Each real token counts the same.",
            zh="第一个比例先按回答取了平均。每个真实 token 权重应当相同。",
        ),
    ),
    "below_1": (
        _chosen(lambda w: w < 1),
        Words(
            en="You count weights below 1. They are small, not dropped: only a weight of 0 "
            "takes a token out of the loss.",
            zh="你数的是小于 1 的权重。它们只是小，并没有被丢弃：只有权重为 0 才会把 token "
            "移出损失。",
        ),
    ),
    "not_1": (
        _chosen(lambda w: w != 1),
        Words(
            en="You count weights that are not 1: whatever was weighed, kept or not.",
            zh="你数的是不等于 1 的权重：凡是被加权过的都算上了，无论是否保留。",
        ),
    ),
    "nearly_0": (
        _chosen(lambda w: w < 1e-6),
        Words(
            en="A weight of 1e-7 is small and kept. Compare with 0 exactly: a mask writes "
            "an exact 0.",
            zh="1e-7 的权重虽小，仍被保留。应当与 0 精确比较：掩码写入的是精确的 0。",
        ),
    ),
    "whole_by_columns": (
        _with(2, lambda out, mask: out.all(1).double().mean()),
        Words(
            en="A response shorter than T is never counted as lost: its padding is not. "
            "Compare with its own number of tokens.",
            zh="比 T 短的回答永远不会被算作整条丢弃，因为 padding 不在其中。应当与它自己的 "
            "token 数比较。",
        ),
    ),
    "not_whole": (
        _with(1, lambda out, mask: (out.any(1) & (out != mask).any(1)).double().mean()),
        Words(
            en="A response that lost everything has lost a token, too: it belongs to both.",
            zh="整条被丢弃的回答当然也丢了 token：两个比例都要算上它。",
        ),
    ),
    "whole_of_touched": (
        _with(
            2,
            lambda out, mask: ((out == mask).all(1).sum()) / out.any(1).sum().clamp(min=1),
        ),
        Words(
            en="The third share is of the responses that lost a token. It is of all.",
            zh="第三个比例的分母用的是丢过 token 的回答数。分母应当是全部回答数。",
        ),
    ),
    "mostly": (
        _with(2, lambda out, mask: (2 * out.sum(1) > mask.sum(1)).double().mean()),
        Words(
            en="You count responses that lost more than half. Whole is all of it.",
            zh="你数的是丢掉一半以上的回答。整条丢弃是指全部丢掉。",
        ),
    ),
    "swapped": (
        lambda weight, mask: tuple(reference(weight, mask)[i] for i in (0, 2, 1)),
        Words(
            en="The last two are the wrong way round: lost a token, lost all of them.",
            zh="后两个数的顺序反了：先是丢了至少一个 token 的，再是整条丢弃的。",
        ),
    ),
    "counts": (
        lambda weight, mask: (
            ((weight == 0) & mask).sum(),
            ((weight == 0) & mask).any(1).sum(),
            ((weight == 0) | ~mask).all(1).sum(),
        ),
        Words(
            en="These are counts. Divide the first by the tokens, the others by the "
            "responses.",
            zh="这是个数。第一个要除以 token 数，另外两个除以回答数。",
        ),
    ),
    "by_product": (
        _by_product,
        Words(
            en="The product of many small weights is 0 although none of them is. Look for "
            "a weight of 0.",
            zh="许多小权重相乘会变成 0，尽管没有一个是 0。应当直接找等于 0 的权重。",
        ),
    ),
} | slips.DROPPED

HAND = Words(en="three responses by hand", zh="三条可手算的回答")
NOTHING = Words(en="nothing is dropped", zh="什么也没有丢弃")
RANDOM = Words(en="random weights, some of them 0", zh="随机权重，有些为 0")
ALL = Words(en="everything is dropped", zh="全部被丢弃")
SMALL = Words(en="weights down to 1e-37", zh="小到 1e-37 的权重")


def draw(
    generator: Generator, rows: int, columns: int, padding: batch.Padding = "finite"
) -> tuple[Tensor, Tensor]:
    """Weights and mask: a row untouched, one all dropped, one with a single token left,
    others in part."""
    mask = batch.mask_of(generator, rows, columns)
    weight = batch.uniform(generator, (rows, columns), 0.1, 2.0)
    weight = torch.where(weight > 1.7, 1.0, weight)
    out = torch.rand(rows, columns, generator=generator) < 0.4
    out[:, 0] = torch.arange(rows) % 2 == 0
    out[0], out[1:3] = False, True
    out[2, 1] = False
    order = torch.randperm(rows, generator=generator)
    weight = torch.where(out[order], 0.0, weight)
    filler = torch.rand(rows, columns, generator=generator).round()
    if padding != "finite":
        filler = torch.full_like(weight, float(padding))
    return torch.where(mask, weight, filler), mask


def cases(generator: Generator) -> list[Case]:
    hand = torch.tensor([[1.0, 0.0, 0.5, 2.0], [0.0, 0.0, 0.7, 0.9], [0.8, 1.0, 1.0, 0.0]])
    real = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0], [1, 1, 1, 0]]).bool()
    weight, mask = draw(generator, 4, 7)
    small, there = draw(generator, 5, 9)
    tiny = 10 ** batch.uniform(generator, (5, 9), -36, -12)
    tiny[:, 1] = 1e-37
    gone, left = draw(generator, 3, 8)
    left[0, 1:] = False  # a response of one token
    return [
        Case("example", HAND, (hand, real)),
        Case("property", NOTHING, (torch.where(weight == 0, 0.3, weight), mask)),
        Case("inputs", RANDOM, draw(generator, 4, 6)),
        Case("inputs", RANDOM, draw(generator, 6, 9)),
        Case("inputs", RANDOM, draw(generator, 5, 7)),
        Case("inputs", ALL, (torch.where(left, 0.0, gone), left)),
        Case("padding", batch.NAN, draw(generator, 4, 7, "nan")),
        Case("numbers", SMALL, (torch.where(small == 0, 0.0, tiny), there)),
    ]


EXERCISE = Exercise(
    name="dropped_shares",
    title=Words(en="What a correction dropped", zh="修正丢弃了多少"),
    reference=reference,
    returns=("tokens", "some", "whole"),
    cases=cases,
    mistakes=MISTAKES,
    alternatives={"by_kept": _by_kept, "lists": _lists},
    hints=(
        Words(
            en="What is dropped is a real token whose weight is 0. Write that down first, "
            "as booleans [B, T].",
            zh="被丢弃的是权重为 0 的真实 token。先把它写成布尔数组 [B, T]。",
        ),
        Words(
            en="Count per response, and compare with how many tokens the response has.",
            zh="按回答计数，再与这条回答的 token 数比较。",
        ),
        Words(
            en="`out = (weight == 0) & mask`, `lost, n = out.sum(1), mask.sum(1)`; then "
            "`lost.sum() / n.sum()`, `lost > 0` and `lost == n`.",
            zh="`out = (weight == 0) & mask`，`lost, n = out.sum(1), mask.sum(1)`；再用 "
            "`lost.sum() / n.sum()`、`lost > 0` 和 `lost == n`。",
        ),
    ),
    points=(1, 1),
    minutes=6,
    exact=True,
)
