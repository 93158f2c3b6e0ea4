"""The largest loss scale that overflows nothing."""

from __future__ import annotations

import math

import torch
from torch import Generator, Tensor

from tinyrl.course.exercise import Case, Exercise, Mistakes
from tinyrl.course.exercises.lab03.numbers import signs, uniform, whole
from tinyrl.course.words import Words


def reference(grad: Tensor, largest: float) -> float:
    return 2.0 ** math.floor(math.log2(largest / grad.abs().max().item()))


def _doubling(grad: Tensor, largest: float) -> float:
    """As a loss scaler would, but all at once."""
    top, scale = grad.abs().max().item(), 1.0
    while top * scale > largest:
        scale /= 2
    while top * scale * 2 <= largest:
        scale *= 2
    return scale


def _with_frexp(grad: Tensor, largest: float) -> float:
    _, exponent = math.frexp(largest / max(grad.max().item(), -grad.min().item()))
    return math.ldexp(1.0, exponent - 1)


def _room(grad: Tensor, largest: float) -> float:
    return largest / grad.abs().max().item()


def _strict(grad: Tensor, largest: float) -> float:
    return 2.0 ** (math.ceil(math.log2(_room(grad, largest))) - 1)


def _float32_log2(grad: Tensor, largest: float) -> float:
    room = torch.tensor(largest / grad.double().abs().max().item())
    return 2.0 ** math.floor(room.float().log2().item())


MISTAKES: Mistakes = {
    "no_power_of_two": (
        _room,
        Words(
            en="It overflows nothing, but it is no power of two: scaling would round every "
            "gradient. A power of two only moves exponents.",
            zh="它不会溢出，但不是 2 的幂：缩放会让每个梯度都产生舍入。2 的幂只改变指数。",
        ),
    ),
    "rounded_up": (
        lambda grad, largest: 2.0 ** math.ceil(math.log2(_room(grad, largest))),
        Words(
            en="You round the exponent up, and the largest gradient overflows. Round down.",
            zh="你把指数向上取整了，最大的梯度会溢出。应当向下取整。",
        ),
    ),
    "rounded_to_nearest": (
        lambda grad, largest: 2.0 ** round(math.log2(_room(grad, largest))),
        Words(
            en="You round the exponent to the nearest, so at times the largest gradient "
            "overflows. Round down.",
            zh="你把指数四舍五入了，有时最大的梯度会溢出。应当向下取整。",
        ),
    ),
    "cut_towards_zero": (
        lambda grad, largest: 2.0 ** math.trunc(math.log2(_room(grad, largest))),
        Words(
            en="`int` cuts towards 0. Where the gradients are too large already the "
            "exponent is negative, and you round it up: use `math.floor`.",
            zh="`int` 是向 0 截断的。梯度本来就太大时指数为负，你就把它向上取整了：应当用 "
            "`math.floor`。",
        ),
    ),
    "never_below_one": (
        lambda grad, largest: max(1.0, reference(grad, largest)),
        Words(
            en="Your scale never goes below 1. Gradients past the largest number have to "
            "be made smaller: 1/2, 1/4 and so on are powers of two as well.",
            zh="你的 scale 不会小于 1。超过最大数的梯度需要缩小：1/2、1/4 等也是 2 的幂。",
        ),
    ),
    "float32_log2": (
        _float32_log2,
        Words(
            en="Just below a power of two `log2` in float32 rounds up to a whole number, "
            "and the largest gradient overflows. `math.log2` of a Python number has the "
            "digits; `torch.frexp` is exact.",
            zh="略小于 2 的幂时，float32 的 `log2` 会舍入成整数，于是最大的梯度溢出。对 "
            "Python 数用 `math.log2` 精度足够；`torch.frexp` 则是精确的。",
        ),
    ),
    "one_step_lower": (
        lambda grad, largest: reference(grad, largest) / 2,
        Words(
            en="One power of two too low. A margin is wise in practice; asked for is the "
            "largest scale that fits.",
            zh="低了一个 2 的幂。实践中留余量是明智的，但题目要的是能用的最大值。",
        ),
    ),
    "equality_refused": (
        _strict,
        Words(
            en="A gradient may become exactly the largest number: that is still finite.",
            zh="梯度恰好等于最大数也可以：它仍是有限的。",
        ),
    ),
    "sign_kept": (
        lambda grad, largest: reference(grad.max()[None], largest),
        Words(
            en="You take the largest gradient, not the largest |gradient|: a negative one "
            "overflows.",
            zh="你取的是最大的梯度，而不是绝对值最大的：负的那个会溢出。",
        ),
    ),
    "smallest_gradient": (
        lambda grad, largest: reference(grad.abs().min()[None], largest),
        Words(
            en="You look at the smallest gradient. It is the largest one that overflows.",
            zh="你看的是最小的梯度。会溢出的是最大的。",
        ),
    ),
    "mean_gradient": (
        lambda grad, largest: reference(grad.abs().mean()[None], largest),
        Words(
            en="You look at the mean |gradient|. One inf spoils the whole step, so the "
            "largest one decides.",
            zh="你看的是平均绝对值。只要出现一个 inf，整步更新就作废，所以由最大的决定。",
        ),
    ),
    "norm": (
        lambda grad, largest: reference(grad.norm()[None], largest),
        Words(
            en="You look at the norm. Each gradient is stored by itself: the largest one "
            "decides.",
            zh="你看的是范数。每个梯度是单独存储的：由最大的那个决定。",
        ),
    ),
    "inverse": (
        lambda grad, largest: 1 / reference(grad, largest),
        Words(
            en="This is what the gradients are multiplied by afterwards, 1 / scale.",
            zh="这是之后用来还原的倍数 1 / scale。",
        ),
    ),
    "exponent": (
        lambda grad, largest: math.log2(reference(grad, largest)),
        Words(
            en="This is the exponent; return 2 to that power.",
            zh="这是指数；应当返回 2 的这个次方。",
        ),
    ),
    "power_of_ten": (
        lambda grad, largest: 10.0 ** math.floor(math.log10(_room(grad, largest))),
        Words(
            en="This is a power of ten. Only a power of two scales without rounding.",
            zh="这是 10 的幂。只有 2 的幂缩放时不产生舍入。",
        ),
    ),
}

