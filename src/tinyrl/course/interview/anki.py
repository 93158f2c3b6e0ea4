"""`tinyrl export anki`: the interview as a deck for Anki, with pictures."""

from __future__ import annotations

import errno
import os
import random
import tempfile
from html import escape
from pathlib import Path
from string import ascii_lowercase

import genanki  # type: ignore[import-untyped]
from rich.progress import track

from tinyrl.course.html import html
from tinyrl.course.interview import card_pictures, drilling, questions
from tinyrl.course.interview.asking import MODEL, NEXT, NUMBERS, WHERE, places
from tinyrl.course.interview.questions import TITLES, Question, Text
from tinyrl.course.printing import console
from tinyrl.course.words import Language, Words, language

FIELDS = ("Key", "Question", "Options", "Choice", "Answer")
# Ids are drawn once and stay: a newer deck replaces the cards of an older one.
MODEL_IDS: dict[Language, int] = {"en": 1734028551, "zh": 1734028552}
DECK_ID = 1734028600  # plus 10 a language, plus one a group
ALOUD = Words(en="Answer aloud, in two minutes.", zh="两分钟内口头作答。")
RUBRIC = Words(en="What a good answer says", zh="评分要点")
WRONG = Words(en="Often answered, and wrong", zh="常见误答")
WHICH = Words(en="Which one is right?", zh="哪一项正确？")
DRAWING = Words(en="drawing pictures", zh="正在绘图")
WROTE = Words(en="Wrote {}: {} notes, {} pictures.", zh="已写入 {}：{} 条笔记，{} 张图。")
CANNOT = Words(en="{} cannot be written: {}", zh="无法写入 {}：{}")

CSS = """
.card { font: 17px/1.5 -apple-system, "Segoe UI", "Noto Sans CJK SC", sans-serif;
  text-align: left; max-width: 42em; margin: 1em auto; }
.ask { font-size: 120%; font-weight: 600; } .faint { opacity: .65; font-size: 85%; }
h3 { font-size: 100%; margin: 1.2em 0 .3em; } blockquote { border-left: 3px solid #0072B2;
  margin-left: 0; padding-left: .8em; } code { font-size: 90%; } img { max-width: 100%;
  background: #fff; border-radius: 4px; } ol.letters { list-style-type: lower-alpha; }
"""
FRONT = '<div class="ask">{{Question}}</div>'
OPEN = FRONT + '<p class="faint">%s</p>'
CHOICE = FRONT + '<p class="faint">%s</p>{{Options}}'


def run(path: Path) -> int:
    """Write the deck in the reader's language; the command's exit status."""
    terminal = console()
    try:
        if not path.parent.is_dir():  # told before the pictures are drawn
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        notes, pictures = write(path, language())
    except OSError as error:
        reason = error.strerror or str(error)
        terminal.print(str(CANNOT).format(path, reason), style="red", markup=False)
        return 1
    terminal.print(str(WROTE).format(path, notes, pictures), markup=False)
    return 0


def write(path: Path, to: Language) -> tuple[int, int]:
    """Write all questions to `path`; how many notes and pictures it holds."""
    bank = questions.load().values()
    model = _model(to)
    decks = {group: _deck(group, to) for group in TITLES}
    with tempfile.TemporaryDirectory() as folder:
        pictures = {q.picture: None for q in bank if q.picture}
        shown = track(pictures, str(DRAWING), console=console(), transient=True)
        files = {name: card_pictures.save(name, Path(folder)) for name in shown}
        for question in bank:
            picture = files[question.picture].name if question.picture else None
            decks[question.group].add_note(_note(question, to, model, picture))
        package = genanki.Package(
            [*decks.values()], media_files=[*map(str, files.values())]
        )
        package.write_to_file(path)
    return len(bank), len(files)


def _model(to: Language) -> genanki.Model:
    templates = [
        {"name": "aloud", "qfmt": OPEN % ALOUD, "afmt": FRONT + "<hr id=answer>{{Answer}}"},
        {
            "name": "choice",
            "qfmt": CHOICE % WHICH,
            "afmt": CHOICE % WHICH + "<hr id=answer>{{Choice}}",
        },
    ]
    fields = [{"name": name} for name in FIELDS]
    return genanki.Model(
        MODEL_IDS[to], f"tinyrl ({to})", fields=fields, templates=templates, css=CSS
    )


def _deck(group: str, to: Language) -> genanki.Deck:
    number = [*TITLES].index(group) + (10 if to == "zh" else 0)
    return genanki.Deck(DECK_ID + number, f"tinyrl ({to})::{group} {TITLES[group]}")


def _note(
    question: Question, to: Language, model: genanki.Model, picture: str | None
) -> genanki.Note:
    text = question.text(to)
    options = drilling.options(text, random.Random(question.key))
    return genanki.Note(
        model=model,
        fields=[
            question.key,
            escape(text.question),
            _letters(options.says),
            f"<p><b>{ascii_lowercase[options.right]}</b></p>{html(text.sentence)}"
            f"{_letters(options.why)}",
            _answer(question, text, picture),
        ],
        tags=[f"tinyrl::{question.group}"],
        guid=genanki.guid_for("tinyrl", question.key, to),
        sort_field=question.key,
    )


def _letters(items: tuple[str, ...]) -> str:
    rows = "".join(f"<li>{html(item or '✓')}</li>" for item in items)
    return f'<ol class="letters">{rows}</ol>'


def _answer(question: Question, text: Text, picture: str | None) -> str:
    """The back of a card: all that the bank says."""
    image = f'<p><img src="{picture}"></p>' if picture else ""
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
    where = f'<p class="faint">{WHERE}: {escape(places(question))}</p>'
    return quote + image + body + where
