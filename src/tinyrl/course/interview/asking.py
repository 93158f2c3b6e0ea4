"""One card asked in a terminal, from the question to what it was worth."""

from __future__ import annotations

import random
import re
from string import ascii_lowercase

from tinyrl.course.interview import drilling, questions
from tinyrl.course.interview.drilling import Card
from tinyrl.course.interview.questions import Question, Text
from tinyrl.course.interview.terminal import Terminal
from tinyrl.course.words import Words, language

SPEAKING = 120  # seconds for an answer to an open question

CHOOSE = Words(en="Your choice, a letter:", zh="请选一项，输入字母：")
NUMBER = Words(en="Your number, to three digits:", zh="请输入数字，取三位有效数字：")
NO_LETTER = Words(en="One letter from a to {}, please.", zh="请输入 a 到 {} 中的一个字母。")
RIGHT = Words(en="Right.", zh="正确。")
NO = Words(en="No.", zh="不对。")
TICK = Words(
    en="Which of these did you say? Their numbers, as 1 3 4; 0 for none:",
    zh="你说到了哪几点？输入编号，如 1 3 4；一点也没有就输入 0：",
)
OTHER = re.compile(r"[^\d\s,，、.]")  # than numbers and what parts them
NO_POINTS = Words(
    en="Numbers from 1 to {}, with blanks between them.",
    zh="请输入 1 到 {} 的编号，以空格隔开。",
)
WORTH = Words(en="{:.0%} of the points, in {:.0f} s.", zh="得分 {:.0%}，用时 {:.0f} 秒。")
MODEL = Words(en="A full answer", zh="参考解答")
NEXT = Words(en="They would ask next", zh="可能的追问")
NUMBERS = Words(en="Numbers to remember", zh="值得记住的数字")
WHERE = Words(en="Shown in", zh="课程中的位置")


def ask(
    card: Card, terminal: Terminal, generator: random.Random, *, teach: bool = True
) -> float:
    """Ask a card; the share of its points that were reached, 0 to 1.

    With `teach` false the full answer to an open question is held back.
    """
    if card.kind == "numeric":
        return ask_number(card.name, terminal, generator)
    question = questions.load()[card.name]
    text = question.text(language())
    terminal.show(f"**{text.question}**", indent=0)
    if card.kind == "choice":
        return ask_choice(question, text, terminal, generator)
    return ask_open(question, text, terminal, teach)


def ask_open(question: Question, text: Text, terminal: Terminal, teach: bool) -> float:
    """Spoken against the clock, then ticked against the rubric."""
    seconds = terminal.spoken(SPEAKING)
    points = [f"{i}. {p.text} ({p.weight})" for i, p in enumerate(text.rubric, 1)]
    terminal.show("\n".join(points))
    ticked = _ticks(terminal, len(text.rubric))
    reached = drilling.share(text, ticked)
    terminal.say(str(WORTH).format(reached, seconds))
    if teach:
        terminal.show(full(text))
        terminal.say(f"{WHERE}: {places(question)}", style="dim")
    return reached


def full(text: Text) -> str:
    """All that is to be learned after the answer, as Markdown."""
    figures = "\n".join(f"- {number.text}" for number in text.numbers)
    asked = "\n".join(f"- **{f.question}** {f.answer}" for f in text.follow_ups)
    parts = {MODEL: f"> {text.sentence}\n\n{text.answer}", NUMBERS: figures, NEXT: asked}
    return "\n\n".join(f"#### {title}\n\n{part}" for title, part in parts.items())


def _ticks(terminal: Terminal, points: int) -> set[int]:
    """The points ticked, from 0; asks until it understands."""
    while True:
        said = terminal.ask(TICK)
        numbers = {int(n) for n in re.findall(r"\d+", said)}
        if numbers == {0}:
            return set()
        ticked = {n - 1 for n in numbers}
        if numbers and ticked <= set(range(points)) and not OTHER.search(said):
            return ticked
        terminal.say(str(NO_POINTS).format(points))


def ask_choice(
    question: Question, text: Text, terminal: Terminal, generator: random.Random
) -> float:
    """One of four or five sentences is right."""
    options = drilling.options(text, generator)
    letters = ascii_lowercase[: len(options.says)]
    terminal.show(
        "\n\n".join(f"{a}) {says}" for a, says in zip(letters, options.says, strict=True))
    )
    while (said := terminal.ask(CHOOSE).lower().strip("()")) not in [*letters]:
        terminal.say(str(NO_LETTER).format(letters[-1]))
    chosen = letters.index(said)
    right = chosen == options.right
    terminal.say(RIGHT if right else NO, style="green" if right else "red")
    terminal.show(reasons(options, chosen))
    terminal.say(f"{WHERE}: {places(question)}", style="dim")
    return float(right)


def reasons(options: drilling.Options, chosen: int) -> str:
    """The right option, and what is wrong with the others, that which was chosen first."""
    lines = [f"**{ascii_lowercase[options.right]})** {options.says[options.right]}"]
    wrong = [i for i, why in enumerate(options.why) if why]
    for i in sorted(wrong, key=lambda i: i != chosen):
        lines.append(f"{ascii_lowercase[i]}) {options.why[i]}")
    return "\n\n".join(lines)


def ask_number(name: str, terminal: Terminal, generator: random.Random) -> float:
    """A numeric drill with fresh numbers."""
    from tinyrl.course.interview.drills import DRILLS, LESSON

    task = DRILLS[name].draw(generator)
    terminal.show(str(task.question), indent=0)
    while True:
        try:
            said = drilling.number(terminal.ask(NUMBER))
            break
        except ValueError as error:
            terminal.say(error)
    right = task.right(said)
    slip = task.slip(said)
    terminal.say(RIGHT if right else NO, style="green" if right else "red")
    if slip is not None:
        terminal.show(str(slip.why))
    terminal.show(str(task.worked))
    terminal.say(f"{WHERE}: {LESSON[name]}", style="dim")
    return float(right)


def places(question: Question) -> str:
    """The headings and exercises that show the answer."""
    sections = [f"{s.notebook}: {s.heading}" for s in question.sections]
    return "; ".join([*sections, *question.exercises])
