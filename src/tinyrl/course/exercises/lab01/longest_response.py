"""How long a response may be before its sequence ratio leaves a bound."""

from __future__ import annotations

import math

import torch
from torch import Generator

from tinyrl.course.exercise import Case, Exercise, Mistakes, Stage
from tinyrl.course.words import Words


def _root(mean: float, std: float, room: float, z: float) -> float:
    """sqrt(T) at which |mean| T + z std sqrt(T) = room; no division by the bias."""
    noise = z * std
    return 2 * room / (noise + math.sqrt(noise**2 + 4 * abs(mean) * room))


def reference(mean: float, std: float, bound: float, z: float) -> int:
    return math.floor(_root(mean, std, math.log(bound), z) ** 2)


def _by_counting(mean: float, std: float, bound: float, z: float) -> int:
    length = 0
    while abs(mean) * (length + 1) + z * std * math.sqrt(length + 1) <= math.log(bound):
        length += 1
    return length


def _by_bisection(mean: float, std: float, bound: float, z: float) -> int:
    low, high = 0, 1
    room = math.log(bound)

    def fits(length: int) -> bool:
        return abs(mean) * length + z * std * math.sqrt(length) <= room

    while fits(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def _signed(mean: float, std: float, bound: float, z: float) -> int:
    """The largest T up to 100,000 before mean T + z std sqrt(T) leaves the bound."""
    length = 0
    while mean * (length + 1) + z * std * math.sqrt(length + 1) <= math.log(bound):
        length += 1
        if length == 100_000:
            break
    return length


MISTAKES: Mistakes = {
    "no_log": (
        lambda mean, std, bound, z: math.floor(_root(mean, std, bound, z) ** 2),
        Words(
            en="You compare a sum of deltas with the bound itself. The bound is on the "
            "ratio, the exp of that sum: compare with log(bound).",
            zh="你拿 delta 之和直接与 bound 比。bound 限制的是比值，即和的 exp：应当与"
            " log(bound) 比。",
        ),
    ),
    "ratio_minus_one": (
        lambda mean, std, bound, z: math.floor(_root(mean, std, bound - 1, z) ** 2),
        Words(
            en="You use bound - 1 where log(bound) belongs. They agree only near 1.",
            zh="你用了 bound - 1 代替 log(bound)，两者只在 1 附近接近。",
        ),
    ),
    "noise_as_length": (
        lambda mean, std, bound, z: math.floor(math.log(bound) / (abs(mean) + z * std)),
        Words(
            en="The noise grows as T here, so your answer is far too short. It grows as "
            "sqrt(T): |mean| T + z std sqrt(T) <= log(bound).",
            zh="你让噪声按 T 增长，算出来的长度太短。噪声按 sqrt(T) 增长："
            "|mean| T + z std sqrt(T) <= log(bound)。",
        ),
    ),
    "bias_only": (
        lambda mean, std, bound, z: math.floor(math.log(bound) / (abs(mean) + 1e-300)),
        Words(
            en="The noise is left out: half of the responses of this length exceed the "
            "bound.",
            zh="漏掉了噪声：这个长度的回答有一半会超出 bound。",
        ),
    ),
    "noise_only": (
        lambda mean, std, bound, z: math.floor(_root(0.0, std, math.log(bound), z) ** 2),
        Words(
            en="The bias is left out. It grows as T and wins over the noise in the long "
            "run.",
            zh="漏掉了偏差。它按 T 增长，回答足够长时会超过噪声。",
        ),
    ),
    "signed_bias": (
        _signed,
        Words(
            en="A negative bias made your answer longer. The ratio must stay within "
            "[1 / bound, bound]: either direction counts, so take |mean|.",
            zh="偏差为负时你算出的长度反而更长。比值要保持在 [1 / bound, bound] 之内，两个"
            "方向都算，所以要用 |mean|。",
        ),
    ),
    "no_z": (
        lambda mean, std, bound, z: math.floor(_root(mean, std, math.log(bound), 1.0) ** 2),
        Words(
            en="The noise counts once; it should count z times (z = 2: at least 95 % of "
            "the responses stay within).",
            zh="噪声只算了 1 倍标准差，应当乘以 z（z = 2 时至少 95% 的回答不超界）。",
        ),
    ),
    "rounded_up": (
        lambda mean, std, bound, z: math.ceil(_root(mean, std, math.log(bound), z) ** 2),
        Words(
            en="One token too many: the largest T that still fits is rounded down.",
            zh="多了一个 token：仍然满足条件的最大 T 应当向下取整。",
        ),
    ),
    "at_least_one": (
        lambda mean, std, bound, z: max(1, reference(mean, std, bound, z)),
        Words(
            en="Where not even one token fits, the answer is 0, not 1.",
            zh="连一个 token 都放不下时，答案是 0，不是 1。",
        ),
    ),
    "root_of_length": (
        lambda mean, std, bound, z: math.floor(_root(mean, std, math.log(bound), z)),
        Words(
            en="This is sqrt(T), the root of the quadratic; square it.",
            zh="这是 sqrt(T)，即二次方程的根，还要平方。",
        ),
    ),
    "log10": (
        lambda mean, std, bound, z: math.floor(_root(mean, std, math.log10(bound), z) ** 2),
        Words(
            en="The logarithm has base 10; logprobs are natural logarithms.",
            zh="对数用了以 10 为底；logprob 是自然对数。",
        ),
    ),
    "not_whole": (
        lambda mean, std, bound, z: _root(mean, std, math.log(bound), z) ** 2,
        Words(
            en="A response has a whole number of tokens: round down.",
            zh="token 数是整数：请向下取整。",
        ),
    ),
}


BY_HAND = Words(
    en="bias 0.01, noise 0.1, bound e, z 2: x^2 / 100 + x / 5 <= 1 for x = sqrt(T)",
    zh="偏差 0.01，噪声 0.1，bound = e，z = 2：令 x = sqrt(T)，x^2 / 100 + x / 5 <= 1",
)
NO_BIAS = Words(
    en="without bias T is (log(bound) / (z std))^2",
    zh="没有偏差时 T = (log(bound) / (z std))^2",
)
NO_NOISE = Words(
    en="without noise T is log(bound) / |mean|",
    zh="没有噪声时 T = log(bound) / |mean|",
)
NOT_ONE = Words(
    en="bias 1, bound 2: not even one token fits",
    zh="偏差 1，上限 2：连一个 token 都放不下",
)
ANY = Words(en="other bias, noise and bound", zh="其他偏差、噪声和上限")
NEGATIVE = Words(en="a negative bias", zh="偏差为负")
FAINT = Words(en="a bias of about 1e-9", zh="约为 1e-9 的偏差")
LONG = Words(en="more than a hundred thousand tokens fit", zh="放得下十万个以上的 token")

Range = tuple[float, float]


def cases(generator: Generator) -> list[Case]:
    def draw(low: float, high: float) -> float:
        return low + (high - low) * torch.rand((), generator=generator).item()

    def clear(stage: Stage, what: Words, mean: Range, std: Range) -> Case:
        """Draw until T is not within 1 % of a token of a whole number: no rounding
        decides."""
        while True:
            args = (draw(*mean), draw(*std), draw(2.0, 3.0), draw(1.5, 3.0))
            exact = _root(args[0], args[1], math.log(args[2]), args[3]) ** 2
            if 0.01 < exact % 1 < 0.99:
                return Case(stage, what, args)

    return [
        Case("example", BY_HAND, (0.01, 0.1, math.e, 2.0)),
        clear("property", NO_BIAS, (0.0, 0.0), (0.02, 0.05)),
        clear("property", NO_NOISE, (0.001, 0.002), (0.0, 0.0)),
        Case("property", NOT_ONE, (1.0, 0.1, 2.0, 2.0)),
        clear("inputs", ANY, (0.001, 0.005), (0.01, 0.05)),
        clear("inputs", NEGATIVE, (-0.005, -0.001), (0.01, 0.05)),
        clear("numbers", FAINT, (1e-9, 2e-9), (0.01, 0.02)),
        clear("numbers", LONG, (5e-6, 6e-6), (1e-6, 2e-6)),
    ]


EXERCISE = Exercise(
    name="longest_response",
    title=Words(en="The longest response within a bound", zh="不超界的最长回答"),
    reference=reference,
    returns=("length",),
    cases=cases,
    mistakes=MISTAKES,
    alternatives={"counting": _by_counting, "bisection": _by_bisection},
    hints=(
        Words(
            en="The ratio of a sequence is exp of its delta. Write the delta of an unlucky "
            "response of T tokens: bias plus z standard deviations of noise.",
            zh="序列比值是序列 delta 的 exp。先写出一条“不走运”的 T 个 token 的回答的"
            " delta：偏差加上 z 倍标准差的噪声。",
        ),
        Words(
            en="|mean| T + z std sqrt(T) <= log(bound). It grows with T, so you may simply "
            "count up until it no longer holds.",
            zh="|mean| T + z std sqrt(T) <= log(bound)。左边随 T 递增，所以直接从小到大"
            "数，直到不满足为止即可。",
        ),
        Words(
            en="Start with `length = 0` and go on while `length + 1` still fits; or solve "
            "the quadratic in x = sqrt(T) and round x^2 down.",
            zh="从 `length = 0` 开始，只要 `length + 1` 还满足就加一；也可以解关于"
            " x = sqrt(T) 的二次方程，再把 x^2 向下取整。",
        ),
    ),
    points=(1, 2),
    minutes=8,
)
