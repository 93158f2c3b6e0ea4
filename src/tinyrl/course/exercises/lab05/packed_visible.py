"""Who sees whom in a row that holds several conversations."""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from tinyrl.course.exercise import Case, Exercise, Mistakes
from tinyrl.course.exercises.lab05.draws import whole
from tinyrl.course.words import Words


def _same(segments: Tensor) -> Tensor:
    return segments[:, :, None] == segments[:, None, :]


def _causal(segments: Tensor) -> Tensor:
    return torch.ones(segments.shape[1], segments.shape[1]).tril().bool()


def reference(segments: Tensor) -> Tensor:
    return _same(segments) & _causal(segments)


def _by_product(segments: Tensor) -> Tensor:
    """Membership `[R, L, segments]` times itself: 1 where two tokens share a segment."""
    numbers = torch.arange(-1, int(segments.max()) + 1)
    member = (segments[..., None] == numbers).float()
    together: Tensor = member @ member.transpose(1, 2)
    return together.tril() > 0


def _by_loops(segments: Tensor) -> Tensor:
    rows = segments.tolist()
    seen = [
        [[j <= i and row[j] == row[i] for j in range(len(row))] for i in range(len(row))]
        for row in rows
    ]
    return torch.tensor(seen)


def _neighbours_too(segments: Tensor) -> Tensor:
    return _causal(segments).expand(len(segments), -1, -1)


def _earlier_too(segments: Tensor) -> Tensor:
    return (segments[:, :, None] >= segments[:, None, :]) & _causal(segments)


def _blind_padding(segments: Tensor) -> Tensor:
    return reference(segments) & (segments >= 0)[:, :, None]


def _not_itself(segments: Tensor) -> Tensor:
    return _same(segments) & _causal(segments).tril(-1)


def _padding_seen(segments: Tensor) -> Tensor:
    return (_same(segments) | (segments < 0)[:, None, :]) & _causal(segments)


MISTAKES: Mistakes = {
    "neighbours_too": (
        _neighbours_too,
        Words(
            en="Causal, and nothing else: a conversation reads the one before it in the "
            "row. "
            "Compare segments, too.",
            zh="你只做了因果遮挡：一段对话会读到同一行里前面那段。还要比较 segment。",
        ),
    ),
    "not_causal": (
        _same,
        Words(
            en="A token sees the later ones of its conversation: those that it has to "
            "predict.",
            zh="token 看到了同一段对话里后面的内容：正是它要预测的部分。",
        ),
    ),
    "earlier_too": (
        _earlier_too,
        Words(
            en="Segments are compared by >=, so a conversation sees all with smaller "
            "numbers. Only the same number may be seen.",
            zh="你用 >= 比较 segment，于是能看到编号更小的所有对话。只有编号相同才可见。",
        ),
    ),
    "not_itself": (
        _not_itself,
        Words(
            en="A token does not see itself, and the first of a conversation sees nothing.",
            zh="你的 token 看不到自己，于是每段对话的第一个 token 什么都看不到。",
        ),
    ),
    "blind_padding": (
        _blind_padding,
        Words(
            en="Padding sees nothing: a softmax over no key is NaN, and NaN * 0 is NaN in "
            "every gradient. Let it see its own segment, -1, like any other.",
            zh="padding 什么都看不到：对空集做 softmax 得 NaN，而 NaN * 0 在梯度里还是 NaN"
            "。让"
            "它像其他 token 一样看自己的 segment（-1）。",
        ),
    ),
    "padding_seen": (
        _padding_seen,
        Words(
            en="Real tokens see padding that lies before them in the row.",
            zh="真实 token 看到了本行前面的 padding。",
        ),
    ),
    "transposed": (
        lambda segments: reference(segments).transpose(1, 2),
        Words(
            en="The axes are swapped: visible[r, i, j] is about query i and key j.",
            zh="两个维度反了：visible[r, i, j] 里 i 是 query，j 是 key。",
        ),
    ),
    "inverted": (
        lambda segments: ~reference(segments),
        Words(
            en="True and false are swapped: true is where a query may look.",
            zh="真假反了：真表示 query 可以看的地方。",
        ),
    ),
    "one_row_for_all": (
        lambda segments: reference(segments[:1]).expand(len(segments), -1, -1),
        Words(
            en="All rows get the picture of the first. Each row is packed otherwise.",
            zh="所有行都用了第一行的结果。每一行的打包方式不同。",
        ),
    ),
}

BY_HAND = Words(
    en="two conversations and padding; the same, packed otherwise",
    zh="两段对话加 padding；另一种打包方式",
)
ONE = Words(en="one conversation a row: causal", zh="每行一段对话：就是因果遮挡")
PACKED = Words(
    en="several conversations a row, padding on either side",
    zh="每行多段对话，两侧有 padding",
)
LONG = Words(en="long rows", zh="很长的行")


def cases(generator: Generator) -> list[Case]:
    def packed(rows: int, columns: int) -> Tensor:
        """Conversations of one token or more, numbered in any order.

        The first row begins with numbers 0 and 1. Every other row has padding in front, two
        in three have some at the end.
        """
        made = torch.full((rows, columns), -1)
        for row in range(rows):
            at, end = row % 2 * whole(generator, 1, 2), columns - whole(generator, 1, 2)
            end = columns if row % 3 == 1 else end
            numbers = torch.randperm(columns + 50, generator=generator).tolist()
            numbers = numbers if row else [0, 1, *(n for n in numbers if n > 1)]
            sizes = [1] if row == 1 else []
            while at < end:
                size = sizes.pop() if sizes else whole(generator, 2, 1 + columns // 3)
                made[row, at : min(at + size, end)] = numbers.pop(0)
                at += size
        return made

    by_hand = torch.tensor([[0, 0, 1, 1, -1], [2, 2, 2, 3, -1]])
    size = whole(generator, 3, 7)
    return [
        Case("example", BY_HAND, (by_hand,)),
        Case(
            "property", ONE, (torch.arange(size)[:, None].expand(size, size + 1).clone(),)
        ),
        Case("inputs", PACKED, (packed(3, 12),)),
        Case("inputs", PACKED, (packed(4, 15),)),
        Case("numbers", LONG, (packed(2, 200),)),
    ]


EXERCISE = Exercise(
    name="packed_visible",
    title=Words(en="Who sees whom in a packed row", zh="打包之后谁能看到谁"),
    reference=reference,
    returns=("visible",),
    cases=cases,
    mistakes=MISTAKES,
    alternatives={"by_product": _by_product, "by_loops": _by_loops},
    hints=(
        Words(
            en="Two conditions on a query i and a key j: not after it, and of the same "
            "conversation.",
            zh="query i 和 key j 要满足两个条件：key 不在它后面，而且属于同一段对话。",
        ),
        Words(
            en="`segments[:, :, None]` holds the queries' numbers, `segments[:, None, :]` "
            "the keys'.",
            zh="`segments[:, :, None]` 是 query 的编号，`segments[:, None, :]` 是 key 的编"
            "号。",
        ),
        Words(
            en="`torch.ones(L, L).tril().bool()` is the causal part. Padding needs no "
            "special case.",
            zh="`torch.ones(L, L).tril().bool()` 是因果部分。padding 不需要特殊处理。",
        ),
    ),
    points=(1, 2),
    minutes=7,
    exact=True,
    boolean=("visible",),
)
