"""Symmetric integers with a scale for each output channel: how weights become INT8."""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from tinyrl.course.exercise import Case, Exercise, Function, Mistakes
from tinyrl.course.exercises.lab03.numbers import signs, uniform, whole
from tinyrl.course.words import Words

TINY = 2.0**-126


def largest_code(bits: int) -> int:
    """Codes are symmetric: 127 for 8 bits, and -127."""
    return (1 << (bits - 1)) - 1


def reference(w: Tensor, bits: int) -> Tensor:
    levels = largest_code(bits)
    scale = (w.abs().amax(-1, keepdim=True) / levels).clamp(min=TINY)
    return (w / scale).round() * scale


def _row_by_row(w: Tensor, bits: int) -> Tensor:
    levels, rows = largest_code(bits), []
    for row in w:
        top = row.abs().max()
        rows.append((row / top * levels).round() / levels * top if top else row)
    return torch.stack(rows)


def _as_integers(w: Tensor, bits: int) -> Tensor:
    """Through real int8 codes, as they would be stored."""
    levels = largest_code(bits)
    scale = w.abs().max(1, keepdim=True).values / levels
    codes = torch.where(scale > 0, w / scale, 0.0).round().to(torch.int8)
    return codes * scale


def _with(scaled: Function, rounding: Function = torch.round) -> Function:
    """Another scale, or another rounding; codes stay within the levels."""

    def wrong(w: Tensor, bits: int) -> Tensor:
        levels = largest_code(bits)
        scale = torch.as_tensor(scaled(w, levels)).clamp(min=TINY)
        codes: Tensor = rounding(w / scale).clamp(-levels - 1, levels + 1)
        return codes * scale

    return wrong


def _own(w: Tensor, levels: int) -> Tensor:
    return w.abs().amax(-1, keepdim=True) / levels


def _no_guard(w: Tensor, bits: int) -> Tensor:
    scale = _own(w, largest_code(bits))
    return (w / scale).round() * scale


def _codes(w: Tensor, bits: int) -> Tensor:
    return (w / _own(w, largest_code(bits)).clamp(min=TINY)).round()


def _min_to_max(w: Tensor, bits: int) -> Tensor:
    low, high = w.amin(-1, keepdim=True), w.amax(-1, keepdim=True)
    scale = ((high - low) / (2 * largest_code(bits) + 1)).clamp(min=TINY)
    return ((w - low) / scale).round() * scale + low


def _steps(w: Tensor, scale: Tensor) -> Tensor:
    scale = torch.where(scale == 0, 1.0, scale)
    return (w / scale).round() * scale


def _one_code_more(w: Tensor, bits: int) -> Tensor:
    n = 2 ** (bits - 1)
    scale: Tensor = (w.abs().amax(-1, keepdim=True) / n).clamp(min=1e-30)
    return (w / scale).round().clamp(-n, n - 1) * scale


MISTAKES: Mistakes = {
    "one_scale_for_all": (
        _with(lambda w, levels: w.abs().max() / levels),
        Words(
            en="One scale for the whole matrix: a single large row makes all others "
            "coarse. Each output channel, a row, has its own.",
            zh="整个矩阵只用了一个 scale：一行里有大数，其他行就都变粗糙。每个输出通道（一"
            "行）"
            "要有自己的 scale。",
        ),
    ),
    "scale_per_input": (
        _with(lambda w, levels: w.abs().amax(0, keepdim=True) / levels),
        Words(
            en="One scale for each column. Columns are inputs: a product sums over them, "
            "and the scale could not be taken out of the sum. Use rows.",
            zh="你按列取 scale。列是输入：矩阵乘法沿它求和，scale 无法提到求和之外。应当按"
            "行。",
        ),
    ),
    "one_level_more": (
        _with(lambda w, levels: w.abs().amax(-1, keepdim=True) / (levels + 1)),
        Words(
            en="You divide by 2^(b-1). Symmetric codes run from -(2^(b-1) - 1) to "
            "2^(b-1) - 1: divide by 127 for 8 bits, by 7 for 4.",
            zh="你除以了 2^(b-1)。对称量化的编码范围是 ±(2^(b-1) - 1)：8 位除以 127，4 位除"
            "以 "
            "7。",
        ),
    ),
    "all_levels": (
        _with(lambda w, levels: w.abs().amax(-1, keepdim=True) / (2 * levels + 1)),
        Words(
            en="You divide by 2^b - 1, as if there were no sign. Half of the codes are "
            "negative.",
            zh="你除以了 2^b - 1，好像没有符号位。编码有一半是负数。",
        ),
    ),
    "maximum_of_signed": (
        _with(lambda w, levels: w.amax(-1, keepdim=True) / levels),
        Words(
            en="You take the largest weight, not the largest |weight|: a row whose largest "
            "one is negative gets the wrong scale.",
            zh="你取的是最大的权重，而不是绝对值最大的：若绝对值最大的是负数，scale 就错"
            "了。",
        ),
    ),
    "truncated": (
        _with(_own, torch.trunc),
        Words(
            en="You cut off instead of rounding: every weight shrinks a little.",
            zh="你直接截断而没有舍入：每个权重都会变小一点。",
        ),
    ),
    "floored": (
        _with(_own, torch.floor),
        Words(
            en="You round down: every weight moves the same way. Round to the nearest.",
            zh="你向下取整：所有权重朝同一个方向移动。应当舍入到最近。",
        ),
    ),
    "codes": (
        _codes,
        Words(
            en="These are the integer codes. Multiply them by the scale again.",
            zh="这是整数编码，还要乘回 scale。",
        ),
    ),
    "not_rounded": (
        lambda w, bits: w.clone(),
        Words(
            en="Nothing is rounded: w / scale * scale is w.",
            zh="没有舍入：w / scale * scale 还是 w。",
        ),
    ),
    "minimum_to_maximum": (
        _min_to_max,
        Words(
            en="You spread the codes from the row's minimum to its maximum. That is "
            "asymmetric quantisation, and 0 need not stay 0; here it is symmetric.",
            zh="你把编码铺满了该行的最小值到最大值。那是非对称量化，0 不一定还是 0；这里要"
            "求"
            "对称。",
        ),
    ),
    "smallest_scale_too_large": (
        lambda w, bits: (
            (w / (scale := _own(w, largest_code(bits)).clamp(min=1e-3))).round() * scale
        ),
        Words(
            en="A row of small weights becomes 0: the smallest scale that you allow is "
            "larger than its own. Make it tiny, it is there for a row of zeros only.",
            zh="权重都很小的行变成了 0：你给 scale 设的下限比它本来的 scale 还大。下限应当"
            "极小，它只是为全零的行准备的。",
        ),
    ),
    "row_of_zeros": (
        _no_guard,
        Words(
            en="A row of zeros becomes NaN: its scale is 0. Give the scale a smallest "
            "value.",
            zh="全零的行变成了 NaN：它的 scale 是 0。给 scale 设一个下限。",
        ),
    ),
    "signed_maximum": (
        lambda w, bits: _steps(w, w.amax(-1, keepdim=True) / (2 ** (bits - 1) - 1)),
        Words(
            en="Your scale is the largest weight, not the largest |weight|: where a "
            "negative one is larger in size its code is out of range.",
            zh="你用最大的权重定 scale，而不是最大的 |权重|：绝对值更大的负权重，编码会超出"
            "范围。",
        ),
    ),
    "one_code_more": (
        _one_code_more,
        Words(
            en="You use the code -2^(b-1) as well, with a scale for 2^(b-1) steps. Here "
            "codes are symmetric: 2^(b-1) - 1 steps on either side.",
            zh="你多用了编码 -2^(b-1)，scale 也按 2^(b-1) 级来算。这里编码是对称的：两边各 "
            "2^(b-1) - 1 级。",
        ),
    ),
}

