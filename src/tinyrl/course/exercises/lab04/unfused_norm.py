"""RMSNorm as separate BF16 operations: the same formula, rounded five times."""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from tinyrl.course.exercise import Case, Exercise, Mistakes
from tinyrl.course.exercises.lab04.draws import grid, to_bf16
from tinyrl.course.words import Words

bf = to_bf16


def reference(x: Tensor, gain: Tensor, eps: float) -> Tensor:
    mean = bf(bf(x * x).mean(-1, keepdim=True))
    return bf(bf(x * bf((mean + eps).rsqrt())) * gain)


def _native(x: Tensor, gain: Tensor, eps: float) -> Tensor:
    """BF16 tensors all the way: each torch operation rounds its result."""
    y = x.bfloat16()
    square = (y * y).float().mean(-1, keepdim=True).bfloat16()
    scale = (square.float() + eps).rsqrt().bfloat16()
    return y * scale * gain.bfloat16()


def _row_by_row(x: Tensor, gain: Tensor, eps: float) -> Tensor:
    rows = []
    for row in x:
        mean = bf(bf(row**2).sum() / len(row))
        rows.append(bf(bf(row * bf(1 / (mean + eps).sqrt())) * gain))
    return torch.stack(rows)


def _exact(x: Tensor, gain: Tensor, eps: float) -> Tensor:
    return x * ((x * x).mean(-1, keepdim=True) + eps).rsqrt() * gain


def _gain_rounded_in(x: Tensor, gain: Tensor, eps: float) -> Tensor:
    mean = bf(bf(x * x).mean(-1, keepdim=True))
    return bf(x * bf((mean + eps).rsqrt()) * gain)


def _squares_kept(x: Tensor, gain: Tensor, eps: float) -> Tensor:
    mean = bf((x * x).mean(-1, keepdim=True))
    return bf(bf(x * bf((mean + eps).rsqrt())) * gain)


def _mean_kept(x: Tensor, gain: Tensor, eps: float) -> Tensor:
    mean = bf(x * x).mean(-1, keepdim=True)
    return bf(bf(x * bf((mean + eps).rsqrt())) * gain)


def _last_kept(x: Tensor, gain: Tensor, eps: float) -> Tensor:
    mean = bf(bf(x * x).mean(-1, keepdim=True))
    return bf(x * bf((mean + eps).rsqrt())) * gain


def _divided(x: Tensor, gain: Tensor, eps: float) -> Tensor:
    mean = bf(bf(x * x).mean(-1, keepdim=True))
    return bf(bf(x / bf((mean + eps).sqrt())) * gain)


def _scale_kept(x: Tensor, gain: Tensor, eps: float) -> Tensor:
    mean = bf(bf(x * x).mean(-1, keepdim=True))
    return bf(bf(x * (mean + eps).rsqrt()) * gain)


def _sum_rounded(x: Tensor, gain: Tensor, eps: float) -> Tensor:
    mean = bf(bf(bf(x * x).sum(-1, keepdim=True)) / x.shape[-1])
    return bf(bf(x * bf((mean + eps).rsqrt())) * gain)


def _six_steps(x: Tensor, gain: Tensor, eps: float) -> Tensor:
    """As BF16 tensors do it by themselves: y.pow(2).mean(-1) + eps is one more result."""
    under_root = bf(bf(bf(x * x).mean(-1, keepdim=True)) + eps)
    return bf(bf(x * bf(under_root.rsqrt())) * gain)


def _sum(x: Tensor, gain: Tensor, eps: float) -> Tensor:
    total = bf(bf(x * x).sum(-1, keepdim=True))
    return bf(bf(x * bf((total + eps).rsqrt())) * gain)


def _eps_outside(x: Tensor, gain: Tensor, eps: float) -> Tensor:
    mean = bf(bf(x * x).mean(-1, keepdim=True))
    return bf(bf(x * bf(1 / (mean.sqrt() + eps))) * gain)


def _root(x: Tensor, gain: Tensor, eps: float) -> Tensor:
    mean = bf(bf(x * x).mean(-1, keepdim=True))
    return bf(bf(x * bf((mean + eps).sqrt())) * gain)


