"""The drill at a real terminal: input of any kind, the clock, leaving, a kill."""

from __future__ import annotations

import fcntl
import io
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from itertools import pairwise
from pathlib import Path

import pytest
from rich.cells import cell_len
from rich.console import Console

from tinyrl.course.interview import reviews
from tinyrl.course.interview.answers import Part
from tinyrl.course.interview.terminal import OVER, SPEAK, Left, Terminal, _clock
from tinyrl.course.interview.wrapping import broken, fitted


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TINYRL_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("TINYRL_LANG", "en")


def test_chinese_lines_are_broken_where_chinese_may_be() -> None:
    text = (
        "同一个模型跑在两个程序里，一个为速度而写，一个为梯度而写；规模放大差异，没有测试。"
    )
    lines = broken(f"- {text}", 30).split("  \n")
    assert "".join(line.strip() for line in lines) == f"- {text}"
    assert all(cell_len(line.strip("- ")) <= 32 for line in lines)
    assert all(cell_len(line) > 24 for line in lines[:-1]), "no half lines"
    assert not [line for line in lines if line.strip()[0] in "，；。"]
    assert all(line.startswith("  ") for line in lines[1:])
    assert broken("plain words stay as they are", 5) == "plain words stay as they are"
    assert "KV cache" in broken("把 KV cache 存成 FP8，每个数都会被舍入", 20).replace(
        "  \n", ""
    )


def test_what_is_said_in_chinese_is_broken_and_a_table_is_not() -> None:
    weak = "目前薄弱：IV 数值格式、kernel 与系统（0/4 已掌握），VII 监控、修正与评测。"
    told = "\n  两列   各自对齐\nplain words, wider than the screen, are left alone"
    rows = [*fitted(weak + told, 40)]
    assert rows[-2:] == told.split("\n")[1:]
    assert "".join(rows[:-2]).replace(" ", "") == weak.replace(" ", "")
    assert len(rows) == 4
    assert 34 < cell_len(rows[0]) <= 40, "no half line"


def test_a_paste_in_another_encoding_is_asked_again() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tinyrl.cli", "drill", "--kind", "choice"],
        input=b"\xff\xe4\nq\n", capture_output=True, timeout=120,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONIOENCODING": "utf-8:strict"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert b"One letter from a to" in done.stdout


