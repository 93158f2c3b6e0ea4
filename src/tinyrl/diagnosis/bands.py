"""What a K3 means in words: bands that others reported, with source and date.

K3 estimates KL(rollout || train) in nats a token. Bands are reports of single systems, not
laws: a number in a harmless band can hide a fault, and `signatures` looks for those.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Band:
    """K3 below `below` (and not below the band before it)."""

    below: float
    name: str
    reading: str
    source: str


EQUAL = Band(0.0, "equal", "the two sides are equal to the last bit", "")
BANDS = (
    Band(
        1e-8,
        "floor",
        "nothing but the order of float32 additions: as near as two ordinary kernels get",
        "measured with this package: float32 KV-cache decoding against one forward pass, "
        "2026",
    ),
    Band(
        1e-5,
        "small",
        "below what dense models show between a BF16 engine and a BF16 trainer",
        "dense models 1e-5 to 1e-3: slime/miles blog, Jan 2026",
    ),
    Band(
        1e-3,
        "usual",
        "usual for a dense model on unlike engines, harmless in the reports; low for MoE",
        "dense models 1e-5 to 1e-3: slime/miles blog, Jan 2026; H20 GPUs 5e-4 to 1e-3: "
        "Liu, Li et al., Sep 2025",
    ),
    Band(
        1e-2,
        "high",
        "high for a dense model, usual for MoE without routing replay",
        "MoE 1e-3 to 1e-1: slime/miles blog, Jan 2026",
    ),
    Band(
        1e-1,
        "alarming",
        "a dense agent run got into trouble from about here; the upper part of MoE's range",
        "dense, multi-turn: Liu, Li et al., Sep 2025; MoE 1e-3 to 1e-1: slime/miles blog, "
        "Jan 2026",
    ),
    Band(
        float("inf"),
        "broken",
        "beyond every run reported as harmless: look for a fault of settings, tokens or "
        "weights before any correction",
        "slime/miles blog, Jan 2026; Liu, Li et al., Sep 2025",
    ),
)


def band(k3: float, max_abs: float) -> Band:
    """The band of a K3; "equal" only where no token differs at all (`max_abs` 0)."""
    if max_abs == 0:
        return EQUAL
    return next((b for b in BANDS if k3 < b.below), BANDS[-1])
