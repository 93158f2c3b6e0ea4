"""GSPO's ratio in its token form: the value of a response, the gradient of a token."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Generator, Tensor

from tinyrl.course.exercise import Case, Exercise, Function, Mistakes
from tinyrl.course.exercises.lab01.batch import (
    GRADIENT,
    INF,
    LONG,
    NAN,
    RANDOM,
    policies,
    uniform,
)
from tinyrl.course.exercises.lab08 import losses, slips
from tinyrl.course.exercises.lab08.losses import log_ratio
from tinyrl.course.words import Words


def _mean(d: Tensor, mask: Tensor) -> Tensor:
    return d.sum(1, keepdim=True) / mask.sum(1, keepdim=True)


def _token_form(log_s: Tensor, logp: Tensor, mask: Tensor) -> Tensor:
    """exp(log_s) in value; the gradient is that of each token's own logp."""
    own = torch.where(mask, logp, 0.0)
    s = (log_s.detach() + own - own.detach()).exp()
    return torch.where(mask, s, 1.0)


def reference(logp: Tensor, logp_old: Tensor, mask: Tensor) -> Tensor:
    return _token_form(_mean(log_ratio(logp, logp_old, mask), mask), logp, mask)


def _product(logp: Tensor, logp_old: Tensor, mask: Tensor) -> Tensor:
    """As in the paper: sg[s] pi / sg[pi], with a quotient that is 1."""
    x, y = (torch.where(mask, a, 0.0) for a in (logp, logp_old))
    s = ((x - y).sum(1) / mask.sum(1)).exp().detach()
    one = (x - x.detach()).exp()
    return torch.where(mask, s[:, None] * one, 1.0)


def _by_loops(logp: Tensor, logp_old: Tensor, mask: Tensor) -> Tensor:
    rows = []
    for new, old, real in zip(logp, logp_old, mask, strict=True):
        there = new[real]
        s = math.exp((there.detach() - old[real].detach()).mean().item())
        row = torch.ones_like(new)
        row[real] = s * (1 + there - there.detach())
        rows.append(row)
    return torch.stack(rows)


def _of(pool: Callable[[Tensor, Tensor], Tensor]) -> Function:
    """The same with another log of the ratio, `pool` of log ratios and mask."""

    def wrong(logp: Tensor, logp_old: Tensor, mask: Tensor) -> Tensor:
        log_s = pool(log_ratio(logp, logp_old, mask), mask)
        return _token_form(log_s.expand_as(logp), logp, mask)

    return wrong


def _arithmetic(d: Tensor, mask: Tensor) -> Tensor:
    return _mean(torch.where(mask, d.exp(), 0.0), mask).log()


def _product_first(d: Tensor, mask: Tensor) -> Tensor:
    """The logarithm of the root of a product, of numbers that overflow or underflow."""
    return d.exp().prod(1, keepdim=True).log() / mask.sum(1, keepdim=True)


def _sequence_gradient(logp: Tensor, logp_old: Tensor, mask: Tensor) -> Tensor:
    s = _mean(log_ratio(logp, logp_old, mask), mask).exp()
    return torch.where(mask, s, 1.0)


def _twice(logp: Tensor, logp_old: Tensor, mask: Tensor) -> Tensor:
    own = torch.where(mask, logp, 0.0)
    log_s = _mean(log_ratio(logp, logp_old, mask), mask)
    return torch.where(mask, (log_s + own - own.detach()).exp(), 1.0)


def _log(logp: Tensor, logp_old: Tensor, mask: Tensor) -> Tensor:
    log_s = _mean(log_ratio(logp, logp_old, mask), mask).detach()
    own = torch.where(mask, logp, 0.0)
    return torch.where(mask, log_s + own - own.detach(), 0.0)


def _raw(logp: Tensor, logp_old: Tensor, mask: Tensor) -> Tensor:
    d = (logp - logp_old).detach() * mask
    return (_mean(d, mask) + logp - logp.detach()).exp()


def _where_after(logp: Tensor, logp_old: Tensor, mask: Tensor) -> Tensor:
    """The mean is of cleaned log ratios, a token's own logp is not."""
    log_s = _mean(log_ratio(logp, logp_old, mask), mask).detach()
    return torch.where(mask, (log_s + logp - logp.detach()).exp(), 1.0)


