"""`tinyrl export anki`: the interview as a deck for Anki, with pictures."""

from __future__ import annotations

import errno
import os
import random
import tempfile
from collections.abc import Iterable
from html import escape
from itertools import count
from pathlib import Path

import genanki  # type: ignore[import-untyped]
import torch
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from tinyrl.course.html import html
from tinyrl.course.interview import anki_cards, card_pictures, questions
from tinyrl.course.interview.answers import MODEL, NEXT, NUMBERS, WHERE, places
from tinyrl.course.interview.captions import caption
from tinyrl.course.interview.cards import Options, options
from tinyrl.course.interview.numeric import DRILLS, LESSON, Task
from tinyrl.course.interview.questions import TITLES, Question, Text
from tinyrl.course.printing import console
from tinyrl.course.words import Language, Words, language

DECK_ID = 1734028600  # plus 10 a language, plus one a group
DRAWS = 5  # of a numeric drill
RUBRIC = Words(en="What a good answer says", zh="评分要点")
WRONG = Words(en="Often answered, and wrong", zh="常见误答")
SLIPS = Words(en="Usual mistakes", zh="常见错误")
DRAWING = Words(en="Drawing {} pictures", zh="正在绘制 {} 张图")
WROTE = Words(
    en="Wrote {}: {} cards, {} pictures. Open it with Anki.",
    zh="已写入 {}：{} 张卡片，{} 张图。请用 Anki 打开。",
)
CANNOT = Words(en="{} cannot be written: {}", zh="无法写入 {}：{}")
SUFFIX = Words(
    en="{} must end in .apkg: Anki opens no other name.",
    zh="{} 必须以 .apkg 结尾：Anki 不认其他文件名。",
)


def run(path: Path) -> int:
    """Write the deck in the reader's language; the command's exit status."""
    terminal = console()
    if path.suffix.lower() != ".apkg":
        terminal.print(str(SUFFIX).format(path), style="red", markup=False)
        return 2
    torch.set_num_threads(1)  # the models are small: a second thread only waits
    try:
        if not path.parent.is_dir():  # told before the pictures are drawn
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        cards, pictures = write(path, language())
    except OSError as error:
        reason = error.strerror or str(error)
        terminal.print(str(CANNOT).format(path, reason), style="red", markup=False)
        return 1
    terminal.print(str(WROTE).format(path, cards, pictures), markup=False)
    return 0


def write(path: Path, to: Language) -> tuple[int, int]:
    """Write all cards to `path`; how many cards and pictures it holds."""
    bank = questions.load().values()
    decks = {group: _deck(group, to) for group in TITLES}
    model, numeric = anki_cards.model(to), anki_cards.numeric_model(to)
    with tempfile.TemporaryDirectory() as folder:
        names = dict.fromkeys(q.picture for q in bank if q.picture)
        files = _drawn(names, Path(folder))
        for question in bank:
            picture = files[question.picture].name if question.picture else None
            decks[question.group].add_note(_note(question, to, model, picture))
        for name, drill in DRILLS.items():
            decks[drill.group].add_note(_numeric_note(name, to, numeric))
        media = [*map(str, files.values())]
        genanki.Package([*decks.values()], media_files=media).write_to_file(path)
    return 2 * len(bank) + len(DRILLS), len(files)


def _drawn(names: Iterable[str], folder: Path) -> dict[str, Path]:
    """The pictures' files, with a counter on the screen, or a line where that is a file."""
    names, terminal = [*names], console()
    doing = str(DRAWING).format(len(names))
    silent = not terminal.is_terminal
    if silent:
        terminal.print(doing, markup=False)
    columns = (TextColumn(doing), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=terminal, transient=True, disable=silent) as progress:
        shown = progress.track(names)
        return {name: card_pictures.save(name, folder) for name in shown}


def _deck(group: str, to: Language) -> genanki.Deck:
    number = [*TITLES].index(group) + (10 if to == "zh" else 0)
    return genanki.Deck(DECK_ID + number, f"tinyrl ({to})::{group} {TITLES[group]}")


