"""What the learner did, kept as lines of JSON that are only ever appended.

The files lie in the user's own state folder, or in the folder that TINYRL_HOME names, and
nothing is sent anywhere. A line is written at once and in one piece: two notebooks can
write together, and a process that is killed loses nothing it has finished.
"""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

from platformdirs import user_state_path

from tinyrl.course.words import Words

_unsaved: dict[Path, list[dict[str, Any]]] = {}  # what could not be written here


def folder() -> Path:
    """Where all of it lies."""
    home = os.environ.get("TINYRL_HOME")
    # `expanduser` leaves the name of an unknown user as it is; `Path`'s own raises
    return Path(os.path.expanduser(home)) if home else user_state_path("tinyrl")


def append(path: Path, fields: dict[str, Any]) -> Words | None:
    """Add one entry; where that fails, return what to tell the learner.

    The newline in front ends a line that a crash has cut off.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _write(path, f"\n{json.dumps(fields)}\n".encode())
    except OSError as error:
        _unsaved.setdefault(path, []).append(fields)
        return _told(path, error)
    return None


def trouble(path: Path) -> Words | None:
    """Why an entry could not be added now, to be told before there is one."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _write(path, b"")
    except OSError as error:
        return _told(path, error)
    return None


def _told(path: Path, error: OSError) -> Words:
    return Words(
        en=f"Your progress is not saved: {path} cannot be written "
        f"({error.strerror}). Set TINYRL_HOME to a folder of yours.",
        zh=f"进度没有保存：无法写入 {path}（{error.strerror}）。"
        "请把 TINYRL_HOME 设为一个可写的文件夹。",
    )


def _write(path: Path, line: bytes) -> None:
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        if os.write(file, line) < len(line):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    finally:
        os.close(file)


def entries(path: Path) -> list[dict[str, Any]]:
    """All entries, oldest first; lines that are damaged are skipped."""
    try:
        lines = path.read_text("utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    read = [_parsed(line) for line in lines if line]
    return [*filter(None, read), *_unsaved.get(path, [])]


def _parsed(line: str) -> dict[str, Any] | None:
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return fields if isinstance(fields, dict) else None
