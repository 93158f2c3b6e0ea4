"""What panels are made of: a frame with the course's sheet, menus, sliders, errors shown.

Only core ipywidgets are used, so that JupyterLab needs no extension.
"""

from __future__ import annotations

import html
import time
import traceback
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

import ipywidgets as widgets  # type: ignore[import-untyped]

from tinyrl.course.live import picture, show_live
from tinyrl.course.words import Words

WAIT = Words("computing ...", "计算中……")
TOOK = Words("computed in {:.0f} ms", "计算用时 {:.0f} ms")
WHERE = Words("where", "出错位置")


def rooted(children: Sequence[Any], kind: str) -> Any:
    """A widget that is shown in the place of the output before it, see panel.css."""
    css = files("tinyrl.course.panels").joinpath("panel.css").read_text("utf-8")
    inner = widgets.Box(list(children))
    inner.add_class(kind)
    root = widgets.VBox([widgets.HTML(f"<style>{css}</style>"), inner])
    root.add_class("tinyrl-panel")
    return root


def row(*children: Any) -> Any:
    """Widgets side by side, in several lines where there is no room."""
    return widgets.HBox(children, layout={"flex_flow": "row wrap"})


def named(kind: type, name: str, *args: Any, **options: Any) -> Any:
    """A widget of panel.css: it has the class `tinyrl-` and its name."""
    made = kind(*args, **options)
    made.add_class(f"tinyrl-{name}")
    return made


def menu(name: Words, choices: Mapping[str, Any], now: Any) -> Any:
    """A menu of what `choices` has by the words that are shown."""
    made = widgets.Dropdown(options=list(choices.items()), value=now, description=str(name))
    made.style.description_width = "auto"
    return made


def slider(name: Words, now: float, low: float, high: float, step: float = 1) -> Any:
    """A slider that reports when it is let go; of whole numbers if `now` is one."""
    kind = widgets.IntSlider if isinstance(now, int) else widgets.FloatSlider
    made = kind(
        now, min=low, max=high, step=step, description=str(name), continuous_update=False
    )
    made.style.description_width = "auto"
    return made


def error_box(error: Exception) -> str:
    """An error as HTML: its message, and behind a click where it came from."""
    where = html.escape("".join(traceback.format_exception(error)))
    return (
        f'<div role="alert"><b>{type(error).__name__}</b>: {html.escape(str(error))}'
        f"<details><summary>{WHERE}</summary><pre>{where}</pre></details></div>"
    )


def refusal(said: object) -> str:
    """What a learner asked for and cannot have, as HTML."""
    return f'<div role="alert">{html.escape(str(said))}</div>'


class Panel(ABC):
    """Shows what its controls say. An error in a callback, which nobody sees, is shown."""

    widget: Any

    def __init__(self) -> None:
        self.status, self.error = (named(widgets.HTML, x) for x in ("status", "error"))

    @abstractmethod
    def show(self) -> None:
        """Work out the present setting, and show it."""

    @abstractmethod
    def clear(self) -> None:
        """Take away what no longer holds."""

    def refresh(self) -> None:
        """Show the present setting, or what went wrong."""
        self.status.value = f"<i>{WAIT}</i>"
        self.widget.add_class("tinyrl-busy")
        try:
            self.update()
            self.widget.remove_class("tinyrl-failed")
        except Exception as error:  # whatever it is: nobody sees what a callback raises
            self.clear()
            self.status.value, self.error.value = "", error_box(error)
            self.widget.add_class("tinyrl-failed")
        finally:
            self.widget.remove_class("tinyrl-busy")

    def update(self) -> None:
        """Show the present setting, and how long that took; raises what goes wrong."""
        begun = time.perf_counter()
        self.show()
        self.error.value = ""
        self.status.value = str(TOOK).format(1e3 * (time.perf_counter() - begun))


class PicturePanel(Panel):
    """A line of controls, a picture that follows them, and its numbers in words."""

    picture: Any
    """What makes a PNG of what is `shown`."""

    def __init__(self, controls: Sequence[Any], kind: str) -> None:
        super().__init__()
        self.image = named(widgets.Image, "image", format="png")
        self.told = widgets.HTML()
        bar = row(*controls, self.status)
        self.widget = rooted([bar, self.error, self.image, self.told], kind)
        for control in controls:
            control.observe(lambda _: self.refresh(), "value")
        self.update()  # an error here is the cell's, and raised

    @abstractmethod
    def shown(self) -> Any:
        """What the controls say, worked out; its `told()` has the numbers in words."""

    def show(self) -> None:
        seen = self.shown()
        self.image.value, self.told.value = self.picture.png(seen), f"<p>{seen.told()}</p>"

    def clear(self) -> None:
        self.told.value = ""

    def _ipython_display_(self) -> None:
        text = self.shown().told()
        show_live(self.widget, *picture(self.image.value, text, text))
