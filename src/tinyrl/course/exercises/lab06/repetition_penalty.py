"""The repetition penalty: logits of tokens seen before are made smaller."""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from tinyrl.course.exercise import Case, Exercise, Mistakes
from tinyrl.course.exercises.lab06.decoded import GRADIENT, spread
from tinyrl.course.words import Words


def _seen(logits: Tensor, ids: Tensor) -> Tensor:
    """Boolean, as `logits`: the tokens that are among a row's ids."""
    return torch.zeros_like(logits, dtype=torch.bool).scatter(-1, ids, True)


def _counts(logits: Tensor, ids: Tensor) -> Tensor:
    """How often each token is among a row's ids."""
    return torch.zeros_like(logits).scatter_add(-1, ids, torch.ones_like(ids).to(logits))


def _smaller(z: Tensor, penalty: float | Tensor) -> Tensor:
    return torch.where(z < 0, z * penalty, z / penalty)


def reference(logits: Tensor, ids: Tensor, penalty: float) -> Tensor:
    return torch.where(_seen(logits, ids), _smaller(logits, penalty), logits)


def _counted(logits: Tensor, ids: Tensor, penalty: float) -> Tensor:
    factor = torch.where(logits < 0, penalty, 1 / penalty)
    return logits * torch.where(_counts(logits, ids) > 0, factor, 1.0)


def _gathered(logits: Tensor, ids: Tensor, penalty: float) -> Tensor:
    """Right values, as in `transformers`; but each occurrence brings its own gradient."""
    z = logits.gather(-1, ids)
    return logits.scatter(-1, ids, torch.where(z > 0, z / penalty, z * penalty))


def _row_by_row(logits: Tensor, ids: Tensor, penalty: float) -> Tensor:
    rows = []
    for z, seen in zip(logits, ids, strict=True):
        some = torch.tensor(sorted(set(seen.tolist())))
        rows.append(z.index_put((some,), _smaller(z[some], penalty)))
    return torch.stack(rows)


def _of_probabilities(z: Tensor, ids: Tensor, penalty: float) -> Tensor:
    logp = z.log_softmax(-1)
    return torch.where(_seen(z, ids), _smaller(logp, penalty), logp)


def _of_batch(z: Tensor, ids: Tensor, penalty: float) -> Tensor:
    return reference(z, ids.flatten().expand(len(z), -1), penalty)


MISTAKES: Mistakes = {
    "always_divided": (
        lambda z, ids, r: torch.where(_seen(z, ids), z / r, z),
        Words(
            en="You divide every logit. A negative one divided by more than 1 gets "
            "*larger*: the penalty would be a reward. Multiply those below 0.",
            zh="你对所有 logit 都做除法。负数除以大于 1 的数会变 *大*，惩罚成了奖励。负的应"
            "当乘。",
        ),
    ),
    "always_multiplied": (
        lambda z, ids, r: torch.where(_seen(z, ids), z * r, z),
        Words(
            en="You multiply every logit. A positive one times more than 1 gets larger: "
            "divide those above 0.",
            zh="你对所有 logit 都做乘法。正数乘以大于 1 的数会变大：正的应当除。",
        ),
    ),
    "turned_round": (
        lambda z, ids, r: torch.where(_seen(z, ids), _smaller(z, 1 / r), z),
        Words(
            en="The two signs are swapped: every token seen before gets likelier.",
            zh="正负两种情形弄反了：出现过的 token 反而更可能。",
        ),
    ),
    "subtracted": (
        lambda z, ids, r: torch.where(_seen(z, ids), z - r, z),
        Words(
            en="You subtract the penalty: that is a presence penalty. This one divides.",
            zh="你减去了惩罚值：那是 presence penalty。这里要做除法。",
        ),
    ),
    "each_time": (
        lambda z, ids, r: torch.where(_seen(z, ids), _smaller(z, r ** _counts(z, ids)), z),
        Words(
            en="A token that occurred twice is penalised twice. Whether it occurred is all "
            "that counts.",
            zh="出现两次的 token 被惩罚了两次。这里只看是否出现过。",
        ),
    ),
    "everybody": (
        lambda z, ids, r: _smaller(z, r),
        Words(
            en="You penalise every token of the vocabulary. Only those in ids.",
            zh="你惩罚了词表里的所有 token。只应惩罚 ids 中的。",
        ),
    ),
    "the_others": (
        lambda z, ids, r: torch.where(_seen(z, ids), z, _smaller(z, r)),
        Words(
            en="You penalise the tokens that have *not* been seen.",
            zh="你惩罚的是 *没有* 出现过的 token。",
        ),
    ),
    "last_only": (
        lambda z, ids, r: reference(z, ids[:, -1:], r),
        Words(
            en="Only the last token is penalised. All that stand before count.",
            zh="只惩罚了最后一个 token。前面所有出现过的都算。",
        ),
    ),
    "whole_batch": (
        _of_batch,
        Words(
            en="You penalise what any sequence of the batch has seen. Rows are sequences "
            "of their own.",
            zh="你惩罚了 batch 中任何序列出现过的 token。每一行是独立的序列。",
        ),
    ),
    "of_logprobs": (
        _of_probabilities,
        Words(
            en="You work on logprobs, which are all negative. The penalty is of logits, "
            "and depends on where their zero lies.",
            zh="你对 logprob 做了惩罚，它们全是负数。惩罚作用在 logits 上，结果取决于 logit"
            " 的零点。",
        ),
    ),
    "cut": (
        lambda z, ids, r: z.masked_fill(_seen(z, ids), -torch.inf),
        Words(
            en="You forbid what has been seen. A penalty makes it less likely.",
            zh="你禁止了出现过的 token。惩罚只是让它们更不可能。",
        ),
    ),
    "gathered": (
        _gathered,
        Words(
            en="The values are right, but the gradient of a token that occurred twice is "
            "doubled: gathered twice, scattered twice. Make a mask of what occurred, then "
            "use `where`.",
            zh="数值正确，但出现两次的 token 梯度翻了倍：gather 两次、scatter 两次。请先做"
            "一个“是否出现过”的掩码，再用 `where`。",
        ),
    ),
    "detach": (
        lambda z, ids, r: reference(z, ids, r).detach(),
        Words(
            en="The values are right, but no gradient reaches the logits.",
            zh="数值正确，但梯度传不到 logits。",
        ),
    ),
}

