"""What these flags are often taken for and are not: warnings, with numbers of the case."""

from __future__ import annotations

import math

from ..said import Said

STEADY = 1.01
"""The example of a product: every token's ratio is this much."""


def length(lower: float | None, upper: float | None, tokens: int) -> Said:
    """A product's bound gets tighter as responses get longer."""
    bound, step = (upper, STEADY) if upper is not None else (lower, 1 / STEADY)
    assert bound  # the caller has one
    first = math.floor(math.log(bound) / math.log(step) + 1e-9) + 1
    product = _exp(tokens * math.log(step))
    each = abs(math.log(bound)) / tokens
    return Said(
        f"Length: the bound {bound:g} is on a product over tokens. If every token's ratio "
        f"is {step:.3g}, the product over T = {tokens:,} tokens is {product}, and it "
        f"leaves the bound at T = {first:,}. At T = {tokens:,} the mean log-ratio may be "
        f"{each:.2g} a token and no more: long responses go first, however small the "
        "mismatch (huggingface/trl#4772: 0.012 a token over 100 tokens is e^1.2 = "
        f"{math.exp(1.2):.2g}).",
        f"长度陷阱：界 {bound:g} 管的是所有 token 比值的乘积。若每个 token 的比值都是 "
        f"{step:.3g}，T = {tokens:,} 时乘积为 {product}，到 T = {first:,} 就出界。"
        f"T = {tokens:,} 时平均每个 token 的对数比最多 {each:.2g}：不一致再小，先出界的也是"
        "长回答（huggingface/trl#4772：每 token 0.012，100 个 token 就是 "
        f"e^1.2 = {math.exp(1.2):.2g}）。",
    )


def product_or_mean(framework: str) -> Said:
    """The same word for two numbers."""
    return Said(
        f"Product or mean: {framework}'s sequence ratio is the product of token ratios, "
        "as in verl, TRL, slime and SkyRL. In AReaL, ms-swift and GSPO (and for TRL's "
        "own importance_sampling_level=sequence) it is their geometric mean. The same "
        "words and bounds give other weights there.",
        f"连乘还是平均：{framework} 的 sequence 比值是 token 比值的乘积，verl、TRL、slime、"
        "SkyRL 都如此；AReaL、ms-swift、GSPO（以及 TRL 自己的 "
        "importance_sampling_level=sequence）指几何平均。同样的词、同样的界，权重却不同。",
    )


def narrow(lower: float | None, upper: float | None, tokens: int) -> Said:
    """What a band of the geometric mean allows a token, and a response."""
    low = -math.inf if not lower else math.log(lower)
    high = math.inf if upper is None else math.log(upper)
    whole = [_exp(tokens * x) for x in (low, high)]
    return Said(
        f"Geometric band: a response stays if its mean log-ratio lies between {low:.3g} "
        f"and {high:.3g} a token, whatever its length. Over T = {tokens:,} tokens its "
        f"product may then be anything from {whole[0]} to {whole[1]}: this filters by "
        "average, it bounds no importance weight.",
        f"几何平均的界：平均每个 token 的对数比在 {low:.3g} 到 {high:.3g} 之间就保留，与长"
        f"度无关。T = {tokens:,} 时乘积仍可从 {whole[0]} 到 {whole[1]}：它按平均值筛选，并"
        "不限制重要性权重。",
    )


def inverted(lower: float, upper: float) -> Said:
    """verl's K1 rejection turns its bounds round."""
    low, high = 1 / upper, 1 / lower
    return Said(
        "Inverted bounds (verl-project/verl#6377, closed, not merged): K1 is -log rho, "
        f"yet verl compares it with log {lower:g} and log {upper:g}. So rho stays from "
        f"{low:.4g} to {high:.4g} and not from {lower:g} to {upper:g}. The two agree only "
        "if the bounds are reciprocal.",
        "界是反的（verl-project/verl#6377，已关闭，未合并）：K1 是 -log rho，verl 却拿它"
        f"与 log {lower:g} 和 log {upper:g} 比较。所以留下的 rho 在 {low:.4g} 到 "
        f"{high:.4g} 之间，而不是 {lower:g} 到 {upper:g}。只有两个界互为倒数时才一致。",
    )


def without_one(lower: float | None, upper: float | None) -> Said:
    """Bounds that equal policies do not meet."""
    said = f"[{lower or 0:g}, {'inf' if upper is None else f'{upper:g}'}]"
    return Said(
        f"The bounds {said} leave 1 out (or allow nothing else): two equal policies, with "
        "every ratio 1, would be cut or dropped too. So no Correction says this.",
        f"界 {said} 不含 1（或只含 1）：两个完全相同的策略比值处处为 1，也会被截断或丢弃，"
        "所以没有对应的 Correction。",
    )


