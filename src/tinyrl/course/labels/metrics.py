"""Words for the numbers of a mismatch, and what a K3 of some size means."""

from __future__ import annotations

from tinyrl.course.words import Words
from tinyrl.metrics import Mismatch

METRICS: dict[str, tuple[str | Words, Words]] = {
    "tokens": (
        Words("tokens", "token 数"),
        Words("response tokens compared", "参与比较的回答 token 数"),
    ),
    "sequences": (
        Words("responses", "回答数"),
        Words("responses compared", "参与比较的回答数"),
    ),
    "mean": (
        Words("mean δ", "δ 均值"),
        Words("mean of delta: the bias", "delta 的均值：偏差"),
    ),
    "mean_abs": (
        Words("mean |δ|", "|δ| 均值"),
        Words("mean size of delta, in nats", "|delta| 的均值，单位 nat"),
    ),
    "p99_abs": (
        "p99 |δ|",
        Words("one token in a hundred is further off", "百分之一的 token 偏得更多"),
    ),
    "max_abs": (
        Words("max |δ|", "|δ| 最大"),
        Words("the token that is furthest off", "偏得最多的 token"),
    ),
    "k1": (
        "K1",
        Words(
            "mean of -delta: unbiased for KL(rollout || train), can be negative",
            "-delta 的均值：KL(rollout || train) 的无偏估计，可为负",
        ),
    ),
    "k2": (
        "K2",
        Words("mean of delta²/2: biased, never negative", "delta²/2 的均值：有偏，非负"),
    ),
    "k3": (
        "K3",
        Words(
            "mean of exp(delta) - 1 - delta: unbiased, never negative",
            "exp(delta) - 1 - delta 的均值：无偏且非负",
        ),
    ),
    "seq_mean": (
        Words("mean Δ", "Δ 均值"),
        Words("mean of delta summed over a response", "每条回答 delta 之和的均值"),
    ),
    "seq_mean_abs": (
        Words("mean |Δ|", "|Δ| 均值"),
        Words("mean size of the summed delta", "|Δ| 的均值"),
    ),
    "seq_max_abs": (
        Words("max |Δ|", "|Δ| 最大"),
        Words("the response that is furthest off", "偏得最多的回答"),
    ),
    "seq_per_token": (
        Words("mean |Δ| / T", "|Δ| / T 均值"),
        Words("size of the summed delta for each token", "按长度归一化的 |Δ|"),
    ),
    "ratio_min": (
        Words("min ratio", "最小比值"),
        Words("smallest exp(delta)", "exp(delta) 的最小值"),
    ),
    "ratio_max": (
        Words("max ratio", "最大比值"),
        Words("largest exp(delta)", "exp(delta) 的最大值"),
    ),
    "clip_fraction": (
        Words("outside clip", "裁剪范围外"),
        Words(
            "share of tokens with a ratio outside 1 ± clip",
            "比值落在 1 ± clip 之外的 token 占比",
        ),
    ),
    "ess": (
        "ESS",
        Words(
            "effective sample size of the tokens' weights exp(δ), as a share",
            "token 权重 exp(δ) 的有效样本量（占比）",
        ),
    ),
    "ess_seq": (
        Words("ESS responses", "ESS（回答）"),
        Words(
            "the same of whole responses' weights exp(Δ)",
            "整条回答权重 exp(Δ) 的有效样本量",
        ),
    ),
    "top1_agreement": (
        Words("top-1 same", "top-1 相同"),
        Words(
            "places where both sides rank the same token first",
            "两侧首选 token 相同的位置占比",
        ),
    ),
}
"""By field of `metrics.Mismatch`: what it is called, and what it means."""


EXACT = Words("Exactly 0: training reproduces every logprob to the last bit.",
              "恰为 0：训练端逐位复现了每个 logprob。")  # fmt: skip
K3_READINGS: tuple[tuple[float, Words], ...] = (
    (1e-9, Words("No more than FP32 sums round: harmless, if both sides score what was "
                 "sampled from.",
                 "不超过 FP32 求和的舍入：只要两侧打分的都是采样所用的分布，就无害。")),
    (1e-5, Words("Small: below what dense models in real systems usually show.",
                 "很小：低于真实系统中稠密模型的常见水平。")),
    (1e-3, Words("Usual for dense models in real systems (K3 of 1e‑5 to 1e‑3).",
                 "真实系统中稠密模型的常见水平（K3 在 1e‑5 到 1e‑3）。")),
    (1e-2, Words("High for a dense model; mixtures of experts often show this.",
                 "对稠密模型偏高；MoE 常见此水平。")),
    (1.0, Words("Serious: from about 1e-2 on, training has been reported to suffer.",
                "严重：约 1e-2 起，已有训练受损的报告。")),
    (float("inf"), Words("Too large for rounding: look for wrong inputs first (positions, "
                         "tokens, weights, temperature).",
                         "大到不可能是舍入：先查输入（位置、token、权重、温度）。")),
)  # fmt: skip
"""By the largest K3 it is said of. Bands as reported by slime and by Liu and Li (2025)."""


def reading(mismatch: Mismatch) -> Words:
    """What a mismatch of this size means."""
    if mismatch.max_abs == 0:
        return EXACT
    return next(words for top, words in K3_READINGS if mismatch.k3 <= top)
