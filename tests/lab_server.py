"""JupyterLab on a copy of the course, and a browser at it: fixtures, loaded by conftest.py.

Screenshots are left in artifacts/screenshots.
"""

from __future__ import annotations

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
from playwright.sync_api import Browser, sync_playwright

from lab_window import Lab

ROOT = Path(__file__).parent.parent
NAMES = ("chromium", "chromium-browser", "google-chrome")
CHROMIUM = next((found for name in NAMES if (found := shutil.which(name))), None)

BROWSER = [
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
    said = PORT_TAKEN.sub("", PAGE_GONE.sub("", Path(log.name).read_text()))
    assert "Traceback" not in said, said
    assert not re.search(r"^\[E ", said, re.M), said


PORT_TAKEN = re.compile(
    r"Traceback \(most recent call last\):\n(  [^\n]*\n)+"
    r"zmq\.error\.ZMQError: Address already in use[^\n]*\n"
)
"""A kernel that lost its port to another process, between the choice of it and its use.
Jupyter starts it again."""


PAGE_GONE = re.compile(
    r"(\[E [^\n]*\] )?Task exception was never retrieved\n"
    r"[^\n]*future: [^\n]*exception=WebSocketClosedError\(\)>\n"
    r"([^\n]*\n)*?[^\n]*tornado\.websocket\.WebSocketClosedError\n"
)
"""What tornado logs when a page closes while a message to it is under way. Only that."""


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
