"""The syllabus is whole, true of the notebooks and labs, and says what is still open."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from pathlib import Path

import pytest

from tinyrl.course import syllabus as syllabus_module
from tinyrl.course.exercises import LABS
from tinyrl.course.sources import parse
from tinyrl.course.syllabus import Entry, Syllabus, SyllabusError, find, load

ROOT = Path(__file__).resolve().parents[1]
SYLLABUS = load(ROOT / "syllabus.yml")

POINTS = [11, 9, 5, 7, 6, 12, 7, 8, 9, 10, 8, 7, 6, 15, 10, 10, 9, 5, 4, 21, 6]
QUESTIONS = {"I": 8, "II": 8, "III": 10, "IV": 10, "V": 10, "VI": 10, "VII": 10, "VIII": 4}
ROMAN = list(QUESTIONS)


def test_21_sections_with_their_points() -> None:
    assert [part.name for part in SYLLABUS.sections] == [str(n) for n in range(1, 22)]
    assert [len(part.entries) for part in SYLLABUS.sections] == POINTS
    for number, part in enumerate(SYLLABUS.sections, 1):
        for entry in part.entries:
            assert re.fullmatch(rf"s{number:02d}\.[a-z0-9-]+", entry.key), entry.key


def test_70_questions_in_eight_groups() -> None:
    assert {part.name: len(part.entries) for part in SYLLABUS.groups} == QUESTIONS
    assert sum(QUESTIONS.values()) == 70
    for number, part in enumerate(SYLLABUS.groups, 1):
        for place, entry in enumerate(part.entries, 1):
            assert entry.key == f"q{number}.{place:02d}"
            assert entry.file == f"questions/{part.name}-{place:02d}.md"


def test_each_section_and_group_belongs_to_the_lesson_that_teaches_it() -> None:
    covered = {number for lesson in SYLLABUS.lessons for number in lesson.sections}
    assert covered == set(range(1, 22))
    for number, part in enumerate(SYLLABUS.sections, 1):
        home = {x.notebook for x in SYLLABUS.lessons if number in x.sections}
        taught = {cell.partition("#")[0] for entry in part.entries for cell in entry.cells}
        assert home & taught, f"section {number} has no cell in {home}"
    for part in SYLLABUS.groups:
        home = {x.notebook for x in SYLLABUS.lessons if part.name in x.groups}
        for entry in part.entries:
            assert {cell.partition("#")[0] for cell in entry.cells} <= home, entry.key


def test_words_are_our_own_and_each_is_said_once() -> None:
    for entry in SYLLABUS.entries():
        assert entry.text.isascii() or "é" in entry.text, f"{entry.key} is not English"
        assert len(entry.text.split()) <= 25, f"{entry.key}: a paraphrase is short"
    for part in SYLLABUS.sections + SYLLABUS.groups:
        texts = Counter(entry.text for entry in part.entries)
        assert max(texts.values()) == 1, f"{part.name}: {texts.most_common(1)}"


# ---------------------------------------------------------------- what is done is there


def anchors(notebook: str) -> set[str]:
    """The anchors of a notebook's cells; empty when it isn't written yet."""
    source = ROOT / "notebooks" / f"{notebook}.py"
    if not source.is_file():
        return set()
    tags = (tag for cell in parse(source).cells for tag in cell.metadata.get("tags", []))
    return {tag.removeprefix("anchor:") for tag in tags if tag.startswith("anchor:")}


@pytest.mark.parametrize("lesson", SYLLABUS.lessons, ids=lambda lesson: lesson.notebook)
def test_every_done_cell_exists(lesson: syllabus_module.Lesson) -> None:
    there = anchors(lesson.notebook)
    missing = [
        (entry.key, cell)
        for entry in SYLLABUS.taught_in(lesson.notebook)
        for cell in entry.cells
        if entry.done
        and cell.startswith(lesson.notebook + "#")
        and cell.partition("#")[2] not in there
    ]
    assert not missing


def test_a_written_notebook_leaves_nothing_of_its_own_open() -> None:
    written = {x.notebook for x in SYLLABUS.lessons if anchors(x.notebook)}
    late = [e.key for e in SYLLABUS.entries() if not e.done and e.cells[0] in written]
    assert not late


def test_exercises_are_those_of_the_labs_and_each_examines_something() -> None:
    asked = {f"{lab[:5]}:{e.name}" for lab, exercises in LABS.items() for e in exercises}
    mapped = {name for entry in SYLLABUS.entries() for name in entry.exercises}
    assert mapped == asked
    assert set(LABS) <= {lesson.lab for lesson in SYLLABUS.lessons}


def test_what_the_labs_examine_of_a_group_is_examined() -> None:
    """Of group III only what is told rather than computed has no exercise."""
    group = next(part for part in SYLLABUS.groups if part.name == "III")
    told = {"q3.01", "q3.02", "q3.04"}
    assert {entry.key for entry in group.entries if not entry.exercises} == told


def test_open_entries_are_counted_in_the_syllabus() -> None:
    """`still_open` in syllabus.yml is the one place that states how much is left."""
    points = [e for part in SYLLABUS.sections for e in part.entries if not e.done]
    questions = [e for part in SYLLABUS.groups for e in part.entries if not e.done]
    written = len(list((ROOT / "questions").glob("*.md")))
    assert SYLLABUS.still_open == {
        "points": len(points),
        "questions": len(questions),
        "question_files": 70 - written,
    }


# ---------------------------------------------------------------- the seeds are not copied


def normal(text: str) -> str:
    """Chinese characters and Latin letters alone, so that layout hides no copy."""
    return "".join(re.findall(r"[\u4e00-\u9fff]|[a-z]", text.lower()))


WINDOW, STRIDE = 14, 4  # a copied run of 17 characters contains one aligned window


def digest(window: str) -> str:
    return hashlib.sha256(window.encode()).hexdigest()[:10]


def windows(text: str, stride: int = 1) -> list[str]:
    letters = normal(text)
    return [letters[i : i + WINDOW] for i in range(0, len(letters) - WINDOW + 1, stride)]


def copied(text: str, known: set[str]) -> list[str]:
    """Windows of `text` whose hash is known."""
    return [window for window in windows(text) if digest(window) in known]


def test_a_copy_would_be_found() -> None:
    source = "下雨天我们在屋里下棋，雨停以后大家一起去河边钓鱼，傍晚回来煮一锅鱼汤。"
    known = {digest(window) for window in windows(source, STRIDE)}
    assert copied("昨天也是：雨停以后，大家 一起去河边钓鱼——傍晚回来煮面。", known)
    assert not copied("雨停以后大家一起去山上采蘑菇，傍晚回来煮一锅蘑菇汤。", known)


def test_no_sentence_of_the_seeds_is_copied() -> None:
    """tests/data/seed_shingles.txt keeps hashes of every fourth window of the documents
    that the course is taken from, where it has eight Chinese characters or more: the check
    needs no copy of them."""
    known = set((ROOT / "tests/data/seed_shingles.txt").read_text().split())
    assert len(known) > 600
    texts = [ROOT / "syllabus.yml", ROOT / "README.md"]
    for folder in ("notebooks", "solutions", "questions", "docs", "src"):
        for pattern in ("*.py", "*.md"):
            texts += (ROOT / folder).rglob(pattern)
    bad = {
        str(path.relative_to(ROOT)): copied(path.read_text("utf-8"), known)
        for path in texts
    }
    assert not {name: found for name, found in bad.items() if found}


# ---------------------------------------------------------------- bad input


SMALL = """
course:
  - {notebook: a, title: A, zh: 甲, lesson: the first, sections: [1], groups: [I]}
