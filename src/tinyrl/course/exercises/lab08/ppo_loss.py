"""PPO's clipped loss of each token, with dual clip."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Generator, Tensor

from tinyrl.course.exercise import Case, Exercise, Function, Mistakes
from tinyrl.course.exercises.lab01.batch import GRADIENT, INF, NAN, RANDOM
from tinyrl.course.exercises.lab08 import losses, slips
from tinyrl.course.exercises.lab08.losses import log_ratio
from tinyrl.course.words import Words


def _dual(loss: Tensor, A: Tensor, c: float) -> Tensor:
    return torch.where(A < 0, torch.minimum(loss, -c * A), loss)


def _plain(r: Tensor, A: Tensor, low: float, high: float) -> Tensor:
    return torch.maximum(-r * A, -r.clamp(1 - low, 1 + high) * A)


def _loss(r: Tensor, A: Tensor, low: float, high: float, dual: float) -> Tensor:
    return _dual(_plain(r, A, low, high), A, dual)


def reference(
    logp: Tensor,
    logp_old: Tensor,
    advantages: Tensor,
    mask: Tensor,
    eps_low: float,
    eps_high: float,
    dual: float,
) -> Tensor:
    r = log_ratio(logp, logp_old, mask).exp()
    loss = _loss(r, advantages[:, None], eps_low, eps_high, dual)
    return torch.where(mask, loss, 0.0)


def _capped(
    logp: Tensor,
    logp_old: Tensor,
    advantages: Tensor,
    mask: Tensor,
    eps_low: float,
    eps_high: float,
    dual: float,
) -> Tensor:
    """A cap on the ratio does what dual clip does: where A > 0 it was clipped before."""
    A = advantages.unsqueeze(-1)
    r = log_ratio(logp, logp_old, mask).exp().clamp(max=dual)
    objective = torch.minimum(r * A, r.clamp(1 - eps_low, 1 + eps_high) * A)
    return (-objective).masked_fill(~mask, 0.0)


def _by_side(
    logp: Tensor,
    logp_old: Tensor,
    advantages: Tensor,
    mask: Tensor,
    eps_low: float,
    eps_high: float,
    dual: float,
) -> Tensor:
    """Each response for itself: only one border counts, and the other side is free."""
    out = torch.zeros_like(logp)
    for b, A in enumerate(advantages.tolist()):
        r = (logp[b][mask[b]] - logp_old[b][mask[b]].detach()).exp()
        r = r.clamp(max=1 + eps_high) if A > 0 else r.clamp(1 - eps_low, dual)
        out[b, mask[b]] = -r * A
    return out


def _of(loss: Callable[[Tensor, Tensor, float, float, float], Tensor]) -> Function:
    """The same with another `loss` of ratio, advantage, widths and dual."""

    def wrong(
        logp: Tensor,
        logp_old: Tensor,
        advantages: Tensor,
        mask: Tensor,
        eps_low: float,
        eps_high: float,
        dual: float,
    ) -> Tensor:
        r, A = log_ratio(logp, logp_old, mask).exp(), advantages[:, None]
        return torch.where(mask, loss(r, A, eps_low, eps_high, dual), 0.0)

    return wrong


def _raw(*args: Tensor) -> Tensor:
    """Nothing cleaned."""
    logp, old, A, _, *widths = args
    return _loss((logp - old.detach()).exp(), A[:, None], *widths)  # type: ignore[arg-type]


def _attached(*args: Tensor) -> Tensor:
    logp, old, A, mask, *widths = args
    r = torch.where(mask, logp - old, 0.0).exp()
    return torch.where(mask, _loss(r, A[:, None], *widths), 0.0)  # type: ignore[arg-type]


def _optimistic(r: Tensor, A: Tensor, low: float, high: float, dual: float) -> Tensor:
    return _dual(torch.minimum(-r * A, -r.clamp(1 - low, 1 + high) * A), A, dual)


def _log_space(r: Tensor, A: Tensor, low: float, high: float, dual: float) -> Tensor:
    banded = r.log().clamp(-low, high).exp()
    return _dual(torch.maximum(-r * A, -banded * A), A, dual)


def _through(r: Tensor, A: Tensor, low: float, high: float, dual: float) -> Tensor:
    """The right number, as if no clip had been: every token keeps its gradient."""
    plain = -r * A
    return plain + (_loss(r, A, low, high, dual) - plain).detach()


MISTAKES: Mistakes = {
    "sign": (lambda *args: -reference(*args), losses.SIGN),
    "optimistic": (
        _of(_optimistic),
        Words(
            en="You take the better of the two. PPO is pessimistic: the objective takes "
            "the minimum, so the loss takes the maximum.",
            zh="你取了两项中较好的一项。PPO 是悲观的：目标取最小值，所以损失取最大值。",
        ),
    ),
    "clipped_only": (
        _of(lambda r, A, low, high, c: _dual(-r.clamp(1 - low, 1 + high) * A, A, c)),
        Words(
            en="You clip on both sides, whatever the advantage. A token that has moved the "
            "wrong way must keep its gradient, to come back: that is what the minimum with "
            "the unclipped term is for.",
            zh="你不看 advantage，两侧都裁剪了。朝错误方向移动的 token 必须保留梯度才能回来"
            "：与未裁剪项取最小值正是为此。",
        ),
    ),
    "unclipped": (
        _of(lambda r, A, low, high, c: _dual(-r * A, A, c)),
        Words(
            en="Nothing is clipped at 1 - eps_low and 1 + eps_high.",
            zh="没有在 1 - eps_low 和 1 + eps_high 处裁剪。",
        ),
    ),
    "low_twice": (
        _of(lambda r, A, low, high, c: _loss(r, A, low, low, c)),
        Words(
            en="eps_low is used on both sides. The upper border is 1 + eps_high: DAPO's "
            "clip-higher sets it apart.",
            zh="两侧都用了 eps_low。上界是 1 + eps_high，DAPO 的 clip-higher 就靠它。",
        ),
    ),
    "high_twice": (
        _of(lambda r, A, low, high, c: _loss(r, A, high, high, c)),
        Words(
            en="eps_high is used on both sides. The lower border is 1 - eps_low.",
            zh="两侧都用了 eps_high。下界是 1 - eps_low。",
        ),
    ),
    "swapped": (
        _of(lambda r, A, low, high, c: _loss(r, A, high, low, c)),
        Words(
            en="The two widths are swapped: 1 - eps_low below, 1 + eps_high above.",
            zh="两个宽度用反了：下方是 1 - eps_low，上方是 1 + eps_high。",
        ),
    ),
    "log_space": (
        _of(_log_space),
        Words(
            en="You clip the log ratio to [-eps_low, eps_high]. The band is one of the "
            "ratio: 1 - eps_low to 1 + eps_high.",
            zh="你把对数比值裁剪到 [-eps_low, eps_high]。区间是比值的：1 - eps_low 到"
            " 1 + eps_high。",
        ),
    ),
    "inverted": (
        lambda new, old, A, mask, low, high, c: reference(old, new, A, mask, low, high, c),
        losses.INVERTED,
    ),
    "no_dual": (
        _of(lambda r, A, low, high, c: _plain(r, A, low, high)),
        Words(
            en="Dual clip is missing: where A < 0 the loss grows with the ratio without "
            "end. It is at most -dual * A.",
            zh="缺少 dual clip：A < 0 时损失会随比值无限增长。它至多为 -dual * A。",
        ),
    ),
    "dual_always": (
        _of(lambda r, A, low, high, c: _plain(r, A, low, high).minimum(-c * A)),
        Words(
            en="Dual clip is for A < 0 alone. With A > 0, -dual * A is the smaller one and "
            "always wins.",
            zh="dual clip 只用于 A < 0。A > 0 时 -dual * A 总是更小，会一直取它。",
        ),
    ),
    "dual_width": (
        _of(lambda r, A, low, high, c: _loss(r, A, low, high, 1 + c)),
        Words(
            en="`dual` bounds the ratio itself, it is no width: dual, not 1 + dual.",
            zh="`dual` 是比值本身的上界，不是宽度：用 dual，而不是 1 + dual。",
        ),
    ),
    "dual_unsigned": (
        _of(lambda r, A, low, high, c: _loss(r, A, low, high, -c)),
        Words(
            en="The bound of dual clip has the wrong sign: with A < 0, c * A is a gain. "
            "The loss is at most -c * A, which is above 0.",
            zh="dual clip 的界符号错了：A < 0 时 c * A 是收益。损失至多为 -c * A，它大于 0"
            "。",
        ),
    ),
    "dual_maximum": (
        _of(lambda r, A, low, high, c: -_dual(-_plain(r, A, low, high), A, -c)),
        Words(
            en="With A < 0 you take the larger of the loss and -dual * A: every bad token "
            "gets at least that. It is a bound from above: the smaller one.",
            zh="A < 0 时你取了损失与 -dual * A 中较大的。后者是上界，应当取较小的。",
        ),
    ),
    "objective": (
        _of(lambda r, A, low, high, c: -_plain(r, A, low, high)),
        Words(
            en="This is the objective, which is to be large, and dual clip is missing. The "
            "loss is its negative, at most -dual * A where A < 0.",
            zh="这是要变大的目标，还缺 dual clip。损失是它的相反数，至多 -dual * A。",
        ),
    ),
    "through": (
        _of(_through),
        Words(
            en="The values are right, but the clip stops no gradient: a token outside the "
            "band must get none.",
            zh="数值正确，但裁剪没有使梯度为 0：区间之外的 token 不应有梯度。",
        ),
    ),
    "mean": (
        lambda *args: reference(*args)[args[3]].mean(),
        Words(
            en="This is the mean already. Asked for is the loss of each token: how to "
            "average comes later.",
            zh="这已经是平均值。题目要的是每个 token 的损失：怎样平均是后面的事。",
        ),
    ),
    "padded": (
        lambda *args: _of(_loss)(*args[:3], torch.ones_like(args[3]), *args[4:]),
        losses.PADDED,
    ),
    "padding_left": (  # a ratio of 1 stands there
        lambda *args: torch.where(args[3], reference(*args), -args[2][:, None]),
        losses.PADDING_LEFT,
    ),
    "times_mask": (lambda *args: _raw(*args) * args[3], losses.TIMES_MASK),
    "where_after": (
        lambda *args: torch.where(args[3], _raw(*args), 0.0),
        losses.WHERE_AFTER,
    ),
    "attached": (_attached, losses.ATTACHED),
    "detach": (lambda *args: reference(*args).detach(), losses.DETACHED),
    "divided_by_A": (losses.divided(reference), losses.DIVIDED),
} | slips.PPO

WIDER = Words(en="another band: DAPO's clip-higher", zh="另一个区间：DAPO 的 clip-higher")
SATURATED = Words(en="ratios above dual", zh="比值超过 dual")


def cases(generator: Generator) -> list[Case]:
    narrow, usual, higher = (0.1, 0.2, 3.0), (0.2, 0.3, 2.5), (0.2, 0.28, 10.0)
    draw = losses.drawn
    return [
        Case("example", losses.BY_HAND, (*losses.HAND, 0.2, 0.3, 3.0)),
        Case("property", losses.AGREE, (*losses.unmoved(generator), *usual)),
        Case("inputs", RANDOM, (*draw(generator, 0.2, 0.3), *usual)),
        Case("inputs", WIDER, (*draw(generator, 0.2, 0.28, far=2.8), *higher)),
        Case("inputs", SATURATED, (*draw(generator, 0.1, 0.2, rows=6), *narrow)),
        Case("padding", NAN, (*draw(generator, 0.2, 0.3, padding="nan"), *usual)),
        Case("padding", INF, (*draw(generator, 0.1, 0.2, padding="inf"), *narrow)),
        Case("gradient", GRADIENT, (*draw(generator, 0.2, 0.3, padding="nan"), *usual)),
        Case("numbers", losses.ONE, (*losses.one_token(generator), 0.1, 0.25, 3.0)),
        Case("numbers", losses.FAR, (*losses.apart(generator), *usual)),
    ]


EXERCISE = Exercise(
    name="ppo_loss",
    title=Words(en="PPO's clipped loss", zh="PPO 的裁剪损失"),
    reference=reference,
    returns=("loss",),
    cases=cases,
    mistakes=MISTAKES,
    alternatives={"capped": _capped, "by_side": _by_side},
    hints=(
        Words(
            en="Two candidates for each token, with the ratio and with the clipped ratio. "
            "Which of them is the worse news?",
            zh="每个 token 有两个候选：用比值，或用裁剪后的比值。哪一个更悲观？",
        ),
        Words(
            en="The maximum of -r A and -clamp(r) A. Then, only where A < 0, at most "
            "-dual * A. Clean the log ratio before exp.",
            zh="取 -r A 与 -clamp(r) A 的最大值；然后仅在 A < 0 处，不超过 -dual * A。exp "
            "之前先清理对数比值。",
        ),
        Words(
            en="`r = torch.where(mask, logp - logp_old.detach(), 0.0).exp()`, "
            "`loss = torch.maximum(-r * A, -r.clamp(...) * A)`, "
            "`torch.where(A < 0, loss.clamp(max=-dual * A), loss)`.",
            zh="先 `r = torch.where(mask, logp - logp_old.detach(), 0.0).exp()`，再 "
            "`loss = torch.maximum(-r * A, -r.clamp(...) * A)`，最后 "
            "`torch.where(A < 0, loss.clamp(max=-dual * A), loss)`。",
        ),
    ),
    points=(1, 3),
    minutes=10,
    gradient=("logp",),
    data=("logp_old",),
)
