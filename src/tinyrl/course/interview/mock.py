"""`tinyrl mock`: an interview of so many minutes, and a report of what to go over again."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from itertools import cycle
from string import ascii_lowercase

from tinyrl.course.interview import asking as interview
from tinyrl.course.interview import cases, drill, drilling, questions
from tinyrl.course.interview.drilling import Card
from tinyrl.course.interview.questions import GROUPS, TITLES, Question, Section
from tinyrl.course.interview.terminal import Left, Terminal
from tinyrl.course.words import Words, language

MINUTES = {"open": 4.0, "numeric": 2.0, "debugging": 3.0}
TURNS = ("open", "numeric", "open", "debugging")
WEAK = 0.7
"""A group below this share of its points is to be gone over again."""

BEGIN = Words(
    en="{} questions in {} minutes. Speak as you would to an interviewer; q ends it.",
    zh="{} 道题，{} 分钟。像面对面试官那样作答；输入 q 结束。",
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
    cards = [card for card in drilling.cards() if card.kind == kind]
    generator.shuffle(cards)
    seen = dict.fromkeys(GROUPS, 0)
    places = {}
    for card in cards:
        places[card.key] = seen[card.group]
        seen[card.group] += 1
    return sorted(cards, key=lambda card: places[card.key], reverse=True)


def run(
    minutes: float,
    generator: random.Random,
    clock: Callable[[], float] = time.monotonic,
) -> int:
    """Hold the interview and report; the command's exit status."""
    terminal = Terminal()
    chosen = plan(minutes, generator)
    terminal.say(str(BEGIN).format(len(chosen), f"{minutes:g}"))
    end = clock() + 60 * minutes
    asked: list[Asked] = []
    try:
        for i, card in enumerate(chosen, 1):
            left = (end - clock()) / 60
            if left <= 0:
                terminal.say(TIME, style="yellow")
                break
            terminal.rule(f"{i}/{len(chosen)} · {str(LEFT).format(left)}")
            asked.append(_ask(card, terminal, generator))
    except Left:
        pass
    if asked:
        with suppress(Left):
            report(asked, terminal)
    return 0


def _ask(card: Card | None, terminal: Terminal, generator: random.Random) -> Asked:
    if card is None:
        return debug(terminal, generator)
    reached = interview.ask(card, terminal, generator, teach=False)
    drill.keep(card, reached, terminal)
    if card.kind == "numeric":
        from tinyrl.course.interview.drills import LESSON

        return Asked(card.group, reached, (f"{LESSON[card.name]}.ipynb",))
    question = questions.load()[card.name]
    return Asked(card.group, reached, tuple(map(_place, question.sections)), question)


def _place(section: Section) -> str:
    return f"{section.notebook}.ipynb: {section.heading}"


def debug(terminal: Terminal, generator: random.Random) -> Asked:
    """One fault to be found by its traces."""
    terminal.say(DRAWING, style="dim")
    case = cases.case(generator)
    letters = ascii_lowercase[: len(case.options)]
    terminal.say(FIND)
    terminal.say(f"\n{case.traces}\n")
    labels = [cases.FAULTS[name].label for name in case.options]
    for letter, label in zip(letters, labels, strict=True):
        terminal.say(f"  {letter}) {label}")
    while (said := terminal.ask(interview.CHOOSE).lower().strip("()")) not in [*letters]:
        terminal.say(str(interview.NO_LETTER).format(letters[-1]))
    right = letters.index(said) == case.right
    verdict = interview.RIGHT if right else interview.NO
    terminal.say(verdict, style="green" if right else "red")
    answer = cases.FAULTS[case.options[case.right]]
    terminal.show(f"{letters[case.right]}) {answer.label}\n\n{answer.why}")
    return Asked("VIII", float(right), (_place(answer.shown),))


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
    for place in dict.fromkeys(place for a in missed for place in a.places):
        terminal.say(f"  notebooks/{place}")
    if any(a.question is not None and a.missed for a in asked):
        terminal.say(f"\n{ANSWERS}", style="bold")
    for question in [a.question for a in asked if a.question is not None and a.missed]:
        terminal.pause()
        text = question.text(language())
        terminal.rule(text.question)
        terminal.show(interview.full(text))
