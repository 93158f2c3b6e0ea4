"""Top-p: the likeliest tokens whose probabilities just reach p."""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from tinyrl.course.exercise import Case, Exercise, Mistakes
from tinyrl.course.exercises.lab06.decoded import (
    BY_HAND,
    LARGE,
    LOGITS,
    SURE,
    clear,
    drawn,
)
from tinyrl.course.words import Words


def _sorted(logits: Tensor) -> tuple[Tensor, Tensor]:
    """Probabilities, the likeliest first, and whose they are."""
    p, order = logits.softmax(-1).sort(-1, descending=True)
    return p, order


def _back(kept: Tensor, order: Tensor) -> Tensor:
    """A mask over ranks as one over tokens."""
    return torch.zeros_like(kept).scatter(-1, order, kept)


def reference(logits: Tensor, p: float) -> Tensor:
    falling, order = _sorted(logits)
    return _back(falling.cumsum(-1) - falling < p, order)


def _from_below(logits: Tensor, p: float) -> Tensor:
    rising, order = logits.softmax(-1).sort(-1)
    return _back(rising.cumsum(-1) > 1 - p, order)


def _by_comparing(logits: Tensor, p: float) -> Tensor:
    """A token is in if those likelier than it have less than p together."""
    q = logits.softmax(-1)
    likelier = q[..., None, :] > q[..., :, None]
    return (likelier * q[..., None, :]).sum(-1) < p


def _short(logits: Tensor, p: float) -> Tensor:
    falling, order = _sorted(logits)
    return _back(falling.cumsum(-1) <= p, order)


def _short_but_one(logits: Tensor, p: float) -> Tensor:
    falling, order = _sorted(logits)
    first = torch.arange(logits.shape[-1]) == 0
    return _back((falling.cumsum(-1) <= p) | first, order)


def _long(logits: Tensor, p: float) -> Tensor:
    falling, order = _sorted(logits)
    kept = falling.cumsum(-1) - falling < p
    return _back(kept | kept.roll(1, -1), order)


def _rising(logits: Tensor, p: float) -> Tensor:
    rising, order = logits.softmax(-1).sort(-1)
    return _back(rising.cumsum(-1) - rising < p, order)


def _unsorted(logits: Tensor, p: float) -> Tensor:
    q = logits.softmax(-1)
    return q.cumsum(-1) - q < p


def _by_rank(logits: Tensor, p: float) -> Tensor:
    falling, _ = _sorted(logits)
    return falling.cumsum(-1) - falling < p


def _gathered(logits: Tensor, p: float) -> Tensor:
    """Reordered with the order of the sort once more, instead of undone."""
    falling, order = _sorted(logits)
    return (falling.cumsum(-1) - falling < p).gather(-1, order)


def _unprotected(logits: Tensor, p: float) -> Tensor:
    weight = logits.exp()
    falling, order = (weight / weight.sum(-1, keepdim=True)).sort(-1, descending=True)
    return _back(falling.cumsum(-1) - falling < p, order)


MISTAKES: Mistakes = {
    "crossing_cut": (
        _short,
        Words(
            en="The token that crosses p is cut, so less than p is left, and nothing at "
            "all where the likeliest has more than p. Keep it: compare the sum *before* "
            "each token.",
            zh="跨过 p 的那个 token 被丢掉了，剩下的不足 p；若第一名已超过 p 则一个不剩。应"
            "当保留它：比较每个 token *之前* 的累积和。",
        ),
    ),
    "crossing_cut_but_one": (
        _short_but_one,
        Words(
            en="The likeliest is always kept, but the token that crosses p is cut: what is "
            "left falls short of p.",
            zh="第一名总是保留，但跨过 p 的那个 token 被丢掉了，剩下的不足 p。",
        ),
    ),
    "one_too_many": (
        _long,
        Words(
            en="You keep one token behind the one that crosses p.",
            zh="你在跨过 p 的 token 之后又多留了一个。",
        ),
    ),
    "unlikely_first": (
        _rising,
        Words(
            en="You add up from the unlikeliest. The nucleus begins with the likeliest.",
            zh="你从概率最小的开始累加。应当从概率最大的开始。",
        ),
    ),
    "unsorted": (
        _unsorted,
        Words(
            en="You add up in the order of the vocabulary. Sort first.",
            zh="你按词表顺序累加了。应当先排序。",
        ),
    ),
    "not_put_back": (
        _by_rank,
        Words(
            en="The mask is in the order of ranks. Put it back into the order of the "
            "vocabulary, with `scatter`.",
            zh="掩码还是按名次排的。请用 `scatter` 放回词表的顺序。",
        ),
    ),
    "gathered_back": (
        _gathered,
        Words(
            en="`gather` with the sort's order sorts once more. To undo a sort, `scatter`.",
            zh="用排序下标 `gather` 等于又排一次序。要还原顺序应当用 `scatter`。",
        ),
    ),
    "each_above_the_rest": (
        lambda z, p: z.softmax(-1) >= 1 - p,
        Words(
            en="You compare each probability with 1 - p. It is their sum, the likeliest "
            "first, that has to reach p.",
            zh="你把每个概率单独与 1 - p 比较。要看的是从大到小的累积和何时达到 p。",
        ),
    ),
    "min_p": (
        lambda z, p: z.softmax(-1) >= p * z.softmax(-1).amax(-1, keepdim=True),
        Words(
            en="This is min-p: a share of the likeliest's probability. Top-p adds up.",
            zh="这是 min-p：与最大概率成比例。top-p 看的是累积和。",
        ),
    ),
    "removed": (
        lambda z, p: ~reference(z, p),
        Words(
            en="This is true for what is cut. Asked for is what is kept.",
            zh="这里被丢掉的为真。题目要的是被保留的。",
        ),
    ),
    "unprotected": (
        _unprotected,
        Words(
            en="exp of a large logit is inf, and inf / inf is NaN. `softmax` takes the "
            "largest logit off first.",
            zh="很大的 logit 取 exp 得 inf，inf / inf 得 NaN。`softmax` 会先减去最大值。",
        ),
    ),
}

