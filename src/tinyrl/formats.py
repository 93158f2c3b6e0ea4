"""What a number is: FP32, FP16, BF16, FP8 (E4M3, E5M2), INT8, INT4.

A format is a finite set of numbers; storing x in it keeps the nearest one, and a tie goes
to the neighbour whose last bit is 0. `round_to` writes that definition out, `quantise` is
the fast path that the model takes at every step; the two agree to the last bit.

Sources: IEEE 754-2019; OCP 8-bit Floating Point Specification (OFP8) 1.0; FP8 formats,
arXiv 2209.05433; symmetric integers, arXiv 2004.09602. A format is simulated: values are
kept as float32, and every one of them is a number that the format can hold.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, get_args, get_origin, get_type_hints

import torch
from torch import Tensor

FormatName = Literal["fp32", "fp16", "bf16", "fp8_e4m3", "fp8_e5m2", "int8", "int4"]
Overflow = Literal["saturate", "nan"]
OVERFLOWS: tuple[Overflow, ...] = get_args(Overflow)


@functools.cache
def _hints(part: type) -> dict[str, Any]:
    """Types of a dataclass's fields; to resolve them takes longer than to check them."""
    return get_type_hints(part)


def check_choices(part: object) -> None:
    """Refuse a dataclass whose field holds what its type does not.

    Looks at choices, truth values and numbers, where none of these may be None.

    Without it a misspelt choice would silently act as one of the others.
    """
    for name, hint in _hints(type(part)).items():  # type: ignore[arg-type]
        value = getattr(part, name)
        if get_origin(hint) is Literal:
            choices = get_args(hint)
            if type(value) not in map(type, choices) or value not in choices:
                known = ", ".join(map(str, choices))
                raise ValueError(f"{name} must be one of {known}, not {value!r}")
        if hint is bool and type(value) is not bool:
            raise ValueError(f"{name} must be true or false, not {value!r}")
        if hint is int and type(value) is not int:
            raise ValueError(f"{name} must be a whole number, not {value!r}")
        if hint is float and type(value) not in (int, float):
            raise ValueError(f"{name} must be a number, not {value!r}")


@dataclass(frozen=True)
class Format:
    """Sign, exponent and mantissa bits, and the numbers that follow from them.

    An integer has no exponent bits: it counts steps of a scale kept beside it, so its
    numbers here are in units of that scale and the step is 1 everywhere.
    """

    name: FormatName
    exponent_bits: int
    mantissa_bits: int  # without the leading 1, which is not stored
    has_inf: bool = True  # E4M3 gives inf's codes to numbers and keeps one code for NaN

    @property
    def is_integer(self) -> bool:
        return self.exponent_bits == 0

    @property
    def bits(self) -> int:
        return 1 + self.exponent_bits + self.mantissa_bits

    @property
    def bias(self) -> int:
        """The stored exponent of 1.0."""
        return (1 << (self.exponent_bits - 1)) - 1

    @cached_property
    def max(self) -> float:
        """The largest finite number."""
        if self.is_integer:
            return 2.0**self.mantissa_bits - 1  # symmetric: -128 (-8) is not used
        if self.has_inf:  # the highest exponent is kept for inf and NaN
            return 2.0 ** (self.bias + 1) - 2.0 ** (self.bias - self.mantissa_bits)
        return 2.0 ** (self.bias + 2) - 2.0 ** (self.bias + 2 - self.mantissa_bits)

    @cached_property
    def smallest_normal(self) -> float:
        return 1.0 if self.is_integer else 2.0 ** (1 - self.bias)

    @cached_property
    def smallest_subnormal(self) -> float:
        return self.smallest_normal * self.epsilon

    @cached_property
    def epsilon(self) -> float:
        """The gap between 1 and the next number up."""
        return 1.0 if self.is_integer else 2.0**-self.mantissa_bits


FORMATS: dict[FormatName, Format] = {
    "fp32": Format("fp32", 8, 23),
    "fp16": Format("fp16", 5, 10),
    "bf16": Format("bf16", 8, 7),
    "fp8_e4m3": Format("fp8_e4m3", 4, 3, has_inf=False),
    "fp8_e5m2": Format("fp8_e5m2", 5, 2),
    "int8": Format("int8", 0, 7, has_inf=False),
    "int4": Format("int4", 0, 3, has_inf=False),
}


def _lookup(fmt: str, overflow: str = "saturate") -> Format:
    if fmt not in FORMATS:
        raise ValueError(f"unknown format {fmt!r}: choose one of {', '.join(FORMATS)}")
    if overflow not in OVERFLOWS:
        raise ValueError(f"unknown overflow {overflow!r}: choose 'saturate' or 'nan'")
    return FORMATS[fmt]


