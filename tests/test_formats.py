"""Rounding against torch's casts, ml_dtypes and exact fractions, to the last bit."""

import math
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from number_formats import INTEGERS, NUMPY, SMALL, TORCH, every_number
from tinyrl.formats import FORMATS, from_bits, neighbours, quantise, round_to, spacing

OVERFLOWS = ["saturate", "nan"]
finite = st.floats(-(2.0**127), 2.0**127, width=32)


def assert_same_bits(x: Tensor, y: Tensor) -> None:
    """Equal as float32 patterns, so that -0 isn't 0; any NaN equals any NaN."""
    assert x.dtype == y.dtype == torch.float32
    assert x.shape == y.shape
    same = (x.view(torch.int32) == y.view(torch.int32)) | (x.isnan() & y.isnan())
    assert same.all(), f"{(~same).sum()} differ, first {x[~same][0]} and {y[~same][0]}"


def hard_inputs(fmt: str) -> Tensor:
    """Every number of the format, every tie between two, and their float32 neighbours."""
    numbers = every_number(fmt)
    numbers = numbers[numbers.isfinite()].unique()
    ties = (numbers[1:].double() + numbers[:-1].double()).div(2).float()  # exact
    f = FORMATS[fmt]
    past = (
        f.max + torch.tensor([0.5, 1.0, 1.5, 2.0]) * f.max * f.epsilon
    )  # around the last tie
    special = torch.tensor([0.0, math.inf, math.nan, 2.0**-149, 2.0**-126, 3.4028235e38])
    base = torch.cat([numbers, ties, past, special])
    up, down = torch.tensor(math.inf), torch.tensor(-math.inf)
    near = [base, torch.nextafter(base, up), torch.nextafter(base, down)]
    return torch.cat([*near, *(-x for x in near)])


def random_inputs(n: int = 1_000_000) -> Tensor:
    """Random patterns: every exponent, subnormals, inf and NaN."""
    generator = torch.Generator().manual_seed(0)
    patterns = torch.randint(-(2**31), 2**31, (n,), generator=generator)
    return patterns.to(torch.int32).view(torch.float32)


def ml_dtypes_cast(x: Tensor, fmt: str) -> Tensor:
    """The reference for overflow "nan", which is what ml_dtypes does."""
    with np.errstate(all="ignore"):
        return torch.from_numpy(x.numpy().astype(NUMPY[fmt]).astype(np.float32))


def saturated(x: Tensor, fmt: str) -> Tensor:
    """x with what lies past the largest number of an 8-bit format brought back to it."""
    largest = torch.finfo(TORCH[fmt]).max
    return x.clamp(-largest, largest) if FORMATS[fmt].bits == 8 else x


@pytest.fixture(scope="module", params=["random", "hard", "patterns"])
def inputs(request):
    if request.param == "random":
        return lambda fmt: random_inputs()
    patterns = torch.cat([every_number(fmt) for fmt in SMALL])
    return hard_inputs if request.param == "hard" else lambda fmt: patterns


@pytest.mark.parametrize("rounding", [quantise, round_to])
@pytest.mark.parametrize("fmt", SMALL)
def test_equals_ml_dtypes(inputs, rounding, fmt):
    x = inputs(fmt)
    assert_same_bits(rounding(x, fmt, overflow="nan"), ml_dtypes_cast(x, fmt))
    want = ml_dtypes_cast(saturated(x, fmt), fmt)
    assert_same_bits(rounding(x, fmt, overflow="saturate"), want)


@pytest.mark.parametrize("rounding", [quantise, round_to])
@pytest.mark.parametrize("fmt", SMALL)
def test_equals_torch_cast(inputs, rounding, fmt):
    x = inputs(fmt)
    want = saturated(x, fmt).to(TORCH[fmt]).float()
    assert_same_bits(rounding(x, fmt, overflow="saturate"), want)
    if fmt != "fp8_e4m3":
        assert_same_bits(rounding(x, fmt, overflow="nan"), x.to(TORCH[fmt]).float())
    elif torch.tensor(1e3).to(TORCH[fmt]).float() == 448:  # torch 2.12 or newer
        assert_same_bits(rounding(x, fmt), x.to(TORCH[fmt]).float())


