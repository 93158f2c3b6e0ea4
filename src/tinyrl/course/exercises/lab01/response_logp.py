"""The number that everything is about: the logprob of a token that was sampled."""

from __future__ import annotations

import math

import torch
from torch import Generator, Tensor
from torch.nn.functional import cross_entropy

from tinyrl.course.exercise import Case, Exercise, Mistakes
from tinyrl.course.words import Words


def reference(logits: Tensor, ids: Tensor, prompt_length: int) -> Tensor:
    """Logits at a position predict the next token: shift by one, then pick."""
    logp = logits[:, prompt_length - 1 : -1].log_softmax(-1)
    return logp.gather(-1, ids[:, prompt_length:, None]).squeeze(-1)


def _from_logsumexp(logits: Tensor, ids: Tensor, prompt_length: int) -> Tensor:
    before = logits[:, prompt_length - 1 : -1]
    chosen = before.gather(-1, ids[:, prompt_length:].unsqueeze(-1))[..., 0]
    return chosen - before.logsumexp(-1)


def _from_cross_entropy(logits: Tensor, ids: Tensor, prompt_length: int) -> Tensor:
    nll = cross_entropy(logits[:, :-1].transpose(1, 2), ids[:, 1:], reduction="none")
    return -nll[:, prompt_length - 1 :]


def _by_loops(logits: Tensor, ids: Tensor, prompt_length: int) -> Tensor:
    rows = []
    for row_logits, row_ids in zip(logits, ids, strict=True):
        row = []
        for t in range(prompt_length, len(row_ids)):
            before = row_logits[t - 1]
            row.append(before[row_ids[t]] - torch.logsumexp(before, 0))
        rows.append(torch.stack(row))
    return torch.stack(rows)


def _no_shift(logits: Tensor, ids: Tensor, prompt_length: int) -> Tensor:
    logp = logits[:, prompt_length:].log_softmax(-1)
    return logp.gather(-1, ids[:, prompt_length:, None]).squeeze(-1)


def _with_prompt(logits: Tensor, ids: Tensor, prompt_length: int) -> Tensor:
    return logits[:, :-1].log_softmax(-1).gather(-1, ids[:, 1:, None]).squeeze(-1)


def _raw(logits: Tensor, ids: Tensor, prompt_length: int) -> Tensor:
    return logits[:, prompt_length - 1 : -1].gather(-1, ids[:, prompt_length:, None])[
        ..., 0
    ]


def _log_of_softmax(logits: Tensor, ids: Tensor, prompt_length: int) -> Tensor:
    p = logits[:, prompt_length - 1 : -1].softmax(-1)
    return p.gather(-1, ids[:, prompt_length:, None]).squeeze(-1).log()


def _log_of_sum(logits: Tensor, ids: Tensor, prompt_length: int) -> Tensor:
    before = logits[:, prompt_length - 1 : -1]
    chosen = before.gather(-1, ids[:, prompt_length:, None]).squeeze(-1)
    return chosen - before.exp().sum(-1).log()


def _wrong_axis(logits: Tensor, ids: Tensor, prompt_length: int) -> Tensor:
    logp = logits[:, prompt_length - 1 : -1].log_softmax(1)
    return logp.gather(-1, ids[:, prompt_length:, None]).squeeze(-1)


def _greedy(logits: Tensor, ids: Tensor, prompt_length: int) -> Tensor:
    return logits[:, prompt_length - 1 : -1].log_softmax(-1).max(-1).values


MISTAKES: Mistakes = {
    "no_shift": (
        _no_shift,
        Words(
            en="Off by one: logits at position i were computed from tokens 0..i and "
            "predict token i + 1. You look token i up in the logits that have already read "
            "it.",
            zh="错了一位：位置 i 的 logits 读过第 0..i 个 token，预测的是第 i + 1 个。你却"
            "用它去查第 i 个 token。",
        ),
    ),
    "prompt_counted": (
        _with_prompt,
        Words(
            en="The prompt is counted: it was given, not sampled, so its tokens have no "
            "place here. Keep only the positions that predict the response.",
            zh="把 prompt 也算进去了：prompt 是给定的，不是采样得到的。只保留预测回答"
            " token 的那些位置。",
        ),
    ),
    "probability": (
        lambda logits, ids, prompt_length: reference(logits, ids, prompt_length).exp(),
        Words(
            en="These are probabilities; the logarithm is missing.",
            zh="这是概率，还没有取对数。",
        ),
    ),
    "log2": (
        lambda logits, ids, prompt_length: (
            reference(logits, ids, prompt_length) / math.log(2)
        ),
        Words(
            en="The logarithm has base 2. Logprobs are natural: exp() has to undo them.",
            zh="对数用了以 2 为底。logprob 用自然对数，这样 exp() 才能还原概率。",
        ),
    ),
    "raw_logits": (
        _raw,
        Words(
            en="These are raw logits: without `- logsumexp` over the vocabulary they are "
            "not log probabilities, only known up to a constant.",
            zh="这是原始 logits：没有减去词表上的 logsumexp，就不是对数概率，还差一个常"
            "数。",
        ),
    ),
    "wrong_axis": (
        _wrong_axis,
        Words(
            en="The softmax runs over positions. It has to run over the vocabulary, the "
            "last axis: at each position the probabilities of all tokens sum to 1.",
            zh="softmax 沿着位置做了归一化。应当沿最后一维（词表）：每个位置上所有 token "
            "的概率之和为 1。",
        ),
    ),
    "greedy": (
        _greedy,
        Words(
            en="This is the logprob of the most likely token. The policy sampled: look up "
            "the token that is in `ids`.",
            zh="这是概率最大的 token 的 logprob。策略是采样的：要查的是 `ids` 里实际采到的"
            " token。",
        ),
    ),
    "loss": (
        lambda logits, ids, prompt_length: -reference(logits, ids, prompt_length),
        Words(
            en="The sign is that of a loss: cross entropy is minus the logprob.",
            zh="符号是 loss 的符号：交叉熵是 logprob 的相反数。",
        ),
    ),
    "summed": (
        lambda logits, ids, prompt_length: reference(logits, ids, prompt_length).sum(-1),
        Words(
            en="This is one number a response. Keep one a token, [B, T]: what differs "
            "between two policies differs token by token.",
            zh="每条回答只剩一个数。请保留每个 token 的值 [B, T]：两个策略的差异是逐"
            " token 的。",
        ),
    ),
    "underflow": (
        _log_of_softmax,
        Words(
            en="log(softmax(x)): an unlikely token's probability underflows to 0 in "
            "float32, and its log is -inf. `log_softmax` subtracts logsumexp and stays "
            "finite.",
            zh="log(softmax(x))：小概率在 float32 里下溢成 0，取对数得到 -inf。"
            "`log_softmax` 直接减去 logsumexp，不会出这个问题。",
        ),
    ),
    "overflow": (
        _log_of_sum,
        Words(
            en="log(sum(exp(x))): exp of a logit above 88 is inf in float32, so the "
            "logprob is -inf. `logsumexp` and `log_softmax` subtract the largest logit "
            "first.",
            zh="log(sum(exp(x)))：logit 超过 88 时 exp 在 float32 里上溢成 inf，logprob 就"
            "成了 -inf。`logsumexp` 和 `log_softmax` 会先减去最大的 logit。",
        ),
    ),
    "detach": (
        lambda logits, ids, prompt_length: reference(logits, ids, prompt_length).detach(),
        Words(
            en="The values are right, but no gradient reaches the logits: `detach`, "
            "`no_grad` or numpy cuts it, and the trainer would learn nothing.",
            zh="数值正确，但梯度传不到 logits：被 `detach`、`no_grad` 或 numpy 切断了，训"
            "练学不到任何东西。",
        ),
    ),
}

