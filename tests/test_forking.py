"""Processes that a template forks: each as fresh as one of its own, none a danger."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from tinyrl.course.checking.forking import FORKS, Template, TemplateGone, _Forked
from tinyrl.course.checking.remote import GONE, NoProcess, Notebook, Process
from tinyrl.course.classroom import regrade

pytestmark = pytest.mark.skipif(not FORKS, reason="forks on Linux only")

SEEN = """
import ctypes, os, sys, tempfile
seen = [os.getcwd(), sys.argv[1:], dict(os.environ), sys.path, tempfile.gettempdir()]
ids = [os.getpid(), os.getppid(), os.getsid(0)]
open_files = [os.readlink(f"/proc/self/fd/{n}") for n in os.listdir("/proc/self/fd")
              if os.path.lexists(f"/proc/self/fd/{n}")]
threads = len(os.listdir("/proc/self/task"))
dumpable = ctypes.CDLL(None).prctl(3)
"""


@pytest.fixture(scope="module")
def fork() -> Iterator[Template]:
    made = Template()
    yield made
    made.end()


@contextlib.contextmanager
def running(launch: Callable[[], Process], *cells: str) -> Iterator[Notebook]:
    made = Notebook(list(cells), launch)
    made.start()
    try:
        yield made
    finally:
        made.end()


def ended(pid: int) -> bool:
    """Whether there is no such process within 5 s; a zombie is none."""
    for _ in range(50):
        try:
            if Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z":
                return True
        except FileNotFoundError:
            return True
        time.sleep(0.1)
    return False


def test_an_answer_sees_what_it_sees_in_a_process_of_its_own(
    fork: Template, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SEED_OF_THE_HIDDEN_TEST", "4711")
    with running(fork, SEEN) as forked, running(Process, SEEN) as plain:
        (folder, *mine), (other, *theirs) = forked.find("seen"), plain.find("seen")
        assert folder == mine[1].pop("HOME") != os.getcwd()
        assert other == theirs[1].pop("HOME")
        assert mine == theirs
        assert "SEED_OF_THE_HIDDEN_TEST" not in mine[1]
        assert forked.find("threads") == plain.find("threads") == 1
        kinds = [
            sorted(name.split(":")[0] for name in nb.find("open_files"))
            for nb in (forked, plain)
        ]
        assert kinds[0] == kinds[1], "no socket to the template, no pipe of another"
        assert forked.find("dumpable") == 0, "nobody writes into its memory"
        pid, parent, session = forked.find("ids")
        assert (parent, session) == (fork.popen.pid, pid)
    assert not os.path.exists(folder)
    assert ended(pid)


def test_what_one_answer_changes_no_other_sees(fork: Template) -> None:
    patch = "import torch, builtins\ntorch.exp = builtins.hex = None"
    look = "import torch\nfound = [torch.exp is None, hex is None]"
    with running(fork, patch, look) as first, running(fork, look) as second:
        assert first.find("found") == [True, True]
        assert second.find("found") == [False, False]


def test_no_two_answers_draw_the_same(fork: Template) -> None:
    cell = "import random, torch, numpy\nfound = [random.random(), numpy.random.rand(),"
    cell += " torch.rand(1, dtype=torch.float64).item()]"
    with running(fork, cell) as first, running(fork, cell) as second:
        pairs = zip(first.find("found"), second.find("found"), strict=True)
        assert all(a != b for a, b in pairs)


def test_an_answer_s_children_are_gone_with_it(fork: Template) -> None:
    cell = "import subprocess\npid = subprocess.Popen(['sleep', '300']).pid"
    with running(fork, cell) as notebook:
        pid = notebook.find("pid")
        assert not Path(f"/proc/{pid}/stat").read_text().endswith("Z")
    assert ended(pid)


def test_a_process_that_an_answer_ends_is_replaced(fork: Template) -> None:
    with running(fork, "import os\nos._exit(1)\nvalue = 2", "def f(): os._exit(0)") as nb:
        assert nb.find("value") == 2
        with pytest.raises(RuntimeError, match=GONE):
            nb.find("f")()
        nb.start()
        assert nb.find("value") == 2


@pytest.mark.parametrize("signal", ["SIGKILL", "SIGSTOP"])
def test_an_answer_that_stops_the_template_costs_only_time(
    monkeypatch: pytest.MonkeyPatch, signal: str
) -> None:
    launch = regrade.Launcher()
    assert launch.template is not None
    try:
        with running(launch, "one = 1") as first:  # by now the template is there
            assert first.find("one") == 1
        launch.template.control.settimeout(2)
        cell = (
            f"import os, signal\nos.kill(os.getppid(), signal.{signal})\npid = os.getpid()"
        )
        with running(launch, cell) as hostile:
            pid = hostile.find("pid")
        assert ended(pid)
        with running(launch, "two = 2") as second:
            assert second.find("two") == 2
        assert launch.template is None
    finally:
        launch.end()


def test_a_template_that_is_gone_is_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    gone = SimpleNamespace(ask=lambda *_: (_ for _ in ()).throw(TemplateGone("x")))
    with pytest.raises(NoProcess):
        _Forked(gone)  # type: ignore[arg-type]
