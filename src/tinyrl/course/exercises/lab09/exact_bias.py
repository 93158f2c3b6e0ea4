"""Bias and variance of a truncated estimate, every response added up."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Generator, Tensor

from tinyrl.course.exercise import Case, Exercise, Function, Mistakes
from tinyrl.course.exercises.lab01 import batch
from tinyrl.course.exercises.lab09 import slips
from tinyrl.course.words import Words

Two = tuple[Tensor, Tensor]


def _exact(mu: Tensor, pi: Tensor, weight: Tensor, value: Tensor) -> Two:
    x = weight * value
    mean = (mu * x).sum()
    return mean - (pi * value).sum(), (mu * (x - mean).square()).sum()


def _parts(logp_train: Tensor, logp_rollout: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    log_pi, log_mu = logp_train.sum(1), logp_rollout.sum(1)
    return log_mu.exp(), log_pi.exp(), (log_pi - log_mu).exp()


def reference(logp_train: Tensor, logp_rollout: Tensor, value: Tensor, cap: float) -> Two:
    mu, pi, rho = _parts(logp_train, logp_rollout)
    return _exact(mu, pi, rho.clamp(max=cap), value)


def _one_by_one(logp_train: Tensor, logp_rollout: Tensor, value: Tensor, cap: float) -> Two:
    first = second = truth = torch.zeros((), dtype=torch.float64)
    for p, q, v in zip(
        logp_train.double().sum(1).exp(),
        logp_rollout.double().sum(1).exp(),
        value.double(),
        strict=True,
    ):
        x = torch.minimum(p / q, p.new_tensor(cap)) * v
        first, second, truth = first + q * x, second + q * x * x, truth + p * v
    return first - truth, second - first**2


def _what_is_cut(
    logp_train: Tensor, logp_rollout: Tensor, value: Tensor, cap: float
) -> Two:
    """Bias is minus the mass that the cap takes away."""
    mu, pi, rho = _parts(logp_train, logp_rollout)
    bias = -((pi - cap * mu).clamp(min=0) * value).sum()
    x = torch.minimum(rho, rho.new_tensor(cap)) * value
    return bias, (mu * x * (x - (mu * x).sum())).sum()


def _sampled_by(
    change: Callable[[Tensor, Tensor, Tensor, float], tuple[Tensor, Tensor, Tensor]],
) -> Function:
    """The right sums, of other chances and weights."""

    def wrong(logp_train: Tensor, logp_rollout: Tensor, value: Tensor, cap: float) -> Two:
        mu, pi, rho = _parts(logp_train, logp_rollout)
        return _exact(*change(mu, pi, rho, cap), value)

    return wrong


def _by_token(logp_train: Tensor, logp_rollout: Tensor, value: Tensor, cap: float) -> Two:
    mu, pi, _ = _parts(logp_train, logp_rollout)
    weight = (logp_train - logp_rollout).exp().clamp(max=cap).prod(1)
    return _exact(mu, pi, weight, value)


def _geometric(logp_train: Tensor, logp_rollout: Tensor, value: Tensor, cap: float) -> Two:
    mu, pi, _ = _parts(logp_train, logp_rollout)
    weight = (logp_train - logp_rollout).mean(1).exp().clamp(max=cap)
    return _exact(mu, pi, weight, value)


def _but(change: Callable[[Tensor, Tensor], Two]) -> Function:
    def wrong(*args: Tensor) -> Two:
        return change(*reference(*args))  # type: ignore[arg-type]

    return wrong


def _against_mu(logp_train: Tensor, logp_rollout: Tensor, value: Tensor, cap: float) -> Two:
    mu, _, rho = _parts(logp_train, logp_rollout)
    return _exact(mu, mu, rho.clamp(max=cap), value)


def _uniform(logp_train: Tensor, logp_rollout: Tensor, value: Tensor, cap: float) -> Two:
    _, pi, rho = _parts(logp_train, logp_rollout)
    even = torch.full_like(pi, 1 / len(pi))
    return _exact(even, pi, rho.clamp(max=cap), value)


def _second_moment(
    logp_train: Tensor, logp_rollout: Tensor, value: Tensor, cap: float
) -> Two:
    mu, _, rho = _parts(logp_train, logp_rollout)
    bias, _ = reference(logp_train, logp_rollout, value, cap)
    return bias, (mu * (rho.clamp(max=cap) * value).square()).sum()


def _masked(logp_train: Tensor, logp_rollout: Tensor, value: Tensor, cap: float) -> Two:
    mu, pi, rho = _parts(logp_train, logp_rollout)
    return _exact(mu, pi, torch.where(rho <= cap, rho, 0.0), value)


def _product_of_probabilities(
    logp_train: Tensor, logp_rollout: Tensor, value: Tensor, cap: float
) -> Two:
    """Ratios of products that have underflowed."""
    mu, pi = logp_rollout.exp().prod(1), logp_train.exp().prod(1)
    return _exact(mu, pi, (pi / mu).clamp(max=cap), value)


MISTAKES: Mistakes = {
    "sign": (
        _but(lambda bias, variance: (-bias, variance)),
        Words(
            en="The sign of the bias is turned round: what is expected minus what is true.",
            zh="偏差的符号反了：应是期望减去真值。",
        ),
    ),
    "absolute": (
        _but(lambda bias, variance: (bias.abs(), variance)),
        Words(
            en="Keep the bias's sign: a cap takes weight away, and one wants to see from "
            "what.",
            zh="偏差要保留符号：上界拿走了权重，要能看出拿走的是哪一边。",
        ),
    ),
    "against_mu": (
        _against_mu,
        Words(
            en="You compare with the rollout's mean value. The estimate is meant for the "
            "trainer's policy: sum of pi times value.",
            zh="你和 rollout 策略的均值比较了。估计的对象是训练端策略：对 pi 乘 value 求"
            "和。",
        ),
    ),
    "sampled_by_pi": (
        _sampled_by(lambda mu, pi, rho, cap: (pi, pi, rho.clamp(max=cap))),
        Words(
            en="Your expectation is under the trainer's policy. The rollout's policy "
            "samples: each response comes with its probability.",
            zh="你是在训练端策略下取期望的。采样的是 rollout 策略：每条回答按它的概率出"
            "现。",
        ),
    ),
    "uniform": (
        _uniform,
        Words(
            en="You average over responses as if each were sampled equally often.",
            zh="你对所有回答取了简单平均，好像它们被采到的机会相同。",
        ),
    ),
    "no_cap": (
        _sampled_by(lambda mu, pi, rho, cap: (mu, pi, rho)),
        Words(
            en="There is no cap: without one there is no bias, and all of the variance.",
            zh="没有用上界：那样没有偏差，方差却全在。",
        ),
    ),
    "masked": (
        _masked,
        Words(
            en="Above the cap your weight is 0: that is a mask. Truncated it is the cap.",
            zh="超过上界时你的权重成了 0，那是屏蔽。截断应取上界。",
        ),
    ),
    "unweighted": (
        _sampled_by(lambda mu, pi, rho, cap: (mu, pi, torch.ones_like(rho))),
        Words(
            en="The weight is missing: this is the bias of doing nothing.",
            zh="没有乘权重：这是什么都不做时的偏差。",
        ),
    ),
    "by_token": (
        _by_token,
        Words(
            en="You cap each token's ratio and multiply. The cap is on the product.",
            zh="你先截断每个 token 的比值再连乘。上界应作用在连乘上。",
        ),
    ),
    "geometric": (
        _geometric,
        Words(
            en="This weight is the geometric mean. Only the product, exp of the *sum* of "
            "deltas, turns one policy's expectation into the other's.",
            zh="这里的权重是几何平均。只有连乘（delta *之和* 的 exp）能把一个策略的期望变"
            "成另一个的。",
        ),
    ),
    "second_moment": (
        _second_moment,
        Words(
            en="This is the mean of the squares. Take off the square of the mean.",
            zh="这是平方的均值，还要减去均值的平方。",
        ),
    ),
    "standard_deviation": (
        _but(lambda bias, variance: (bias, variance.clamp(min=0).sqrt())),
        Words(
            en="This is the standard deviation; asked for is the variance.",
            zh="这是标准差，题目要的是方差。",
        ),
    ),
    "inverted": (
        _sampled_by(lambda mu, pi, rho, cap: (mu, pi, (1 / rho).clamp(max=cap))),
        Words(
            en="Your weight is upside down: p_train / p_rollout.",
            zh="权重倒过来了，应为 p_train / p_rollout。",
        ),
    ),
    "underflow": (
        _product_of_probabilities,
        Words(
            en="Products of probabilities underflow to 0 in float32, and 0 / 0 is NaN. "
            "Add logprobs, subtract, and take exp last.",
            zh="概率的连乘在 float32 里下溢成 0，0 / 0 得 NaN。先把 logprob 相加、相减，最"
            "后取 exp。",
        ),
    ),
} | slips.EXACT

HAND = Words(
    en="two responses of one token, likely to the trainer and rare in the rollout or the "
    "other way round",
    zh="两条单 token 回答：训练端常见而 rollout 少见，或反之",
)
UNBIASED = Words(en="a cap that nothing reaches: no bias", zh="上界谁也够不到：没有偏差")
ENUMERATED = Words(en="all responses of a small world", zh="一个小世界里的全部回答")
RARE = Words(
    en="responses of probability e^-120, and one of e^-18 that is worth 1e8",
    zh="概率约为 e^-120 的回答，还有一条概率约为 e^-18、价值为 1e8",
)


def enumerated(
    generator: Generator, vocab: int, length: int, gap: float
) -> tuple[Tensor, Tensor]:
    """Logprobs `[V^T, T]` of every response, under two policies with logits for each place.

    Each row of one world is a response of the other's, so both sum to 1.
    """
    own = torch.randn(length, vocab, generator=generator, dtype=torch.float64)
    off = torch.randn(length, vocab, generator=generator, dtype=torch.float64)
    ids = torch.cartesian_prod(*[torch.arange(vocab)] * length).view(-1, length)
    logits = own, own + gap * off
    train, rollout = (z.log_softmax(1)[torch.arange(length), ids] for z in logits)
    return train.float(), rollout.float()


def cases(generator: Generator) -> list[Case]:
    def world(
        vocab: int, length: int, gap: float = 0.6, sign: int = 1
    ) -> tuple[Tensor, Tensor, Tensor, float]:
        """With values of both signs, those of `sign` above a cap that a third pass."""
        train, rollout = enumerated(generator, vocab, length, gap)
        value = batch.uniform(generator, (len(train),), 0.3, 1.5)
        value = torch.where(
            torch.rand(len(value), generator=generator) < 0.35, -value, value
        )
        rho = (train - rollout).double().sum(1).exp().sort().values
        at = len(rho) * 2 // 3
        cap = ((rho[at] + rho[at + 1]) / 2).item()
        over = (train - rollout).double().sum(1).exp() > cap
        return train, rollout, torch.where(over, sign * value.abs(), value), cap

    hand = torch.tensor([[0.75], [0.25]]).log(), torch.tensor([[0.25], [0.75]]).log()
    train, rollout, value, _ = world(3, 3)
    far = batch.uniform(generator, (3, 120), -1.05, -1.0)
    far[2] *= 0.15
    return [
        Case("example", HAND, (*hand, torch.tensor([1.0, -1.0]), 2.0)),
        Case("property", UNBIASED, (train, rollout, value, 1e4)),
        Case("inputs", ENUMERATED, world(3, 3)),
        Case("inputs", ENUMERATED, world(2, 5, sign=-1)),
        Case("inputs", ENUMERATED, world(4, 2, 1.0)),
        # ratios of e^-0.48, above a cap that is below 1
        Case("numbers", RARE, (far - 0.004, far, torch.tensor([1.0, 2.0, 1e8]), 0.5)),
    ]


EXERCISE = Exercise(
    name="exact_bias",
    title=Words(en="Exact bias and variance", zh="精确的偏差与方差"),
    reference=reference,
    returns=("bias", "variance"),
    cases=cases,
    mistakes=MISTAKES,
    alternatives={"one_by_one": _one_by_one, "what_is_cut": _what_is_cut},
    hints=(
        Words(
            en="An expectation is a sum of probability times number. Whose probability, "
            "and which number?",
            zh="期望是概率乘数值之和。谁的概率，什么数值？",
        ),
        Words(
            en="mu = exp of the summed rollout logprobs, w = min(exp of the summed delta, "
            "cap), x = w * value. Truth: the same sum with pi and value.",
            zh="mu 是 rollout logprob 之和的 exp，w 是 min(delta 之和的 exp, cap)，x = w "
            "* value。真值：用 pi 和 value 求同样的和。",
        ),
        Words(
            en="`mean = (mu * x).sum()`; bias `mean - (pi * value).sum()`; variance `(mu "
            "* (x - mean) ** 2).sum()`.",
            zh="先 `mean = (mu * x).sum()`；偏差 `mean - (pi * value).sum()`；方差 `(mu * "
            "(x - mean) ** 2).sum()`。",
        ),
    ),
    points=(1, 2),
    minutes=10,
    floor=2.0,  # sums that cancel
)
