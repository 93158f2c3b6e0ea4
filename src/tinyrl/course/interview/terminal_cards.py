"""One card asked in a terminal, from the question to what it was worth."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from string import ascii_lowercase

from tinyrl.course.interview import answers, number_entry, questions
from tinyrl.course.interview.answers import Part
from tinyrl.course.interview.cards import Card, options, share
from tinyrl.course.interview.questions import Question, Text
from tinyrl.course.interview.terminal import Terminal
from tinyrl.course.words import Words, language

SPEAKING = 120  # seconds for an answer to an open question

CHOOSE = Words(en="Your choice, a letter:", zh="请选一项，输入字母：")
NUMBER = Words(en="Your number, to three digits:", zh="请输入数字，取三位有效数字：")
NO_LETTER = Words(en="One letter from a to {}, please.", zh="请输入 a 到 {} 中的一个字母。")
TICK = Words(
    en="Which of these did you say? Their numbers, as 134; 0 for none:",
    zh="你说到了哪几点？输入编号，如 134；一点也没有就输入 0：",
)
OTHER = re.compile(r"[^\d\s,，、.]")  # than numbers and what parts them
NO_POINTS = Words(
    en="Numbers from 1 to {}, as 13 or 1 3; 0 for none.",
    zh="请输入 1 到 {} 的编号，如 13 或 1 3；一点也没有就输入 0。",
)
WORTH = Words(en="{:.0%} of the points, in {:.0f} s.", zh="得分 {:.0%}，用时 {:.0f} 秒。")
LONG = Words(en=" That is {:.0f} s too long.", zh="超时 {:.0f} 秒。")


def ask(
    card: Card, terminal: Terminal, generator: random.Random
) -> tuple[float, list[Part]]:
    """Ask a card; the share of its points, 0 to 1, and what there is to read after it."""
    if card.kind == "numeric":
        return ask_number(card.name, terminal, generator)
    question = questions.load()[card.name]
    text = question.text(language())
    terminal.show(f"**{text.question}**", indent=0)
    if card.kind == "choice":
        return ask_choice(question, text, terminal, generator)
    return ask_open(question, text, terminal)


def ask_open(
    question: Question, text: Text, terminal: Terminal
) -> tuple[float, list[Part]]:
    """Spoken against the clock, then ticked against the rubric."""
    seconds = terminal.spoken(SPEAKING)
    points = [f"{i}. {p.text} ({p.weight})" for i, p in enumerate(text.rubric, 1)]
    terminal.show("\n".join(points))
    reached = share(text, _ticks(terminal, len(text.rubric)))
    terminal.say(worth(reached, seconds))
    return reached, answers.open_parts(question, text)


def worth(reached: float, seconds: float) -> str:
    """What a spoken answer was worth, and whether it took too long."""
    late = seconds - SPEAKING
    told = str(WORTH).format(reached, seconds)
    return told + str(LONG).format(late) if late >= 1 else told


def _ticks(terminal: Terminal, points: int) -> set[int]:
    """The points ticked, from 0; asks until it understands. No rubric has ten points."""
    while True:
        said = terminal.ask(TICK)
        numbers = {int(digit) for digit in re.findall(r"\d", said)}
        if numbers == {0}:
            return set()
        ticked = {n - 1 for n in numbers}
        if numbers and ticked <= set(range(points)) and not OTHER.search(said):
            return ticked
        terminal.say(str(NO_POINTS).format(points))


def ask_choice(
    question: Question, text: Text, terminal: Terminal, generator: random.Random
) -> tuple[float, list[Part]]:
    """One of four or five sentences is right."""
    drawn = options(text, generator)
    chosen = letter(terminal, drawn.says)
    right = chosen == drawn.right
    judge(terminal, right)
    return float(right), answers.choice_parts(question, drawn, chosen)


def letter(terminal: Terminal, says: Sequence[str], apart: bool = True) -> int:
    """Show options under letters, `apart` or line by line; which one was chosen."""
    letters = ascii_lowercase[: len(says)]
    rows = zip(letters, says, strict=True)
    between = "\n\n" if apart else "  \n"
    terminal.show(between.join(f"{a}) {one}" for a, one in rows))
    while (said := terminal.ask(CHOOSE).lower().strip("().")) not in [*letters]:
        terminal.say(str(NO_LETTER).format(letters[-1]))
    return letters.index(said)


def judge(terminal: Terminal, right: bool) -> None:
    """Say whether an answer is right."""
    said = answers.RIGHT if right else answers.NO
    terminal.say(said, style="green" if right else "red")


def ask_number(
    name: str, terminal: Terminal, generator: random.Random
) -> tuple[float, list[Part]]:
    """A numeric drill with fresh numbers."""
    from tinyrl.course.interview.numeric import DRILLS, LESSON

    task = DRILLS[name].draw(generator)
    terminal.show(str(task.question), indent=0)
    while True:
        try:
            said = number_entry.number(terminal.ask(NUMBER))
            break
        except ValueError as error:
            terminal.say(error)
    right = task.right(said)
    judge(terminal, right)
    return float(right), answers.number_parts(task, said, LESSON[name])
