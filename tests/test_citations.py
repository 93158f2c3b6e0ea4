"""What a text cites is a link for those who read it."""

from __future__ import annotations

import re
from pathlib import Path

import jupytext

from tinyrl.course import notebooks, sources
from tinyrl.course.citations import CITATION

ROOT = Path(__file__).parents[1]


def cell(text: str) -> str:
    """The only cell of a notebook, as it is built."""
    return str(
        sources.canonical(jupytext.reads(text, fmt="py:percent"), "x").cells[0].source
    )


def test_citations_in_text_become_links_and_nothing_else_changes() -> None:
    text = """\
See trl#4159 and (arXiv
2507.18071), 2405.12345; not [verl#1](https://a.b/verl#1), `trl#2`, $2507.18071$,
C#7, 12345.67890, https://arxiv.org/abs/2507.18071."""
    linked = cell("# %% [markdown]\n# " + text.replace("\n", "\n# "))
    assert linked == text.replace(
        "trl#4159", "[trl#4159](https://github.com/huggingface/trl/issues/4159)"
    ).replace("2507.18071)", "[2507.18071](https://arxiv.org/abs/2507.18071))").replace(
        "2405.12345", "[2405.12345](https://arxiv.org/abs/2405.12345)"
    )
    assert cell("# %%\nx = 'trl#4159'") == "x = 'trl#4159'"


def test_every_issue_that_a_notebook_cites_is_in_a_known_repository() -> None:
    for path in (ROOT / "notebooks").glob("*.ipynb"):
        for cell in notebooks.read(path).cells:
            bare = re.sub(r"`[^`]*`|\[[^]]*\]\([^)]*\)", "", cell.source)
            if cell.cell_type == "markdown":
                assert not CITATION.search(bare), (path.name, bare)
