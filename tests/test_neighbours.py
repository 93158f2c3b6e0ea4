"""Every lesson leads to the one before, the one after it, its cards, and the glossary."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import jupytext
import nbformat

from tinyrl.course import sources
from tinyrl.course.authoring import build
from tinyrl.course.interview import questions
from tinyrl.course.interview.questions import Section

ROOT = Path(__file__).parents[1]
BANK = questions.load()


def test_lessons_link_to_those_before_and_after_them() -> None:
    page = "# %% [markdown]\n# # {}\n\n# %%\n# no heading\n"
    names = {"00_a": "A", "01_b": "B, too", "07_c": "C", "atlas": "Atlas"}
    lessons = {
        name: sources.canonical(jupytext.reads(page.format(title), fmt="py:percent"), name)
        for name, title in names.items()
    }
    cards = [
        replace(BANK["I-01"], sections=(Section("01_b", "x"), Section("atlas", "y"))),
        replace(BANK["IV-10"], sections=(Section("01_b", "z"),)),
    ]
    linked = build.with_links(lessons, cards)
    ends = {name: nb.cells[-1].source for name, nb in linked.items()}
    asked, first = "Asked in interviews · 本课的面试题", "[I-01](../questions/I-01.md)"
    words = "[Glossary · 术语表](../docs/glossary.md)"
    assert ends == {
        "00_a": f"Next: [01, B, too](01_b.ipynb) · {words}",
        "01_b": f"{asked}: {first}, [IV-10](../questions/IV-10.md)\n\n"
        f"Before: [00, A](00_a.ipynb) · Next: [07, C](07_c.ipynb) · {words}",
        "07_c": f"Before: [01, B, too](01_b.ipynb) · {words}",
        "atlas": f"{asked}: {first}\n\n{words}",
    }
    assert (ROOT / "docs" / "glossary.md").is_file()
    assert [len(nb.cells) for nb in lessons.values()] == [2] * 4, "the given ones stay"


def test_each_question_is_linked_from_every_lesson_that_answers_it() -> None:
    for question in BANK.values():
        assert (ROOT / f"questions/{question.key}.md").is_file()
        for lesson in {section.notebook for section in question.sections}:
            end = nbformat.read(ROOT / f"notebooks/{lesson}.ipynb", 4).cells[-1].source
            assert f"[{question.key}](../questions/{question.key}.md)" in end