MISTAKES: Mistakes = {
    "sequence_product": (
        _of(lambda d, mask: d.sum(1, keepdim=True)),
        Words(
            en="This is the product of the token ratios, exp of the *sum*. GSPO takes "
            "their geometric mean: divide the sum by the number of tokens.",
            zh="这是各 token 比值的乘积，即*和*的 exp。GSPO 取几何平均：和要除以 token 数"
            "。",
        ),
    ),
    "product_first": (
        _of(_product_first),
        Words(
            en="A product of a thousand ratios overflows, or is 0, before its root is "
            "taken. Take the mean of the log ratios.",
            zh="成百上千个比值先连乘，还没开方就溢出或变成 0。应当对对数比值取平均。",
        ),
    ),
    "clamped": (
        _of(lambda d, mask: _mean(d.clamp(-20, 20), mask)),
        Words(
            en="You clamp log ratios first. Trainers do that to survive; asked for is s as "
            "it is.",
            zh="你先截断了对数比值。训练代码常这样保命，但题目要的是 s 本身。",
        ),
    ),
    "columns": (
        _of(lambda d, mask: d.mean(1, keepdim=True)),
        Words(
            en="You divide by the number of columns. |y| is the number of real tokens.",
            zh="你除以了列数。|y| 是真实 token 的个数。",
        ),
    ),
    "arithmetic": (
        _of(_arithmetic),
        Words(
            en="You average the ratios. GSPO averages their logarithms: exp comes after "
            "the mean.",
            zh="你对比值取了平均。GSPO 平均的是对数：先平均，再 exp。",
        ),
    ),
    "token": (
        _of(lambda d, mask: d),
        Words(
            en="This is PPO's ratio, one for each token. In GSPO all tokens of a response "
            "have the same value.",
            zh="这是 PPO 的比值，每个 token 各一个。GSPO 里同一条回答的所有 token 取值相同"
            "。",
        ),
    ),
    "batch_mean": (
        _of(lambda d, mask: (d.sum() / mask.sum()).expand(len(d), 1)),
        Words(
            en="You average over the whole batch. Each response has a ratio of its own.",
            zh="你在整个 batch 上取了平均。每条回答有自己的比值。",
        ),
    ),
    "longest": (
        _of(lambda d, mask: d.sum(1, keepdim=True) / mask.sum(1).max()),
        Words(
            en="You divide by the longest response's tokens. Each has a |y| of its own.",
            zh="你除以了最长回答的 token 数。每条回答有自己的 |y|。",
        ),
    ),
    "inverted": (
        lambda logp, old, mask: _token_form(
            -_mean(log_ratio(logp, old, mask), mask), logp, mask
        ),
        losses.INVERTED,
    ),
    "no_exp": (
        _log,
        Words(
            en="This is the logarithm of the ratio; take exp.",
            zh="这是比值的对数，还要取 exp。",
        ),
    ),
    "sequence_gradient": (
        _sequence_gradient,
        Words(
            en="The values are right. The gradient is that of GSPO's sequence form, in "
            "which each token's ratio moves with all tokens. In the token form a token's "
            "ratio has the gradient of its own logp: s.detach() * exp(logp - "
            "logp.detach()).",
            zh="数值正确。梯度却是 GSPO 的序列形式：每个 token 的比值随所有 token 变化。在 "
            "token 形式里，一个 token 的比值只有自己 logp 的梯度：s.detach() * exp(logp - "
            "logp.detach())。",
        ),
    ),
    "twice": (
        _twice,
        Words(
            en="The values are right, but s is not detached: a token's gradient comes "
            "twice, once through its own logp and once through the mean.",
            zh="数值正确，但 s 没有 detach：梯度来了两次，一次经由自己的 logp，一次经由平均"
            "值。",
        ),
    ),
    "zero_on_padding": (
        lambda *args: torch.where(args[2], reference(*args), 0.0),
        Words(
            en="Asked for in the padding is 1: no token, no difference.",
            zh="padding 处应为 1：没有 token 就没有差异。",
        ),
    ),
    "padding_left": (
        lambda *args: _token_form(
            _mean(log_ratio(*args), args[2]), args[0], torch.ones_like(args[2])
        ),
        Words(
            en="In the padding stands the ratio of the response. Asked for is 1.",
            zh="padding 处填成了该回答的比值。应为 1。",
        ),
    ),
    "padding_counted": (
        lambda logp, old, mask: _token_form(
            (logp - old).detach().mean(1, keepdim=True), logp, mask
        ),
        Words(
            en="The padding's numbers are in the mean. Use the mask.",
            zh="padding 里的数进了平均值。请用 mask。",
        ),
    ),
    "times_mask": (_raw, losses.TIMES_MASK),
    "where_after": (_where_after, losses.WHERE_AFTER),
    "detach": (
        lambda *args: reference(*args).detach(),
        losses.DETACHED,
    ),
} | slips.GSPO

