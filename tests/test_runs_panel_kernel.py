"""The compare-runs panel in a real kernel: it trains while that answers, and stops."""

from __future__ import annotations

import time

import nbformat
import pytest
from nbclient import NotebookClient
from nbconvert import HTMLExporter

START = """import torch
torch.set_num_threads(1)
from dataclasses import replace
from tinyrl.checkpoints import load
from tinyrl.recipe import Recipe
from tinyrl.tasks import CumSum
from tinyrl.course.panels.runs_panel import QUICK, RunsPanel
base = replace(QUICK, steps=1000, recipe=Recipe(groups=2, group_size=4), prompts=16)
p = RunsPanel(load(), CumSum(), base=base, seeds=1)
p"""
IDS = "print(p.run_button.model_id, p.cancel_button.model_id)"
LOOK = "print(p.training, sum(len(r.steps) for runs in p.arms.values() for r in runs))"
DEADLINE = 60


class Learner:
    """Executes cells, and presses buttons as the browser does: by a message."""

    def __init__(self, client: NotebookClient) -> None:
        self.client = client

    def execute(self, source: str) -> nbformat.NotebookNode:
        cell = nbformat.v4.new_code_cell(source)
        self.client.nb.cells.append(cell)
        self.client.execute_cell(cell, len(self.client.nb.cells) - 1)
        return cell

    def told(self, source: str) -> str:
        """What the cell prints, which may come in pieces."""
        outputs = self.execute(source).outputs
        return "".join(o.text for o in outputs if o.output_type == "stream")

    def press(self, button: str) -> None:
        event = {"method": "custom", "content": {"event": "click"}}
        content = {"comm_id": button, "data": event}
        message = self.client.kc.session.msg("comm_msg", content)
        self.client.kc.shell_channel.send(message)

    def look(self) -> tuple[bool, int]:
        training, steps = self.told(LOOK).split()
        return training == "True", int(steps)

    def wait(self, until) -> tuple[bool, int]:
        """Look, leaving the kernel time between looks, until it is so."""
        end = time.monotonic() + DEADLINE
        while not until(*(seen := self.look())):
            assert time.monotonic() < end, seen
            time.sleep(0.1)
        return seen


@pytest.fixture(scope="module")
def learner():
    client = NotebookClient(nbformat.v4.new_notebook(), timeout=120, kernel_name="python3")
    with client.setup_kernel():
        yield Learner(client)


def test_it_trains_while_cells_are_executed_and_stops_when_told(learner: Learner) -> None:
    picture, _saved, live = learner.execute(START).outputs
    assert picture.data["image/png"].startswith("iVBORw0KGgo")
    assert "application/vnd.jupyter.widget-view+json" in live.data
    run, cancel = learner.told(IDS).split()
    assert learner.look() == (False, 0)
    learner.press(run)
    _, some = learner.wait(lambda training, steps: training and steps > 0)
    _, more = learner.wait(lambda training, steps: training and steps > some)
    learner.press(cancel)
    _, end = learner.wait(lambda training, steps: not training)
    assert more <= end < 1000
    time.sleep(0.3)
    assert learner.look() == (False, end)
    text = learner.told("print(p.status.value, p.error.value)")
    assert "run goes on from there" in text
    learner.press(run)
    learner.wait(lambda training, steps: training and steps > end)
    learner.press(cancel)
    learner.wait(lambda training, steps: not training)


def test_html_without_a_kernel_holds_the_picture(learner: Learner) -> None:
    cell = learner.execute("RunsPanel(load(), CumSum(), base=base)")
    page, _ = HTMLExporter().from_notebook_node(nbformat.v4.new_notebook(cells=[cell]))
    png = cell.outputs[0].data["image/png"].replace("\n", "")
    assert f'src="data:image/png;base64,{png}"' in page.replace("\n", "")
