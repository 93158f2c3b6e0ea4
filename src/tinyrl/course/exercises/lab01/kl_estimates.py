"""K1, K2, K3: three estimates of one KL divergence, from samples of the rollout policy."""

from __future__ import annotations

import math

import torch
from torch import Generator, Tensor

from tinyrl.course.exercise import Case, Exercise, Mistakes
from tinyrl.course.exercises.lab01 import batch
from tinyrl.course.words import Words

Three = tuple[Tensor, Tensor, Tensor]


def _delta(logp_train: Tensor, logp_rollout: Tensor, mask: Tensor) -> Tensor:
    """Delta of the real tokens in a row, in float64."""
    return logp_train[mask].double() - logp_rollout[mask].double()


def reference(logp_train: Tensor, logp_rollout: Tensor, mask: Tensor) -> Three:
    d = _delta(logp_train, logp_rollout, mask)
    return (-d).mean(), (d**2 / 2).mean(), (torch.expm1(d) - d).mean()


def _float32_expm1(logp_train: Tensor, logp_rollout: Tensor, mask: Tensor) -> Three:
    d = torch.where(mask, logp_train - logp_rollout, 0.0)
    n = mask.sum()
    return -d.sum() / n, 0.5 * d.square().sum() / n, (torch.expm1(d) - d).sum() / n


def _float64_exp(logp_train: Tensor, logp_rollout: Tensor, mask: Tensor) -> Three:
    d = (logp_train.double() - logp_rollout.double()).masked_fill(~mask, 0.0)

    def mean(x: Tensor) -> Tensor:
        return (x * mask).sum() / mask.sum()

    return mean(-d), mean(0.5 * d * d), mean(d.exp() - 1 - d)


def _naive(logp_train: Tensor, logp_rollout: Tensor, mask: Tensor) -> Three:
    d = logp_train[mask] - logp_rollout[mask]
    return (-d).mean(), (d**2 / 2).mean(), (d.exp() - 1 - d).mean()


def _of_mean(logp_train: Tensor, logp_rollout: Tensor, mask: Tensor) -> Three:
    d = _delta(logp_train, logp_rollout, mask).mean()
    return -d, d**2 / 2, torch.expm1(d) - d


def _row_means(logp_train: Tensor, logp_rollout: Tensor, mask: Tensor) -> Three:
    d = torch.where(mask, logp_train - logp_rollout, 0.0).double()

    def mean(x: Tensor) -> Tensor:
        return (x.sum(-1) / mask.sum(-1)).mean()

    return mean(-d), mean(d**2 / 2), mean(torch.expm1(d) - d)


def _all_columns(logp_train: Tensor, logp_rollout: Tensor, mask: Tensor) -> Three:
    k1, k2, k3 = reference(logp_train, logp_rollout, mask)
    share = mask.double().mean()
    return k1 * share, k2 * share, k3 * share


def _nonzero(logp_train: Tensor, logp_rollout: Tensor, mask: Tensor) -> Three:
    return reference(logp_train, logp_rollout, mask & (logp_train != logp_rollout))


def _clamped(logp_train: Tensor, logp_rollout: Tensor, mask: Tensor) -> Three:
    d = _delta(logp_train, logp_rollout, mask).clamp(-20, 20)
    return (-d).mean(), (d**2 / 2).mean(), (torch.expm1(d) - d).mean()


def _padding_counted(logp_train: Tensor, logp_rollout: Tensor, mask: Tensor) -> Three:
    return reference(logp_train, logp_rollout, torch.ones_like(mask))


def _times_mask(logp_train: Tensor, logp_rollout: Tensor, mask: Tensor) -> Three:
    d = (logp_train.double() - logp_rollout.double()) * mask
    n = mask.sum()
    return -d.sum() / n, (d**2 / 2).sum() / n, (torch.expm1(d) - d).sum() / n


def _summed(logp_train: Tensor, logp_rollout: Tensor, mask: Tensor) -> Three:
    k1, k2, k3 = reference(logp_train, logp_rollout, mask)
    return k1 * mask.sum(), k2 * mask.sum(), k3 * mask.sum()


def _k1_sign(logp_train: Tensor, logp_rollout: Tensor, mask: Tensor) -> Three:
    k1, k2, k3 = reference(logp_train, logp_rollout, mask)
    return -k1, k2, k3


def _k1_absolute(logp_train: Tensor, logp_rollout: Tensor, mask: Tensor) -> Three:
    _, k2, k3 = reference(logp_train, logp_rollout, mask)
    return _delta(logp_train, logp_rollout, mask).abs().mean(), k2, k3


