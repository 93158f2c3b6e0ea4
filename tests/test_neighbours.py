"""Every lesson leads to the one before and the one after it."""

from __future__ import annotations

import jupytext

from tinyrl.course import build, sources


def test_lessons_link_to_those_before_and_after_them() -> None:
    page = "# %% [markdown]\n# # {}\n\n# %%\n# no heading\n"
    names = {"00_a": "A", "01_b": "B, too", "07_c": "C", "atlas": "Atlas"}
    lessons = {
        name: sources.canonical(jupytext.reads(page.format(title), fmt="py:percent"), name)
        for name, title in names.items()
    }
    linked = build.with_neighbours(lessons)
    ends = {name: nb.cells[-1].source for name, nb in linked.items()}
    assert ends == {
        "00_a": "Next: [01, B, too](01_b.ipynb)",
        "01_b": "Before: [00, A](00_a.ipynb) · Next: [07, C](07_c.ipynb)",
        "07_c": "Before: [01, B, too](01_b.ipynb)",
        "atlas": "# no heading",
    }
    assert [len(nb.cells) for nb in lessons.values()] == [2] * 4, "the given ones stay"
    first = build.with_neighbours({"00_a": lessons["00_a"]})["00_a"]
    assert first.cells == lessons["00_a"].cells
