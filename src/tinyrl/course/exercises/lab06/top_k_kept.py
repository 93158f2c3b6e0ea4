"""Top-k: the k likeliest tokens, and what ties with the last of them."""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from tinyrl.course.exercise import Case, Exercise, Mistakes
from tinyrl.course.exercises.lab06.decoded import ALL, LOGITS, spread
from tinyrl.course.words import Words


def reference(logits: Tensor, k: int) -> Tensor:
    return logits >= logits.topk(k).values[..., -1:]


def _by_rank(logits: Tensor, k: int) -> Tensor:
    """Kept are those than which fewer than k are larger."""
    return (logits[..., None, :] > logits[..., :, None]).sum(-1) < k


def _by_sorting(logits: Tensor, k: int) -> Tensor:
    border = logits.sort(-1, descending=True).values[..., k - 1]
    return logits - border[..., None] >= 0


def _exactly(logits: Tensor, k: int) -> Tensor:
    kept = torch.zeros_like(logits, dtype=torch.bool)
    return kept.scatter(-1, logits.topk(k).indices, True)


def _distinct(logits: Tensor, k: int) -> Tensor:
    return torch.stack([row >= row.unique()[-min(k, len(row.unique()))] for row in logits])


MISTAKES: Mistakes = {
    "ties_cut": (
        _exactly,
        Words(
            en="You keep exactly k, and of tokens that tie with the last one in some go, "
            "by chance. Keep all that are as large as the k-th largest.",
            zh="你恰好保留 k 个，与第 k 名并列的有些被随机丢掉。应当保留所有不小于第 k 大值"
            "的 token。",
        ),
    ),
    "distinct": (
        _distinct,
        Words(
            en="You count different values, so tokens that tie count as one and too many "
            "are kept. Each token counts: of 5, 5, 3 the second largest is 5.",
            zh="你数的是不同的取值，并列的 token 只算一个，于是保留得太多。每个 token 都"
            "算：5、5、3 中第二大的是 5。",
        ),
    ),
    "border_out": (
        lambda z, k: z > z.topk(k).values[..., -1:],
        Words(
            en="The k-th largest itself is cut. The border is inside: `>=`.",
            zh="第 k 大的那个自己被丢掉了。边界在集合内：用 `>=`。",
        ),
    ),
    "one_more": (
        lambda z, k: reference(z, min(k + 1, z.shape[-1])),
        Words(
            en="You keep k + 1 tokens: positions in a sorted row begin at 0.",
            zh="你保留了 k + 1 个：排序后的下标从 0 开始。",
        ),
    ),
    "smallest": (
        lambda z, k: z <= z.topk(k, largest=False).values[..., -1:],
        Words(
            en="These are the k unlikeliest tokens.",
            zh="你保留的是概率最小的 k 个。",
        ),
    ),
    "removed": (
        lambda z, k: ~reference(z, k),
        Words(
            en="This is true for what is cut. Asked for is what is kept.",
            zh="这里被丢掉的为真。题目要的是被保留的。",
        ),
    ),
    "indices_as_ranks": (
        lambda z, k: z.argsort(-1, descending=True) < k,
        Words(
            en="`argsort` gives for each rank the token that has it, not for each token "
            "its rank. Compare values with the k-th largest.",
            zh="`argsort` 给出的是每个名次对应的 token，而不是每个 token 的名次。请把数值与"
            "第 k 大的值比较。",
        ),
    ),
    "whole_batch": (
        lambda z, k: z >= z.flatten().topk(k).values[-1],
        Words(
            en="You take the k largest of the whole batch. Each row has its own border.",
            zh="你在整个 batch 里取前 k 个。每一行有自己的边界。",
        ),
    ),
    "down_the_column": (
        lambda z, k: z >= z.topk(min(k, len(z)), 0).values[-1:],
        Words(
            en="You compare tokens of one column, down the batch. The vocabulary is the "
            "last axis.",
            zh="你沿 batch 方向逐列比较了。词表在最后一维。",
        ),
    ),
    "probability": (
        lambda z, k: z.softmax(-1) >= 1 / k,
        Words(
            en="You keep tokens with a probability of at least 1 / k. Top-k counts; it "
            "does not look at probabilities.",
            zh="你保留的是概率至少 1 / k 的 token。top-k 只看名次，不看概率大小。",
        ),
    ),
    "of_probabilities": (
        lambda z, k: reference(z.softmax(-1), k),
        Words(
            en="You compare probabilities. Those of logits far below the largest underflow "
            "to 0 and tie, so too many are kept: compare the logits.",
            zh="你比较的是概率。远低于最大值的 logit，概率下溢成 0 而并列，于是保留得太多。"
            "应当比较 logit。",
        ),
    ),
    "sorted_order": (
        lambda z, k: torch.arange(z.shape[-1]).expand(z.shape) < k,
        Words(
            en="You keep the first k columns, as if tokens were sorted. The mask belongs "
            "to the vocabulary's own order.",
            zh="你保留了前 k 列，好像 token 已排好序。掩码应当按词表原来的顺序。",
        ),
    ),
}

