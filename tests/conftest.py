"""For all tests: one thread, the same examples every run, and a state folder to ask for."""

import gc
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from hypothesis import settings

pytest_plugins = ["lab_server"]

torch.set_num_threads(1)  # small models: a second thread only waits, and slows the first

if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:  # as in a shell's background jobs
    signal.signal(signal.SIGINT, signal.default_int_handler)  # kernels would inherit it

os.environ.pop("TINYRL_LANG", None)  # the reader's; tests read English, or say so

# on a shared machine no example has a time limit
settings.register_profile("tinyrl", deadline=None, derandomize=True)
settings.register_profile("search", deadline=None, max_examples=2000)  # by hand, for bugs
settings.load_profile("tinyrl")

# The longest files, longest first: begun last, one would keep a worker while others idle.
LONGEST = ("adversaries", "notebooks", "kill_matrix", "browser", "nbgrader")
LONGEST += ("diagnosis_altered", "trainer")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    places = {f"test_{name}": place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path.stem, len(places)))


def pytest_collection_finish() -> None:
    """What was imported and collected stays: the garbage collector need not look at it."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def environment_as_it_was() -> Iterator[None]:
    """What a test changes for its process, a language say, is not there for the next."""
    before = dict(os.environ)
    yield
    for name in os.environ.keys() - before.keys():
        del os.environ[name]
    os.environ.update(before)


@pytest.fixture
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A learner without history, who reads English."""
    monkeypatch.setenv("TINYRL_HOME", str(tmp_path))
    monkeypatch.setenv("TINYRL_LANG", "en")
