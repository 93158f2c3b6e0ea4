"""The bit explorer: type a number, flip its bits, see what they stand for.

Buttons, a menu and a text field are all reached with the keyboard. The table of the first
number in every format is left in the notebook for readers who have no kernel.
"""

from __future__ import annotations

import html
import math
from collections.abc import Callable
from functools import partial
from typing import Any

import ipywidgets as widgets  # type: ignore[import-untyped]

from tinyrl.course.live import show_live
from tinyrl.course.panels.bits import KINDS, NAMES, Stored, fate, overview
from tinyrl.course.panels.frame import menu, refusal, rooted, row
from tinyrl.course.words import Words
from tinyrl.formats import FORMATS, FormatName

FIELDS = (
    Words("sign", "符号"),
    Words("exponent", "指数"),
    Words("mantissa", "尾数"),
    Words("value", "数值"),
)
COLOURS = ("#B3261E", "#0072B2", "#009E73", "#009E73")  # white on each is readable
NUMBER, FORMAT = Words("number", "数"), Words("format", "格式")
UP, DOWN = Words("next larger", "下一个更大的"), Words("next smaller", "下一个更小的")
NOT_READ = Words(
    "{!r} is not a number: write one as 0.1, -3e-8, inf or nan",
    "{!r} 不是数：请写成 0.1、-3e-8、inf 或 nan",
)
NO_NAN = Words("{} has no pattern for NaN", "{} 没有表示 NaN 的编码")
ROWS = (
    Words("value", "数值"),
    Words("made of", "由来"),
    Words("kind", "类别"),
    Words("you typed", "你输入的数"),
    Words("neighbours", "相邻的数"),
    Words("gap", "间距"),
    Words("largest", "最大数"),
    Words("smallest normal", "最小规格化数"),
    Words("smallest above 0", "大于 0 的最小数"),
)


class BitExplorer:
    """A number, its bits as buttons, and a readout of what they stand for."""

    def __init__(self, x: float = 0.1, fmt: FormatName = "bf16") -> None:
        self.typed: float | None = float(x)
        """What was asked for; None once bits were flipped."""
        self.stored = Stored.of(x, fmt)
        self.format = menu(FORMAT, {name: key for key, name in NAMES.items()}, fmt)
        self.text = widgets.Text(
            repr(float(x)), description=str(NUMBER), continuous_update=False
        )
        self.bits, self.buttons = row(), list[Any]()
        self._shown: FormatName | None = None
        self.readout, self.table, self.error = (widgets.HTML() for _ in range(3))
        self.up = self._button(UP, lambda: self._step(self.stored.up()))
        self.down = self._button(DOWN, lambda: self._step(self.stored.down()))
        self._writing = False
        self.format.observe(lambda _: self._read(), "value")
        self.text.observe(lambda _: self._read(), "value")
        bar = row(self.format, self.text, self.down, self.up)
        parts = [bar, self.error, self.bits, self.readout, self.table]
        self.widget = rooted([widgets.VBox(parts)], "tinyrl-explorer")
        self._first = overview(x)
        self._draw()

    def _button(self, name: Words, action: Callable[[], None]) -> Any:
        button = widgets.Button(description=str(name))
        button.layout.width = "auto"
        button.on_click(lambda _: action())
        return button

    def _read(self) -> None:
        """Take number and format from the controls; say what is wrong with the number."""
        if self._writing:
            return
        try:
            self.typed = _number(self.text.value)
            if math.isnan(self.typed) and FORMATS[self.format.value].is_integer:
                raise ValueError(str(NO_NAN).format(NAMES[self.format.value]))
            self.stored = Stored.of(self.typed, self.format.value)
        except ValueError as error:
            self.error.value = refusal(error)
            return
        self._draw()

    def flip(self, place: int) -> None:
        """Turn the bit at `place`, counted from the sign at 0."""
        self._step(self.stored.flip(place))

    def _step(self, to: Stored | None) -> None:
        """Show another pattern of the format, and write its value into the text field."""
        if to is None:
            return
        self.stored, self.typed, self._writing = to, None, True
        try:
            self.text.value = repr(to.value)
        finally:
            self._writing = False
        self._draw()

    def _draw(self) -> None:
        self.error.value = ""
        if self._shown != self.stored.fmt:  # else the buttons stay, and with them the focus
            self._shown = self.stored.fmt
            self._lay_out()
        for button, digit, (field, place) in zip(
            self.buttons, "".join(self.stored.fields), self._places(), strict=True
        ):
            colour = COLOURS[field] if digit == "1" else "#E4E6EA"
            button.description = digit
            button.tooltip = f"{self._names()[field]} 2^{place}: {digit}"
            button.style.button_color = colour
            button.style.text_color = "white" if digit == "1" else "#22262B"
        self.readout.value = self._table()
        number = self.stored.value if self.typed is None else self.typed
        self.table.value = overview(number)._repr_html_()
        self.up.disabled = self.stored.up() is None
        self.down.disabled = self.stored.down() is None

    def _names(self) -> tuple[Words, ...]:
        return FIELDS[:1] + FIELDS[3:] if self.stored.format.is_integer else FIELDS

    def _places(self) -> list[tuple[int, int]]:
        """For each bit its field, and its power of two within the field."""
        return [
            (i, len(field) - 1 - k)
            for i, field in enumerate(self.stored.fields)
            for k in range(len(field))
        ]

    def _lay_out(self) -> None:
        """A box for each field: its name, and a button for each of its bits."""
        self.buttons = [
            self._button(Words("0", "0"), partial(self.flip, place))
            for place in range(self.stored.format.bits)
        ]
        boxes, rest = [], iter(self.buttons)
        for i, field in enumerate(self.stored.fields):
            mine = [next(rest) for _ in field]
            for button in mine:
                button.layout = widgets.Layout(width="24px", padding="0", margin="1px")
            title = widgets.HTML(f'<b style="color:{COLOURS[i]}">{self._names()[i]}</b>')
            boxes.append(widgets.VBox([title, row(*mine)], layout={"margin": "0 10px 0 0"}))
        self.bits.children = boxes

    def _table(self) -> str:
        s, f = self.stored, self.stored.format
        down, up = ("-" if x is None else f"{x.value:.9g}" for x in (s.down(), s.up()))
        value = s.exact if "*" not in s.exact else f"{s.value:.9g}, exactly {s.exact}"
        typed = "-" if self.typed is None else f"{self.typed!r}: {fate(self.typed, s.fmt)}"
        gap = "-" if s.spacing is None else f"{s.spacing:.6g}"
        if s.spacing and s.value:
            gap += f" ({s.spacing / abs(s.value):.2g} of the value)"
        normal = "-" if f.is_integer else f"{f.smallest_normal:.6g}"
        values = (
            value, s.formula, str(KINDS[s.kind]), typed, f"{down}, {up}", gap,
            f"{f.max:.9g}", normal, f"{f.smallest_subnormal:.6g}",
        )  # fmt: skip
        cells = "".join(
            f'<tr><th scope="row" style="text-align:left;padding-right:12px">{name}</th>'
            f'<td style="text-align:left">{html.escape(value)}</td></tr>'
            for name, value in zip(ROWS, values, strict=True)
        )
        return f'<table aria-live="polite">{cells}</table>'

    def _ipython_display_(self) -> None:
        """The static table, then the live explorer, which hides it."""
        data = {"text/html": self._first._repr_html_(), "text/plain": str(self._first)}
        show_live(self.widget, data)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(str(NOT_READ).format(text)) from None
