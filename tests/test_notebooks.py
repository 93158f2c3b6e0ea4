"""Every notebook runs, in time and memory, and every claim in it holds."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from tinyrl.course import execute

ROOT = Path(__file__).parent.parent
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
SECONDS, MEMORY_MIB = 60, 1024
SLACK = 5  # the budget is for an idle machine; a busy one may take this much longer


def run(path: Path, output: Path, monkeypatch, seed: int) -> list[dict]:
    """Run a notebook as `tinyrl run` does; returns its claims."""
    record = output / "claims.jsonl"
    monkeypatch.setenv("TINYRL_SEED", str(seed))
    monkeypatch.setenv("TINYRL_CLAIMS", str(record))
    monkeypatch.setenv("TINYRL_HOME", str(output / "home"))
    assert execute.run([path], output=output, timeout=SECONDS * SLACK) == 0
    return [json.loads(line) for line in record.read_text().splitlines()]


def test_there_are_notebooks():
    assert NOTEBOOKS


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_a_notebook_runs_and_its_claims_hold(path, tmp_path, monkeypatch, capsys):
    claims = run(path, tmp_path, monkeypatch, seed=0)
    assert 2 <= len(claims) <= 4
    assert all(c["ok"] for c in claims)
    told = capsys.readouterr().out
    print(told)
    (peak,) = re.findall(r"peak (\d+) MiB", told)
    assert int(peak) <= MEMORY_MIB
    page = (tmp_path / f"{path.stem}.html").read_text("utf-8")
    errors = re.findall(r"jupyter\.stderr.*?</div>", page, re.DOTALL)
    assert not [text for text in errors if "Warning" in text]


@pytest.mark.science
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_claims_hold_on_five_seeds(path, seed, tmp_path, monkeypatch):
    claims = run(path, tmp_path, monkeypatch, seed)
    for c in claims:
        print(f"{path.stem} seed {seed}: {c['name']}: {c['values']}")
    assert all(c["ok"] for c in claims)


def test_a_claim_that_fails_stops_the_notebook(tmp_path, monkeypatch):
    """The control: with a bound that cannot hold, the run fails."""
    source = 'from tinyrl.course import claim\nclaim("it", 3, at_most=2)\n'
    path = tmp_path / "wrong.py"
    path.write_text(f"# %%\n{source}")
    monkeypatch.setenv("TINYRL_CLAIMS", str(tmp_path / "claims.jsonl"))
    assert execute.run([path], output=tmp_path, timeout=60) == 1
    assert os.environ["TINYRL_CLAIMS"]
