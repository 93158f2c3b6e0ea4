"""The one table of words for people: what a stack's fields and the metrics are called.

Code says `numerics.kv`; a learner reads "KV cache", what it is, which option of a real
system it stands for, how it shows in the numbers and what puts it right. Names of options
are those of the engines' documentation in 2026.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..formats import FORMATS
from ..metrics import Mismatch
from .words import Words


@dataclass(frozen=True)
class Label:
    """Words for one thing that may differ between rollout and training."""

    name: Words
    help: Words
    real: Words
    """What it is called in real systems."""
    looks: Words
    """How a difference shows."""
    remedy: Words
    bounds: tuple[float, float, float] | None = None
    """Lowest, highest and step of the control of a number."""


LABELS: dict[str, Label] = {
    "weights": Label(
        Words("updates behind", "落后更新数"),
        Words("how many updates older the weights that sample are",
              "采样所用的权重比训练权重旧多少次更新"),
        Words("asynchronous RL; a weight sync that failed or was late",
              "异步 RL；权重同步失败或延迟"),
        Words("grows with every update; on tokens that training changes, at all positions",
              "随更新次数增大；出现在训练正在改变的 token 上，各位置都有"),
        Words("sync before sampling, or bound the age and weight by the ratio",
              "采样前先同步权重；否则限制陈旧度并用比值加权"),
    ),
    "numerics.weights": Label(
        Words("weights", "权重格式"),
        Words("number format in which the weights are stored", "权重存储所用的数值格式"),
        Words("--dtype and --quantization of vLLM; an FP8 or INT4 rollout, a BF16 trainer",
              "vLLM 的 --dtype、--quantization；FP8 或 INT4 rollout 配 BF16 训练"),
        Words("largest where the policy is unsure; both signs; the same at each run",
              "策略不确定处最大；正负都有；每次运行相同"),
        Words("same format on both sides, or more mantissa bits (FP16: 3 more than BF16)",
              "两侧用同一格式，或保留更多尾数位（FP16 比 BF16 多 3 位）"),
    ),
    "numerics.activations": Label(
        Words("activations", "激活格式"),
        Words("format of every operation's result (8 bits and below: of what enters a "
              "matrix product)", "每步运算结果的格式（8 位及以下：矩阵乘法输入的格式）"),
        Words("--dtype; W8A8 and FP8 kernels; autocast on one side only",
              "--dtype；W8A8 与 FP8 内核；只有一侧开 autocast"),
        Words("like weights, often larger: each layer rounds again",
              "与权重相似但常更大：每层都再舍入一次"),
        Words("same format and the same places of rounding on both sides",
              "两侧用相同格式，并在相同位置舍入"),
    ),
    "numerics.kv": Label(
        Words("KV cache", "KV cache 格式"),
        Words("format in which keys and values of earlier tokens are kept",
              "保存先前 token 的 key 与 value 所用的格式"),
        Words("--kv-cache-dtype fp8_e4m3 of vLLM and SGLang",
              "vLLM 与 SGLang 的 --kv-cache-dtype fp8_e4m3"),
        Words("only what is read back is rounded, so it follows how tokens use the context",
              "只有读回的内容被舍入，因此取决于 token 如何利用上下文"),
        Words("a 16-bit cache for RL, or calibrated scales",
              "RL 中用 16 位缓存，或使用校准过的缩放系数"),
    ),
    "numerics.overflow": Label(
        Words("FP8 overflow", "FP8 溢出"),
        Words("what a value beyond FP8's largest becomes: the largest, or NaN (infinity in "
              "E5M2)", "超出 FP8 最大值时变成什么：取最大值，或 NaN（E5M2 为无穷）"),
        Words("saturating casts of engines against IEEE casts of libraries",
              "引擎的饱和转换与库的 IEEE 转换之别"),
        Words("nothing until one value is too large, then NaN or a jump",
              "平时无影响；一旦有值过大便出现 NaN 或跳变"),
        Words("scale before the cast; watch the largest value",
              "转换前先缩放；监控最大值"),
    ),
    "kernels.attention": Label(
        Words("attention", "注意力内核"),
        Words("a fused kernel, or the formula as written: the same sum in another order",
              "融合内核，或按公式逐步计算：同一个和，次序不同"),
        Words("FlashAttention, FlashInfer, Triton, SDPA or eager",
              "FlashAttention、FlashInfer、Triton、SDPA 或 eager"),
        Words("the last bits of the format: about 1e-6 in FP32, far more in 16 bits",
              "格式的最后几位：FP32 约 1e-6，16 位时大得多"),
        Words("the same kernel on both sides", "两侧用同一内核"),
    ),
    "kernels.shapes": Label(
        Words("matrix shapes", "矩阵形状"),
        Words("free: a step multiplies what it has; fixed: padded, so a token's arithmetic "
              "does not depend on its neighbours",
              "free：有多少算多少；fixed：补齐到固定大小，运算与同批其他 token 无关"),
        Words("VLLM_BATCH_INVARIANT=1, SGLang's --enable-deterministic-inference",
              "VLLM_BATCH_INVARIANT=1；SGLang 的 --enable-deterministic-inference"),
        Words("the last bits: decoding one token adds in another order than scoring all",
              "最后几位：逐 token 解码与整段打分的求和次序不同"),
        Words("fixed on both sides: delta is then exactly 0",
              "两侧都选 fixed：delta 恰为 0"),
    ),
    "positions.offset": Label(
        Words("position offset", "位置偏移"),
        Words("how far the position ids are moved", "position id 平移多少"),
        Words("position ids counted over padding, or restarted after a cached prefix",
              "position id 把 padding 也计入，或在缓存前缀之后重新计数"),
        Words("far too large for rounding, from the second token on; top-1 agreement falls",
              "远大于舍入误差，从第二个 token 起；top-1 一致率下降"),
        Words("make position ids from the attention mask, alike on both sides",
              "两侧都由 attention mask 推出 position id"),
        (-4, 4, 1),
    ),
    "positions.of": Label(
        Words("offset moves", "偏移对象"),
        Words("which tokens are moved; moving all changes nothing, because RoPE sees "
              "differences only",
              "平移哪些 token；全部平移没有影响，因为 RoPE 只看相对位置"),
        Words("left padding without a mask moves all; a wrong start moves the response",
              "左填充未加掩码会平移全部；回复起点算错只平移回复"),
        Words("nothing by itself; it says where the offset acts",
              "本身无影响；只决定偏移作用在哪里"),
        Words("as for the offset", "同位置偏移"),
    ),
    "sampler.temperature": Label(
        Words("temperature", "温度"),
        Words("logits are divided by it before the softmax", "softmax 之前 logits 除以它"),
        Words("set in the sampling parameters, forgotten in the trainer (or the reverse)",
              "采样参数里设了，训练侧忘了除（或相反）"),
        Words("likely tokens move one way and unlikely ones the other: the cooler side is "
              "surer", "高概率与低概率 token 朝相反方向偏：温度低的一侧更自信"),
        Words("divide by the same temperature when scoring", "打分时除以同一温度"),
        (0.1, 2.0, 0.05),
    ),
    "sampler.logprobs": Label(
        Words("reported logprob", "上报的 logprob"),
        Words("after temperature (processed: the distribution sampled from) or before it "
              "(raw)",
              "温度之后（processed：真正采样的分布）或之前（raw）"),
        Words("vLLM's logprobs_mode: raw_logprobs by default, or processed_logprobs",
              "vLLM 的 logprobs_mode：默认 raw_logprobs，或 processed_logprobs"),
        Words("nothing at temperature 1; else like a forgotten temperature, or hides one",
              "温度为 1 时无影响；否则像漏掉温度，或掩盖温度差异"),
        Words("report what was sampled from: processed",
              "上报真正采样所用的分布：processed"),
    ),
}  # fmt: skip
"""By path of the stack's field; "weights" is which version of the weights samples."""


