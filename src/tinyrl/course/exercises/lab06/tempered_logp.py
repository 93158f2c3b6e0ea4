"""Temperature: logits are divided by it before the softmax."""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from tinyrl.course.exercise import Case, Exercise, Mistakes
from tinyrl.course.exercises.lab06.decoded import (
    BY_HAND,
    GRADIENT,
    LARGE,
    LOGITS,
    spread,
)
from tinyrl.course.words import Words


def reference(logits: Tensor, temperature: float) -> Tensor:
    return torch.log_softmax(logits / temperature, -1)


def _by_logsumexp(logits: Tensor, temperature: float) -> Tensor:
    z = logits / temperature
    return z - z.logsumexp(-1, keepdim=True)


def _of_logprobs(logits: Tensor, temperature: float) -> Tensor:
    """p to the power 1 / T, made to sum to 1 again."""
    return torch.log_softmax(torch.log_softmax(logits, -1) / temperature, -1)


def _unprotected(logits: Tensor, temperature: float) -> Tensor:
    z = logits / temperature
    return z - z.exp().sum(-1, keepdim=True).log()


MISTAKES: Mistakes = {
    "multiplied": (
        lambda z, T: torch.log_softmax(z * T, -1),
        Words(
            en="You multiply by the temperature. A high one must flatten: divide.",
            zh="你乘了温度。温度高应当让分布更平，所以要除。",
        ),
    ),
    "forgotten": (
        lambda z, T: torch.log_softmax(z, -1),
        Words(
            en="The temperature is not used: this is the raw logprob.",
            zh="没有用到温度：这是 raw logprob。",
        ),
    ),
    "logprob_divided": (
        lambda z, T: torch.log_softmax(z, -1) / T,
        Words(
            en="You divide the logprob at T = 1 by the temperature. Its exponentials do "
            "not sum to 1: divide the logits, then normalise.",
            zh="你把 T = 1 的 logprob 除以温度，其指数之和不是 1。应当先除 logits，再归一化"
            "。",
        ),
    ),
    "probability_divided": (
        lambda z, T: (torch.softmax(z, -1) / T).log(),
        Words(
            en="You divide probabilities by the temperature: that moves every logprob by "
            "the same amount and changes no odds.",
            zh="你把概率除以温度：所有 logprob 平移同一个量，相对概率不变。",
        ),
    ),
    "no_normalisation": (
        lambda z, T: z / T,
        Words(
            en="These are the logits divided by the temperature. A logprob still needs "
            "their logsumexp taken off.",
            zh="这只是除过温度的 logits，还要减去它们的 logsumexp 才是 logprob。",
        ),
    ),
    "wrong_normaliser": (
        lambda z, T: z / T - z.logsumexp(-1, keepdim=True),
        Words(
            en="The logit is divided, but the logsumexp is that of the undivided logits.",
            zh="logit 除了温度，logsumexp 却是未除温度的。",
        ),
    ),
    "probabilities": (
        lambda z, T: torch.softmax(z / T, -1),
        Words(
            en="These are probabilities; asked for are their logarithms.",
            zh="这是概率；题目要的是对数概率。",
        ),
    ),
    "over_tokens": (
        lambda z, T: torch.log_softmax(z / T, 0),
        Words(
            en="You normalise down the column. Each row is one distribution: last axis.",
            zh="你沿列归一化了。每一行才是一个分布：应当在最后一维上。",
        ),
    ),
    "root": (
        lambda z, T: torch.log_softmax(z / T**0.5, -1),
        Words(
            en="You divide by the root of the temperature, as attention does with its head "
            "size. Here it is the temperature itself.",
            zh="你除以了温度的平方根（像 attention 除以维数的平方根）。这里应当除以温度本身"
            "。",
        ),
    ),
    "log_of_softmax": (
        lambda z, T: torch.softmax(z / T, -1).log(),
        Words(
            en="An unlikely token's probability underflows to 0 and its log is -inf. "
            "`log_softmax` never leaves the log scale.",
            zh="很小的概率会下溢成 0，取对数得 -inf。`log_softmax` 始终在对数尺度上。",
        ),
    ),
    "unprotected": (
        _unprotected,
        Words(
            en="exp of a large logit is inf, and so is its log. `log_softmax` and "
            "`logsumexp` take the largest logit off first.",
            zh="很大的 logit 取 exp 得 inf，再取 log 还是 inf。`log_softmax` 和 `logsumexp`"
            " 会先减去最大值。",
        ),
    ),
    "detach": (
        lambda z, T: reference(z, T).detach(),
        Words(
            en="The values are right, but no gradient reaches the logits.",
            zh="数值正确，但梯度传不到 logits。",
        ),
    ),
}

HAND = Words(en="two tokens by hand, T = 0.5", zh="两个可手算的 token，T = 0.5")
ONE = Words(en="T = 1: the model itself", zh="T = 1：就是模型本身")
FAR = Words(en="logits 1000 apart", zh="相差 1000 的 logits")


def cases(generator: Generator) -> list[Case]:
    return [
        Case("example", HAND, (BY_HAND, 0.5)),
        Case("property", ONE, (spread(generator, 5, 6), 1.0)),
        Case("inputs", LOGITS, (spread(generator, 6, 8), 0.7)),
        Case("inputs", LOGITS, (spread(generator, 9, 12), 1.6)),
        Case("gradient", GRADIENT, (spread(generator, 6, 8), 0.6)),
        Case("numbers", LARGE, (spread(generator, 6, 8) + 1000, 0.8)),
        Case("numbers", FAR, (spread(generator, 6, 8, scale=1000.0), 0.8)),
    ]


EXERCISE = Exercise(
    name="tempered_logp",
    title=Words(en="Logprobs at a temperature", zh="温度下的 logprob"),
    reference=reference,
    returns=("logp",),
    cases=cases,
    mistakes=MISTAKES,
    alternatives={"logsumexp": _by_logsumexp, "power": _of_logprobs},
    hints=(
        Words(
            en="Temperature acts on logits. Where does the normalisation come?",
            zh="温度作用在 logits 上。归一化在它之前还是之后？",
        ),
        Words(
            en="Divide, then take the log of the softmax over the last axis.",
            zh="先除，再在最后一维取 log softmax。",
        ),
        Words(
            en="`torch.log_softmax(logits / temperature, -1)`.",
            zh="直接用 `torch.log_softmax(logits / temperature, -1)`。",
        ),
    ),
    points=(1, 1),
    minutes=4,
    gradient=("logits",),
)
