"""What TRL's vLLM correction does, as read at the commit of `presets.TRL`."""

from __future__ import annotations

import math
from collections.abc import Iterator

from ..objectives import Level
from ..presets import TRL
from ..said import Said
from . import sampling, traps
from .flags import Flag, FlagError, Flags, above_0, at_least_0, boolean, one_of, optional
from .reading import NOTHING, Reading, Step, combined

MODES = tuple(f"{at}_{how}" for at in ("token", "sequence") for how in ("mask", "truncate"))
LOSSES = ("grpo", "dr_grpo", "dapo", "bnpo", "cispo", "sapo", "luspo", "vespo")
FLAGS = [
    Flag("vllm_importance_sampling_mode", one_of(*MODES), "sequence_mask"),
    Flag("vllm_importance_sampling_clip_max", optional(at_least_0), 3.0),
    Flag("vllm_importance_sampling_clip_min", optional(at_least_0), None),
    Flag("vllm_importance_sampling_cap", optional(above_0), None),
    Flag("vllm_importance_sampling_correction", boolean, True),
    Flag("use_vllm", boolean, False),
    Flag("off_policy_mask_threshold", optional(at_least_0), None),
    Flag("importance_sampling_level", one_of("token", "sequence"), "token"),
    Flag("loss_type", one_of(*LOSSES), "dapo"),
    Flag("epsilon", at_least_0, 0.2),
    Flag("epsilon_high", optional(at_least_0), None),
    *sampling.TRL,
]


def read(flags: Flags, tokens: int) -> Reading:
    """What TRL does with these flags; raises `FlagError` where it would refuse them.

    Asked about the correction, one has vLLM: without it there is nothing to correct, so
    `use_vllm` counts as true unless it is given.
    """
    mode = flags["vllm_importance_sampling_mode"]
    upper, lower = _bounds(flags, mode)
    vllm = flags["use_vllm"] or "use_vllm" not in flags.given
    on = flags["vllm_importance_sampling_correction"] and vllm
    if on and flags["loss_type"] == "vespo" and not mode.startswith("token"):
        raise FlagError(
            "loss_type vespo needs vllm_importance_sampling_mode token_truncate or "
            f"token_mask: TRL raises on {mode}"
        )
    level: Level = "token" if mode.startswith("token") else "sequence"
    masks = on and mode.endswith("mask") and (lower, upper) != (None, None)
    step = Step(level, "mask" if masks else "truncate", lower, upper)
    if (lower, upper) == (None, None):  # a mask that masks nothing
        step = Step(level, "truncate", None, math.inf)
    lacking = None
    if on and flags["loss_type"] == "vespo":
        lacking = Said(
            "none: here weights go into VESPO's own w, not beside a loss",
            "没有：权重进入 VESPO 自己的 w，不乘在损失上",
        )
    elif on and not step.spares_equals:
        lacking = traps.without_one(lower, upper)
    correction = None
    if lacking is None:
        correction = combined([step] if on else [], "all" if masks else "kept")
    return Reading(
        TRL,
        (step.said() if on else NOTHING,),
        _where(on, flags["loss_type"]),
        _denominator(masks, flags["loss_type"]),
        correction,
        lacking=lacking,
        beside=tuple(_beside(flags)),
        traps=tuple(_traps(flags, step if on else None, vllm, tokens)),
    )


def _bounds(flags: Flags, mode: str) -> tuple[float | None, float | None]:
    upper = flags["vllm_importance_sampling_clip_max"]
    lower = flags["vllm_importance_sampling_clip_min"]
    if flags["vllm_importance_sampling_cap"] is not None:
        upper = flags["vllm_importance_sampling_cap"]
    if lower is not None and upper is not None and lower >= upper:
        raise FlagError(
            "vllm_importance_sampling_clip_min must be below "
            f"vllm_importance_sampling_clip_max, not {lower:g} and {upper:g}"
        )
    on = flags["vllm_importance_sampling_correction"]
    if on and (lower, upper) == (None, None) and mode.endswith("truncate"):
        raise FlagError(
            f"{mode} needs vllm_importance_sampling_clip_min or _clip_max: TRL raises"
        )
    return upper, lower


def _where(on: bool, loss: str) -> Said:
    if not on:
        return Said("nowhere: no weight is computed", "不进入损失：根本不计算权重")
    if loss == "vespo":
        return Said(
            "decoupled: the weights go into VESPO's own w, as a product over tokens, and "
            "multiply nothing else",
            "解耦：权重以连乘的形式进入 VESPO 自己的 w，不再乘别处",
        )
    return Said(
        "decoupled, three policies: p_old is always computed again; the weight, from "
        "rho = p_old/mu, multiplies each token's policy loss outside the clip on "
        "p_new/p_old, before the KL term is added",
        "解耦，三个策略：总会重算 p_old；权重来自 rho = p_old/mu，乘在每个 token 的策略损"
        "失上，位于 p_new/p_old 的裁剪之外、加 KL 项之前",
    )


