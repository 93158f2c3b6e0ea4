"""log S: the constant that a cut leaves in every delta."""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from tinyrl.course.exercise import Case, Exercise, Mistakes
from tinyrl.course.exercises.lab06.decoded import (
    ALL,
    BELOW,
    BY_HAND,
    FINITE,
    FP16_FILL,
    GRADIENT,
    HOPELESS,
    LARGE,
    LOGITS,
    kept_set,
    one_zero,
    over,
    spread,
)
from tinyrl.course.words import Words


def reference(logits: Tensor, kept: Tensor) -> Tensor:
    return over(logits, kept).logsumexp(-1) - logits.logsumexp(-1)


def _of_logprobs(logits: Tensor, kept: Tensor) -> Tensor:
    return over(logits.log_softmax(-1), kept).logsumexp(-1)


def _by_delta(logits: Tensor, kept: Tensor) -> Tensor:
    """log p - log (p / S) of a token that is kept, whichever."""
    token = kept.int().argmax(-1, keepdim=True)
    full, renormalised = logits.log_softmax(-1), over(logits, kept).log_softmax(-1)
    return (full.gather(-1, token) - renormalised.gather(-1, token))[..., 0]


def _mass(logits: Tensor, kept: Tensor) -> Tensor:
    return (logits.softmax(-1) * kept).sum(-1)


def _unprotected(logits: Tensor, kept: Tensor) -> Tensor:
    weight = logits.exp()
    return ((weight * kept).sum(-1) / weight.sum(-1)).log()


def _mean_logp(logits: Tensor, kept: Tensor) -> Tensor:
    return torch.where(kept, logits.log_softmax(-1), 0.0).sum(-1) / kept.sum(-1)


MISTAKES: Mistakes = {
    "no_log": (
        _mass,
        Words(
            en="This is S, the ratio. Delta is its logarithm.",
            zh="这是 S，也就是比值。delta 是它的对数。",
        ),
    ),
    "sign": (
        lambda z, kept: -reference(z, kept),
        Words(
            en="The sign is turned round. S is at most 1, so log S is never above 0: the "
            "trainer rates every token lower than the engine does.",
            zh="符号反了。S 不超过 1，log S 不会大于 0：训练端给每个 token 的概率都低于引擎"
            "。",
        ),
    ),
    "cut_mass": (
        lambda z, kept: reference(z, ~kept),
        Words(
            en="This is the log of the mass that was cut, 1 - S.",
            zh="这是被截掉的质量 1 - S 的对数。",
        ),
    ),
    "share_of_tokens": (
        lambda z, kept: kept.to(z).mean(-1).log(),
        Words(
            en="You count tokens. S is a sum of probabilities: one token may have nearly "
            "all of it.",
            zh="你数的是 token 个数。S 是概率之和：一个 token 可能就占了绝大部分。",
        ),
    ),
    "not_normalised": (
        lambda z, kept: over(z, kept).logsumexp(-1),
        Words(
            en="You take the logsumexp of the kept logits alone. Take off that of all.",
            zh="你只算了保留的 logits 的 logsumexp，还要减去全部 logits 的。",
        ),
    ),
    "zeros_left_in": (
        lambda z, kept: (z * kept).logsumexp(-1) - z.logsumexp(-1),
        Words(
            en="You set the logits of cut tokens to 0, and exp(0) is 1: they still weigh. "
            "Minus infinity is the logit of what is out.",
            zh="你把被截掉的 logit 置成 0，而 exp(0) = 1，它们仍有份量。应当置为负无穷。",
        ),
    ),
    "mean_logprob": (
        _mean_logp,
        Words(
            en="You average logprobs. Add probabilities, then take one logarithm.",
            zh="你对 logprob 取了平均。应当先把概率相加，再取一次对数。",
        ),
    ),
    "sum_of_logprobs": (
        lambda z, kept: torch.where(kept, z.log_softmax(-1), 0.0).sum(-1),
        Words(
            en="You add logprobs: that multiplies probabilities. S is their sum.",
            zh="你把 logprob 相加了，等于把概率相乘。S 是概率之和。",
        ),
    ),
    "whole_batch": (
        lambda z, kept: reference(z, kept).exp().mean().log().expand(z.shape[:-1]),
        Words(
            en="You average over the batch. S is another one at each place.",
            zh="你在整个 batch 上取了平均。每个位置都有自己的 S。",
        ),
    ),
    "finite_fill": (
        lambda z, kept: z.masked_fill(~kept, -1e4).logsumexp(-1) - z.logsumexp(-1),
        FINITE,
    ),
    "log_of_sum": (
        lambda z, kept: _mass(z, kept).log(),
        Words(
            en="Where the kept tokens are hopeless their probabilities underflow to 0, and "
            "the log of that is -inf. Stay on the log scale: two logsumexps.",
            zh="保留的 token 毫无可能时，概率下溢成 0，取对数得 -inf。请留在对数尺度上："
            "用两个 logsumexp。",
        ),
    ),
    "unprotected": (
        _unprotected,
        Words(
            en="exp of a large logit is inf, and inf / inf is NaN. Use `logsumexp`.",
            zh="很大的 logit 取 exp 得 inf，inf / inf 得 NaN。请用 `logsumexp`。",
        ),
    ),
    "detach": (
        lambda z, kept: reference(z, kept).detach(),
        Words(
            en="The values are right, but no gradient reaches the logits.",
            zh="数值正确，但梯度传不到 logits。",
        ),
    ),
    "fp16_fill": (
        lambda z, kept: z.masked_fill(~kept, -6e4).logsumexp(-1) - z.logsumexp(-1),
        FP16_FILL,
    ),
}

