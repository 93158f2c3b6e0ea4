"""The hazard: of the answers that are right so far, the share that goes wrong next."""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from tinyrl.course.exercise import Case, Exercise, Mistakes
from tinyrl.course.exercises.lab01.batch import lengths
from tinyrl.course.exercises.lab02.answers import real
from tinyrl.course.words import Words


def _before(wrong: Tensor) -> Tensor:
    """Bool `[B, T]`: whether an earlier token was wrong."""
    return wrong.cumsum(1) - wrong.long() > 0


def reference(wrong: Tensor, length: Tensor) -> Tensor:
    at_risk = real(wrong, length) & ~_before(wrong)
    return (wrong & at_risk).sum(0) / at_risk.sum(0).double()


def _loop(wrong: Tensor, length: Tensor) -> Tensor:
    alive = torch.ones(len(wrong), dtype=torch.bool)
    shares = []
    for t in range(wrong.shape[1]):
        alive = alive & (length > t)
        shares.append(wrong[alive, t].float().mean())
        alive = alive & ~wrong[:, t]
    return torch.stack(shares)


def _by_first_error(wrong: Tensor, length: Tensor) -> Tensor:
    T = wrong.shape[1]
    marked = wrong & real(wrong, length)
    first = torch.where(marked.any(1), marked.long().argmax(1), T)
    t = torch.arange(T)[:, None]
    at_risk = (first >= t) & (length > t)
    return (first == t).sum(1) / at_risk.sum(1)


def _no_censoring(wrong: Tensor, length: Tensor) -> Tensor:
    marked = wrong & real(wrong, length)
    at_risk = ~_before(marked)
    return (marked & at_risk).sum(0) / at_risk.sum(0).double()


def _odds(wrong: Tensor, length: Tensor) -> Tensor:
    at_risk = real(wrong, length) & ~_before(wrong)
    return (wrong & at_risk).sum(0) / (at_risk & ~wrong).sum(0).double()


def _of_all(wrong: Tensor, length: Tensor) -> Tensor:
    here = real(wrong, length)
    return (wrong & here & ~_before(wrong)).sum(0) / here.sum(0).double()


def _of_the_start(wrong: Tensor, length: Tensor) -> Tensor:
    return (wrong & real(wrong, length) & ~_before(wrong)).double().mean(0)


def _constant(wrong: Tensor, length: Tensor) -> Tensor:
    at_risk = real(wrong, length) & ~_before(wrong)
    rate = (wrong & at_risk).sum() / at_risk.sum().double()
    return rate.expand(wrong.shape[1])


def _share_wrong(wrong: Tensor, length: Tensor) -> Tensor:
    here = real(wrong, length)
    return (wrong & here).sum(0) / here.sum(0).double()


def _padding(wrong: Tensor, length: Tensor) -> Tensor:
    at_risk = ~_before(wrong)
    return (wrong & at_risk).sum(0) / at_risk.sum(0).double()


MISTAKES: Mistakes = {
    "share_wrong": (
        _share_wrong,
        Words(
            en="This is the share of all answers that are wrong there. The hazard looks "
            "only at those that were right at every place before.",
            zh="这是该位置错误的回答占全部回答的比例。风险率只看此前每个位置都对的回答。",
        ),
    ),
    "of_all": (
        _of_all,
        Words(
            en="First errors are divided by all answers that go on. Those that erred "
            "before can't have a first error any more: leave them out below as well.",
            zh="你用首次错误数除以所有尚未结束的回答。已经错过的回答不会再有首次错误：分母里"
            "也要去掉。",
        ),
    ),
    "of_the_start": (
        _of_the_start,
        Words(
            en="First errors are divided by all rows. The hazard is conditional: divide by "
            "the answers still at risk there.",
            zh="你用首次错误数除以全部行数。风险率是条件概率：要除以该位置仍处于风险中的回答"
            "数。",
        ),
    ),
    "no_censoring": (
        _no_censoring,
        Words(
            en="An answer that has ended is still counted as right so far. It can err no "
            "more: it leaves the risk set (it is censored).",
            zh="已经结束的回答仍被算作“一直正确”。它不会再犯错：应当离开风险集（被删失）。",
        ),
    ),
    "padding": (
        _padding,
        Words(
            en="The padding is counted: there `wrong` holds garbage. Use the lengths.",
            zh="把 padding 也算进去了：那里的 `wrong` 是垃圾值。请使用 length。",
        ),
    ),
    "odds": (
        _odds,
        Words(
            en="You divide by those that stay right: these are odds. Divide by all that "
            "were at risk, also those that err now.",
            zh="你除以了这一步之后仍然正确的回答，那是赔率。应当除以所有处于风险中的回答，包"
            "括此刻出错的。",
        ),
    ),
    "survival": (
        lambda wrong, length: 1 - (1 - reference(wrong, length)).cumprod(0),
        Words(
            en="This adds the hazards up: the share gone wrong by then. Asked for is the "
            "share that goes wrong at each place.",
            zh="你把风险率累积起来了：这是到那时已出错的比例。题目要的是在每个位置出错的比例"
            "。",
        ),
    ),
    "constant": (
        _constant,
        Words(
            en="This is one rate for all places. Whether it is constant is what we want "
            "to see: one for each place.",
            zh="这是所有位置共用的一个比率。它是否恒定正是要看的：每个位置各算一个。",
        ),
    ),
    "kept": (
        lambda wrong, length: 1 - reference(wrong, length),
        Words(
            en="This is the share that stays right.",
            zh="这是保持正确的比例。",
        ),
    ),
}

