"""The drill in a real page: Enter answers, options keep their reasons, time runs out."""

from __future__ import annotations

from pathlib import Path

import nbformat
from playwright.sync_api import expect

from lab_server import BROWSER
from lab_window import Lab

pytestmark = BROWSER
DRILL = """
from tinyrl.course.interview.panel import drill
drill(groups=["III"], kinds=["numeric"], count=1)
"""
CHOICE = """
from tinyrl.course import set_language
from tinyrl.course.interview import panel
set_language("zh")
panel.SPEAKING = 3
panel.drill(groups=["V"], kinds=["choice"], count=2)
panel.drill(groups=["VI"], kinds=["open"], count=1)
"""


def test_enter_gives_the_number_and_leaving_the_field_does_not(
    clone: Path, lab: Lab
) -> None:
    run(clone, lab, "drill", DRILL)
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


def test_options_keep_their_reasons_and_time_is_told(clone: Path, lab: Lab) -> None:
    run(clone, lab, "choice", CHOICE)
    panel, spoken = (lab.front.locator(".tinyrl-drill").nth(i) for i in range(2))
    says = panel.locator(".tinyrl-row-of-text .widget-html").all_inner_texts()
    panel.get_by_role("button", name="b", exact=True).click()
    expect(panel).to_contain_text("你的选择")
    for text in says:
        expect(panel).to_contain_text(text)
    lab.shoot("drill-choice")
    spoken.get_by_role("button", name="开始计时").click()
    over = spoken.get_by_text("时间到")
    expect(over).to_be_hidden()
    expect(over).to_be_visible(timeout=8000)
    lab.shoot("drill-time")
    spoken.get_by_role("button", name="答完了").click()
    spoken.locator("input[type=checkbox]").first.click()
    spoken.get_by_role("button", name="选好了").click()
    expect(spoken).to_contain_text("一句话回答")
    lab.shoot("drill-open")


def run(clone: Path, lab: Lab, name: str, code: str) -> None:
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code)])
    book.metadata.kernelspec = {"name": "python3", "display_name": "Python 3"}
    nbformat.write(book, clone / "notebooks" / f"{name}.ipynb")
    lab.open("notebooks", f"{name}.ipynb")
    lab.run_all()
