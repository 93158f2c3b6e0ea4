"""Inputs that the exercises share: logprobs of two policies, mask, garbage padding."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Generator, Tensor

from tinyrl.course.exercise import Case
from tinyrl.course.words import Words

Padding = Literal["finite", "nan", "inf"]

BY_HAND = Words(en="two short responses, done by hand", zh="两条很短的回答，可以手算")
RANDOM = Words(
    en="random responses, with numbers in the padding",
    zh="随机回答，padding 里有数",
)
NAN = Words(en="the padding holds NaN", zh="padding 里是 NaN")
INF = Words(en="the padding holds inf", zh="padding 里是 inf")
LONG = Words(en="long responses", zh="很长的回答")
SAME = Words(
    en="both policies are the same, so nothing may differ",
    zh="两边是同一个策略，不应有任何差异",
)
GRADIENT = Words(
    en="the same with gradients, NaN in the padding", zh="要求梯度，padding 里是 NaN"
)
AGREED = Words(
    en="some tokens on which both sides agree exactly, some of probability 1",
    zh="有些 token 两边完全一致，有些概率为 1",
)
IMPOSSIBLE = Words(
    en="a token of probability e^-60 on one side alone, on either side",
    zh="每一边各有一个 token，只有这一边认为它的概率是 e^-60",
)
CLAMPED = Words(
    en="You clamp delta. Trainers do that to survive; what is measured has to show the "
    "worst tokens as they are.",
    zh="你把 delta 截断了。训练代码常这样保命，但度量要如实反映最糟的 token。",
)
NONZERO = Words(
    en="You count the tokens whose number is not 0. A real token can have exactly 0: the "
    "policies agree on it, or are sure of it. How many are real is what the mask says.",
    zh="你数的是数值不为 0 的 token。真实 token 的数值也可以恰好为 0：两个策略在那里一致，"
    "或都完全确定。有多少个真实 token 要由 mask 来数。",
)
# Three tokens and two; the last column of the second row is padding.
TRAIN = torch.tensor([[-0.5, -1.0, -2.0], [-0.25, -3.0, 0.0]])
ROLLOUT = torch.tensor([[-0.6, -1.2, -1.5], [-0.5, -2.0, 0.0]])
MASK = torch.tensor([[True, True, True], [True, True, False]])


def uniform(gen: Generator, shape: tuple[int, ...], low: float, high: float) -> Tensor:
    """Float32 numbers in [low, high)."""
    return low + (high - low) * torch.rand(shape, generator=gen)


def lengths(generator: Generator, rows: int, columns: int) -> Tensor:
    """`rows` different lengths, shuffled: from the full length down to about 2/5 of it."""
    shares = torch.linspace(1.0, 0.4, rows)
    order = torch.randperm(rows, generator=generator)
    return (shares * columns).round().long()[order]


def mask_of(generator: Generator, rows: int, columns: int) -> Tensor:
    """A mask `[rows, columns]`, true on the first tokens of each row, right padded."""
    return torch.arange(columns) < lengths(generator, rows, columns)[:, None]


def policies(
    generator: Generator,
    *,
    rows: int = 3,
    columns: int = 6,
    sides: int = 2,
    spread: float = 0.5,
    padding: Padding = "finite",
) -> tuple[Tensor, ...]:
    """`sides` arrays of logprobs `[rows, columns]` of the same tokens, and their mask.

    The first is in (-4 - spread, -spread); the others differ from it by less than `spread`.
    Padding is garbage, another on each side.
    """
    mask = mask_of(generator, rows, columns)
    first = uniform(generator, (rows, columns), -4.0, 0.0) - spread
    made = [first]
    for _ in range(sides - 1):
        made.append(first + uniform(generator, (rows, columns), -spread, spread))
    return (*(garbage(generator, logp, mask, padding) for logp in made), mask)


def agree_on_two(train: Tensor, rollout: Tensor) -> None:
    """In place: delta 0 for the first two tokens of each row, probability 1 for one."""
    train[:, 1] = 0.0
    rollout[:, :2] = train[:, :2]


def garbage(generator: Generator, x: Tensor, mask: Tensor, padding: Padding) -> Tensor:
    """`x` with its padding overwritten, as buffers that are reused leave it."""
    if padding == "finite":
        filler = uniform(generator, tuple(x.shape), -9.0, -5.0)
    else:
        filler = torch.full_like(x, float(padding))
    return torch.where(mask, x, filler)


def usual(generator: Generator) -> list[Case]:
    """The cases of a function of (logp_train, logp_rollout, mask)."""
    same, _, mask = policies(generator)
    agreed = policies(generator, columns=8)
    agree_on_two(*agreed[:2])
    train, rollout, real = policies(generator)
    train[0, 0] -= 60
    rollout[1, 1] -= 60
    return [
        Case("example", BY_HAND, (TRAIN, ROLLOUT, MASK)),
        Case("property", SAME, (same, same, mask)),
        Case("inputs", RANDOM, policies(generator)),
        Case("inputs", RANDOM, policies(generator, rows=5, columns=10)),
        Case("inputs", AGREED, agreed),
        Case("padding", NAN, policies(generator, padding="nan")),
        Case("padding", INF, policies(generator, padding="inf")),
        Case("gradient", GRADIENT, policies(generator, padding="nan")),
        Case("numbers", LONG, policies(generator, rows=2, columns=2000, spread=0.02)),
        Case("numbers", IMPOSSIBLE, (train, rollout, real)),
    ]
