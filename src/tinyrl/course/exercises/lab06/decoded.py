"""Inputs that the exercises share: logits whose borders no rounding can move, kept sets."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Generator, Tensor

from tinyrl.course.exercises.lab01.batch import mask_of, uniform
from tinyrl.course.words import Words

LOGITS = Words(en="logits of random tokens", zh="随机 token 的 logits")
SURE = Words(en="one token has nearly everything", zh="一个 token 几乎占了全部概率")
LARGE = Words(
    en="logits near 1000: exp of them overflows, in float64 too",
    zh="1000 左右的 logits：exp 会溢出，float64 也不例外",
)
HOPELESS = Words(
    en="the kept tokens have next to no probability", zh="保留的 token 几乎没有概率"
)
ALL = Words(en="every token is kept", zh="所有 token 都保留")
GRADIENT = Words(en="the same with gradients", zh="要求梯度")
BELOW = 1e5  # the hopeless lie so far down; -1e4 and FP16's -65504 are no infinity
FINITE = Words(
    en="You fill what is cut with a finite number. Where the kept logits are lower still, "
    "the cut ones have nearly all the probability. `-torch.inf` is what is out.",
    zh="你用一个有限的数填充被截掉的部分。保留的 logits 比它更低时，被截掉的反而占了几乎全"
    "部概率。应当用 `-torch.inf`。",
)
FP16_FILL = Words(
    en="-60,000 is about as far down as FP16 goes, and a logit like others in FP32: the "
    "kept ones can be lower. `-torch.inf` is what is out.",
    zh="-60,000 接近 FP16 的下限，但在 FP32 里只是普通的 logit：保留的可能比它更低。应当用 "
    "`-torch.inf`。",
)
BY_HAND = torch.tensor([[0.5, 0.25, 0.15, 0.1], [0.1, 0.05, 0.8, 0.05]]).log()


def spread(generator: Generator, *shape: int, scale: float = 2.0) -> Tensor:
    """Logits `[..., V]`, no two of a row nearer than about 0.1."""
    order = torch.rand(shape, generator=generator).argsort(-1)
    steps = order / (shape[-1] - 1) - 0.5
    return 2 * scale * steps + uniform(generator, shape, -0.02, 0.02)


def clear(
    generator: Generator, tokens: int, vocab: int, near: Callable[[Tensor], Tensor]
) -> Tensor:
    """Logits `[tokens, vocab]` whose `near`, distances to a border, are above 0.005."""
    return drawn(generator, tokens, vocab, lambda p: bool((near(p).abs() > 5e-3).all()))


def drawn(
    generator: Generator, tokens: int, vocab: int, wanted: Callable[[Tensor], bool]
) -> Tensor:
    """Logits `[tokens, vocab]`, each row with `wanted` probabilities."""
    rows: list[Tensor] = []
    while len(rows) < tokens:
        scale = uniform(generator, (), 1.5, 4.0).item()  # else sums hardly vary
        row = spread(generator, vocab, scale=scale)
        if wanted(row.double().softmax(-1)):
            rows.append(row)
    return torch.stack(rows)


def kept_set(generator: Generator, logits: Tensor) -> Tensor:
    """Boolean, as `logits`: some tokens of each row, neither none nor all."""
    V, shape = logits.shape[-1], logits.shape[:-1]
    size = torch.randint(1, V - 1, shape, generator=generator)
    order = torch.rand(logits.shape, generator=generator).argsort(-1)
    return order <= size[..., None]


def one_zero(logits: Tensor, kept: Tensor) -> Tensor:
    """The logits moved by a constant, so that one of those kept is exactly 0."""
    first = kept.int().argmax(-1, keepdim=True)
    return logits - logits.gather(-1, first)


def responses(
    generator: Generator,
    rows: int,
    columns: int,
    vocab: int,
    padding: bool = False,
    scale: float = 2.0,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Logits and kept sets `[B, T, V]`, sampled ids and mask `[B, T]`.

    Real tokens are kept, and one kept logit is 0. In the padding ids are the last token's,
    kept or not, and with `padding` logits are NaN.
    """
    logits = spread(generator, rows, columns, vocab, scale=scale)
    mask = mask_of(generator, rows, columns)
    kept = kept_set(generator, logits)
    logits = one_zero(logits, kept)
    chance = torch.rand(logits.shape, generator=generator).masked_fill(~kept, -1.0)
    ids = torch.where(mask, chance.argmax(-1), vocab - 1)
    if padding:
        logits = torch.where(mask[..., None], logits, torch.nan)
    return logits, ids, kept, mask


def over(logits: Tensor, kept: Tensor) -> Tensor:
    """The logits `[..., V]`, -inf where not kept."""
    return logits.masked_fill(~kept, -torch.inf)
