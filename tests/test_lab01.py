"""Lab 01: the numbers of its open question."""

from __future__ import annotations

import math

import pytest

from lab_sources import lab
from tinyrl.course.exercises import find


def test_open_question_has_right_numbers() -> None:
    cells = {
        c.metadata.nbgrader.grade_id: c
        for c in lab("lab01_two_policies").cells
        if "nbgrader" in c.metadata
    }
    rubric, answer = cells["open_rubric"], cells["open_answer"]
    mean, std, length = -0.00125, 0.05, 2000
    assert mean == pytest.approx(-(std**2) / 2), "else the probabilities do not sum to 1"
    bias, noise = find("length_growth").reference(mean, std, length)
    assert f"{bias:.1f}" == "-2.5"
    assert f"{noise:.2f}" == "2.24"
    assert f"{math.exp(bias):.2f}" == "0.08"
    for text in (
        "mean delta -0.00125",
        "deviation of delta 0.05",
        "K3\n0.00125",
        "2000 tokens",
    ):
        assert text in rubric.source
    for text in ("-2.5", "2.24", "0.08"):
        assert text in rubric.source
    for text in ("-2.5", "2.2", "0.08"):
        assert text in answer.source
