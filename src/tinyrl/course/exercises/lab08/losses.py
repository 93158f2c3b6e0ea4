"""Inputs that the exercises share: log ratios that no rounding moves over a border."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Generator, Tensor

from tinyrl.course.exercise import Function
from tinyrl.course.exercises.lab01.batch import Padding, garbage, mask_of, uniform
from tinyrl.course.words import Words

BY_HAND = Words(
    en="two responses by hand, advantages 1 and -1",
    zh="两条可手算的回答，advantage 为 1 和 -1",
)
AGREE = Words(en="both policies are the same", zh="两边是同一个策略")
FAR = Words(
    en="log ratios of 80 and -80: one side finds the token impossible",
    zh="对数比值为 80 和 -80：其中一边认为这个 token 几乎不可能",
)
ONE = Words(en="responses of one token", zh="只有一个 token 的回答")
NEAR = Words(
    en="long responses, some ratios just inside or outside a border",
    zh="很长的回答，有些比值紧贴边界的内侧或外侧",
)
INVERTED = Words(
    en="The ratio is upside down: new over old, exp(logp - logp_old).",
    zh="比值倒过来了：应当是新比旧，即 exp(logp - logp_old)。",
)
SIGN = Words(
    en="The sign is wrong: this is what PPO wants to be large. A loss is minimised, so it "
    "is the negative.",
    zh="符号反了：这是希望变大的量。损失是要最小化的，应当取负。",
)
PADDED = Words(
    en="The padding still holds something. A token that is none has loss 0.",
    zh="padding 处还留着数。那里没有 token，损失应为 0。",
)
PADDING_LEFT = Words(
    en="In the padding stands the loss of a ratio of 1. Clean it at the end, too: "
    "`torch.where(mask, loss, 0.0)`.",
    zh="padding 处留着比值为 1 时的损失。最后也要清理：`torch.where(mask, loss, 0.0)`。",
)
TIMES_MASK = Words(
    en="Multiplying by the mask does not remove NaN: NaN * 0 is NaN. Choose with "
    "`torch.where`.",
    zh="乘以 mask 去不掉 NaN：NaN * 0 还是 NaN。请用 `torch.where` 来选择。",
)
WHERE_AFTER = Words(
    en="The values are right, the gradient is NaN in the padding: a `where` at the end "
    "lets NaN through backwards. Clean the logprobs first.",
    zh="数值正确，但 padding 处的梯度是 NaN：最后才 `where`，反向时 NaN 仍会漏过来。应当先"
    "清理 logprob。",
)
ATTACHED = Words(
    en="A gradient flows into logp_old. It is data, recorded before this update: "
    "`detach()` it.",
    zh="梯度流进了 logp_old。它是更新之前记录的数据，要 `detach()`。",
)
DIVIDED = Words(
    en="A response with advantage 0 gets NaN: something is divided by A, by |A|, or by a "
    "number that is 0 there. Its loss is 0.",
    zh="advantage 为 0 的回答得到了 NaN：你除以了 A、|A| 或此时为 0 的某个数。它的损失应为 "
    "0。",
)
DETACHED = Words(
    en="The values are right, but no gradient reaches logp: nothing is learnt.",
    zh="数值正确，但梯度传不到 logp：什么也学不到。",
)

# Three tokens and two; the last column of the second row is padding.
OLD = torch.tensor([[-1.0, -1.0, -2.0], [-1.5, -3.0, 0.0]])
DELTA = torch.tensor([[0.5, -0.5, 0.1], [0.5, -0.5, 0.0]])
MASK = torch.tensor([[True, True, True], [True, True, False]])
SIGNS = torch.tensor([1.0, -1.0])
HAND = OLD + DELTA, OLD, SIGNS, MASK


class Drawn(NamedTuple):
    """Logprobs `[B, T]` of the new policy and of the old, advantages `[B]`, mask."""

    logp: Tensor
    logp_old: Tensor
    advantages: Tensor
    mask: Tensor


def places(low: float, high: float, far: float) -> Tensor:
    """Log ratios `[9]` on each side of the borders 1 - low and 1 + high, none near one.

    The first two lie between a border of the ratio and that of its logarithm; the next
    three beyond, the last of them e^far.
    """
    up, down = math.log(1 + high), math.log(1 - low)
    between = (up + high) / 2, (down - low) / 2
    beyond = 1.8 * high, 1.6 * down, far
    return torch.tensor([*between, *beyond, 0.3 * up, 0.4 * down, 1.2 * up, 0.0])


def drawn(
    generator: Generator,
    low: float = 0.2,
    high: float = 0.2,
    *,
    rows: int = 5,
    columns: int = 12,
    far: float = 1.6,
    padding: Padding = "finite",
) -> Drawn:
    """Responses of which each row has ratios on all sides of both borders, and exactly 1.

    Advantages have both signs and none is 0. The first token of the first row has
    probability 1 on both sides.
    """
    mask = mask_of(generator, rows, columns)
    where = places(low, high, far)
    picks = torch.randint(len(where), (rows, columns), generator=generator)
    picks[:, :5] = torch.stack([torch.randperm(5, generator=generator) for _ in picks])
    picks[0, 0] = len(where) - 1  # the same on both sides
    logp = uniform(generator, (rows, columns), -4.0, -0.5) - 1.8
    logp[0, 0] = 0.0
    old = logp - where[picks]
    A = advantages(generator, rows)
    new, old = (garbage(generator, x, mask, padding) for x in (logp, old))
    return Drawn(new, old, A, mask)


def unmoved(generator: Generator) -> Drawn:
    """Both policies are the same."""
    x = drawn(generator)
    return x._replace(logp_old=x.logp)


def advantages(generator: Generator, rows: int) -> Tensor:
    """`[rows]`, both signs in turn, sizes 0.3 to 2, shuffled."""
    size = uniform(generator, (rows,), 0.3, 2.0)
    size = torch.where(torch.arange(rows) % 2 == 0, size, -size)
    return size[torch.randperm(rows, generator=generator)]


def apart(generator: Generator) -> Drawn:
    """Log ratios of 80 and -80 under either sign of the advantage."""
    far = torch.tensor([[80.0, 0.0, -80.0, 0.1], [-80.0, 80.0, 0.0, -0.1]])
    logp = uniform(generator, (2, 4), -3.0, -1.0)
    old = logp - far
    logp, old = logp - old.clamp(min=0), old.clamp(max=0)
    mask = torch.tensor([[True] * 4, [True, True, True, False]])
    order = torch.randperm(2, generator=generator)
    return Drawn(logp, old, torch.tensor([1.2, -0.7])[order], mask)


def one_token(generator: Generator) -> Drawn:
    """Responses of one token each; an advantage is 0, a positive one is below the mean."""
    x = drawn(generator, rows=4)
    A = torch.tensor([2.0, 0.4, 0.0, -0.7])[torch.randperm(4, generator=generator)]
    return x._replace(mask=x.mask & (x.mask.cumsum(1) == 1), advantages=A)


def near(generator: Generator, low: float, high: float) -> Drawn:
    """Long responses with ratios 3e-5 inside and outside each border."""
    x = drawn(generator, low, high, columns=500)
    borders = torch.tensor([[math.log1p(high)], [math.log1p(-low)]])
    x.logp_old[:, 5:9] = x.logp[:, 5:9] - (borders + torch.tensor([3e-5, -3e-5])).flatten()
    return x


def divided(loss: Function) -> Function:
    """`loss` with A / |A| in it, 0 / 0 where A is 0."""

    def wrong(logp: Tensor, logp_old: Tensor, A: Tensor, *rest: Any) -> Tensor:
        there: Tensor = loss(logp, logp_old, A / A.abs() * A.abs(), *rest)
        return there

    return wrong


def log_ratio(logp: Tensor, logp_old: Tensor, mask: Tensor) -> Tensor:
    """`[B, T]`, 0 in padding; logp_old gets no gradient."""
    return torch.where(mask, logp - logp_old.detach(), 0.0)