METRICS: dict[str, tuple[str, Words]] = {
    "tokens": ("tokens", Words("response tokens compared", "参与比较的回复 token 数")),
    "sequences": ("responses", Words("responses compared", "参与比较的回复数")),
    "mean": ("mean δ", Words("mean of delta: the bias", "delta 的均值：偏差")),
    "mean_abs": ("mean |δ|", Words("mean size of delta, in nats",
                                   "|delta| 的均值，单位 nat")),
    "p99_abs": ("p99 |δ|", Words("one token in a hundred is further off",
                                 "百分之一的 token 偏得更多")),
    "max_abs": ("max |δ|", Words("the token that is furthest off", "偏得最多的 token")),
    "k1": ("K1", Words("mean of -delta: unbiased for KL(rollout || train), can be negative",
                       "-delta 的均值：KL(rollout || train) 的无偏估计，可为负")),
    "k2": ("K2", Words("mean of delta²/2: biased, never negative",
                       "delta²/2 的均值：有偏，非负")),
    "k3": ("K3", Words("mean of exp(delta) - 1 - delta: unbiased, never negative",
                       "exp(delta) - 1 - delta 的均值：无偏且非负")),
    "seq_mean": ("mean Δ", Words("mean of delta summed over a response",
                                 "每条回复 delta 之和的均值")),
    "seq_mean_abs": ("mean |Δ|", Words("mean size of the summed delta", "|Δ| 的均值")),
    "seq_max_abs": ("max |Δ|", Words("the response that is furthest off",
                                     "偏得最多的回复")),
    "seq_per_token": ("mean |Δ| / T", Words("size of the summed delta for each token",
                                          "按长度归一化的 |Δ|")),
    "ratio_min": ("min ratio", Words("smallest exp(delta)", "exp(delta) 的最小值")),
    "ratio_max": ("max ratio", Words("largest exp(delta)", "exp(delta) 的最大值")),
    "clip_fraction": ("outside clip", Words("share of tokens with a ratio outside 1 ± clip",
                                            "比值落在 1 ± clip 之外的 token 占比")),
    "ess": ("ESS", Words("effective sample size of the tokens' weights exp(δ), as a share",
                         "token 权重 exp(δ) 的有效样本量（占比）")),
    "ess_seq": ("ESS responses", Words("the same of whole responses' weights exp(Δ)",
                                          "整条回复权重 exp(Δ) 的有效样本量")),
    "top1_agreement": ("top-1 same", Words("places where both sides rank the same token "
                                                "first", "两侧首选 token 相同的位置占比")),
}  # fmt: skip
"""By field of `metrics.Mismatch`: what it is called, and what it means."""


EXACT = Words("Exactly 0: training reproduces every logprob to the last bit.",
              "恰为 0：训练侧逐位复现了每个 logprob。")  # fmt: skip
K3_READINGS: tuple[tuple[float, Words], ...] = (
    (1e-9, Words("Rounding of FP32 sums, no more: harmless.",
                 "只是 FP32 求和的舍入：无害。")),
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


def value(x: Any) -> str:
    """A field's value as people write it: `FP8 E4M3`, `0.7`, `free`."""
    if isinstance(x, float):
        return f"{x:g}"
    return str(x).upper().replace("_", " ") if x in FORMATS else str(x)
