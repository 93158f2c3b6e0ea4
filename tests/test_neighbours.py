"""Every lesson leads to the one before, the one after it, and the glossary."""

from __future__ import annotations

from pathlib import Path

import jupytext

from tinyrl.course import sources
from tinyrl.course.authoring import build


def test_lessons_link_to_those_before_and_after_them() -> None:
    page = "# %% [markdown]\n# # {}\n\n# %%\n# no heading\n"
    names = {"00_a": "A", "01_b": "B, too", "07_c": "C", "atlas": "Atlas"}
    lessons = {
        name: sources.canonical(jupytext.reads(page.format(title), fmt="py:percent"), name)
        for name, title in names.items()
    }
    linked = build.with_neighbours(lessons)
    ends = {name: nb.cells[-1].source for name, nb in linked.items()}
    words = "[Glossary · 术语表](../docs/glossary.md)"
    assert ends == {
        "00_a": f"Next: [01, B, too](01_b.ipynb) · {words}",
        "01_b": f"Before: [00, A](00_a.ipynb) · Next: [07, C](07_c.ipynb) · {words}",
        "07_c": f"Before: [01, B, too](01_b.ipynb) · {words}",
        "atlas": words,
    }
    assert (Path(__file__).parents[1] / "docs" / "glossary.md").is_file()
    assert [len(nb.cells) for nb in lessons.values()] == [2] * 4, "the given ones stay"