SAME = Words(
    en="both policies are the same: every ratio is 1", zh="两边是同一个策略：比值都是 1"
)
HAND = Words(en="two responses by hand", zh="两条可手算的回答")
FAR = Words(
    en="log ratios of 80 and -30: one side finds the token impossible",
    zh="对数比值为 80 和 -30：其中一边认为这个 token 几乎不可能",
)


def cases(generator: Generator) -> list[Case]:
    new, _, mask = policies(generator)
    moved, old, some = policies(generator, rows=4, columns=8, padding="nan")
    less = torch.tensor([[0.6], [0.0]]).repeat(2, 1)  # ratios on both sides of 1
    zero = losses.drawn(generator)
    order = torch.randperm(2, generator=generator)
    apart = torch.tensor([[80.0, 0.0, 0.0], [-30.0, 0.0, 0.0]])[order]
    uneven = torch.tensor([[True, True, False], [True, False, False]])[order]
    likely = uniform(generator, (2, 3), -3.0, -1.0)
    far = likely + apart.clamp(max=0), likely - apart.clamp(min=0), uneven
    one = losses.one_token(generator)
    wide = policies(generator, rows=5, columns=10, spread=1.5)
    up, before, there = policies(generator, rows=2, columns=400, spread=0.5)
    drift = torch.tensor([[0.35], [-0.35]])[order]
    long = up - 0.5, before - 0.5 - drift, there  # the product is e^140, or e^-140
    return [
        Case("example", HAND, (losses.OLD + losses.DELTA, losses.OLD, losses.MASK)),
        Case("property", SAME, (new, new, mask)),
        Case("inputs", RANDOM, (zero.logp, zero.logp_old, zero.mask)),
        Case("inputs", RANDOM, wide),
        Case("padding", NAN, policies(generator, padding="nan", spread=1.0)),
        Case("padding", INF, policies(generator, padding="inf", spread=1.0)),
        Case("gradient", GRADIENT, (moved - less, old - 0.6 + less, some)),
        Case("numbers", losses.ONE, (one.logp, one.logp_old, one.mask)),
        Case("numbers", FAR, far),
        Case("numbers", LONG, long),
    ]


EXERCISE = Exercise(
    name="gspo_ratio",
    title=Words(en="GSPO's ratio, token form", zh="GSPO 的比值（token 形式）"),
    reference=reference,
    returns=("ratio",),
    cases=cases,
    mistakes=MISTAKES,
    alternatives={"paper": _product, "loops": _by_loops},
    hints=(
        Words(
            en="Two parts: a number for the whole response, without a gradient, and a "
            "factor for each token that is 1 and has one.",
            zh="分两部分：整条回答的一个数，没有梯度；每个 token 的一个因子，值为 1 但有梯"
            "度。",
        ),
        Words(
            en="s = exp of the mean log ratio over real tokens, detached. The factor is "
            "exp(logp - logp.detach()).",
            zh="s 是真实 token 上对数比值平均的 exp，要 detach。因子是"
            " exp(logp - logp.detach())。",
        ),
        Words(
            en="`d = torch.where(mask, logp - logp_old, 0.0).detach()`, "
            "`log_s = d.sum(1, keepdim=True) / mask.sum(1, keepdim=True)`, "
            "`own = torch.where(mask, logp, 0.0)`, "
            "`torch.where(mask, (log_s + own - own.detach()).exp(), 1.0)`.",
            zh="先 `d = torch.where(mask, logp - logp_old, 0.0).detach()`，再 "
            "`log_s = d.sum(1, keepdim=True) / mask.sum(1, keepdim=True)` 和 "
            "`own = torch.where(mask, logp, 0.0)`，最后 "
            "`torch.where(mask, (log_s + own - own.detach()).exp(), 1.0)`。",
        ),
    ),
    points=(1, 3),
    minutes=9,
    gradient=("logp",),
    data=("logp_old",),
)
