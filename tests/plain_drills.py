"""The numeric drills once more, with plain `math` from the numbers of the question.

`ANSWERS[name](n, text)`: n are the numbers in the order of the English question.
"""

from __future__ import annotations

import math
import re
import statistics
import struct
from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import accumulate

N = Sequence[float]


def numbers(text: str) -> list[float]:
    """BF16, K3 and p99 are names and hold none."""
    return [float(x) for x in re.findall(r"(?<![\w.])-?\d+(?:\.\d+)?(?:e-?\d+)?", text)]


def pairs(n: N) -> list[tuple[float, float]]:
    return [(n[i], n[i + 1]) for i in range(0, len(n), 2)]


def mean(x: Sequence[float]) -> float:
    return math.fsum(x) / len(x)


def sigmoid(z: float) -> float:
    return math.exp(z) / (1 + math.exp(z))


def rounded(x: float, mantissa: int) -> float:
    """To nearest, ties to even, in exact fractions."""
    step = Fraction(2) ** (math.frexp(x)[1] - 1 - mantissa)
    return float(round(Fraction(x) / step) * step)


def half(x: float) -> float:
    """As FP16, by the standard library; inf where it refuses."""
    try:
        return struct.unpack("e", struct.pack("e", x))[0]
    except OverflowError:
        return math.inf


def errors(h: float, own: Sequence[float]) -> float:
    """Share of wrong totals after reading one's own with these chances, by enumeration."""
    kernel = [1 - h] + [h / 9] * 9
    read, said = [1.0] + [0.0] * 9, [0.0] * 10
    for share in own:
        said = [sum(read[e] * kernel[(f - e) % 10] for e in range(10)) for f in range(10)]
        read = [share * x + (1 - share) * (f == 0) for f, x in enumerate(said)]
    return 1 - said[0]


def surrogate(r: float, A: float, low: float, high: float) -> float:
    return -min(r * A, min(max(r, low), high) * A)


def moves(r: float, A: float, low: float, high: float) -> bool:
    """Whether the surrogate has a slope there."""
    return surrogate(r * (1 + 1e-7), A, low, high) != surrogate(
        r * (1 - 1e-7), A, low, high
    )


def limit(e: float, m: float, text: str) -> float:
    """By counting through all patterns of a float with e and m bits."""
    E, M = 2 ** int(e), 2 ** int(m)
    bias = E // 2 - 1
    normal = [(1 + k / M) * 2.0 ** (x - bias) for x in range(1, E - 1) for k in range(M)]
    small = [k / M * 2.0 ** (1 - bias) for k in range(1, M)]
    if "largest" in text:
        return max(normal)
    return min(small if "subnormal" in text else normal)


def softmax(z: Sequence[float]) -> list[float]:
    total = sum(math.exp(x) for x in z)
    return [math.exp(x) / total for x in z]


def nucleus(n: N) -> list[Fraction]:
    """What top-p keeps of falling probabilities, in exact fractions."""
    *p, bound = (Fraction(str(x)) for x in n)
    before = [Fraction(0), *accumulate(p)]
    return [x for x, b in zip(p, before, strict=False) if b < bound]


def grown_past(b: float, bound: float) -> int:
    product, n = 1.0, 0
    while product <= bound:
        product, n = product * math.exp(b), n + 1
    return n


def one_by_one(n: N) -> float:
    _, b, a, times, *_ = n
    total, small = a, b * times
    for _ in range(int(times)):
        total = rounded(total + b, 7)
    return rounded(a + rounded(small, 7), 7) - total


def power_of_two(g: float) -> float:
    scale = 1.0
    while g * scale < 2**-14:
        scale *= 2
    return scale


def int8(n: N) -> float:
    scale = Fraction(str(max(abs(x) for x in n))) / 127
    return float(round(Fraction(str(n[0])) / scale) * scale)


def balance(p: N) -> float:
    f = mean([float(x > 0.5) for x in p])
    return 2 * (f * mean(p) + (1 - f) * (1 - mean(p)))


def flips(text: str) -> int:
    rows = re.findall(r"(\d) (\d) \| (\d) (\d)", text)
    return sum({a, b} != {c, d} for a, b, c, d in rows)


def kl(q: float, p: float) -> float:
    return q * math.log(q / p) + (1 - q) * math.log((1 - q) / (1 - p))


def effective(w: N) -> float:
    return mean(w) ** 2 / mean([x * x for x in w])


