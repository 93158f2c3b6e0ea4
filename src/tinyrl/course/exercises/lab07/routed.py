"""Inputs that the exercises share: router logits, and two engines' choices of experts."""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from tinyrl.course.exercises.lab01.batch import mask_of, uniform
from tinyrl.course.words import Words

EXPERTS = 8
TOKENS = Words(en="router logits of random tokens", zh="随机 token 的路由 logits")
OUTSIDE = Words(
    en="the padding names experts that do not exist", zh="padding 里是不存在的专家编号"
)
LARGE = Words(
    en="logits far from 0 and from other tokens': exp of them overflows, in float64 too",
    zh="离 0 很远、各 token 之间也相差很远的 logits：exp 会溢出，float64 也不例外",
)
IDLE = Words(en="nobody chooses the last expert", zh="没有 token 选最后一个专家")
ALL = Words(en="k = E: every expert is chosen", zh="k = E：每个专家都被选中")
FINITE = Words(
    en="You fill the others with -60,000, about as far down as FP16 goes. Where the chosen "
    "logits are lower still, the others have nearly all the weight. `-torch.inf` is out.",
    zh="你把其余的填成 -60,000（FP16 大致的下限）。被选中的 logits 比它更低时，其余的反而占"
    "了几乎全部权重。应当用 `-torch.inf`。",
)
BEYOND = Words(
    en="You ask for one logit more than k, and where k is the number of experts there is "
    "none. The border is the k-th largest: choose with `>=`, or by the indices of `topk`.",
    zh="你多取了一个 logit；k 等于专家数时它不存在。边界是第 k 大的 logit：用 `>=` 来选，"
    "或直接用 `topk` 给出的下标。",
)


def router_logits(generator: Generator, *shape: int) -> Tensor:
    """Logits `[..., E]`, no two of a token nearer than 0.3, in an order of its own."""
    order = torch.rand(shape, generator=generator).argsort(-1)
    steps = 0.5 * (order - (shape[-1] - 1) / 2)
    return steps + uniform(generator, shape, -0.1, 0.1)


def above_next(logits: Tensor, k: int) -> Tensor:
    """Boolean, as `logits`: above the (k + 1)-th largest. Wrong, it fails at k = E."""
    return logits > logits.topk(k + 1).values[..., k:]


def shuffled(generator: Generator, x: Tensor) -> Tensor:
    """`x [..., k]` with the last axis in an order of each row's."""
    return x.gather(-1, torch.rand(x.shape, generator=generator).argsort(-1))


def two_choices(
    generator: Generator, rows: int, columns: int, padding: str = "valid"
) -> tuple[Tensor, Tensor, Tensor]:
    """Experts `[rows, columns, 3]` by rollout and by trainer, and their mask `[B, T]`.

    Every row holds tokens of each of four kinds: the same set, one expert changed, two
    changed with the same sum of numbers, all changed. Of a fifth there are some: two
    changed with the same product of number + 1. Orders are free. Padding holds other
    choices, or what no expert is called.
    """
    ids = torch.rand((rows, columns, EXPERTS), generator=generator).argsort(-1)
    rollout, one, three = ids[..., :3], ids[..., [0, 1, 3]], ids[..., 3:6]
    sums = torch.tensor([[0, 5, 7], [1, 4, 7]])
    products = torch.tensor([[0, 5, 7], [1, 2, 7]])
    kind = torch.randint(5, (rows, columns), generator=generator)
    kind[:, :4] = torch.stack([torch.randperm(4, generator=generator) for _ in range(rows)])
    train = rollout.clone()
    for number, choice in ((1, one), (3, three)):
        train = torch.where((kind == number)[..., None], choice, train)
    for at, side in enumerate((rollout, train)):
        side[kind == 2] = sums[at]
        side[kind == 4] = products[at]
    mask = mask_of(generator, rows, columns)
    rollout, train = shuffled(generator, rollout), shuffled(generator, train)
    if padding == "outside":
        rollout, train = (
            torch.where(mask[..., None], side, filler)
            for side, filler in ((rollout, -1), (train, 99))
        )
    return rollout, train, mask
