"""A sitting of the drill, in a terminal or a notebook: which cards, in which order.

Cards that are due come first, then new ones. What was missed comes once more at the end,
unless it was the last: then its answer is still on the screen.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta

from tinyrl.course import journal
from tinyrl.course.interview import reviews
from tinyrl.course.interview.answers import AND
from tinyrl.course.interview.cards import AGAIN, GOOD, Card, named, rating
from tinyrl.course.interview.questions import GROUPS
from tinyrl.course.interview.reviews import Review
from tinyrl.course.words import Words

BEGIN = Words(
    en="{} due, {} new. Here are {}. Every answer is kept at once.",
    zh="到期 {} 张，新卡 {} 张，这次 {} 张。每次作答都会立即保存。",
)
NOTHING = Words(
    en="Nothing is due before {}; with {} the cards come now.",
    zh="{} 之前没有到期的卡片；加上 {} 可以提前练习。",
)
NOW = Words(en="now", zh="现在")
ONCE_MORE = Words(en="missed, once more", zh="刚才没答好，再来一次")
DONE = Words(
    en="{} answered, {:.0%} of the points at the first try.",
    zh="共回答 {} 题，首次作答得分 {:.0%}。",
)
BACK = Words(
    en="Next due: {}; until tomorrow night: {}; new cards left: {}.",
    zh="下次到期：{}；到明晚共有 {} 张到期；剩余新卡 {} 张。",
)
WEAK = Words(en="Weak so far: {}.", zh="目前薄弱：{}。")
KNOWN = Words(en="{} ({} of {} known)", zh="{}（{}/{} 已掌握）")
SOLID = 0.7
"""A group of whose cards, as last answered, a smaller share was known is weak."""


class Sitting:
    """The cards that come now, of all `cards` of its kind; answers are kept at once.

    With `ahead`, cards that are not due yet come after those that are; `how` is what one
    writes for that, told where nothing is due.
    """

    def __init__(self, cards: Sequence[Card], count: int, ahead: bool, how: str) -> None:
        self.all = cards
        by_key = {card.key: card for card in cards}
        due = reviews.due_dates(reviews.recall())
        waiting = reviews.queue([*by_key], due, datetime.now(UTC))
        new = sum(key not in due for key in waiting)
        late = len(waiting) - new
        if ahead:
            waiting += sorted({*by_key} - {*waiting}, key=due.__getitem__)
        self.waiting = [by_key[key] for key in first(waiting, count)]
        self.begun = (
            str(BEGIN).format(late, new, len(self.waiting))
            if waiting
            else str(NOTHING).format(when(min(due[key] for key in by_key)), how)
        )
        self.trouble = journal.trouble(reviews.path())
        if self.trouble is not None:
            self.begun += f"\n{self.trouble}"
        self.reached: dict[Card, float] = {}  # at the first try
        self.answered = 0

    @property
    def title(self) -> str:
        """Of the card that comes now: its place, and what it is about."""
        card = self.waiting[0]
        again = f"{ONCE_MORE} · " if card in self.reached else ""
        return f"{self.answered + 1}/{self.answered + len(self.waiting)} · {again}{card}"

    def keep(self, reached: float) -> Words | None:
        """Put the answer to the card that came on record; what to tell where that fails."""
        card = self.waiting.pop(0)
        known = rating(reached, card.kind)
        if known == AGAIN and card not in self.reached and self.waiting:
            self.waiting.append(card)
        self.reached.setdefault(card, reached)
        self.answered += 1
        before, self.trouble = self.trouble, keep(card, reached)
        return None if self.trouble == before else self.trouble  # told once

    @property
    def summary(self) -> str:
        """What it came to, when there is more, and what is weak."""
        answers = reviews.recall()
        due = reviews.due_dates(answers)
        mine = [due[card.key] for card in self.all if card.key in due]
        tomorrow = datetime.now().astimezone() + timedelta(days=1)
        night = tomorrow.replace(hour=23, minute=59, second=59)
        mean = sum(self.reached.values()) / len(self.reached)
        lines = [
            str(DONE).format(len(self.reached), mean),
            str(BACK).format(
                when(min(mine)), sum(x <= night for x in mine), len(self.all) - len(mine)
            ),
        ]
        if weak := weak_groups(self.all, {r.card: r.rating for r in answers}):
            lines.append(str(WEAK).format(str(AND).join(weak)))
        return "\n".join(lines)


def first(waiting: Sequence[str], count: int) -> list[str]:
    """The first `count` of the keys that wait, no two of them about one question."""
    chosen: dict[str, str] = {}
    for key in waiting:
        if len(chosen) < count:
            chosen.setdefault(key.partition(":")[2], key)
    return [*chosen.values()]


def keep(card: Card, reached: float) -> Words | None:
    """Put an answer on record; where that fails, return what to tell."""
    return reviews.remember(Review(card.key, rating(reached, card.kind), time.time()))


def weak_groups(cards: Sequence[Card], last: Mapping[str, int]) -> list[str]:
    """Up to three groups, the weakest first, by the last answer to each of their cards."""
    found = []
    for group in GROUPS:
        asked = [last[c.key] for c in cards if c.group == group and c.key in last]
        known = sum(rating >= GOOD for rating in asked)
        if asked and known < SOLID * len(asked):
            line = str(KNOWN).format(named(group), known, len(asked))
            found.append((known / len(asked), line))
    return [line for _, line in sorted(found, key=lambda pair: pair[0])[:3]]


def when(moment: datetime) -> str:
    """A time of day here, for people."""
    if moment <= datetime.now(UTC):
        return str(NOW)
    return f"{moment.astimezone():%Y-%m-%d %H:%M}"
