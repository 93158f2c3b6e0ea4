"""One card asked: what is shown before the answer, what after it, what it is worth."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from test_mock import Script
from tinyrl.course.interview import asking as interview
from tinyrl.course.interview import drilling, questions
from tinyrl.course.interview.drilling import Card
from tinyrl.course.interview.drills import DRILLS
from tinyrl.course.interview.questions import Text

BANK = questions.load()


@pytest.fixture(autouse=True)
def language(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TINYRL_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("TINYRL_LANG", "en")


def ask(card: Card, *said: str, teach: bool = True, seed: int = 1) -> tuple[float, str]:
    """What it was worth, and all that was shown."""
    script = Script(*said)
    worth = interview.ask(card, script, random.Random(seed), teach=teach)  # type: ignore[arg-type]
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
    options = drilling.options(text, random.Random(1))
    card = Card("choice", "V-01", "V")
    for i, (letter, why) in enumerate(zip("abcde", options.why, strict=True)):
        worth, shown = ask(card, "1", "z", form.format(letter.upper()))
        assert worth == float(i == options.right)
        assert shown.count("One letter from a to e") == 2
        assert why in shown
        reasons = sorted((w for w in options.why if w), key=shown.index)
        assert reasons[0] == why or i == options.right, "what was chosen comes first"
        assert f"**{'abcde'[options.right]})** {text.sentence}" in shown


def test_the_full_answer_comes_after_the_ticks_and_only_to_teach() -> None:
    text: Text = BANK["IV-04"].en
    card = Card("open", "IV-04", "IV")
    worth, shown = ask(card, "1, 2")
    assert worth == drilling.share(text, {0, 1})
    rubric, answer = shown.index(text.rubric[-1].text), shown.index(text.answer)
    assert shown.index(text.question) < rubric < shown.index(f"{worth:.0%}") < answer
    assert text.follow_ups[0].answer in shown
    again, held_back = ask(card, "1, 2", teach=False)
    assert again == worth
    assert text.rubric[-1].text in held_back
    assert text.answer not in held_back


def test_none_of_the_points_is_said_with_a_nought() -> None:
    card = Card("open", "IV-04", "IV")
    for nothing in ("", ",", "x", "0 1", "99"):
        worth, shown = ask(card, nothing, "0")
        assert worth == 0
        assert shown.count("Numbers from 1 to") == 1, "a second Enter is no answer"
