"""Which response tokens count, where a turn can end with one of several ids."""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from tinyrl.course.exercise import Case, Exercise, Mistakes
from tinyrl.course.exercises.lab05.draws import IDS, others, whole
from tinyrl.course.words import Words


def _is_end(ids: Tensor, ends: Tensor) -> Tensor:
    return (ids[..., None] == ends).any(-1)


def reference(ids: Tensor, ends: Tensor) -> Tensor:
    is_end = _is_end(ids, ends).long()
    return is_end.cumsum(1) - is_end == 0


def _by_rows(ids: Tensor, ends: Tensor) -> Tensor:
    known, T = set(ends.tolist()), ids.shape[1]
    lengths = []
    for row in ids.tolist():
        lengths.append(next((t + 1 for t, i in enumerate(row) if i in known), T))
    return torch.arange(T) < torch.tensor(lengths)[:, None]


def _by_argmax(ids: Tensor, ends: Tensor) -> Tensor:
    is_end = torch.isin(ids, ends)
    first = torch.where(is_end.any(1), is_end.long().argmax(1), ids.shape[1])
    return torch.arange(ids.shape[1]) <= first[:, None]


def _cut_off_dropped(ids: Tensor, ends: Tensor) -> Tensor:
    return reference(ids, ends) & _is_end(ids, ends).any(1, keepdim=True)


def _up_to_the_last(ids: Tensor, ends: Tensor) -> Tensor:
    is_end = _is_end(ids, ends)
    after = is_end.flip(1).cumsum(1).flip(1) > 0  # an end here or later
    return after | ~is_end.any(1, keepdim=True)


def _both_needed(ids: Tensor, ends: Tensor) -> Tensor:
    masks = [reference(ids, end[None]) for end in ends]
    return torch.stack(masks).any(0)


def _first_missed(ids: Tensor, ends: Tensor) -> Tensor:
    """As `argmax` has it: 0 for an end in column 0, and 0 where there is none."""
    at_once = _is_end(ids, ends)[:, :1]
    return reference(ids, ends) | at_once


MISTAKES: Mistakes = {
    "first_end_only": (
        lambda ids, ends: reference(ids, ends[:1]),
        Words(
            en="You look for the first end id alone. A response that ends with another one "
            "seems never to end, and what lies after it counts.",
            zh="你只找第一个结束符。以另一个结束符收尾的回答看起来永不结束，其后的内容也被"
            "算"
            "进去了。",
        ),
    ),
    "last_end_only": (
        lambda ids, ends: reference(ids, ends[-1:]),
        Words(
            en="You look for the last of the end ids alone. Any of them ends the turn.",
            zh="你只找最后一个结束符。其中任何一个都会结束这一轮。",
        ),
    ),
    "both_needed": (
        _both_needed,
        Words(
            en="Your response goes on until every end id has come. The first one ends it.",
            zh="你要等所有结束符都出现才算结束。第一个出现的就结束了。",
        ),
    ),
    "without_the_end": (
        lambda ids, ends: _is_end(ids, ends).long().cumsum(1) == 0,
        Words(
            en="The end itself is not counted. It was sampled, and a policy whose ends are "
            "never in the loss does not learn to stop.",
            zh="结束符本身没有计入。它也是采样出来的；结束符不进损失，策略就学不会停。",
        ),
    ),
    "by_id": (
        lambda ids, ends: ~_is_end(ids, ends),
        Words(
            en="You take out end ids wherever they stand: the real end is lost, and other "
            "padding after it counts.",
            zh="你按 id 去掉了所有结束符：真正的结尾丢了，其后的其他 padding 却被计入。",
        ),
    ),
    "first_missed": (
        _first_missed,
        Words(
            en="A response that ends with its first token counts as one without an end: "
            "`argmax` is 0 for both. Ask `any` which rows have one.",
            zh="第一个 token 就结束的回答被当成了没有结束符：两种情况下 `argmax` 都是 0。请"
            "用 `any` 判断哪些行有结束符。",
        ),
    ),
    "zero_is_padding": (
        lambda ids, ends: reference(ids, ends) & (ids != 0),
        Words(
            en="You take out the id 0 as padding. Which id padding has is not said here, "
            "and 0 before the end is a token like any other.",
            zh="你把 id 0 当成 padding 去掉了。这里没有说 padding 是哪个 id；结束之前的 0 "
            "是普通的 token。",
        ),
    ),
    "cut_off_dropped": (
        _cut_off_dropped,
        Words(
            en="A response without an end counts nothing here. It was cut off: all of its "
            "tokens were sampled and count.",
            zh="没有结束符的回答在你这里一个 token 都不算。它是被截断的：所有 token 都是采"
            "样"
            "得到的，都应计入。",
        ),
    ),
    "up_to_the_last": (
        _up_to_the_last,
        Words(
            en="You count up to the last end id of the row. Where the padding id is an end "
            "id, that is the end of the buffer.",
            zh="你一直算到这一行最后一个结束符。padding 与结束符同号时，那就是缓冲区的末尾"
            "。",
        ),
    ),
    "all": (
        lambda ids, ends: torch.ones_like(ids, dtype=torch.bool),
        Words(
            en="Every column counts, whatever lies after the end.",
            zh="所有列都被计入，包括结束之后的部分。",
        ),
    ),
    "inverted": (
        lambda ids, ends: ~reference(ids, ends),
        Words(
            en="True and false are swapped: true is on tokens that count.",
            zh="真假反了：真表示计入的 token。",
        ),
    ),
    "one_too_many": (
        lambda ids, ends: torch.nn.functional.pad(
            reference(ids, ends)[:, :-1], (1, 0), value=True
        ),
        Words(
            en="You count one token after the end.",
            zh="你多算了结束符后面的一个 token。",
        ),
    ),
}

