"""What is to be learned after an answer, as Markdown in parts, the short one first."""

from __future__ import annotations

from string import ascii_lowercase
from typing import TYPE_CHECKING, NamedTuple

from tinyrl.course.interview.cards import Options
from tinyrl.course.interview.headings import heading
from tinyrl.course.interview.questions import Question, Section, Text
from tinyrl.course.words import Words

if TYPE_CHECKING:  # the drills take a second to import
    from tinyrl.course.interview.numeric import Task

RIGHT = Words(en="Right.", zh="正确。")
NO = Words(en="No.", zh="不对。")
IN_SHORT = Words(en="In short", zh="一句话回答")
MODEL = Words(en="A full answer", zh="参考解答")
NEXT = Words(en="They would ask next", zh="可能的追问")
NUMBERS = Words(en="Numbers to remember", zh="值得记住的数字")
OTHERS = Words(en="Why not the others", zh="其余各项错在哪里")
WHERE = Words(en="Shown in: {}", zh="课程中的位置：{}")
AND = Words(en="; ", zh="；")
EXERCISE = Words(en="exercise {}", zh="练习 {}")
YOURS = Words(en="yours", zh="你的选择")
TRUE = Words(en="right", zh="正确")
BOTH = Words(en="yours, right", zh="你的选择，正确")
MARKED = Words(en="{}) {}:", zh="{}) {}：")
YOU_SAID = Words(en="You said {}.", zh="你答的是 {}。")


class Part(NamedTuple):
    """A piece that is read in one go."""

    title: str
    text: str


def open_parts(question: Question, text: Text) -> list[Part]:
    """The answer to an open question."""
    figures = "\n".join(f"- {number.text}" for number in text.numbers)
    asked = "\n".join(f"- **{f.question}** {f.answer}" for f in text.follow_ups)
    return [
        Part(str(IN_SHORT), f"> {text.sentence}\n\n{places(question)}"),
        Part(str(MODEL), text.answer),
        Part(str(NUMBERS), figures),
        Part(str(NEXT), asked),
    ]


def choice_parts(question: Question, options: Options, chosen: int) -> list[Part]:
    """What was chosen and what is right, then the others; each with its reason."""
    others = [i for i in range(len(options.says)) if i not in (chosen, options.right)]
    mine = dict.fromkeys((chosen, options.right))
    said = "\n\n".join(option(options, i, chosen) for i in mine)
    return [
        Part("", f"{said}\n\n{places(question)}"),
        Part(str(OTHERS), "\n\n".join(option(options, i, chosen) for i in others)),
    ]


def option(options: Options, i: int, chosen: int) -> str:
    """One option, whether it is right or was chosen, and what is wrong with it."""
    letter = f"{ascii_lowercase[i]})"
    if i in (chosen, options.right):
        mark = BOTH if chosen == options.right else YOURS if i == chosen else TRUE
        letter = str(MARKED).format(ascii_lowercase[i], mark)
    why = f"\n\n> {options.why[i]}" if options.why[i] else ""
    return f"**{letter}** {options.says[i]}{why}"


def number_parts(task: Task, said: float, lesson: str) -> list[Part]:
    """The mistake that was made, if it is known, and the way to the answer."""
    slip = task.slip(said)
    why = [] if slip is None else [str(slip.why)]
    number = str(YOU_SAID).format(f"{said:.6g}")
    where = str(WHERE).format(f"{lesson}.ipynb")
    return [Part("", "\n\n".join([number, *why, str(task.worked), where]))]


def markdown(parts: list[Part]) -> str:
    """All parts on one page."""
    return "\n\n".join(f"#### {p.title}\n\n{p.text}" if p.title else p.text for p in parts)


def places(question: Question) -> str:
    """The headings and exercises that show the answer."""
    shown = [place(section) for section in question.sections]
    exercises = [str(EXERCISE).format(name) for name in question.exercises]
    return str(WHERE).format(str(AND).join([*shown, *exercises]))


def place(section: Section) -> str:
    """A notebook and the heading in it; the notebooks' headings are English."""
    return f"{section.notebook}.ipynb: {heading(section)}"
