"""The course as a learner meets it: the real JupyterLab in a real browser.

Screenshots are left in artifacts/screenshots.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect, sync_playwright

from lab_window import Lab

ROOT = Path(__file__).parent.parent
NAMES = ("chromium", "chromium-browser", "google-chrome")
CHROMIUM = next((found for name in NAMES if (found := shutil.which(name))), None)

pytestmark = [
    pytest.mark.browser,
    pytest.mark.slow,
    pytest.mark.skipif(
        CHROMIUM is None, reason="no chromium here: apt-get install chromium"
    ),
]


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a learner opens, copied: a test must not write into the course."""
    folder = tmp_path_factory.mktemp("clone")
    for name in (".jupyter", "notebooks", "labs"):
        ignore = shutil.ignore_patterns("workspaces", ".ipynb_checkpoints")
        shutil.copytree(ROOT / name, folder / name, ignore=ignore)
    shutil.copy(ROOT / "nbgrader_config.py", folder)
    return folder


@pytest.fixture(scope="module")
def address(clone: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """JupyterLab as `make lab` starts it, on a port that is taken already."""
    home = tmp_path_factory.mktemp("home")
    own = {
        "JUPYTER_CONFIG_DIR": "config",
        "JUPYTER_DATA_DIR": "data",
        "JUPYTER_RUNTIME_DIR": "run",
        "JUPYTERLAB_SETTINGS_DIR": "settings",
        "IPYTHONDIR": "ipython",
        "TINYRL_HOME": "progress",
    }
    env = {**os.environ, **{name: str(home / folder) for name, folder in own.items()}}
    env["JUPYTER_CONFIG_PATH"] = str(clone / ".jupyter")
    log = (home / "log").open("w+")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        command = [sys.executable, "-m", "jupyterlab", "--no-browser", f"--port={port}"]
        command.append("--LabApp.expose_app_in_browser=True")  # to know when cells are done
        server = subprocess.Popen(command, cwd=clone, env=env, stdout=log, stderr=log)
        try:
            yield _address(server, Path(log.name))
        finally:
            server.terminate()
            server.wait(timeout=30)
            log.close()
    said = PAGE_GONE.sub("", Path(log.name).read_text())
    assert "Traceback" not in said, said
    assert not re.search(r"^\[E ", said, re.M), said


PAGE_GONE = re.compile(
    r"(\[E [^\n]*\] )?Task exception was never retrieved\n"
    r"[^\n]*future: [^\n]*exception=WebSocketClosedError\(\)>\n"
    r"([^\n]*\n)*?[^\n]*tornado\.websocket\.WebSocketClosedError\n"
)
"""What tornado logs when a page closes while a message to it is under way. Only that."""


def test_only_a_closed_page_is_forgiven() -> None:
    head = "Task exception was never retrieved\nfuture: "
    end = "Traceback (most recent call last):\n  x\ntornado.websocket."
    gone = f"{head}<T exception=WebSocketClosedError()>\n{end}WebSocketClosedError\n"
    other = gone.replace("WebSocketClosedError", "KeyError")
    assert PAGE_GONE.sub("", gone + "kept\n" + gone) == "kept\n"
    assert PAGE_GONE.sub("", other) == other
    assert PAGE_GONE.sub("", gone + other) == other


def _address(server: subprocess.Popen[bytes], log: Path) -> str:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and server.poll() is None:
        if found := re.search(r"http://127\.0\.0\.1:\d+/\S+", log.read_text()):
            return found[0]
        time.sleep(0.1)
    raise AssertionError(f"JupyterLab gave no address: {log.read_text()}")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    root = ["--no-sandbox"] if getattr(os, "geteuid", lambda: 1)() == 0 else []
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=root)
        yield started
        started.close()


@pytest.fixture(scope="module")
def window(browser: Browser, address: str) -> Iterator[Lab]:
    context = browser.new_context(viewport={"width": 1500, "height": 1000})
    yield Lab(context.new_page(), address, ROOT / "artifacts/screenshots")
    context.close()


@pytest.fixture
def lab(window: Lab) -> Iterator[Lab]:
    """The learner's window; nothing may pop up, fail or be fetched from outside."""
    yield window
    popups = window.page.locator(".jp-Dialog, .Toastify__toast").all_inner_texts()
    assert popups == []
    assert window.wrong == []


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
from tinyrl.course.panels import MismatchPanel

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
