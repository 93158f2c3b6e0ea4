"""slime's custom function for weights and rejection, and the settings of its mis.yaml."""

from __future__ import annotations

from collections.abc import Iterator

from ..said import Said
from . import traps
from .flags import Flag, FlagError, Flags, above_0, boolean, one_of, optional
from .reading import Step

LEVELS = ("token", "sequence", "geometric")
FLAGS = [  # as examples/train_infer_mismatch_helper/mis.yaml has them
    Flag("use_rs", boolean, True),
    Flag("tis_level", one_of(*LEVELS), "token"),
    Flag("rs_level", one_of(*LEVELS), "token"),
    Flag("tis_mode", one_of("truncate", "clip", "mask"), "truncate"),
    Flag("tis_lower_bound", optional(above_0), 0.5),
    Flag("tis_upper_bound", above_0, 2.0),
    Flag("rs_lower_bound", optional(above_0), None),
    Flag("rs_upper_bound", optional(above_0), None),
    Flag("rs_veto_threshold", optional(above_0), 1e-4),
    Flag("tis_batch_normalize", boolean, True),
]


def steps(flags: Flags) -> list[Step]:
    """What compute_mis_weights does: a weight, and beside it a mask of its own."""
    mode, level = flags["tis_mode"], flags["tis_level"]
    high, low = flags["tis_upper_bound"], flags["tis_lower_bound"]
    low = 1 / high if low is None else low
    normalise, veto = flags["tis_batch_normalize"], flags["rs_veto_threshold"]
    if normalise and level == "geometric":
        raise FlagError(
            "tis_batch_normalize must be false with tis_level=geometric: slime raises"
        )
    weight = Step(
        level,
        "mask" if mode == "mask" else "truncate",
        None if mode == "truncate" else low,
        high,
        normalise=normalise,
    )
    if mode != "truncate":
        _rising("tis", low, high)
    if not flags["use_rs"]:
        return [weight]
    if veto is not None and veto >= 1:
        raise FlagError("rs_veto_threshold must be below 1, or equal policies are lost")
    rs_low, rs_high = flags["rs_lower_bound"], flags["rs_upper_bound"]
    rs_low, rs_high = (
        low if rs_low is None else rs_low,
        high if rs_high is None else rs_high,
    )
    _rising("rs", rs_low, rs_high)
    return [weight, Step(flags["rs_level"], "mask", rs_low, rs_high, "one", veto=veto)]


def _rising(name: str, low: float, high: float) -> None:
    if low >= high:
        raise FlagError(
            f"{name}_lower_bound must lie below {name}_upper_bound, not {low:g} and "
            f"{high:g}"
        )


def lacking(steps: list[Step]) -> Said | None:
    """Why no `Correction` says this, or None if one does."""
    for step in steps:
        if not step.spares_equals:
            return traps.without_one(step.lower, step.upper)
    if steps[0].normalise and steps[0].operation == "mask":
        return Said(
            "none: slime divides by the mean of all weights, rejected ones with their full "
            "rho among them; a Correction counts those as 0",
            "没有：slime 除以全部权重的均值，被拒绝的也按完整的 rho 计入；Correction 把它们"
            "当作 0",
        )
    return None


def warnings(flags: Flags, steps: list[Step], tokens: int) -> Iterator[Said]:
    """What these settings are often taken for and are not."""
    if any(step.level == "sequence" for step in steps):
        yield traps.product_or_mean("slime")
    for step in steps:
        if step.level == "sequence":
            yield traps.length(step.lower, step.upper, tokens)
        if step.level == "geometric" and step.operation == "mask":
            yield traps.narrow(step.lower, step.upper, tokens)
        if step.level == "geometric" and step.weight == "ratio":
            yield traps.mean_as_weight()
    if steps[0].normalise:
        by_token = steps[0].level == "token"
        yield traps.batch_mean(
            Said("all tokens of a micro-batch", "micro-batch 的全部 token")
            if by_token
            else Said("all responses of a micro-batch", "micro-batch 的全部回答")
        )
    if any(step.operation == "mask" for step in steps):
        yield traps.denominators()
        yield Said(
            "The helper's README says that rejected tokens are left out of the average; "
            "the code divides by all of them.",
            "该示例的 README 说被拒绝的 token 不参与平均；代码却除以全部 token。",
        )
    if flags["tis_mode"] == "truncate" and "tis_lower_bound" in flags.given:
        yield Said(
            "tis_mode=truncate ignores tis_lower_bound, but rs_lower_bound falls back to "
            "it; clip uses both bounds.",
            "tis_mode=truncate 不看 tis_lower_bound，但 rs_lower_bound 默认取它；clip 两个"
            "界都用。",
        )
    yield Said(
        "Metrics: mis_tis_weight_before_bound is of rho, mis_tis_weight_after_bound of "
        "weights before rejection and normalisation, mis_is_ratio_mean_final of weights "
        "after normalisation, rejected ones among them.",
        "指标：mis_tis_weight_before_bound 取自 rho，mis_tis_weight_after_bound 取自拒绝"
        "和归一化之前的权重，mis_is_ratio_mean_final 取自归一化之后的权重，含被拒绝的 "
        "token。",
    )
