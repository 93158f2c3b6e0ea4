"""Where two lists of ids part: the check that comes before any logprob."""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from tinyrl.course.exercise import Case, Exercise, Mistakes
from tinyrl.course.exercises.lab05.draws import IDS, tokens, whole
from tinyrl.course.words import Words


def _differ(a: Tensor, b: Tensor) -> list[int]:
    """All places at which they differ, missing tokens included."""
    x, y = a.tolist(), b.tolist()
    n = max(len(x), len(y))
    x, y = x + [None] * (n - len(x)), y + [None] * (n - len(y))
    return [t for t in range(n) if x[t] != y[t]]


def reference(a: Tensor, b: Tensor) -> int:
    return (_differ(a, b) or [-1])[0]


def _by_mask(a: Tensor, b: Tensor) -> int:
    n = min(len(a), len(b))
    places = (a[:n] != b[:n]).nonzero()
    if len(places):
        return int(places[0])
    return -1 if len(a) == len(b) else n


def _by_prefixes(a: Tensor, b: Tensor) -> int:
    if torch.equal(a, b):
        return -1
    lengths = range(min(len(a), len(b)) + 1)
    return max(t for t in lengths if torch.equal(a[:t], b[:t]))


def _length_forgotten(a: Tensor, b: Tensor) -> int:
    n = min(len(a), len(b))
    return reference(a[:n], b[:n])


def _first_is_none(a: Tensor, b: Tensor) -> int:
    """As `if at: return at` has it."""
    return reference(a, b) or (-1 if len(a) == len(b) else min(len(a), len(b)))


def _filled(a: Tensor, b: Tensor) -> int:
    n = max(len(a), len(b))
    x, y = (torch.nn.functional.pad(side, (0, n - len(side))) for side in (a, b))
    return reference(x, y)


def _text(a: Tensor, b: Tensor) -> int:
    """The ids are taken for what they look like when they are written down."""
    same = "".join(map(str, a.tolist())) == "".join(map(str, b.tolist()))
    return -1 if same else reference(a, b)


def _as_sets(a: Tensor, b: Tensor) -> int:
    there = set(b.tolist())
    return next((t for t, i in enumerate(a.tolist()) if i not in there), -1)


MISTAKES: Mistakes = {
    "length_forgotten": (
        _length_forgotten,
        Words(
            en="You compare up to the end of the shorter list only. Where one is the start "
            "of the other they part at its end: an `<end>` that was added is such a case.",
            zh="你只比到较短列表的末尾。一个是另一个的开头时，它们在较短者结束处分开：多出"
            "来"
            "的 `<end>` 就是这种情况。",
        ),
    ),
    "last": (
        lambda a, b: (_differ(a, b) or [-1])[-1],
        Words(
            en="This is the last place at which they differ. The first one names the "
            "cause.",
            zh="这是最后一个不同的位置。第一个才指向原因。",
        ),
    ),
    "count": (
        lambda a, b: len(_differ(a, b)) or -1,
        Words(
            en="This is how many places differ. One token more at the start makes nearly "
            "all differ: what is asked is where it begins.",
            zh="这是不同位置的个数。开头多一个 token 就几乎全不同：题目问的是从哪里开始。",
        ),
    ),
    "from_one": (
        lambda a, b: reference(a, b) + (reference(a, b) >= 0),
        Words(
            en="You count from 1. Places are indices, from 0.",
            zh="你从 1 开始数。位置是下标，从 0 开始。",
        ),
    ),
    "before": (
        lambda a, b: max(reference(a, b) - 1, -1),
        Words(
            en="This is the last place at which they still agree, one too early.",
            zh="这是最后一个仍相同的位置，早了一个。",
        ),
    ),
    "first_is_none": (
        _first_is_none,
        Words(
            en="Lists that differ from the start are told as if they did not. 0 is a "
            "place, and `if at:` takes it for none: ask `is not None`. A missing `<bos>` "
            "is there.",
            zh="从一开始就不同的列表被当成没有不同。0 也是一个位置，而 `if at:` 会把它当成"
            "“没有”：请用 `is not None`。缺少的 `<bos>` 就在那里。",
        ),
    ),
    "filled_with_0": (
        _filled,
        Words(
            en="You fill the shorter list up with 0, and 0 is an id: a list that goes on "
            "with it seems the same. Where one list ends, they differ.",
            zh="你用 0 补齐了较短的列表，而 0 也是一个 id：后面接着 0 的列表就显得相同。一"
            "个列表结束的地方就是不同。",
        ),
    ),
    "text": (
        _text,
        Words(
            en="You compare what the ids look like side by side: 1, 12 and 11, 2 are the "
            "same text and other ids. Compare the ids one by one.",
            zh="你比的是 id 连写后的样子：1, 12 和 11, 2 写出来相同，id 却不同。应当逐个比"
            "较"
            " id。",
        ),
    ),
    "from_the_end": (
        lambda a, b: reference(a.flip(0), b.flip(0)),
        Words(
            en="You align the lists at their ends. Both sides read from the left.",
            zh="你把两个列表按末尾对齐了。两边都是从左往右读的。",
        ),
    ),
    "token": (
        lambda a, b: int(torch.cat([a, b])[reference(a, b)]) if _differ(a, b) else -1,
        Words(
            en="This is the token that stands there, not its place.",
            zh="这是那里的 token，不是它的位置。",
        ),
    ),
    "same_is_length": (
        lambda a, b: reference(a, b) if _differ(a, b) else len(a),
        Words(
            en="For lists that are the same you return their length. Return -1: a place "
            "that exists in no list.",
            zh="两个列表相同时你返回了长度。应当返回 -1。",
        ),
    ),
    "as_sets": (
        _as_sets,
        Words(
            en="You look for a token that the other list does not hold anywhere. A moved "
            "token is a difference, too: compare place by place.",
            zh="你找的是另一个列表里完全没有的 token。位置变了也是不同：应当逐位比较。",
        ),
    ),
}