def _k2_whole(logp_train: Tensor, logp_rollout: Tensor, mask: Tensor) -> Three:
    k1, k2, k3 = reference(logp_train, logp_rollout, mask)
    return k1, 2 * k2, k3


def _k3_reversed(logp_train: Tensor, logp_rollout: Tensor, mask: Tensor) -> Three:
    k1, k2, _ = reference(logp_train, logp_rollout, mask)
    return k1, k2, reference(logp_rollout, logp_train, mask)[2]


def _k3_no_delta(logp_train: Tensor, logp_rollout: Tensor, mask: Tensor) -> Three:
    k1, k2, _ = reference(logp_train, logp_rollout, mask)
    return k1, k2, torch.expm1(_delta(logp_train, logp_rollout, mask)).mean()


def _bits(logp_train: Tensor, logp_rollout: Tensor, mask: Tensor) -> Three:
    k1, k2, k3 = reference(logp_train, logp_rollout, mask)
    return k1 / math.log(2), k2 / math.log(2), k3 / math.log(2)


MISTAKES: Mistakes = {
    "wrong_way": (
        lambda logp_train, logp_rollout, mask: reference(logp_rollout, logp_train, mask),
        Words(
            en="Delta has the wrong sign: these formulas belong to samples of the trainer. "
            "The samples are the rollout's, so KL(rollout || train), with d = train - "
            "rollout.",
            zh="delta 的符号反了：这组公式适用于从训练端采样的情形。样本来自 rollout，估计"
            "的是 KL(rollout || train)，d = train - rollout。",
        ),
    ),
    "k1_sign": (
        _k1_sign,
        Words(
            en="K1 has the wrong sign. KL(rollout || train) = E[log rollout - log train], "
            "the mean of -d.",
            zh="K1 的符号反了。KL(rollout || train) = E[log rollout - log train]，也就是"
            " -d 的平均。",
        ),
    ),
    "k1_absolute": (
        _k1_absolute,
        Words(
            en="K1 is the mean of -d, not of |d|: single terms may be negative, and only "
            "so is it unbiased.",
            zh="K1 是 -d 的平均，不是 |d| 的平均：单项可以为负，这样才是无偏的。",
        ),
    ),
    "k2_whole": (
        _k2_whole,
        Words(en="K2 lacks its 1/2: d^2 / 2.", zh="K2 少了 1/2：应当是 d^2 / 2。"),
    ),
    "k3_reversed": (
        _k3_reversed,
        Words(
            en="Your K3 is exp(-d) - 1 + d, whose expectation is the KL only for samples "
            "of the trainer. For the rollout's it is exp(d) - 1 - d.",
            zh="你的 K3 是 exp(-d) - 1 + d，只有样本来自训练端时它的期望才是 KL。样本来自"
            " rollout 时应当用 exp(d) - 1 - d。",
        ),
    ),
    "k3_no_delta": (
        _k3_no_delta,
        Words(
            en="K3 lacks `- d`: exp(d) - 1 alone has expectation 0, whatever the policies "
            "are.",
            zh="K3 少了 `- d`：exp(d) - 1 的期望恒为 0，不管两个策略差多少。",
        ),
    ),
    "of_mean": (
        _of_mean,
        Words(
            en="You average d first and then square it, and take exp of it. K2 and K3 are "
            "means of functions of each token's d;"
            " deltas of opposite sign must not cancel.",
            zh="你先平均 d，再平方、取 exp。K2 和 K3 是逐 token 计算后再平均；正负 delta "
            "不应先抵消。",
        ),
    ),
    "row_means": (
        _row_means,
        Words(
            en="You average within each response first: tokens of short responses weigh "
            "more. Here every real token counts the same.",
            zh="你先在每条回答内取平均：短回答的 token 权重更大。这里每个真实 token 权重相"
            "同。",
        ),
    ),
    "all_columns": (
        _all_columns,
        Words(
            en="You divide by B * T. Padding adds nothing above, so it must not count "
            "below.",
            zh="你除以了 B * T。padding 对分子没有贡献，也不应计入分母。",
        ),
    ),
    "nonzero_counted": (_nonzero, batch.NONZERO),
    "summed": (
        _summed,
        Words(
            en="These are sums over tokens; a mean is asked for.",
            zh="这是对 token 求和，题目要的是平均。",
        ),
    ),
    "padding_counted": (
        _padding_counted,
        Words(
            en="The padding is counted: use the mask before you average.",
            zh="把 padding 也算进去了：平均之前要先用 mask。",
        ),
    ),
    "times_mask": (
        _times_mask,
        Words(
            en="Multiplying by the mask does not remove NaN: NaN * 0 is NaN. Choose with "
            "`torch.where` or `x[mask]`.",
            zh="乘以 mask 去不掉 NaN：NaN * 0 还是 NaN。请用 `torch.where` 或 `x[mask]` 来"
            "选择。",
        ),
    ),
    "order": (
        lambda logp_train, logp_rollout, mask: reference(logp_train, logp_rollout, mask)[
            ::-1
        ],
        Words(
            en="The order is turned round: return k1, k2, k3.",
            zh="返回顺序反了：应当是 k1, k2, k3。",
        ),
    ),
    "bits": (
        _bits,
        Words(
            en="These are in bits; leave them in nats, natural logarithms.",
            zh="这里换算成了比特；应当保持自然对数，单位 nat。",
        ),
    ),
    "clamped": (
        _clamped,
        Words(
            en="You clamp delta to [-20, 20]. Trainers do that to survive; a metric has to "
            "show the worst tokens as they are.",
            zh="你把 delta 截到了 [-20, 20]。训练代码常用它保命，但指标要如实反映最糟的 "
            "token。",
        ),
    ),
    "cancellation": (
        _naive,
        Words(
            en="K3 is lost to rounding: near 1 float32 has steps of 1.2e-7, and at d = "
            "1e-4 the d^2 / 2 in exp(d) is 5e-9. Use `torch.expm1(d) - d`, or float64 from "
            "the start.",
            zh="K3 被舍入误差吃掉了：float32 在 1 附近的间隔是 1.2e-7，而 d = 1e-4 时"
            " exp(d) 里的 d^2 / 2 只有 5e-9。请用 `torch.expm1(d) - d`，或者一开始就转"
            "成 float64。",
        ),
    ),
}

