"""Series for an alarm: they stay above, between and below its bounds for a while."""

from __future__ import annotations

import torch
from torch import Generator, Tensor


def drawn(generator: Generator, steps: int, high: float, low: float) -> Tensor:
    """Random multiples of 1/16, from 0 on."""
    level = torch.tensor([low / 2, (low + high) / 2, 2 * high])
    long = torch.randint(1, 6, (steps,), generator=generator)
    which = torch.randint(3, (steps,), generator=generator)
    values = level[which.repeat_interleave(long)[:steps]]
    noise = torch.randint(-3, 4, (steps,), generator=generator) / 16
    return ((values + noise).clamp(min=0) * 16).round() / 16


def quiet(generator: Generator) -> Tensor:
    """Never three values in a row above 2."""
    spikes = torch.rand(30, generator=generator) < 0.7
    spikes[2::3] = False
    return torch.where(spikes, 5.0, drawn(generator, 30, 2.0, 1.0).clamp(max=2.0))


def at_bounds(generator: Generator) -> Tensor:
    """Values on the bounds 2 and 1, and next to them."""
    x = drawn(generator, 60, 2.0, 1.0)
    lot = torch.rand(60, generator=generator)
    x = torch.where(lot < 0.2, 2.0, torch.where(lot > 0.85, 1.0, x))
    x[10:14] = torch.tensor([4.0, 4.0, 1.0, 1.5])  # 1.0 does not end it
    just = 2.0**-22  # a step of float32 at 2
    x[19:24] = torch.tensor([0.5, 2 + just, 2 + just, 1.5, 1 - just])
    return x


def one_bound(generator: Generator) -> Tensor:
    """For one bound, 2: a value that equals it neither rings the alarm nor ends it."""
    x = drawn(generator, 40, 2.0, 2.0)
    x[5:9] = torch.tensor([1.0, 2.0, 4.0, 2.0])
    return x


def with_nan(generator: Generator, steps: int, high: float, low: float) -> Tensor:
    """NaN that rings twice in a row, and NaN while it rings."""
    x = drawn(generator, steps, high, low)
    x = x.masked_fill(torch.rand(steps, generator=generator) < 0.15, torch.nan)
    between = (high + low) / 2
    x[12:16] = torch.tensor([low / 2, torch.nan, torch.nan, between])
    x[16:20] = torch.tensor([2 * high, 2 * high, torch.nan, between])
    return x


def nan_alone(generator: Generator) -> Tensor:
    """Nothing above 2 but NaN, twice in a row at least once."""
    x = with_nan(generator, 30, 2.0, 1.0).clamp(max=2.0)
    x[3:8] = torch.tensor([0.5, torch.nan, torch.nan, 1.5, 2.0])
    return x


def with_inf(generator: Generator) -> Tensor:
    """inf three times in a row rings it, -inf ends it."""
    x = with_nan(generator, 40, 3.0, 1.5)
    x[6:11] = torch.tensor([0.0, torch.inf, torch.inf, torch.inf, -torch.inf])
    x[20] = 1e-30
    return x