BY_HAND = Words(en="`<bos>` twice on one side", zh="一侧的 `<bos>` 重复了")
SAME = Words(en="the same ids on both sides", zh="两边的 id 相同")
FIRST = Words(en="one side lacks the first token", zh="一侧缺少第一个 token")
ONE = Words(en="lists of one token", zh="只有一个 token 的列表")
FILLED = Words(en="one list goes on with the id 0", zh="一个列表后面接着 id 0")
MIDDLE = Words(
    en="another token in the middle, and later ones", zh="中间换了 token，后面也有"
)
LONGER = Words(en="one list is the start of the other", zh="一个列表是另一个的开头")
RETOLD = Words(en="the same text in other ids", zh="文本相同，id 不同")
LONG = Words(en="long lists", zh="很长的列表")


def cases(generator: Generator) -> list[Case]:
    def changed(length: int) -> tuple[Tensor, Tensor]:
        a = tokens(generator, length)
        b, at = a.clone(), whole(generator, 2, length // 2)
        later = torch.rand(length, generator=generator) < 0.5
        later[: at + 1], later[at], later[-2], later[-1] = False, True, True, False
        b[later] = b[later] + 100
        return a, b

    once = torch.tensor([1, 4, 9, 7, 2, 5])
    same = tokens(generator, 9)
    start, more = tokens(generator, 7), tokens(generator, 2)
    lacking = torch.cat([same[:1] + 1, same])
    zeros = torch.cat([start, torch.zeros(2, dtype=torch.long)])
    pieces = tokens(generator, 5), tokens(generator, 3)
    # 1, 12 and 11, 2 read alike
    one, other = (
        torch.cat([pieces[0], torch.tensor(p), pieces[1]]) for p in ((1, 12), (11, 2))
    )
    # Later each side says what the other does not say anywhere.
    swapped = [
        torch.cat([start, part, torch.tensor([last])])
        for part, last in ((same, IDS), (same.roll(1), IDS + 1))
    ]
    return [
        Case("example", BY_HAND, (once, torch.cat([once[:1], once]))),
        Case("property", SAME, (same, same.clone())),
        Case("inputs", MIDDLE, changed(12)),
        Case("inputs", LONGER, (start, torch.cat([start, more]))),
        Case("inputs", LONGER, (torch.cat([start, more]), start)),
        Case("inputs", FILLED, (start, zeros)),
        Case("inputs", FIRST, (lacking, same)),
        Case("inputs", ONE, (same[:1], more[:1] + IDS)),
        Case("inputs", RETOLD, (one, other)),
        Case("inputs", MIDDLE, (swapped[0], swapped[1])),
        Case("numbers", LONG, changed(3000)),
    ]


EXERCISE = Exercise(
    name="first_difference",
    title=Words(en="Where two lists of ids part", zh="两串 id 从哪里分开"),
    reference=reference,
    returns=("place",),
    cases=cases,
    mistakes=MISTAKES,
    alternatives={"by_mask": _by_mask, "by_prefixes": _by_prefixes},
    hints=(
        Words(
            en="Two questions: is there a place, within both, at which they differ? If "
            "not, are they equally long?",
            zh="两个问题：在共有的范围内有没有不同的位置？没有的话，长度相同吗？",
        ),
        Words(
            en="Cut both to the shorter length and compare; `nonzero()` lists the places.",
            zh="把两者截到较短的长度再比较；`nonzero()` 给出所有不同的位置。",
        ),
        Words(
            en="No such place: -1 where the lengths are equal, else the shorter length.",
            zh="没有不同的位置时：长度相同返回 -1，否则返回较短的长度。",
        ),
    ),
    points=(1, 1),
    minutes=6,
    exact=True,
    whole=("place",),
)