TINY = Words(
    en="deltas near 1e-4, as two float32 engines have",
    zh="delta 约为 1e-4，两个 float32 引擎之间就是这么小",
)
FAR = Words(
    en="a token that one side finds impossible, on either side",
    zh="两边各有一个 token 被另一边认为几乎不可能",
)


def cases(generator: Generator) -> list[Case]:
    # Multiples of 2^-16 below 2^-12: exact in float32, while exp(d) rounds to 1 + d.
    steps = torch.randint(4, 12, (2, 40), generator=generator) * 2.0**-16
    sign = torch.where(torch.rand(2, 40, generator=generator) < 0.5, -1.0, 1.0)
    rollout = -torch.randint(1, 9, (2, 40), generator=generator) / 8
    tiny = (rollout + sign * steps, rollout, batch.mask_of(generator, 2, 40))
    train, other, mask = batch.policies(generator)
    train[0, 0] -= 30
    other[0, 1] -= 30
    shared = [case for case in batch.usual(generator) if case.stage != "gradient"]
    far = Case("numbers", FAR, (train, other, mask))
    return [*shared, far, Case("numbers", TINY, tiny)]


EXERCISE = Exercise(
    name="kl_estimates",
    title=Words(en="K1, K2, K3", zh="K1、K2、K3"),
    reference=reference,
    returns=("k1", "k2", "k3"),
    cases=cases,
    mistakes=MISTAKES,
    alternatives={"float32_expm1": _float32_expm1, "float64_exp": _float64_exp},
    hints=(
        Words(
            en="One delta a token, three functions of it, each averaged over real tokens. "
            "You have written both halves already.",
            zh="每个 token 一个 delta，对它算三个函数，再分别在真实 token 上取平均。这两步"
            "你都已经写过了。",
        ),
        Words(
            en="k1 = mean(-d), k2 = mean(d^2 / 2), k3 = mean(exp(d) - 1 - d). When d is "
            "tiny, what is left of exp(d) - 1 in float32?",
            zh="k1 = mean(-d)，k2 = mean(d^2 / 2)，k3 = mean(exp(d) - 1 - d)。d 很小时，"
            "float32 里的 exp(d) - 1 还剩多少有效位？",
        ),
        Words(
            en="`d = logp_train[mask].double() - logp_rollout[mask].double()`, then "
            "`torch.expm1(d) - d` for k3.",
            zh="`d = logp_train[mask].double() - logp_rollout[mask].double()`，k3 用 "
            "`torch.expm1(d) - d`。",
        ),
    ),
    points=(1, 2),
    minutes=10,
)
