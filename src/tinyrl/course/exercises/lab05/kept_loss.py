"""A mean over the tokens that count: numerator and denominator of the same tokens."""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from tinyrl.course.exercise import Case, Exercise, Mistakes
from tinyrl.course.exercises.lab01.batch import (
    GRADIENT,
    NAN,
    Padding,
    garbage,
    mask_of,
    uniform,
)
from tinyrl.course.words import Words


def _kept(mask: Tensor, cut: Tensor) -> Tensor:
    return mask & ~cut[:, None]


def _mean(loss: Tensor, kept: Tensor, count: Tensor) -> Tensor:
    return torch.where(kept, loss, 0.0).sum() / count.clamp(min=1)


def reference(loss: Tensor, mask: Tensor, cut: Tensor) -> Tensor:
    kept = _kept(mask, cut)
    return _mean(loss, kept, kept.sum())


def _selected(loss: Tensor, mask: Tensor, cut: Tensor) -> Tensor:
    rest = loss[~cut][mask[~cut]]
    return rest.mean() if len(rest) else loss[mask].sum() * 0


def _weighted(loss: Tensor, mask: Tensor, cut: Tensor) -> Tensor:
    kept = _kept(mask, cut)
    return (loss.masked_fill(~kept, 0.0) * (1 / max(1, int(kept.sum())))).sum()


def _row_means(loss: Tensor, mask: Tensor, cut: Tensor) -> Tensor:
    kept = _kept(mask, cut)
    each = torch.where(kept, loss, 0.0).sum(1) / kept.sum(1).clamp(min=1)
    return each.sum() / (~cut).sum().clamp(min=1)


def _no_guard(loss: Tensor, mask: Tensor, cut: Tensor) -> Tensor:
    kept = _kept(mask, cut)
    return torch.where(kept, loss, 0.0).sum() / kept.sum()


def _per_response(loss: Tensor, mask: Tensor, cut: Tensor) -> Tensor:
    return _mean(loss, _kept(mask, cut), (~cut).sum())


def _nonzero(loss: Tensor, mask: Tensor, cut: Tensor) -> Tensor:
    kept = _kept(mask, cut)
    return _mean(loss, kept, (kept & (loss != 0)).sum())


def _plain_zero(loss: Tensor, mask: Tensor, cut: Tensor) -> Tensor | float:
    return 0.0 if cut.all() else reference(loss, mask, cut)


MISTAKES: Mistakes = {
    "all_sampled": (
        lambda loss, mask, cut: _mean(loss, _kept(mask, cut), mask.sum()),
        Words(
            en="The cut responses are out of the sum and still in the denominator: the "
            "more "
            "are cut, the smaller the step. Divide by the tokens that are left.",
            zh="被截断的回答不在分子里，却还在分母里：截断越多，步长越小。应当除以剩下的 "
            "token 数。",
        ),
    ),
    "columns": (
        lambda loss, mask, cut: _mean(
            loss, _kept(mask, cut), torch.tensor(float(mask.numel()))
        ),
        Words(
            en="You divide by B * T, padding and cut responses included.",
            zh="你除以了 B * T，包含 padding 和被截断的回答。",
        ),
    ),
    "kept_columns": (
        lambda loss, mask, cut: _mean(loss, _kept(mask, cut), (~cut).sum() * mask.shape[1]),
        Words(
            en="You divide by all columns of the kept responses, padding included.",
            zh="你除以了保留回答的全部列数，包含 padding。",
        ),
    ),
    "cut_counted": (
        lambda loss, mask, cut: _mean(loss, mask, mask.sum()),
        Words(
            en="The cut responses are still in the loss, in both parts.",
            zh="被截断的回答仍在损失里，分子分母都有。",
        ),
    ),
    "only_cut": (
        lambda loss, mask, cut: reference(loss, mask, ~cut),
        Words(
            en="The wrong way round: this is the mean of the cut responses.",
            zh="用反了：这是被截断回答的平均。",
        ),
    ),
    "padding_counted": (
        lambda loss, mask, cut: reference(loss, torch.ones_like(mask), cut),
        Words(
            en="The padding of the kept responses is in the loss.",
            zh="保留回答的 padding 也进了损失。",
        ),
    ),
    "row_means": (
        _row_means,
        Words(
            en="You average each response first, so a token of a short one weighs more. "
            "Here all kept tokens weigh the same.",
            zh="你先在每条回答内取平均，短回答的 token 权重更大。这里所有保留的 token 权重"
            "相同。",
        ),
    ),
    "per_response": (
        _per_response,
        Words(
            en="You divide by the number of kept responses. Divide by their tokens.",
            zh="你除以了保留回答的条数。应当除以它们的 token 数。",
        ),
    ),
    "sum": (
        lambda loss, mask, cut: torch.where(_kept(mask, cut), loss, 0.0).sum(),
        Words(
            en="This is the sum; divide by the number of tokens in it.",
            zh="这是和，还要除以其中的 token 数。",
        ),
    ),
    "no_guard": (
        _no_guard,
        Words(
            en="Where every response was cut you divide 0 by 0, and NaN ends the run. "
            "Return 0: `clamp(min=1)` on the count.",
            zh="所有回答都被截断时，0 除以 0 得 NaN，训练就此结束。应当返回 0：对计数用 "
            "`clamp(min=1)`。",
        ),
    ),
    "nonzero_counted": (
        _nonzero,
        Words(
            en="You count the tokens whose loss is not 0. A real token's loss can be "
            "exactly 0, as with an advantage of 0. How many are real is what the mask "
            "says.",
            zh="你数的是损失不为 0 的 token。真实 token 的损失也可以恰好为 0，例如 "
            "advantage 为 0 时。有多少个真实 token 要由 mask 来数。",
        ),
    ),
    "plain_zero": (
        _plain_zero,
        Words(
            en="Where every response was cut you return Python's 0, and a number has no "
            "`.backward()`: the run ends there. Return a tensor, as elsewhere.",
            zh="所有回答都被截断时，你返回的是 Python 的 0，它没有 `.backward()`，训练会在"
            "那里中断。和其他情况一样，应当返回张量。",
        ),
    ),
    "times_mask": (
        lambda loss, mask, cut: (
            (loss * _kept(mask, cut)).sum() / _kept(mask, cut).sum().clamp(min=1)
        ),
        Words(
            en="Multiplying by the mask does not remove NaN from the padding. Choose with "
            "`torch.where`.",
            zh="乘以 mask 去不掉 padding 里的 NaN。请用 `torch.where` 来选择。",
        ),
    ),
    "detach": (
        lambda loss, mask, cut: reference(loss, mask, cut).detach(),
        Words(
            en="The number is right, but no gradient reaches the token losses.",
            zh="数值正确，但梯度传不到各 token 的损失。",
        ),
    ),
}

