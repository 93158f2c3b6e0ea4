"""What some mantissa bits are worth: the factor in a token's error, and in K3."""

from __future__ import annotations

import math

import torch
from torch import Generator

from tinyrl.course.exercise import Case, Exercise, Mistakes
from tinyrl.course.exercises.lab03.numbers import whole
from tinyrl.course.words import Words

Two = tuple[float, float]


def reference(coarse: int, fine: int) -> Two:
    bits = fine - coarse
    return 2.0**bits, 4.0**bits


def _from_gaps(coarse: int, fine: int) -> Two:
    """The ratio of the gaps at 1; K3 is d^2 / 2 for small d."""
    ratio = 2.0**-coarse / 2.0**-fine
    return ratio, ratio * ratio


def _with_torch(coarse: int, fine: int) -> tuple[torch.Tensor, torch.Tensor]:
    bits = torch.tensor([1, 2]) * (fine - coarse)
    token, k3 = torch.ldexp(torch.ones(2, dtype=torch.float64), bits).unbind()
    return token, k3


MISTAKES: Mistakes = {
    "bits_not_powers": (
        lambda coarse, fine: (float(fine - coarse), float((fine - coarse) ** 2)),
        Words(
            en="You return the number of bits. Each bit halves the gap: the factor is a "
            "power of two.",
            zh="你返回的是位数。每多一位，间距就减半：倍数是 2 的幂。",
        ),
    ),
    "k3_like_a_token": (
        lambda coarse, fine: (2.0 ** (fine - coarse), 2.0 ** (fine - coarse)),
        Words(
            en="K3 is about d^2 / 2 for a small delta d: its factor is the square.",
            zh="delta 很小时 K3 约为 d^2 / 2：它的倍数是平方。",
        ),
    ),
    "k3_doubled": (
        lambda coarse, fine: (2.0 ** (fine - coarse), 2.0 * 2.0 ** (fine - coarse)),
        Words(
            en="You double the factor for K3. It is squared: K3 is about d^2 / 2.",
            zh="你把 K3 的倍数算成了两倍。应当是平方：K3 约为 d^2 / 2。",
        ),
    ),
    "k3_halved": (
        lambda coarse, fine: (2.0 ** (fine - coarse), 4.0 ** (fine - coarse) / 2),
        Words(
            en="The 1/2 of d^2 / 2 stands on both sides and cancels.",
            zh="d^2 / 2 里的 1/2 两边都有，会约掉。",
        ),
    ),
    "swapped": (
        lambda coarse, fine: (4.0 ** (fine - coarse), 2.0 ** (fine - coarse)),
        Words(
            en="The two are swapped: first the factor of a token, then that of K3.",
            zh="两个返回值写反了：先是 token 的倍数，再是 K3 的。",
        ),
    ),
    "inverse": (
        lambda coarse, fine: (2.0 ** (coarse - fine), 4.0 ** (coarse - fine)),
        Words(
            en="Upside down: the coarse format has the larger error, so its error over "
            "that of the fine one is above 1.",
            zh="写倒了：粗的格式误差更大，它与细的格式之比应当大于 1。",
        ),
    ),
    "powers_of_ten": (
        lambda coarse, fine: (10.0 ** (fine - coarse), 100.0 ** (fine - coarse)),
        Words(
            en="A mantissa bit is worth a factor of 2, not a decimal place.",
            zh="一位尾数值 2 倍，而不是一个十进制位。",
        ),
    ),
    "hidden_bit_counted": (
        lambda coarse, fine: (2.0 ** (fine - coarse + 1), 4.0 ** (fine - coarse + 1)),
        Words(
            en="One bit too many: both formats have the leading 1, and it cancels.",
            zh="多了一位：两种格式都有前导 1，会抵消。",
        ),
    ),
    "ratio_of_bits": (
        lambda coarse, fine: (fine / coarse, (fine / coarse) ** 2),
        Words(
            en="You divide the numbers of bits. What counts is their difference: 2 to that "
            "power.",
            zh="你把位数相除了。起作用的是位数之差：2 的那个次方。",
        ),
    ),
    "natural_exponential": (
        lambda coarse, fine: (math.exp(fine - coarse), math.exp(2 * (fine - coarse))),
        Words(
            en="You use e as the base. Bits are powers of 2.",
            zh="你以 e 为底。比特对应的是 2 的幂。",
        ),
    ),
}

BY_HAND = Words(en="BF16 (7 bits) over FP16 (10 bits)", zh="BF16（7 位）比 FP16（10 位）")
EQUAL = Words(en="as many bits on both sides", zh="两边位数相同")
ANY = Words(en="other formats", zh="其他格式")
TURNED = Words(en="the first format is the finer one", zh="第一个格式反而更细")
FAR = Words(en="many bits apart", zh="相差很多位")


def cases(generator: Generator) -> list[Case]:
    same, few = whole(generator, 2, 24), whole(generator, 2, 5)
    far = whole(generator, 2, 5)
    return [
        Case("example", BY_HAND, (7, 10)),
        Case("property", EQUAL, (same, same)),
        Case("inputs", ANY, (few, few + whole(generator, 4, 7))),
        Case("inputs", TURNED, (few + whole(generator, 3, 6), few)),
        Case("numbers", FAR, (far, far + whole(generator, 15, 20))),
    ]


EXERCISE = Exercise(
    name="error_factor",
    title=Words(en="What three bits are worth", zh="三位尾数值多少"),
    reference=reference,
    returns=("token_factor", "k3_factor"),
    cases=cases,
    mistakes=MISTAKES,
    alternatives={"gaps": _from_gaps, "torch": _with_torch},
    hints=(
        Words(
            en="How does the gap between neighbours change with one mantissa bit more?",
            zh="多一位尾数，相邻两数的间距怎样变化？",
        ),
        Words(
            en="A rounding error is proportional to the gap, 2^-M. K3 = e^d - 1 - d is "
            "about d^2 / 2.",
            zh="舍入误差与间距 2^-M 成正比。K3 = e^d - 1 - d 约为 d^2 / 2。",
        ),
        Words(
            en="2 to the difference of bits, and its square.",
            zh="2 的位数差次方，以及它的平方。",
        ),
    ),
    points=(1, 1),
    minutes=4,
)
