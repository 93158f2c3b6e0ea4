"""Claims: what holds passes, what does not fails, and so does what could not fail."""

from __future__ import annotations

import json

import pytest

from tinyrl.course.claims import ClaimFailed, claim, seed


@pytest.mark.parametrize(
    ("value", "how"),
    [
        (8.0, {"between": (6, 11)}),
        (6.0, {"between": (6, 11)}),
        (0.0, {"equal": 0}),
        (1e-9, {"at_most": 1e-6}),
        ([5.0, 9.0], {"between": (6, 11)}),  # the mean is 7
        ([7.0, 9.0], {"between": (6, 11), "how": "every"}),
        ([0.2, 0.1], {"at_least": 0.05, "how": "paired"}),
    ],
)
def test_what_holds_prints_one_line(value, how, capsys):
    claim("it", value, **how)
    out = capsys.readouterr().out
    assert out.startswith("✓ it:\n  ")
    assert out.count("\n") == 2


@pytest.mark.parametrize(
    ("value", "how"),
    [
        (12.0, {"between": (6, 11)}),
        (float("nan"), {"between": (6, 11)}),
        (float("nan"), {"at_most": 1.0}),
        (1e-30, {"equal": 0}),
        ([5.0, 9.0], {"between": (6, 11), "how": "every"}),
        ([0.2, -0.1], {"at_least": 0.0, "how": "paired"}),
    ],
)
def test_what_does_not_hold_fails(value, how):
    with pytest.raises(ClaimFailed, match="claim does not hold: it"):
        claim("it", value, **how)


def test_a_control_that_passes_makes_the_claim_empty():
    claim("it", 8.0, between=(6, 11), control=1.0)
    with pytest.raises(ClaimFailed, match="says nothing"):
        claim("it", 8.0, between=(6, 11), control=9.0)


def test_the_count_of_seeds_is_said(capsys):
    claim("it", [7.0, 8.0, 9.0], between=(6, 11))
    assert "mean of 3 seeds: 7 8 9" in capsys.readouterr().out


def test_what_is_counted_has_its_name(capsys):
    claim("it", [7.0, 8.0], between=(6, 11), how="every", of="batches", control=[1.0, 2.0])
    out = capsys.readouterr().out
    assert "7 8 (every one of 2 batches)" in out
    assert "1 2 (every one of 2 batches)" in out
    assert "seeds" not in out


def test_a_claim_without_bounds_or_values_is_refused():
    with pytest.raises(ValueError, match="'it' has no bounds"):
        claim("it", 1.0)
    with pytest.raises(ValueError, match="at least one value"):
        claim("it", [], at_most=1)


def test_seeds_come_from_the_environment(monkeypatch):
    monkeypatch.delenv("TINYRL_SEED", raising=False)
    assert seed(3) == 3
    monkeypatch.setenv("TINYRL_SEED", "4")
    assert seed(3) == 4003


def test_claims_leave_a_record(monkeypatch, tmp_path):
    path = tmp_path / "claims.jsonl"
    monkeypatch.setenv("TINYRL_CLAIMS", str(path))
    claim("good", 1.0, at_most=2)
    with pytest.raises(ClaimFailed):
        claim("bad", 3.0, at_most=2)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(x["name"], x["ok"]) for x in lines] == [("good", True), ("bad", False)]
