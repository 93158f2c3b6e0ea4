"""SAPO's soft gate in place of the clip."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Generator, Tensor

from tinyrl.course.exercise import Case, Exercise, Function, Mistakes
from tinyrl.course.exercises.lab01.batch import GRADIENT, INF, NAN, RANDOM
from tinyrl.course.exercises.lab08 import losses, slips
from tinyrl.course.exercises.lab08.losses import log_ratio
from tinyrl.course.words import Words


def _tau(A: Tensor, pos: float, neg: float) -> Tensor:
    return torch.where(A > 0, A.new_tensor(pos), A.new_tensor(neg))  # in A's precision


def _loss(r: Tensor, A: Tensor, pos: float, neg: float) -> Tensor:
    tau = _tau(A, pos, neg)
    return -4 / tau * torch.sigmoid(tau * (r - 1)) * A


def reference(
    logp: Tensor,
    logp_old: Tensor,
    advantages: Tensor,
    mask: Tensor,
    tau_pos: float,
    tau_neg: float,
) -> Tensor:
    r = log_ratio(logp, logp_old, mask).exp()
    return torch.where(mask, _loss(r, advantages[:, None], tau_pos, tau_neg), 0.0)


def _by_tanh(
    logp: Tensor,
    logp_old: Tensor,
    advantages: Tensor,
    mask: Tensor,
    tau_pos: float,
    tau_neg: float,
) -> Tensor:
    """sigmoid(x) = (1 + tanh(x / 2)) / 2."""
    A = advantages[:, None]
    x, y = (a.masked_fill(~mask, 0.0) for a in (logp, logp_old.detach()))
    tau = tau_neg + (tau_pos - tau_neg) * (A > 0).to(A)
    gate = 2 / tau * (1 + torch.tanh(tau * ((x - y).exp() - 1) / 2))
    return (-gate * A).masked_fill(~mask, 0.0)


def _by_loops(
    logp: Tensor,
    logp_old: Tensor,
    advantages: Tensor,
    mask: Tensor,
    tau_pos: float,
    tau_neg: float,
) -> Tensor:
    out = torch.zeros_like(logp)
    for b, A in enumerate(advantages):
        tau = tau_pos if A > 0 else tau_neg
        r = torch.exp(logp[b, mask[b]] - logp_old[b, mask[b]].detach())
        out[b, mask[b]] = -(4 / tau) / (1 + torch.exp(-tau * (r - 1))) * A
    return out


def _of(loss: Callable[[Tensor, Tensor, float, float], Tensor]) -> Function:
    """The same with another `loss` of ratio, advantage and temperatures."""

    def wrong(
        logp: Tensor,
        logp_old: Tensor,
        advantages: Tensor,
        mask: Tensor,
        tau_pos: float,
        tau_neg: float,
    ) -> Tensor:
        r = log_ratio(logp, logp_old, mask).exp()
        return torch.where(mask, loss(r, advantages[:, None], tau_pos, tau_neg), 0.0)

    return wrong


def _raw(*args: Tensor) -> Tensor:
    logp, old, A, _, *taus = args
    return _loss((logp - old.detach()).exp(), A[:, None], *taus)  # type: ignore[arg-type]


def _attached(*args: Tensor) -> Tensor:
    logp, old, A, mask, *taus = args
    r = torch.where(mask, logp - old, 0.0).exp()
    return torch.where(mask, _loss(r, A[:, None], *taus), 0.0)  # type: ignore[arg-type]


def _bare(r: Tensor, A: Tensor, pos: float, neg: float) -> Tensor:
    return -torch.sigmoid(_tau(A, pos, neg) * (r - 1)) * A


def _four(r: Tensor, A: Tensor, pos: float, neg: float) -> Tensor:
    return 4 * _bare(r, A, pos, neg)


def _by_ratio(r: Tensor, A: Tensor, pos: float, neg: float) -> Tensor:
    tau = torch.where(r > 1, r.new_tensor(pos), r.new_tensor(neg))
    return -4 / tau * torch.sigmoid(tau * (r - 1)) * A


def _log(r: Tensor, A: Tensor, pos: float, neg: float) -> Tensor:
    tau = _tau(A, pos, neg)
    return -4 / tau * torch.sigmoid(tau * r.log()) * A


def _uncentred(r: Tensor, A: Tensor, pos: float, neg: float) -> Tensor:
    tau = _tau(A, pos, neg)
    return -4 / tau * torch.sigmoid(tau * r) * A


def _divided(r: Tensor, A: Tensor, pos: float, neg: float) -> Tensor:
    tau = _tau(A, pos, neg)
    return -4 * tau * torch.sigmoid((r - 1) / tau) * A


def _slope(r: Tensor, A: Tensor, pos: float, neg: float) -> Tensor:
    s = torch.sigmoid(_tau(A, pos, neg) * (r - 1))
    return -4 * s * (1 - s) * r * A


def _half(r: Tensor, A: Tensor, pos: float, neg: float) -> Tensor:
    """The value is right; the gradient is that of the plain ratio."""
    plain = -r * A
    return plain + (_loss(r, A, pos, neg) - plain).detach()


def _padding_left(*args: Tensor) -> Tensor:
    """The log ratio is cleaned, the loss is not."""
    logp, old, A, mask, *taus = args
    return _loss(log_ratio(logp, old, mask).exp(), A[:, None], *taus)  # type: ignore[arg-type]


MISTAKES: Mistakes = {
    "sign": (lambda *args: -reference(*args), losses.SIGN),
    "no_factor": (
        _of(_bare),
        Words(
            en="The factor 4 / tau is missing. With it the gradient at ratio 1 is that of "
            "PPO, whatever tau is; without it, tau / 4 of that.",
            zh="缺少系数 4 / tau。有了它，比值为 1 时的梯度与 PPO 相同，和 tau 无关；没有它"
            "就只有 tau / 4。",
        ),
    ),
    "factor_4": (
        _of(_four),
        Words(
            en="The factor is 4 / tau, not 4: a sharper gate would have a larger gradient "
            "at ratio 1.",
            zh="系数是 4 / tau，不是 4：否则门越陡，比值为 1 时的梯度越大。",
        ),
    ),
    "swapped": (
        _of(lambda r, A, pos, neg: _loss(r, A, neg, pos)),
        Words(
            en="The temperatures are swapped: tau_pos where A > 0.",
            zh="两个温度用反了：A > 0 时用 tau_pos。",
        ),
    ),
    "one_temperature": (
        _of(lambda r, A, pos, neg: _loss(r, A, pos, pos)),
        Words(
            en="tau_pos is used throughout. Where A < 0 it is tau_neg, so that bad tokens "
            "fade sooner.",
            zh="处处都用了 tau_pos。A < 0 时应当用 tau_neg，让坏的 token 衰减得更快。",
        ),
    ),
    "by_ratio": (
        _of(_by_ratio),
        Words(
            en="You choose the temperature by the ratio. The sign of the advantage chooses "
            "it.",
            zh="你按比值选了温度。应当按 advantage 的符号来选。",
        ),
    ),
    "log_ratio": (
        _of(_log),
        Words(
            en="The gate is a function of r - 1, not of log r.",
            zh="门的自变量是 r - 1，不是 log r。",
        ),
    ),
    "uncentred": (
        _of(_uncentred),
        Words(
            en="The sigmoid is not centred: at ratio 1 its argument is 0, tau (r - 1).",
            zh="sigmoid 没有居中：比值为 1 时自变量应为 0，即 tau (r - 1)。",
        ),
    ),
    "divided": (
        _of(_divided),
        Words(
            en="You divide by tau, as a temperature of sampling does. Here it multiplies "
            "r - 1, and 4 is divided by it.",
            zh="你像采样温度那样除以了 tau。这里是 tau 乘以 r - 1，而 4 除以 tau。",
        ),
    ),
    "slope": (
        _of(_slope),
        Words(
            en="4 s (1 - s) r A is the gradient by logp. Asked for is the loss, whose "
            "gradient that is.",
            zh="4 s (1 - s) r A 是对 logp 的梯度。题目要的是损失本身。",
        ),
    ),
    "clipped": (
        _of(
            lambda r, A, pos, neg: torch.maximum(
                _loss(r, A, pos, neg), _loss(r.clamp(0.8, 1.2), A, pos, neg)
            )
        ),
        Words(
            en="You clip as well. The gate stands in place of the clip.",
            zh="你还做了裁剪。软门是用来代替裁剪的。",
        ),
    ),
    "inverted": (
        lambda new, old, A, mask, pos, neg: reference(old, new, A, mask, pos, neg),
        losses.INVERTED,
    ),
    "ungated_gradient": (
        _of(_half),
        Words(
            en="The values are right, but the gradient is that of the plain ratio: the "
            "gate has to act in it.",
            zh="数值正确，但梯度是普通比值的梯度：软门必须作用在梯度上。",
        ),
    ),
    "padded": (
        lambda *args: _of(_loss)(*args[:3], torch.ones_like(args[3]), *args[4:]),
        losses.PADDED,
    ),
    "padding_left": (_padding_left, losses.PADDING_LEFT),
    "times_mask": (lambda *args: _raw(*args) * args[3], losses.TIMES_MASK),
    "where_after": (
        lambda *args: torch.where(args[3], _raw(*args), 0.0),
        losses.WHERE_AFTER,
    ),
    "attached": (_attached, losses.ATTACHED),
    "detach": (lambda *args: reference(*args).detach(), losses.DETACHED),
    "divided_by_A": (losses.divided(reference), losses.DIVIDED),
} | slips.SAPO


def cases(generator: Generator) -> list[Case]:
    draw = losses.drawn
    return [
        Case("example", losses.BY_HAND, (*losses.HAND, 1.0, 2.0)),
        Case("property", losses.AGREE, (*losses.unmoved(generator), 1.0, 1.5)),
        Case("inputs", RANDOM, (*draw(generator), 1.0, 1.3)),
        Case("inputs", RANDOM, (*draw(generator, rows=6, columns=14), 3.0, 2.0)),
        Case("padding", NAN, (*draw(generator, padding="nan"), 1.0, 1.3)),
        Case("padding", INF, (*draw(generator, padding="inf"), 1.5, 2.0)),
        Case("gradient", GRADIENT, (*draw(generator, padding="nan"), 1.0, 1.5)),
        Case("numbers", losses.ONE, (*losses.one_token(generator), 2.0, 1.0)),
        Case("numbers", losses.FAR, (*losses.apart(generator), 1.0, 1.3)),
    ]


EXERCISE = Exercise(
    name="sapo_loss",
    title=Words(en="SAPO's soft gate", zh="SAPO 的软门"),
    reference=reference,
    returns=("loss",),
    cases=cases,
    mistakes=MISTAKES,
    alternatives={"tanh": _by_tanh, "loops": _by_loops},
    hints=(
        Words(
            en="It is PPO's loss with one part exchanged: a smooth function of the ratio "
            "where the clip was.",
            zh="与 PPO 的损失只有一处不同：原来裁剪的地方换成比值的一个光滑函数。",
        ),
        Words(
            en="tau by the sign of A, the gate 4 / tau times sigmoid(tau (r - 1)), then "
            "times -A.",
            zh="按 A 的符号取 tau；软门是 4 / tau 乘 sigmoid(tau (r - 1))；再乘 -A。",
        ),
        Words(
            en="`tau = torch.where(A > 0, tau_pos, tau_neg)`, "
            "`-4 / tau * torch.sigmoid(tau * (r - 1)) * A`, with the log ratio cleaned "
            "before exp and 0 in the padding.",
            zh="用 `tau = torch.where(A > 0, tau_pos, tau_neg)` 和 "
            "`-4 / tau * torch.sigmoid(tau * (r - 1)) * A`；exp 之前清理对数比值，padding "
            "置 0。",
        ),
    ),
    points=(1, 2),
    minutes=7,
    gradient=("logp",),
    data=("logp_old",),
)
