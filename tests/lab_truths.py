"""An exercise's own inputs in float64, for tests of its reference against other truths."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from tinyrl.course.exercises import find

seeds = pytest.mark.parametrize("seed", range(3))


def draw(name: str, seed: int, stages: tuple[str, ...] = ("inputs",)) -> list[list[Any]]:
    """Arguments of every case of these stages, tensors in float64."""
    cases = [c for c in find(name).inputs(seed) if c.stage in stages]
    assert len(cases) >= 2
    return [
        [
            a.double() if isinstance(a, Tensor) and a.is_floating_point() else a
            for a in c.args
        ]
        for c in cases
    ]


def close(mine: Any, theirs: Any) -> None:
    torch.testing.assert_close(
        torch.as_tensor(mine, dtype=torch.float64),
        torch.as_tensor(theirs, dtype=torch.float64),
        rtol=1e-12,
        atol=1e-12,
    )