def _centred(x: Tensor, gain: Tensor, eps: float) -> Tensor:
    return reference(bf(x - bf(x.mean(-1, keepdim=True))), gain, eps)


def _gain_first(x: Tensor, gain: Tensor, eps: float) -> Tensor:
    mean = _bf(_bf(x * x).mean(-1, keepdim=True))
    return _bf(_bf(x * gain) * _bf((mean + eps).rsqrt()))


def _bf(t: Tensor) -> Tensor:
    return t.to(torch.bfloat16).to(t.dtype)


MISTAKES: Mistakes = {
    "not_rounded": (
        _exact,
        Words(
            en="Nothing is rounded: this is an FP32 norm. Round the result of each step to "
            "BF16.",
            zh="完全没有舍入：这是 FP32 的 norm。每一步的结果都要舍入到 BF16。",
        ),
    ),
    "fused": (
        lambda x, gain, eps: bf(_exact(x, gain, eps)),
        Words(
            en="You round once, at the end. That is the fused kernel; an unfused one "
            "rounds each intermediate result.",
            zh="你只在最后舍入一次。那是融合的 kernel；未融合的会舍入每个中间结果。",
        ),
    ),
    "gain_rounded_in": (
        _gain_rounded_in,
        Words(
            en="x times the scale is not rounded before the gain: that product is a result "
            "of its own.",
            zh="x 乘以缩放系数之后、乘 gain 之前没有舍入：这个乘积本身也是一个结果。",
        ),
    ),
    "squares_kept": (
        _squares_kept,
        Words(
            en="The squares are not rounded. x * x is the first operation, and its result "
            "is stored in BF16.",
            zh="平方没有舍入。x * x 是第一步运算，结果要以 BF16 存储。",
        ),
    ),
    "mean_kept": (
        _mean_kept,
        Words(
            en="The mean of the squares is not rounded.",
            zh="平方的平均值没有舍入。",
        ),
    ),
    "sum_rounded": (
        _sum_rounded,
        Words(
            en="You round the sum of the squares, and then their mean. The mean is one "
            "result: add up in FP32, divide, round once.",
            zh="你先舍入了平方和，再舍入平均。平均是一个结果：用 FP32 求和、相除，只舍入一"
            "次。",
        ),
    ),
    "scale_kept": (
        _scale_kept,
        Words(
            en="The scale 1 / sqrt(mean + eps) is not rounded before it multiplies x.",
            zh="缩放系数 1 / sqrt(mean + eps) 在乘 x 之前没有舍入。",
        ),
    ),
    "last_kept": (
        _last_kept,
        Words(
            en="The last product, with the gain, is not rounded.",
            zh="最后一步乘 gain 的结果没有舍入。",
        ),
    ),
    "divided": (
        _divided,
        Words(
            en="You round the root and divide by it. The third result is the scale "
            "1 / sqrt(mean + eps), rounded as a whole; x is multiplied by it.",
            zh="你舍入了平方根，再用它去除。第三个结果是缩放系数 1 / sqrt(mean + eps)，整体"
            "舍入一次，然后与 x 相乘。",
        ),
    ),
    "six_steps": (
        _six_steps,
        Words(
            en="You round six times: mean + eps, too. Adding eps and the root are one step "
            "here, so add eps in FP32, as in `(mean.float() + eps).rsqrt()`.",
            zh="你舍入了六次：mean + eps 也舍入了。这里加 eps 和开根号算一步，所以要用 "
            "FP32 加 eps，例如 `(mean.float() + eps).rsqrt()`。",
        ),
    ),
    "sum": (
        _sum,
        Words(
            en="You add the squares; RMSNorm takes their mean.",
            zh="你对平方求了和；RMSNorm 取的是平均。",
        ),
    ),
    "eps_outside": (
        _eps_outside,
        Words(
            en="eps is added to the root. It belongs under it, to the mean of the squares.",
            zh="eps 加在了平方根之外。它应当加在根号里，与平方的平均值相加。",
        ),
    ),
    "root": (
        _root,
        Words(
            en="You multiply by the root mean square. Divide by it: `rsqrt`.",
            zh="你乘了均方根。应当除以它：`rsqrt`。",
        ),
    ),
    "no_gain": (
        lambda x, gain, eps: reference(x, torch.ones_like(gain), eps),
        Words(en="The gain is missing.", zh="漏了 gain。"),
    ),
    "centred": (
        _centred,
        Words(
            en="You subtract the mean, as LayerNorm does. RMSNorm does not.",
            zh="你减去了平均值，那是 LayerNorm 的做法。RMSNorm 不减。",
        ),
    ),
    "gain_first": (
        _gain_first,
        Words(
            en="You multiply by the gain before the scale. Rounded products depend on the "
            "order: x times the scale comes first.",
            zh="你先乘了 gain 再乘 scale。舍入后的乘积与顺序有关：先算 x 乘 scale。",
        ),
    ),
    "no_eps": (
        lambda x, gain, eps: reference(x, gain, 0.0),
        Words(
            en="eps is missing: it is added to the mean of the squares.",
            zh="漏了 eps：它要加在平方的均值上。",
        ),
    ),
}

