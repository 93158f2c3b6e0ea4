"""Slips that are easy to make: each is a line beside the idea of its exercise."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from tinyrl.course.exercise import Function
from tinyrl.course.words import Words

Slips = dict[str, tuple[Function, Words]]


def _clean(x: Tensor, mask: Tensor) -> Tensor:
    return torch.where(mask, x, 0.0)


def _of_truncated(rho: Tensor, mask: Tensor, lower: float, upper: float) -> object:
    truncated = _clean(rho.detach().clamp(max=upper), mask)
    kept = mask & (truncated >= lower) & (truncated <= upper)
    return truncated, _clean(truncated, kept), kept


BOUNDED: Slips = {
    "mask_of_truncated": (
        _of_truncated,
        Words(
            en="You mask what is truncated already: nothing is above C any more. Both "
            "operations start from rho.",
            zh="你屏蔽的是截断之后的权重，那里已没有超过 C 的了。两种操作都从 rho 出发。",
        ),
    ),
}


def _entropy(weight: Tensor, mask: Tensor) -> Tensor:
    w = weight[mask].double()
    p = w / w.sum() if w.any() else w
    return torch.exp(-torch.xlogy(p, p).sum()) / len(w) * w.any()


def _sample_variance(weight: Tensor, mask: Tensor) -> Tensor:
    w = weight[mask].double()
    return 1 / (1 + w.var() / w.mean() ** 2) if w.any() else w.sum()


ESS: Slips = {
    "entropy": (
        _entropy,
        Words(
            en="This is exp of the entropy, another effective number. Kish's has the "
            "squares: (sum w)^2 over n times the sum of w^2.",
            zh="这是熵的 exp，另一种有效数。Kish 的定义用平方：(sum w)^2 除以 n 乘 w^2 之"
            "和。",
        ),
    ),
    "sample_variance": (
        _sample_variance,
        Words(
            en="Your variance divides by n - 1, as `torch.var` does unless told. ESS is "
            "exact with n: `correction=0`.",
            zh="你的方差除以了 n - 1（`torch.var` 的默认）。ESS 用 n：`correction=0`。",
        ),
    ),
}


def _ones(weight: Tensor, kept: Tensor) -> Tensor:
    w = _clean(weight.detach(), kept)
    mean = w.sum() / kept.sum().clamp(min=1)
    return w / mean if mean > 0 else kept.to(w)


NORMALISED: Slips = {
    "ones_for_zeros": (
        _ones,
        Words(
            en="Where all kept weights are 0 you return ones. Nothing speaks for these "
            "tokens: return zeros.",
            zh="留下的权重全为 0 时你返回了 1。没有什么支持这些 token：应返回 0。",
        ),
    ),
}


def _by(judge: Callable[..., Tensor]) -> Function:
    """Kept are the responses that `judge` says, of two verdicts and clean logprobs."""

    def wrong(*args: Tensor) -> Tensor:
        train, roll, mask, lower, upper, veto = args
        d = _clean(train - roll, mask)
        mean = d.sum(1) / mask.sum(1)
        below, above = mean < math.log(lower), mean > math.log(upper)
        return mask & judge(below, above, d < math.log(veto), (train, mask, veto))[:, None]

    return wrong


def _improbable(below: Tensor, above: Tensor, _: Tensor, rest: tuple) -> Tensor:  # type: ignore[type-arg]
    train, mask, veto = rest
    rare: Tensor = ((train < math.log(veto)) & mask).any(1)
    return ~below & ~above & ~rare


KEPT: Slips = {
    "either": (
        _by(lambda below, above, low, _: ~below & ~above | ~low.any(1)),
        Words(
            en="You keep a response that passes one of the two. It has to pass both: in "
            "the band, and no veto.",
            zh="你保留了满足其中一条的回答。两条都要满足：在区间内，且没有被否决。",
        ),
    ),
    "upper_only": (
        _by(lambda below, above, low, _: ~above & ~low.any(1)),
        Words(
            en="The band has no lower end here: a mean below `lower` drops the response, "
            "too.",
            zh="你的区间没有下界：几何平均低于 `lower` 的回答也要丢掉。",
        ),
    ),
    "improbable": (
        _by(_improbable),
        Words(
            en="Your veto asks how improbable a token is for the trainer. It is a bound of "
            "the ratio rho: a token can be rare on both sides.",
            zh="你的否决看的是训练端的概率。它是比值 rho 的界：一个 token 可以在两边都很少"
            "见。",
        ),
    ),
    "dropped": (
        _by(lambda below, above, low, _: below | above | low.any(1)),
        Words(
            en="These are the tokens that are dropped. True is what stays.",
            zh="这里为真的是被丢掉的。为真的应当是留下的。",
        ),
    ),
}


def _exact(change: Callable[..., tuple[Tensor, Tensor]]) -> Function:
    """`change` of both probabilities, the ratio, value and cap, and the right numbers."""

    def wrong(train: Tensor, roll: Tensor, value: Tensor, cap: float) -> object:
        log_pi, log_mu = train.double().sum(1), roll.double().sum(1)
        mu, pi, rho = log_mu.exp(), log_pi.exp(), (log_pi - log_mu).exp()
        return change(mu, pi, rho, value.double(), cap)

    return wrong


def _numbers(mu: Tensor, pi: Tensor, x: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    mean = (mu * x).sum()
    return mean - (pi * v).sum(), (mu * (x - mean).square()).sum()


def _about_truth(mu: Tensor, pi: Tensor, rho: Tensor, v: Tensor, cap: float) -> object:
    x, truth = rho.clamp(max=cap) * v, (pi * v).sum()
    return _numbers(mu, pi, x, v)[0], (mu * (x - truth).square()).sum()


def _spread_of_pi(mu: Tensor, pi: Tensor, rho: Tensor, v: Tensor, cap: float) -> object:
    x = rho.clamp(max=cap) * v
    return _numbers(mu, pi, x, v)[0], (pi * (x - (mu * x).sum()).square()).sum()


EXACT: Slips = {
    "cap_of_product": (
        _exact(lambda mu, pi, rho, v, cap: _numbers(mu, pi, (rho * v).clamp(max=cap), v)),
        Words(
            en="The cap is on the weight alone. You cap weight times value.",
            zh="上界只作用于权重。你截断的是权重与 value 的乘积。",
        ),
    ),
    "both_sides": (
        _exact(
            lambda mu, pi, rho, v, cap: _numbers(mu, pi, rho.clamp(1 / cap, cap) * v, v)
        ),
        Words(
            en="You raise small weights to 1 / cap. Truncation has an upper bound only.",
            zh="你把小权重抬到了 1 / cap。截断只有上界。",
        ),
    ),
    "about_truth": (
        _exact(_about_truth),  # type: ignore[arg-type]
        Words(
            en="The second number is the mean squared error, about the true mean. A "
            "variance is about the estimate's own mean; the error is variance plus squared "
            "bias.",
            zh="第二个数是相对真值的均方误差。方差是相对估计自己的均值；误差等于方差加偏差"
            "的平方。",
        ),
    ),
    "spread_of_pi": (
        _exact(_spread_of_pi),  # type: ignore[arg-type]
        Words(
            en="Your variance weighs responses with the trainer's probability. The rollout "
            "samples: mu.",
            zh="你的方差用训练端的概率加权。采样的是 rollout：应当用 mu。",
        ),
    ),
}


def _response_weight(*args: Tensor) -> Tensor:
    new, old, roll, A, mask, eps, cap = args
    new, old, roll = (_clean(x, mask) for x in (new, old.detach(), roll.detach()))
    weight = (old - roll).sum(1, keepdim=True).exp().clamp(max=cap)
    r, A = (new - old).exp(), A[:, None]
    loss = torch.maximum(-A * r, -A * r.clamp(1 - eps, 1 + eps))
    return (weight * loss * mask).sum() / mask.sum()


DECOUPLED: Slips = {
    "response_weight": (
        _response_weight,
        Words(
            en="Your weight is the product over the response. rho_t is the token's own.",
            zh="你的权重是整条回答的连乘。rho_t 是每个 token 自己的。",
        ),
    ),
}


def _either(*args: Tensor) -> Tensor:
    new, roll, A, mask, delta = args
    behind = _clean(roll - new, mask).sum(1) / mask.sum(1) > delta
    return mask & ~((A < 0) | behind)[:, None]


STALE: Slips = {
    "either": (
        _either,
        Words(
            en="You drop a response that is bad *or* left behind. It has to be both.",
            zh="你丢掉了坏的*或*被甩在后面的回答。两者都成立才丢。",
        ),
    ),
}
