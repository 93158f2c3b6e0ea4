"""Start worker.py in an interpreter that knows nothing of this one."""

from __future__ import annotations

import os
import site
import subprocess
import sys
from typing import Any, Protocol


class Child(Protocol):
    """What `Process` asks of its child; a `Popen` has it."""

    @property
    def pid(self) -> int: ...
    @property
    def stdin(self) -> Any: ...
    @property
    def stdout(self) -> Any: ...
    def kill(self) -> None: ...
    def wait(self) -> object: ...


def environment(folder: str) -> dict[str, str]:
    """Of a process at home in `folder`: nothing of this one's that it could learn from."""
    kept = ("PATH", "SYSTEMROOT", "LANG", "LC_ALL")
    found = {name: os.environ[name] for name in kept if name in os.environ}
    found |= {"HOME": folder, "OMP_NUM_THREADS": "1"}
    return found | {
        "PYTHONUSERBASE": site.getuserbase()
    }  # packages there, whatever HOME is


def started(folder: str, stdin: Any, stdout: Any, *what: str) -> subprocess.Popen[bytes]:
    """worker.py in a new interpreter, in `folder` and at the head of its own group."""
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "tinyrl.course.checking.worker", *what],
        stdin=stdin,
        stdout=stdout,
        stderr=subprocess.DEVNULL,
        bufsize=0,
        cwd=folder,
        env=environment(folder),
        start_new_session=True,
    )