def means(n: N, text: str) -> float:
    a, x, b, y = n
    return (a * x + b * y) / (a + b) if "DAPO" in text else (x + y) / 2


def stopped(n: N) -> float:
    rows = pairs(n[4:])
    return mean([not moves(r, A, 0.8, 1.28) for r, A in rows])


def first_error(e: float, T: float) -> float:
    before = [k * (1 - e) ** k * e for k in range(int(T))]
    return sum(before) + T * (1 - e) ** T


def scores(n: N) -> float:
    """Mean reward under weights that sum to 1, less the plain mean."""
    R, w = n[:4], n[4:]
    return sum(x * y / sum(w) for x, y in zip(R, w, strict=True)) - mean(R)


def calm(n: N) -> float:
    return -mean([A * r for A, r in zip(n[:4], n[4:8], strict=True)])


def equal(text: str) -> int:
    return sum(len(set(group)) == 1 for group in re.findall(r"\b[01]{4}\b", text))


def skewed(w: float, b: float, x: float, y: float, minus: bool) -> float:
    b = -b if minus else b
    return sigmoid(w * y + b) - sigmoid(w * x + b)


def series(d: float) -> float:
    return sum(d**k / math.factorial(k) for k in range(2, 9))


def kept_mean(n: N) -> float:
    *w, low, high = n
    return mean([x for x in w if low <= x <= high])


def outside(x: float, low: float, high: float) -> bool:
    return not low <= x <= high


def sapo(r: float, A: float) -> float:
    tau = 1.0 if A > 0 else 1.05
    return -4 / tau * sigmoid(tau * (r - 1)) * A


def gspo_stopped(n: N) -> int:
    band = 1 - n[0], 1 + n[2]
    return sum(not moves(math.exp(m), A, *band) for m, A in pairs(n[4:]))


