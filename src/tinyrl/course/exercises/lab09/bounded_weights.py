"""Truncate or mask: what becomes of a weight that passes its bound."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Generator, Tensor

from tinyrl.course.exercise import Case, Exercise, Function, Mistakes
from tinyrl.course.exercises.lab01 import batch
from tinyrl.course.exercises.lab09 import slips
from tinyrl.course.exercises.lab09.weighed import DETACH, NO_GRADIENT, weights
from tinyrl.course.words import Words

Three = tuple[Tensor, Tensor, Tensor]


def _made(truncated: Tensor, masked: Tensor, kept: Tensor, mask: Tensor) -> Three:
    return torch.where(mask, truncated, 0.0), torch.where(kept, masked, 0.0), kept


def reference(rho: Tensor, mask: Tensor, lower: float, upper: float) -> Three:
    rho = rho.detach()
    kept = mask & (rho >= lower) & (rho <= upper)
    return _made(rho.clamp(max=upper), rho, kept, mask)


@torch.no_grad()
def _one_by_one(rho: Tensor, mask: Tensor, lower: float, upper: float) -> Three:
    truncated, masked = torch.zeros_like(rho), torch.zeros_like(rho)
    kept = torch.zeros_like(mask)
    for b, t in mask.nonzero().tolist():
        truncated[b, t] = min(rho[b, t].item(), upper)
        if lower <= rho[b, t] <= upper:
            masked[b, t], kept[b, t] = rho[b, t], True
    return truncated, masked, kept


def _selected(rho: Tensor, mask: Tensor, lower: float, upper: float) -> Three:
    clean = rho.data.masked_fill(~mask, -1.0)
    kept = (clean >= lower) & (clean <= upper)
    truncated = torch.minimum(clean, torch.full_like(clean, upper))
    return truncated.masked_fill(~mask, 0), clean.masked_fill(~kept, 0), kept


def _but(change: Callable[[Tensor, Tensor, Tensor], Three]) -> Function:
    def wrong(*args: Tensor) -> Three:
        return change(*reference(*args))  # type: ignore[arg-type]

    return wrong


def _clamp_both(rho: Tensor, mask: Tensor, lower: float, upper: float) -> Three:
    _, masked, kept = reference(rho, mask, lower, upper)
    return torch.where(mask, rho.detach().clamp(lower, upper), 0.0), masked, kept


def _mask_clamps(rho: Tensor, mask: Tensor, lower: float, upper: float) -> Three:
    truncated, _, kept = reference(rho, mask, lower, upper)
    return truncated, torch.where(mask, rho.detach().clamp(lower, upper), 0.0), kept


def _strict(rho: Tensor, mask: Tensor, lower: float, upper: float) -> Three:
    rho = rho.detach()
    kept = mask & (rho > lower) & (rho < upper)
    return _made(rho.clamp(max=upper), rho, kept, mask)


def _one_sided(rho: Tensor, mask: Tensor, lower: float, upper: float) -> Three:
    return reference(rho, mask, 0.0 * lower, upper)


def _reciprocal(rho: Tensor, mask: Tensor, lower: float, upper: float) -> Three:
    return reference(rho, mask, 1 / upper, upper)


def _whole_response(rho: Tensor, mask: Tensor, lower: float, upper: float) -> Three:
    truncated, masked, kept = reference(rho, mask, lower, upper)
    whole = (kept | ~mask).all(1, keepdim=True) & mask
    return truncated, torch.where(whole, masked, 0.0), whole


def _padding(rho: Tensor, mask: Tensor, lower: float, upper: float) -> Three:
    return reference(rho, torch.ones_like(mask), lower, upper)


def _attached(rho: Tensor, mask: Tensor, lower: float, upper: float) -> Three:
    kept = mask & (rho >= lower) & (rho <= upper)
    return _made(rho.clamp(max=upper), rho, kept, mask)


MISTAKES: Mistakes = {
    "swapped": (
        _but(lambda truncated, masked, kept: (masked, truncated, kept)),
        Words(
            en="The two are swapped. Truncating keeps a token with weight C, masking "
            "drops it.",
            zh="两者写反了。截断让 token 以权重 C 留下，屏蔽把它丢掉。",
        ),
    ),
    "clamp_both": (
        _clamp_both,
        Words(
            en="You clamp from below as well. Truncation has an upper bound only: a small "
            "weight is harmless, and raising it adds bias for nothing.",
            zh="你把下侧也截断了。截断只有上界：小权重无害，抬高它只会白白增加偏差。",
        ),
    ),
    "mask_clamps": (
        _mask_clamps,
        Words(
            en="Your mask moves weights to the bound: that is a clamp on both sides. "
            "Outside the bounds the weight is 0.",
            zh="你的屏蔽把权重移到了界上，那是两侧截断。出界的权重应为 0。",
        ),
    ),
    "weight_one": (
        _but(lambda truncated, masked, kept: (truncated, kept.to(masked), kept)),
        Words(
            en="What your mask keeps has weight 1: a rejection that weighs nothing. Here "
            "it keeps its rho (as in IcePop).",
            zh="你的屏蔽让留下的权重都成了 1，那是只剔除不加权。这里留下的要保持 rho（如 "
            "IcePop）。",
        ),
    ),
    "strict": (
        _strict,
        Words(
            en="A weight that is exactly on a bound is inside: compare with >= and <=.",
            zh="恰好等于界的权重算界内：请用 >= 和 <=。",
        ),
    ),
    "one_sided": (
        _one_sided,
        Words(
            en="Your mask ignores the lower bound.",
            zh="你的屏蔽忽略了下界。",
        ),
    ),
    "reciprocal": (
        _reciprocal,
        Words(
            en="Your lower bound is 1 / upper, as if the bounds lay alike around 1. Use "
            "`lower`.",
            zh="你的下界是 1 / upper，好像两个界总在 1 的两侧对称。请用 `lower`。",
        ),
    ),
    "whole_response": (
        _whole_response,
        Words(
            en="One token outside drops its whole response. At token level only the token "
            "goes.",
            zh="一个 token 出界，你就丢掉了整条回答。token 级只丢这个 token。",
        ),
    ),
    "complement": (
        _but(lambda truncated, masked, kept: (truncated, masked, ~kept)),
        Words(
            en="`kept` is turned round: true is what stays.",
            zh="`kept` 反了：为真表示留下。",
        ),
    ),
    "truncated_is_raw": (
        lambda rho, mask, lower, upper: (
            torch.where(mask, rho.detach(), 0.0),
            *reference(rho, mask, lower, upper)[1:],
        ),
        Words(
            en="Your truncated weight is not truncated: it passes C.",
            zh="你的截断权重并没有截断，仍会超过 C。",
        ),
    ),
    "padding_kept": (
        _padding,
        Words(
            en="Padding is weighed, too. It has weight 0 and is never kept, whatever it "
            "holds.",
            zh="padding 也被加权了。无论里面是什么，权重都是 0，也不算留下。",
        ),
    ),
    "attached": (_attached, DETACH),
} | slips.BOUNDED

HAND = Words(
    en="four tokens: below, inside, on the bound, above",
    zh="四个 token：低于下界、界内、恰在界上、高于上界",
)
ONES = Words(en="equal policies: every ratio is 1", zh="两个策略相同，比值全为 1")
RANDOM = Words(en="random ratios, some exactly on a bound", zh="随机比值，有些恰在界上")
EXTREME = Words(en="a ratio of 1e38, and one of 0", zh="一个比值为 1e38，一个为 0")


def cases(generator: Generator) -> list[Case]:
    def drawn(
        rows: int,
        columns: int,
        lower: float,
        upper: float,
        padding: batch.Padding = "finite",
    ) -> tuple[Tensor, Tensor, float, float]:
        """Each response begins below, on, within and above the bounds, in some order.

        The last is only just below or above.
        """
        rho, mask = weights(generator, rows, columns, padding)
        some = torch.tensor([lower * 0.7, lower, upper, upper * 1.4])
        for row in rho:
            row[:4] = some[torch.randperm(4, generator=generator)]
        mask = mask | (torch.arange(columns) < 4)
        just = torch.tensor([lower * (1 - 2**-15), upper * (1 + 2**-15)])
        rho[-1, :2] = just[torch.randperm(2, generator=generator)]
        rho[0, 4], mask[0, 4] = (lower + upper) / 2, True
        return rho, mask, lower, upper

    rho = torch.tensor([[0.25, 1.5, 2.0, 4.0]])
    real = torch.ones(1, 4, dtype=torch.bool)
    ones, mask = weights(generator)
    far, some, low, high = drawn(3, 7, 0.5, 2.0)
    far[1, 1], far[0, 1] = 1e38, 0.0
    return [
        Case("example", HAND, (rho, real, 0.5, 2.0)),
        Case("property", ONES, (torch.where(mask, 1.0, ones), mask, 0.5, 2.0)),
        # bounds that are not each other's reciprocal, to either side
        Case("inputs", RANDOM, drawn(3, 7, 0.5, 5.0)),
        Case("inputs", RANDOM, drawn(4, 9, 0.25, 3.0)),
        Case("padding", batch.NAN, drawn(3, 8, 0.5, 2.0, "nan")),
        Case("gradient", NO_GRADIENT, drawn(3, 7, 0.5, 2.0, "nan")),
        Case("numbers", EXTREME, (far, some, low, high)),
    ]


EXERCISE = Exercise(
    name="bounded_weights",
    title=Words(en="Truncate or mask", zh="截断还是屏蔽"),
    reference=reference,
    returns=("truncated", "masked", "kept"),
    cases=cases,
    mistakes=MISTAKES,
    alternatives={"one_by_one": _one_by_one, "selected": _selected},
    hints=(
        Words(
            en="Truncating moves a weight, masking removes it. Which has two bounds here?",
            zh="截断移动权重，屏蔽去掉它。这里哪一个有两个界？",
        ),
        Words(
            en="`clamp(max=upper)` for one; for the other a boolean of three conditions, "
            "one of them the mask.",
            zh="一个用 `clamp(max=upper)`；另一个是三个条件的布尔与，其中之一是 mask。",
        ),
        Words(
            en="`kept = mask & (rho >= lower) & (rho <= upper)`, then `torch.where` with "
            "0.0 twice, of `rho.detach()`.",
            zh="先 `kept = mask & (rho >= lower) & (rho <= upper)`，再对 `rho.detach()` 用"
            "两次 `torch.where`，否则填 0.0。",
        ),
    ),
    points=(1, 2),
    minutes=7,
    data=("rho",),
    boolean=("kept",),
    exact=True,
)
