"""The drill's schedule: FSRS over an append-only file that no kill can spoil."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import fsrs
import pytest

from tinyrl.course.interview import reviews
from tinyrl.course.interview.reviews import Review, due_dates, queue, recall, remember

DAY = 86400.0
NOW = datetime(2026, 11, 30, tzinfo=UTC)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TINYRL_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def test_due_dates_are_those_of_fsrs() -> None:
    scheduler = fsrs.Scheduler(enable_fuzzing=False)
    card = fsrs.Card(card_id=1)
    given = []
    at = NOW
    for rating in (3, 3, 1, 2, 4, 3):
        card, _ = scheduler.review_card(card, fsrs.Rating(rating), at)
        given.append(Review("open:I-01", rating, at.timestamp()))
        at = card.due
    (due,) = due_dates(given).values()
    assert abs(due - card.due) < timedelta(seconds=1)
    assert due > NOW + timedelta(days=1)


def test_a_card_known_better_comes_later() -> None:
    def due(rating: int) -> datetime:
        at = NOW.timestamp()
        answers = [Review("c", rating, at), Review("c", rating, at + DAY)]
        return due_dates(answers)["c"]

    dates = [due(rating) for rating in (1, 2, 3, 4)]
    assert dates == sorted(dates)
    assert dates[0] < NOW + timedelta(days=1, hours=1) < dates[3]


def test_due_first_longest_due_first_then_new_in_order() -> None:
    due = {
        "a": NOW - timedelta(hours=1),
        "b": NOW + timedelta(hours=1),
        "c": NOW - timedelta(days=3),
        "elsewhere": NOW,
    }
    assert queue(["n1", "a", "b", "n0", "c"], due, NOW) == ["c", "a", "n1", "n0"]


def test_answers_come_back_by_time_and_damaged_lines_are_skipped(home: Path) -> None:
    assert remember(Review("choice:I-01", 3, 20.0)) is None
    assert remember(Review("open:I-01", 1, 10.0)) is None
    with (home / "drill.jsonl").open("a") as file:
        for bad in ({"card": "x"}, {"card": "x", "rating": 5, "at": 1}, [1],
                    {"card": "x", "rating": 3, "at": 1e300}, {"card": "x", "rating": 3,
                     "at": "soon"}):  # fmt: skip
            file.write(json.dumps(bad) + "\n")
        file.write('{"card": "cut of')
    assert remember(Review("open:I-02", 4, 30.0)) is None
    assert [review.card for review in recall()] == ["open:I-01", "choice:I-01", "open:I-02"]


def test_reviews_of_a_clock_that_was_wrong_are_skipped(home: Path) -> None:
    """Ten years on the card would not come back; in the year 9999 FSRS cannot count."""
    now = time.time()
    for at in (-1.0, now + 3e8, 253402300000.0):
        remember(Review("open:I-01", 4, at))
    assert recall() == []
    remember(Review("open:I-01", 4, now + 3600))
    assert len(due_dates(recall())) == 1


def test_a_clock_that_was_set_back_loses_no_answer() -> None:
    now = time.time()
    for at in (now, now + 7200, now + 60):  # two hours back after the second
        assert remember(Review("open:I-01", 1, at)) is None
    assert [review.at for review in recall()] == [now, now + 60, now + 7200]
    (due,) = due_dates(recall()).values()
    assert due < datetime.fromtimestamp(now + 3 * 3600, UTC)


def test_a_folder_that_cannot_be_written_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TINYRL_HOME", str(tmp_path / "file" / "home"))
    note = remember(Review("open:I-01", 3, 1.0))
    assert note is not None
    assert "TINYRL_HOME" in note.en
    assert len(recall()) == 1, "kept for as long as the process lives"


WRITER = """
import sys
from tinyrl.course.interview.reviews import Review, remember
for i in range(10**9):
    assert remember(Review(sys.argv[1], 3, float(i))) is None
    print(i, flush=True)
"""


def test_a_kill_loses_nothing_that_was_said_to_be_kept() -> None:
    names = ("a", "b")
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, name], stdout=subprocess.PIPE, text=True
        )
        for name in names
    ]
    told = {}
    for name, writer in zip(names, writers, strict=True):
        assert writer.stdout is not None
        for _ in range(random.Random(name).randrange(40, 200)):
            told[name] = int(writer.stdout.readline())
        writer.kill()
        writer.wait()
    for name in names:
        kept = [review.at for review in recall() if review.card == name]
        assert kept[: told[name] + 1] == [float(i) for i in range(told[name] + 1)]
        assert len(kept) == len(set(kept))


def test_it_keeps_apart_from_the_labs_records() -> None:
    remember(Review("open:I-01", 3, 1.0))
    from tinyrl.course import records

    assert records.recall() == []
    assert reviews.path() != records.path()