BY_HAND = Words(
    en="ends 2 and 3; one response ends with each, one is cut off",
    zh="结束符为 2 和 3；各有一条以它们结尾，还有一条被截断",
)
NONE = Words(en="no response has an end", zh="没有一条回答有结束符")
PAD_IS_END = Words(en="the padding id is an end id", zh="padding 与结束符同号")
ONE = Words(en="a single end id", zh="只有一个结束符")
GARBAGE = Words(en="old tokens after the end", zh="结束符之后是旧内容")
LONG = Words(en="long responses", zh="很长的回答")


def cases(generator: Generator) -> list[Case]:
    def ended(
        rows: int, columns: int, many: int, pad: int | None = None, *, borders: bool = True
    ) -> list[Tensor]:
        """Responses that end with each of `many` ids in turn, or are cut off.

        At the `borders` the first ends at once, the second with the last column. Behind an
        end stands the end number `pad`, or where there is none text with another end in it.
        """
        ends = torch.randperm(IDS, generator=generator)[:many]
        ids = others(generator, ends, rows, columns)
        for row in range(rows):
            at = whole(generator, 1, columns - 4)
            at = (0, columns - 1, at)[min(row, 2)] if borders else at
            if (kind := row % (many + 1)) == many:
                continue
            ids[row, at + 3 : at + 4] = ends[(kind + 1) % many]
            ids[row, at] = ends[kind]
            if pad is not None:
                ids[row, at + 1 :] = ends[pad]
        return [ids, ends]

    by_hand = torch.tensor([[7, 2, 0, 0], [8, 9, 3, 0], [7, 8, 9, 6]])
    none = torch.randperm(IDS, generator=generator)[:2]
    return [
        Case("example", BY_HAND, (by_hand, torch.tensor([2, 3]))),
        Case("property", NONE, (others(generator, none, 3, 6), none)),
        Case("inputs", GARBAGE, (*ended(8, 8, 2),)),
        Case("inputs", PAD_IS_END, (*ended(7, 9, 2, 0),)),
        Case("inputs", PAD_IS_END, (*ended(8, 9, 3, 1),)),
        Case("inputs", ONE, (*ended(6, 8, 1),)),
        Case("inputs", GARBAGE, (*ended(9, 10, 3),)),
        Case("numbers", LONG, (*ended(4, 900, 2, borders=False),)),
    ]


EXERCISE = Exercise(
    name="end_mask",
    title=Words(en="Where a response ends", zh="回答到哪里为止"),
    reference=reference,
    returns=("mask",),
    cases=cases,
    mistakes=MISTAKES,
    alternatives={"by_rows": _by_rows, "by_argmax": _by_argmax},
    hints=(
        Words(
            en="A token counts if no end came *before* it. That keeps the end itself, and "
            "all of a response that has none.",
            zh="一个 token 只要它*之前*没有出现过结束符就计入。这样结束符本身会保留，没有结"
            "束"
            "符的回答也全部保留。",
        ),
        Words(
            en="`torch.isin(ids, ends)` marks the ends; a cumulative sum counts them.",
            zh="`torch.isin(ids, ends)` 标出结束符；累加和数出已出现几个。",
        ),
        Words(
            en="`is_end.cumsum(1) - is_end` is the number of ends before each token: it "
            "has to be 0 (make `is_end` a long first).",
            zh="`is_end.cumsum(1) - is_end` 是每个 token 之前的结束符个数：应当为 0（先把 "
            "`is_end` 转成 long）。",
        ),
    ),
    points=(1, 2),
    minutes=7,
    exact=True,
    boolean=("mask",),
)
