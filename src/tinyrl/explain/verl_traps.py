"""What verl's flags are often taken for and are not."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

from ..said import Said
from . import sampling, traps
from .flags import Flags
from .verl_flags import Rejection, Weight


class Case(NamedTuple):
    """Flags, the weight that is computed, the one that is applied, and the rejections."""

    flags: Flags
    computed: Weight | None
    applied: Weight | None
    rejected: list[Rejection]


def warnings(case: Case, tokens: int) -> Iterator[Said]:
    """In the order of their weight."""
    flags, computed, applied, rejected = case
    if flags["bypass_mode"] and computed is not None:
        yield traps.counted_twice(_twice(applied is not None))
    for r in rejected:
        if r.k == "k1" and not math.isclose(r.low * r.high, 1, rel_tol=1e-4):
            yield traps.inverted(r.low, r.high)
    products: list[tuple[float | None, float]] = []
    if applied is not None and applied.level == "sequence":
        products.append((applied.low, applied.high))
    products += [(1 / r.high, 1 / r.low) for r in rejected if r.name == "seq_sum_k1"]
    if products:
        yield traps.product_or_mean("verl")
        yield traps.length(*products[0], tokens)
    for r in rejected:
        if r.name == "seq_mean_k1":
            yield traps.narrow(1 / r.high, 1 / r.low, tokens)
    if applied is not None and flags["rollout_is_batch_normalize"]:
        whole = applied.level == "sequence"
        yield traps.batch_mean(
            Said("all responses", "全部回答")
            if whole
            else Said("all real tokens", "全部真实 token")
        )
    if rejected or (applied is not None and applied.low is not None):
        yield traps.denominators()
    if computed is not None:
        yield _metrics(computed)
    yield from sampling.verl(flags)
    yield from _losses(flags)
    yield from _idle(case)


def _twice(reinforce: bool) -> Said:
    if reinforce:
        return Said(
            "REINFORCE has no ratio of its own, so w is the only one and this is right; "
            "the same weight beside PPO's clip would count twice.",
            "REINFORCE 自身没有比值，w 是唯一的一个，所以这里没错；同样的权重放在 PPO 的"
            "裁剪旁边就会重复。",
        )
    return Said(
        "So verl computes the weight for its metrics and leaves it out of the loss; put it "
        "there yourself, and it counts twice.",
        "所以 verl 只为指标计算权重，不乘进损失；自己再乘一次就重复了。",
    )


def _metrics(w: Weight) -> Said:
    if w.level == "sequence":
        return Said(
            "Metrics: rollout_corr/rollout_is_max and _min are of products before the "
            "operation, rollout_is_mean beside them is of weights after it; all are taken "
            "before batch normalisation.",
            "指标：rollout_corr/rollout_is_max 和 _min 取自操作之前的乘积，旁边的 "
            "rollout_is_mean 却取自操作之后的权重；三者都在 batch 归一化之前。",
        )
    return Said(
        "Metrics: rollout_corr/rollout_is_mean, _min, _max are of weights after the "
        "operation, so a cap hides what it cut: read rollout_is_ratio_fraction_high and "
        "_low, which are of rho itself. All are taken before batch normalisation.",
        "指标：rollout_corr/rollout_is_mean、_min、_max 取自操作之后的权重，截掉了多少看不"
        "出来：要看 rollout_is_ratio_fraction_high 和 _low，它们取自 rho 本身。均在 batch "
        "归一化之前。",
    )


def _losses(flags: Flags) -> Iterator[Said]:
    if flags["loss_mode"] == "cispo" and not flags["bypass_mode"]:
        yield traps.cispo(flags["clip_ratio_high"], flags["clip_ratio_low"])
    if flags["loss_agg_mode"] == "seq-mean-token-sum-norm":
        yield traps.dr_grpo(
            Said(
                "verl divides the sum by the number B of responses and by "
                "loss_scale_factor (by default the padded width of the batch), TRL by B "
                "and max_completion_length.",
                "verl 把和除以回答数 B 与 loss_scale_factor（默认是 batch 补齐后的宽度），"
                "TRL 除以 B 与 max_completion_length。",
            )
        )


def _idle(case: Case) -> Iterator[Said]:
    flags, computed, _, rejected = case
    if computed is None and "rollout_is" not in flags.given:
        yield Said(
            "The default depends on where you ask: rollout_correction.yaml has rollout_is "
            "null, the Python class RolloutCorrectionConfig() has sequence.",
            "默认值因入口而异：rollout_correction.yaml 里 rollout_is 是 null，Python 类 "
            "RolloutCorrectionConfig() 里是 sequence。",
        )
    bypass = flags["bypass_mode"]
    needs = {
        "rollout_is_threshold": ("rollout_is", flags["rollout_is"] is None),
        "rollout_is_batch_normalize": ("rollout_is", computed is None),
        "rollout_rs_threshold": ("rollout_rs", not rejected),
        "loss_type": ("bypass_mode=true", not bypass),
        "loss_mode": ("bypass_mode=false", bypass),
    }
    for name, (other, without) in needs.items():
        if name in flags.given and without:
            yield traps.weightless(name, other)
