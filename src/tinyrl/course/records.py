"""What the learner has done: one JSON line for each check, hint, solution and prediction.

The lines are only ever appended, in the user's own state folder, or in the folder that
TINYRL_HOME names. Nothing is sent anywhere, and grading needs none of it: a folder that
cannot be written costs nothing but the record.
"""

from __future__ import annotations

import errno
import json
import os
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from platformdirs import user_state_path

from tinyrl.course.words import Words

Event = Literal["blank", "wrong", "right", "hint", "solution", "predicted"]


@dataclass(frozen=True)
class Record:
    """One thing that happened. `level` is a hint's; `mistake` the misconception named."""

    event: Event
    exercise: str
    at: float = 0.0  # seconds since 1970
    level: int = 0
    mistake: str | None = None
    choice: str | None = None  # what was predicted


_unsaved: dict[Path, list[Record]] = {}  # what could not be written, for this process


def path() -> Path:
    """The file of records."""
    home = os.environ.get("TINYRL_HOME")
    # `expanduser` leaves the name of an unknown user as it is; `Path`'s own raises
    folder = Path(os.path.expanduser(home)) if home else user_state_path("tinyrl")
    return folder / "progress.jsonl"


def remember(record: Record) -> Words | None:
    """Append a record; where that fails, return what to tell the learner.

    One write of one line, so that two notebooks can record at once. The newline in front
    ends a line that a crash has cut off. Nothing is recorded while nbgrader grades.
    """
    if "NBGRADER_EXECUTION" in os.environ:
        return None
    record = replace(record, at=time.time())
    line = json.dumps({key: value for key, value in asdict(record).items() if value})
    try:
        path().parent.mkdir(parents=True, exist_ok=True)
        _append(f"\n{line}\n".encode())
    except OSError as error:
        _unsaved.setdefault(path(), []).append(record)
        return Words(
            en=f"Your progress is not saved: {path()} cannot be written "
            f"({error.strerror}). Set TINYRL_HOME to a folder of yours.",
            zh=f"进度没有保存：无法写入 {path()}（{error.strerror}）。"
            "请把 TINYRL_HOME 设为一个可写的文件夹。",
        )
    return None


def _append(line: bytes) -> None:
    file = os.open(path(), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        if os.write(file, line) < len(line):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    finally:
        os.close(file)


def recall() -> list[Record]:
    """All records, oldest first; lines that are damaged or from elsewhere are skipped."""
    try:
        lines = path().read_text("utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    parsed = [_parsed(line) for line in lines if line]
    return [*filter(None, parsed), *_unsaved.get(path(), [])]


def _parsed(line: str) -> Record | None:
    try:
        fields: dict[str, Any] = json.loads(line)
        return Record(
            event=fields["event"],
            exercise=str(fields["exercise"]),
            at=float(fields["at"]),
            level=int(fields.get("level", 0)),
            mistake=fields.get("mistake"),
            choice=fields.get("choice"),
        )
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
        return None


@dataclass(frozen=True)
class Standing:
    """How far the learner has come with one exercise."""

    exercise: str
    solved: bool
    tries: int  # checks of an answer that was there
    hints: int  # the highest level seen
    saw_solution: bool


def standing(exercise: str) -> Standing:
    """The learner's standing in one exercise."""
    mine = [record for record in recall() if record.exercise == exercise]
    events = [record.event for record in mine]
    return Standing(
        exercise,
        solved="right" in events,
        tries=events.count("right") + events.count("wrong"),
        hints=max((record.level for record in mine if record.event == "hint"), default=0),
        saw_solution="solution" in events,
    )