HAND = Words(en="two tokens by hand, k = 2", zh="两个可手算的 token，k = 2")
GREEDY = Words(en="k = 1: greedy decoding", zh="k = 1：贪心解码")
MANY = Words(en="a large k: the border is below 0", zh="k 很大：边界小于 0")
TIES = Words(en="several tokens tie at the border", zh="边界上有若干并列的 token")
ABOVE = Words(en="two tokens tie above the border", zh="边界之上有两个并列的 token")
FAR = Words(en="logits that lie thousands apart", zh="相差数千的 logits")
NEARLY = Words(en="tokens that nearly tie", zh="几乎并列的 token")


def cases(generator: Generator) -> list[Case]:
    small = torch.tensor([[2.0, -1.0, 0.5, 1.0], [0.25, 3.0, -0.5, 0.5]])

    def tied(first: int, last: int, apart: float = 0.0) -> Tensor:
        """Logits whose ranks from `first` to `last` tie, or go down in such small steps."""
        z = spread(generator, 6, 9)
        order = z.argsort(-1, descending=True)[:, first : last + 1]
        steps = apart * torch.arange(last + 1 - first)
        return z.scatter(-1, order, z.gather(-1, order[:, :1]) - steps)

    return [
        Case("example", HAND, (small, 2)),
        Case("property", GREEDY, (spread(generator, 6, 8), 1)),
        Case("property", ALL, (spread(generator, 5, 6), 6)),
        Case("inputs", LOGITS, (spread(generator, 6, 8), 3)),
        Case("inputs", LOGITS, (spread(generator, 9, 16), 5)),
        Case("inputs", MANY, (spread(generator, 6, 16), 12)),
        Case("numbers", TIES, (tied(2, 4), 3)),
        Case("numbers", ABOVE, (tied(0, 1), 3)),
        Case("numbers", FAR, (4000 * spread(generator, 5, 8), 5)),
        Case("numbers", NEARLY, (tied(1, 4, apart=5e-6), 3)),
    ]


EXERCISE = Exercise(
    name="top_k_kept",
    title=Words(en="Top-k", zh="top-k 保留哪些"),
    reference=reference,
    returns=("kept",),
    cases=cases,
    mistakes=MISTAKES,
    alternatives={"by_rank": _by_rank, "by_sorting": _by_sorting},
    hints=(
        Words(
            en="Which number does a logit have to reach to be in?",
            zh="一个 logit 要达到什么值才能留下？",
        ),
        Words(
            en="The k-th largest of its row is the border, and it is inside.",
            zh="边界是该行第 k 大的值，并且边界本身在集合内。",
        ),
        Words(
            en="`logits >= logits.topk(k).values[..., -1:]`.",
            zh="直接用 `logits >= logits.topk(k).values[..., -1:]`。",
        ),
    ),
    points=(1, 1),
    minutes=5,
    exact=True,
    boolean=("kept",),
)
