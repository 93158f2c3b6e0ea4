"""Predictions: commit to an answer before the experiment runs.

`predict("00.loss", "Which run ...?", options)` stands before an experiment and
`reveal("00.loss", truth)` behind it. Names start with the number of the notebook. What was
chosen is kept with the rest of the learner's progress; the first verdict stays.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from string import ascii_uppercase
from typing import Any

from tinyrl.course import records
from tinyrl.course.card import Card, show
from tinyrl.course.live import show_live
from tinyrl.course.records import Record
from tinyrl.course.words import Words

PREDICT = Words(en="Your prediction", zh="先猜一猜")
NOTED = Words(
    en="Noted. It counts as soon as the answer is shown.", zh="已记下；答案揭晓时生效。"
)
BELOW = Words(
    en="Noted, though the answer stands below already: run its cell again to compare.",
    zh="已记下，不过答案已在下面：重新运行那个单元格就能对照。",
)
LATE = Words(
    en="The answer has been shown, so this no longer counts.", zh="答案已揭晓，不再计入。"
)
NONE_MADE = Words(
    en="You made no prediction. It pays to make one: choose first, then run.",
    zh="你没有作出预测。先选一个答案再运行实验，印象会深得多。",
)

_revealed: set[str] = set()  # whose answers this kernel has shown
_asked: dict[str, tuple[str, tuple[str, ...]]] = {}
"""The questions of this kernel and their options: `reveal` repeats and checks them."""


def predict(name: str, question: str, options: Sequence[str]) -> None:
    """Ask for one of two or more different `options`; a click commits to it.

    Shows buttons in a notebook and only the question elsewhere. Raises `ValueError` for
    options that can't be told apart.
    """
    if len(options) < 2 or len(set(options)) < len(options):
        raise ValueError(f"{name}: give two or more different options, not {list(options)}")
    _asked[name] = question, tuple(options)
    lettered = list(zip(ascii_uppercase, options, strict=False))
    items = "".join(f"<li>{escape(option)}</li>" for option in options)
    asked = f"<b>{PREDICT}.</b> {escape(question)}"
    style = "list-style-type:upper-alpha;margin:4px 0"
    lines = [f"{PREDICT}. {question}", *(f"  {letter}. {o}" for letter, o in lettered)]
    data = {
        "text/html": f'<div>{asked}<ol style="{style}">{items}</ol></div>',
        "text/plain": "\n".join(lines),
    }
    show_live(buttons(name, options), data)


def buttons(name: str, options: Sequence[str]) -> Any:
    """The widget of `predict`: a letter for each option, and a line that confirms."""
    import ipywidgets as widgets  # type: ignore[import-untyped]

    earlier = committed(name)
    chosen = widgets.ToggleButtons(
        options=list(zip(ascii_uppercase, options, strict=False)),
        value=earlier if earlier in options else None,
        style={"button_width": "48px"},
    )
    status = widgets.HTML()

    def commit(change: dict[str, str | None]) -> None:
        if change["new"] is None:
            return
        if verdict(name) is not None:
            status.value = escape(str(LATE))
            return
        note = records.remember(Record("predicted", name, choice=change["new"]))
        status.value = escape(str(note or (BELOW if name in _revealed else NOTED)))

    chosen.observe(commit, "value")
    return widgets.HBox([chosen, status])


def reveal(name: str, truth: str) -> None:
    """Show the answer beside what was predicted, and keep the verdict.

    `truth` is one of the options of `predict`, worked out from the experiment where
    possible; `ValueError` if this kernel asked the question and offered no such option.
    """
    question, options = _asked.get(name, ("", (truth,)))
    if truth not in options:
        raise ValueError(f"{name}: {truth!r} is none of its options {list(options)}")
    choice = committed(name)
    _revealed.add(name)
    if choice is None:
        heading = Words(en=f"The answer: {truth}", zh=f"答案：{truth}")
        show(Card("quiet", str(heading), question, foot=str(NONE_MADE)))
        return
    if verdict(name) is None:
        records.remember(Record("right" if choice == truth else "wrong", name))
    if choice == truth:
        heading = Words(en=f"As you predicted: {truth}", zh=f"猜对了：{truth}")
        show(Card("good", str(heading), question))
    else:
        heading = Words(en=f"No: {truth}", zh=f"不对，答案是：{truth}")
        said = Words(en=f"You predicted: {choice}", zh=f"你的预测：{choice}")
        show(Card("bad", str(heading), question, foot=str(said)))


def committed(name: str) -> str | None:
    """What the learner chose last before the answer was shown; None if nothing."""
    choice = None
    for record in records.recall():
        if record.exercise == name and record.event == "predicted":
            choice = record.choice
        elif record.exercise == name and record.event in ("right", "wrong"):
            break
    return choice


def verdict(name: str) -> bool | None:
    """Was the prediction right? None as long as no answer was shown for one."""
    events = [r.event for r in records.recall() if r.exercise == name]
    return next((event == "right" for event in events if event in ("right", "wrong")), None)


def tally(notebook: str) -> tuple[int, int]:
    """How many predictions of the notebook "00" were right, and how many were judged."""
    names = {r.exercise for r in records.recall() if r.exercise.startswith(f"{notebook}.")}
    verdicts = [verdict(name) for name in names]
    return verdicts.count(True), sum(v is not None for v in verdicts)
