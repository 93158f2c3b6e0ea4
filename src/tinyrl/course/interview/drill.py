"""`tinyrl drill`: the cards of the interview that are due, in a terminal."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from datetime import UTC, datetime

from tinyrl.course.interview import asking as interview
from tinyrl.course.interview import drilling, reviews
from tinyrl.course.interview.drilling import Card, Kind
from tinyrl.course.interview.questions import TITLES
from tinyrl.course.interview.reviews import Review
from tinyrl.course.interview.terminal import Left, Terminal
from tinyrl.course.words import Words

BEGIN = Words(
    en="{} due, {} new. Here are {}. Every answer is kept at once.",
    zh="到期 {} 张，新卡 {} 张，这次 {} 张。每次作答都会立即保存。",
)
LEAVE = Words(en=" q leaves at any time.", zh="随时可输入 q 退出。")
NOTHING = Words(
    en="Nothing is due before {}; with {} the cards come now.",
    zh="{} 之前没有到期的卡片；加上 {} 可以提前练习。",
)
NOW = Words(en="now", zh="现在")
KIND: dict[Kind, Words] = {
    "open": Words(en="aloud", zh="口述"),
    "choice": Words(en="choose", zh="选择"),
    "numeric": Words(en="compute", zh="计算"),
}
DONE = Words(
    en="{} answered, {:.0%} of the points. Next due: {}; new cards left: {}.",
    zh="共回答 {} 题，得分 {:.0%}。下次到期：{}；剩余新卡 {} 张。",
)


def run(
    groups: Sequence[str],
    kinds: Sequence[Kind],
    count: int,
    generator: random.Random,
    *,
    ahead: bool = False,
) -> int:
    """Ask up to `count` cards as `begin` chooses them; the command's exit status."""
    terminal = Terminal()
    cards = drilling.cards(groups, kinds)
    chosen, begun = begin(cards, count, ahead, "--ahead")
    terminal.say(f"{begun}{LEAVE}" if chosen else begun)
    reached = []
    try:
        for i, card in enumerate(chosen, 1):
            title = f"{card.group}, {TITLES[card.group]}"
            terminal.rule(f"{i}/{len(chosen)} · {title} · {KIND[card.kind]}")
            reached.append(interview.ask(card, terminal, generator))
            keep(card, reached[-1], terminal)
            if i < len(chosen):
                terminal.pause()
    except Left:
        pass
    if reached:
        terminal.say("")
        terminal.say(summary(reached, cards))
    return 0


def begin(
    cards: Sequence[Card], count: int, ahead: bool, how: str
) -> tuple[list[Card], str]:
    """The cards of a sitting, those due first, and a line that says how many there are.

    With `ahead`, cards that are not due yet come after those that are; `how` is what one
    writes for that, told where nothing is due.
    """
    by_key = {card.key: card for card in cards}
    due = reviews.due_dates(reviews.recall())
    waiting = reviews.queue([*by_key], due, datetime.now(UTC))
    new = sum(key not in due for key in waiting)
    late = len(waiting) - new
    if ahead:
        waiting += sorted({*by_key} - {*waiting}, key=due.__getitem__)
    if not waiting:
        return [], str(NOTHING).format(when(min(due[key] for key in by_key)), how)
    chosen = [by_key[key] for key in drilling.sitting(waiting, count)]
    return chosen, str(BEGIN).format(late, new, len(chosen))


def summary(reached: Sequence[float], cards: Sequence[Card]) -> str:
    """What a sitting came to, and when there is more, of all `cards` of its kind."""
    due = reviews.due_dates(reviews.recall())
    soonest = when(min(due[card.key] for card in cards if card.key in due))
    new = sum(card.key not in due for card in cards)
    return str(DONE).format(len(reached), sum(reached) / len(reached), soonest, new)


def keep(card: Card, reached: float, terminal: Terminal) -> None:
    """Put the answer on record, and say so where that fails."""
    note = reviews.remember(
        Review(card.key, drilling.rating(reached, card.kind), time.time())
    )
    if note is not None:
        terminal.say(note, style="yellow")


def when(moment: datetime) -> str:
    """A time of day here, for people."""
    if moment <= datetime.now(UTC):
        return str(NOW)
    return f"{moment.astimezone():%Y-%m-%d %H:%M}"
