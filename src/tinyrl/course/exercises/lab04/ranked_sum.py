"""A product whose inputs are shared out among ranks: BF16 sums, added rank by rank."""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from tinyrl.course.exercise import Case, Exercise, Function, Mistakes
from tinyrl.course.exercises.lab04.draws import grid, to_bf16
from tinyrl.course.words import Words

bf = to_bf16


def partials(x: Tensor, w: Tensor, ranks: int) -> list[Tensor]:
    shares = zip(x.chunk(ranks, -1), w.chunk(ranks, -1), strict=True)
    return [bf(a @ b.T) for a, b in shares]


def reference(x: Tensor, w: Tensor, ranks: int) -> Tensor:
    total, *others = partials(x, w, ranks)
    for partial in others:
        total = bf(total + partial)
    return total


def _sliced(x: Tensor, w: Tensor, ranks: int) -> Tensor:
    size = x.shape[1] // ranks
    total = torch.zeros(len(x), len(w), dtype=x.dtype)
    for rank in range(ranks):
        mine = slice(rank * size, (rank + 1) * size)
        total = bf(total + bf(x[:, mine] @ w[:, mine].T))
    return total


def _batched(x: Tensor, w: Tensor, ranks: int) -> Tensor:
    """All partial sums in one product, then a running BF16 sum."""
    a = x.view(len(x), ranks, -1).transpose(0, 1)
    b = w.view(len(w), ranks, -1).permute(1, 2, 0)
    total, *others = (a @ b).bfloat16().unbind()
    for partial in others:
        total = total + partial
    return total


def _added(add: Function) -> Function:
    """The right partial sums, put together in another way."""

    def wrong(x: Tensor, w: Tensor, ranks: int) -> Tensor:
        return add(partials(x, w, ranks))  # type: ignore[no-any-return]

    return wrong


def _backwards(parts: list[Tensor]) -> Tensor:
    total = parts[-1]
    for partial in reversed(parts[:-1]):
        total = bf(total + partial)
    return total


def _tree(parts: list[Tensor]) -> Tensor:
    if len(parts) == 1:
        return parts[0]
    half = len(parts) // 2
    return bf(_tree(parts[:half]) + _tree(parts[half:]))


def _sent_exactly(x: Tensor, w: Tensor, ranks: int) -> Tensor:
    total = torch.zeros(len(x), len(w), dtype=x.dtype)
    for a, b in zip(x.chunk(ranks, -1), w.chunk(ranks, -1), strict=True):
        total = bf(total + a @ b.T)
    return total


def _inputs_rounded(x: Tensor, w: Tensor, ranks: int) -> Tensor:
    return reference(bf(x), bf(w), ranks)


def _strided(x: Tensor, w: Tensor, ranks: int) -> Tensor:
    order = torch.arange(x.shape[1]).view(-1, ranks).T.flatten()
    return reference(x[:, order], w[:, order], ranks)


