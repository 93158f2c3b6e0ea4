"""Debugging questions: each fault is known by its sign, and by no other's."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from pathlib import Path

import pytest

from tinyrl.course.interview.cases import FAULTS, LABELS, Traces, case, traces
from tinyrl.course.words import set_language

ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("fault", FAULTS)
def test_the_traces_of_a_fault_bear_its_sign_and_no_other(fault: str, seed: int) -> None:
    found = traces(fault, random.Random(seed))
    signs = [name for name, other in FAULTS.items() if other.sign(found)]
    assert signs == [fault], found


def test_where_a_fault_is_shown_is_a_heading_of_the_course() -> None:
    for name, fault in FAULTS.items():
        source = ROOT / "notebooks" / f"{fault.shown.notebook}.py"
        assert f"\n# ## {fault.shown.heading}\n" in source.read_text("utf-8"), name


def test_a_case_offers_its_fault_among_others_anywhere() -> None:
    generator = random.Random(1)
    cases = [case(generator) for _ in range(12)]
    for drawn in cases:
        assert len(set(drawn.options)) == 4
        assert FAULTS[drawn.options[drawn.right]].sign(drawn.traces)
    assert {drawn.right for drawn in cases} == {0, 1, 2, 3}
    assert cases[0] == case(random.Random(1))


def test_traces_are_shown_row_by_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TINYRL_LANG", "en")
    found = Traces(*[float(i) for i in range(len(LABELS))])
    assert str(found).splitlines()[3] == "         3  K3"
    none = str(replace(found, unlikely=math.nan)).splitlines()[8]
    assert none == "  no token  mean d, sampler's p up to 0.1"
    set_language("zh")
    assert "采样端" in str(found)
