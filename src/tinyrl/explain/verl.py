"""What verl's rollout correction does, as read at the commit of `presets.VERL`."""

from __future__ import annotations

from collections.abc import Sequence

from ..correction import Denominator
from ..objectives import Level
from ..presets import VERL, Loss
from ..said import Said
from . import traps
from .flags import Flags
from .reading import LEVEL, NOTHING, Part, Reading, Step, combined
from .verl_flags import Rejection, Weight, rejections, weight
from .verl_traps import Case, warnings

LEVELS: dict[str, Level] = {
    "token": "token",
    "seq_sum": "sequence",
    "seq_mean": "geometric",
}


def read(flags: Flags, tokens: int) -> Reading:
    """What verl does with these flags; raises `FlagError` where it would refuse them."""
    bypass = flags["bypass_mode"]
    loss: Loss = "reinforce" if bypass and flags["loss_type"] == "reinforce" else "clipped"
    computed, rejected = weight(flags), rejections(flags)
    applied = None if bypass and loss == "clipped" else computed
    steps = [_rejection(r) for r in rejected if r.k == "k1"]
    if applied is not None:
        steps.insert(0, _weight(applied, flags["rollout_is_batch_normalize"]))
    lacking = _lacking(steps, applied, rejected, flags)
    correction = None
    if lacking is None:
        correction = combined(steps, _counts(applied, rejected, flags))
    words = [step.said() for step in steps]
    words += [_in_words(r) for r in rejected if r.k != "k1"]
    return Reading(
        VERL,
        tuple(words) or (NOTHING,),
        _where(computed, bypass, loss),
        _denominator(applied, rejected, flags),
        correction,
        "bypass" if bypass else "decoupled",
        loss,
        lacking,
        traps=tuple(warnings(Case(flags, computed, applied, rejected), tokens)),
    )


def _weight(w: Weight, normalise: bool) -> Step:
    level: Level = "token" if w.level == "token" else "sequence"
    if w.low is None:
        return Step(level, "truncate", None, w.high, normalise=normalise)
    return Step(level, "mask", w.low, w.high, normalise=normalise)


def _rejection(r: Rejection) -> Step:
    """K1 is -log rho, compared with the logarithms of the bounds: so they change places."""
    return Step(LEVELS[r.statistic], "mask", 1 / r.high, 1 / r.low, "one")


def _in_words(r: Rejection) -> Part:
    formula = {"k2": "(log rho)^2 / 2", "k3": "rho - 1 - log rho"}[r.k]
    how = {
        "token": Said("of each token", "逐 token"),
        "seq_sum": Said("summed over a response", "整条回答求和"),
        "seq_mean": Said("averaged over a response", "整条回答取平均"),
        "seq_max": Said("the largest of a response", "整条回答取最大"),
    }[r.statistic]
    each = r.statistic == "token"
    what, was = ("token", "该 token") if each else ("response", "整条回答")
    whole = Said(f"sequence: {formula}, {how.en}", f"序列级：{formula}，{how.zh}")
    return Part(
        LEVEL["token"] if each else whole,
        Said(
            f"mask: a {what} above the bound is dropped; what stays has weight 1",
            f"屏蔽：超过界就丢掉{was}；留下的权重为 1",
        ),
        Said(
            f"{r.k.upper()} = {formula}, {how.en}, at most {r.high:g}",
            f"{r.k.upper()} = {formula}（{how.zh}）不超过 {r.high:g}",
        ),
    )


def _pops(applied: Weight | None) -> bool:
    return applied is not None and applied.low is not None


def _edited_early(flags: Flags) -> bool:
    """Whether response_mask is edited before the tokens that a loss divides by are counted:
    on the driver in decoupled mode. A number of responses is fixed beforehand always."""
    return flags["loss_agg_mode"] == "token-mean" and not flags["bypass_mode"]


def _counts(
    applied: Weight | None, rejected: Sequence[Rejection], flags: Flags
) -> Denominator:
    if flags["loss_agg_mode"] == "token-sum" or not (rejected or _pops(applied)):
        return "kept"
    return "kept" if rejected and _edited_early(flags) else "all"


