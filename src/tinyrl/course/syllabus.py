"""The syllabus: what the course must teach, where it is taught, and what is still open.

`syllabus.yml` at the root of the repository is the data; this module reads it, refuses
what makes no sense, and answers the few questions that the course map and the tests ask.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any


class SyllabusError(ValueError):
    """The syllabus is missing or contradicts itself; the message names the entry."""


@dataclass(frozen=True)
class Entry:
    """One point of the lesson or one question, in the course's own words."""

    key: str  # s05.delta, q3.06
    text: str
    cells: tuple[str, ...]  # 01_two_policies#token-delta; an open entry has no anchor
    exercises: tuple[str, ...]  # lab01:ratio
    opens_with: str | None  # the lesson that brings it; None when it is taught already
    file: str | None  # the file of a question

    @property
    def done(self) -> bool:
        return self.opens_with is None


@dataclass(frozen=True)
class Lesson:
    """One notebook of the course, with its lab where it has one."""

    notebook: str
    title: str
    zh: str
    lesson: str  # the words that `opens_with` uses
    sections: tuple[int, ...]
    groups: tuple[str, ...]
    lab: str | None = None


@dataclass(frozen=True)
class Part:
    """A section of the lesson (name "5") or a group of questions (name "III")."""

    name: str
    title: str
    entries: tuple[Entry, ...]


@dataclass(frozen=True)
class Syllabus:
    lessons: tuple[Lesson, ...]
    sections: tuple[Part, ...]
    groups: tuple[Part, ...]
    still_open: dict[str, int]  # stated once, in syllabus.yml, and tested

    def entries(self) -> Iterator[Entry]:
        for part in self.sections + self.groups:
            yield from part.entries

    def taught_in(self, notebook: str) -> tuple[Entry, ...]:
        """The entries that have a cell in this notebook, taught already or still open."""
        return tuple(
            entry
            for entry in self.entries()
            if any(cell.partition("#")[0] == notebook for cell in entry.cells)
        )


def find(start: Path | None = None) -> Path:
    """syllabus.yml in this folder or one above it, else beside the library's source."""
    here = (start or Path.cwd()).resolve()
    for folder in (here, *here.parents, *Path(__file__).resolve().parents):
        if (folder / "syllabus.yml").is_file():
            return folder / "syllabus.yml"
    raise SyllabusError(
        f"no syllabus.yml in {here} or above it: open the course from a clone of it"
    )


def load(path: Path | None = None) -> Syllabus:
    """Read and check the syllabus. Raises SyllabusError naming what is wrong."""
    import yaml

    path = path or find()
    try:
        raw = yaml.safe_load(path.read_text(encoding="utf-8"))
        syllabus = Syllabus(
            lessons=tuple(_lesson(item) for item in raw["course"]),
            sections=tuple(
                _part(str(item["section"]), item["title"], item["points"], "point")
                for item in raw["sections"]
            ),
            groups=tuple(
                _part(item["group"], item["title"], item["questions"], "question")
                for item in raw["questions"]
            ),
            still_open=raw["still_open"],
        )
    except KeyError as error:
        raise SyllabusError(f"{path}: the field {error} is missing") from error
    except (OSError, yaml.YAMLError, TypeError) as error:
        raise SyllabusError(f"{path} can't be read as a syllabus: {error}") from error
    _agree(syllabus)
    return syllabus


def _lesson(raw: dict[str, Any]) -> Lesson:
    lists = {name: tuple(raw[name]) for name in ("sections", "groups")}
    return Lesson(**{**raw, **lists})


def _part(name: str, title: str, raw: list[dict[str, Any]], words: str) -> Part:
    return Part(name, title, tuple(_entry(item, words) for item in raw))


def _entry(raw: dict[str, Any], words: str) -> Entry:
    known = {"key", words, "cells", "exercises", "status", "opens_with", "file"}
    if unknown := set(raw) - known:
        raise SyllabusError(f"{raw.get('key')}: unknown field {sorted(unknown)[0]!r}")
    status, opens_with = raw["status"], raw.get("opens_with")
    if status not in ("done", "open") or (status == "open") != (opens_with is not None):
        raise SyllabusError(
            f"{raw['key']}: status is 'done', or 'open' with opens_with; "
            f"it is {status!r} with {opens_with!r}"
        )
    return Entry(
        key=raw["key"],
        text=raw[words],
        cells=tuple(raw["cells"]),
        exercises=tuple(raw.get("exercises", ())),
        opens_with=opens_with,
        file=raw.get("file"),
    )


def _agree(syllabus: Syllabus) -> None:
    """Keys are unique, notebooks exist in the course, open words are those of a lesson."""
    lesson_of = {lesson.notebook: lesson.lesson for lesson in syllabus.lessons}
    seen: set[str] = set()
    for entry in syllabus.entries():
        if entry.key in seen:
            raise SyllabusError(f"{entry.key}: the key occurs twice")
        seen.add(entry.key)
        if not entry.cells:
            raise SyllabusError(f"{entry.key}: no cell")
        for cell in entry.cells:
            notebook, _, anchor = cell.partition("#")
            if notebook not in lesson_of:
                raise SyllabusError(f"{entry.key}: the course has no {notebook!r}")
            if entry.done and not anchor:
                raise SyllabusError(f"{entry.key}: done, but {cell!r} names no anchor")
            if not entry.done and entry.opens_with != lesson_of[notebook]:
                raise SyllabusError(
                    f"{entry.key}: opens with {entry.opens_with!r}, but {notebook} is the "
                    f"lesson {lesson_of[notebook]!r}"
                )
