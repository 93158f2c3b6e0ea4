"""Bit patterns and numbers, both ways, for every format."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from number_formats import INTEGERS, SMALL, every_number
from tinyrl.formats import FORMATS, bits, from_bits


@pytest.mark.parametrize("fmt", SMALL)
def test_bits_and_from_bits_on_every_pattern(fmt):
    f, values = FORMATS[fmt], every_number(fmt).tolist()
    for code, value in enumerate(values):
        digits = f"{code:0{f.bits}b}"
        pattern = "|".join(
            [digits[0], digits[1 : 1 + f.exponent_bits], digits[-f.mantissa_bits :]]
        )
        if math.isnan(value):
            assert math.isnan(from_bits(pattern, fmt))
            assert math.isnan(from_bits(bits(value, fmt), fmt))
            continue
        assert from_bits(pattern, fmt) == value
        assert math.copysign(1, from_bits(pattern, fmt)) == math.copysign(1, value)
        assert bits(value, fmt, overflow="nan") == pattern


@given(x=st.floats(width=32, allow_nan=False))
def test_fp32_bits(x):
    pattern = bits(x, "fp32")
    assert int(pattern.replace("|", ""), 2) == int(np.float32(x).view(np.uint32))
    assert from_bits(pattern, "fp32") == x


@pytest.mark.parametrize("fmt", INTEGERS)
def test_integer_bits(fmt):
    f = FORMATS[fmt]
    for code in range(-int(f.max), int(f.max) + 1):
        pattern = bits(code, fmt)
        assert int(pattern.replace("|", ""), 2) == code % 2**f.bits  # two's complement
        assert from_bits(pattern, fmt) == code
    assert bits(1e9, fmt) == bits(f.max, fmt)
    with pytest.raises(ValueError, match=f"{fmt} has no pattern for NaN"):
        bits(math.nan, fmt)


def test_bits_rounds_first():
    assert bits(-1.5, "fp16") == "1|01111|1000000000"
    assert from_bits(bits(0.1, "bf16"), "bf16") == 0.10009765625
    assert from_bits(bits(1e9, "fp8_e4m3"), "fp8_e4m3") == 448
    assert math.isnan(from_bits(bits(1e9, "fp8_e4m3", overflow="nan"), "fp8_e4m3"))
    assert bits(1e9, "fp8_e5m2", overflow="nan") == "0|11111|00"