HAND = Words(
    en="two tokens by hand, penalty 2; one id occurs twice",
    zh="两个可手算的 token，惩罚为 2；有一个 id 出现两次",
)
ONE = Words(en="a penalty of 1 changes nothing", zh="惩罚为 1 时什么都不变")
RANDOM = Words(en="random logits and ids", zh="随机的 logits 和 ids")
BELOW = Words(en="a penalty below 1: a reward for repeating", zh="惩罚小于 1：鼓励重复")
LONG = Words(en="long texts", zh="很长的文本")


def cases(generator: Generator) -> list[Case]:
    def pair(tokens: int, vocab: int, length: int) -> tuple[Tensor, Tensor]:
        """Logits of both signs; among the ids of each row, one of either sign twice."""
        z = spread(generator, tokens, vocab)
        ids = torch.randint(vocab, (tokens, length), generator=generator)
        order = z.argsort(-1)
        ids[:, :4] = torch.stack([order[:, 0]] * 2 + [order[:, -1]] * 2, -1)
        return z, ids[:, torch.randperm(length, generator=generator)]

    z = torch.tensor([[2.0, -1.0, 0.5, -0.5], [1.0, 3.0, -2.0, 0.25]])
    ids = torch.tensor([[0, 1, 0], [2, 3, 3]])
    return [
        Case("example", HAND, (z, ids, 2.0)),
        Case("property", ONE, (*pair(5, 8, 6), 1.0)),
        Case("inputs", RANDOM, (*pair(6, 10, 6), 1.3)),
        Case("inputs", RANDOM, (*pair(4, 16, 8), 1.1)),
        Case("inputs", BELOW, (*pair(5, 9, 6), 0.7)),
        Case("gradient", GRADIENT, (*pair(6, 10, 6), 1.5)),
        Case("numbers", LONG, (*pair(3, 300, 200), 1.05)),
    ]


EXERCISE = Exercise(
    name="repetition_penalty",
    title=Words(en="The repetition penalty", zh="重复惩罚"),
    reference=reference,
    returns=("logits",),
    cases=cases,
    mistakes=MISTAKES,
    alternatives={"counted": _counted, "row_by_row": _row_by_row},
    hints=(
        Words(
            en="Two questions: which tokens, and what makes a logit smaller whatever its "
            "sign?",
            zh="两个问题：惩罚哪些 token？怎样让一个 logit 不论正负都变小？",
        ),
        Words(
            en="Divide what is above 0, multiply what is below; only tokens in ids.",
            zh="正的除，负的乘；只对 ids 中的 token。",
        ),
        Words(
            en="`seen = torch.zeros_like(logits, dtype=torch.bool).scatter(-1, ids, True)` "
            "says what occurred; then two `torch.where`.",
            zh="`seen = torch.zeros_like(logits, dtype=torch.bool).scatter(-1, ids, True)` "
            "表示是否出现过；然后用两个 `torch.where`。",
        ),
    ),
    points=(1, 2),
    minutes=7,
    gradient=("logits",),
)