EXAMPLE = Words(
    en="one prompt token, two response tokens, three words",
    zh="一个 prompt token、两个回答 token、三个词",
)
RANDOM = Words(en="random logits", zh="随机 logits")
CONSTANT = Words(
    en="a constant added to all logits of a position changes no probability",
    zh="给一个位置的所有 logits 加同一个常数，概率不变",
)
GRADIENT = Words(en="the gradient with respect to the logits", zh="对 logits 的梯度")
UNLIKELY = Words(
    en="sampled tokens of probability e^-200",
    zh="采到了概率约为 e^-200 的 token",
)
LARGE = Words(en="logits near 100", zh="100 左右的 logits")


def cases(generator: Generator) -> list[Case]:
    def draw(
        rows: int, prompt: int, response: int, words: int
    ) -> tuple[Tensor, Tensor, int]:
        logits = 2 * torch.randn(rows, prompt + response, words, generator=generator)
        ids = torch.randint(words, (rows, prompt + response), generator=generator)
        return logits, ids, prompt

    small = torch.tensor([[[1.0, 0.0, -1.0], [0.0, 2.0, 1.0], [3.0, 0.0, 1.0]]])
    logits, ids, prompt = draw(3, 4, 3, 7)
    shift = 3 * torch.randn(3, 7, 1, generator=generator)
    unlikely, chosen, _ = draw(2, 2, 4, 6)
    unlikely.scatter_(-1, chosen.roll(-1, 1)[..., None], -200.0)
    return [
        Case("example", EXAMPLE, (small, torch.tensor([[2, 0, 1]]), 1)),
        Case("property", CONSTANT, (logits + shift, ids, prompt)),
        Case("inputs", RANDOM, draw(2, 3, 5, 6)),
        Case("inputs", RANDOM, draw(4, 1, 6, 9)),
        Case("gradient", GRADIENT, draw(2, 3, 4, 5)),
        Case("numbers", UNLIKELY, (unlikely, chosen, 2)),
        Case("numbers", LARGE, (logits + 100, ids, prompt)),
    ]


EXERCISE = Exercise(
    name="response_logp",
    title=Words(en="The logprob of a sampled token", zh="采样 token 的 logprob"),
    reference=reference,
    returns=("response_logp",),
    cases=cases,
    mistakes=MISTAKES,
    alternatives={
        "logsumexp": _from_logsumexp,
        "cross_entropy": _from_cross_entropy,
        "loops": _by_loops,
    },
    hints=(
        Words(
            en="Which position's logits decided the first response token? It is the last "
            "token of the prompt, position prompt_length - 1.",
            zh="回答的第一个 token 由哪个位置的 logits 决定？是 prompt 的最后一个 token，"
            "也就是位置 prompt_length - 1。",
        ),
        Words(
            en="Slice logits [:, prompt_length - 1 : -1] and ids [:, prompt_length :]. "
            "They have the same length T.",
            zh="取 logits[:, prompt_length - 1 : -1] 和 ids[:, prompt_length :]，两者长度"
            "都是 T。",
        ),
        Words(
            en="`log_softmax(-1)` on the logits, then `gather(-1, ids.unsqueeze(-1))`, "
            "then `squeeze(-1)`.",
            zh="对 logits 做 `log_softmax(-1)`，再 `gather(-1, ids.unsqueeze(-1))`，最后 "
            "`squeeze(-1)`。",
        ),
    ),
    points=(1, 1),
    minutes=8,
    gradient=("logits",),
    floor=1.0,  # log(sum) with a sum near 1, where the token is nearly certain
)