@pytest.mark.parametrize(("said", "read"), [("Ｂ", "B"), (" a ", "a"), ("１，２", "1,2")])
def test_wide_letters_are_read_as_plain_ones(
    said: str, read: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("builtins.input", lambda _: said)
    assert Terminal().ask("?") == read


@pytest.mark.parametrize("said", ["q", "Q", "quit", "exit", "ｑ"])
def test_there_are_several_words_for_leaving(
    said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("builtins.input", lambda _: said)
    with pytest.raises(Left):
        Terminal().ask("?")
    terminal = Terminal()
    terminal.live = True
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{said}\n"))
    with pytest.raises(Left):
        terminal.spoken(1)


def test_where_no_clock_can_be_drawn_the_line_is_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    terminal = Terminal()
    terminal.live = True
    monkeypatch.setattr(
        terminal, "console", Console(force_terminal=True, _environ={"TERM": "dumb"})
    )
    asked: list[object] = []
    monkeypatch.setattr(terminal, "ask", asked.append)
    assert terminal.spoken(120) < 10
    assert asked == [SPEAK]


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
    wait_for(parent, "n: the next one")
    os.write(parent, b"n\n")
    wait_for(parent, "2/9")  # the missed one comes once more
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
    on = ("Enter for the next one", "\n")
    answered = (("1:5", "\n"), ("Which of these", "0\n"), on, ("Your number", "1\n"), on)
    for seen, said in answered:
        wait_for(parent, seen)
        os.write(parent, said.encode())
    wait_for(parent, "1:5")
    process.send_signal(signal.SIGINT)
    wait_for(parent, "They would ask next")
    assert process.wait(30) == 0, "nobody has to press Enter for it"
    os.close(parent)


def test_an_answer_is_read_screen_by_screen() -> None:
    """80x24: nothing scrolls away before a key; n leaves the rest."""
    parent, child = pty.openpty()
    fcntl.ioctl(child, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    process = subprocess.Popen(
        [sys.executable, "-m", "tinyrl.cli", "drill", "--group", "IV", "--kind", "open"],
        stdin=child, stdout=child, stderr=child, close_fds=True,
        env={key: x for key, x in {**os.environ, "OMP_NUM_THREADS": "1",
             "TERM": "xterm"}.items() if key not in ("COLUMNS", "LINES")},
    )  # fmt: skip
    os.close(child)
    pages = []
    wait_for(parent, "1:5")
    for said, then in (
        ("\n", "Which of these"), ("1\n", "n: the next one"),  # in short
        ("\n", "n: the next one"), ("\n", "n: the next one"),  # in full; numbers
        ("x\n", "Enter, n or q, please.\r\nEnter: They would ask next · n: the next one"),
        ("\n", "Enter for the next one"), ("\n", "2/1"),
    ):  # fmt: skip
        os.write(parent, said.encode())
        pages.append(wait_for(parent, then))
    titles = ("In short", "A full answer", "Numbers to remember", "They would ask next")
    found = [[title for title in titles if f"{title}\x1b" in page] for page in pages[1:]]
    assert [x for x in found if x] == [[title] for title in titles]
    assert all(page.count("\n") <= 24 for page in pages)
    for seen, said in (("1:5", "\n"), ("Which of these", "1\n"), ("n: the", "n\n")):
        wait_for(parent, seen)
        os.write(parent, said.encode())
    skipped = wait_for(parent, "3/1")
    assert not [title for title in titles if f"{title}\x1b" in skipped]
    process.kill()
    process.wait(30)
    os.close(parent)


def test_the_clock_at_the_start_at_the_end_and_after_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shown = [str(_clock(120 - at)).strip() for at in (0, 0.5, 119.2, 120, 121, 185)]
    assert [line.split()[0] for line in shown] == [
        "2:00", "2:00", "0:01", "0:00", "+0:01", "+1:05"
    ]  # fmt: skip
    assert [str(OVER) in line for line in shown] == [False] * 3 + [True] * 3


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252"])
def test_where_chinese_cannot_be_shown_it_goes_on_in_english(encoding: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tinyrl.cli", "drill", "--kind", "choice", "--lang", "zh"],
        input=b"q\n", capture_output=True, timeout=120,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONIOENCODING": encoding},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert b"has no Chinese" in done.stdout
    assert b"Your choice, a letter" in done.stdout


def test_long_texts_are_parted_between_paragraphs_and_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    out = io.StringIO()
    terminal = Terminal()
    terminal.live = True
    screen = Console(file=out, width=80, height=24, force_terminal=True, no_color=True)
    monkeypatch.setattr(terminal, "console", screen)
    at: list[int] = []
    monkeypatch.setattr(terminal, "ask", lambda _: at.append(len(out.getvalue())) or "")
    paragraphs = [f"word{i} " * 40 for i in range(12)]
    terminal.pages([Part("", "\n\n".join(paragraphs))], last=True)
    text = out.getvalue()
    assert sum(text.count(f"word{i} ") + text.count(f"word{i}\n") for i in range(12)) == 480
    pages = [text[a:b] for a, b in pairwise([0, *at, len(text)])]
    assert max(page.count("\n") for page in pages) <= 20
    assert all(len({*re.findall(r"word\d+", page)}) >= 2 for page in pages[:-1])
    assert all(re.search(r"\n *\n$", page) for page in pages[:-1]), "between paragraphs"


def wait_for(terminal: int, text: str, seconds: float = 60) -> str:
    seen, end = "", time.monotonic() + seconds
    while text not in seen:
        ready, _, _ = select.select([terminal], [], [], end - time.monotonic())
        assert ready, f"no {text!r} in {seen!r}"
        seen += os.read(terminal, 4096).decode("utf-8", "replace")
    return seen
