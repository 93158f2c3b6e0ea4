"""The drill in a real page: leaving a field is no answer, Enter is."""

from __future__ import annotations

from pathlib import Path

import nbformat
from playwright.sync_api import expect

from lab_server import BROWSER
from lab_window import Lab

pytestmark = BROWSER
DRILL = """
from tinyrl.course.interview.drill_panel import drill
drill(groups=["III"], kinds=["numeric"], count=1)
"""


def test_enter_gives_the_number_and_leaving_the_field_does_not(
    clone: Path, lab: Lab
) -> None:
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(DRILL)])
    book.metadata.kernelspec = {"name": "python3", "display_name": "Python 3"}
    nbformat.write(book, clone / "notebooks" / "drill.ipynb")
    lab.open("notebooks", "drill.ipynb")
    lab.run_all()
    panel = lab.front.locator(".tinyrl-drill")
    field = panel.locator("input[type=text]")
    field.fill("123456")
    field.blur()
    lab.shoot("drill-number")
    expect(panel).not_to_contain_text("No.")
    field.press("Enter")
    expect(panel).to_contain_text("No.")
    expect(panel).to_contain_text("1 answered, 0% of the points")
    lab.shoot("drill-answered")
