"""One card asked: what is shown before the answer, what after it, what it is worth."""

from __future__ import annotations

import random
import re
import unicodedata
from pathlib import Path

import pytest

from test_mock import Script
from tinyrl.course.interview import cards, questions, terminal_cards
from tinyrl.course.interview.cards import Card
from tinyrl.course.interview.cases import FAULTS
from tinyrl.course.interview.headings import CHINESE, heading
from tinyrl.course.interview.numeric import DRILLS
from tinyrl.course.interview.questions import Section, Text

BANK = questions.load()


@pytest.fixture(autouse=True)
def language(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TINYRL_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("TINYRL_LANG", "en")


def ask(card: Card, *said: str, seed: int = 1) -> tuple[float, str]:
    """What it was worth, and all that was shown."""
    script = Script(*said)
    worth, parts = terminal_cards.ask(card, script, random.Random(seed))  # type: ignore[arg-type]
    script.pages(parts)
    return worth, "\n".join(script.shown)


def test_a_number_is_judged_its_mistake_named_and_the_way_shown() -> None:
    card = Card("numeric", "k3_of_two_tokens", "VII")
    task = DRILLS[card.name].draw(random.Random(1))
    worth, shown = ask(card, "much", f"{task.answer:.3g}")
    assert worth == 1
    assert "no number" in shown
    assert "Right." in shown
    assert task.worked.en in shown
    assert not [slip for slip in task.slips if slip.why.en in shown]
    for slip in task.slips:
        worth, shown = ask(card, f"{slip.value:.3g}")
        assert worth == 0
        assert [s for s in task.slips if s.why.en in shown] == [slip]
        assert task.worked.en in shown


@pytest.mark.parametrize("form", ["{}", "({})", "{})"])
def test_an_option_is_named_by_its_letter(form: str) -> None:
    text = BANK["V-01"].en
    options = cards.options(text, random.Random(1))
    card = Card("choice", "V-01", "V")
    for i, (letter, why) in enumerate(zip("abcde", options.why, strict=True)):
        worth, shown = ask(card, "1", "z", form.format(letter.upper()))
        assert worth == float(i == options.right)
        assert shown.count("One letter from a to e") == 2
        assert why in shown
        reasons = sorted((w for w in options.why if w), key=shown.index)
        assert reasons[0] == why or i == options.right, "what was chosen comes first"
        mine = "yours, right" if i == options.right else "yours"
        assert f"**{letter}) {mine}:** {options.says[i]}" in shown
        assert f"right:** {text.sentence}" in shown
        for says, wrong in zip(options.says, options.why, strict=True):
            assert not wrong or f"{says}\n\n> {wrong}" in shown, "option and reason"


def test_the_answer_comes_after_the_ticks_the_short_one_first() -> None:
    text: Text = BANK["IV-04"].en
    card = Card("open", "IV-04", "IV")
    worth, shown = ask(card, "1, 2")
    assert worth == cards.share(text, {0, 1})
    rubric, answer = shown.index(text.rubric[-1].text), shown.index(text.answer)
    assert shown.index(text.question) < rubric < shown.index(f"{worth:.0%}") < answer
    assert shown.index(f"> {text.sentence}") < answer < shown.index("They would ask next")
    assert text.follow_ups[0].answer in shown


@pytest.mark.parametrize("said", ["13", "1 3", "1,3", "31", "１、３", "1. 3."])
def test_points_are_ticked_by_their_numbers_with_or_without_blanks(said: str) -> None:
    worth, _ = ask(Card("open", "IV-04", "IV"), unicodedata.normalize("NFKC", said))
    assert worth == cards.share(BANK["IV-04"].en, {0, 2})


def test_no_rubric_has_ten_points() -> None:
    assert max(len(q.en.rubric) for q in BANK.values()) < 10


def test_a_long_answer_is_told_by_how_much() -> None:
    assert terminal_cards.worth(1.0, 120.4).endswith("in 120 s.")
    assert terminal_cards.worth(1.0, 131).endswith("in 131 s. That is 11 s too long.")


def test_every_heading_that_is_shown_has_a_chinese_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shown = {section for q in BANK.values() for section in q.sections}
    shown |= {fault.shown for fault in FAULTS.values()}
    known = {Section(book, name) for book, names in CHINESE.items() for name in names}
    assert shown <= known
    monkeypatch.setenv("TINYRL_LANG", "zh")
    for section in shown:
        said = CHINESE[section.notebook][section.heading]
        assert section.heading in heading(section), "as it stands in the notebook"
        assert said in heading(section)
        assert re.search(r"[\u4e00-\u9fff]", said) or said == "KV cache"
    assert heading(Section("03_number_formats", "Renamed")) == "Renamed"


def test_none_of_the_points_is_said_with_a_nought() -> None:
    card = Card("open", "IV-04", "IV")
    for nothing in ("", ",", "x", "0 1", "99"):
        worth, shown = ask(card, nothing, "0")
        assert worth == 0
        assert shown.count("Numbers from 1 to") == 1, "a second Enter is no answer"
