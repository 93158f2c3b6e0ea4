"""When a card of the drill is due again: FSRS over all that was answered so far.

Every answer is one entry of an append-only file, and the schedule is worked out from the
entries. So a kill loses at most the answer being given, and two terminals may drill at
once. The algorithm is that of the package `fsrs` (github.com/open-spaced-repetition).
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import fsrs

from tinyrl.course import journal
from tinyrl.course.words import Words

# No fuzz: it would draw from a generator that nobody passed, at every start another value.
SCHEDULER = fsrs.Scheduler(enable_fuzzing=False)
DAY = 86400.0


@dataclass(frozen=True)
class Review:
    """One answer to one card."""

    card: str  # "open:IV-04"
    rating: int  # 1 again, 2 hard, 3 good, 4 easy
    at: float  # seconds since 1970


def path() -> Path:
    """The file of reviews."""
    return journal.folder() / "drill.jsonl"


def remember(review: Review) -> Words | None:
    """Keep a review; where that fails, return what to tell the learner."""
    return journal.append(path(), asdict(review))


def recall() -> list[Review]:
    """All reviews by time; damaged ones, and those from elsewhere, are skipped.

    So are those of a later day than this: under a clock that was once wrong a card would
    not come back for years.
    """
    read = [*filter(None, map(_parsed, journal.entries(path())))]
    return sorted(read, key=lambda review: review.at)


def _parsed(fields: dict[str, Any]) -> Review | None:
    try:
        card, rating, at = fields["card"], fields["rating"], float(fields["at"])
    except (ValueError, TypeError, KeyError, OverflowError):
        return None
    possible = rating in (1, 2, 3, 4) and 0 <= at <= time.time() + DAY
    return Review(str(card), rating, at) if possible else None


def due_dates(reviews: Iterable[Review]) -> dict[str, datetime]:
    """When each card that was ever answered is due again."""
    memory: dict[str, fsrs.Card] = {}
    for review in reviews:
        card = memory.get(review.card) or fsrs.Card(card_id=0)
        when = datetime.fromtimestamp(review.at, UTC)
        memory[review.card], _ = SCHEDULER.review_card(
            card, fsrs.Rating(review.rating), when
        )
    return {name: card.due for name, card in memory.items()}


def queue(cards: Sequence[str], due: dict[str, datetime], now: datetime) -> list[str]:
    """Of `cards`: those due by `now`, longest due first, then the new ones in order."""
    waiting = sorted(
        (due[card], card) for card in cards if card in due and due[card] <= now
    )
    return [card for _, card in waiting] + [card for card in cards if card not in due]