BY_HAND = Words(en="two rows, four bits", zh="两行，四位")
SCALED = Words(en="a row times 8 has the same codes", zh="一行乘以 8，编码不变")
RANDOM = Words(en="rows of different size", zh="大小不同的行")
SIX = Words(en="six bits", zh="六位")
OUTLIER = Words(en="a row with one large weight", zh="含有一个大权重的行")
SMALL = Words(en="a row of weights near 1e-20", zh="权重约为 1e-20 的行")
ZEROS = Words(en="a row of zeros", zh="全零的行")


def cases(generator: Generator) -> list[Case]:
    def row(n: int, bits: int) -> Tensor:
        """Weights near whole numbers of steps, but no tie, the largest one negative."""
        levels = largest_code(bits)
        codes = torch.randint(1, levels, (n,), generator=generator) * signs(generator, n)
        off = uniform(generator, n, 0.15, 0.4) * signs(generator, n)
        weights = codes + off
        weights[whole(generator, 0, n)] = -levels
        return weights * (0.01 + 0.02 * torch.rand((), generator=generator))

    def matrix(rows: int, columns: int, bits: int) -> Tensor:
        sizes = 3.0 ** torch.randperm(rows, generator=generator)
        return torch.stack([row(columns, bits) for _ in range(rows)]) * sizes[:, None]

    by_hand = torch.tensor([[0.7, -0.24, 0.33], [-1.4, 0.56, 0.13]])
    one = row(4, 4)
    outlier = matrix(3, 5, 8)
    outlier[0, 0] = 127 * outlier[0].abs().max()
    small = matrix(3, 5, 8)
    small[1] *= 1e-20 / small[1].abs().max()
    zeros = matrix(3, 5, 8)
    zeros[1] = 0
    return [
        Case("example", BY_HAND, (by_hand, 4)),
        Case("property", SCALED, (torch.stack([one, 8 * one]), 4)),
        Case("inputs", RANDOM, (matrix(3, 5, 8), 8)),
        Case("inputs", RANDOM, (matrix(4, 6, 4), 4)),
        Case("inputs", SIX, (matrix(3, 7, 6), 6)),
        Case("numbers", OUTLIER, (outlier, 8)),
        Case("numbers", SMALL, (small, 8)),
        Case("numbers", ZEROS, (zeros, 8)),
    ]


EXERCISE = Exercise(
    name="quantise_rows",
    title=Words(en="INT8 and INT4 weights", zh="INT8 与 INT4 权重"),
    reference=reference,
    returns=("stored",),
    cases=cases,
    mistakes=MISTAKES,
    alternatives={"rows": _row_by_row, "integers": _as_integers},
    hints=(
        Words(
            en="One number belongs to each row: how large is one step there?",
            zh="每一行对应一个数：该行的一个步长有多大？",
        ),
        Words(
            en="scale = max|w| of the row / (2^(b-1) - 1); codes = round(w / scale); the "
            "stored weight is code * scale.",
            zh="scale = 该行的 max|w| / (2^(b-1) - 1)；编码 = round(w / scale)；存储的权重 "
            "= "
            "编码 * scale。",
        ),
        Words(
            en="`w.abs().amax(-1, keepdim=True)` has one number for each row; "
            "`.clamp(min=1e-30)` on the scale saves a row of zeros.",
            zh="`w.abs().amax(-1, keepdim=True)` 给出每行一个数；对 scale 用 "
            "`.clamp(min=1e-30)` 可以处理全零的行。",
        ),
    ),
    points=(1, 2),
    minutes=8,
    exact=True,
)