def batch_mean(over: Said) -> Said:
    """What dividing by the batch's mean does."""
    return Said(
        f"Batch normalisation: weights are divided by their mean over {over.en}. A bias "
        "that all share (a temperature, a cut vocabulary) is divided away and shows "
        "nowhere; the weight of a token depends on what else is in the batch; and after "
        "it a weight may lie above the bound.",
        f"batch 归一化：权重除以其均值（{over.zh}）。所有 token 共有的偏差（温度、词表截"
        "断）被除掉，哪里也看不出来；一个 token 的权重取决于同批的其他数据；除过之后权重"
        "可能超过上界。",
    )


def counted_twice(how: Said) -> Said:
    """A weight beside a ratio that holds it already."""
    return Said(
        "Double counting: with the rollout's probability as the old one, the loss's ratio "
        f"is p_new/mu and holds p_old/mu already. {how.en}",
        "重复计算：以采样概率作旧概率时，损失里的比值是 p_new/mu，已经含有 p_old/mu。"
        f"{how.zh}",
    )


def cispo(high: float, low: float) -> Said:
    """CISPO cut on both sides, at distances from 1."""
    return Said(
        f"CISPO is cut on both sides here: r from {1 - low:g} to {1 + high:g}. The paper "
        "(arXiv 2506.13585) leaves the lower side open, and TRL's epsilon_high is the cap "
        f"itself: {high:g} there would weigh even r = 1 by {min(1.0, high):g}.",
        f"这里 CISPO 两侧都截：r 在 {1 - low:g} 到 {1 + high:g} 之间。论文（arXiv "
        "2506.13585）不设下界；TRL 的 epsilon_high 就是上限本身：在那里写 "
        f"{high:g}，连 r = 1 的权重也只有 {min(1.0, high):g}。",
    )


def cispo_absolute(cap: float) -> Said:
    """CISPO's cap in TRL, a number and not a distance from 1."""
    if cap < 1:
        return Said(
            f"CISPO's cap is absolute in TRL: weights are min(r, {cap:g}), so that even "
            f"r = 1 is weighted {cap:g}, and there is no lower bound. verl and slime would "
            f"cut at 1 + {cap:g}; ScaleRL (arXiv 2510.13786) has 5.0.",
            f"TRL 里 CISPO 的上限是绝对值：权重为 min(r, {cap:g})，连 r = 1 也只剩 "
            f"{cap:g}，而且没有下界。verl 和 slime 会截在 1 + {cap:g}；ScaleRL（arXiv "
            "2510.13786）用 5.0。",
        )
    return Said(
        f"CISPO's cap is absolute in TRL: weights are min(r, {cap:g}), without a lower "
        f"bound; verl and slime would cut at 1 + {cap:g}.",
        f"TRL 里 CISPO 的上限是绝对值：权重为 min(r, {cap:g})，没有下界；verl 和 slime "
        f"会截在 1 + {cap:g}。",
    )


def dr_grpo(here: Said) -> Said:
    """A factor of the batch size between losses of one name."""
    return Said(
        f"Dr. GRPO's constant: {here.en} verl's seq-mean-token-sum-norm divided by the "
        "length alone up to v0.7.0 and by B as well since v0.7.1 (March 2026): between the "
        "two, losses and gradients differ by the factor B.",
        f"Dr. GRPO 的常数：{here.zh}verl 的 seq-mean-token-sum-norm 到 v0.7.0 只除以长度，"
        "v0.7.1（2026 年 3 月）起还除以 B：两者的损失和梯度相差 B 倍。",
    )


def denominators() -> Said:
    """Whether what is dropped counts."""
    return Said(
        "Denominators are not agreed on: verl in decoupled mode divides by what its "
        "rejection leaves; verl in bypass mode, verl's IcePop, TRL, slime and AReaL "
        "divide by all tokens. With half of them dropped, the same mask makes there half "
        "the step.",
        "分母没有共识：verl 解耦模式除以拒绝之后剩下的 token；verl 旁路模式、verl 的 "
        "IcePop、TRL、slime、AReaL 除以全部 token。丢掉一半时，同样的屏蔽在后者那里步长只"
        "有一半。",
    )


def mean_as_weight() -> Said:
    """A geometric mean in the place of a weight."""
    return Said(
        "A geometric mean is no importance weight: over responses, the mean of w f is the "
        "trainer's expectation of f for the product only. As a weight it is steady and "
        "biased.",
        "几何平均不是重要性权重：对回答求平均，只有用连乘时 w f 的均值才等于训练策略下 f 的"
        "期望。拿它当权重，方差小，但有偏。",
    )


def weightless(name: str, needs: str) -> Said:
    """A flag that does nothing for want of another."""
    return Said(f"{name} does nothing without {needs}.", f"没有 {needs}，{name} 不起作用。")


def _exp(x: float) -> str:
    if abs(x) > 50:
        return "0" if x == -math.inf else "inf" if x == math.inf else f"e^{x:,.0f}"
    return f"{math.exp(x):,.0f}" if x > 7 else f"{math.exp(x):.4g}"
