"""What no weight repairs: probability of the trainer's policy that is never drawn."""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from tinyrl.course.exercise import Case, Exercise, Mistakes
from tinyrl.course.exercises.lab01.batch import NAN
from tinyrl.course.exercises.lab06.decoded import ALL, responses
from tinyrl.course.words import Words


def _lost(logits: Tensor, kept: Tensor) -> Tensor:
    """1 - S of each token, by adding up what is cut."""
    return torch.where(kept, 0.0, logits.softmax(-1)).sum(-1)


def reference(logits: Tensor, kept: Tensor, mask: Tensor) -> Tensor:
    return _lost(logits[mask], kept[mask]).mean()


def _by_logs(logits: Tensor, kept: Tensor, mask: Tensor) -> Tensor:
    z, some = logits[mask], kept[mask]
    cut = z.masked_fill(some, -torch.inf).logsumexp(-1) - z.logsumexp(-1)
    return cut.exp().mean()


def _one_by_one(logits: Tensor, kept: Tensor, mask: Tensor) -> Tensor:
    total, n = torch.zeros((), dtype=logits.dtype), 0
    for z, some in zip(logits[mask], kept[mask], strict=True):
        total, n = total + z.softmax(0)[~some].sum(), n + 1
    return total / n


def _clean(logits: Tensor, mask: Tensor) -> Tensor:
    return torch.where(mask[..., None], logits, 0.0)


def _rows(logits: Tensor, kept: Tensor, mask: Tensor) -> Tensor:
    lost = torch.where(mask, _lost(_clean(logits, mask), kept), 0.0)
    return (lost.sum(-1) / mask.sum(-1)).mean()


def _all_columns(logits: Tensor, kept: Tensor, mask: Tensor) -> Tensor:
    return torch.where(mask, _lost(_clean(logits, mask), kept), 0.0).mean()


def _never_reached(logits: Tensor, kept: Tensor, mask: Tensor) -> Tensor:
    """Probability that a response leaves the kept sets somewhere."""
    S = torch.where(mask, 1 - _lost(_clean(logits, mask), kept), 1.0)
    return (1 - S.prod(-1)).mean()


def _nonzero(logits: Tensor, kept: Tensor, mask: Tensor) -> Tensor:
    lost = _lost(logits[mask], kept[mask])
    return lost.sum() / (lost != 0).sum().clamp(min=1)


MISTAKES: Mistakes = {
    "kept_mass": (
        lambda z, k, m: (z[m].softmax(-1) * k[m]).sum(-1).mean(),
        Words(
            en="This is S, what the sampler can reach. Asked for is the rest.",
            zh="这是 S，采样器能到达的部分。题目要的是其余部分。",
        ),
    ),
    "share_of_tokens": (
        lambda z, k, m: (~k[m]).to(z).mean(),
        Words(
            en="You count tokens of the vocabulary. Weigh them with their probability.",
            zh="你数的是词表中 token 的个数。应当按概率加权。",
        ),
    ),
    "minus_log": (
        lambda z, k, m: -torch.log1p(-_lost(z[m], k[m])).mean(),
        Words(
            en="This is -log S, the size of delta. Near 0 it looks like 1 - S; it is not.",
            zh="这是 -log S，即 delta 的大小。接近 0 时与 1 - S 相似，但不是一回事。",
        ),
    ),
    "summed": (
        lambda z, k, m: _lost(z[m], k[m]).sum(),
        Words(
            en="You add over all tokens. Divide by their number.",
            zh="你把所有 token 加在一起了，还要除以个数。",
        ),
    ),
    "padding_counted": (
        lambda z, k, m: _lost(z, k).mean(),
        Words(
            en="The padding is counted. Use the mask.",
            zh="把 padding 也算进去了。请用 mask。",
        ),
    ),
    "all_columns": (
        _all_columns,
        Words(
            en="You divide by B * T, padding included. Divide by the real tokens.",
            zh="你除以了 B * T，包含 padding。应当除以真实 token 数。",
        ),
    ),
    "nonzero_counted": (
        _nonzero,
        Words(
            en="You divide by the tokens that lost something. One at which everything was "
            "kept lost 0, and counts as well.",
            zh="你除以了有所损失的 token 数。全部保留的 token 损失为 0，也要计入。",
        ),
    ),
    "row_means": (
        _rows,
        Words(
            en="You average each response first. Here each real token counts the same.",
            zh="你先在每条回答内取平均。这里每个真实 token 权重相同。",
        ),
    ),
    "responses": (
        _never_reached,
        Words(
            en="This is the share of whole responses that the sampler can never produce: "
            "near 1 as soon as they are long. Asked for is the mean over tokens.",
            zh="这是采样器永远产生不了的整条回答的比例：回答一长就接近 1。题目要的是对 "
            "token 的平均。",
        ),
    ),
    "worst_token": (
        lambda z, k, m: _lost(z[m], k[m]).max(),
        Words(
            en="This is the worst token. Asked for is the mean.",
            zh="这是最严重的那个 token。题目要的是平均。",
        ),
    ),
    "likeliest_lost": (
        lambda z, k, m: torch.where(k[m], 0.0, z[m].softmax(-1)).amax(-1).mean(),
        Words(
            en="Of each place you take only the likeliest token that was cut. Add all.",
            zh="每个位置你只取了被截掉的最可能的那个 token。应当全部相加。",
        ),
    ),
    "subtracted": (
        lambda z, k, m: (1 - (z[m].float().softmax(-1) * k[m]).sum(-1).to(z)).mean(),
        Words(
            en="Nothing is left of a tail of 1e-9. 1 - S can't hold it: float32 has no "
            "number between 1 - 6e-8 and 1. Add up what is cut instead, and round nothing.",
            zh="1e-9 的尾部没有留下来。1 - S 表示不了它：float32 在 1 - 6e-8 与 1 之间没有"
            "别的数。应当直接把被截掉的概率相加，也不要取整。",
        ),
    ),
}

