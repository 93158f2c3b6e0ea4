"""The exercises of lab 03 against torch, ml_dtypes and exact fractions."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
import torch
from torch import Tensor

from lab_sources import lab, solution
from number_formats import NUMPY, every_number
from tinyrl.course.checking.comparison import truth, within
from tinyrl.course.checking.judging import Known, judge, walk
from tinyrl.course.exercises import LABS, find
from tinyrl.formats import quantise

LAB = "lab03_number_formats"
BITS = {"fp16": (5, 10), "bf16": (8, 7), "fp8_e5m2": (5, 2)}  # those with IEEE's infinity


def reference(name: str, *args: object) -> object:
    return find(name).reference(*args)


def finite(fmt: str) -> Tensor:
    numbers = every_number(fmt).double()
    return numbers[numbers.isfinite()]


@pytest.mark.parametrize("fmt", BITS)
def test_decode_is_what_numpy_reads(fmt: str) -> None:
    E, M = BITS[fmt]
    numbers = every_number(fmt)
    generator = torch.Generator().manual_seed(0)
    codes = torch.randperm(len(numbers), generator=generator)[:500].tolist()
    for code in [*codes, 0, 1, 2**M, 2 ** (E + M) - 2**M]:
        if numbers[code].isnan():
            continue
        pattern = torch.tensor([int(b) for b in f"{code:0{1 + E + M}b}"])
        assert reference("decode", pattern, E) == numbers[code].item()


@pytest.mark.parametrize("fmt", BITS)
def test_spacing_is_the_distance_to_the_next_number(fmt: str) -> None:
    numbers = finite(fmt).unique()  # in order
    positive = numbers[numbers >= 0]
    gaps = positive.diff()
    found = reference("spacing", positive[:-1], *BITS[fmt])
    assert torch.equal(torch.as_tensor(found).double(), gaps)


@pytest.mark.parametrize("fmt", BITS)
def test_cast_is_what_ml_dtypes_does(fmt: str) -> None:
    numbers = finite(fmt).unique()
    ties = (numbers[1:] + numbers[:-1]) / 2
    past = numbers[-1] * torch.tensor([1.0, 1.0001, 1.1, 3.0], dtype=torch.float64)
    x = torch.cat([numbers, ties, ties * (1 + 2.0**-20), past, -past]).float()
    with np.errstate(over="ignore"):
        want = torch.from_numpy(x.numpy().astype(NUMPY[fmt]).astype(np.float64))
    found = torch.as_tensor(reference("cast", x.double(), *BITS[fmt]))
    assert torch.equal(found, want)


@pytest.mark.parametrize(("dtype", "bits"), [(torch.bfloat16, 7), (torch.float16, 10)])
def test_round_nearest_is_torchs_cast(dtype: torch.dtype, bits: int) -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(5000, generator=generator)
    x = torch.cat([x, x.to(dtype).float(), torch.zeros(1)])
    x = x[(x == 0) | (x.abs() > 2.0**-13)]
    found = torch.as_tensor(reference("round_nearest", x.double(), bits))
    assert torch.equal(found, x.to(dtype).double())


def test_running_sum_is_a_chain_of_bfloat16_additions() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(200, generator=generator).bfloat16()
    total = ml_dtypes.bfloat16(0)
    for value in x.float().numpy().astype(ml_dtypes.bfloat16):
        total = ml_dtypes.bfloat16(float(total) + float(value))
    assert float(torch.as_tensor(reference("running_sum", x.double(), 7))) == float(total)


def test_stable_logsumexp() -> None:
    generator = torch.Generator().manual_seed(0)
    z = 400 * torch.randn(4, 3, 6, generator=generator, dtype=torch.float64)
    found = torch.as_tensor(reference("stable_logsumexp", z))
    torch.testing.assert_close(found, z.logsumexp(-1), rtol=1e-14, atol=0)


def test_flushed_share_is_what_half_flushes() -> None:
    generator = torch.Generator().manual_seed(0)
    grad = 2.0 ** (-30 + 10 * torch.rand(4000, generator=generator))
    grad[:1000] = 0
    stored = (8 * grad[1000:]).half()
    share = (stored == 0).double().mean()
    assert 0.1 < share < 0.9
    assert torch.as_tensor(reference("flushed_share", grad, 8.0, 5, 10)) == share.float()


def test_largest_scale_fits_in_half_and_twice_of_it_does_not() -> None:
    for seed in range(50):
        generator = torch.Generator().manual_seed(seed)
        grad = torch.randn(64, generator=generator) * 2.0 ** (seed - 40)
        scale = float(reference("largest_scale", grad, 65504.0))  # type: ignore[arg-type]
        assert (scale * grad).half().isfinite().all()
        assert not (2 * scale * grad * (1 + 2.0**-10)).half().isfinite().all()
        assert math.log2(scale) % 1 == 0


@pytest.mark.parametrize("seed", range(3))
def test_the_largest_gradient_has_either_sign_and_some_are_0(seed: int) -> None:
    drawn = [torch.as_tensor(c.args[0]) for c in find("largest_scale").inputs(seed)[1:]]
    assert {bool(g.max() > -g.min()) for g in drawn} == {True, False}
    assert all((g == 0).any() for g in drawn)


@pytest.mark.parametrize(("fmt", "bits"), [("int8", 8), ("int4", 4)])
def test_quantise_rows_is_the_librarys(fmt: str, bits: int) -> None:
    generator = torch.Generator().manual_seed(0)
    w = torch.randn(20, 33, generator=generator)
    w[3] = 0
    found = torch.as_tensor(reference("quantise_rows", w, bits))
    torch.testing.assert_close(found, quantise(w, fmt))  # type: ignore[arg-type]


def test_error_factor_is_that_of_the_epsilons() -> None:
    ratio = Fraction(torch.finfo(torch.bfloat16).eps) / Fraction(
        torch.finfo(torch.float16).eps
    )
    assert reference("error_factor", 7, 10) == (ratio, ratio**2) == (8, 64)


def test_numbers_of_the_open_question() -> None:
    marked = [c for c in lab(LAB).cells if "nbgrader" in c.metadata]
    cells = {c.metadata.nbgrader.grade_id: c.source for c in marked}
    rubric, answer = cells["open_rubric"], cells["open_answer"]
    token, k3 = reference("error_factor", 7, 10)  # type: ignore[misc]
    assert "0.004 and K3 1.6e-5" in rubric
    for text in (rubric, answer):
        assert "0.0005" in text
        assert "2.5e-7" in text
    assert 0.004 / token == 0.0005
    assert 1.6e-5 / k3 == pytest.approx(2.5e-7)
    assert torch.tensor(2.0**-25).half() == 0 != torch.tensor(2.0**-25 * 1.01).half()
    assert torch.finfo(torch.float16).max == 65504


def test_numbers_in_the_messages() -> None:
    mistakes = [m.en for e in LABS[LAB] for _, m in e.mistakes.values()]
    said = " ".join(mistakes)
    assert "by 127 for 8 bits, by 7 for 4" in said
    assert (2**7 - 1, 2**3 - 1) == (127, 7)
    text = lab(LAB).cells
    prose = " ".join(c.source for c in text if c.cell_type == "markdown")
    assert re.search(r"In FP16 \$e\^\{12\}\$ is infinite, in FP32 \$e\^\{89\}\$ is", prose)
    for dtype, x in ((torch.float16, 12.0), (torch.float32, 89.0)):
        assert torch.tensor(x).double().exp() > torch.finfo(dtype).max
        assert torch.tensor(x - 1).double().exp() < torch.finfo(dtype).max


@pytest.mark.filterwarnings("error")
def test_infinity_is_only_close_to_itself() -> None:
    inf, nan = math.inf, math.nan
    mine = np.array([inf, -inf, 1.0, inf, nan, nan])
    theirs = np.array([inf, inf, inf, 1.0, inf, nan])
    tolerance = np.abs(theirs) * 1e-6
    near = [
        within(m, t, d)
        for m, t, d in zip(*(x[:, None] for x in (mine, theirs, tolerance)), strict=True)
    ]
    assert near == [True, False, False, False, False, False]
    assert within(np.array(1.1), np.array(1.0), 0.05) < within(
        np.array(1.1), np.array(1.0), 0.2
    )


def test_an_exact_exercise_forgives_no_jump() -> None:
    """A tie, perturbed, rounds the other way: that move must not become its tolerance."""
    exercise = find("round_nearest")
    (case,) = [c for c in exercise.inputs(0) if "middle of two" in c.what.en]
    tight, loose = (
        truth(replace(exercise, exact=exact), case).tolerances[0].max()
        for exact in (True, False)
    )
    assert tight < 1e-4 < loose


def changed(name: str, old: str, new: str) -> Callable[..., object]:
    """The solution of an exercise with one piece of its source replaced."""
    source = solution(name)
    assert source.count(old) == 1
    namespace: dict[str, object] = {"torch": torch, "math": math, "Tensor": Tensor}
    exec(source.replace(old, new), namespace)
    return namespace[name]  # type: ignore[return-value]


def sum_with_math(x: Tensor, mantissa_bits: int) -> float:
    total = 0.0
    for value in x.tolist():
        total += value
        step = 2.0 ** (math.floor(math.log2(abs(total))) - mantissa_bits)
        total = round(total / step) * step
    return total


BIAS = "2 ** (exponent_bits - 1) - 1"
POWER = "2.0 ** (1 - 2 ** (exponent_bits - 1) - mantissa_bits)"
SCALE = "2.0 ** math.floor(math.log2(largest / grad.abs().max().item()))"
NAMED: dict[str, tuple[str, str, str, str | None]] = {
    "cast to half": ("flushed_share", "(grad * scale).abs() <= limit",
                     "(grad * scale).half() == 0", "always_fp16"),
    "limit of FP16": ("flushed_share", POWER, "2.0**-25", "always_fp16"),
    "bias 3E": ("flushed_share", POWER, "2.0 ** -(3 * exponent_bits + mantissa_bits)",
                None),
    "bias of E4M3": ("cast", BIAS, "7", None),
    "bias 2E - 1": ("cast", BIAS, "2 * exponent_bits - 1", "bias_not_a_power"),
    "bits of E4M3": ("cast", f"bias = {BIAS}", "mantissa_bits, bias = 3, 7",
                     "always_e4m3"),
    "x / |x|": ("cast", "y = (x / step)", "y = x / x.abs() * (x.abs() / step)",
                "zero_is_nan"),
    "int": ("largest_scale", "math.floor", "int", "cut_towards_zero"),
    "float32 log2": ("largest_scale", SCALE,
                     "2.0 ** torch.log2(largest / grad.abs().max()).floor()",
                     "float32_log2"),
    "at least 1": ("largest_scale", SCALE, f"max(1.0, {SCALE})", "never_below_one"),
    "inf too early": ("decode", "e > 2 * bias", "e >= 2 * bias", "infinite_too_early"),
    "1 is subnormal": ("decode", "e == 0", "e <= 1", "subnormal_too_long"),
    "whole power": ("decode", "2.0 ** (e - bias)", "2 ** (torch.tensor(e) - bias)",
                    "power_of_whole_numbers"),
    "clamp": ("round_nearest", "torch.frexp(x)",
              "(x / (e := 2.0 ** torch.frexp(x.abs().clamp(min=1e-6))[1]), e.log2())",
              "clamped"),
    "natural log": ("spacing", "_, exponent = torch.frexp(x.abs().clamp(min=lowest))",
                    "exponent = 1 + (x.abs().clamp(min=lowest).double().log()"
                    " / math.log(2)).floor()", "natural_log"),
    "whole power, spacing": ("spacing", "2.0 ** (exponent - 1", "2 ** (exponent - 1",
                             "power_of_whole_numbers"),
    "whole power, cast": ("cast", "2.0 ** (exponent - 1", "2 ** (exponent - 1",
                          "power_of_whole_numbers"),
    "large scale": ("quantise_rows", "1e-30", "1e-3", "smallest_scale_too_large"),
    "larger than some": ("quantise_rows", "1e-30", "2e-6", "smallest_scale_too_large"),
}  # fmt: skip


@pytest.mark.parametrize("what", NAMED)
def test_a_shortcut_that_holds_for_some_formats_or_sizes_is_found(what: str) -> None:
    name, old, new, mistake = NAMED[what]
    for seed in range(10):
        verdict = judge(find(name), changed(name, old, new), seed)
        assert (verdict.outcome, verdict.mistake) == ("wrong", mistake), seed


def test_zero_among_the_sums_is_an_error_of_the_logarithm() -> None:
    verdict = judge(find("running_sum"), sum_with_math)
    assert verdict.outcome == "wrong"
    assert "math domain error" in verdict.text.en


def cast_in_two_ranges(x: Tensor, exponent_bits: int, mantissa_bits: int) -> Tensor:
    """As learners build it: exercise 3 for normal numbers, whole steps below them."""
    bias = 2 ** (exponent_bits - 1) - 1
    step, top = 2.0 ** (1 - bias - mantissa_bits), (2 - 2.0**-mantissa_bits) * 2.0**bias
    normal = torch.as_tensor(reference("round_nearest", x, mantissa_bits))
    y = torch.where(x.abs() < 2.0 ** (1 - bias), (x / step).round() * step, normal)
    return torch.where(y.abs() > top, y.sign() * math.inf, y)


def cast_by_multiplying(x: Tensor, exponent_bits: int, mantissa_bits: int) -> Tensor:
    """Steps of 2^-127 are float32's, but 2^128 is not: a format's, not float32's ends."""
    bias = 2 ** (exponent_bits - 1) - 1
    k = torch.frexp(x.abs().clamp(min=2.0 ** (1 - bias)))[1] - 1
    y = (x * 2.0 ** (mantissa_bits - k)).round() * 2.0 ** (k - mantissa_bits)
    return torch.where(y.abs() < 2.0 ** (bias + 1), y, y.sign() * math.inf)


@pytest.mark.parametrize("answer", [cast_in_two_ranges, cast_by_multiplying])
def test_a_right_cast_in_float32_is_not_blamed_for_the_ends_of_float32(
    answer: Callable[..., Tensor],
) -> None:
    for seed in range(10):
        assert walk(Known(find("cast"), seed), answer, own=True).outcome == "right"