MISTAKES: Mistakes = {
    "not_split": (
        lambda x, w, ranks: x @ w.T,
        Words(
            en="This is the whole product, exact. Each rank has a part of the inputs, and "
            "what it sends is rounded.",
            zh="这是完整而精确的乘积。每个 rank 只有一部分输入，发送的结果要舍入。",
        ),
    ),
    "rounded_once": (
        lambda x, w, ranks: bf(x @ w.T),
        Words(
            en="You round the whole product once. Round each rank's sum, and what has been "
            "added so far.",
            zh="你只把完整的乘积舍入了一次。每个 rank 的部分和要舍入，每次相加之后也要舍"
            "入。",
        ),
    ),
    "added_exactly": (
        _added(lambda parts: torch.stack(parts).sum(0)),
        Words(
            en="The ranks' sums are rounded, but what is added is not: the running total "
            "is kept in BF16, too.",
            zh="各 rank 的部分和舍入了，但相加的结果没有：累加和也以 BF16 保存。",
        ),
    ),
    "rounded_at_the_end": (
        _added(lambda parts: bf(torch.stack(parts).sum(0))),
        Words(
            en="You add in FP32 and round at the end, as a good collective does. Here the "
            "total is rounded after every rank.",
            zh="你用 FP32 相加、最后才舍入，好的集合通信是这样做的。这里每加一个 rank 就要"
            "舍入一次。",
        ),
    ),
    "sent_exactly": (
        _sent_exactly,
        Words(
            en="You round the running total, but not what a rank sends.",
            zh="你舍入了累加和，但没有舍入每个 rank 发送的部分和。",
        ),
    ),
    "inputs_rounded": (
        _inputs_rounded,
        Words(
            en="You round x and w to BF16 before you multiply. A rank multiplies in FP32; "
            "its sum is the first thing that is rounded.",
            zh="你在相乘之前就把 x 和 w 舍入到了 BF16。每个 rank 用 FP32 相乘，最先舍入的是"
            "它的部分和。",
        ),
    ),
    "backwards": (
        _added(_backwards),
        Words(
            en="You add from the last rank down. Rounded sums depend on the order: 0, 1, "
            "2 ...",
            zh="你是从最后一个 rank 往前加的。带舍入的和与次序有关：应按 0、1、2 的顺序。",
        ),
    ),
    "tree": (
        _added(_tree),
        Words(
            en="You add in pairs, as a tree-shaped all-reduce does. Asked for is one rank "
            "after the other.",
            zh="你是两两相加的，那是树形 all-reduce。题目要求一个 rank 接一个 rank 地加。",
        ),
    ),
    "strided": (
        _strided,
        Words(
            en="You deal the inputs out like cards. Rank 0 has the first K / N of them, in "
            "one piece.",
            zh="你像发牌一样把输入轮流分给各 rank。rank 0 应当拿连续的前 K / N 个。",
        ),
    ),
    "mean": (
        _added(lambda parts: bf(_backwards(parts[::-1]) / len(parts))),
        Words(
            en="You average over ranks. Partial sums add up to the product.",
            zh="你对各 rank 取了平均。部分和相加才是乘积。",
        ),
    ),
    "first_rank": (
        _added(lambda parts: parts[0]),
        Words(
            en="This is rank 0's share alone: the others are missing.",
            zh="这只是 rank 0 的部分：漏了其他 rank。",
        ),
    ),
}

BY_HAND = Words(
    en="three ranks with the sums 256, 1 and 1", zh="三个 rank，部分和为 256、1、1"
)
ONE = Words(en="one rank", zh="只有一个 rank")
FOUR = Words(en="four ranks", zh="四个 rank")
FIVE = Words(en="five ranks", zh="五个 rank")
CANCEL = Words(en="large sums that nearly cancel", zh="几乎相互抵消的很大的部分和")


def cases(generator: Generator) -> list[Case]:
    def args(ranks: int, rows: int = 4, size: int = 6) -> tuple[Tensor, Tensor, int]:
        """Of nine bits: one more than BF16 has, and float32 adds the products exactly."""
        x = grid(generator, rows, ranks * size, steps=500, per_unit=128)
        w = grid(generator, 5, ranks * size, steps=500, per_unit=128)
        return x, w, ranks

    example = torch.tensor([[256.0, 1.0, 1.0]]), torch.ones(1, 3), 3
    x, w, ranks = args(4, 6, 4)
    x[:, :4], x[:, 4:8] = 8 * x[:, :4].abs(), -8 * x[:, :4].abs()
    w[:, :8] = w[:, :8].abs()
    return [
        Case("example", BY_HAND, example),
        Case("property", ONE, args(1)),
        Case("inputs", FOUR, args(4)),
        Case("inputs", FIVE, args(5)),
        Case("numbers", CANCEL, (x, w, ranks)),
    ]


EXERCISE = Exercise(
    name="ranked_sum",
    title=Words(en="Partial sums, rank by rank", zh="逐个 rank 相加的部分和"),
    reference=reference,
    returns=("y",),
    cases=cases,
    mistakes=MISTAKES,
    alternatives={"sliced": _sliced, "batched": _batched},
    hints=(
        Words(
            en="Which columns of x and of w does rank 0 need for its part of every output?",
            zh="rank 0 要为每个输出算出自己的那部分，需要 x 和 w 的哪些列？",
        ),
        Words(
            en="partial r = bf16(x_r @ w_r.T). Then total = partial 0, and "
            "total = bf16(total + partial r) for r = 1, 2 ...",
            zh="partial r = bf16(x_r @ w_r.T)。然后 total = partial 0，依次对 r = 1、2…… 做"
            " total = bf16(total + partial r)。",
        ),
        Words(
            en="`x.chunk(ranks, -1)` gives one piece of columns after the other; "
            "`total, *others = [...]` takes the first one apart.",
            zh="`x.chunk(ranks, -1)` 依次给出各段列；`total, *others = [...]` 把第一个单独"
            "取出。",
        ),
    ),
    points=(1, 2),
    minutes=10,
    exact=True,
)