sections:
  - {section: 1, title: T, points: [{key: s01.x, point: p, cells: [CELL], STATUS}]}
still_open: {}
questions: []
"""


def small(tmp_path: Path, cell: str, status: str) -> Syllabus:
    path = tmp_path / "syllabus.yml"
    path.write_text(SMALL.replace("CELL", cell).replace("STATUS", status), "utf-8")
    return load(path)


def test_a_small_syllabus_loads(tmp_path: Path) -> None:
    (entry,) = small(tmp_path, "a#x", "status: done").entries()
    assert entry == Entry("s01.x", "p", ("a#x",), (), None, None)
    assert entry.done
    (entry,) = small(tmp_path, "a", "status: open, opens_with: the first").entries()
    assert not entry.done


@pytest.mark.parametrize(
    ("cell", "status", "message"),
    [
        ("a", "status: done", "names no anchor"),
        ("b#x", "status: done", "has no 'b'"),
        ("a", "status: open", "s01.x: status is"),
        ("a#x", "status: done, opens_with: the first", "s01.x: status is"),
        ("a", "status: open, opens_with: another", "opens with 'another'"),
        ("a#x", "status: done, colour: red", "unknown field 'colour'"),
        ("a#x", "stat: done", "unknown field 'stat'"),
        ("a#x", "exercises: []", "field 'status' is missing"),
        ("", "status: done", "s01.x: no cell"),
        ("a#x", "status: done}, {key: s01.x, point: q, cells: [a], status: done", "twice"),
        ("a#x", "status: [", "can't be read"),
    ],
)
def test_a_syllabus_that_makes_no_sense_is_refused(
    tmp_path: Path, cell: str, status: str, message: str
) -> None:
    with pytest.raises(SyllabusError, match=re.escape(message)):
        small(tmp_path, cell, status)


def test_it_is_found_from_a_folder_below_and_from_anywhere(tmp_path: Path) -> None:
    assert find(ROOT / "notebooks") == ROOT / "syllabus.yml"
    assert find(tmp_path) == ROOT / "syllabus.yml"  # beside the library's source
