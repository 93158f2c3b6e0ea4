"""Position ids from an attention mask, wherever the padding lies."""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from tinyrl.course.exercise import Case, Exercise, Mistakes
from tinyrl.course.exercises.lab05.draws import padded, spans, whole
from tinyrl.course.words import Words


def reference(attention: Tensor) -> Tensor:
    return torch.where(attention, attention.long().cumsum(1) - 1, 0)


def _by_start(attention: Tensor) -> Tensor:
    first = attention.long().argmax(1, keepdim=True)
    return (torch.arange(attention.shape[1]) - first) * attention


def _by_rows(attention: Tensor) -> Tensor:
    positions = torch.zeros(attention.shape, dtype=torch.long)
    for row, real in zip(positions, attention, strict=True):
        row[real] = torch.arange(int(real.sum()))
    return positions


def _columns(attention: Tensor) -> Tensor:
    return torch.arange(attention.shape[1]).expand(attention.shape)


def _from_the_end(attention: Tensor) -> Tensor:
    real = attention.long()
    return torch.where(attention, real.flip(1).cumsum(1).flip(1) - 1, 0)


def _padding_taken_off(attention: Tensor) -> Tensor:
    """Column minus the number of padding tokens of the row, on whichever side."""
    columns = torch.arange(attention.shape[1]) - (~attention).sum(1, keepdim=True)
    return torch.where(attention, columns, 0)


MISTAKES: Mistakes = {
    "columns": (
        _columns,
        Words(
            en="This is the column. Behind padding it is too large, and padding has none: "
            "count the real tokens.",
            zh="这是列号。前面有 padding 时它偏大，padding 上也不该有：应当数真实 token。",
        ),
    ),
    "columns_of_real": (
        lambda attention: _columns(attention) * attention,
        Words(
            en="Padding is 0, but real tokens are told their column: after padding on the "
            "left they begin too late.",
            zh="padding 上是 0，但真实 token 用的是列号：左侧有 padding 时开头就偏了。",
        ),
    ),
    "from_one": (
        lambda attention: attention.long().cumsum(1) * attention,
        Words(
            en="You count from 1: the running sum includes the token itself. Take 1 off.",
            zh="你从 1 开始数：累加和包含了自己。应当减 1。",
        ),
    ),
    "padding_left": (
        lambda attention: attention.long().cumsum(1) - 1,
        Words(
            en="Real tokens are right. Padding is asked to be 0, and the running sum gives "
            "-1 in front (no row of a table of learned positions) and more at the end.",
            zh="真实 token 是对的。padding 应为 0，而累加和在前面给出 -1（学习式位置表里没"
            "有这"
            "一行），在后面给出更大的数。",
        ),
    ),
    "clamped": (
        lambda attention: (attention.long().cumsum(1) - 1).clamp(min=0),
        Words(
            en="Padding in front is 0 now, padding at the end goes on with the last "
            "position. It is asked to be 0 on both sides.",
            zh="前面的 padding 是 0 了，后面的却延续了最后的位置。两侧都应为 0。",
        ),
    ),
    "padding_taken_off": (
        _padding_taken_off,
        Words(
            en="You take off all padding of a row. What lies after the tokens does not "
            "move them.",
            zh="你减去了整行的 padding 数。token 后面的 padding 不会移动它们。",
        ),
    ),
    "from_the_end": (
        _from_the_end,
        Words(
            en="You count from the last token backwards.",
            zh="你是从最后一个 token 往前数的。",
        ),
    ),
    "down_the_batch": (
        lambda attention: torch.where(attention, attention.long().cumsum(0) - 1, 0),
        Words(
            en="The running sum goes down the batch. Tokens are the second axis.",
            zh="你沿 batch 方向累加了。token 是第二个维度。",
        ),
    ),
    "padding_numbered": (
        lambda attention: torch.where(attention, 0, (~attention).long().cumsum(1) - 1),
        Words(
            en="The mask is the wrong way round: you number the padding.",
            zh="mask 用反了：你在给 padding 编号。",
        ),
    ),
}

BY_HAND = Words(en="padding left, right, and none", zh="左侧、右侧和没有 padding")
FULL = Words(en="no padding: the columns", zh="没有 padding：就是列号")
MIXED = Words(en="padding on either side, or both", zh="padding 在一侧或两侧")
LONE = Words(en="rows of one real token", zh="只有一个真实 token 的行")
LONG = Words(en="long rows", zh="很长的行")


def cases(generator: Generator) -> list[Case]:
    def mask(rows: int, columns: int) -> Tensor:
        return spans(*padded(generator, rows, columns), columns)

    def lone(columns: int) -> Tensor:
        """One real token: the first, the last, and one between."""
        at = torch.tensor([0, columns - 1, whole(generator, 1, columns - 2)])
        return spans(at, torch.ones(3), columns)

    by_hand = torch.tensor([[0, 0, 1, 1], [1, 1, 1, 0], [1, 1, 1, 1]]).bool()
    a, b = whole(generator, 2, 5), whole(generator, 3, 8)
    return [
        Case("example", BY_HAND, (by_hand,)),
        Case("property", FULL, (torch.ones(a, b).bool(),)),
        Case("inputs", MIXED, (mask(5, 8 + a),)),
        Case("inputs", MIXED, (mask(8, 9 + b),)),
        Case("inputs", LONE, (lone(4 + a),)),
        Case("numbers", LONG, (mask(4, 900 + a),)),
    ]


EXERCISE = Exercise(
    name="position_ids",
    title=Words(en="Position ids from the mask", zh="由 mask 得到位置编号"),
    reference=reference,
    returns=("positions",),
    cases=cases,
    mistakes=MISTAKES,
    alternatives={"by_start": _by_start, "by_rows": _by_rows},
    hints=(
        Words(
            en="How many real tokens of its row lie before a token? That is its position.",
            zh="一个 token 之前有多少个本行的真实 token？那就是它的位置。",
        ),
        Words(
            en="A running sum of the mask counts real tokens, itself included.",
            zh="对 mask 做累加，就是到自己为止的真实 token 数。",
        ),
        Words(
            en="`attention.long().cumsum(1) - 1`, then 0 on padding with `torch.where`.",
            zh="`attention.long().cumsum(1) - 1`，再用 `torch.where` 把 padding 置 0。",
        ),
    ),
    points=(1, 1),
    minutes=6,
    exact=True,
    whole=("positions",),
)
