"""A number as a format stores it: its bits, what they stand for, what lies beside it.

`Stored` is one pattern of one format: flip a bit, step to a neighbour, read its value
exactly. `overview` shows one number in every format, as a table that needs no kernel.
"""

from __future__ import annotations

import html
import math
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from typing import Literal

from tinyrl.course.words import Words
from tinyrl.formats import FORMATS, Format, FormatName, bits, from_bits

Kind = Literal["zero", "subnormal", "normal", "integer", "infinite", "not a number"]
KINDS: dict[Kind, Words] = {
    "zero": Words("zero", "零"),
    "subnormal": Words(
        "subnormal: no leading 1, fewer bits", "次正规数：没有前导 1，位数更少"
    ),
    "normal": Words("normal", "规格化数"),
    "integer": Words("integer, in steps of the scale", "整数，以 scale 为单位"),
    "infinite": Words("infinite", "无穷大"),
    "not a number": Words("not a number", "NaN"),
}
NAMES: dict[FormatName, str] = {
    "fp32": "FP32",
    "fp16": "FP16",
    "bf16": "BF16",
    "fp8_e4m3": "FP8 E4M3",
    "fp8_e5m2": "FP8 E5M2",
    "int8": "INT8",
    "int4": "INT4",
}
EXACT_DIGITS = 24  # a longer decimal is told as a whole number times a power of two


@dataclass(frozen=True)
class Stored:
    """One pattern of a format: `code` is its bits read as a whole number."""

    fmt: FormatName
    code: int

    def __post_init__(self) -> None:
        if self.fmt not in FORMATS:
            raise ValueError(f"fmt must be one of {', '.join(FORMATS)}, not {self.fmt!r}")
        if not 0 <= self.code < 1 << self.format.bits:
            raise ValueError(
                f"code must be 0 to {(1 << self.format.bits) - 1}: {self.code}"
            )

    @classmethod
    def of(cls, x: float, fmt: FormatName) -> Stored:
        """x rounded to the format; what overflows is as `formats.round_to` has it."""
        return cls(fmt, int(bits(x, fmt).replace("|", ""), 2))

    @property
    def format(self) -> Format:
        return FORMATS[self.fmt]

    @cached_property
    def fields(self) -> tuple[str, ...]:
        """Sign, exponent, mantissa; of an integer sign and the rest."""
        text, f = f"{self.code:0{self.format.bits}b}", self.format
        if f.is_integer:
            return text[0], text[1:]
        return text[0], text[1 : 1 + f.exponent_bits], text[1 + f.exponent_bits :]

    @cached_property
    def value(self) -> float:
        return from_bits("|".join(self.fields), self.fmt)

    @property
    def kind(self) -> Kind:
        if math.isnan(self.value):
            return "not a number"
        if math.isinf(self.value):
            return "infinite"
        if self.format.is_integer:
            return "integer"
        if self.value == 0:
            return "zero"
        return "normal" if abs(self.value) >= self.format.smallest_normal else "subnormal"

    def flip(self, place: int) -> Stored:
        """With the bit at `place` turned, counted from the sign at 0."""
        width = self.format.bits
        if not 0 <= place < width:
            raise ValueError(f"place must be 0 to {width - 1}, not {place}")
        return Stored(self.fmt, self.code ^ 1 << (width - 1 - place))

    def up(self) -> Stored | None:
        """The next larger number, inf behind the largest; None where there is none."""
        return self._beside(1)

    def down(self) -> Stored | None:
        """The next smaller number."""
        return self._beside(-1)

    def _beside(self, step: int) -> Stored | None:
        if self.kind == "not a number":
            return None
        f, top = self.format, 1 << (self.format.bits - 1)
        if f.is_integer:
            moved = self.value + step
            inside = -top <= moved < top
            return Stored(self.fmt, int(moved) % (2 * top)) if inside else None
        size, negative = self.code % top, self.code >= top
        place = (-size if negative else size) + step  # patterns count in order of size
        beside = Stored(self.fmt, abs(place) + (top if place < 0 else 0))
        beyond = abs(place) >= top or beside.kind == "not a number"
        return None if beyond else beside

    @property
    def spacing(self) -> float | None:
        """The gap to the neighbour away from 0, or to the one before the largest number."""
        away, back = (
            (self.up(), self.down()) if self.value >= 0 else (self.down(), self.up())
        )
        for beside in (away, back):
            if beside is not None and math.isfinite(beside.value - self.value):
                return abs(beside.value - self.value)
        return None

    @property
    def exact(self) -> str:
        """The value to the last digit: a decimal, or whole number times a power of two."""
        if not math.isfinite(self.value):
            return str(self.value)
        decimal = f"{Decimal(self.value):f}"
        if len(decimal) <= EXACT_DIGITS:
            return decimal
        numerator, denominator = Fraction(self.value).as_integer_ratio()
        twos = (numerator & -numerator).bit_length() - 1  # those that divide it
        return f"{numerator >> twos} * 2^{twos - denominator.bit_length() + 1}"

    @property
    def formula(self) -> str:
        """How the fields make the value."""
        f, sign = self.format, "-" if self.fields[0] == "1" else ""
        if f.is_integer:
            return f"{-int(self.fields[0]) << f.mantissa_bits} + {int(self.fields[1], 2)}"
        if self.kind in ("infinite", "not a number"):
            return str(self.value)
        e, m = int(self.fields[1], 2), int(self.fields[2], 2)
        leading, power = (1, e - f.bias) if e else (0, 1 - f.bias)
        return f"{sign}({leading} + {m}/{1 << f.mantissa_bits}) * 2^{power}"