def _beyond(f: Format, overflow: Overflow) -> float:
    """What a number too large for the format becomes: `max`, inf or NaN."""
    if f.is_integer or (f.bits == 8 and overflow == "saturate"):
        return f.max
    return math.inf if f.has_inf else math.nan


# ---- the definition


def spacing(x: Tensor, fmt: FormatName) -> Tensor:
    """The gap between neighbouring numbers of the format around each finite x, float64.

    2^(exponent of x - mantissa bits): relative for normal numbers, and constant below the
    smallest normal one, where the subnormal numbers are.
    """
    f = _lookup(fmt)
    if f.is_integer:
        return torch.ones_like(x, dtype=torch.float64)
    normal = x.double().abs().clamp(min=f.smallest_normal)
    power_of_two = normal.view(torch.int64) & (0x7FF << 52)  # drops float64's mantissa
    return power_of_two.view(torch.float64) * f.epsilon


def round_to(x: Tensor, fmt: FormatName, overflow: Overflow = "saturate") -> Tensor:
    """The number of the format nearest to each x, in x's dtype; ties to the even one.

    Shape and dtype (float32 or float64) of x. What rounds to beyond the largest number
    becomes inf in FP32, FP16 and BF16 and, in FP8, what `overflow` says: "saturate" takes
    the largest number, for inf too; "nan" takes NaN in E4M3, which has no inf, and inf in
    E5M2 (OFP8 1.0). NaN stays NaN, and zero keeps its sign. INT8 and INT4 take x in
    units of the scale and saturate; they have one zero, and a NaN is carried.
    """
    f = _lookup(fmt, overflow)
    if x.dtype not in (torch.float32, torch.float64):
        raise ValueError(f"round_to takes float32 or float64, not {x.dtype}")
    step = spacing(x.nan_to_num(), fmt)
    y = torch.round(x.double() / step) * step  # torch.round: half to even
    beyond = torch.full_like(y, _beyond(f, overflow))
    y = torch.where(y.abs() > f.max, beyond.copysign(y), y)
    return (y + 0.0 if f.is_integer else y).to(x.dtype)  # -0.0 + 0.0 is 0.0


def neighbours(x: Tensor, fmt: FormatName) -> tuple[Tensor, Tensor]:
    """The largest number of the format <= x and the smallest >= x, float64, finite x.

    Both are x where the format holds it; past the largest number they are it and inf.
    """
    f, step = _lookup(fmt), spacing(x, fmt)
    below, above = (x.double() / step).floor() * step, (x.double() / step).ceil() * step
    below = torch.where(below < -f.max, -math.inf, below.clamp(max=f.max))
    above = torch.where(above > f.max, math.inf, above.clamp(min=-f.max))
    return below, above


# ---- the fast path


def quantise(x: Tensor, fmt: FormatName, *, overflow: Overflow = "saturate") -> Tensor:
    """x as the format stores it: float32 in and out, any shape; "fp32" returns x itself.

    Floating-point formats: `round_to`, bit for bit. INT8 and INT4: symmetric, one scale =
    max|x| / 127 (7) for each vector along the last axis, so a vector of zeros stays zeros.
    There, NaN or inf anywhere in a vector makes all of it NaN: it can't pass unseen.
    The gradient is that of the identity (straight-through estimator, arXiv 1308.3432).
    """
    f = _lookup(fmt, overflow)
    if fmt == "fp32":
        return x
    if not isinstance(x, Tensor) or x.dtype != torch.float32:
        found = x.dtype if isinstance(x, Tensor) else type(x).__name__
        raise ValueError(f"quantise to {fmt} takes a float32 tensor, not {found}")
    if torch.is_grad_enabled() and x.requires_grad:
        y: Tensor = _StraightThrough.apply(x, f, overflow)  # type: ignore[no-untyped-call]
        return y
    return _nearest(x, f, overflow)


