"""Min-p: tokens at least a given share as likely as the likeliest."""

from __future__ import annotations

import math

from torch import Generator, Tensor

from tinyrl.course.exercise import Case, Exercise, Mistakes
from tinyrl.course.exercises.lab06.decoded import BY_HAND, LARGE, LOGITS, clear
from tinyrl.course.words import Words


def reference(logits: Tensor, min_p: float) -> Tensor:
    p = logits.softmax(-1)
    return p >= min_p * p.amax(-1, keepdim=True)


def _of_logits(logits: Tensor, min_p: float) -> Tensor:
    return logits - logits.amax(-1, keepdim=True) >= math.log(min_p)


def _of_odds(logits: Tensor, min_p: float) -> Tensor:
    return (logits - logits.max(-1, keepdim=True).values).exp() >= min_p


def _unprotected(logits: Tensor, min_p: float) -> Tensor:
    weight = logits.exp()
    p = weight / weight.sum(-1, keepdim=True)
    return p >= min_p * p.amax(-1, keepdim=True)


def _top_p(logits: Tensor, min_p: float) -> Tensor:
    q = logits.softmax(-1)
    likelier = q[..., None, :] > q[..., :, None]
    return (likelier * q[..., None, :]).sum(-1) < 1 - min_p


MISTAKES: Mistakes = {
    "absolute": (
        lambda z, m: z.softmax(-1) >= m,
        Words(
            en="You compare with min_p itself. The border is min_p times the probability "
            "of the row's likeliest token, so that it falls where the model is unsure.",
            zh="你直接与 min_p 比较。边界是 min_p 乘以该行的最大概率，模型没把握时它会随之"
            "降低。",
        ),
    ),
    "share_of_logit": (
        lambda z, m: z >= m * z.amax(-1, keepdim=True),
        Words(
            en="You take a share of the largest logit. Shares are of probabilities.",
            zh="你取的是最大 logit 的一个比例。比例应当对概率而言。",
        ),
    ),
    "distance_of_logits": (
        lambda z, m: z >= z.amax(-1, keepdim=True) - m,
        Words(
            en="You subtract min_p from the largest logit. A factor between probabilities "
            "is a difference of logits, but of log(min_p).",
            zh="你从最大 logit 里减去了 min_p。概率的倍数确实是 logit 之差，但差应当是 "
            "log(min_p)。",
        ),
    ),
    "complement": (
        lambda z, m: reference(z, 1 - m),
        Words(
            en="You use 1 - min_p. A min-p of 0 cuts nothing, one of 1 all but the "
            "likeliest.",
            zh="你用了 1 - min_p。min-p 为 0 时什么都不截，为 1 时只剩第一名。",
        ),
    ),
    "whole_batch": (
        lambda z, m: z.softmax(-1) >= m * z.softmax(-1).amax(),
        Words(
            en="You compare with the likeliest token of the whole batch. Each row has its "
            "own.",
            zh="你与整个 batch 中的最大概率比较了。每一行要用自己的。",
        ),
    ),
    "share_of_mean": (
        lambda z, m: z.softmax(-1) >= m / z.shape[-1],
        Words(
            en="You take a share of the mean probability. It is of the largest.",
            zh="你取的是平均概率的一个比例。应当是最大概率的。",
        ),
    ),
    "squared": (
        lambda z, m: z.softmax(-1) >= m * z.softmax(-1).amax(-1, keepdim=True) ** 2,
        Words(
            en="You square the largest probability. The border is linear in it.",
            zh="你把最大概率平方了。边界与它成正比。",
        ),
    ),
    "top_p": (
        _top_p,
        Words(
            en="This is top-p with 1 - min_p: it adds up. Min-p looks at each token alone.",
            zh="这是以 1 - min_p 为参数的 top-p：它看累积和。min-p 单独看每个 token。",
        ),
    ),
    "removed": (
        lambda z, m: ~reference(z, m),
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

HAND = Words(en="two tokens by hand, min-p 0.25", zh="两个可手算的 token，min-p 为 0.25")
GREEDY = Words(en="min-p 0.99: next to greedy", zh="min-p 为 0.99：近乎贪心")
UNSURE = Words(en="an unsure model keeps many", zh="没把握的模型会保留很多")


def _clear(generator: Generator, tokens: int, vocab: int, m: float) -> Tensor:
    """Logits of which no token's share of the likeliest comes near m."""
    return clear(generator, tokens, vocab, lambda q: q / q.max() - m)


def cases(generator: Generator) -> list[Case]:
    hand = BY_HAND.clone()
    hand[0, 3] -= 0.5  # no share on the border
    return [
        Case("example", HAND, (hand, 0.25)),
        Case("property", GREEDY, (_clear(generator, 5, 12, 0.99), 0.99)),
        Case("property", UNSURE, (_clear(generator, 5, 30, 0.1), 0.1)),
        Case("inputs", LOGITS, (_clear(generator, 6, 8, 0.2), 0.2)),
        Case("inputs", LOGITS, (_clear(generator, 9, 16, 0.05), 0.05)),
        Case("inputs", LOGITS, (_clear(generator, 6, 12, 0.4), 0.4)),
        Case("numbers", LARGE, (_clear(generator, 6, 8, 0.2) + 1000, 0.2)),
    ]


EXERCISE = Exercise(
    name="min_p_kept",
    title=Words(en="Min-p", zh="min-p 保留哪些"),
    reference=reference,
    returns=("kept",),
    cases=cases,
    mistakes=MISTAKES,
    alternatives={"of_logits": _of_logits, "of_odds": _of_odds},
    hints=(
        Words(
            en="The border moves with the model's confidence. What does it follow?",
            zh="边界随模型的把握而移动。它跟着什么走？",
        ),
        Words(
            en="Of each row, the largest probability times min_p.",
            zh="每一行的最大概率乘以 min_p。",
        ),
        Words(
            en="`p = logits.softmax(-1)`, `p >= min_p * p.amax(-1, keepdim=True)`.",
            zh="`p = logits.softmax(-1)`，然后 `p >= min_p * p.amax(-1, keepdim=True)`。",
        ),
    ),
    points=(1, 1),
    minutes=5,
    exact=True,
    boolean=("kept",),
)
