"""What slime's TIS, MIS and OPSM do, as read at the commit of `presets.SLIME`."""

from __future__ import annotations

from collections.abc import Iterator

from ..presets import SLIME
from ..said import Said
from . import sampling, slime_mis, traps
from .flags import Flag, FlagError, Flags, above_0, at_least_0, boolean, optional, plain
from .reading import NOTHING, Reading, Step, combined

CUSTOM = ("icepop_function", "compute_mis_weights_with_cp")
FLAGS = [
    Flag("use_tis", boolean, False),
    Flag("tis_clip", above_0, 2.0),
    Flag("tis_clip_low", at_least_0, 0.0),
    Flag("custom_tis_function_path", optional(plain), None),
    Flag("use_rollout_logprobs", boolean, False),
    Flag("get_mismatch_metrics", boolean, False),
    Flag("use_opsm", boolean, False),
    Flag("opsm_delta", at_least_0, 1e-4),
    Flag("advantage_estimator", plain, "grpo"),
    Flag("eps_clip", at_least_0, 0.2),
    Flag("eps_clip_high", optional(at_least_0), None),
    *slime_mis.FLAGS,
    *sampling.SLIME,
]


def read(flags: Flags, tokens: int) -> Reading:
    """What slime does with these flags; raises `FlagError` where it would refuse them.

    With the custom function of the mismatch helper, what is not given is as in its
    mis.yaml: slime reads it from there, through --custom-config-path.
    """
    bypass, on = flags["use_rollout_logprobs"], flags["use_tis"]
    path = flags["custom_tis_function_path"]
    function = (path or "vanilla_tis_function").replace(":", ".").rpartition(".")[2]
    if path is not None and function not in CUSTOM:
        raise FlagError(
            f"custom_tis_function_path: this command knows {' and '.join(CUSTOM)}, not "
            f"{path!r}"
        )
    if bypass and on:
        raise FlagError(
            "use_rollout_logprobs and use_tis: together they would count p_old/mu twice, "
            "and slime refuses them"
        )
    if flags["get_mismatch_metrics"] and path is None:
        raise FlagError(
            "get_mismatch_metrics needs custom_tis_function_path: slime refuses"
        )
    mis = on and function == CUSTOM[1]
    steps: list[Step] = []
    if on:
        steps = slime_mis.steps(flags) if mis else [_builtin(flags, function)]
    drops = any(step.operation == "mask" for step in steps)
    lacking = slime_mis.lacking(steps) if steps else None
    correction = None
    if lacking is None:
        correction = combined(steps, "all" if drops else "kept")
    return Reading(
        SLIME,
        tuple(step.said() for step in steps) or (NOTHING,),
        _where(on, bypass),
        _denominator(drops),
        correction,
        "bypass" if bypass else "decoupled",
        lacking=lacking,
        beside=tuple(_beside(flags)),
        traps=tuple(_traps(flags, function, steps, mis, tokens)),
    )


def _builtin(flags: Flags, function: str) -> Step:
    low, high = flags["tis_clip_low"] or None, flags["tis_clip"]
    if low is not None and low > high:
        raise FlagError(f"tis_clip_low must not lie above tis_clip, not {low:g}, {high:g}")
    return Step("token", "mask" if function == CUSTOM[0] else "truncate", low, high)


def _where(on: bool, bypass: bool) -> Said:
    if bypass:
        return Said(
            "bypass, two policies: mu plays p_old, so PPO's clip is on rho = p_new/mu "
            "itself, and no weight is applied",
            "旁路，两个策略：mu 充当 p_old，PPO 直接裁剪 rho = p_new/mu，不再乘权重",
        )
    if not on:
        return Said(
            "nowhere: the loss's ratio is p_new/p_old, and p_old/mu is left out",
            "不进入损失：损失里的比值是 p_new/p_old，p_old/mu 没有出现",
        )
    return Said(
        "decoupled, three policies: the weight, from rho = p_old/mu, multiplies each "
        "token's policy loss outside the clip on p_new/p_old; KL and entropy terms are not "
        "weighted, but a mask takes tokens out of them, too",
        "解耦，三个策略：权重来自 rho = p_old/mu，乘在每个 token 的策略损失上，位于 "
        "p_new/p_old 的裁剪之外；KL 项和熵项不加权，但屏蔽的 token 也从中去掉",
    )


