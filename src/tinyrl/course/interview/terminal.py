"""Asking and showing in a terminal: Markdown by the screen, a line, a countdown."""

from __future__ import annotations

import io
import sys
import threading
import time
import unicodedata
from collections.abc import Iterator, Sequence

try:
    import termios
except ModuleNotFoundError:  # Windows
    termios = None  # type: ignore[assignment]

from rich.console import Console
from rich.live import Live
from rich.markdown import Markdown
from rich.padding import Padding
from rich.segment import Segment, Segments
from rich.text import Text

from tinyrl.course.interview.answers import Part
from tinyrl.course.interview.wrapping import broken, fitted
from tinyrl.course.printing import console
from tinyrl.course.words import Words, language, set_language

SPEAK = Words(
    en="Say your answer aloud. Enter when you have said it.",
    zh="请出声回答，说完按回车。",
)
OVER = Words(en="time is up: press Enter", zh="时间到，请按回车")
LEAVING = ("q", "quit", "exit")
SKIPPING = ("n", "next")
ON = Words(en="Enter for the next one:", zh="按回车进入下一题：")
MORE = Words(en="Enter: {} · n: the next one:", zh="回车：{} · n：下一题：")
ENDING = Words(en="Enter: {} · n: the end:", zh="回车：{} · n：结束：")
ONLY = Words(en="Enter, n or q, please.", zh="请按回车，或输入 n、q。")
REST = Words(en="the rest of this page", zh="本页其余部分")
FURTHER = Words(en="Enter for the rest:", zh="按回车看其余部分：")
ROOM = 4  # lines of a screen that a page leaves to what stands above and below it
NO_HAN = "This terminal's encoding, {}, has no Chinese: English it is. UTF-8 would have it."


class Left(Exception):
    """The learner leaves: q, the end of the input, or Ctrl-C."""


class Terminal:
    """Where a drill or a mock interview takes place."""

    def __init__(self) -> None:
        self.console: Console = console()
        self.live = sys.stdin.isatty() and self.console.is_terminal
        if isinstance(sys.stdin, io.TextIOWrapper):  # a paste in another encoding
            sys.stdin.reconfigure(errors="replace")
        if language() == "zh" and not _encodes("中", self.console.encoding):
            set_language("en")
            self.say(NO_HAN.format(self.console.encoding), style="yellow")

    def say(self, text: object, style: str = "") -> None:
        shown = "\n".join(fitted(str(text), self.console.width))
        self.console.print(shown, style=style, markup=False)

    def show(self, markdown: str, indent: int = 2) -> None:
        for i, page in enumerate(self._split(markdown, indent)):
            if i and self.live:
                self.ask(FURTHER)
            self.console.print(Segments(page), end="")

    def pages(self, parts: Sequence[Part], last: bool = False) -> None:
        """Part after part, screen by screen where somebody sits at one; n leaves the rest.

        After the `last` card there is no next one.
        """
        onward = ENDING if last else MORE
        for i, part in enumerate(parts):
            for k, page in enumerate(self._split(part.text, 2)):
                title = str(REST) if k else part.title
                if (i or k) and not self._choose(title, onward):
                    return
                if title and not k:
                    self.say(f"\n{title}" if i else title, style="bold")
                self.console.print(Segments(page), end="")
        if not last:
            self.pause()

    def _split(self, markdown: str, indent: int) -> Iterator[list[Segment]]:
        """Markdown as it is shown, in pieces that fit on the screen."""
        text = broken(markdown, self.console.width - indent - 8)
        padded = Padding(Markdown(text), (0, 2, 0, indent))
        lines = self.console.render_lines(padded, pad=False, new_lines=True)
        room = max(4, self.console.height - ROOM) if self.live else len(lines)
        while lines:
            cut = room
            if len(lines) > room:  # rather between two paragraphs than inside one
                blank = [i for i in range(room // 2, room) if _blank(lines[i])]
                cut = blank[-1] + 1 if blank else room
            yield [segment for line in lines[:cut] for segment in line]
            lines = lines[cut:]

    def _choose(self, title: str, onward: Words) -> bool:
        """Whether to go on reading; a pipe always does."""
        if not self.live:
            return True
        while said := self.ask(str(onward).format(title)).lower():
            if said in SKIPPING:
                return False
            self.say(ONLY)
        return True

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
        if termios is not None and sys.stdin.isatty():
            termios.tcflush(sys.stdin, termios.TCIFLUSH)

    def pause(self, prompt: Words = ON) -> None:
        """Let somebody at a screen read before more comes."""
        while self.live and self.ask(prompt).lower() not in ("", *SKIPPING):
            self.say(ONLY)

    def spoken(self, seconds: int) -> float:
        """Wait for Enter while the time runs down; the seconds that were used."""
        self.flush()
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


def _blank(line: list[Segment]) -> bool:
    return not "".join(segment.text for segment in line).strip()


def _encodes(sign: str, encoding: str) -> bool:
    try:
        sign.encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def _clock(left: float) -> Text:
    """The time that is left, or by how much it is over."""
    seconds = int(left + 0.999) if left > 0 else int(-left)
    shown = f"{seconds // 60}:{seconds % 60:02d}"
    if left <= 0:
        return Text(f"  {'+' if seconds else ''}{shown}  {OVER}", "bold red")
    return Text(f"  {shown}  {SPEAK}", "bold" if left > 20 else "yellow")
