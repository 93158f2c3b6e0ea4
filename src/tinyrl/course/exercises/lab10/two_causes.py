"""K3 of mismatch, of staleness and of both: two causes that a dashboard adds up."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Generator, Tensor

from tinyrl.course.exercise import Case, Exercise, Function, Mistakes
from tinyrl.course.exercises.lab01 import batch
from tinyrl.course.exercises.lab10 import slips
from tinyrl.course.exercises.lab10.told import COLUMNS, PADDING, ROWS
from tinyrl.course.words import Words

Three = tuple[Tensor, Tensor, Tensor]


def _pairs(
    logp_new: Tensor, logp_old: Tensor, logp_rollout: Tensor, mask: Tensor
) -> tuple[Tensor, ...]:
    """Log-ratios of mismatch, staleness and both, of real tokens, in float64."""
    new, old, roll = (x[mask].double() for x in (logp_new, logp_old, logp_rollout))
    return old - roll, new - old, new - roll


def _k3(d: Tensor) -> Tensor:
    return (torch.expm1(d) - d).mean()


def reference(
    logp_new: Tensor, logp_old: Tensor, logp_rollout: Tensor, mask: Tensor
) -> Three:
    mismatch, staleness, both = _pairs(logp_new, logp_old, logp_rollout, mask)
    return _k3(mismatch), _k3(staleness), _k3(both)


def _float32(
    logp_new: Tensor, logp_old: Tensor, logp_rollout: Tensor, mask: Tensor
) -> Three:
    def k3(top: Tensor, bottom: Tensor) -> Tensor:
        d = torch.where(mask, top - bottom, 0.0)
        return (torch.expm1(d) - d).sum() / mask.sum()

    return (
        k3(logp_old, logp_rollout),
        k3(logp_new, logp_old),
        k3(logp_new, logp_rollout),
    )


def _float64(
    logp_new: Tensor, logp_old: Tensor, logp_rollout: Tensor, mask: Tensor
) -> list[Tensor]:
    sides = torch.stack([logp_rollout, logp_old, logp_new]).double()[:, mask]
    return [
        (sides[i] - sides[j]).exp().sub(1).sub(sides[i] - sides[j]).mean()
        for i, j in ((1, 0), (2, 1), (2, 0))
    ]


def _of(f: Callable[[Tensor], Tensor]) -> Function:
    """`f` of each log-ratio in place of K3."""

    def wrong(new: Tensor, old: Tensor, roll: Tensor, mask: Tensor) -> tuple[Tensor, ...]:
        return tuple(f(d) for d in _pairs(new, old, roll, mask))

    return wrong


def _naive(new: Tensor, old: Tensor, roll: Tensor, mask: Tensor) -> Three:
    def k3(d: Tensor) -> Tensor:
        return (d.exp() - 1 - d).mean()

    new, old, roll = new[mask], old[mask], roll[mask]
    return k3(old - roll), k3(new - old), k3(new - roll)


def _summed(new: Tensor, old: Tensor, roll: Tensor, mask: Tensor) -> Three:
    a, b, _ = reference(new, old, roll, mask)
    return a, b, a + b


def _rows(new: Tensor, old: Tensor, roll: Tensor, mask: Tensor) -> tuple[Tensor, ...]:
    rows = [
        torch.stack(reference(n, o, r, m))
        for n, o, r, m in zip(new, old, roll, mask, strict=True)
    ]
    return tuple(torch.stack(rows).mean(0))


def _columns(new: Tensor, old: Tensor, roll: Tensor, mask: Tensor) -> tuple[Tensor, ...]:
    share = mask.double().mean()
    return tuple(x * share for x in reference(new, old, roll, mask))


def _times_mask(new: Tensor, old: Tensor, roll: Tensor, mask: Tensor) -> Three:
    def k3(d: Tensor) -> Tensor:
        return (torch.expm1(d * mask) - d * mask).sum() / mask.sum()

    new, old, roll = (x.double() for x in (new, old, roll))
    return k3(old - roll), k3(new - old), k3(new - roll)


def _nonzero(new: Tensor, old: Tensor, roll: Tensor, mask: Tensor) -> tuple[Tensor, ...]:
    return tuple(
        (torch.expm1(d) - d).sum() / (d != 0).sum().clamp(min=1)
        for d in _pairs(new, old, roll, mask)
    )


MISTAKES: Mistakes = {
    "swapped": (
        lambda new, old, roll, mask: tuple(
            reference(new, old, roll, mask)[i] for i in (1, 0, 2)
        ),
        Words(
            en="Mismatch and staleness are the wrong way round. Mismatch is old / rollout: "
            "two engines. Staleness is new / old: the updates since.",
            zh="不一致与滞后的顺序反了。不一致是 old / rollout：两个引擎之间；滞后是 new / "
            "old：之后的更新。",
        ),
    ),
    "both_is_mismatch": (
        lambda new, old, roll, mask: tuple(
            reference(new, old, roll, mask)[i] for i in (2, 1, 0)
        ),
        Words(
            en="First and last are the wrong way round: new / rollout holds both causes, "
            "old / rollout the mismatch alone.",
            zh="第一个与最后一个反了：new / rollout 包含两种原因，old / rollout 只有不一"
            "致。",
        ),
    ),
    "added": (
        _summed,
        Words(
            en="The K3 of both is no sum: only mean delta (K1) adds up. Two causes can "
            "cancel, or grow together. Compute it from new - rollout.",
            zh="两者合起来的 K3 不是相加得到的：只有 delta 的平均（K1）可加。两种原因可能互"
            "相抵消，也可能叠加。应当由 new - rollout 计算。",
        ),
    ),
    "turned_over": (
        _of(lambda d: _k3(-d)),
        Words(
            en="All ratios are turned over: 1 / rho - 1 + d. The tokens are the rollout's, "
            "so d is newer - older, and K3 is exp(d) - 1 - d.",
            zh="所有比值都取了倒数：1 / rho - 1 + d。token 来自采样端，所以 d 是较新的减去"
            "较旧的，K3 = exp(d) - 1 - d。",
        ),
    ),
    "staleness_turned": (
        lambda new, old, roll, mask: (
            reference(new, old, roll, mask)[0],
            reference(old, new, roll, mask)[1],
            reference(new, old, roll, mask)[2],
        ),
        Words(
            en="Staleness is turned over: the ratio is p_new / p_old.",
            zh="滞后的比值颠倒了：应为 p_new / p_old。",
        ),
    ),
    "k1": (
        _of(lambda d: -d.mean()),
        Words(
            en="This is K1, the mean of -d: it cancels and can be negative. K3 is exp(d) - "
            "1 - d.",
            zh="这是 K1，即 -d 的平均：正负会抵消，也可能为负。K3 是 exp(d) - 1 - d。",
        ),
    ),
    "k2": (
        _of(lambda d: (d * d).mean() / 2),
        Words(
            en="This is K2, the mean of d^2 / 2: near K3 where d is small, and not where "
            "it is large.",
            zh="这是 K2，即 d^2 / 2 的平均：d 小时接近 K3，d 大时不然。",
        ),
    ),
    "no_delta": (
        _of(lambda d: torch.expm1(d).mean()),
        Words(
            en="This is mean ratio - 1: the -d of K3 is missing.",
            zh="这是比值的平均减 1：漏了 K3 里的 -d。",
        ),
    ),
    "of_the_mean": (
        _of(lambda d: torch.expm1(d.mean()) - d.mean()),
        Words(
            en="You average delta first and take K3 of the mean: both signs have "
            "cancelled by then.",
            zh="你先对 delta 取平均再算 K3：那时正负已经抵消了。",
        ),
    ),
    "row_means": (
        _rows,
        ROWS,
    ),
    "all_columns": (
        _columns,
        COLUMNS,
    ),
    "padding_counted": (
        lambda new, old, roll, mask: reference(new, old, roll, torch.ones_like(mask)),
        PADDING,
    ),
    "times_mask": (
        _times_mask,
        Words(
            en="Multiplying by the mask does not remove NaN: NaN * 0 is NaN. Choose with "
            "`x[mask]` or `torch.where`.",
            zh="乘以 mask 去不掉 NaN：NaN * 0 还是 NaN。请用 `x[mask]` 或 `torch.where` 选"
            "择。",
        ),
    ),
    "nonzero": (_nonzero, batch.NONZERO),
    "clamped": (
        _of(lambda d: _k3(d.clamp(-20, 20))),
        batch.CLAMPED,
    ),
    "cancellation": (
        _naive,
        Words(
            en="exp(d) - 1 - d in float32 is rounding noise at d = 1e-4: what is asked for "
            "is 5e-9, and the steps of float32 near 1 are 1.2e-7. Use `torch.expm1(d) - "
            "d`, or float64 from the start.",
            zh="d = 1e-4 时，float32 的 exp(d) - 1 - d 只是舍入噪声：要的值是 5e-9，而 "
            "float32 在 1 附近的间隔是 1.2e-7。请用 `torch.expm1(d) - d`，或一开始就转成 "
            "float64。",
        ),
    ),
} | slips.CAUSES

HAND = Words(en="two short responses by hand", zh="两条可手算的短回答")
EQUAL = Words(en="nothing was updated: new is old", zh="还没有更新：new 就是 old")
CANCEL = Words(
    en="updates that undo the mismatch: new is the rollout's",
    zh="更新恰好抵消了不一致：new 等于采样端",
)
TINY = Words(en="deltas near 1e-4, and near 1e-3", zh="1e-4 与 1e-3 左右的 delta")


def _tiny(generator: Generator) -> tuple[Tensor, ...]:
    """Deltas that are multiples of 2^-16, exact in float32 while exp(d) is rounded.

    The mismatch is below 2^-12, where it is rounded to 1 + d. The staleness is 1.1e-3,
    where 1/20 of d^2 / 2 is lost: exp(d) lies 4/10 of a step above a float32.
    """
    shape = 2, 40
    rollout = -torch.randint(1, 9, shape, generator=generator) / 8

    def moved(x: Tensor, up: Tensor, down: Tensor) -> Tensor:
        steps = torch.where(torch.rand(shape, generator=generator) < 0.5, up, -down)
        return x + steps * 2.0**-16

    few = torch.randint(4, 8, shape, generator=generator)
    old = moved(rollout, few, few)
    many = torch.randint(73, 76, shape, generator=generator)
    new = moved(old, many, torch.full(shape, 73))
    return new, old, rollout, batch.mask_of(generator, *shape)


def cases(generator: Generator) -> list[Case]:
    old, rollout, mask = batch.policies(generator)
    fresh, engine, real = batch.policies(generator)
    new, past, mu, there = batch.policies(generator, sides=3, columns=8)
    batch.agree_on_two(new, past)
    mu[:, :2] = past[:, :2]  # among them a certain token
    far = [*batch.policies(generator, sides=3)]
    far[0][0, 0] -= 60
    far[2][1, 0] -= 60
    hand = batch.TRAIN, (batch.TRAIN + batch.ROLLOUT) / 2 - 0.25, batch.ROLLOUT, batch.MASK
    return [
        Case("example", HAND, hand),
        Case("property", EQUAL, (old, old, rollout, mask)),
        Case("property", CANCEL, (engine, fresh, engine, real)),
        Case("inputs", batch.RANDOM, batch.policies(generator, sides=3)),
        Case("inputs", batch.RANDOM, batch.policies(generator, sides=3, rows=5, columns=9)),
        Case("inputs", batch.AGREED, (new, past, mu, there)),
        Case("padding", batch.NAN, batch.policies(generator, sides=3, padding="nan")),
        Case("numbers", batch.IMPOSSIBLE, tuple(far)),
        Case("numbers", TINY, _tiny(generator)),
    ]


EXERCISE = Exercise(
    name="two_causes",
    title=Words(en="Mismatch and staleness apart", zh="把不一致与滞后分开"),
    reference=reference,
    returns=("mismatch", "staleness", "both"),
    cases=cases,
    mistakes=MISTAKES,
    alternatives={"float32_expm1": _float32, "float64": _float64},
    hints=(
        Words(
            en="p_new / p_rollout = (p_old / p_rollout) (p_new / p_old). Three log-ratios, "
            "one K3 each.",
            zh="p_new / p_rollout = (p_old / p_rollout) (p_new / p_old)。三个对数比值，各算"
            "一个 K3。",
        ),
        Words(
            en="K3 = mean(exp(d) - 1 - d) with d = newer - older, over real tokens. In "
            "float32, what is exp(d) - 1 at d = 1e-4?",
            zh="K3 = mean(exp(d) - 1 - d)，d = 较新 - 较旧，只对真实 token 取平均。d = 1e-4"
            " 时 float32 的 exp(d) - 1 还剩几位有效数字？",
        ),
        Words(
            en="`k3(old - rollout), k3(new - old), k3(new - rollout)` with `k3 = lambda d: "
            "(torch.expm1(d) - d).mean()` and `x[mask].double()`.",
            zh="`k3(old - rollout), k3(new - old), k3(new - rollout)`，其中 `k3 = lambda d:"
            " (torch.expm1(d) - d).mean()`，各项用 `x[mask].double()`。",
        ),
    ),
    points=(1, 2),
    minutes=7,
)
