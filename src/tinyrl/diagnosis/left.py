"""What is left when every fault that was found is taken away, in words."""

from __future__ import annotations

from torch import Tensor

from ..said import Said
from .sampled import MANY, Means
from .statistics import few, mean_ratio_z, minority, rank_correlation

FLOOR = 1e-4
"""max |d| up to which nothing is looked for: the order of float32 additions gives 1e-5."""
NOTHING = Said("nothing", "没有剩余")
NEAR = Said(
    "as two whole distributions give that differ by rounding, kernels or weights; logprobs "
    "alone do not tell which",
    "像是两个完整的分布因舍入、算子或权重而不同；仅凭 logprob 分不清是哪一种",
)
FAR = Said(
    "as two whole distributions give that differ by more than 16 bits round: by weights, "
    "formats of 8 or 4 bits, a router, or a penalty on the logits (repetition, bias); "
    "logprobs alone do not tell which",
    "像是两个完整的分布，但差得比 16 位舍入更多：权重、8 位或 4 位格式、路由，或 logits "
    "上的惩罚项（重复惩罚、bias）；仅凭 logprob 分不清是哪一种",
)
ROUNDED = 1e-2
"""K3 up to which rounding is named first: that of dense models in 16 bits stays below."""
COMPARE = Said(
    "Compare token ids, rows, positions (logits[t] are of token t + 1) and weight versions",
    "请比较 token id、行、位置（logits[t] 对应第 t + 1 个 token）和权重版本",
)


def hidden(d: Tensor) -> Said:
    """An uneven offset lies over it."""
    least = f"{2 * minority(d) * d.abs().mean():.2g}"
    return Said(
        f"mean |d| of at least {least} over {len(d):,} tokens, as the signs tell: the "
        "offset differs from token to token and hides the rest",
        f"{len(d):,} 个 token 上 |d| 的均值至少 {least}（由符号看出）：偏移因 token 而异，"
        "遮住了其余部分",
    )


def left(a: Tensor, b: Tensor, d: Tensor, k3: float, m: Means, fitted: bool) -> Said:
    """Of what is left: logprobs `a` and `b`, d `[N]`, its K3 and means.

    `fitted`: a line for all tokens was taken away, which leaves something of a temperature
    and no ratio of probabilities.
    """
    n = len(d)
    mean = f"{d.abs().mean():.2g}"
    size = Said(
        f"mean |d| {mean}, K3 {k3:.2g} over {n:,} tokens",
        f"{n:,} 个 token，|d| 的均值 {mean}，K3 {k3:.2g}",
    )
    reading = _reading(a, b, d, k3, m, fitted)
    return Said(f"{size.en}: {reading.en}", f"{size.zh}：{reading.zh}")


def _reading(a: Tensor, b: Tensor, d: Tensor, k3: float, m: Means, fitted: bool) -> Said:
    n = len(d)
    if d.abs().max() < FLOOR:
        return Said("the floor of float32", "float32 的极限")
    if n < 30:
        return Said(
            "too few tokens to tell offset, scale or a wrong prefix",
            "token 太少，分不清偏移、倍数或前缀错误",
        )
    if few(a, b):
        return Said(
            "too few different tokens to tell an offset or a scale",
            "不同的 token 太少，分不清偏移或倍数",
        )
    if fitted:
        return Said(
            "what one line for all tokens leaves of a temperature, and is expected then; "
            "rounding may lie beneath, which this cannot tell",
            "一条直线拟合温度后的剩余，属于正常；其下可能还有舍入误差，这里分不清",
        )
    alike = rank_correlation(a, b)
    if m.foreign:
        return Said(
            "not what rounding gives, since the rollout did not sample these tokens (see "
            f"above; rank correlation of the two sides {alike:.2f}). {COMPARE.en}",
            f"不是舍入：这些 token 并非采样端所抽（见上；两侧秩相关 {alike:.2f}）。"
            f"{COMPARE.zh}",
        )
    if minority(d) > 0.1 and abs(mean_ratio_z(d)) < 10 and alike > 0.6:
        signs = _ratio(m, NEAR if k3 < ROUNDED else FAR)
        return Said(f"both signs and {signs.en}", f"正负都有，{signs.zh}")
    return Said(
        f"none of the signatures, and more than rounding (rank correlation of the two "
        f"sides {alike:.2f}, mean d {d.mean():.2g}). {COMPARE.en}",
        f"不符合任何一种特征，也大于舍入（两侧秩相关 {alike:.2f}，d 的均值 "
        f"{d.mean():.2g}）。{COMPARE.zh}",
    )


def _ratio(m: Means, alike: Said) -> Said:
    """What the mean ratio adds: near 1 only if it is, and if it is known to be."""
    off = (m.ratio - 1) / m.ratio_error if m.ratio_error else 0.0
    if not m.known:
        n = f"{min(m.few, MANY):,}" + "+" * (m.few > MANY)
        return Said(
            f"a mean ratio of {m.shown} that rests on {n} token{'s' * (m.few > 1)} and "
            "shows nothing: rounding, kernels or weights may do this, and so may other "
            "tokens or a few bad ones",
            f"但比值的均值 {m.shown} 取决于 {n} 个 token，说明不了什么：舍入、算子、权重都"
            "可能，token 不同或少数几个 token 出错也可能",
        )
    if abs(off) < 4 or abs(m.ratio - 1) < 1e-3:  # BF16 may sum to that
        return Said(
            f"a mean ratio near 1 ({m.shown}), {alike.en}",
            f"比值的均值接近 1（{m.shown}），{alike.zh}",
        )
    if off < 0:
        return Said(
            f"a mean ratio below 1 ({m.shown}): a tail that only the rollout cuts, or "
            "rare tokens with large ratios that this batch did not draw; beside that, "
            f"{alike.en}",
            f"比值的均值低于 1（{m.shown}）：只有采样端截掉了尾部，或者比值很大的罕见 "
            f"token 没被抽到；除此之外，{alike.zh}",
        )
    return Said(
        f"a mean ratio a little above 1 ({m.shown}): tokens that the rollout did not "
        "sample (files swapped?), probabilities that do not sum to 1 (log-softmax in "
        f"BF16), or steps that were rounded one way; beside that, {alike.en}",
        f"比值的均值略高于 1（{m.shown}）：这些 token 不是采样端抽的（文件弄反了？）、概率"
        "之和不是 1（BF16 的 log-softmax），或存储时朝一个方向取整；除此之外，"
        f"{alike.zh}",
    )