ANSWERS: dict[str, Callable[[N, str], float]] = {
    "skewed_feature": lambda n, text: skewed(*n[2:6], "−" in text),
    "clipped_before_any_update": lambda n, _: mean([outside(x, 0.8, 1.2) for x in n[:-2]]),
    "calm_loss": lambda n, _: calm(n),
    "reward_gap": lambda n, _: scores(n),
    "right_prefix": lambda n, _: math.exp(n[1] * math.log1p(-n[0])),
    "expected_prefix": lambda n, _: first_error(n[0], n[1]),
    "free_running_error": lambda n, _: errors(n[1], [1.0] * int(n[-1])),
    "half_own_prefix": lambda n, _: errors(n[1], [n[4], 1.0]),
    "hazard_at_third": lambda n, _: float(Fraction(int(n[3]), int(n[0] - n[1] - n[2]))),
    "ratio_of_logprobs": lambda n, _: math.exp(n[1]) / math.exp(n[0]),
    "ratio_of_response": lambda n, _: math.prod(math.exp(x) for x in n),
    "delta_per_token": lambda n, _: abs(mean(n)),
    "mean_ratio_of_noise": lambda n, _: math.cosh(n[0]),
    "noise_of_a_response": lambda n, _: math.exp(math.sqrt(n[0] * n[1] ** 2)),
    "noise_against_bias": lambda n, _: n[1] ** 2 / n[0] ** 2,
    "tokens_until_clip": lambda n, _: grown_past(n[0], n[1] + n[2]),
    "wrong_anchor": lambda n, _: math.exp(n[2]) / math.exp(n[0]),
    "format_limits": lambda n, text: limit(n[0], n[1], text),
    "bf16_spacing": lambda n, _: 2.0 ** (math.floor(math.log2(n[1])) - 7),
    "bf16_one_plus_x": lambda n, _: rounded(1 + n[1], 7) - 1,
    "e4m3_rounding": lambda n, _: rounded(n[0], 3),
    "fp16_overflows": lambda n, _: sum(half(x) == math.inf for x in n),
    "fp16_underflows": lambda n, _: sum(half(x) == 0 for x in n),
    "loss_scale": lambda n, _: power_of_two(n[0]),
    "int8_weight": lambda n, _: int8(n),
    "logprob_of_logits": lambda n, _: math.log(softmax(n)[0]),
    "bf16_logit_error": lambda n, _: abs(rounded(n[0], 7) - n[0]),
    "order_of_a_sum": lambda n, _: one_by_one(n),
    "k3_of_a_tiny_delta": lambda n, _: series(n[0]),
    "top_p_kept": lambda n, _: len(nucleus(n)),
    "top_p_log_s": lambda n, _: -math.log(sum(nucleus(n))),
    "top_k_logprob": lambda n, _: math.log(n[1] / sum(n[: int(n[-1])])),
    "temperature_logprob": lambda n, _: math.log(softmax([z / n[3] for z in n[:3]])[0]),
    "repetition_penalty": lambda n, _: min(n[0] * n[1], n[0] / n[1]),
    "prompt_tokens_counted": lambda n, _: sum(n[2:]) / (n[0] + n[1]),
    "padding_counted": lambda n, _: n[3] * sum(n[:3]) / (3 * max(n[:3])),
    "left_padded_position": lambda n, _: max(n[:2]) + n[2] - 1,
    "cut_response_advantage": lambda n, _: n[0] - n[1],
    "thinned_denominator": lambda n, _: sum(n[2:]) / n[0],
    "top2_gate": lambda n, _: softmax(sorted(n[:4])[2:])[1],
    "router_margin": lambda n, _: (sorted(n)[2] - sorted(n)[1]) / 2,
    "load_balance": lambda n, _: balance(n),
    "flipped_tokens": lambda _, text: flips(text),
    "router_divergence": lambda n, _: kl(n[0], n[1]),
    "gspo_ratio": lambda n, _: statistics.geometric_mean([math.exp(x) for x in n]),
    "product_of_ratios": lambda n, _: math.exp(n[1]) ** n[0],
    "gspo_noise": lambda n, _: math.sqrt(n[0] * n[1] ** 2) / n[0],
    "gspo_clipped": lambda n, _: gspo_stopped(n) / 6,
    "k1_of_two_tokens": lambda n, _: mean([-d for d in n]),
    "k2_of_two_tokens": lambda n, _: mean([d * d / 2 for d in n]),
    "k3_of_two_tokens": lambda n, _: mean([math.exp(d) - 1 - d for d in n]),
    "chi2_of_ratios": lambda n, _: mean([r * r for r in n]) - 1,
    "perplexity_ratio": lambda n, _: math.exp(n[1]) ** (-1 / n[0]),
    "probability_gap": lambda n, _: mean(
        [abs(p * math.exp(d) - p) for p, d in zip(n[:2], n[2:], strict=True)]
    ),
    "p99_of_deltas": lambda n, _: statistics.quantiles(
        [abs(d) for d in n[:-1]], n=100, method="inclusive"
    )[98],
    "effective_sample_size": lambda n, _: effective(n),
    "truncated_mean": lambda n, _: mean([min(x, n[-1]) for x in n[:-1]]),
    "masked_weight": lambda n, _: kept_mean(n),
    "decoupled_factor": lambda n, _: min(2, math.exp(n[1] - n[0])) * math.exp(n[2] - n[1]),
    "vetoed": lambda n, _: sum(T for T, d in pairs(n[1:]) if math.exp(d) >= 1e-4),
    "geometric_rejection": lambda n, _: sum(
        not outside(math.exp(d) ** (1 / T), n[0], n[1]) for T, d in pairs(n[2:])
    ),
    "mismatch_apart": lambda n, _: math.exp(n[1]) / math.exp(n[0]),
    "reward_correlation": lambda n, _: statistics.correlation(n[:4], n[4:]),
    "ringing_steps": lambda n, _: sum(n[0] * x > n[-1] for x in n[1:-1]),
    "ppo_loss": lambda n, _: surrogate(n[0], n[1], 0.8, 1.2),
    "tokens_with_gradient": lambda n, _: sum(
        moves(r, A, 0.8, 1.2) for r, A in pairs(n[:-2])
    ),
    "clip_higher": lambda n, _: stopped(n),
    "dual_clip": lambda n, _: min(surrogate(n[0], n[1], 0.8, 1.2), -n[4] * n[1]),
    "sapo_loss": lambda n, _: sapo(n[0], n[1]),
    "cispo_loss": lambda n, _: -min(n[0], n[3]) * n[2] * n[1],
    "mean_of_means": means,
    "grpo_advantage": lambda n, _: (n[0] - mean(n[:4])) / statistics.stdev(n[:4]),
    "leave_one_out_advantage": lambda n, _: n[0] - mean(n[1:]),
    "dropped_groups": lambda _, text: equal(text),
    "overlong": lambda n, _: (n[0] - n[1] - n[2]) / n[1],
    "dr_grpo_loss": lambda n, _: n[0] * n[1] / n[2],
}
