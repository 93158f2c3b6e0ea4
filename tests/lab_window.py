"""A window of JupyterLab, used by mouse and keys as a learner does.

The page's own objects (`window.jupyterapp`) are only asked: which cells there are, when
they are done, what they show.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

from playwright.sync_api import Page, expect

# The notebook in front, its cells, and two questions about them.
SCOPE = """
const nb = window.jupyterapp.shell.currentWidget;
const cells = [...(nb?.content?.model?.cells ?? [])];
const one = id => cells.find(c => c.id === id);
const failed = c => c.outputs?.toJSON().some(o => o.output_type === 'error');
"""


class Lab:
    """A page of JupyterLab, the notebook in front, and all that went wrong on the page."""

    def __init__(self, page: Page, address: str, shots: Path) -> None:
        self.page, self.shots, self._since = page, shots, time.monotonic()
        self.wrong: list[str] = []
        page.on("console", lambda m: m.type == "error" and self.wrong.append(m.text))
        page.on("pageerror", lambda error: self.wrong.append(str(error)))
        page.on("dialog", lambda dialog: self.wrong.append(f"dialog: {dialog.message}"))
        page.on("websocket", lambda socket: socket.on("close", self._closed))
        page.on("request", self._request)
        page.on("response", self._response)
        self.front = page.locator(".jp-NotebookPanel:not(.lm-mod-hidden)")
        page.set_default_timeout(60_000)
        page.goto(address)
        page.locator(".jp-DirListing-item").first.wait_for()

    @property
    def age(self) -> float:
        """Seconds since the page was opened."""
        return time.monotonic() - self._since

    def _request(self, request: Any) -> None:
        place = urlparse(request.url)
        if place.scheme not in ("data", "blob") and place.hostname != "127.0.0.1":
            self.wrong.append(f"outside: {request.url}")

    def _closed(self, socket: Any) -> None:
        self.wrong.append(f"connection closed: {urlparse(socket.url).path}")

    def _response(self, response: Any) -> None:
        if response.status >= 400:
            self.wrong.append(f"{response.status}: {response.url}")

    def open(self, *path: str) -> None:
        """Through the file browser, each by a double click, from the course's folder."""
        self.page.locator(".jp-BreadCrumbs-home").click()
        for name in path:
            exactly = self.page.get_by_text(name, exact=True)
            self.page.locator(".jp-DirListing-item").filter(has=exactly).dblclick()
        self.wait_for(path[-1])

    def wait_for(self, name: str) -> None:
        """Until the notebook is in front and its kernel waits for work."""
        tab = self.page.locator(".lm-DockPanel-tabBar .lm-mod-current .lm-TabBar-tabLabel")
        expect(tab).to_have_text(name)
        self._until("nb?.sessionContext?.session?.kernel?.status === 'idle'")

    def run_all(self) -> None:
        """From the menu; returns when the last cell has run or one has failed."""
        self.page.get_by_role("menuitem", name="Run", exact=True).click()
        self.page.get_by_role("menuitem", name="Run All Cells", exact=True).click()
        self._until(
            "nb.sessionContext.session.kernel.status === 'idle' && "
            "cells.filter(c => c.type === 'code' && c.sharedModel.source.trim())"
            ".at(-1).executionCount !== null || cells.some(failed)"
        )

    def outputs(self) -> list[list[dict[str, Any]]]:
        """What each code cell shows."""
        shown = "cells.filter(c => c.type === 'code').map(c => c.outputs.toJSON())"
        return list(self.page.evaluate(f"() => {{ {SCOPE} return {shown} }}"))

    def select(self, cell: str) -> None:
        """Bring the cell with this id into view, and make it the active one."""
        self.page.evaluate(
            f"async id => {{ {SCOPE} const n = nb.content;"
            "const at = cells.findIndex(c => c.id === id); n.activeCellIndex = at;"
            "await n.scrollToItem(at, 'center'); }",
            cell,
        )

    def write(self, cell: str, source: str) -> list[dict[str, Any]]:
        """Type over the cell's code, and run it; its outputs."""
        self.select(cell)
        editor = self.front.locator(".jp-Cell.jp-mod-active .cm-content")
        editor.click()
        self.page.keyboard.press("Control+A")
        self.page.keyboard.insert_text(source)
        return self.run(cell)

    def run(self, cell: str) -> list[dict[str, Any]]:
        """Run the cell as Control+Enter does; its outputs."""
        self.select(cell)
        before = self.page.evaluate(
            f"id => {{ {SCOPE} return one(id).executionCount }}", cell
        )
        self.front.locator(".jp-Cell.jp-mod-active .cm-content").click()
        self.page.keyboard.press("Control+Enter")
        self._until(
            "one(given[0]).executionCount !== null && one(given[0]).executionCount"
            " !== given[1] && nb.sessionContext.session.kernel.status === 'idle'",
            [cell, before],
        )
        return list(
            self.page.evaluate(f"id => {{ {SCOPE} return one(id).outputs.toJSON() }}", cell)
        )

    def ask(self, source: str) -> list[dict[str, Any]]:
        """Add a cell at the end of the notebook, and run it; its outputs."""
        add = "nb.content.model.sharedModel.addCell({cell_type: 'code', id: 'asked'})"
        self.page.evaluate(f"() => {{ {SCOPE} {add} }}")
        return self.write("asked", source)

    def show(self, selector: str) -> None:
        """Scroll until this is in sight: cells that are far from it are not on the page."""
        count = self.page.evaluate(f"() => {{ {SCOPE} return cells.length }}")
        for at in range(count):
            if self.front.locator(selector).count():
                break
            self.page.evaluate(f"at => {{ {SCOPE} nb.content.scrollToItem(at) }}", at)
            self.page.wait_for_timeout(100)
        self.front.locator(selector).evaluate("it => it.scrollIntoView()")

    def _until(self, condition: str, given: Any = None) -> None:
        body = f"given => {{ {SCOPE} return {condition} }}"
        self.page.wait_for_function(body, arg=given, timeout=180_000)

    def shoot(self, name: str) -> None:
        self.shots.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=self.shots / f"{name}.png")