HAND = Words(en="two short responses by hand", zh="两条可手算的短回答")
FULL = Words(
    en="random kept sets, some of them the whole vocabulary",
    zh="随机的保留集合，有些是整个词表",
)
SMALL = Words(en="a tail of about a hundredth", zh="大约百分之一的尾部")
RANDOM = Words(en="random responses and kept sets", zh="随机的回答和保留集合")
TINY = Words(en="a tail of about 1e-9", zh="大约 1e-9 的尾部")


def cases(generator: Generator) -> list[Case]:
    def three(
        rows: int, columns: int, vocab: int, padding: bool = False
    ) -> tuple[Tensor, ...]:
        logits, _, kept, mask = responses(generator, rows, columns, vocab, padding)
        return logits, kept, mask

    def small() -> tuple[Tensor, ...]:
        """A mass that six decimals miss by more than float32 does, and 1 - S does not."""
        while True:
            logits, kept, mask = three(3, 9, 12)
            args = logits + 4 * kept, kept, mask
            mass = float(reference(args[0].double(), *args[1:])) * 1e6
            if mass < 30_000 and 0.3 < mass % 1 < 0.7:
                return args

    def lifted(logits: Tensor, kept: Tensor, mask: Tensor, by: float) -> tuple[Tensor, ...]:
        """One kept token has nearly everything, so that 1 - S is 0 in whatever order.

        24 leave others 1e-9, which is nothing to float32; 60 leave nothing to float64.
        """
        first = kept.int().argmax(-1, keepdim=True)
        lift = torch.zeros_like(logits).scatter(-1, first, by)
        return logits + lift, kept, mask

    probs = torch.tensor(
        [[[0.5, 0.25, 0.25], [0.2, 0.2, 0.6]], [[0.1, 0.4, 0.5], [0.3, 0.3, 0.4]]]
    )
    kept = torch.tensor(
        [
            [[True, True, False], [True, True, False]],
            [[False, True, True], [True, True, False]],
        ]
    )
    mask = torch.tensor([[True, True], [True, False]])
    z, some, real = three(3, 6, 8)
    full, sets, there = three(4, 9, 12)
    sets[:, 1:3] = True
    return [
        Case("example", HAND, (probs.log(), kept, mask)),
        Case("property", ALL, lifted(z, torch.ones_like(some), real, 60.0)),
        Case("inputs", RANDOM, three(3, 6, 8)),
        Case("inputs", FULL, (full, sets, there)),
        Case("inputs", SMALL, small()),
        Case("padding", NAN, three(3, 7, 8, padding=True)),
        Case("numbers", TINY, lifted(z, some, real, 24.0)),
    ]


EXERCISE = Exercise(
    name="unreachable_mass",
    title=Words(en="What can never be drawn", zh="永远抽不到的部分"),
    reference=reference,
    returns=("mass",),
    cases=cases,
    mistakes=MISTAKES,
    alternatives={"by_logs": _by_logs, "one_by_one": _one_by_one},
    hints=(
        Words(
            en="1 - S of each real token. Which of the two sums is the safe one?",
            zh="每个真实 token 的 1 - S。哪一种求和更稳妥？",
        ),
        Words(
            en="Add the trainer's probabilities of what is *not* kept, then the mean.",
            zh="把训练端在 *未保留* token 上的概率相加，再取平均。",
        ),
        Words(
            en="`p = logits[mask].softmax(-1)`, "
            "`torch.where(kept[mask], 0, p).sum(-1).mean()`.",
            zh="先 `p = logits[mask].softmax(-1)`，再 "
            "`torch.where(kept[mask], 0, p).sum(-1).mean()`。",
        ),
    ),
    points=(1, 1),
    minutes=6,
)
