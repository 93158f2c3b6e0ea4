"""The drill and the mock in a real terminal, with a clock, interruptions and a kill."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tinyrl.course import reviews


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TINYRL_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("TINYRL_LANG", "en")


def test_in_a_terminal_the_clock_runs_and_a_kill_loses_no_answer() -> None:
    """A real terminal: the countdown is shown, Enter ends it; then SIGKILL."""
    parent, child = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "tinyrl.cli", "drill", "--group", "I", "--kind", "open"],
        stdin=child, stdout=child, stderr=child, close_fds=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "TERM": "xterm", "COLUMNS": "100"},
    )  # fmt: skip
    os.close(child)
    seen = wait_for(parent, "1:5")
    assert "Say your answer aloud" in seen
    os.write(parent, b"\n")
    wait_for(parent, "Which of these")
    os.write(parent, b"1\n")
    wait_for(parent, "Enter for the next one")
    os.write(parent, b"\n")
    wait_for(parent, "2/8")
    process.send_signal(signal.SIGKILL)
    process.wait(30)
    os.close(parent)
    assert [review.card for review in reviews.recall()] == ["open:I-01"]


def test_ctrl_c_in_the_countdown_of_a_mock_leads_to_the_report_and_out() -> None:
    parent, child = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "tinyrl.cli", "mock", "--minutes", "10"],
        stdin=child, stdout=child, stderr=child, close_fds=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "TERM": "xterm", "COLUMNS": "100"},
    )  # fmt: skip
    os.close(child)
    for seen, said in (("1:5", "\n"), ("Which of these", "0\n"), ("Your number", "1\n")):
        wait_for(parent, seen)
        os.write(parent, said.encode())
    wait_for(parent, "1:5")
    process.send_signal(signal.SIGINT)
    wait_for(parent, "They would ask next")
    assert process.wait(30) == 0, "nobody has to press Enter for it"
    os.close(parent)


def wait_for(terminal: int, text: str, seconds: float = 60) -> str:
    seen, end = "", time.monotonic() + seconds
    while text not in seen:
        ready, _, _ = select.select([terminal], [], [], end - time.monotonic())
        assert ready, f"no {text!r} in {seen!r}"
        seen += os.read(terminal, 4096).decode("utf-8", "replace")
    return seen