HAND = Words(en="two tokens by hand, p = 0.7", zh="两个可手算的 token，p = 0.7")
SMALL = Words(en="a p that the likeliest exceeds", zh="第一名就超过的 p")
CLOSE = Words(
    en="a sum of the likeliest that just misses p, or just passes it",
    zh="前几名之和略小于或略大于 p",
)


def _sums(q: Tensor) -> Tensor:
    return q.sort(descending=True).values.cumsum(-1)


def _clear(generator: Generator, tokens: int, vocab: int, p: float) -> Tensor:
    """Logits of which no sum of the likeliest comes near p."""
    return clear(generator, tokens, vocab, lambda q: _sums(q) - p)


def _close(generator: Generator, vocab: int, p: float) -> Tensor:
    """Logits of four tokens, two of which have a sum just below p, and two just above."""

    def side(sign: int) -> Tensor:
        def wanted(q: Tensor) -> bool:
            off = _sums(q) - p
            nearest = sign * off[off.abs().argmin()]
            return bool(5e-4 < nearest < 4e-3)

        return drawn(generator, 2, vocab, wanted)

    return torch.cat([side(-1), side(1)])


def cases(generator: Generator) -> list[Case]:
    sure = _clear(generator, 5, 8, 0.9)
    likeliest = torch.nn.functional.one_hot(sure.argmax(-1), 8)
    return [
        Case("example", HAND, (BY_HAND, 0.7)),
        Case("property", SMALL, (_clear(generator, 6, 30, 0.05), 0.05)),
        Case("inputs", LOGITS, (_clear(generator, 6, 8, 0.8), 0.8)),
        Case("inputs", LOGITS, (_clear(generator, 9, 16, 0.5), 0.5)),
        Case("inputs", LOGITS, (_clear(generator, 6, 12, 0.95), 0.95)),
        Case("inputs", SURE, (sure + 6 * likeliest, 0.9)),
        Case("numbers", CLOSE, (_close(generator, 8, 0.8), 0.8)),
        Case("numbers", LARGE, (_clear(generator, 6, 8, 0.8) + 1000, 0.8)),
    ]


EXERCISE = Exercise(
    name="top_p_kept",
    title=Words(en="Top-p", zh="top-p 保留哪些"),
    reference=reference,
    returns=("kept",),
    cases=cases,
    mistakes=MISTAKES,
    alternatives={"from_below": _from_below, "comparing": _by_comparing},
    hints=(
        Words(
            en="Sort, add up, and decide for each token by what stands before it.",
            zh="排序、累加，再根据每个 token 之前的和来决定。",
        ),
        Words(
            en="A token is in while the sum of the likelier ones is below p. Then undo the "
            "sort.",
            zh="只要比它更可能的那些之和小于 p，它就在集合内。最后还原顺序。",
        ),
        Words(
            en="`q, order = logits.softmax(-1).sort(descending=True)`, "
            "`kept = q.cumsum(-1) - q < p`, then `scatter(-1, order, kept)`.",
            zh="`q, order = logits.softmax(-1).sort(descending=True)`，"
            "`kept = q.cumsum(-1) - q < p`，再 `scatter(-1, order, kept)`。",
        ),
    ),
    points=(1, 2),
    minutes=8,
    exact=True,
    boolean=("kept",),
)