def test_fp32():
    x = random_inputs()
    assert quantise(x, "fp32") is x
    assert_same_bits(round_to(x, "fp32"), x)
    wide = torch.randn(
        10_000, dtype=torch.float64, generator=torch.Generator().manual_seed(0)
    )
    wide = torch.cat([wide * 2.0**k for k in (0, 127, 130, -126, -140, -149, -160)])
    assert_same_bits(round_to(wide, "fp32").float(), wide.float())
    assert round_to(wide, "fp32").dtype == torch.float64


def test_rounds_once_from_float64():
    # 1 + 2^-8 is a tie of bf16 and goes down to 1; a hair more must go up, but float32
    # can't see the hair
    x = torch.tensor(1 + 2.0**-8 + 2.0**-40, dtype=torch.float64)
    assert round_to(x, "bf16") == 1 + 2**-7
    assert round_to(x.float(), "bf16") == 1


@pytest.mark.parametrize("fmt", FORMATS)
@given(x=st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_is_the_nearest_number_in_exact_arithmetic(fmt, x):
    f, y = FORMATS[fmt], round_to(torch.tensor(x), fmt, "nan").item()
    binade = max(Fraction(2) ** (math.frexp(x)[1] - 1), Fraction(f.smallest_normal))
    step = Fraction(1) if fmt in INTEGERS else binade * Fraction(f.epsilon)
    nearest = round(Fraction(x) / step) * step  # Python rounds half to even
    if abs(nearest) <= f.max:
        assert Fraction(y) == nearest
    else:
        beyond = f.max if fmt in INTEGERS else math.inf if f.has_inf else math.nan
        assert str(y) == str(math.copysign(beyond, x)) or (
            math.isnan(y) and math.isnan(beyond)
        )


@pytest.mark.parametrize("overflow", OVERFLOWS)
@pytest.mark.parametrize("fmt", FORMATS)
class TestProperties:
    @given(x=finite | st.sampled_from([math.inf, -math.inf, math.nan]))
    def test_idempotent(self, fmt, overflow, x):
        once = round_to(torch.tensor([x]), fmt, overflow)
        assert_same_bits(round_to(once, fmt, overflow), once)
        once = quantise(torch.tensor([x]), fmt, overflow=overflow)
        assert_same_bits(quantise(once, fmt, overflow=overflow), once)

    @given(x=st.floats(width=32, allow_nan=False), y=st.floats(width=32, allow_nan=False))
    def test_monotone(self, fmt, overflow, x, y):
        low, high = round_to(torch.tensor(sorted([x, y])), fmt, overflow)
        assert low <= high or low.isnan() or high.isnan()

    @given(x=st.floats(width=32, allow_nan=False))
    def test_sign_symmetric(self, fmt, overflow, x):
        x = torch.tensor([x])
        plus, minus = (quantise(y, fmt, overflow=overflow) for y in (x, -x))
        torch.testing.assert_close(minus, -plus, rtol=0, atol=0, equal_nan=True)

    @given(x=finite)
    def test_error_is_at_most_half_the_spacing(self, fmt, overflow, x):
        x = torch.tensor(x).clamp(-FORMATS[fmt].max, FORMATS[fmt].max)
        error = (round_to(x, fmt, overflow).double() - x.double()).abs()
        assert error <= spacing(x, fmt) / 2

    @given(x=finite)
    def test_lies_between_its_neighbours(self, fmt, overflow, x):
        x = torch.tensor(x).clamp(-FORMATS[fmt].max, FORMATS[fmt].max)
        below, above = neighbours(x, fmt)
        assert below <= x <= above
        assert round_to(x, fmt, overflow).double() in (below, above)
        assert above - below in (0, spacing(x, fmt))

    def test_gradient_is_the_identity(self, fmt, overflow):
        x = torch.randn(3, 5, generator=torch.Generator().manual_seed(0)).mul(300)
        x.requires_grad_()
        seen = torch.randn(3, 5, generator=torch.Generator().manual_seed(1))
        y = quantise(x, fmt, overflow=overflow)
        assert y.requires_grad
        (y * seen).sum().backward()
        assert torch.equal(x.grad, seen)
        with torch.no_grad():
            assert_same_bits(quantise(x, fmt, overflow=overflow), y)

    def test_leaves_its_input_alone_whatever_the_layout(self, fmt, overflow):
        x = torch.randn(6, 4, 8, generator=torch.Generator().manual_seed(0)).mul(300)
        for view in (x, x.transpose(0, 2), x[::2, :, 1:], x[0, 0].expand(5, 8), x[0, 0, 0]):
            before = view.clone()
            got = quantise(view, fmt, overflow=overflow)
            assert_same_bits(view.clone(), before)
            assert_same_bits(got, quantise(before.contiguous(), fmt, overflow=overflow))
        assert quantise(torch.empty(0, 4), fmt).shape == (0, 4)
        assert quantise(torch.empty(4, 0), fmt).shape == (4, 0)


@pytest.mark.parametrize("fmt", FORMATS)
def test_neighbours_past_the_largest_number(fmt):
    largest = FORMATS[fmt].max
    x = torch.tensor([largest * 1.5, -largest * 1.5], dtype=torch.float64)
    below, above = neighbours(x, fmt)
    assert below.tolist() == [largest, -math.inf]
    assert above.tolist() == [math.inf, -largest]


@pytest.mark.parametrize("fmt", [*SMALL, "fp32"])
def test_format_numbers_equal_ml_dtypes(fmt):
    f, info = FORMATS[fmt], ml_dtypes.finfo(NUMPY[fmt])
    assert f.bits == info.bits
    assert (f.exponent_bits, f.mantissa_bits) == (info.nexp, info.nmant)
    assert f.max == float(info.max)
    assert f.smallest_normal == float(info.smallest_normal)
    assert f.smallest_subnormal == float(info.smallest_subnormal)
    assert f.epsilon == float(info.eps)


# ---- integers


@pytest.mark.parametrize(("fmt", "levels"), [("int8", 127), ("int4", 7)])
@pytest.mark.parametrize("axes", [(0, 1, 2), (2, 0, 1)])  # the second: not contiguous
def test_integers_equal_stored_codes_times_scale(fmt, levels, axes):
    x = torch.randn(7, 5, 9, generator=torch.Generator().manual_seed(0))
    x[2, 3] = x[:, 3, 4] = 0
    x = x.permute(axes)
    vectors = x.numpy()
    want = np.zeros_like(vectors)
    for i in np.ndindex(vectors.shape[:-1]):
        scale = np.abs(vectors[i]).max() / np.float32(levels)
        codes = np.rint(vectors[i] / scale).astype(np.int8) if scale else 0
        want[i] = np.float32(codes) * scale
    assert_same_bits(quantise(x, fmt), torch.from_numpy(want.copy()))


@pytest.mark.parametrize("fmt", INTEGERS)
@given(row=st.lists(finite, min_size=1, max_size=9))
def test_integer_properties(fmt, row):
    x = torch.tensor([row])
    y = quantise(x, fmt)
    levels, largest = FORMATS[fmt].max, x.double().abs().max()
    step = max(largest / levels, torch.tensor(2.0**-126).double())
    codes = y.double() / step
    assert (codes - codes.round()).abs().max() < 1e-4
    assert codes.abs().max() < levels + 1e-4
    assert (y.double() - x.double()).abs().max() <= step * (0.5 + 1e-4)
    assert_same_bits(quantise(y, fmt), y)
    assert ((x[0, :, None] <= x[0]) <= (y[0, :, None] <= y[0])).all()  # monotone


@pytest.mark.parametrize("fmt", INTEGERS)
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_integers_carry_what_they_cannot_hold_to_the_whole_vector(fmt, bad):
    x = torch.ones(3, 4)
    x[1, 2] = bad
    y = quantise(x, fmt)
    assert y[1].isnan().all()
    assert torch.equal(y[[0, 2]], x[[0, 2]])


@pytest.mark.parametrize("fmt", INTEGERS)
def test_integer_zero_has_no_sign(fmt):
    x = torch.tensor([[-0.0, -1e-9, 1.0], [-0.0, -0.0, -0.0]])
    assert not quantise(x, fmt).signbit().any()
    assert not round_to(x, fmt).signbit().any()


# ---- bad input


def test_bad_input_is_named():
    x = torch.ones(2)
    with pytest.raises(ValueError, match="unknown format 'fp4': choose one of fp32, fp16"):
        quantise(x, "fp4")
    with pytest.raises(
        ValueError, match="unknown overflow 'wrap': choose 'saturate' or 'nan'"
    ):
        quantise(x, "fp8_e4m3", overflow="wrap")
    with pytest.raises(
        ValueError, match=r"quantise to bf16 takes a float32 tensor, not torch\.float64"
    ):
        quantise(x.double(), "bf16")
    for pattern in ("0|1111", "0|1111|11", "0|1111|112", "01111111", ""):
        with pytest.raises(ValueError, match=r"is not a pattern of fp8_e4m3.*b\|bbbb\|bbb"):
            from_bits(pattern, "fp8_e4m3")
