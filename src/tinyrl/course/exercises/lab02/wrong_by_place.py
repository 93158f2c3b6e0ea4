"""How many answers are wrong at each place."""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from tinyrl.course.exercise import Case, Exercise, Mistakes
from tinyrl.course.exercises.lab02.answers import LONG, RANDOM, RIGHT, answers, real
from tinyrl.course.words import Words


def _share(wrong: Tensor, of: Tensor) -> Tensor:
    return (wrong & of).sum(0) / of.sum(0).double()


def reference(said: Tensor, right: Tensor, length: Tensor) -> Tensor:
    return _share(said != right, real(said, length))


def _loop(said: Tensor, right: Tensor, length: Tensor) -> Tensor:
    shares = []
    for t in range(said.shape[1]):
        rows = length > t
        shares.append((said[rows, t] != right[rows, t]).double().mean())
    return torch.stack(shares)


def _nanmean(said: Tensor, right: Tensor, length: Tensor) -> Tensor:
    wrong = (said != right).float()
    return wrong.masked_fill(~real(said, length), torch.nan).nanmean(0)


def _running_mean(said: Tensor, right: Tensor, length: Tensor) -> Tensor:
    on = real(said, length)
    wrong = ((said != right) & on).sum(0).cumsum(0)
    return wrong / on.sum(0).cumsum(0)


def _spoiled(said: Tensor, right: Tensor, length: Tensor) -> Tensor:
    wrong = (said != right).cummax(1).values
    return _share(wrong, real(said, length))


def _first_only(said: Tensor, right: Tensor, length: Tensor) -> Tensor:
    wrong = said != right
    return _share(wrong & (wrong.cumsum(1) == 1), real(said, length))


def _by_answer(said: Tensor, right: Tensor, length: Tensor) -> Tensor:
    return ((said != right) & real(said, length)).sum(1) / length


MISTAKES: Mistakes = {
    "padding_counted": (
        lambda said, right, length: (said != right).double().mean(0),
        Words(
            en="The padding is counted: stale ids are compared with stale ids. Use the "
            "lengths.",
            zh="把 padding 也算进去了：拿旧 id 和旧 id 相比。请使用 length。",
        ),
    ),
    "of_all_answers": (
        lambda said, right, length: ((said != right) & real(said, length)).double().mean(0),
        Words(
            en="You divide by all answers, also those that have ended: late places look "
            "better than they are.",
            zh="你除以了全部回答，包括已经结束的：靠后的位置显得比实际更好。",
        ),
    ),
    "by_answer": (
        _by_answer,
        Words(
            en="This is a share for each answer. Asked for is one for each place: average "
            "over the rows.",
            zh="这是每条回答的比例。题目要的是每个位置的比例：对行取平均。",
        ),
    ),
    "overall": (
        lambda said, right, length: (said != right)[real(said, length)].double().mean(),
        Words(
            en="This is one share over all tokens. How it changes with the place is the "
            "question.",
            zh="这是全部 token 的一个总比例。题目问的是它如何随位置变化。",
        ),
    ),
    "accuracy": (
        lambda said, right, length: 1 - reference(said, right, length),
        Words(
            en="This is the share that is right.",
            zh="这是正确的比例。",
        ),
    ),
    "running_mean": (
        _running_mean,
        Words(
            en="This is the share of wrong tokens up to each place. Asked for is the share "
            "at each place alone.",
            zh="这是截至每个位置的累计错误率。题目要的是每个位置单独的错误率。",
        ),
    ),
    "spoiled": (
        _spoiled,
        Words(
            en="You count an answer as wrong from its first error on. Here a place is "
            "wrong if its own token is: later totals can be right again.",
            zh="你从第一个错误起就把整条回答算作错。这里只看该位置自己的 token：后面的和"
            "可以重新变对。",
        ),
    ),
    "first_only": (
        _first_only,
        Words(
            en="You count only the first error of each answer. Count them all.",
            zh="你只数了每条回答的第一个错误。所有错误都要数。",
        ),
    ),
    "one_too_long": (
        lambda said, right, length: _share(said != right, real(said, length + 1)),
        Words(
            en="Each answer counts one token too far: places are 0 .. length - 1.",
            zh="每条回答多算了一个 token：位置是 0 .. length - 1。",
        ),
    ),
}

BY_HAND = Words(en="three short answers", zh="三条很短的回答")


def cases(generator: Generator) -> list[Case]:
    said = torch.tensor([[6, 7, 8], [6, 9, 9], [7, 7, 6]])
    right = torch.tensor([[6, 7, 9], [7, 7, 9], [7, 8, 9]])
    _, same, length = answers(generator, 4, 8)
    return [
        Case("example", BY_HAND, (said, right, torch.tensor([3, 3, 1]))),
        Case("property", RIGHT, (same, same, length)),
        Case("inputs", RANDOM, answers(generator, 6, 8)),
        Case("inputs", RANDOM, answers(generator, 12, 10)),
        Case("numbers", LONG, answers(generator, 5, 1000)),
    ]


EXERCISE = Exercise(
    name="wrong_by_place",
    title=Words(en="Errors by place", zh="按位置统计错误"),
    reference=reference,
    returns=("share",),
    cases=cases,
    mistakes=MISTAKES,
    alternatives={"loop": _loop, "nanmean": _nanmean},
    hints=(
        Words(
            en="At place t, which answers are still going on?",
            zh="在位置 t，哪些回答还没有结束？",
        ),
        Words(
            en="Wrong real tokens of a column, divided by the real tokens of that column.",
            zh="一列中错误的真实 token 数，除以该列的真实 token 数。",
        ),
        Words(
            en="`real = torch.arange(T) < length[:, None]`, then `((said != right) & "
            "real).sum(0) / real.sum(0)`.",
            zh="`real = torch.arange(T) < length[:, None]`，再 `((said != right) & real)."
            "sum(0) / real.sum(0)`。",
        ),
    ),
    points=(1, 1),
    minutes=6,
)