def _denominator(drops: bool) -> Said:
    if not drops:
        return Said("unchanged: nothing is dropped", "不变：没有丢弃任何 token")
    return Said(
        "all tokens: a mask or a weight of 0 narrows the sum; the counts "
        "(rollout_mask_sums, or num_tokens with --calculate-per-token-loss) are of the "
        "original loss_masks",
        "全部 token：屏蔽或置零只缩小求和范围；计数（rollout_mask_sums，或 "
        "--calculate-per-token-loss 时的 num_tokens）仍取自原来的 loss_masks",
    )


def _beside(flags: Flags) -> Iterator[Said]:
    if flags["use_opsm"]:
        bypass, d = flags["use_rollout_logprobs"], f"{flags['opsm_delta']:g}"
        old = "mu" if bypass else "p_old"
        blind = ("", "")
        if not bypass:
            blind = (
                "; with p_old in the place of the paper's mu it sees staleness, no "
                "mismatch",
                "；用 p_old 代替论文的 mu，只看得到滞后，看不到训推不一致",
            )
        yield Said(
            "off-policy sequence masking (arXiv 2512.02556): drops responses with A < 0 "
            f"and mean(log {old} - log p_new) above {d}{blind[0]}",
            "离策略序列屏蔽（arXiv 2512.02556）：丢弃 A < 0 且 "
            f"log {old} - log p_new 的均值超过 {d} 的回答{blind[1]}",
        )


def _traps(
    flags: Flags, function: str, steps: list[Step], mis: bool, tokens: int
) -> Iterator[Said]:
    on = bool(steps)
    if mis:
        yield from slime_mis.warnings(flags, steps, tokens)
    elif on:
        if steps[0].operation == "mask":
            yield traps.denominators()
        yield Said(
            "Metrics: tis and tis_abs are of rho before the operation, not of the weight "
            "that the loss sees; tis_clipfrac is the share that it changed.",
            "指标：tis 和 tis_abs 取自操作之前的 rho，并不是损失里的权重；tis_clipfrac 是被"
            "改动的比例。",
        )
    if on and function == CUSTOM[0] and not flags["tis_clip_low"]:
        yield Said(
            "icepop_function takes its lower bound from --tis-clip-low, 0 by default: as "
            "it stands only the upper side is masked, where IcePop masks both.",
            "icepop_function 的下界取自 --tis-clip-low，默认 0：现在只屏蔽上侧，而 IcePop "
            "屏蔽两侧。",
        )
    if flags["advantage_estimator"] == "cispo":
        high = flags["eps_clip_high"]
        yield traps.cispo(flags["eps_clip"] if high is None else high, flags["eps_clip"])
    if flags["use_rollout_logprobs"]:
        yield traps.counted_twice(
            Said(
                "So slime refuses --use-tis beside --use-rollout-logprobs.",
                "所以 slime 不允许 --use-tis 与 --use-rollout-logprobs 同时使用。",
            )
        )
    yield from sampling.slime(flags)
    yield from _idle(flags, on, mis)


def _idle(flags: Flags, on: bool, mis: bool) -> Iterator[Said]:
    needs = {"opsm_delta": "--use-opsm"} if not flags["use_opsm"] else {}
    if not on or mis:
        other = "vanilla_tis_function" if mis else "--use-tis"
        needs |= {"tis_clip": other, "tis_clip_low": other}
    if not mis:
        other = "--use-tis and compute_mis_weights_with_cp"
        needs |= {flag.name: other for flag in slime_mis.FLAGS}
    elif not flags["use_rs"]:
        needs |= {
            flag.name: "use_rs=true" for flag in slime_mis.FLAGS if "rs_" in flag.name
        }
        needs.pop("use_rs", None)
    for name, other in needs.items():
        if name in flags.given:
            yield traps.weightless(name, other)
