"""Inputs that exercises of this lab share."""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from tinyrl.course.exercises.lab01 import batch
from tinyrl.course.words import Words

NO_GRADIENT = Words(
    en="inputs that carry gradients: none may come through",
    zh="输入带梯度：一点也不能传过去",
)
NOTHING = Words(en="nothing is left at all", zh="什么也没有留下")
DETACH = Words(
    en="The values are right, but a gradient flows through the weight. A weight is a "
    "number beside the loss: `detach()`. Else the loss also learns to make weights small.",
    zh="数值正确，但梯度会穿过权重。权重只是损失旁边的一个数，要 `detach()`；否则损失还会"
    "学着把权重变小。",
)
NAN_TIMES = Words(
    en="Multiplying by the mask does not remove NaN: NaN * 0 is NaN. Choose with "
    "`torch.where`.",
    zh="乘以 mask 去不掉 NaN：NaN * 0 还是 NaN。请用 `torch.where` 选择。",
)


def weights(
    generator: Generator, rows: int = 3, columns: int = 6, padding: batch.Padding = "finite"
) -> tuple[Tensor, Tensor]:
    """Weights `[rows, columns]` from e^-1.5 to e^1.5, garbage in the padding; a mask."""
    mask = batch.mask_of(generator, rows, columns)
    w = batch.uniform(generator, (rows, columns), -1.5, 1.5).exp()
    return batch.garbage(generator, w, mask, padding), mask


def advantages(generator: Generator, rows: int) -> Tensor:
    """`[rows]`, of either sign, none near 0, whatever is drawn."""
    size = batch.uniform(generator, (rows,), 0.4, 1.6)
    signs = 1 - 2 * (torch.arange(rows) % 2)
    return size * signs[torch.randperm(rows, generator=generator)]
