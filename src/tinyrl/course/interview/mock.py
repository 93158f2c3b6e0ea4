"""`tinyrl mock`: an interview of so many minutes, and a report of what to go over again."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from itertools import cycle
from string import ascii_lowercase

from tinyrl.course import journal
from tinyrl.course.interview import (
    answers,
    cases,
    questions,
    reviews,
    sitting,
    terminal_cards,
)
from tinyrl.course.interview.answers import Part
from tinyrl.course.interview.cards import Card, cards
from tinyrl.course.interview.questions import GROUPS, TITLES, Question
from tinyrl.course.interview.terminal import Left, Terminal
from tinyrl.course.words import Words, language

MINUTES = {"open": 4.0, "numeric": 2.0, "debugging": 3.0}
TURNS = ("open", "numeric", "open", "debugging")
WEAK = 0.7
"""A group below this share of its points is to be gone over again."""

BEGIN = Words(
    en="Questions: {}. Minutes: {}. Speak as you would to an interviewer: full answers "
    "come at the end; q ends it.",
    zh="题数：{}，分钟：{}。像面对面试官那样作答，参考解答在最后给出；输入 q 结束。",
)
LEFT = Words(en="{:.0f} min left", zh="还剩 {:.0f} 分钟")
TIME = Words(en="Time is up.", zh="时间到。")
FIND = Words(
    en="256 responses were scored by both sides; d = logp_train - logp_rollout. "
    "What is wrong?",
    zh="两侧给同样的 256 个回答打分，d = logp_train - logp_rollout。问题出在哪里？",
)
DRAWING = Words(en="A fault is injected ...", zh="正在注入故障……")
REPORT = Words(en="Report", zh="总结")
POINTS = Words(
    en="{:>4}, {}: {:.0%} of the points, questions: {}",
    zh="{:>4} {}：得分 {:.0%}，共 {} 题",
)
SOLID = Words(en="No group below {:.0%}.", zh="没有低于 {:.0%} 的题组。")
ANSWERS = Words(en="Full answers to what you missed:", zh="未答好的题目的参考解答：")
TO_READ = Words(en="Enter to read them:", zh="按回车查看：")
AGAIN = Words(en="Go over again:", zh="需要重温：")


@dataclass(frozen=True)
class Asked:
    """One question of the interview, what it was worth and where it is taught."""

    group: str
    reached: float
    places: tuple[str, ...]  # what to read again
    question: Question | None = None  # of an open one

    @property
    def missed(self) -> bool:
        return self.reached < WEAK


def plan(minutes: float, generator: random.Random) -> list[Card | None]:
    """Cards that fit into the time, None for a case to debug; groups take turns."""
    decks = {kind: _deck(kind, generator) for kind in ("open", "numeric")}
    chosen: list[Card | None] = []
    for turn in cycle(TURNS):
        minutes -= MINUTES[turn]
        if minutes < 0 or (turn != "debugging" and not decks[turn]):
            return chosen
        chosen.append(None if turn == "debugging" else decks[turn].pop())
    return chosen


def _deck(kind: str, generator: random.Random) -> list[Card]:
    """All cards of a kind, shuffled, every group once before any comes twice."""
    deck = [card for card in cards() if card.kind == kind]
    generator.shuffle(deck)
    seen = dict.fromkeys(GROUPS, 0)
    places = {}
    for card in deck:
        places[card.key] = seen[card.group]
        seen[card.group] += 1
    return sorted(deck, key=lambda card: places[card.key], reverse=True)


def run(
    minutes: float,
    generator: random.Random,
    clock: Callable[[], float] = time.monotonic,
) -> int:
    """Hold the interview and report; the command's exit status."""
    terminal = Terminal()
    chosen = plan(minutes, generator)
    terminal.say(str(BEGIN).format(len(chosen), f"{minutes:g}"))
    told = journal.trouble(reviews.path())
    if told is not None:
        terminal.say(told, style="yellow")
    end = clock() + 60 * minutes
    asked: list[Asked] = []
    try:
        for i, card in enumerate(chosen, 1):
            left = (end - clock()) / 60
            if left <= 0:
                terminal.say(TIME, style="yellow")
                break
            terminal.rule(f"{i}/{len(chosen)} · {str(LEFT).format(left)}")
            asked.append(_ask(card, terminal, generator, told is None))
            if i < len(chosen):
                terminal.pause()  # no clock starts while something is being read
    except (Left, KeyboardInterrupt):
        pass
    if asked:
        with suppress(Left, KeyboardInterrupt):
            report(asked, terminal)
    return 0


def _ask(
    card: Card | None, terminal: Terminal, generator: random.Random, tell: bool
) -> Asked:
    """Ask a card, or a case; `tell` where an answer cannot be kept."""
    if card is None:
        return debug(terminal, generator)
    reached, parts = terminal_cards.ask(card, terminal, generator)
    note = sitting.keep(card, reached)
    if note is not None and tell:
        terminal.say(note, style="yellow")
    if card.kind == "numeric":
        from tinyrl.course.interview.numeric import LESSON

        terminal.pages(parts, last=True)
        return Asked(card.group, reached, (f"{LESSON[card.name]}.ipynb",))
    question = questions.load()[card.name]
    places = tuple(map(answers.place, question.sections))
    return Asked(card.group, reached, places, question)


def debug(terminal: Terminal, generator: random.Random) -> Asked:
    """One fault to be found by its traces."""
    terminal.say(DRAWING, style="dim")
    case = cases.case(generator)
    terminal.say(FIND)
    terminal.say(f"\n{case.traces}\n")
    labels = [str(cases.FAULTS[name].label) for name in case.options]
    right = terminal_cards.letter(terminal, labels, apart=False) == case.right
    terminal_cards.judge(terminal, right)
    answer = cases.FAULTS[case.options[case.right]]
    told = f"**{ascii_lowercase[case.right]})** {answer.label}\n\n{answer.why}"
    place = answers.place(answer.shown)
    terminal.pages([Part("", f"{told}\n\n{str(answers.WHERE).format(place)}")], last=True)
    return Asked("VIII", float(right), (place,))


def report(asked: list[Asked], terminal: Terminal) -> None:
    """Points by group, what to read for the weak ones, answers to what was missed."""
    terminal.rule(str(REPORT))
    weak = []
    for group in GROUPS:
        mine = [a.reached for a in asked if a.group == group]
        if mine:
            mean = sum(mine) / len(mine)
            terminal.say(str(POINTS).format(group, TITLES[group], mean, len(mine)))
            weak += [group] if mean < WEAK else []
    if not weak:
        terminal.say(str(SOLID).format(WEAK))
    else:
        terminal.say(AGAIN, style="bold")
        missed = [a for a in asked if a.group in weak and a.missed]
        places = dict.fromkeys(place for a in missed for place in a.places)
        terminal.show("\n".join(f"- notebooks/{place}" for place in places))
    if any(a.question is not None and a.missed for a in asked):
        terminal.say(f"\n{ANSWERS}", style="bold")
    missed_open = [a.question for a in asked if a.question is not None and a.missed]
    for i, question in enumerate(missed_open, 1):
        if i == 1:
            terminal.pause(TO_READ)
        text = question.text(language())
        terminal.rule(text.question)
        terminal.pages(answers.open_parts(question, text), last=i == len(missed_open))
