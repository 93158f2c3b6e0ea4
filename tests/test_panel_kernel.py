"""The panel in a real kernel: what it answers, and what it leaves in notebook and HTML."""

import nbformat
import pytest
from nbclient import NotebookClient
from nbconvert import HTMLExporter

CELLS = [
    """import torch
from tinyrl.course import panel
from tinyrl.model import GPT, GPTConfig
from tinyrl.tasks import CumSum
model = GPT(GPTConfig(), torch.Generator().manual_seed(0))""",
    "p = panel(model, CumSum(n=5), sequences=8)\np",
    """p.controls.inputs["rollout"]["numerics.weights"].value = "int4"
print(repr(p.view.mismatch.k3), p.view.numbers.value)""",
    """import tinyrl.course.panels.mismatch_panel as panels
def broken(*a, **k): raise RuntimeError("boom")
panels.compare = broken
p.controls.inputs["rollout"]["numerics.weights"].value = "int8"
print(p.error.value)""",
]


@pytest.fixture(scope="module")
def executed():
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(c) for c in CELLS])
    NotebookClient(book, timeout=120, kernel_name="python3").execute()
    return book


def test_the_cell_leaves_a_picture_and_then_the_live_panel(executed):
    picture, line, live = executed.cells[1].outputs
    assert "run this cell" in line.data["text/html"]
    assert picture.data["image/png"].startswith("iVBORw0KGgo")
    assert "top-1 same" in picture.data["text/plain"]
    assert "max |δ|" in picture.metadata["image/png"]["alt"]
    assert "application/vnd.jupyter.widget-view+json" in live.data
    assert "run this cell" in live.data["text/plain"]
    assert "Panel(" not in live.data["text/plain"]


def test_moving_a_control_in_a_kernel_changes_the_numbers(executed):
    text = executed.cells[2].outputs[0].text
    k3, table = text.split(" ", 1)
    assert f'data-metric="k3" data-value="{k3}"' in table
    assert float(k3) > 1e-5


def test_an_error_in_a_kernels_callback_reaches_the_panel(executed):
    (output,) = executed.cells[3].outputs
    assert "<b>RuntimeError</b>: boom" in output.text


@pytest.mark.parametrize("state", ["kept", "dropped"])
def test_html_without_a_kernel_holds_the_picture(executed, state):
    book = nbformat.from_dict(executed)
    if state == "dropped":
        book.metadata.pop("widgets")
    page, _ = HTMLExporter().from_notebook_node(book)
    png = executed.cells[1].outputs[0].data["image/png"].replace("\n", "")
    assert f'src="data:image/png;base64,{png}"' in page.replace("\n", "")
    page, _ = HTMLExporter(template_name="classic").from_notebook_node(book)
    assert 'alt="Two logprobs of the same tokens: ' in page
