"""What a K3 means in words: bands that others reported, with source and date.

K3 estimates KL(rollout || train) in nats a token. Bands are reports of single systems, not
laws: a number in a harmless band can hide a fault, and `signatures` looks for those.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..said import Said, joined, same


@dataclass(frozen=True)
class Band:
    """K3 below `below` (and not below the band before it)."""

    below: float
    name: str
    reading: Said
    source: Said


LIU = same("Liu, Li et al., Sep 2025")
SLIME = same("slime/miles blog, Jan 2026")
DENSE = joined([Said("dense models 1e-5 to 1e-3: ", "稠密模型 1e-5 到 1e-3："), SLIME])
MOE = joined([Said("MoE 1e-3 to 1e-1: ", "MoE 1e-3 到 1e-1："), SLIME])
EQUAL = Band(
    0.0,
    "equal",
    Said("the two sides are equal to the last bit", "两侧逐位相等"),
    same(""),
)
BANDS = (
    Band(
        1e-8,
        "floor",
        Said(
            "nothing but the order of float32 additions: as near as two ordinary kernels "
            "get",
            "只有 float32 求和次序的差别：两个普通算子最多也就这么接近",
        ),
        Said(
            "measured with this package: float32 KV-cache decoding against one forward "
            "pass, 2026",
            "用本包实测：float32，KV cache 解码对一次前向，2026",
        ),
    ),
    Band(
        1e-5,
        "small",
        Said(
            "below what dense models show between a BF16 engine and a BF16 trainer",
            "低于稠密模型在 BF16 引擎与 BF16 训练端之间的常见水平",
        ),
        DENSE,
    ),
    Band(
        1e-3,
        "usual",
        Said(
            "usual for a dense model on unlike engines, harmless in the reports; low for "
            "MoE",
            "稠密模型跨引擎的常见水平，已有报告中无害；对 MoE 偏低",
        ),
        joined([DENSE, Said("; H20 GPUs 5e-4 to 1e-3: ", "；H20 GPU 5e-4 到 1e-3："), LIU]),
    ),
    Band(
        1e-2,
        "high",
        Said(
            "high for a dense model, usual for MoE without routing replay",
            "对稠密模型偏高；不重放路由的 MoE 常见",
        ),
        MOE,
    ),
    Band(
        1e-1,
        "alarming",
        Said(
            "a dense agent run got into trouble from about here; the upper part of MoE's "
            "range",
            "有稠密模型的 agent 训练大约从这里开始出问题；在 MoE 的范围里也偏上",
        ),
        joined([Said("dense, multi-turn: ", "稠密、多轮："), LIU, same("; "), MOE]),
    ),
    Band(
        float("inf"),
        "broken",
        Said(
            "beyond every run reported as harmless: look for a fault of settings, tokens "
            "or weights before any correction",
            "超出所有被报告为无害的训练：先查设置、token 和权重有没有错，再谈修正",
        ),
        joined([SLIME, same("; "), LIU]),
    ),
)


def band(k3: float, max_abs: float) -> Band:
    """The band of a K3; "equal" only where no token differs at all (`max_abs` 0)."""
    if max_abs == 0:
        return EQUAL
    return next((b for b in BANDS if k3 < b.below), BANDS[-1])
