"""CISPO: a clipped weight that gets no gradient, on REINFORCE's loss."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Generator, Tensor

from tinyrl.course.exercise import Case, Exercise, Function, Mistakes
from tinyrl.course.exercises.lab01.batch import GRADIENT, INF, NAN, RANDOM
from tinyrl.course.exercises.lab08 import losses, slips
from tinyrl.course.exercises.lab08.losses import log_ratio
from tinyrl.course.words import Words


def reference(
    logp: Tensor,
    logp_old: Tensor,
    advantages: Tensor,
    mask: Tensor,
    lower: float,
    upper: float,
) -> Tensor:
    w = log_ratio(logp, logp_old, mask).exp().clamp(lower, upper).detach()
    return -w * advantages[:, None] * torch.where(mask, logp, 0.0)


def _by_loops(
    logp: Tensor,
    logp_old: Tensor,
    advantages: Tensor,
    mask: Tensor,
    lower: float,
    upper: float,
) -> Tensor:
    out = torch.zeros_like(logp)
    for b in range(len(mask)):
        for t in range(mask.shape[1]):
            if mask[b, t]:
                r = (logp[b, t].detach() - logp_old[b, t].detach()).exp().item()
                out[b, t] = -min(max(r, lower), upper) * advantages[b] * logp[b, t]
    return out


def _no_grad(
    logp: Tensor,
    logp_old: Tensor,
    advantages: Tensor,
    mask: Tensor,
    lower: float,
    upper: float,
) -> Tensor:
    with torch.no_grad():
        r = torch.exp((logp - logp_old).masked_fill(~mask, 0.0))
        w = torch.einsum("bt,b->bt", r.clamp(lower, upper), advantages)
    return -w * logp.masked_fill(~mask, 0.0)


def _of(
    loss: Callable[[Tensor, Tensor, Tensor, float, float], Tensor],
) -> Function:
    """The same with another `loss` of ratio, advantage, logp and bounds."""

    def wrong(
        logp: Tensor,
        logp_old: Tensor,
        advantages: Tensor,
        mask: Tensor,
        lower: float,
        upper: float,
    ) -> Tensor:
        r = log_ratio(logp, logp_old, mask).exp()
        clean = torch.where(mask, logp, 0.0)
        found = loss(r, advantages[:, None], clean, lower, upper)
        return torch.where(mask, found, 0.0)

    return wrong


def _log_space(r: Tensor, A: Tensor, logp: Tensor, low: float, high: float) -> Tensor:
    return -r.log().clamp(low - 1, high - 1).exp().detach() * A * logp


def _ppo_like(r: Tensor, A: Tensor, logp: Tensor, low: float, high: float) -> Tensor:
    stopped = ((A > 0) & (r > high)) | ((A < 0) & (r < low))
    return torch.where(stopped, 0.0, -r.clamp(low, high).detach() * A * logp)


def _masked(r: Tensor, A: Tensor, logp: Tensor, low: float, high: float) -> Tensor:
    return torch.where((r < low) | (r > high), 0.0, -r.detach() * A * logp)


def _raw(*args: Tensor) -> Tensor:
    logp, old, A, _, lower, upper = args
    w = (logp - old).exp().clamp(lower, upper).detach()
    return -w * A[:, None] * logp


MISTAKES: Mistakes = {
    "sign": (lambda *args: -reference(*args), losses.SIGN),
    "weight_attached": (
        _of(lambda r, A, logp, low, high: -r.clamp(low, high) * A * logp),
        Words(
            en="The values are right, but the gradient also flows through the weight, "
            "where it is not clipped. `detach()` the weight: it says how much a token "
            "counts.",
            zh="数值正确，但在没有被裁剪的地方，梯度还流过了权重。要对权重 `detach()`：它只"
            "表示这个 token 算多少。",
        ),
    ),
    "ratio_only": (
        _of(lambda r, A, logp, low, high: -r.clamp(low, high) * A),
        Words(
            en="This is a clipped ratio times the advantage: outside the bounds its "
            "gradient is 0. In CISPO the clipped weight stands before log pi, and no token "
            "loses its gradient.",
            zh="这是裁剪后的比值乘 advantage：超出界限就没有梯度。CISPO 里裁剪的权重乘在"
            " log pi 前面，任何 token 都不失去梯度。",
        ),
    ),
    "stopped": (
        _of(_ppo_like),
        Words(
            en="You stop the tokens that PPO would stop. In CISPO a weight is only made "
            "smaller or larger; every token learns.",
            zh="你去掉了 PPO 会裁剪的 token 的梯度。CISPO 只改变权重的大小，每个 token 都学"
            "习。",
        ),
    ),
    "masked": (
        _of(_masked),
        Words(
            en="You drop tokens whose ratio is outside. Clip it to the bound instead.",
            zh="你丢弃了比值越界的 token。应当把比值裁剪到界上。",
        ),
    ),
    "unclipped": (
        _of(lambda r, A, logp, low, high: -r.detach() * A * logp),
        Words(
            en="The weight is not clipped at all.",
            zh="权重完全没有裁剪。",
        ),
    ),
    "unweighted": (
        _of(lambda r, A, logp, low, high: -A * logp),
        Words(
            en="The weight is missing: this is REINFORCE.",
            zh="缺少权重：这是 REINFORCE。",
        ),
    ),
    "no_lower": (
        _of(lambda r, A, logp, low, high: -r.clamp(max=high).detach() * A * logp),
        Words(
            en="The weight is clipped above and not below.",
            zh="权重只裁剪了上方，没有裁剪下方。",
        ),
    ),
    "no_upper": (
        _of(lambda r, A, logp, low, high: -r.clamp(min=low).detach() * A * logp),
        Words(
            en="The weight is clipped below and not above.",
            zh="权重只裁剪了下方，没有裁剪上方。",
        ),
    ),
    "widths": (
        _of(lambda r, A, logp, low, high: -r.clamp(1 - low, 1 + high).detach() * A * logp),
        Words(
            en="The bounds are taken for widths. Here they are of the weight itself, "
            "`lower` to `upper`: verl gives widths, TRL the largest weight.",
            zh="你把界限当成了宽度。这里是权重本身的上下界，`lower` 到 `upper`：verl 给的是"
            "宽度，TRL 给的是最大权重。",
        ),
    ),
    "log_space": (
        _of(_log_space),
        Words(
            en="You clip the log ratio by the bounds less 1. Clip the ratio.",
            zh="你用界限减 1 去裁剪对数比值。应当裁剪比值本身。",
        ),
    ),
    "no_advantage": (
        _of(lambda r, A, logp, low, high: -r.clamp(low, high).detach() * logp),
        Words(
            en="The advantage is missing: good and bad tokens are pushed up alike.",
            zh="缺少 advantage：好坏 token 都被推高了。",
        ),
    ),
    "log_advantage_sign": (
        _of(lambda r, A, logp, low, high: -r.clamp(low, high).detach() * A.abs() * logp),
        Words(
            en="The advantage has lost its sign: bad tokens are pushed up.",
            zh="advantage 丢了符号：坏的 token 也被推高了。",
        ),
    ),
    "inverted": (
        lambda new, old, A, mask, low, high: _of(
            lambda r, A, logp, low, high: -(1 / r).clamp(low, high).detach() * A * logp
        )(new, old, A, mask, low, high),
        losses.INVERTED,
    ),
    "padded": (
        lambda *args: _of(
            lambda r, A, logp, low, high: -r.clamp(low, high).detach() * A * logp
        )(*args[:3], torch.ones_like(args[3]), *args[4:]),
        losses.PADDED,
    ),
    "times_mask": (lambda *args: _raw(*args) * args[3], losses.TIMES_MASK),
    "detach": (lambda *args: reference(*args).detach(), losses.DETACHED),
    "divided_by_A": (losses.divided(reference), losses.DIVIDED),
} | slips.CISPO

ALL_OUT = Words(en="every ratio is out of bounds", zh="所有比值都越界")


def cases(generator: Generator) -> list[Case]:
    draw = losses.drawn
    out = draw(generator)
    out = out._replace(logp_old=torch.where(out.mask, out.logp - 1, out.logp))
    return [
        Case("example", losses.BY_HAND, (*losses.HAND, 0.75, 1.5)),
        Case("property", losses.AGREE, (*losses.unmoved(generator), 0.8, 1.25)),
        Case("inputs", RANDOM, (*draw(generator), 0.8, 1.28)),
        Case("inputs", RANDOM, (*draw(generator, rows=6, columns=14), 0.85, 3.0)),
        Case("inputs", ALL_OUT, (*out, 0.5, 2.0)),
        Case("padding", NAN, (*draw(generator, padding="nan"), 0.8, 1.28)),
        Case("padding", INF, (*draw(generator, padding="inf"), 0.7, 2.0)),
        Case("gradient", GRADIENT, (*draw(generator, padding="nan"), 0.75, 1.5)),
        Case("numbers", losses.ONE, (*losses.one_token(generator), 0.7, 1.5)),
        Case("numbers", losses.FAR, (*losses.apart(generator), 0.5, 5.0)),
    ]


EXERCISE = Exercise(
    name="cispo_loss",
    title=Words(en="CISPO's weight", zh="CISPO 的权重"),
    reference=reference,
    returns=("loss",),
    cases=cases,
    mistakes=MISTAKES,
    alternatives={"loops": _by_loops, "no_grad": _no_grad},
    hints=(
        Words(
            en="Through which of the three factors does the gradient flow?",
            zh="三个因子中，梯度应当流过哪一个？",
        ),
        Words(
            en="REINFORCE's -A log pi, times the ratio, clipped to the bounds and "
            "detached.",
            zh="REINFORCE 的 -A log pi，再乘上裁剪并 detach 的比值。",
        ),
        Words(
            en="`w = torch.where(mask, logp - logp_old, 0.0).exp().clamp(lower, "
            "upper).detach()`, then `-w * A * torch.where(mask, logp, 0.0)`.",
            zh="先 `w = torch.where(mask, logp - logp_old, 0.0).exp().clamp(lower, "
            "upper).detach()`，再 `-w * A * torch.where(mask, logp, 0.0)`。",
        ),
    ),
    points=(1, 2),
    minutes=7,
    gradient=("logp",),
    data=("logp_old",),
)
