"""What a learner reads of one thing that may differ between rollout and training."""

from __future__ import annotations

from dataclasses import dataclass

from tinyrl.course.words import Words


@dataclass(frozen=True)
class Label:
    """Words for one thing that may differ between rollout and training."""

    name: Words
    help: Words
    real: Words
    """What it is called in real systems."""
    looks: Words
    """How a difference shows."""
    remedy: Words
    bounds: tuple[float, float, float] | None = None
    """Lowest, highest and step of the control of a number."""
    zero: Words | None = None
    """What 0 stands for, where it is no amount."""