BY_HAND = Words(en="four numbers, gain 1, eps 0", zh="四个数，gain 为 1，eps 为 0")
SIZE = Words(
    en="powers of two stay themselves, up to one scale", zh="2 的幂，只差一个缩放系数"
)
ANY = Words(en="BF16 numbers", zh="BF16 数")
SMALL = Words(en="numbers so small that eps counts", zh="很小的数，eps 起作用")


EPSILON = 41 / 4096  # 0.01 as a BF16 number: adding it to BF16 tensors rounds it anyway
ROWS = 64  # torch's BF16 rsqrt on a CPU rounds the root, too, in rows left over from SIMD


def cases(generator: Generator) -> list[Case]:
    def args(rows: int, D: int, size: float = 1.0) -> tuple[Tensor, Tensor, float]:
        """Of 1/2 to 2 in size, so that float32 adds BF16 squares without rounding.

        D is no power of two, by which a rounded sum is divided without rounding.
        """
        x = grid(generator, rows, D, steps=192, per_unit=128)
        x = x + 0.5 * x.sign()
        gain = 1 + grid(generator, D, steps=32, per_unit=128)
        return bf(size * x), bf(gain), EPSILON

    powers = 2.0 ** torch.randint(0, 2, (ROWS, 8), generator=generator)
    example = torch.tensor([[1.0, -1.0, 1.0, 1.5]])
    return [
        Case("example", BY_HAND, (example, torch.ones(4), 0.0)),
        Case("property", SIZE, (powers, torch.ones(8), 0.0)),
        Case("inputs", ANY, args(ROWS, 6)),
        Case("inputs", ANY, args(2 * ROWS, 5)),
        Case("numbers", SMALL, args(2 * ROWS, 6, 2.0**-4)),
    ]


EXERCISE = Exercise(
    name="unfused_norm",
    title=Words(en="A norm that is not fused", zh="未融合的 norm"),
    reference=reference,
    returns=("y",),
    cases=cases,
    mistakes=MISTAKES,
    alternatives={"native": _native, "row_by_row": _row_by_row},
    hints=(
        Words(
            en="Write the formula as a list of operations, one result each.",
            zh="把公式写成一串运算，每步一个结果。",
        ),
        Words(
            en="Square, mean, add eps and rsqrt (one step), times x, times gain: round "
            "after each of the five.",
            zh="平方、平均、加 eps 再 rsqrt（算一步）、乘 x、乘 gain：这五步之后各舍入一"
            "次。",
        ),
        Words(
            en="Write the rounding as a function in your function, `t.bfloat16().float()`. "
            "The mean keeps its axis: `.mean(1, keepdim=True)`.",
            zh="把舍入 `t.bfloat16().float()` 写成函数里的一个小函数。求平均时保留那一维："
            "`.mean(1, keepdim=True)`。",
        ),
    ),
    points=(1, 2),
    minutes=8,
    exact=True,
)
