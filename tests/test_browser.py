"""The course as a learner meets it: the real JupyterLab in a real browser.

Screenshots are left in artifacts/screenshots.
"""

from __future__ import annotations

import json

import pytest
from playwright.sync_api import expect

from lab_server import BROWSER, PAGE_GONE, PORT_TAKEN
from lab_window import Lab

pytestmark = BROWSER


def test_only_a_closed_page_is_forgiven() -> None:
    head = "Task exception was never retrieved\nfuture: "
    end = "Traceback (most recent call last):\n  x\ntornado.websocket."
    gone = f"{head}<T exception=WebSocketClosedError()>\n{end}WebSocketClosedError\n"
    other = gone.replace("WebSocketClosedError", "KeyError")
    assert PAGE_GONE.sub("", gone + "kept\n" + gone) == "kept\n"
    assert PAGE_GONE.sub("", other) == other
    assert PAGE_GONE.sub("", gone + other) == other


def test_only_a_kernel_whose_port_was_taken_is_forgiven() -> None:
    head = 'Traceback (most recent call last):\n  File "x", line 1, in y\n    z()\n'
    taken = f"{head}zmq.error.ZMQError: Address already in use (addr='tcp://1:2')\n"
    other = f"{head}zmq.error.ZMQError: Too many open files\n"
    assert PORT_TAKEN.sub("", f"before\n{taken}after\n") == "before\nafter\n"
    assert PORT_TAKEN.sub("", other) == other
    assert PORT_TAKEN.sub("", other + taken) == other


def test_the_address_opens_the_first_notebook(lab: Lab) -> None:
    lab.wait_for("00_start_here.ipynb")
    expect(lab.front.locator(".jp-NotebookPanel-toolbar")).to_contain_text(
        "Python 3 (ipykernel)"
    )
    lab.shoot("00-opened")


def shown_numbers(lab: Lab) -> dict[str, float | None]:
    """The numbers on the page, with all their digits."""
    cells = lab.front.locator(".tinyrl-models .tinyrl-numbers [data-metric]")
    pairs = cells.evaluate_all("all => all.map(c => [c.dataset.metric, c.dataset.value])")
    return {name: None if x == "None" else float(x) for name, x in pairs}


# The library's numbers for what the panel of a lesson is set to, from its own weights.
ASK = """
import gc, json
import torch
from tinyrl import metrics, scoring, trainer
from tinyrl.course.panels.mismatch_panel import MismatchPanel

(panel_,) = [x for x in gc.get_objects() if type(x) is MismatchPanel]
now, prompts = panel_.controls.setting(), panel_._prompts
gen = torch.Generator().manual_seed(panel_._seed)
sampler = panel_._models[-1 - now.stale]
batch = trainer.generate(sampler, panel_._task, prompts, now.rollout, gen)
with torch.no_grad():
    train = scoring.score(panel_._models[-1], batch.prompt, batch.response, now.train)
told = metrics.compare(
    batch.logp_rollout, train.logp, batch.mask,
    top1_rollout=batch.top1_rollout, top1_train=train.top1,
)
print(json.dumps(vars(told)))
"""


def test_notebook_01_runs_and_its_panel_follows_a_control(lab: Lab) -> None:
    lab.open("notebooks", "01_two_policies.ipynb")
    lab.run_all()
    errors = [o for cell in lab.outputs() for o in cell if o["output_type"] == "error"]
    assert errors == []
    lab.show(".tinyrl-models")
    before = shown_numbers(lab)
    lab.shoot("panel-before")
    menu = lab.front.locator(".tinyrl-models .tinyrl-rollout-numerics-weights select")
    menu.select_option(label="INT4")
    shown = lab.front.locator(".tinyrl-models [data-metric=mean_abs]")
    expect(shown).not_to_have_attribute("data-value", repr(before["mean_abs"]))
    after = shown_numbers(lab)
    lab.shoot("panel-int4-weights")
    outputs = lab.ask(ASK)
    assert [o["output_type"] for o in outputs] == ["stream"], outputs
    assert after == pytest.approx(json.loads(outputs[0]["text"]), rel=1e-6)


def test_a_check_says_what_is_wrong_and_then_that_it_is_right(lab: Lab) -> None:
    lab.open("labs", "lab01_two_policies", "lab01_two_policies.ipynb")
    for cell in ("setup", "by_hand"):
        assert "error" not in {o["output_type"] for o in lab.run(cell)}
    head = "def ratio(logp_train, logp_rollout, mask):\n    "
    clean = "d = torch.where(mask, logp_train - logp_rollout.detach(), 0.0)\n    "
    lab.write("ratio", f"{head}{clean}return (-d).exp()")
    outputs = lab.run("ratio_test")
    lab.shoot("check-wrong")
    assert "The ratio is upside down" in json.dumps(outputs)
    assert [o["ename"] for o in outputs if o["output_type"] == "error"] == ["CheckFailed"]
    lab.write("ratio", f"{head}{clean}return d.exp()")
    outputs = lab.run("ratio_test")
    lab.shoot("check-right")
    assert [o["output_type"] for o in outputs] == ["display_data"]
    expect(lab.front.locator(".jp-mod-active .jp-OutputArea").first).to_contain_text("✓")


def test_a_kernel_stays_connected(lab: Lab) -> None:
    """Jupyter pings, and may hang up, after 30 s; `lab` notes each closed connection."""
    lab.page.wait_for_timeout(max(0.0, 35 - lab.age) * 1000)
