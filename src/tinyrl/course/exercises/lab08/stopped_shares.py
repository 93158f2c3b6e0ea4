"""Whom the clip stops: the share of good tokens and the share of bad ones."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Generator, Tensor

from tinyrl.course.exercise import Case, Exercise, Function, Mistakes
from tinyrl.course.exercises.lab01.batch import INF, NAN, RANDOM
from tinyrl.course.exercises.lab08 import losses, slips
from tinyrl.course.exercises.lab08.losses import log_ratio
from tinyrl.course.words import Words

Pair = tuple[Tensor, Tensor]


def _share(some: Tensor, of: Tensor) -> Tensor:
    return (some & of).sum().double() / of.sum().clamp(min=1)


def _sides(A: Tensor, mask: Tensor) -> Pair:
    return (A[:, None] > 0) & mask, (A[:, None] < 0) & mask


def reference(
    logp: Tensor,
    logp_old: Tensor,
    advantages: Tensor,
    mask: Tensor,
    eps_low: float,
    eps_high: float,
) -> Pair:
    r = log_ratio(logp, logp_old, mask).exp()
    good, bad = _sides(advantages, mask)
    return _share(r > 1 + eps_high, good), _share(r < 1 - eps_low, bad)


def _by_loops(
    logp: Tensor,
    logp_old: Tensor,
    advantages: Tensor,
    mask: Tensor,
    eps_low: float,
    eps_high: float,
) -> tuple[float, float]:
    seen: dict[bool, list[bool]] = {True: [], False: []}
    for b, A in enumerate(advantages.tolist()):
        for t in range(mask.shape[1]):
            if mask[b, t] and A != 0:
                r = math.exp(float(logp[b, t]) - float(logp_old[b, t]))
                seen[A > 0].append(r > 1 + eps_high if A > 0 else r < 1 - eps_low)
    good, bad = (sum(x) / len(x) if x else 0.0 for x in (seen[True], seen[False]))
    return good, bad


def _by_objective(
    logp: Tensor,
    logp_old: Tensor,
    advantages: Tensor,
    mask: Tensor,
    eps_low: float,
    eps_high: float,
) -> Pair:
    """Where the clipped term is the smaller one."""
    A = advantages[:, None].expand(mask.shape)[mask]
    r = (logp[mask] - logp_old[mask]).exp()
    stopped = r.clamp(1 - eps_low, 1 + eps_high) * A < r * A
    good, bad = (stopped[side].double() for side in (A > 0, A < 0))
    zero = torch.zeros((), dtype=torch.float64)
    return good.mean() if len(good) else zero, bad.mean() if len(bad) else zero


def _of(choose: Callable[[Tensor, float, float], Pair]) -> Function:
    """Shares of what `choose` picks by ratio and widths, for good and for bad tokens."""

    def wrong(
        logp: Tensor,
        logp_old: Tensor,
        advantages: Tensor,
        mask: Tensor,
        eps_low: float,
        eps_high: float,
    ) -> Pair:
        r = log_ratio(logp, logp_old, mask).exp()
        pairs = zip(choose(r, eps_low, eps_high), _sides(advantages, mask), strict=True)
        first, second = (_share(some, of) for some, of in pairs)
        return first, second

    return wrong


def _scaled(*args: Tensor, by: Callable[[Tensor, Tensor], Tensor]) -> Pair:
    """The counts divided by another number: `by` of the mask and one side."""
    counts = zip(reference(*args), _sides(args[2], args[3]), strict=True)  # type: ignore[arg-type]
    first, second = (share * side.sum() / by(args[3], side) for share, side in counts)
    return first, second


def _row_means(*args: Tensor) -> Pair:
    logp, old, A, mask, *widths = args
    each = [
        reference(logp[[b]], old[[b]], A[[b]], mask[[b]], *widths)[int(A[b] < 0)]  # type: ignore[arg-type]
        for b in range(len(A))
        if A[b] != 0
    ]
    sides = [[s for s, a in zip(each, A[A != 0], strict=True) if (a < 0) == bad]
             for bad in (False, True)]  # fmt: skip
    first, second = (torch.stack(x).mean() if x else torch.zeros(()) for x in sides)
    return first, second


def _no_guard(*args: Tensor) -> Pair:
    return _scaled(*args, by=lambda mask, side: side.sum())


def _zero_is_bad(*args: Tensor) -> Pair:
    logp, old, A, *rest = args
    A = torch.where(A == 0, -1.0, A)
    return reference(logp, old, A, *rest)  # type: ignore[arg-type]


def _padded(*args: Tensor) -> Pair:
    logp, old, A, mask, *widths = args
    return reference(logp, old, A, torch.ones_like(mask), *widths)  # type: ignore[arg-type]


MISTAKES: Mistakes = {
    "of_all": (
        lambda *args: _scaled(*args, by=lambda mask, side: mask.sum()),
        Words(
            en="You divide both counts by all tokens, as a clip fraction does. Whom the "
            "clip stops is seen when each is a share of its own kind: good tokens of good "
            "ones, bad of bad ones.",
            zh="两个计数你都除以了全部 token，那是裁剪比例。要看谁被裁剪了，应当各除以自"
            "己那一类：好的除以好的，坏的除以坏的。",
        ),
    ),
    "of_columns": (
        lambda *args: _scaled(
            *args, by=lambda mask, side: side.any(1).sum() * mask.shape[1]
        ),
        Words(
            en="You divide by all columns of the responses, padding included.",
            zh="你除以了这些回答的全部列数，包含 padding。",
        ),
    ),
    "at_the_border": (
        _of(lambda r, low, high: (r >= 1 + high, r <= 1 - low)),
        Words(
            en="A ratio on the border counts as stopped. Above is above: `>`, and `<`.",
            zh="恰好在边界上的比值也被算作裁剪。要严格大于 `>`、严格小于 `<`。",
        ),
    ),
    "either_side": (
        _of(lambda r, low, high: ((r > 1 + high) | (r < 1 - low),) * 2),
        Words(
            en="You count ratios outside on either side. A good token is stopped only "
            "above 1 + eps_high, a bad one only below 1 - eps_low.",
            zh="你把两侧之外的都算上了。好的 token 只在高于 1 + eps_high 时被裁剪，坏的只在"
            "低于 1 - eps_low 时。",
        ),
    ),
    "wrong_side": (
        _of(lambda r, low, high: (r < 1 - low, r > 1 + high)),
        Words(
            en="The sides are swapped. With A > 0 the ratio is pushed up, and is stopped "
            "above; on the other side it must stay free.",
            zh="两侧写反了。A > 0 时比值被推高，在上方被裁剪；另一侧必须保持自由。",
        ),
    ),
    "log_space": (
        _of(lambda r, low, high: (r.log() > high, r.log() < -low)),
        Words(
            en="You compare the log ratio with the widths. The band is one of the ratio.",
            zh="你拿对数比值与宽度比较。区间是比值的。",
        ),
    ),
    "widths_swapped": (
        _of(lambda r, low, high: (r > 1 + low, r < 1 - high)),
        Words(
            en="The widths are swapped: 1 + eps_high above, 1 - eps_low below.",
            zh="两个宽度用反了：上方是 1 + eps_high，下方是 1 - eps_low。",
        ),
    ),
    "inverted": (
        lambda new, old, *rest: reference(old, new, *rest),
        losses.INVERTED,
    ),
    "moved": (
        lambda *args: (reference(*args)[1], reference(*args)[0]),
        Words(
            en="The two are returned in the wrong order: good tokens first.",
            zh="返回的顺序反了：先是好的 token。",
        ),
    ),
    "kept": (
        lambda *args: tuple(1 - share for share in reference(*args)),
        Words(
            en="These are the shares that are not stopped.",
            zh="这是没有被裁剪的比例。",
        ),
    ),
    "row_means": (
        _row_means,
        Words(
            en="You average each response first, so tokens of short ones weigh more. Here "
            "each token counts the same.",
            zh="你先在每条回答内取平均，短回答的 token 权重更大。这里每个 token 权重相同。",
        ),
    ),
    "padded": (
        _padded,
        Words(
            en="The padding is counted. Use the mask.",
            zh="把 padding 也算进去了。请用 mask。",
        ),
    ),
    "zero_is_bad": (
        _zero_is_bad,
        Words(
            en="A response with advantage 0 is counted as bad. It is pushed nowhere, so "
            "nothing of it can be stopped: it belongs to neither.",
            zh="advantage 为 0 的回答被算成了坏的。它不被推向任何方向，也就谈不上被裁剪：两"
            "类都不属于。",
        ),
    ),
    "no_guard": (
        _no_guard,
        Words(
            en="Where no response is good, or none is bad, you divide 0 by 0. Return 0.",
            zh="没有好的回答（或没有坏的）时，你用 0 除以 0。应当返回 0。",
        ),
    ),
} | slips.STOPPED

ANCHORED = Words(
    en="before the first update every ratio is 1: no band is too narrow, even of width 0",
    zh="第一次更新之前比值都是 1：区间再窄（宽度为 0）也没有 token 被裁剪",
)
ZERO = Words(en="two responses have advantage 0", zh="有两条回答的 advantage 为 0")
ALL_GOOD = Words(en="every response is good", zh="每条回答都是好的")
ONE_EACH = Words(
    en="one good token and one bad one, both stopped",
    zh="好坏 token 各一个，都被裁剪",
)
ALL_BAD = Words(en="every response is bad", zh="每条回答都是坏的")


def _one_each(generator: Generator) -> losses.Drawn:
    """One good token and one bad one, both stopped."""
    x = losses.one_token(generator)
    A = torch.where(torch.arange(4) < 2, losses.SIGNS.repeat(2), 0.0)
    d = torch.where(A > 0, 0.4, -0.4)[:, None] * (1 + torch.rand(4, 1, generator=generator))
    return x._replace(logp=x.logp - 1, logp_old=x.logp - 1 - d, advantages=A)


def cases(generator: Generator) -> list[Case]:
    draw = losses.drawn
    zero = draw(generator, 0.2, 0.28, rows=7)
    zero.advantages[[1, 4]] = 0.0
    good, bad = draw(generator, 0.2, 0.3), draw(generator, 0.1, 0.3)
    good = good._replace(advantages=good.advantages.abs())
    bad = bad._replace(advantages=-bad.advantages.abs())
    return [
        Case("example", losses.BY_HAND, (*losses.HAND, 0.2, 0.3)),
        Case("property", ANCHORED, (*losses.unmoved(generator), 0.0, 0.0)),
        Case("inputs", RANDOM, (*draw(generator, 0.2, 0.3), 0.2, 0.3)),
        Case("inputs", RANDOM, (*draw(generator, 0.3, 0.15, rows=6), 0.3, 0.15)),
        Case("inputs", ZERO, (*zero, 0.2, 0.28)),
        Case("padding", NAN, (*draw(generator, 0.2, 0.3, padding="nan"), 0.2, 0.3)),
        Case("padding", INF, (*draw(generator, 0.1, 0.2, padding="inf"), 0.1, 0.2)),
        Case("numbers", ALL_GOOD, (*good, 0.2, 0.3)),
        Case("numbers", ALL_BAD, (*bad, 0.1, 0.3)),
        Case("numbers", ONE_EACH, (*_one_each(generator), 0.1, 0.25)),
        Case("numbers", losses.NEAR, (*losses.near(generator, 0.2, 0.3), 0.2, 0.3)),
    ]


EXERCISE = Exercise(
    name="stopped_shares",
    title=Words(en="Whom the clip stops", zh="谁被裁剪了"),
    reference=reference,
    returns=("good", "bad"),
    cases=cases,
    mistakes=MISTAKES,
    alternatives={"loops": _by_loops, "by_objective": _by_objective},
    hints=(
        Words(
            en="Two questions, each with its own denominator. At which border is a token "
            "stopped that is pushed up?",
            zh="两个问题，各有各的分母。被推高的 token 在哪个边界被裁剪？",
        ),
        Words(
            en="Good tokens: A > 0 and real; of these, r > 1 + eps_high. Bad ones: A < 0; "
            "r < 1 - eps_low. 0 where there are none.",
            zh="好的 token：A > 0 且真实，其中 r > 1 + eps_high。坏的：A < 0，其中"
            " r < 1 - eps_low。没有时为 0。",
        ),
        Words(
            en="`good = (advantages[:, None] > 0) & mask`, then "
            "`((r > 1 + eps_high) & good).sum() / good.sum().clamp(min=1)`.",
            zh="先 `good = (advantages[:, None] > 0) & mask`，再 "
            "`((r > 1 + eps_high) & good).sum() / good.sum().clamp(min=1)`。",
        ),
    ),
    points=(1, 2),
    minutes=7,
    exact=True,
)