def _note(
    question: Question, to: Language, model: genanki.Model, picture: str | None
) -> genanki.Note:
    text = question.text(to)
    drawn = options(text, random.Random(question.key))
    return genanki.Note(
        model=model,
        fields=[
            question.key,
            escape(text.question),
            _letters([html(says) for says in drawn.says]),
            _choice(drawn) + _where(places(question)),
            _answer(question, text, picture),
        ],
        tags=[f"tinyrl::{question.group}"],
        guid=genanki.guid_for("tinyrl", question.key, to),
        sort_field=question.key,
    )


def _choice(drawn: Options) -> str:
    """Each option with its reason, in the order of the question side."""
    mine = anki_cards.mine()
    rows = []
    for i, (says, why) in enumerate(zip(drawn.says, drawn.why, strict=True)):
        mark = " ✓" if i == drawn.right else ""
        said = html(says).strip().removesuffix("</p>") + f"{mark}{mine}</p>"
        rows.append(f'{said}<div class="why">{html(why)}</div>' if why else said)
    return _letters(rows, drawn.right)


def _letters(rows: list[str], right: int | None = None) -> str:
    kinds = [' class="right"' if i == right else "" for i in range(len(rows))]
    items = (f"<li{kind}>{row}</li>" for kind, row in zip(kinds, rows, strict=True))
    return f'<ol class="letters">{"".join(items)}</ol>'


def _answer(question: Question, text: Text, picture: str | None) -> str:
    """The back of a card: all that the bank says."""
    rubric = "\n".join(f"- {point.text} ({point.weight})" for point in text.rubric)
    wrong = "\n".join(f"- “{w.says}” {w.why}" for w in text.wrong)
    figures = "\n".join(f"- {number.text}" for number in text.numbers)
    asked = "\n".join(f"- **{f.question}** {f.answer}" for f in text.follow_ups)
    parts = {
        MODEL: text.answer,
        RUBRIC: rubric,
        WRONG: wrong,
        NUMBERS: figures,
        NEXT: asked,
    }
    body = "".join(f"<h3>{title}</h3>{html(part)}" for title, part in parts.items())
    quote = html(f"> {text.sentence}")
    return quote + _image(question, picture) + body + _where(places(question))


def _image(question: Question, file: str | None) -> str:
    if file is None or question.picture is None:
        return ""
    said = escape(caption(question.picture))
    return f'<p><img src="{file}" alt="{said}"><br><span class="faint">{said}</span></p>'


def _where(said: str) -> str:
    return f'<p class="faint">{escape(said)}</p>'


def _numeric_note(name: str, to: Language, model: genanki.Model) -> genanki.Note:
    """A drill with fixed numbers: `DRAWS` times, of which a card shows one."""
    drill = DRILLS[name]
    tasks = _tasks(name)
    where = _where(str(WHERE).format(f"{LESSON[name]}.ipynb"))
    return genanki.Note(
        model=model,
        fields=[
            name,
            "".join(_draw(_asked(task)) for task in tasks),
            "".join(_draw(_asked(task) + _worked(task)) for task in tasks) + where,
        ],
        tags=[f"tinyrl::{drill.group}", "tinyrl::numeric"],
        guid=genanki.guid_for("tinyrl", name, to),
        sort_field=name,
    )


def _tasks(name: str) -> list[Task]:
    """The first `DRAWS` tasks of the seeds "name:0", "name:1" ... that ask other things."""
    drawn: dict[str, Task] = {}
    for i in count():
        task = DRILLS[name].draw(random.Random(f"{name}:{i}"))
        drawn.setdefault(task.question.en, task)
        if len(drawn) == DRAWS:
            break
    return [*drawn.values()]


def _draw(inside: str) -> str:
    return f'<div class="draw">{inside}</div>'


def _asked(task: Task) -> str:
    return f'<div class="ask">{html(str(task.question))}</div>'


def _worked(task: Task) -> str:
    slips = "\n".join(f"- {slip.value:.3g}: {slip.why}" for slip in task.slips)
    worked = f"**{task.answer:.3g}**\n\n{task.worked}\n\n#### {SLIPS}\n\n{slips}"
    return f"<hr>{html(worked)}"
