"""A run in a process of its own is killed, really, and goes on without a trace of it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import pytest

from tinyrl.checkpoints import load as checkpoint
from tinyrl.critic import Critic
from tinyrl.recipe import Recipe
from tinyrl.runs import Run, Settings, advance, begin, load
from tinyrl.tasks import CumSum

TASK = CumSum()
SETTINGS = Settings(
    seed=5,
    steps=40,
    staleness=2,
    critic=Critic(),
    recipe=Recipe(groups=2, group_size=4),
    prompts=16,
)
CHILD = """
import sys, torch
torch.set_num_threads(1)
from tinyrl.runs import advance, load
from tinyrl.tasks import CumSum
for run in advance(load(sys.argv[1]), CumSum(), sys.argv[1]):
    print(len(run.steps), flush=True)
"""


@lru_cache
def whole() -> Run:
    *_, last = advance(begin(checkpoint("sft"), TASK, SETTINGS), TASK)
    return last


def train_until(path: Path, steps: int, wait: float) -> int:
    """Go on with the file until `steps` are told and `wait` seconds more; steps told."""
    command = [sys.executable, "-c", CHILD, str(path)]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    told = 0
    for line in child.stdout:
        told = int(line)
        if told >= steps:
            break
    time.sleep(wait)
    os.kill(child.pid, signal.SIGKILL)
    told = max([told, *(int(line) for line in child.stdout)])
    assert child.wait(30) == -signal.SIGKILL
    return told


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="this system has no SIGKILL")
def test_a_kill_loses_at_most_one_step_and_changes_none(tmp_path: Path) -> None:
    """Killed twice, at moments that do not heed what the process is about to do."""
    path = tmp_path / "a.run"
    begin(checkpoint("sft"), TASK, SETTINGS).save(path)
    expected = whole()
    for steps, wait in ((2, 0.013), (6, 0.031)):
        told = train_until(path, steps, wait)
        kept = load(path)
        # what was told had been written, and one step more may have been
        assert told <= len(kept.steps) <= told + 1
        assert kept.steps == expected.steps[: len(kept.steps)]
        assert not kept.done
    *_, last = advance(load(path), TASK, path)
    assert last == expected == load(path)
    assert all((last.state[name] == x).all() for name, x in expected.state.items())


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="this system has no SIGKILL")
def test_a_kill_while_the_file_is_written_leaves_the_one_before(tmp_path: Path) -> None:
    """The process dies with half of the new file on the disk."""
    path = tmp_path / "a.run"
    first = begin(checkpoint("sft"), TASK, SETTINGS)
    one = next(advance(first, TASK))
    one.save(path)
    code = f"""
import os, signal, sys
from tinyrl import runs
run = runs.load({str(path)!r})
def half(file):
    os.truncate({str(path) + ".part"!r}, 1000)
    os.kill(os.getpid(), signal.SIGKILL)
runs.os.fsync = half
run.save({str(path)!r})
"""
    done = subprocess.run([sys.executable, "-c", code])
    assert done.returncode == -signal.SIGKILL
    assert (tmp_path / "a.run.part").stat().st_size == 1000
    assert load(path) == one
    *_, last = advance(load(path), TASK, path)
    assert last == whole()
    assert [p.name for p in tmp_path.iterdir()] == ["a.run"]


def test_the_seed_is_part_of_the_comparison() -> None:
    """So that "equal" above means something."""
    *_, other = advance(begin(checkpoint("sft"), TASK, replace(SETTINGS, seed=6)), TASK)
    assert other.steps != whole().steps