class _StraightThrough(torch.autograd.Function):
    """Rounds forwards, does nothing backwards: rounding itself has gradient 0."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, f: Format, overflow: Overflow) -> Tensor:
        return _nearest(x, f, overflow)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        return grad, None, None


def _nearest(x: Tensor, f: Format, overflow: Overflow) -> Tensor:
    if f.name == "bf16":
        return x.bfloat16().float()
    if f.name == "fp16":
        return x.half().float()
    if f.is_integer:
        return _scaled_integer(x, f)
    return _fp8(x, f, overflow)


SIGN, EXPONENT = -0x80000000, 0x7F800000  # the bits of a float32 seen as an int32


def _fp8(x: Tensor, f: Format, overflow: Overflow) -> Tensor:
    """Let the adder round: near 1.5 * 2^23 * step, float32 itself has that step.

    Faster than torch's own E4M3 cast, which also gives NaN for a number too large before
    torch 2.12 and saturates since (pytorch/pytorch#178817).
    """
    limit = f.max if overflow == "saturate" else 2 * f.max
    y = x.clamp(-limit, limit)  # NaN stays NaN
    anchor = (y.view(torch.int32) & EXPONENT).view(torch.float32)  # 2^exponent
    anchor = anchor.clamp_(min=f.smallest_normal).mul_(1.5 * 2**23 * f.epsilon)
    y.add_(anchor).sub_(anchor)
    y.view(torch.int32).bitwise_or_(x.view(torch.int32) & SIGN)  # a zero had lost it
    if overflow == "nan":
        y = torch.where(y.abs() > f.max, y * _beyond(f, overflow), y)
    return y


def _scaled_integer(x: Tensor, f: Format) -> Tensor:
    if x.numel() == 0:
        return x.clone()
    scale = x.abs().amax(-1, keepdim=True) / f.max
    scale.clamp_(min=torch.finfo(torch.float32).tiny)  # zeros / tiny = zeros
    # |x| / scale rounds to max at most; adding 0 turns -0 into the one zero of an integer
    return (x / scale).round_().add_(0.0).mul_(scale)


# ---- bit patterns


def bits(x: float, fmt: FormatName, *, overflow: Overflow = "saturate") -> str:
    """The pattern "sign|exponent|mantissa" in which the format stores x, rounded first.

    bits(-1.5, "fp16") is "1|01111|1000000000". An integer is two's complement and has
    two fields: bits(-3, "int8") is "1|1111101".
    """
    f = _lookup(fmt, overflow)
    y = round_to(torch.tensor(x, dtype=torch.float64), fmt, overflow).item()
    sign = int(math.copysign(1.0, y) < 0)
    if f.is_integer:
        if math.isnan(y):
            raise ValueError(f"{fmt} has no pattern for NaN")
        return f"{sign}|{int(y) % 2**f.mantissa_bits:0{f.mantissa_bits}b}"
    exponent, mantissa = _fields(abs(y), f)
    return f"{sign}|{exponent:0{f.exponent_bits}b}|{mantissa:0{f.mantissa_bits}b}"


def _fields(y: float, f: Format) -> tuple[int, int]:
    """Stored exponent and mantissa of a number y >= 0 of the format, inf or NaN."""
    ones = 2**f.exponent_bits - 1
    if math.isnan(y):
        return ones, 2 ** (f.mantissa_bits - 1) if f.has_inf else 2**f.mantissa_bits - 1
    if math.isinf(y):
        return ones, 0
    stored = max(math.frexp(y)[1] - 1 + f.bias, 1) if y else 1
    mantissa = int(y / 2.0 ** (stored - f.bias - f.mantissa_bits))
    leading, mantissa = divmod(mantissa, 2**f.mantissa_bits)
    return stored if leading else 0, mantissa  # stored exponent 0: subnormal or zero


def from_bits(pattern: str, fmt: FormatName) -> float:
    """The number that a pattern of `bits` stands for; ValueError if it isn't one."""
    f = _lookup(fmt)
    fields = pattern.split("|")
    widths = [1, f.mantissa_bits] if f.is_integer else [1, f.exponent_bits, f.mantissa_bits]
    if [len(field) for field in fields] != widths or not set(pattern) <= set("01|"):
        shape = "|".join("b" * width for width in widths)
        raise ValueError(f"{pattern!r} is not a pattern of {fmt}, which looks like {shape}")
    sign, *middle, mantissa = (int(field, 2) for field in fields)
    if f.is_integer:
        return float(mantissa - sign * 2**f.mantissa_bits)
    (exponent,) = middle
    return (1 - 2 * sign) * _value(exponent, mantissa, f)


def _value(exponent: int, mantissa: int, f: Format) -> float:
    if exponent == 2**f.exponent_bits - 1:
        if f.has_inf:
            return math.nan if mantissa else math.inf
        if mantissa == 2**f.mantissa_bits - 1:
            return math.nan
    if exponent == 0:
        return mantissa * f.smallest_subnormal
    return (1 + mantissa * f.epsilon) * 2.0 ** (exponent - f.bias)
