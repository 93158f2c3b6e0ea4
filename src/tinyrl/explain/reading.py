"""What flags mean, in our terms and in words, English and Chinese."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import NamedTuple

from ..correction import Correction, Denominator, Mode, Operation, Weight
from ..objectives import Level
from ..presets import PRESETS, Loss, Release
from ..said import Said


class Part(NamedTuple):
    """One operation in words."""

    level: Said
    operation: Said
    bounds: Said


@dataclass(frozen=True)
class Reading:
    """What a framework does with these flags."""

    release: Release
    parts: tuple[Part, ...]
    where: Said
    """Where the weight enters the loss."""
    denominator: Said
    correction: Correction | None
    """None where no `Correction` says it: then `lacking` tells why."""
    mode: Mode = "decoupled"
    loss: Loss = "clipped"
    lacking: Said | None = None
    beside: tuple[Said, ...] = ()
    """What else the flags turn on."""
    traps: tuple[Said, ...] = ()
    unread: tuple[str, ...] = ()
    """What was given and is none of this command's business, as it was written."""

    def presets(self, framework: str) -> list[str]:
        """Names in `PRESETS` that say the same."""
        mine = self.correction, self.mode, self.loss
        return [
            name
            for name, p in PRESETS.items()
            if p.framework == framework and (p.correction, p.mode, p.loss) == mine
        ]


@dataclass(frozen=True)
class Step:
    """One operation as a framework does it; a `Correction` refuses some bounds of these."""

    level: Level
    operation: Operation
    lower: float | None
    upper: float | None
    weight: Weight = "ratio"
    normalise: bool = False
    veto: float | None = None

    @property
    def spares_equals(self) -> bool:
        """Whether equal policies, every ratio 1, are left alone, and others are not."""
        low = 0.0 if self.lower is None else self.lower
        high = math.inf if self.upper is None else self.upper
        return low <= 1 <= high and low != high

    def said(self) -> Part:
        """In words."""
        return Part(LEVEL[self.level], _operation(self), _bounds(self.lower, self.upper))


def combined(steps: Sequence[Step], denominator: Denominator) -> Correction:
    """All steps as one `Correction`."""
    whole: Correction | None = None
    for s in reversed(steps):
        whole = Correction(
            *(s.level, s.operation, s.lower, s.upper, s.weight, s.normalise, s.veto),
            denominator=denominator,
            also=whole,
        )
    return whole or Correction()


NOTHING = Part(
    Said("none", "无"),
    Said(
        "none: every weight is 1, every token stays",
        "无：权重都是 1，token 全部保留",
    ),
    Said("none", "无"),
)
LEVEL = {
    "token": Said(
        "token: each token is judged by its own rho",
        "token 级：每个 token 只看自己的 rho",
    ),
    "sequence": Said(
        "sequence, by product: rho is the product of a response's token ratios, one number "
        "for all its tokens",
        "序列级（连乘）：rho 是一条回答所有 token 比值的乘积，全部 token 共用这一个数",
    ),
    "geometric": Said(
        "sequence, by geometric mean: rho is the T-th root of the product of a response's "
        "token ratios, one number for all its tokens",
        "序列级（几何平均）：rho 是所有 token 比值乘积的 T 次方根，全部 token 共用这一个数",
    ),
}


def code(correction: Correction) -> str:
    """The correction as one writes it, without what holds by default."""
    plain = replace(Correction(), operation=correction.operation)
    said = {
        f.name: getattr(correction, f.name)
        for f in fields(correction)
        if getattr(correction, f.name) != getattr(plain, f.name)
    }
    first = []
    if correction.operation != "none":
        head = ("level", "operation", "lower", "upper")
        first = [_written(getattr(correction, name)) for name in head]
        said = {name: value for name, value in said.items() if name not in head}
    rest = [f"{name}={_written(value)}" for name, value in said.items()]
    return f"Correction({', '.join(first + rest)})"


def _written(value: object) -> str:
    if isinstance(value, Correction):
        return code(value)
    if isinstance(value, str):
        return f'"{value}"'
    return "math.inf" if value == math.inf else repr(value)


def _operation(s: Step) -> Said:
    what, was = ("token", "该 token") if s.level == "token" else ("response", "整条回答")
    if s.operation == "mask":
        kept = "rho" if s.weight == "ratio" else "1"
        said = Said(
            f"mask: a {what} outside the bounds is dropped; what stays has weight {kept}",
            f"屏蔽：出界就丢掉{was}；留下的权重为 {kept}",
        )
    elif s.lower is None and s.upper == math.inf:
        said = Said("weigh: rho as it is, without a cap", "加权：直接用 rho，不设上限")
    elif s.lower is not None and s.upper is not None:
        said = Said(
            "truncate on both sides (a clamp): the weight is rho, moved to the bound that "
            "it passes",
            "两侧截断（clamp）：权重为 rho，出界时取该侧的界",
        )
    else:
        said = Said(
            "truncate: the weight is rho, moved to the bound if it passes it",
            "截断：权重为 rho，出界时取界值",
        )
    if s.normalise:
        said = Said(
            f"{said.en}; then all weights are divided by their mean",
            f"{said.zh}；然后所有权重除以它们的均值",
        )
    if s.veto is not None:
        said = Said(
            f"{said.en}; a response with any token ratio below {s.veto:g} is dropped whole",
            f"{said.zh}；只要有一个 token 的比值低于 {s.veto:g}，整条回答丢弃",
        )
    return said


def _bounds(low: float | None, high: float | None) -> Said:
    if low is None and high in (None, math.inf):
        return Said("none", "无")
    if low is None:
        return Said(f"rho at most {high:.6g}", f"rho 不超过 {high:.6g}")
    if high is None:
        return Said(f"rho at least {low:.6g}", f"rho 不低于 {low:.6g}")
    return Said(f"rho from {low:.6g} to {high:.6g}", f"rho 在 {low:.6g} 到 {high:.6g} 之间")