BY_HAND = Words(en="three responses, the second was cut", zh="三条回答，第二条被截断")
NONE_CUT = Words(en="nothing was cut", zh="没有被截断的")
RANDOM = Words(en="some are cut, numbers in the padding", zh="有的被截断，padding 里有数")
ZEROS = Words(
    en="real tokens whose loss is 0; the mean is below 0",
    zh="有些真实 token 的损失恰好为 0；平均值小于 0",
)
ONE_LEFT = Words(en="one token is left", zh="只剩一个 token")
ALL_CUT = Words(en="every response was cut", zh="所有回答都被截断")
LONG = Words(en="long responses", zh="很长的回答")


def cases(generator: Generator) -> list[Case]:
    def batch(
        rows: int, columns: int, padding: Padding = "finite", low: float = -2.0
    ) -> tuple[Tensor, Tensor, Tensor]:
        mask = mask_of(generator, rows, columns)
        loss = uniform(generator, (rows, columns), low, 3.0)
        cut = torch.zeros(rows, dtype=torch.bool)
        cut[torch.randperm(rows, generator=generator)[: max(1, rows // 3)]] = True
        return garbage(generator, loss, mask, padding), mask, cut

    loss = torch.tensor([[1.0, 3.0, 9.0], [4.0, 8.0, 6.0], [2.0, 9.0, 9.0]])
    mask = torch.tensor([[1, 1, 0], [1, 1, 1], [1, 0, 0]]).bool()
    plain, real, cut = batch(4, 6)
    gone, there, _ = batch(3, 5)
    lone = uniform(generator, (3, 3), -2.0, 3.0)
    zeros, some, of_them = batch(7, 10)
    zeros = torch.where(some, zeros - 4, zeros)
    zeros[:, 1:3] = 0.0
    return [
        Case("example", BY_HAND, (loss, mask, torch.tensor([False, True, False]))),
        Case("property", NONE_CUT, (plain, real, torch.zeros_like(cut))),
        Case("inputs", RANDOM, batch(5, 8)),
        Case("inputs", ZEROS, (zeros, some, of_them)),
        Case("padding", NAN, batch(5, 8, "nan")),
        Case("gradient", GRADIENT, batch(5, 8, "nan")),
        Case("gradient", ALL_CUT, (gone, there, torch.ones(3, dtype=torch.bool))),
        Case("numbers", ONE_LEFT, (lone, mask, torch.tensor([True, True, False]))),
        Case("numbers", ALL_CUT, (gone, there, torch.ones(3, dtype=torch.bool))),
        Case("numbers", LONG, batch(3, 2000, low=1.0)),
    ]


EXERCISE = Exercise(
    name="kept_loss",
    title=Words(en="The loss of what was kept", zh="只对保留部分求损失"),
    reference=reference,
    returns=("loss",),
    cases=cases,
    mistakes=MISTAKES,
    alternatives={"selected": _selected, "weighted": _weighted},
    hints=(
        Words(
            en="Which tokens are in the numerator? The same ones, and no other, are "
            "counted "
            "in the denominator.",
            zh="哪些 token 在分子里？分母里数的就是同一批，不多也不少。",
        ),
        Words(
            en="One mask for both: real, and of a response that was not cut, "
            "`mask & ~cut[:, None]`.",
            zh="分子分母用同一个 mask：真实 token，且所在回答没有被截断，`mask & ~cut[:, "
            "None]`。",
        ),
        Words(
            en="`torch.where(kept, loss, 0.0).sum() / kept.sum().clamp(min=1)`.",
            zh="写成 `torch.where(kept, loss, 0.0).sum() / kept.sum().clamp(min=1)`。",
        ),
    ),
    points=(1, 2),
    minutes=7,
    gradient=("loss",),
)
