"""The bit explorer: patterns against ml_dtypes and torch, and what its controls do."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from number_formats import INTEGERS, SMALL, every_number
from tinyrl.course import live
from tinyrl.course.panels.bit_explorer import BitExplorer
from tinyrl.course.panels.bits import NAMES, Stored, fate, overview
from tinyrl.formats import FORMATS, FormatName

names = st.sampled_from(list(FORMATS))


@st.composite
def patterns(draw: st.DrawFn) -> Stored:
    fmt = draw(names)
    return Stored(fmt, draw(st.integers(0, 2 ** FORMATS[fmt].bits - 1)))


@pytest.mark.parametrize("fmt", SMALL)
def test_every_pattern_is_what_ml_dtypes_reads(fmt: FormatName) -> None:
    want = every_number(fmt).double().numpy()
    found = np.array([Stored(fmt, code).value for code in range(len(want))])
    assert np.array_equal(found, want, equal_nan=True)
    assert np.array_equal(np.signbit(found), np.signbit(want) & ~np.isnan(want))


@given(st.integers(0, 2**32 - 1))
def test_every_pattern_of_fp32_is_what_numpy_reads(code: int) -> None:
    want = float(np.array(code, np.uint32).view(np.float32))
    found = Stored("fp32", code).value
    assert found == want or (math.isnan(found) and math.isnan(want))


@pytest.mark.parametrize("fmt", INTEGERS)
def test_integers_are_twos_complement(fmt: FormatName) -> None:
    width = FORMATS[fmt].bits
    for code in range(2**width):
        raw = code.to_bytes(1, "big") if width == 8 else bytes([(code << 4) % 256])
        want = int.from_bytes(raw, "big", signed=True) >> (8 - width)
        assert Stored(fmt, code).value == want


@given(patterns(), st.integers(0, 31))
def test_flipping_twice_is_nothing_and_once_is_one_bit(stored: Stored, place: int) -> None:
    width = stored.format.bits
    if place >= width:
        with pytest.raises(ValueError, match=f"place must be 0 to {width - 1}"):
            stored.flip(place)
        return
    flipped = stored.flip(place)
    before, after = ("".join(s.fields) for s in (stored, flipped))
    assert [i for i in range(width) if before[i] != after[i]] == [place]
    assert flipped.flip(place) == stored


@given(patterns())
def test_a_number_goes_to_its_pattern_and_back(stored: Stored) -> None:
    if abs(stored.value) > stored.format.max and stored.format.bits <= 8:
        return  # -128, -8 and inf can be flipped to, but what is stored saturates before
    if not math.isnan(stored.value):
        assert Stored.of(stored.value, stored.fmt) == stored


@pytest.mark.parametrize("fmt", SMALL)
def test_steps_walk_through_all_numbers_in_order(fmt: FormatName) -> None:
    numbers = every_number(fmt).double()
    want = numbers[~numbers.isnan()].unique()
    at: Stored | None = Stored(fmt, int(numbers.nan_to_num(nan=math.inf).argmin()))
    walked = []
    while at is not None:
        walked.append(at)
        at = at.up()
    assert torch.equal(torch.tensor([s.value for s in walked], dtype=torch.float64), want)
    for below, above in pairwise(walked):
        assert (down := above.down()) is not None
        assert down.value == below.value
    positive = [s for s in walked if 0 <= s.value < FORMATS[fmt].max]
    for s in positive:
        assert (up := s.up()) is not None
        assert s.spacing == up.value - s.value


def test_steps_of_integers_end_at_both_ends() -> None:
    assert Stored.of(127, "int8").up() is None
    assert Stored("int8", 128).down() is None
    assert Stored.of(-1, "int4").up() == Stored.of(0, "int4")


@given(patterns())
def test_the_exact_value_and_the_formula_are_the_value(stored: Stored) -> None:
    if not math.isfinite(stored.value):
        assert stored.exact == str(stored.value) == stored.formula
        return
    whole, _, power = stored.exact.partition(" * 2^")
    assert Fraction(whole) * Fraction(2) ** int(power or 0) == Fraction(stored.value)
    if stored.format.is_integer:
        high, low = stored.formula.split(" + ")
        assert int(high) + int(low) == stored.value
        return
    inner, power = stored.formula.split(" * 2^")
    leading, fraction = inner.strip("-()").split(" + ")
    size = (Fraction(leading) + Fraction(fraction)) * Fraction(2) ** int(power)
    assert size == abs(Fraction(stored.value))
    assert inner.startswith("-") == (math.copysign(1, stored.value) < 0)


@pytest.mark.parametrize(
    ("x", "fmt", "said"),
    [
        (1.0, "fp16", "held exactly"),
        (1.001, "bf16", "rounded by 0.001, 0.13 of a gap"),
        (1e5, "fp16", "beyond the largest number: becomes inf"),
        (-1e5, "fp8_e4m3", "beyond the largest number: becomes -448"),
        (500.0, "int8", "beyond the largest number: becomes 127"),
        (1e-9, "fp16", "below half of the smallest number: becomes 0"),
        (math.inf, "fp8_e5m2", "beyond the largest number: becomes 57344"),
        (math.nan, "bf16", "held exactly"),
    ],
)
def test_the_fate_of_a_number_is_told(x: float, fmt: FormatName, said: str) -> None:
    assert fate(x, fmt).en == said


@pytest.mark.parametrize(
    ("fmt", "code", "said"),
    [("fp64", 0, "fmt must be one of"), ("int4", 16, "code must be 0 to 15"),
     ("bf16", -1, "code must be")],
)  # fmt: skip
def test_what_is_no_pattern_is_refused(fmt: FormatName, code: int, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Stored(fmt, code)


def test_the_overview_has_every_format_in_words_and_as_a_table() -> None:
    shown = overview(0.1)
    assert [row[0] for row in shown.rows()] == list(NAMES.values())
    assert [float(row[2]) for row in shown.rows()][1:3] == pytest.approx(
        [torch.tensor(0.1, dtype=d).item() for d in (torch.float16, torch.bfloat16)]
    )
    page = shown._repr_html_()
    assert page.count("<tr>") == len(NAMES) + 1 == str(shown).count("\n") + 1
    assert 'scope="row"' in page
    assert len(overview(math.nan).rows()) == len(NAMES) - 2  # integers have no NaN


# What the widget does.


def click(explorer: BitExplorer, place: int) -> None:
    explorer.buttons[place].click()


def test_a_click_flips_its_bit_and_keeps_the_button() -> None:
    explorer = BitExplorer(1.0, "fp16")
    button = explorer.buttons[1]
    click(explorer, 1)  # the highest bit of the exponent
    assert math.isinf(explorer.stored.value)  # the exponent of 1 is all ones but this one
    assert explorer.buttons[1] is button, "the focus of a keyboard stays where it was"
    click(explorer, 1)
    assert explorer.stored == Stored.of(1.0, "fp16")
    click(explorer, 0)
    assert float(explorer.text.value) == explorer.stored.value == -1.0
    assert "".join(b.description for b in explorer.buttons) == "1011110000000000"


def test_every_bit_of_every_format_has_a_button_that_says_what_it_is() -> None:
    explorer = BitExplorer()
    for fmt, format in FORMATS.items():
        explorer.format.value = fmt
        assert len(explorer.buttons) == format.bits
        assert len({button.tooltip[:-3] for button in explorer.buttons}) == format.bits
        assert all(button.tooltip.endswith(f": {button.description}")
                   for button in explorer.buttons)  # fmt: skip


def test_only_floating_point_has_a_smallest_normal_number() -> None:
    explorer = BitExplorer(3.0, "fp16")
    for fmt, smallest in (("fp16", "6.10352e-05"), ("int8", "-"), ("int4", "-")):
        explorer.format.value = fmt
        row = explorer.readout.value.split("smallest normal")[1].split("</tr>")[0]
        assert f">{smallest}</td>" in row


def test_typing_and_choosing_a_format() -> None:
    explorer = BitExplorer(0.1, "fp32")
    explorer.text.value = "1e5"
    explorer.format.value = "fp16"
    assert math.isinf(explorer.stored.value)
    assert "beyond the largest number" in explorer.readout.value
    assert explorer.up.disabled
    explorer.down.click()
    assert explorer.stored.value == 65504
    assert explorer.text.value == "65504.0"
    assert explorer.text.continuous_update is False


@pytest.mark.parametrize(
    ("text", "fmt", "said"),
    [
        ("abc", "bf16", "&#x27;abc&#x27; is not a number"),
        ("nan", "int8", "INT8 has no pattern"),
    ],
)
def test_what_cannot_be_read_is_said_and_the_old_number_stays(
    text: str, fmt: FormatName, said: str
) -> None:
    explorer = BitExplorer(0.5, fmt)
    before = explorer.stored
    explorer.text.value = text
    assert said in explorer.error.value
    assert 'role="alert"' in explorer.error.value
    assert explorer.stored == before
    explorer.text.value = "1"
    assert explorer.error.value == ""
    assert explorer.stored.value == 1


def test_it_speaks_chinese(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TINYRL_LANG", "zh")
    explorer = BitExplorer(0.1, "bf16")
    assert "间距" in explorer.readout.value
    assert "格式" in str(overview(0.1))


def test_readers_without_a_kernel_get_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[dict[str, str]] = []
    monkeypatch.setattr(live, "display", lambda data, **_: shown.append(data))
    BitExplorer(0.1)._ipython_display_()
    static, _, controls = shown
    assert static["text/html"] == overview(0.1)._repr_html_()
    assert static["text/plain"] == str(overview(0.1))
    assert "run this cell" in controls["text/plain"]