def _denominator(masks: bool, loss: str) -> Said:
    if not masks:
        return Said("unchanged: nothing is dropped", "不变：没有丢弃任何 token")
    by = {
        "grpo": Said("each response's tokens", "每条回答的 token 数"),
        "sapo": Said("each response's tokens", "每条回答的 token 数"),
        "bnpo": Said("the batch's tokens", "batch 的 token 数"),
        "dr_grpo": Said("B * max_completion_length", "B * max_completion_length"),
        "luspo": Said("the number of responses", "回答数"),
    }.get(loss, Said("the step's tokens (num_items_in_batch)", "num_items_in_batch"))
    return Said(
        f"all tokens: a masked weight is 0 and completion_mask stays; {loss} divides by "
        f"{by.en}, dropped ones among them",
        f"全部 token：被屏蔽的只是权重为 0，completion_mask 不变；{loss} 除以 {by.zh}，"
        "被丢弃的也算在内",
    )


def _beside(flags: Flags) -> Iterator[Said]:
    delta = flags["off_policy_mask_threshold"]
    if delta is not None:
        yield Said(
            f"off-policy sequence masking (arXiv 2512.02556): off_policy_mask(..., "
            f"delta={delta:g}) drops responses with A < 0 and mean(log mu - log p_new) "
            f"above {delta:g}; its denominator counts all, too",
            f"离策略序列屏蔽（arXiv 2512.02556）：off_policy_mask(..., delta={delta:g}) 丢"
            f"弃 A < 0 且 log mu - log p_new 的均值超过 {delta:g} 的回答；分母同样数全部 "
            "token",
        )
    if flags["importance_sampling_level"] == "sequence":
        yield Said(
            "importance_sampling_level=sequence is the loss's own ratio p_new/p_old as a "
            "geometric mean (GSPO), not the correction",
            "importance_sampling_level=sequence 是损失自己的比值 p_new/p_old 取几何平均（"
            "GSPO），与修正无关",
        )


def _traps(flags: Flags, step: Step | None, vllm: bool, tokens: int) -> Iterator[Said]:
    if "use_vllm" not in flags.given or not vllm:
        yield Said(
            "The correction needs use_vllm=true, and TRL's default is false: without it "
            "there is no weight.",
            "这个修正需要 use_vllm=true，而 TRL 默认 false：否则没有任何权重。",
        )
    if step is not None and step.level == "sequence":
        yield traps.product_or_mean("TRL")
        if step.upper != math.inf and (step.upper or step.lower):
            yield traps.length(step.lower, step.upper, tokens)
    if step is not None and step.operation == "mask":
        yield traps.denominators()
    if step is not None:
        yield Said(
            "Metrics: sampling/importance_sampling_ratio/min, mean, max are of weights "
            "after the operation, the zeros of masked ones among them, so a cap or a mask "
            "hides what it did; sampling_logp_difference is of the logprobs themselves.",
            "指标：sampling/importance_sampling_ratio/min、mean、max 是操作之后的权重（屏"
            "蔽产生的 0 也在内），看不出截掉了什么；sampling_logp_difference 才取自对数概"
            "率本身。",
        )
        yield Said(
            "Double counting: GRPOTrainer has no bypass. If you set the old logprobs to "
            "the rollout's yourself, turn this correction off.",
            "重复计算：GRPOTrainer 没有旁路模式。若你自己把旧 logprob 换成采样时的，就要"
            "关掉这个修正。",
        )
    yield from sampling.trl(flags)
    high = flags["epsilon_high"]
    if flags["loss_type"] == "cispo":
        yield traps.cispo_absolute(flags["epsilon"] if high is None else high)
    if flags["loss_type"] == "dr_grpo":
        yield traps.dr_grpo(
            Said(
                "TRL divides by B * max_completion_length, whatever was generated.",
                "TRL 除以 B * max_completion_length，与实际生成多少无关。",
            )
        )
    if "vllm_importance_sampling_cap" in flags.given:
        yield Said(
            "vllm_importance_sampling_cap is deprecated: it sets "
            "vllm_importance_sampling_clip_max and wins over it.",
            "vllm_importance_sampling_cap 已弃用：它设置 "
            "vllm_importance_sampling_clip_max，并且优先于后者。",
        )