def _lacking(
    steps: Sequence[Step],
    applied: Weight | None,
    rejected: Sequence[Rejection],
    flags: Flags,
) -> Said | None:
    """Why no `Correction` says this, or None if one does."""
    for r in rejected:
        if r.k != "k1":
            return Said(
                f"none: a Correction's bounds are on ratios, not on {r.k.upper()}",
                f"没有：Correction 的界管的是比值，不是 {r.k.upper()}",
            )
    for step in steps:
        if not step.spares_equals:
            return traps.without_one(step.lower, step.upper)
    by_token = any(r.statistic == "token" for r in rejected)
    if flags["loss_agg_mode"] == "seq-mean-token-mean" and by_token:
        return Said(
            "none: in a response the kept tokens count, among responses all do",
            "没有：回答内只数留下的 token，回答之间却全部计数",
        )
    if _pops(applied) and rejected and _edited_early(flags):
        return Said(
            "none: IcePop's zeros count in the denominator and rejected tokens don't",
            "没有：IcePop 置零的 token 计入分母，被拒绝的不计入",
        )
    return None


def _where(computed: Weight | None, bypass: bool, loss: Loss) -> Said:
    if not bypass and computed is None:
        return Said(
            "decoupled, and no weight: the loss's ratio is p_new/p_old; rho = p_old/mu "
            "goes into the metrics, and into the mask if one is asked for",
            "解耦，不加权：损失里的比值是 p_new/p_old；rho = p_old/mu 只进指标和所要求的"
            "屏蔽",
        )
    if not bypass:
        return Said(
            "decoupled, three policies: the weight, from rho = p_old/mu, multiplies each "
            "token's policy loss outside the clip on p_new/p_old; KL and entropy terms are "
            "not weighted",
            "解耦，三个策略：权重来自 rho = p_old/mu，乘在每个 token 的策略损失上，位于 "
            "p_new/p_old 的裁剪之外；KL 项和熵项不加权",
        )
    if loss == "reinforce":
        return Said(
            "bypass, two policies: -w A log p_new without a clip; w is from "
            "rho = p_new/mu, computed again at every update",
            "旁路，两个策略：-w A log p_new，不裁剪；w 来自 rho = p_new/mu，每次更新都重算",
        )
    return Said(
        "bypass, two policies: mu plays p_old, so PPO's clip is on rho = p_new/mu itself, "
        "and no weight is applied",
        "旁路，两个策略：mu 充当 p_old，PPO 直接裁剪 rho = p_new/mu，不再乘权重",
    )


def _denominator(
    applied: Weight | None, rejected: Sequence[Rejection], flags: Flags
) -> Said:
    how = flags["loss_agg_mode"]
    if how == "token-sum":
        return Said("none: losses are summed", "没有分母：损失直接求和")
    if not rejected and not _pops(applied):
        return Said("unchanged: nothing is dropped", "不变：没有丢弃任何 token")
    if not rejected:
        return Said(
            "all tokens: a weight of 0 leaves response_mask as it was",
            "全部 token：权重置 0，response_mask 不变",
        )
    if _edited_early(flags):
        return Said(
            "kept tokens: response_mask is edited before batch_num_tokens is counted",
            "留下的 token：response_mask 在数 batch_num_tokens 之前就已改好",
        )
    if how == "token-mean":
        return Said(
            "all tokens: response_mask is edited inside the loss, after batch_num_tokens "
            "was counted",
            "全部 token：response_mask 在损失函数里才改，batch_num_tokens 此前已数好",
        )
    inside = how == "seq-mean-token-mean"
    return Said(
        ("its kept tokens inside a response, then " if inside else "")
        + "the fixed number of responses of a mini-batch, dropped ones among them",
        ("回答内除以留下的 token 数，再" if inside else "")
        + "除以 mini-batch 的固定回答数，被丢弃的也算在内",
    )
