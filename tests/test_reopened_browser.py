"""A notebook that is opened again without its kernel, and a panel in a narrow window.

Screenshots are left in artifacts/screenshots.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import nbformat
import pytest
from playwright.sync_api import Page, expect

from lab_server import BROWSER
from lab_window import Lab

pytestmark = BROWSER

CELLS = {
    "ask": """from tinyrl.course.predictions import predict
predict("00.x", "Which way?", ["up", "down"])""",
    "panel": """import torch
from tinyrl.course import panel
from tinyrl.model import GPT, GPTConfig
from tinyrl.tasks import CumSum
g = torch.Generator().manual_seed(0)
panel([GPT(GPTConfig(), g) for _ in range(6)], CumSum(n=5), sequences=8)""",
}


@pytest.fixture
def opened(clone: Path, lab: Lab) -> Lab:
    made = [nbformat.v4.new_code_cell(code, id=name) for name, code in CELLS.items()]
    book = nbformat.v4.new_notebook(cells=made)
    book.metadata.kernelspec = {"name": "python3", "display_name": "Python 3"}
    nbformat.write(book, clone / "notebooks" / "reopened.ipynb")
    lab.open("notebooks", "reopened.ipynb")
    lab.run_all()
    return lab


def in_sight(page: Page, selector: str) -> bool:
    """Whether the whole of an element is within the window."""
    box = page.locator(selector).first.bounding_box()
    size = page.viewport_size
    assert box
    assert size
    return box["y"] >= 0 and box["y"] + box["height"] <= size["height"]


def test_what_a_button_changes_is_in_sight_at_every_width(opened: Lab) -> None:
    page = opened.page
    panel = opened.front.locator(".tinyrl-models")
    try:
        for width in (800, 1100, 1300, 1500):
            page.set_viewport_size({"width": width, "height": 1000})
            opened.show(".tinyrl-models")
            panel.get_by_role("button", name="reset").click()
            verdict = panel.locator(".tinyrl-verdict b")
            before = verdict.inner_text()
            panel.get_by_role("button", name="positions off by one").click()
            expect(verdict).not_to_have_text(before, timeout=30_000)
            page.wait_for_timeout(400)
            opened.shoot(f"panel-{width}")
            for part in (".tinyrl-bar", ".tinyrl-verdict", ".tinyrl-image"):
                assert in_sight(page, f".tinyrl-models {part}"), (width, part)
    finally:
        page.set_viewport_size({"width": 1500, "height": 1000})


def test_a_notebook_without_its_kernel_says_what_to_do(clone: Path, opened: Lab) -> None:
    expect(opened.front.locator(".tinyrl-saved:visible")).to_have_count(0)
    expect(opened.front.locator(".jp-OutputArea img:visible")).to_have_count(1)
    opened.page.evaluate("() => window.jupyterapp.commands.execute('docmanager:save')")
    # the kernel of another notebook knows none of these widgets
    shutil.copy(clone / "notebooks/reopened.ipynb", clone / "notebooks/another.ipynb")
    opened.open("notebooks", "another.ipynb")
    expect(opened.front.locator(".tinyrl-saved:visible")).to_have_count(2)
    opened.page.wait_for_timeout(4000)  # the widgets' manager looks for a model for 2 s
    opened.shoot("reopened")
    lost = opened.front.get_by_text("model not found")
    assert lost.count() == 2, "each stands there, and is not seen"
    assert [x for x in lost.all() if x.is_visible()] == []
    expect(opened.front.locator(".jp-OutputArea img:visible")).to_have_count(1)
    opened.wrong.clear()  # the widgets' manager says on the console what it did not find
