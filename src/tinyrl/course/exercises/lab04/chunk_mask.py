"""What a chunk of a prompt may look at: the mask behind chunked prefill."""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from tinyrl.course.exercise import Case, Exercise, Mistakes
from tinyrl.course.exercises.lab04.draws import whole
from tinyrl.course.words import Words


def reference(start: int, tokens: int, keys: int) -> Tensor:
    return torch.arange(keys) <= start + torch.arange(tokens)[:, None]


def _lower_triangle(start: int, tokens: int, keys: int) -> Tensor:
    return torch.ones(tokens, keys).tril(start).bool()


def _row_by_row(start: int, tokens: int, keys: int) -> Tensor:
    rows = [[j <= start + i for j in range(keys)] for i in range(tokens)]
    return torch.tensor(rows)


def _cut_from_the_whole(start: int, tokens: int, keys: int) -> Tensor:
    return torch.ones(keys, keys, dtype=torch.bool).tril()[start : start + tokens]


def _chunk_only(start: int, tokens: int, keys: int) -> Tensor:
    return reference(start, tokens, keys) & (torch.arange(keys) >= start)


def _all_of_the_chunk(start: int, tokens: int, keys: int) -> Tensor:
    return (torch.arange(keys) < start + tokens).expand(tokens, keys)


MISTAKES: Mistakes = {
    "start_forgotten": (
        lambda start, tokens, keys: reference(0, tokens, keys),
        Words(
            en="The chunk begins at token `start`, not at 0: its first query sees "
            "start + 1 keys.",
            zh="这一块从第 `start` 个 token 开始，而不是 0：它的第一个 query 能看到 start "
            "+ 1 个 key。",
        ),
    ),
    "not_itself": (
        lambda start, tokens, keys: reference(start - 1, tokens, keys),
        Words(
            en="A token does not see itself. It does: the comparison is <=.",
            zh="你的 token 看不到自己。应当能看到：比较用 <=。",
        ),
    ),
    "one_ahead": (
        lambda start, tokens, keys: reference(start + 1, tokens, keys),
        Words(
            en="Each query sees one key too many: the token that it has to predict.",
            zh="每个 query 多看了一个 key：正是它要预测的那个 token。",
        ),
    ),
    "chunk_only": (
        _chunk_only,
        Words(
            en="The chunk does not see the tokens before it. They are in the cache, and "
            "attention reads them.",
            zh="这一块看不到它之前的 token。它们在 cache 里，attention 要读取。",
        ),
    ),
    "all_of_the_chunk": (
        _all_of_the_chunk,
        Words(
            en="Within the chunk each query sees the later ones, too.",
            zh="块内的 query 看到了后面的 token。",
        ),
    ),
    "padding_seen": (
        lambda start, tokens, keys: torch.ones(tokens, keys, dtype=torch.bool),
        Words(
            en="Everything is visible, unused places of the cache included.",
            zh="所有位置都可见，连 cache 里没用到的位置也算上了。",
        ),
    ),
    "inverted": (
        lambda start, tokens, keys: ~reference(start, tokens, keys),
        Words(
            en="True and false are swapped: true is where a query may look.",
            zh="真假反了：真表示 query 可以看的地方。",
        ),
    ),
    "aligned_right": (
        lambda start, tokens, keys: reference(keys - tokens, tokens, keys),
        Words(
            en="You put the chunk at the end of the key axis. That fits a cache that "
            "grows; here there are unused places behind the chunk.",
            zh="你把这一块放在了 key 轴的末尾。cache 随用随长时是对的；这里块后面还有没用到"
            "的位置。",
        ),
    ),
    "transposed": (
        lambda start, tokens, keys: reference(start, tokens, keys).T,
        Words(
            en="The axes are swapped: queries are rows, keys are columns.",
            zh="两个维度反了：行是 query，列是 key。",
        ),
    ),
}

BY_HAND = Words(
    en="tokens 2 and 3 of a prompt, a cache of 6", zh="提示的第 2、3 个 token，cache 长 6"
)
WHOLE = Words(en="the whole prompt at once", zh="一次读完整个提示")
CHUNK = Words(en="a chunk from the middle", zh="中间的一块")
LAST = Words(en="a chunk that fills the cache, not one place is left", zh="刚好填满 cache")
ONE = Words(en="one token, as in decoding", zh="只有一个 token，即解码")


def cases(generator: Generator) -> list[Case]:
    a, b, c = (whole(generator, 3, 12) for _ in range(3))
    return [
        Case("example", BY_HAND, (2, 2, 6)),
        Case("property", WHOLE, (0, a, a)),
        Case("inputs", CHUNK, (a, b, a + b + c)),
        Case("inputs", CHUNK, (150 + b, c, 150 + a + b + 2 * c)),  # past int8's range
        Case("numbers", LAST, (c, a, a + c)),
        Case("numbers", ONE, (b, 1, b + c)),
    ]


EXERCISE = Exercise(
    name="chunk_mask",
    title=Words(en="What a chunk may see", zh="一块提示能看到什么"),
    reference=reference,
    returns=("visible",),
    cases=cases,
    mistakes=MISTAKES,
    alternatives={
        "lower_triangle": _lower_triangle,
        "row_by_row": _row_by_row,
        "cut_from_the_whole": _cut_from_the_whole,
    },
    hints=(
        Words(
            en="Query i of the chunk is token start + i of the prompt. Which keys are not "
            "behind it?",
            zh="块里的第 i 个 query 是提示的第 start + i 个 token。哪些 key 不在它后面？",
        ),
        Words(
            en="visible[i, j] is j <= start + i. Unused places behind the chunk come out "
            "false by themselves.",
            zh="visible[i, j] 就是 j <= start + i。块后面没用到的位置自然是假。",
        ),
        Words(
            en="`torch.arange(tokens)[:, None]` is a column, `torch.arange(keys)` a row: "
            "comparing them gives a matrix.",
            zh="`torch.arange(tokens)[:, None]` 是一列，`torch.arange(keys)` 是一行：两者比"
            "较得到一个矩阵。",
        ),
    ),
    points=(1, 1),
    minutes=5,
    exact=True,
    boolean=("visible",),
)
