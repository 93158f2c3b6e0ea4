"""Errors judged by what the model had read, on the road and off it."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Generator, Tensor

from tinyrl.course.exercise import Case, Exercise, Function, Mistakes
from tinyrl.course.exercises.lab02.answers import (
    LONG,
    RANDOM,
    after_an_odd_one,
    another,
    answers,
    real,
)
from tinyrl.course.words import Words

Two = tuple[Tensor, Tensor]


def _rate(wrong: Tensor, of: Tensor) -> Tensor:
    return (wrong & of).sum() / of.sum().double()


def reference(said: Tensor, expert: Tensor, off: Tensor, length: Tensor) -> Two:
    wrong, here = said != expert, real(said, length)
    return _rate(wrong, here & ~off), _rate(wrong, here & off)


def _indexed(said: Tensor, expert: Tensor, off: Tensor, length: Tensor) -> Two:
    wrong, here = (said != expert).float(), real(said, length)
    return wrong[here & ~off].mean(), wrong[here & off].mean()


def _row_by_row(said: Tensor, expert: Tensor, off: Tensor, length: Tensor) -> Two:
    counts = torch.zeros(2, 2)
    for b, n in enumerate(length.tolist()):
        for t in range(n):
            side = int(off[b, t])
            counts[side, 0] += bool(said[b, t] != expert[b, t])
            counts[side, 1] += 1
    on, after = counts[:, 0] / counts[:, 1]
    return on, after


def _with(rate: Callable[[Tensor, Tensor, Tensor], Tensor]) -> Function:
    """Both sides by `rate(wrong, side, real)`, all bool `[B, T]`."""

    def wrong(said: Tensor, expert: Tensor, off: Tensor, length: Tensor) -> Two:
        errs, here = said != expert, real(said, length)
        return rate(errs, ~off, here), rate(errs, off, here)

    return wrong


def _row_means(errs: Tensor, side: Tensor, here: Tensor) -> Tensor:
    shares = (errs & side & here).sum(1) / (side & here).sum(1)
    return shares.nanmean()


def _swapped(said: Tensor, expert: Tensor, off: Tensor, length: Tensor) -> Two:
    return reference(said, expert, ~off, length)


def _own_place(said: Tensor, expert: Tensor, off: Tensor, length: Tensor) -> Two:
    later = torch.nn.functional.pad(off[:, 1:], (0, 1))
    return reference(said, expert, later, length)


def _first_only(said: Tensor, expert: Tensor, off: Tensor, length: Tensor) -> Two:
    errs = said != expert
    clean = errs.cumsum(1) - errs.long() == 0
    here = real(said, length) & clean
    return _rate(errs, here & ~off), _rate(errs, here & off)


MISTAKES: Mistakes = {
    "swapped": (
        _swapped,
        Words(
            en="The two are the wrong way round: on the road first.",
            zh="两个返回值的顺序反了：先返回路上的。",
        ),
    ),
    "padding_counted": (
        _with(lambda errs, side, _: _rate(errs, side)),
        Words(
            en="The padding is counted. Use the lengths on both sides.",
            zh="把 padding 也算进去了。两边都要使用 length。",
        ),
    ),
    "of_all_tokens": (
        _with(lambda errs, side, here: (errs & side & here).sum() / here.sum().double()),
        Words(
            en="You divide by all tokens. Few tokens are off the road, so their errors "
            "look rare: divide by the tokens of that side.",
            zh="你除以了全部 token。路外的 token 很少，错误就显得罕见：应当除以那一侧的 "
            "token 数。",
        ),
    ),
    "share_of_errors": (
        _with(
            lambda errs, side, here: (
                (errs & side & here).sum() / (errs & here).sum().double()
            )
        ),
        Words(
            en="This says where the errors lie. Asked for is how likely an error is, given "
            "the side.",
            zh="这说的是错误分布在哪一侧。题目要的是在某一侧时出错的概率。",
        ),
    ),
    "row_means": (
        _with(_row_means),
        Words(
            en="You average the rates of the answers, so one token of an answer that is "
            "off the road once weighs as much as ten. Here each token counts the same.",
            zh="你对每条回答的错误率取了平均：只偏离一次的回答，它那一个 token 的权重等于"
            "别人的十个。这里每个 token 权重相同。",
        ),
    ),
    "accuracy": (
        _with(lambda errs, side, here: _rate(~errs, side & here)),
        Words(
            en="These are the shares that agree with the expert.",
            zh="这是与专家一致的比例。",
        ),
    ),
    "own_place": (
        _own_place,
        Words(
            en="You shift `off`. It already says of each place what the model had read "
            "before it.",
            zh="你把 `off` 又移了一位。它在每个位置说的已经是模型此前读到的内容。",
        ),
    ),
    "first_only": (
        _first_only,
        Words(
            en="You stop at the first error of an answer. The expert judges each step by "
            "what was read, so each error counts.",
            zh="你在每条回答的第一个错误处就停了。专家按读到的内容评判每一步，所以每个错误都"
            "算。",
        ),
    ),
    "not_split": (
        _with(lambda errs, _, here: _rate(errs, here)),
        Words(
            en="Both numbers are that of all tokens. Split them by `off`.",
            zh="两个数都是全部 token 的错误率。请按 `off` 分开。",
        ),
    ),
}

BY_HAND = Words(en="two short answers", zh="两条很短的回答")
EXPERT = Words(
    en="the expert's own words on the road, never off it",
    zh="路上全是专家的答案，路外一个也不是",
)

Inputs = tuple[Tensor, Tensor, Tensor, Tensor]


def _draw(generator: Generator, rows: int, columns: int) -> Inputs:
    """Off the road errors are more frequent, and tokens fewer."""
    _, expert, length = answers(generator, rows, columns)
    off = after_an_odd_one(torch.randint(6, 10, expert.shape, generator=generator))
    p = torch.where(off, 0.7, 0.3)
    errs = torch.rand(expert.shape, generator=generator) < p
    return torch.where(errs, another(expert), expert), expert, off, length


def cases(generator: Generator) -> list[Case]:
    said = torch.tensor([[6, 7, 8, 9], [6, 9, 9, 6]])
    expert = torch.tensor([[6, 7, 9, 8], [7, 7, 9, 9]])
    off = torch.tensor([[0, 0, 1, 1], [0, 0, 1, 1]]).bool()
    _, right, road, length = _draw(generator, 4, 9)
    only = torch.where(road, another(right), right)
    return [
        Case("example", BY_HAND, (said, expert, off, torch.tensor([4, 3]))),
        Case("property", EXPERT, (only, right, road, length)),
        Case("inputs", RANDOM, _draw(generator, 5, 11)),
        Case("inputs", RANDOM, _draw(generator, 8, 14)),
        Case("numbers", LONG, _draw(generator, 4, 1000)),
    ]


EXERCISE = Exercise(
    name="local_error_split",
    title=Words(en="Local errors, on and off the road", zh="路上与路外的局部错误率"),
    reference=reference,
    returns=("on", "off"),
    cases=cases,
    mistakes=MISTAKES,
    alternatives={"indexed": _indexed, "row_by_row": _row_by_row},
    hints=(
        Words(
            en="Two conditional probabilities: of what do you take the share in each?",
            zh="这是两个条件概率：每个的分母各是什么？",
        ),
        Words(
            en="Wrong real tokens of a side, divided by the real tokens of that side.",
            zh="某一侧错误的真实 token 数，除以那一侧的真实 token 数。",
        ),
        Words(
            en="`real = torch.arange(T) < length[:, None]`, `wrong = (said != "
            "expert).float()`, then `wrong[real & off].mean()`.",
            zh="`real = torch.arange(T) < length[:, None]`，`wrong = (said != expert)."
            "float()`，再 `wrong[real & off].mean()`。",
        ),
    ),
    points=(1, 2),
    minutes=7,
)
