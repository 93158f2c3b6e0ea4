"""The table of `tinyrl diagnose`: each number with its meaning, in both languages."""

from __future__ import annotations

from collections.abc import Iterator

from ..said import Said
from .verdict import Diagnosis

HEADS = (Said("metric", "指标"), Said("value", "值"), Said("meaning", "含义"))
MEANING = {
    "tokens": Said("real response tokens", "参与比较的回答 token 数"),
    "sequences": Said("responses", "回答数"),
    "mean": Said(
        "mean of d = log p_train - log p_rollout, nats",
        "d = log p_train - log p_rollout 的均值，单位 nat",
    ),
    "mean_abs": Said("mean of |d|", "|d| 的均值"),
    "p99_abs": Said("99th percentile of |d|", "|d| 的 99 分位"),
    "max_abs": Said("largest |d|", "|d| 的最大值"),
    "k1": Said(
        "mean of -d: KL(rollout || train), noisy",
        "-d 的均值：KL(rollout || train) 的估计，噪声大",
    ),
    "k2": Said("mean of d^2 / 2", "d^2 / 2 的均值"),
    "k3": Said(
        "mean of exp(d) - 1 - d: KL(rollout || train)",
        "exp(d) - 1 - d 的均值：KL(rollout || train) 的估计",
    ),
    "seq_mean": Said(
        "mean of D, the sum of d over a response", "D 的均值，D 为一条回答的 d 之和"
    ),
    "seq_mean_abs": Said("mean of |D| over responses", "各条回答 |D| 的均值"),
    "seq_max_abs": Said("largest |D| of a response", "各条回答 |D| 的最大值"),
    "seq_per_token": Said(
        "mean over responses of |D| / length", "各条回答 |D| / 长度 的均值"
    ),
    "ratio_min": Said("smallest exp(d)", "exp(d) 的最小值"),
    "ratio_max": Said("largest exp(d)", "exp(d) 的最大值"),
    "ratio_mean": Said(
        "mean of exp(d) ± standard error: 1 on the rollout's own samples, below 1 if it "
        "cuts a tail",
        "exp(d) 的均值 ± 标准误：采样端自己的样本应为 1，只有它截尾时小于 1",
    ),
    "clip_fraction": Said(
        "share of tokens with exp(d) outside 0.8 to 1.2",
        "exp(d) 在 0.8 到 1.2 之外的 token 占比",
    ),
    "ess": Said(
        "effective sample size of token weights exp(d), as a share: 1 is full",
        "token 权重 exp(d) 的有效样本量（占比，1 为满）",
    ),
    "ess_seq": Said(
        "effective sample size of response weights exp(D), as a share",
        "回答权重 exp(D) 的有效样本量（占比）",
    ),
}


def rows(verdict: Diagnosis) -> Iterator[tuple[str, str, Said]]:
    """Name, value and meaning of each number."""
    for name, value in verdict.mismatch.table():
        yield name, value, MEANING[name]
        if name == "ratio_max":
            yield "ratio_mean", verdict.means.shown, MEANING["ratio_mean"]