BY_HAND = Words(en="largest gradient 3 in size, FP16", zh="梯度绝对值最大为 3，FP16")
EQUAL = Words(en="one that fits exactly", zh="恰好等于上限")
ANY = Words(en="gradients of both signs", zh="有正有负的梯度")
TINY = Words(en="tiny gradients", zh="极小的梯度")
LARGE = Words(en="gradients that are too large already", zh="本来就太大的梯度")
JUST_PAST = Words(en="one that just fails to fit", zh="刚好超出上限一点点")


def cases(generator: Generator) -> list[Case]:
    def gradients(room: float, largest: float, sign: int = -1) -> Tensor:
        """Such that `largest` is 2^room times the largest of them, which has `sign`.

        One is 0, and one of the other sign is more than half as large.
        """
        n = whole(generator, 4, 9)
        small = uniform(generator, n, 0.05, 0.3) * signs(generator, n)
        ends = torch.tensor([-0.6 * sign, 1.0 * sign, 0.0])
        order = torch.randperm(n + 3, generator=generator)
        return torch.cat([small, ends])[order] * largest / 2**room

    exponent = whole(generator, 6, 12)
    low = whole(generator, 5, 15) + 0.05 + 0.15 * torch.rand((), generator=generator).item()
    # Of 57344 = 0.875 * 2^16: the exponents of both numbers alone would say one more.
    high = whole(generator, 5, 15) + 0.83 + 0.1 * torch.rand((), generator=generator).item()
    too_large = gradients(high - whole(generator, 16, 20), 240.0)
    # Two steps of float32 past the one that fits: the room is no power of two in it.
    just_past = gradients(whole(generator, 9, 16), 65504.0) * (1 + 2.0**-22)
    return [
        Case("example", BY_HAND, (torch.tensor([0.5, -3.0, 0.001]), 65504.0)),
        Case("property", EQUAL, (gradients(exponent, 65504.0), 65504.0)),
        Case("inputs", ANY, (gradients(low, 65504.0), 65504.0)),
        Case("inputs", ANY, (gradients(high, 57344.0, 1), 57344.0)),
        Case("inputs", LARGE, (too_large, 240.0)),
        Case("numbers", TINY, (gradients(high + 70, 65504.0), 65504.0)),
        Case("numbers", JUST_PAST, (just_past, 65504.0)),
    ]


EXERCISE = Exercise(
    name="largest_scale",
    title=Words(en="Choose a loss scale", zh="选择 loss scale"),
    reference=reference,
    returns=("scale",),
    cases=cases,
    mistakes=MISTAKES,
    alternatives={"doubling": _doubling, "frexp": _with_frexp},
    hints=(
        Words(
            en="Which single gradient decides, and how often can it be doubled?",
            zh="由哪一个梯度决定？它可以翻倍多少次？",
        ),
        Words(
            en="The room is largest / max|g|; the scale is the power of two at or below "
            "it.",
            zh="余量是 largest / max|g|；scale 是不超过它的最大的 2 的幂。",
        ),
        Words(
            en="`2.0 ** math.floor(math.log2(room))` with "
            "`room = largest / grad.abs().max().item()`.",
            zh="`2.0 ** math.floor(math.log2(room))`，其中 "
            "`room = largest / grad.abs().max().item()`。",
        ),
    ),
    points=(1, 1),
    minutes=5,
    exact=True,
)