LOST = Words("below half of the smallest number: becomes 0", "小于最小数的一半：变成 0")
OVER = Words("beyond the largest number", "超出最大数")
ROUNDED = Words("rounded by {:.2g}, {:.2f} of a gap", "舍入了 {:.2g}，即间距的 {:.2f}")
KEPT = Words("held exactly", "可精确表示")


def fate(x: float, fmt: FormatName) -> Words:
    """What storing x does to it: kept, rounded, lost or beyond the range."""
    stored, f = Stored.of(x, fmt), FORMATS[fmt]
    if x == stored.value or math.isnan(x):
        return KEPT
    beyond = abs(stored.value) == f.max and abs(x) - f.max > (stored.spacing or 0) / 2
    if math.isinf(stored.value) or beyond:
        return Words(
            f"{OVER.en}: becomes {stored.value:g}", f"{OVER.zh}：变成 {stored.value:g}"
        )
    if stored.value == 0:
        return LOST
    error = abs(stored.value - x)
    share = error / (stored.spacing or math.inf)
    return Words(ROUNDED.en.format(error, share), ROUNDED.zh.format(error, share))


@dataclass(frozen=True)
class Overview:
    """One number in every format; shows itself as a table, and as lines elsewhere."""

    x: float

    def rows(self) -> list[tuple[str, str, str, str, str]]:
        """Format, bits, value, gap to the next number, and what became of x."""
        stored = [Stored.of(self.x, fmt) for fmt in NAMES if self._fits(fmt)]
        return [
            (
                NAMES[s.fmt],
                " ".join(s.fields),
                f"{s.value:.9g}",
                "-" if s.spacing is None else f"{s.spacing:.3g}",
                str(fate(self.x, s.fmt)),
            )
            for s in stored
        ]

    def _fits(self, fmt: FormatName) -> bool:
        return not (FORMATS[fmt].is_integer and math.isnan(self.x))

    def __str__(self) -> str:
        table = [tuple(map(str, HEADS)), *self.rows()]
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        lines = (zip(cells, widths, strict=True) for cells in table)
        return "\n".join("  ".join(c.ljust(w) for c, w in line).rstrip() for line in lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        head = "".join(f'<th scope="col" {_LEFT}>{h}</th>' for h in HEADS)
        body = "".join(
            f'<tr><th scope="row" {_LEFT}>{name}</th>'
            + "".join(f"<td {_LEFT}>{html.escape(cell)}</td>" for cell in cells)
            + "</tr>"
            for name, *cells in self.rows()
        )
        caption = f"<caption>x = {self.x!r}</caption>"
        return (
            f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
        )


_LEFT = 'style="text-align:left;font-variant-numeric:tabular-nums"'
HEADS = (
    Words("format", "格式"),
    Words("sign, exponent, mantissa", "符号、指数、尾数"),
    Words("stored as", "存储值"),
    Words("gap", "间距"),
    Words("what became of it", "结果"),
)


def overview(x: float) -> Overview:
    """x in every format of the course; INT8 and INT4 in steps of a scale of 1."""
    return Overview(float(x))
