"""Lines of a terminal: nothing is lost, nothing is too wide, no line begins with a mark."""

from __future__ import annotations

import io
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from tinyrl.wrapping import hanging, lines, put

TEXT = (
    "长度陷阱：界 2 管的是所有 token 比值的乘积（huggingface/trl#4772：每 token 0.012）。"
    "vllm_importance_sampling_clip_max=3 与 “连乘” 无关；先出界的也是长回答 [见 01]。"
)
ALPHABET = st.sampled_from("ab-_/.=# （）“”，。：；中文字rho[]()")


def bare(text: str) -> str:
    return re.sub(r"\s", "", text)


@given(st.text(ALPHABET, max_size=80), st.integers(1, 40))
def test_nothing_is_lost_and_nothing_is_too_wide(text: str, width: int) -> None:
    rows = lines(text, width)
    assert bare("".join(rows)) == bare(text)
    assert all(cell_len(row) <= max(width, 8) for row in rows)


@pytest.mark.parametrize("width", [20, 40, 60, 80, 120])
def test_chinese_breaks_at_its_marks_and_fills_its_lines(width: int) -> None:
    rows = lines(TEXT, width)
    assert not [row for row in rows if row[0] in "，。；：）”" or row[-1] in "（“["]
    if width >= 60:  # wider than the longest word
        assert all(cell_len(row) > width - 36 for row in rows[:-1])


@pytest.mark.parametrize("width", [8, 13, 20])
def test_a_word_wider_than_the_terminal_is_broken(width: int) -> None:
    rows = lines(f"a {'vllm_importance_sampling_mode=' * 2}x 。中", width)
    assert max(map(cell_len, rows)) == width
    assert bare("".join(rows)) == f"a{'vllm_importance_sampling_mode=' * 2}x。中"


def test_a_line_hangs_below_its_heading() -> None:
    assert list(hanging("ab", "c d e", 6 + 8, 6)) == ["ab    c d e"]
    assert list(hanging("ab", "one two three", 4 + 8, 4)) == ["ab  one two", "    three"]
    longer = list(hanging("heading: ", "one two three", 16, 3))
    assert longer == ["heading: one", "   two three"]
    assert list(hanging("alone", "", 20, 8)) == ["alone"]


def test_what_is_printed_is_text_and_no_markup() -> None:
    out = io.StringIO()
    put(Console(file=out, width=40), "[b]1.[/b]", "[red]x[/red] :smile:", 12, "bold")
    assert out.getvalue() == "[b]1.[/b]   [red]x[/red] :smile:\n"