ONE = Words(en="one token alone", zh="只有一个 token")
HAND = Words(en="two tokens by hand", zh="两个可手算的 token")


def cases(generator: Generator) -> list[Case]:
    def pair(tokens: int, vocab: int, high: float = 0.0) -> tuple[Tensor, Tensor]:
        z = spread(generator, tokens, vocab)
        kept = kept_set(generator, z)
        return one_zero(z, kept) + high, kept

    kept = torch.tensor([[True, True, False, False], [True, False, True, False]])
    plain, some = pair(6, 8)
    large, among = pair(6, 8, 1000.0)
    # Of logsumexps near 1000 float32 has not enough digits left where S is nearly 1.
    among = among.scatter(-1, large.argmax(-1, keepdim=True), False)
    return [
        Case("example", HAND, (BY_HAND, kept)),
        Case("property", ALL, (plain, torch.ones_like(some))),
        Case("inputs", LOGITS, pair(6, 8)),
        Case("inputs", LOGITS, pair(9, 14)),
        Case("inputs", ONE, pair(1, 8)),
        Case("gradient", GRADIENT, pair(6, 8)),
        Case("numbers", LARGE, (large, among)),
        Case("numbers", HOPELESS, (plain - BELOW * some, some)),
    ]


EXERCISE = Exercise(
    name="kept_log_mass",
    title=Words(en="The constant log S", zh="常数 log S"),
    reference=reference,
    returns=("log_S",),
    cases=cases,
    mistakes=MISTAKES,
    alternatives={"of_logprobs": _of_logprobs, "by_delta": _by_delta},
    hints=(
        Words(
            en="S is a sum of probabilities. How do you add on the log scale?",
            zh="S 是概率之和。在对数尺度上怎样做加法？",
        ),
        Words(
            en="logsumexp of the kept logits minus logsumexp of all.",
            zh="保留部分的 logsumexp 减去全部的 logsumexp。",
        ),
        Words(
            en="`logits.masked_fill(~kept, -torch.inf).logsumexp(-1) - "
            "logits.logsumexp(-1)`.",
            zh="直接用 `logits.masked_fill(~kept, -torch.inf).logsumexp(-1) - "
            "logits.logsumexp(-1)`。",
        ),
    ),
    points=(1, 2),
    minutes=7,
    gradient=("logits",),
    floor=4.0,  # the logsumexps, whose difference it is
)
