"""The interview drill in a notebook: the cards and the record of `tinyrl drill`.

Only core ipywidgets are used. The clock of an open question is a bar that the page itself
lets run out, so no thread and no message of the kernel is needed for it.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from string import ascii_lowercase
from typing import Any

import ipywidgets as widgets  # type: ignore[import-untyped]

from tinyrl.course.html import html
from tinyrl.course.interview import answers, number_entry, questions
from tinyrl.course.interview.answers import Part
from tinyrl.course.interview.cards import KINDS, Card, Kind, Options, cards, options, share
from tinyrl.course.interview.questions import GROUPS, Question, Text
from tinyrl.course.interview.sitting import Sitting
from tinyrl.course.interview.terminal_cards import SPEAKING, worth
from tinyrl.course.live import show_live
from tinyrl.course.panels.frame import rooted
from tinyrl.course.style import BAD, GOOD
from tinyrl.course.words import Words, language

START = Words(en="start the clock: two minutes", zh="开始计时：两分钟")
SHOW = Words(en="I have answered: show the rubric", zh="答完了，显示评分要点")
RATE = Words(en="These I said: rate", zh="选好了，计分")
NEXT = Words(en="next card", zh="下一题")
CHECK = Words(en="check", zh="提交")
ALOUD = Words(
    en="Answer aloud before the bar has run out: two minutes.",
    zh="进度条走完之前口头作答：两分钟。",
)
SAID = Words(en="Which of these did you say?", zh="你说到了哪几点？")
NARROW = {"width": "40px", "flex": "0 0 40px"}
PLACE = Words(en="three digits: 0.25, 1/4, 2^-7 ...", zh="三位有效数字：0.25、1/4、2^-7 等")
OVER = Words(en="Time is up: come to an end.", zh="时间到，请收尾。")
BAR = """<style>
@keyframes tinyrl-clock {{ from {{ width: 100% }} to {{ width: 0 }} }}
@keyframes tinyrl-over {{ to {{ visibility: visible }} }}
</style>
<div style="background:rgba(128,128,128,.2);border-radius:3px;max-width:420px">
<div style="height:6px;border-radius:3px;background:#0072B2;
animation:tinyrl-clock {seconds}s linear forwards"></div></div>
<b style="visibility:hidden;animation:tinyrl-over 0s {seconds}s forwards">{over}</b>"""


class DrillPanel:
    """Up to `count` cards, those due first; every answer is kept at once."""

    def __init__(
        self,
        groups: Sequence[str] = GROUPS,
        kinds: Sequence[Kind] = KINDS,
        count: int = 10,
        generator: random.Random | None = None,
        ahead: bool = False,
    ) -> None:
        for name, given, known in (("groups", groups, GROUPS), ("kinds", kinds, KINDS)):
            if isinstance(given, str) or not given or set(given) - set(known):
                raise ValueError(f"{name} must be some of {known}, not {given!r}")
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            raise ValueError(f"count must be a whole number above 0, not {count!r}")
        self.generator = generator or random.Random()
        self.sitting = Sitting(cards(groups, kinds), count, ahead, "ahead=True")
        self.note = widgets.HTML(html(self.sitting.begun))
        self.head, self.body = widgets.HTML(), widgets.VBox()
        rows = widgets.VBox([self.note, self.head, self.body])
        self.widget = rooted([rows], "tinyrl-drill")
        if self.sitting.waiting:
            self._ask()

    def show(self) -> None:
        """Display the panel; a reader without a kernel sees how many cards there are."""
        print(self.sitting.begun)
        show_live(self.widget)

    @property
    def card(self) -> Card:
        """The card that is asked now."""
        return self.sitting.waiting[0]

    def _ask(self) -> None:
        card = self.card
        self.head.value = html(f"**{self.sitting.title}**")
        if card.kind == "numeric":
            self._ask_number(card)
            return
        question = questions.load()[card.name]
        text = question.text(language())
        if card.kind == "choice":
            self._ask_choice(question, text)
        else:
            self._ask_open(question, text)

    def _show(self, *children: Any) -> None:
        self.body.children = children

    def _ask_number(self, card: Card) -> None:
        from tinyrl.course.interview.numeric import DRILLS, LESSON

        task = DRILLS[card.name].draw(self.generator)
        asked, note = widgets.HTML(html(str(task.question))), widgets.HTML()
        field = widgets.Text(placeholder=str(PLACE))
        asked_before = self.sitting.answered

        def answered(_: Any) -> None:
            if self.sitting.answered > asked_before:  # a click after Enter
                return
            try:
                said = number_entry.number(field.value)
            except ValueError as error:
                note.value = html(str(error))
                return
            right, parts = (
                task.right(said),
                answers.number_parts(task, said, LESSON[card.name]),
            )
            self._judged(float(right), asked, _verdict(right), _read(parts))

        button = _button(CHECK, answered)

        def told(_: Any, sent: dict[str, Any], __: Any) -> None:
            if sent.get("event") == "submit":  # Enter; to leave the field is no answer
                answered(sent)

        field.on_msg(told)
        self._show(asked, widgets.HBox([field, button]), note)

    def _ask_choice(self, question: Question, text: Text) -> None:
        drawn = options(text, self.generator)
        asked = widgets.HTML(html(f"**{text.question}**"))
        rows = []
        for i, says in enumerate(drawn.says):
            chosen = widgets.Button(description=ascii_lowercase[i], layout=NARROW)
            chosen.on_click(lambda _, i=i: self._chosen(i, drawn, asked, question))
            rows.append(_row(chosen, says))
        self._show(asked, *rows)

    def _chosen(self, i: int, drawn: Options, asked: Any, question: Question) -> None:
        right = i == drawn.right
        parts = answers.choice_parts(question, drawn, i)
        self._judged(float(right), asked, _verdict(right), _read(parts))

    def _ask_open(self, question: Question, text: Text) -> None:
        asked = widgets.HTML(html(f"**{text.question}**"))
        bar = widgets.HTML(html(str(ALOUD)) + _bar())
        begun = [time.monotonic()]

        def started(_: Any) -> None:
            begun[0] = time.monotonic()
            self._show(asked, bar, _button(SHOW, rubric))

        def rubric(_: Any) -> None:
            seconds = time.monotonic() - begun[0]
            ticks = [widgets.Checkbox(indent=False, layout=NARROW) for _ in text.rubric]
            rows = [
                _row(tick, f"{point.text} ({point.weight})")
                for tick, point in zip(ticks, text.rubric, strict=True)
            ]

            def rated(_: Any) -> None:
                said = {i for i, tick in enumerate(ticks) if tick.value}
                reached = share(text, said)
                told = widgets.HTML(html(worth(reached, seconds)))
                parts = answers.open_parts(question, text)
                self._judged(reached, asked, told, _read(parts))

            self._show(asked, widgets.HTML(html(str(SAID))), *rows, _button(RATE, rated))

        self._show(asked, _button(START, started))

    def _judged(self, reached: float, *shown: Any) -> None:
        """Keep the answer, show what is to be said of it, and the way on."""
        self.sitting.keep(reached)
        trouble = self.sitting.trouble
        self.note.value = "" if trouble is None else html(str(trouble))
        if self.sitting.waiting:
            self._show(*shown, _button(NEXT, lambda _: self._ask()))
        else:
            done = html("**" + self.sitting.summary.replace("\n", "**\n\n**") + "**")
            self._show(*shown, widgets.HTML(done))


def _button(label: Words, act: Any) -> Any:
    button = widgets.Button(
        description=str(label), layout={"width": "auto", "align_self": "flex-start"}
    )
    button.on_click(act)
    return button


def _row(control: Any, text: str) -> Any:
    """A button or tick box, and beside it what it stands for."""
    row = widgets.HBox([control, widgets.HTML(html(text))])
    row.add_class("tinyrl-row-of-text")
    return row


def _bar() -> str:
    return BAR.format(seconds=SPEAKING, over=OVER)


def _verdict(right: bool) -> Any:
    colour, word = (GOOD, answers.RIGHT) if right else (BAD, answers.NO)
    return widgets.HTML(f'<b style="color:{colour}">{word}</b>')


def _read(parts: list[Part]) -> Any:
    return widgets.HTML(html(answers.markdown(parts)))


def drill(
    groups: Sequence[str] = GROUPS,
    kinds: Sequence[Kind] = KINDS,
    count: int = 10,
    ahead: bool = False,
) -> None:
    """Show a panel with the cards that are due, then new ones, then others if `ahead`."""
    DrillPanel(groups, kinds, count, ahead=ahead).show()
