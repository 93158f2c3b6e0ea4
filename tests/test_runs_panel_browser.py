"""The compare-runs panel as a learner meets it: train, watch, stop, train on.

Screenshots are left in artifacts/screenshots.
"""

from __future__ import annotations

import re
from pathlib import Path

import nbformat
from playwright.sync_api import expect

from lab_server import BROWSER
from lab_window import Lab
from test_runs_panel_kernel import START

pytestmark = BROWSER


def test_a_run_is_watched_stopped_and_gone_on_with(clone: Path, lab: Lab) -> None:
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(START)])
    book.metadata.kernelspec = {"name": "python3", "display_name": "Python 3"}
    nbformat.write(book, clone / "notebooks" / "runs.ipynb")
    lab.open("notebooks", "runs.ipynb")
    lab.run_all()
    panel = lab.front.locator(".tinyrl-runs")
    # the picture for readers without a kernel makes room for the live panel
    expect(lab.front.locator(".jp-OutputArea img:visible")).to_have_count(1)
    lab.shoot("runs-empty")
    run, cancel = (panel.get_by_role("button", name=x) for x in ("run", "cancel"))
    expect(cancel).to_be_disabled()
    before = panel.locator("img").get_attribute("src")
    run.click()
    expect(run).to_be_disabled()
    status = panel.locator(".tinyrl-status")
    expect(status).to_contain_text(re.compile("computing|step"))
    # the first step evaluates the model: seconds on a busy machine
    expect(status).to_contain_text(re.compile(r"step \d\d+ of 1000"), timeout=30_000)
    lab.shoot("runs-training")
    cancel.click()
    expect(panel.locator(".tinyrl-status")).to_contain_text("run goes on from there")
    expect(run).to_be_enabled()
    assert panel.locator("img").get_attribute("src") != before
    panel.get_by_label("correction").select_option(label="token, truncated at 2")
    panel.get_by_label("old logprobs").select_option(label="rollout's")
    run.click()
    expect(panel.get_by_role("alert")).to_contain_text("truncating would count it twice")
    lab.shoot("runs-error")
