"""A sitting: what was missed comes once more, what is weak and what fails is told."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tinyrl.course import journal
from tinyrl.course.interview import reviews
from tinyrl.course.interview.cards import AGAIN, GOOD, HARD, Card, cards
from tinyrl.course.interview.sitting import ONCE_MORE, Sitting, weak_groups

DAY = 86400.0


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TINYRL_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("TINYRL_LANG", "en")
    return tmp_path / "home"


def sitting(count: int, group: str = "IV") -> Sitting:
    return Sitting(cards([group], ["choice"]), count, False, "--ahead")


def test_what_was_missed_comes_once_more_at_the_end() -> None:
    now = sitting(3)
    first, second, third = now.waiting
    assert now.title.startswith("1/3 · IV")
    now.keep(0.0)
    assert now.waiting == [second, third, first]
    now.keep(1.0)
    now.keep(0.0)  # the last but the one that comes again
    assert now.waiting == [first, third]
    assert now.title.startswith(f"4/5 · {ONCE_MORE} · IV")
    now.keep(0.0)
    now.keep(1.0)
    assert now.waiting == [], "and not a third time"
    assert now.summary.startswith("3 answered, 33% of the points at the first try.")
    ratings = [(r.card, r.rating) for r in reviews.recall()]
    assert ratings == [
        (first.key, AGAIN), (second.key, GOOD), (third.key, AGAIN),
        (first.key, AGAIN), (third.key, GOOD),
    ]  # fmt: skip


def test_whose_answer_is_still_on_the_screen_does_not_come_again() -> None:
    now = sitting(1)
    now.keep(0.0)
    assert now.waiting == []


def test_the_summary_tells_what_is_due_and_when() -> None:
    deck = cards(["IV"], ["choice"])
    for i, card in enumerate(deck[:4]):
        reviews.remember(reviews.Review(card.key, GOOD, time.time() - (40 - 10 * i) * DAY))
    now = sitting(4)
    assert now.begun.startswith("4 due, 6 new. Here are 4.")
    for _ in range(4):
        now.keep(1.0)
    lines = now.summary.splitlines()
    assert lines[0] == "4 answered, 100% of the points at the first try."
    assert lines[1].endswith("new cards left: 6.")
    assert len(lines) == 2, "nothing is weak"


def test_weak_groups_are_those_last_known_badly() -> None:
    deck = [Card("choice", f"{group}-{i}", group) for group in ("I", "II", "III", "IV", "V")
            for i in range(4)]  # fmt: skip
    known = {"I": 4, "II": 2, "III": 1, "IV": 0}  # of 4; V was never asked
    last = {f"choice:{g}-{i}": GOOD if i < n else HARD for g, n in known.items()
            for i in range(4)}  # fmt: skip
    assert weak_groups(deck, last) == [
        "IV, Precision, kernels, systems (0 of 4 known)",
        "III, Logprob mismatch (1 of 4 known)",
        "II, Exposure bias (2 of 4 known)",
    ]


def test_what_cannot_be_kept_is_told_before_the_first_card_and_once(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home.write_text("a file where the folder should be")
    now = sitting(3)
    assert "Your progress is not saved" in now.begun
    assert now.keep(0.0) is None, "told before"
    assert len(now.waiting) == 3
    home.unlink()
    now = sitting(3)
    assert "not saved" not in now.begun
    write = journal._write
    monkeypatch.setattr(journal, "_write", full)
    note = now.keep(1.0)
    assert note is not None
    assert "No space left" in note.en
    assert now.keep(1.0) is None, "told before"
    monkeypatch.setattr(journal, "_write", write)
    assert now.keep(1.0) is None


def full(path: Path, line: bytes) -> None:
    raise OSError(28, "No space left on device")


def test_to_ask_whether_it_can_be_kept_adds_no_entry(home: Path) -> None:
    assert journal.trouble(reviews.path()) is None
    assert reviews.recall() == []
    assert reviews.path().read_bytes() == b""
