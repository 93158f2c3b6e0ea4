"""Files that people depend on are replaced whole or not at all, and never lost."""

from __future__ import annotations

import contextlib
import itertools
import os
import secrets
import shutil
from pathlib import Path


def replace(path: Path, text: str, like: Path | None = None) -> None:
    """Make `text` the content of `path`, or raise and leave everything as it was.

    A link is written through. Mode, owner and group stay (these two where the system lets
    us: root repairs a student's file), or are those of `like` for a new file. Access
    lists, extended attributes and other hard links to the file are not kept.
    Raises `OSError`, and `UnicodeError` for text that UTF-8 cannot hold.
    """
    data, home = text.encode("utf-8"), path.resolve()
    temporary = home.with_name(f".{secrets.token_hex(8)}.tmp")
    like = home if home.exists() else like
    try:
        with temporary.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())  # the disk may be full, and say so only now
        if like is not None:
            _own(temporary, like)
            shutil.copymode(like, temporary)
        os.replace(temporary, home)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise


def backup(path: Path, name: str) -> Path:
    """Copy `path` to `name` in its folder, or to the first of `name-2`, ... that is free.

    It keeps the times as well as what `replace` keeps.
    Returns the copy's path; raises `OSError`, and then leaves none behind.
    """
    stem, suffix = os.path.splitext(name)
    for number in itertools.count(1):
        copy = path.with_name(name if number == 1 else f"{stem}-{number}{suffix}")
        try:
            file = copy.open("xb")
        except FileExistsError:
            continue
        try:
            with file:
                file.write(path.read_bytes())
                file.flush()
                os.fsync(file.fileno())
            _own(copy, path)
            shutil.copystat(path, copy)
        except BaseException:
            copy.unlink()
            raise
        return copy
    raise AssertionError("there is always a free name")


def _own(made: Path, like: Path) -> None:
    """Give a file to the owner and group of another, before it gets the other's mode."""
    found = like.stat()
    with contextlib.suppress(OSError, AttributeError):  # not ours to give; no such thing
        os.chown(made, found.st_uid, found.st_gid)
