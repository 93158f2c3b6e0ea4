"""A small framed message: HTML in a notebook, plain text everywhere else."""

from __future__ import annotations

import sys
import textwrap
from dataclasses import dataclass
from html import escape
from typing import Literal

Tone = Literal["good", "bad", "quiet"]
MARK: dict[Tone, str] = {"good": "✓", "bad": "✗", "quiet": "·"}
COLOUR: dict[Tone, str] = {"good": "#009E73", "bad": "#B3261E", "quiet": "#8A8F98"}

PLAIN_WIDTH = 86
LABEL = "opacity:.65;padding:1px 12px 1px 0;text-align:left;vertical-align:top"
VALUE = "padding:1px 0;text-align:left;white-space:pre-wrap;font-family:monospace"


@dataclass(frozen=True)
class Card:
    """A heading, a text, labelled values, and a last line that says what to do next."""

    tone: Tone
    heading: str
    text: str = ""
    rows: tuple[tuple[str, str], ...] = ()
    code: str = ""
    foot: str = ""

    def plain(self) -> str:
        """The card as lines of text."""
        lines = [f"{MARK[self.tone]} {self.heading}"]
        lines += [f"  {line}" for line in textwrap.wrap(self.text, PLAIN_WIDTH)]
        width = max((len(label) for label, _ in self.rows), default=0)
        for label, value in self.rows:
            first, *others = value.splitlines() or [""]
            lines.append(f"    {label:<{width}}  {first}")
            lines += [f"    {'':<{width}}  {other}" for other in others]
        lines += [f"    {line}" for line in self.code.splitlines()]
        return "\n".join([*lines, f"  {self.foot}"] if self.foot else lines)

    def html(self) -> str:
        """The card as HTML; it takes its text colour from the page, light or dark."""
        colour = COLOUR[self.tone]
        mark = f'<b style="color:{colour}">{MARK[self.tone]}</b>'
        parts = [f"{mark} <b>{_e(self.heading)}</b>"]
        if self.text:
            parts.append(f"<div>{_e(self.text)}</div>")
        if self.rows:
            cells = "".join(
                f'<tr style="background:none"><td style="{LABEL}">{_e(label)}</td>'
                f'<td style="{VALUE}">{escape(value)}</td></tr>'
                for label, value in self.rows
            )
            parts.append(
                f'<table style="border:0;margin:2px 0;font-size:inherit">{cells}</table>'
            )
        if self.code:
            parts.append(f'<pre style="margin:4px 0">{escape(self.code)}</pre>')
        if self.foot:
            parts.append(f'<div style="opacity:.65">{_e(self.foot)}</div>')
        frame = f"border-left:3px solid {colour};padding:2px 10px;max-width:62em"
        return f'<div style="{frame}">{"".join(parts)}</div>'


def _e(text: str) -> str:
    """Escape for HTML; text between backticks becomes code."""
    pieces = escape(text).split("`")
    if len(pieces) % 2 == 0:  # a backtick without its partner
        return escape(text)
    return "".join(f"<code>{p}</code>" if i % 2 else p for i, p in enumerate(pieces))


def show(card: Card) -> None:
    """Display the card where the reader is; only stdout and display, never stderr."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    if shell is not None and hasattr(shell, "kernel"):
        from IPython.display import display

        display({"text/html": card.html(), "text/plain": card.plain()}, raw=True)  # type: ignore[no-untyped-call]
    else:
        print(card.plain())
