"""Effective sample size and chi-square of the weights of whole responses."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Generator, Tensor

from tinyrl.course.exercise import Case, Exercise, Function, Mistakes
from tinyrl.course.exercises.lab01 import batch
from tinyrl.course.exercises.lab10 import slips
from tinyrl.course.exercises.lab10.told import PADDING
from tinyrl.course.words import Words

Two = tuple[Tensor, Tensor]


def _Delta(logp_train: Tensor, logp_rollout: Tensor, mask: Tensor) -> Tensor:
    return torch.where(mask, logp_train - logp_rollout, 0.0).sum(1)


def _numbers(x: Tensor) -> Two:
    """Of log weights `x [N]`, protected: only their differences decide the first."""
    log_ess = 2 * x.logsumexp(0) - (2 * x).logsumexp(0) - math.log(len(x))
    return log_ess.exp(), torch.expm1(2 * x).mean()


def reference(logp_train: Tensor, logp_rollout: Tensor, mask: Tensor) -> Two:
    return _numbers(_Delta(logp_train, logp_rollout, mask))


def _shifted(logp_train: Tensor, logp_rollout: Tensor, mask: Tensor) -> Two:
    x = _Delta(logp_train, logp_rollout, mask)
    w = (x - x.max()).exp()
    return w.mean() ** 2 / (w * w).mean(), (2 * x).exp().mean() - 1


def _softmax(logp_train: Tensor, logp_rollout: Tensor, mask: Tensor) -> Two:
    x = torch.stack(
        [
            (p[m] - q[m]).double().sum()
            for p, q, m in zip(logp_train, logp_rollout, mask, strict=True)
        ]
    )
    return 1 / x.softmax(0).square().sum() / len(x), x.exp().square().mean() - 1


def _plain(w: Tensor) -> Two:
    return w.mean() ** 2 / (w * w).mean(), (w * w).mean() - 1


def _of(f: Callable[[Tensor], Two]) -> Function:
    """`f` of the log weights of responses."""
    return lambda p, q, mask: f(_Delta(p, q, mask))


def _with(i: int, f: Callable[[Tensor], Tensor]) -> Function:
    """The right two numbers, but for the one at `i`, which is `f` of the log weights."""

    def wrong(p: Tensor, q: Tensor, mask: Tensor) -> Two:
        x = _Delta(p, q, mask)
        ess, chi2 = _numbers(x)
        return (f(x), chi2) if i == 0 else (ess, f(x))

    return wrong


MISTAKES: Mistakes = {
    "tokens": (
        lambda p, q, mask: _numbers(p[mask] - q[mask]),
        Words(
            en="These are numbers of token weights. Asked for are whole responses: one "
            "weight each, exp of the summed delta.",
            zh="这是 token 权重的数值。题目要的是整条回答：每条一个权重，即 delta 之和的 "
            "exp。",
        ),
    ),
    "geometric": (
        lambda p, q, mask: _numbers(_Delta(p, q, mask) / mask.sum(1)),
        Words(
            en="You divide by the length: weights of the geometric mean, as ms-swift's. "
            "Here the product of a response's ratios is its weight.",
            zh="你除以了长度，这是几何平均的权重（ms-swift 的做法）。这里一条回答的权重是各"
            " token 比值的乘积。",
        ),
    ),
    "other_way": (
        _of(lambda x: _numbers(-x)),
        Words(
            en="The weights are turned over. The rollout sampled, so w = p_train / "
            "p_rollout.",
            zh="权重取了倒数。样本来自采样端，所以 w = p_train / p_rollout。",
        ),
    ),
    "not_a_share": (
        _with(0, lambda x: _numbers(x)[0] * len(x)),
        Words(
            en="This is a number of responses. As a share it is divided by N: 1 where all "
            "weights are equal.",
            zh="这是回答的条数。作为比例还要除以 N：所有权重相等时等于 1。",
        ),
    ),
    "turned_over": (
        _with(0, lambda x: 1 / _numbers(x)[0]),
        Words(
            en="The fraction is upside down: (mean w)^2 over the mean of w^2, at most 1.",
            zh="分数上下颠倒了：应为 (mean w)^2 除以 w^2 的平均，最大为 1。",
        ),
    ),
    "not_squared": (
        _with(0, lambda x: (x.logsumexp(0) - (2 * x).logsumexp(0)).exp()),
        Words(
            en="The mean weight on top is not squared.",
            zh="分子上的平均权重没有平方。",
        ),
    ),
    "root": (
        _with(0, lambda x: _numbers(x)[0].sqrt()),
        Words(
            en="This is mean w over the root of the mean of w^2. Square both.",
            zh="这是 mean w 除以 w^2 平均值的平方根。两者都要平方。",
        ),
    ),
    "largest_share": (
        _with(0, lambda x: x.softmax(0).max()),
        Words(
            en="This is the share of the largest weight in the sum. It tells a like story, "
            "but is no effective sample size.",
            zh="这是最大权重在总和中的占比。含义相近，但不是有效样本量。",
        ),
    ),
    "cut": (
        _of(lambda x: _plain(x.exp().clamp(max=2.0))),
        Words(
            en="The weights are cut at 2 first, as verl does. A number of the batch should "
            "show the weights as they are.",
            zh="你先把权重截到 2（verl 的做法）。作为度量，应当用未截断的权重。",
        ),
    ),
    "cut_both_ways": (
        _of(lambda x: _plain(x.exp().clamp(0.5, 2.0))),
        Words(
            en="The weights are cut to 1/2 .. 2 first, as verl did up to 0.7.1: that hides "
            "small weights, and the share can't fall below 0.64.",
            zh="你先把权重截到 1/2 与 2 之间（verl 0.7.1 及之前）：这会藏起小权重，比例也不"
            "可能低于 0.64。",
        ),
    ),
    "one_missing": (
        _with(1, lambda x: (2 * x).exp().mean()),
        Words(
            en="chi2 is the mean of w^2 less 1: two equal policies have 0.",
            zh="chi2 是 w^2 的平均减 1：两个相同的策略应为 0。",
        ),
    ),
    "chi2_of_w": (
        _with(1, lambda x: torch.expm1(x).mean()),
        Words(
            en="The second number is mean w - 1, which is 0 in expectation whatever the "
            "policies. Square the weights.",
            zh="第二个数是 mean w - 1，无论两个策略如何，它的期望总是 0。应当先把权重平方。"
            "",
        ),
    ),
    "chi2_of_ess": (
        _with(1, lambda x: 1 / _numbers(x)[0] - 1),
        Words(
            en="This is 1 / ESS - 1: chi2 only if the weights of this batch have mean 1, "
            "and they don't.",
            zh="这是 1 / ESS - 1：只有这批权重的平均恰为 1 时它才等于 chi2，而实际并非如此"
            "。",
        ),
    ),
    "summed": (
        _with(1, lambda x: torch.expm1(2 * x).sum()),
        Words(
            en="chi2 is summed over responses. Take the mean.",
            zh="chi2 对回答求了和。应当取平均。",
        ),
    ),
    "padding_counted": (
        lambda p, q, mask: _numbers((p - q).sum(1)),
        PADDING,
    ),
    "clamped": (
        lambda p, q, mask: _numbers(_Delta((p - q).clamp(-20, 20), 0 * q, mask)),
        batch.CLAMPED,
    ),
    "one_of_n": (
        _with(0, lambda x: _plain(x.exp())[0].nan_to_num(1 / len(x))),
        Words(
            en="Where 0 / 0 is NaN you return 1 / N. Equal weights have a share of 1, also "
            "where exp of all of them is 0: take the largest log weight off first.",
            zh="0 / 0 得 NaN 时你返回了 1 / N。权重相等时比例为 1，即使 exp 都变成了 0："
            "应当先减去最大的对数权重。",
        ),
    ),
    "underflow": (
        _of(lambda x: _plain(x.exp())),
        Words(
            en="exp of the log weights is 0 or inf, and 0 / 0 as well as inf / inf is NaN. "
            "Only differences matter to the share: take the largest off first (not the "
            "mean), or use `logsumexp`.",
            zh="对数权重取 exp 后成了 0 或 inf，0 / 0 与 inf / inf 都得 NaN。比例只取决于相"
            "对大小：先减去最大值（不是平均值），或用 `logsumexp`。",
        ),
    ),
} | slips.ESS

FAR = Words(
    en="responses that the trainer finds impossible: exp(Delta) is 0, in float64 too",
    zh="训练端认为不可能的回答：exp(Delta) 为 0，float64 也不例外",
)
NEVER = Words(
    en="responses that the rollout finds impossible: exp(Delta) is inf, and so is chi2",
    zh="采样端认为不可能的回答：exp(Delta) 为 inf，chi2 也是",
)
ONE = Words(en="one response decides", zh="一条回答决定一切")
ALONE = Words(
    en="one response, and both policies are the same", zh="一条回答，两个策略相同"
)


def _far(generator: Generator) -> tuple[Tensor, Tensor, Tensor]:
    """Deltas of about -60: four Deltas near -960 and one near -1440."""
    longer = torch.arange(5) == torch.randint(5, (), generator=generator)
    mask = torch.arange(24) < torch.where(longer, 24, 16)[:, None]
    near = batch.uniform(generator, (5, 24), -4.2, -0.2)
    far = near - 60 + batch.uniform(generator, (5, 24), -0.2, 0.2)
    p, q = (batch.garbage(generator, x, mask, "finite") for x in (far, near))
    return p, q, mask


def cases(generator: Generator) -> list[Case]:
    same, _, mask = batch.policies(generator, rows=1)
    agreed = batch.policies(generator, columns=8)
    batch.agree_on_two(*agreed[:2])
    train, rollout, real = batch.policies(generator, rows=5)
    train[2, 0] = -0.01
    rollout[2, 0] = -24.0 - torch.rand((), generator=generator)
    likely, never, there = _far(generator)
    return [
        Case("example", batch.BY_HAND, (batch.TRAIN, batch.ROLLOUT, batch.MASK)),
        Case("property", ALONE, (same, same, mask)),
        Case("inputs", batch.RANDOM, batch.policies(generator)),
        Case("inputs", batch.RANDOM, batch.policies(generator, rows=6, columns=9)),
        Case("inputs", batch.AGREED, agreed),
        Case("inputs", ONE, (train, rollout, real)),
        Case("padding", batch.NAN, batch.policies(generator, padding="nan")),
        Case("numbers", FAR, _far(generator)),
        Case("numbers", NEVER, (never, likely, there)),
    ]


EXERCISE = Exercise(
    name="ess_and_chi2",
    title=Words(en="Effective sample size and chi2", zh="有效样本量与 chi2"),
    reference=reference,
    returns=("ess", "chi2"),
    cases=cases,
    mistakes=MISTAKES,
    alternatives={"shifted": _shifted, "softmax": _softmax},
    hints=(
        Words(
            en="One weight a response: exp of its summed delta. What do both numbers make "
            "of weights that are all equal?",
            zh="每条回答一个权重：delta 之和的 exp。所有权重相等时两个数各是多少？",
        ),
        Words(
            en="ess = (mean w)^2 / mean(w^2), chi2 = mean(w^2) - 1. The first does not "
            "change if all weights are multiplied by a constant: use that.",
            zh="ess = (mean w)^2 / mean(w^2)，chi2 = mean(w^2) - 1。所有权重乘以同一常数不"
            "改变前者：利用这一点。",
        ),
        Words(
            en="`w = (Delta - Delta.max()).exp()` for ess, `(2 * Delta).exp().mean() - 1` "
            "for chi2.",
            zh="ess 用 `w = (Delta - Delta.max()).exp()`，chi2 用 `(2 * Delta).exp().mean()"
            " - 1`。",
        ),
    ),
    points=(1, 2),
    minutes=8,
)
