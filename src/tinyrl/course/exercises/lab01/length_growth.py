"""Why a tiny delta grows with length: bias as T, noise as the square root of T."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Generator

from tinyrl.course.exercise import Case, Exercise, Mistakes
from tinyrl.course.words import Words

Two = tuple[float, float]


def reference(mean: float, std: float, length: int) -> Two:
    return mean * length, std * math.sqrt(length)


def _by_variance(mean: float, std: float, length: int) -> tuple[float, np.float64]:
    return sum([mean] * length), np.sqrt(std**2 * length)


def _with_torch(mean: float, std: float, length: int) -> tuple[torch.Tensor, torch.Tensor]:
    t = torch.tensor(float(length))
    return mean * t, std * t.sqrt()


MISTAKES: Mistakes = {
    "noise_as_length": (
        lambda mean, std, length: (mean * length, std * length),
        Words(
            en="The noise grows too fast. Independent errors partly cancel: variances add, "
            "so the standard deviation grows as sqrt(T).",
            zh="噪声增长得太快了。独立误差会部分抵消：相加的是方差，所以标准差按 sqrt(T) "
            "增长。",
        ),
    ),
    "bias_as_root": (
        lambda mean, std, length: (mean * math.sqrt(length), std * math.sqrt(length)),
        Words(
            en="The bias grows too slowly. A mean has one sign and never cancels: T tokens "
            "of mean m sum to T m.",
            zh="偏差增长得太慢了。均值符号固定，不会抵消：T 个均值为 m 的 token 加起来是"
            " T m。",
        ),
    ),
    "of_the_mean": (
        lambda mean, std, length: (mean, std / math.sqrt(length)),
        Words(
            en="These belong to the mean over T tokens, whose noise shrinks. The sequence "
            "delta is a sum.",
            zh="这是 T 个 token 平均值的均值和标准差，噪声会缩小。而序列 delta 是和。",
        ),
    ),
    "mean_unchanged": (
        lambda mean, std, length: (mean, std * math.sqrt(length)),
        Words(
            en="The mean stays that of one token. Expectations add: T times the token's "
            "mean.",
            zh="均值还是单个 token 的。期望可以相加：应当是 token 均值的 T 倍。",
        ),
    ),
    "variance": (
        lambda mean, std, length: (mean * length, std**2 * length),
        Words(
            en="This is the variance of the sum; its square root is asked for.",
            zh="这是和的方差，题目要的是它的平方根（标准差）。",
        ),
    ),
    "std_unchanged": (
        lambda mean, std, length: (mean * length, std),
        Words(
            en="The noise stays that of one token. Variances of independent tokens add.",
            zh="噪声还是单个 token 的。独立 token 的方差是相加的。",
        ),
    ),
    "product": (
        lambda mean, std, length: (mean**length, std**length),
        Words(
            en="You raise to the power T. Probabilities multiply; their logs, the deltas, "
            "add.",
            zh="你算的是 T 次方。概率相乘，而对数（delta）相加。",
        ),
    ),
    "absolute": (
        lambda mean, std, length: (abs(mean) * length, std * math.sqrt(length)),
        Words(
            en="The bias has lost its sign: a negative mean gives a negative sequence "
            "delta.",
            zh="偏差丢了符号：均值为负，序列 delta 也为负。",
        ),
    ),
    "off_by_one": (
        lambda mean, std, length: (mean * (length - 1), std * math.sqrt(length - 1)),
        Words(
            en="Off by one: a response of T tokens has T deltas.",
            zh="差了一个：T 个 token 的回答有 T 个 delta。",
        ),
    ),
    "swapped": (
        lambda mean, std, length: (std * math.sqrt(length), mean * length),
        Words(
            en="The two are swapped: return the mean, then the standard deviation.",
            zh="两个返回值写反了：先返回均值，再返回标准差。",
        ),
    ),
}

BY_HAND = Words(
    en="bias 0.01, noise 0.2, 100 tokens",
    zh="偏差 0.01，噪声 0.2，100 个 token",
)
ONE = Words(en="a response of one token is that token", zh="只有一个 token 时就是它本身")
THOUSAND = Words(en="T = 1000", zh="T = 1000")
ANY = Words(en="other bias, noise and length", zh="其他偏差、噪声和长度")
HUGE = Words(en="a million tokens", zh="一百万个 token")


def cases(generator: Generator) -> list[Case]:
    def draw(low: float, high: float) -> float:
        return low + (high - low) * torch.rand((), generator=generator).item()

    length = int(torch.randint(20, 60, (), generator=generator))
    return [
        Case("example", BY_HAND, (0.01, 0.2, 100)),
        Case("property", ONE, (draw(0.01, 0.1), draw(0.2, 0.5), 1)),
        Case("inputs", THOUSAND, (draw(0.001, 0.002), draw(0.01, 0.05), 1000)),
        Case("inputs", ANY, (-draw(0.01, 0.02), draw(0.03, 0.2), length)),
        Case("numbers", HUGE, (draw(1e-6, 2e-6), draw(1e-3, 2e-3), 10**6)),
    ]


EXERCISE = Exercise(
    name="length_growth",
    title=Words(en="T = 1000", zh="T = 1000"),
    reference=reference,
    returns=("sequence_mean", "sequence_std"),
    cases=cases,
    mistakes=MISTAKES,
    alternatives={"by_variance": _by_variance, "torch": _with_torch},
    hints=(
        Words(
            en="The sequence delta is a sum of T token deltas. What adds up in a sum of "
            "independent numbers: standard deviations, or variances?",
            zh="序列 delta 是 T 个 token delta 之和。独立随机数求和时，相加的是标准差还是"
            "方差？",
        ),
        Words(
            en="Mean of a sum: T times the mean. Variance of a sum: T times the variance.",
            zh="和的均值是均值的 T 倍，和的方差是方差的 T 倍。",
        ),
        Words(
            en="The whole function is `return mean * length, std * math.sqrt(length)`.",
            zh="整个函数就是 `return mean * length, std * math.sqrt(length)`。",
        ),
    ),
    points=(1, 1),
    minutes=5,
)
