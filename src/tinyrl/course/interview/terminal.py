"""Asking and showing in a terminal: Markdown, a line of input, a countdown."""

from __future__ import annotations

import io
import re
import sys
import threading
import time
import unicodedata

try:
    import termios
except ModuleNotFoundError:  # Windows
    termios = None  # type: ignore[assignment]

from rich.cells import cell_len
from rich.console import Console
from rich.live import Live
from rich.markdown import Markdown
from rich.padding import Padding
from rich.text import Text

from tinyrl.course.printing import console
from tinyrl.course.words import Words

SPEAK = Words(
    en="Say your answer aloud. Enter when you have said it.",
    zh="请出声回答，说完按回车。",
)
OVER = Words(en="time is up: press Enter", zh="时间到，请按回车")
LEAVING = ("q", "quit", "exit")
ON = Words(en="Enter for the next one:", zh="按回车继续：")


class Left(Exception):
    """The learner leaves: q, the end of the input, or Ctrl-C."""


class Terminal:
    """Where a drill or a mock interview takes place."""

    def __init__(self) -> None:
        self.console: Console = console()
        self.live = sys.stdin.isatty() and self.console.is_terminal
        if isinstance(sys.stdin, io.TextIOWrapper):  # a paste in another encoding
            sys.stdin.reconfigure(errors="replace")

    def say(self, text: object, style: str = "") -> None:
        self.console.print(str(text), style=style, markup=False)

    def show(self, markdown: str, indent: int = 2) -> None:
        text = broken(markdown, self.console.width - indent - 8)
        self.console.print(Padding(Markdown(text), (0, 2, 0, indent)))

    def rule(self, title: str) -> None:
        self.console.print()
        self.console.rule(Text(title, "bold"), align="left", style="dim")

    def ask(self, prompt: object) -> str:
        """A line, wide letters as plain ones; raises `Left` for q, the end and Ctrl-C."""
        self.flush()
        try:
            said = _read(input(f"{prompt} "))
        except (EOFError, KeyboardInterrupt):
            self.say("")
            raise Left from None
        if said.lower() in LEAVING:
            raise Left
        return said

    def flush(self) -> None:
        """Forget what was typed before it was asked for: a second Enter is no answer."""
        if self.live and termios is not None:
            termios.tcflush(sys.stdin, termios.TCIFLUSH)

    def pause(self) -> None:
        """Let somebody at a screen read before more comes."""
        if self.live:
            self.ask(ON)

    def spoken(self, seconds: int) -> float:
        """Wait for Enter while the time runs down; the seconds that were used."""
        begun = time.monotonic()
        if not self.live or self.console.is_dumb_terminal:  # that one shows no clock
            self.ask(SPEAK)
            return time.monotonic() - begun
        line: list[str] = []
        reader = threading.Thread(target=lambda: line.append(sys.stdin.readline()))
        reader.daemon = True  # a process that leaves does not wait for Enter
        reader.start()
        try:
            with Live(console=self.console, refresh_per_second=4, transient=True) as live:
                while reader.is_alive():
                    live.update(_clock(seconds - (time.monotonic() - begun)))
                    reader.join(0.25)
        except KeyboardInterrupt:
            self.live = False  # the reader still waits for a line, and would take it
            raise Left from None
        if not line or not line[0] or _read(line[0]).lower() in LEAVING:
            raise Left
        return time.monotonic() - begun


def _read(line: str) -> str:
    return unicodedata.normalize("NFKC", line).strip()


def _clock(left: float) -> Text:
    if left <= 0:
        return Text(f"  0:00  {OVER}", "bold red")
    minutes, seconds = divmod(int(left + 0.999), 60)
    return Text(f"  {minutes}:{seconds:02d}  {SPEAK}", "bold" if left > 20 else "yellow")


HAN = re.compile(r"[\u3000-\u303f\u4e00-\u9fff\uff00-\uffef]")
# What may stand on a line of its own: a Han sign with the marks after it, or a word.
PIECE = re.compile(
    r"[“（]*[\u4e00-\u9fff][，。；：、！？”）…]*|[^\s\u4e00-\u9fff]+|\s+", re.ASCII
)
PREFIX = re.compile(r"(?:\s*(?:- |\d+\. |> |#+ ))?")


def broken(markdown: str, width: int) -> str:
    """Markdown with its Chinese lines broken by us: rich breaks only at blanks."""
    lines = markdown.splitlines()
    return "\n".join(_broken(x, width) if HAN.search(x) else x for x in lines)


def _broken(line: str, width: int) -> str:
    prefix = PREFIX.match(line)
    assert prefix is not None
    head = prefix[0]
    hang = head if head.strip() == ">" else " " * len(head)
    rows, row = [], ""
    for piece in PIECE.findall(line[len(head) :]):
        if row and cell_len(row + piece.rstrip()) > width:
            rows.append(row.rstrip())
            row = piece.lstrip()
        else:
            row += piece
    return head + f"  \n{hang}".join([*rows, row])
