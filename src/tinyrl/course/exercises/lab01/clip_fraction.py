"""The share of tokens whose gradient PPO's clip stops: the first alarm in most logs."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Generator, Tensor

from tinyrl.course.exercise import Case, Exercise, Function, Mistakes
from tinyrl.course.exercises.lab01 import batch
from tinyrl.course.words import Words


def _ratio(logp_train: Tensor, logp_old: Tensor, mask: Tensor) -> Tensor:
    return torch.where(mask, logp_train - logp_old, 0.0).exp()


def _share(chosen: Tensor, mask: Tensor) -> Tensor:
    return (chosen & mask).sum() / mask.sum()


def reference(
    logp_train: Tensor, logp_old: Tensor, advantages: Tensor, mask: Tensor, eps: float
) -> Tensor:
    r, a = _ratio(logp_train, logp_old, mask), advantages[:, None]
    return _share(((a > 0) & (r > 1 + eps)) | ((a < 0) & (r < 1 - eps)), mask)


def _by_objective(
    logp_train: Tensor, logp_old: Tensor, advantages: Tensor, mask: Tensor, eps: float
) -> Tensor:
    """A token is clipped where the minimum takes the clipped term."""
    r, a = _ratio(logp_train, logp_old, mask), advantages.unsqueeze(1)
    return (r.clamp(1 - eps, 1 + eps) * a < r * a)[mask].double().mean()


def _by_loops(
    logp_train: Tensor, logp_old: Tensor, advantages: Tensor, mask: Tensor, eps: float
) -> float:
    clipped = tokens = 0
    for b, a in enumerate(advantages.tolist()):
        for new, old, real in zip(logp_train[b], logp_old[b], mask[b], strict=True):
            if real:
                r = math.exp(float(new) - float(old))
                tokens += 1
                clipped += (a > 0 and r > 1 + eps) or (a < 0 and r < 1 - eps)
    return clipped / tokens


def _of(choose: Callable[[Tensor, Tensor, float], Tensor]) -> Function:
    """The share of the tokens that `choose` picks by ratio, advantage and eps."""

    def wrong(
        logp_train: Tensor, logp_old: Tensor, advantages: Tensor, mask: Tensor, eps: float
    ) -> Tensor:
        r = _ratio(logp_train, logp_old, mask)
        return _share(choose(r, advantages[:, None], eps), mask)

    return wrong


def _log_space(r: Tensor, a: Tensor, eps: float) -> Tensor:
    return ((a > 0) & (r.log() > eps)) | ((a < 0) & (r.log() < -eps))


def _inverted(
    logp_train: Tensor, logp_old: Tensor, advantages: Tensor, mask: Tensor, eps: float
) -> Tensor:
    return reference(logp_old, logp_train, advantages, mask, eps)


def _all_columns(
    logp_train: Tensor, logp_old: Tensor, advantages: Tensor, mask: Tensor, eps: float
) -> Tensor:
    clipped = reference(logp_train, logp_old, advantages, mask, eps) * mask.sum()
    return clipped / mask.numel()


def _padding_counted(
    logp_train: Tensor, logp_old: Tensor, advantages: Tensor, mask: Tensor, eps: float
) -> Tensor:
    return reference(logp_train, logp_old, advantages, torch.ones_like(mask), eps)


def _nonzero(
    logp_train: Tensor, logp_old: Tensor, advantages: Tensor, mask: Tensor, eps: float
) -> Tensor:
    some = mask & (logp_train != logp_old)
    return reference(logp_train, logp_old, advantages, some, eps)


def _row_means(
    logp_train: Tensor, logp_old: Tensor, advantages: Tensor, mask: Tensor, eps: float
) -> Tensor:
    rows = range(len(mask))
    batches = [(logp_train[[b]], logp_old[[b]], advantages[[b]], mask[[b]]) for b in rows]
    return torch.stack([reference(*one, eps) for one in batches]).mean()


def _fixed_eps(
    logp_train: Tensor, logp_old: Tensor, advantages: Tensor, mask: Tensor, eps: float
) -> Tensor:
    return reference(logp_train, logp_old, advantages, mask, 0.2)


MISTAKES: Mistakes = {
    "either_side": (
        _of(lambda r, a, eps: (r > 1 + eps) | (r < 1 - eps)),
        Words(
            en="You count every ratio outside [1 - eps, 1 + eps], whatever the advantage. "
            "PPO takes a minimum: with A > 0 only a ratio above 1 + eps is stopped, with A "
            "< 0 only one below 1 - eps.",
            zh="你把所有落在 [1 - eps, 1 + eps] 之外的比值都算上了，没有看 advantage。PPO "
            "取的是最小值：A > 0 时只有高于 1 + eps 的会被裁剪，A < 0 时只有低于"
            " 1 - eps 的会。",
        ),
    ),
    "at_the_border": (
        _of(lambda r, a, eps: (a > 0) & (r >= 1 + eps) | (a < 0) & (r <= 1 - eps)),
        Words(
            en="A ratio on the border counts as clipped. There the two terms are equal, "
            "and the clipped one is not the smaller: `>`, and `<`.",
            zh="恰在边界上的比值也被算作裁剪了。那里两项相等，裁剪项并不更小：应当用 `>` 和"
            " `<`。",
        ),
    ),
    "upper_only": (
        _of(lambda r, a, eps: (a > 0) & (r > 1 + eps)),
        Words(
            en="Tokens with a negative advantage are missing: they are clipped where the "
            "ratio falls below 1 - eps.",
            zh="漏掉了 advantage 为负的 token：它们在比值低于 1 - eps 时被裁剪。",
        ),
    ),
    "wrong_side": (
        _of(lambda r, a, eps: ((a < 0) & (r > 1 + eps)) | ((a > 0) & (r < 1 - eps))),
        Words(
            en="The sides are swapped. With A > 0 the update pushes the ratio up, so the "
            "clip stops it above 1 + eps; the other side must stay free to come back.",
            zh="两侧写反了。A > 0 时更新会推高比值，所以裁剪在 1 + eps 之上；另一侧必须能"
            "自由地回来。",
        ),
    ),
    "inverted": (
        _inverted,
        Words(
            en="The ratio is upside down: pi_train / pi_old, exp(logp_train - logp_old).",
            zh="比值倒过来了：应当是 pi_train / pi_old，即 exp(logp_train - logp_old)。",
        ),
    ),
    "log_space": (
        _of(_log_space),
        Words(
            en="You compare delta with eps in log space. The clip is on the ratio: "
            "log(1.2) is 0.182 and log(0.8) is -0.223, not 0.2 and -0.2.",
            zh="你在对数空间里拿 delta 和 eps 比。裁剪作用在比值上：log(1.2) = 0.182，"
            "log(0.8) = -0.223，都不是 ±0.2。",
        ),
    ),
    "all_columns": (
        _all_columns,
        Words(
            en="You divide by B * T, padding included. A fraction of tokens is of real "
            "tokens.",
            zh="你除以了 B * T，包含 padding。应当是占真实 token 的比例。",
        ),
    ),
    "padding_counted": (
        _padding_counted,
        Words(
            en="The padding is counted: its garbage gives ratios of its own. Use the mask.",
            zh="把 padding 也算进去了：垃圾值也会产生比值。请用 mask。",
        ),
    ),
    "nonzero_counted": (_nonzero, batch.NONZERO),
    "row_means": (
        _row_means,
        Words(
            en="You average each response first, so tokens of short responses weigh more. "
            "Here each real token counts the same.",
            zh="你先在每条回答内取平均，短回答的 token 权重更大。这里每个真实 token 权重相"
            "同。",
        ),
    ),
    "count": (
        lambda *args: reference(*args) * args[3].sum(),
        Words(
            en="This is a count of tokens; divide by the number of real tokens.",
            zh="这是 token 的个数，还要除以真实 token 数。",
        ),
    ),
    "kept": (
        lambda *args: 1 - reference(*args),
        Words(
            en="This is the share of tokens that are not clipped.",
            zh="这是没有被裁剪的 token 的比例。",
        ),
    ),
    "fixed_eps": (
        _fixed_eps,
        Words(
            en="The clip range is fixed at 0.2 here; use the argument eps.",
            zh="裁剪范围写死成了 0.2，应当用参数 eps。",
        ),
    ),
}

BY_HAND = Words(
    en="two responses, advantages +1 and -1, eps 0.2",
    zh="两条回答，advantage 为 +1 和 -1，eps = 0.2",
)
ANCHORED = Words(
    en="the right anchor before the first update: nothing is clipped",
    zh="第一次更新前用正确的锚：没有任何 token 被裁剪",
)
WIDER = Words(en="another clip range", zh="另一个裁剪范围")
ZERO = Words(
    en="a response with advantage 0 is never clipped",
    zh="advantage 为 0 的回答不会被裁剪",
)

Inputs = tuple[Tensor, Tensor, Tensor, Tensor, float]


def _draw(
    generator: Generator,
    eps: float,
    padding: batch.Padding,
    *,
    rows: int = 4,
    columns: int = 12,
) -> Inputs:
    """Inputs whose log ratios stay away from both bounds, in ratio and in log space.

    Every row has tokens on each side of each bound, between log(1 +- eps) and +-eps, and
    one of the same logprob on both sides, which is 0 in the first row.
    """
    mask = batch.mask_of(generator, rows, columns)
    up, down = math.log(1 + eps), math.log(1 - eps)
    between = torch.tensor([(up + eps) / 2, (down - eps) / 2])
    outside = torch.tensor([1.8 * eps, 1.6 * down, 1.5 * eps])
    places = torch.cat([between, outside, torch.tensor([0.3 * up, 0.4 * down, 0.0])])
    picks = torch.randint(len(places), (rows, columns), generator=generator)
    picks[:, :5] = torch.tensor([0, 1, 2, 3, 7])
    train = batch.uniform(generator, (rows, columns), -4.0, -1.5)
    train[0, 4] = 0.0
    old = train - places[picks]
    advantages = torch.tensor([1.2, -0.7, 0.4, -1.5, 0.9, -0.2])[:rows]
    advantages = advantages[torch.randperm(rows, generator=generator)]
    train = batch.garbage(generator, train, mask, padding)
    return train, batch.garbage(generator, old, mask, padding), advantages, mask, eps


def cases(generator: Generator) -> list[Case]:
    old = torch.tensor([[-1.0, -1.0, -2.0, -2.0], [-1.5, -1.5, -3.0, 0.0]])
    delta = torch.tensor([[0.5, -0.5, 0.1, 0.3], [0.5, -0.5, -0.1, 0.0]])
    mask = torch.tensor([[True] * 4, [True, True, True, False]])
    signs = torch.tensor([1.0, -1.0])
    same, _, advantages, same_mask, _ = _draw(generator, 0.2, "finite")
    zero = _draw(generator, 0.2, "finite")
    zero[2][0] = 0.0
    return [
        Case("example", BY_HAND, (old + delta, old, signs, mask, 0.2)),
        Case("property", ANCHORED, (same, same, advantages, same_mask, 0.0)),
        Case("property", ZERO, zero),
        Case("inputs", batch.RANDOM, _draw(generator, 0.2, "finite")),
        Case("inputs", WIDER, _draw(generator, 0.3, "finite", rows=6)),
        Case("padding", batch.NAN, _draw(generator, 0.2, "nan")),
        Case("padding", batch.INF, _draw(generator, 0.2, "inf")),
        Case("numbers", batch.LONG, _draw(generator, 0.2, "finite", columns=500)),
    ]


EXERCISE = Exercise(
    name="clip_fraction",
    title=Words(en="The clip fraction at step 0", zh="第 0 步的裁剪比例"),
    reference=reference,
    returns=("clip_fraction",),
    cases=cases,
    mistakes=MISTAKES,
    alternatives={"by_objective": _by_objective, "loops": _by_loops},
    hints=(
        Words(
            en="PPO maximises min(r A, clip(r) A). For which r does the minimum take the "
            "second term, whose gradient is zero? Try A = 1, then A = -1.",
            zh="PPO 最大化 min(r A, clip(r) A)。r 取什么值时最小值落在第二项（梯度为零）？"
            "先试 A = 1，再试 A = -1。",
        ),
        Words(
            en="Clipped: A > 0 and r > 1 + eps, or A < 0 and r < 1 - eps. Then the share "
            "among real tokens.",
            zh="被裁剪的条件：A > 0 且 r > 1 + eps，或 A < 0 且 r < 1 - eps。再求占真实"
            " token 的比例。",
        ),
        Words(
            en="`advantages[:, None]` broadcasts [B] over [B, T]; combine conditions with "
            "`&` and `|`, then `(clipped & mask).sum() / mask.sum()`.",
            zh="`advantages[:, None]` 把 [B] 广播到 [B, T]；条件用 `&` 和 `|` 组合，最后 "
            "`(clipped & mask).sum() / mask.sum()`。",
        ),
    ),
    points=(1, 2),
    minutes=8,
    exact=True,
)