BY_HAND = Words(
    en="four answers, one of them ends after a token",
    zh="四条回答，其中一条只有一个 token",
)
NEVER = Words(en="nobody ever errs, but in the padding", zh="除了 padding，从不出错")
RANDOM = Words(
    en="random errors, garbage in the padding", zh="随机错误，padding 里是垃圾值"
)
LAST = Words(
    en="a first error at the very last place, garbage in the padding",
    zh="最后一个位置才首次出错，padding 里是垃圾值",
)
LONG = Words(en="long answers, few errors", zh="很长的回答，错误很少")


def _draw(
    generator: Generator, rows: int, columns: int, share: float, last: bool = False
) -> tuple[Tensor, ...]:
    """Errors, and lengths. With `last` one comes at the very last place."""
    length = lengths(generator, rows, columns)
    wrong = torch.rand((rows, columns), generator=generator) < share
    first, second = length.topk(2).indices
    wrong[first] = False  # so that some answer is at risk to the end
    wrong[first, -1] = last
    wrong[second, : length[second]] = False
    wrong[second, length[second] - 2] = True
    padding = torch.rand((rows, columns), generator=generator) < 0.5
    return torch.where(real(wrong, length), wrong, padding), length


def cases(generator: Generator) -> list[Case]:
    wrong = torch.tensor([[0, 1, 0], [0, 0, 0], [1, 1, 1], [0, 1, 1]]).bool()
    _, length = _draw(generator, 5, 8, 0.0)
    padding = torch.rand((5, 8), generator=generator) < 0.5
    never = padding & ~real(padding, length)
    return [
        Case("example", BY_HAND, (wrong, torch.tensor([3, 3, 3, 1]))),
        Case("property", NEVER, (never, length)),
        Case("inputs", RANDOM, _draw(generator, 12, 8, 0.15)),
        Case("inputs", LAST, _draw(generator, 24, 10, 0.1, last=True)),
        Case("numbers", LONG, _draw(generator, 30, 500, 0.004)),
    ]


EXERCISE = Exercise(
    name="hazard",
    title=Words(en="The hazard", zh="风险率"),
    reference=reference,
    returns=("hazard",),
    cases=cases,
    mistakes=MISTAKES,
    alternatives={"loop": _loop, "first_error": _by_first_error},
    hints=(
        Words(
            en="Who can make a first error at place t? Neither those who have erred, nor "
            "those who have ended.",
            zh="谁可能在位置 t 首次出错？已经出过错的不算，已经结束的也不算。",
        ),
        Words(
            en="At risk: real, and no wrong token before. The hazard is the share of them "
            "that is wrong at t.",
            zh="处于风险中：是真实 token，且之前没有错误。风险率是其中在 t 出错的比例。",
        ),
        Words(
            en="`before = wrong.cumsum(1) - wrong.long() > 0`; `risk = real & ~before`; "
            "`(wrong & risk).sum(0) / risk.sum(0)`.",
            zh="先算 `before = wrong.cumsum(1) - wrong.long() > 0`；`risk = real & ~"
            "before`；`(wrong & risk).sum(0) / risk.sum(0)`。",
        ),
    ),
    points=(1, 2),
    minutes=8,
)
