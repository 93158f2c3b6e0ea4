"""Renormalisation over a part of the vocabulary on one side only."""

from __future__ import annotations

import math

from torch import Tensor

from ..said import NOTHING_SAID, Said, joined
from .finding import CHINESE, Finding
from .statistics import enough, mean_ratio_z, minority, quantile, rank_correlation

LEARNED = Said(
    "first make sure that the trainer's logprobs were taken before it made a step on these "
    "tokens: one {}s nearly all of them, and no sampler is at fault. If they were, ",
    "先确认训练端的 logprob 是在更新之前取的：{}几乎全部 token，那就不是采样设置的错。"
    "若确实是更新前取的，",
)
LOWERED = Said(
    LEARNED.en.format("with negative advantages lower"),
    LEARNED.zh.format("优势为负时，更新一步就会压低"),
)
RAISED = Said(
    LEARNED.en.format("on their likelihood, or with positive advantages, raise")
    + "see that the two files are not swapped, and ",
    LEARNED.zh.format("按似然更新、或优势为正时，更新一步就会推高")
    + "再看两个文件是否弄反了，然后",
)
ALIKE = Said(
    "use logprobs of one kind on both sides: raw ones from the engine, or the same "
    "processors in the trainer (keep the sampled sets and mask the logits with them)",
    "两侧用同一种 logprob：引擎改报 raw，或训练端做同样的处理（保存采样时的 token 集合，"
    "用它屏蔽 logits）",
)


def offset(a: Tensor, b: Tensor, mask: Tensor) -> Finding | None:
    """Renormalisation: d has one sign everywhere, and the mean ratio is not 1.

    Tokens come from mu, so E[p_train / mu] is the trainer's mass on what mu can sample: 1
    for any two full softmaxes, however noisy, and the kept mass S under top-p or top-k.
    A step of the trainer on these very tokens looks the same, so it is always named too.
    """
    d, x, y = (b - a)[mask], a[mask], b[mask]
    some = d.abs() > 1e-4
    if not enough(x[some], y[some]):
        return None
    wrong, z = minority(d), mean_ratio_z(d)
    down = bool(d.sum() < 0)
    if wrong > (0.1 if down else 0.02) or (abs(z) < 10 and wrong > 0.001):
        return None
    moving = (x != 0) & (y != 0)
    alike = rank_correlation(x[moving], y[moving])
    if not even(d) and (alike < 0.6 or d.std() > 0.6 * y.std()):
        return None
    log_S = d.logsumexp(0).item() - math.log(len(d))
    low, high = quantile(d, 0.05), quantile(d, 0.95)
    side = "rollout" if down else "trainer"
    many = NOTHING_SAID
    if alike_sized(x[moving], y[moving]):
        k = y[moving].sum().item() / x[moving].sum().item()
        many = Said(
            f"; or its logprobs are the rollout's multiplied by {k:.4g} (another base, a "
            "mean over tokens): these tokens are too alike to tell",
            f"；或者它的 logprob 是采样端的 {k:.4g} 倍（换了底、对 token 取了平均）：这些 "
            "token 太相似，分不清",
        )
    return Finding(
        "offset",
        Said(
            f"the {side} alone renormalises over a part of the vocabulary, of mass "
            f"{math.exp(-abs(log_S)):.3g} on average: top-p, top-k, min-p, or a "
            "temperature near 0; or the trainer has already learned "
            f"{'against' if down else 'from'} these tokens{many.en}",
            f"只有{CHINESE[side]}在部分词表上重新归一化，保留的概率平均为 "
            f"{math.exp(-abs(log_S)):.3g}：top-p、top-k、min-p 或接近 0 的温度；或者训练端"
            f"已经在这些 token 上学过一步（{'压低' if down else '推高'}了它们）{many.zh}",
        ),
        Said(
            f"d is {'negative' if down else 'positive'} but for {wrong:.1%} of its mass, "
            f"{low:.3g} to {high:.3g}"
            + ", nearly constant"
            * even(d)
            + f"; the mean ratio is {d.exp().mean():.3g}, {_errors(z)} standard errors "
            "from 1",
            f"d 除 {wrong:.1%} 之外全为{'负' if down else '正'}，从 {low:.3g} 到 {high:.3g}"
            + "，几乎是常数" * even(d)
            + f"；比值的均值为 {d.exp().mean():.3g}，与 1 相差 {_errors(z)} 个标准误",
        ),
        joined([LOWERED if down else RAISED, ALIKE]),
        d.mean().item(),
    )


def _errors(z: float) -> str:
    return "over 1,000" if abs(z) > 1000 else f"{abs(z):.0f}"


def alike_sized(x: Tensor, y: Tensor) -> bool:
    """Whether the rare third of the tokens is not twice as unlikely as the likely one.

    A multiple of such logprobs cannot be told from an offset.
    """
    n, order = len(x) // 3, (x * y).argsort()
    likely, rare = (x[part] for part in (order[:n], order[-n:]))
    return n == 0 or quantile(rare, 0.5) > 2 * quantile(likely, 0.5)


def even(d: Tensor) -> bool:
    """Whether d `[N]` is nearly one number: without its mean, under a quarter is left."""
    return bool((d - d.mean()).abs().mean() < 0.25 * d.abs().mean())
