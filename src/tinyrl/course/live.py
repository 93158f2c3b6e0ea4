"""A widget as the output of a cell, and what stands in its place once its kernel is gone.

A saved notebook holds no widget: opened again, it says "model not found" where one was. The
line that stands before the widget says instead what to do. Its sheet hides that message,
and the line itself as long as the widget lives.
"""

from __future__ import annotations

import base64
from typing import Any

from IPython.display import display

from tinyrl.course.words import Words

SAVED = Words(
    "Saved output: run this cell for the controls.",
    "这是保存下来的输出：运行本单元格即可操作。",
)
SHEET = """<style>
.jp-OutputArea-child:has(.tinyrl-saved):has(+ .jp-OutputArea-child .tinyrl-live),
.jp-OutputArea-child:has(.tinyrl-saved)
+ .jp-OutputArea-child > .jp-OutputArea-output:not(:has(*)) { display: none; }
</style>"""
LINE = '<div class="tinyrl-saved" style="opacity:.65;font-size:12px">{}</div>'


def show_live(
    widget: Any,
    data: dict[str, str] | None = None,
    metadata: dict[str, Any] | None = None,
) -> None:
    """Display `widget`; before it `data`, by MIME type, for readers without a kernel."""
    if data is not None:
        display(data, metadata=metadata, raw=True)  # type: ignore[no-untyped-call]
    display({"text/html": SHEET + LINE.format(SAVED)}, raw=True)  # type: ignore[no-untyped-call]
    widget.add_class("tinyrl-live")
    live = widget._repr_mimebundle_()
    live["text/plain"] = str(SAVED)
    display(live, raw=True)  # type: ignore[no-untyped-call]


def picture(png: bytes, text: str, alt: str) -> tuple[dict[str, str], dict[str, Any]]:
    """Data and metadata of a picture, for `show_live`."""
    data = {"image/png": base64.b64encode(png).decode(), "text/plain": text}
    return data, {"image/png": {"width": 900, "alt": alt, "needs_background": "light"}}
