"""The drill in a notebook: the same cards, judged and kept as in the terminal."""

from __future__ import annotations

import random
import re
import time
from html import unescape
from pathlib import Path
from typing import Any

import ipywidgets as widgets
import pytest

from tinyrl.course.interview import cards, questions, reviews
from tinyrl.course.interview.numeric import DRILLS
from tinyrl.course.interview.panel import DrillPanel

BANK = questions.load()


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TINYRL_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("TINYRL_LANG", "en")


def shown(panel: DrillPanel) -> str:
    """All the text on screen."""
    parts = [w.value for w in walk(panel.widget) if isinstance(w, widgets.HTML)]
    return " ".join(re.sub(r"<style>.*?</style>|<[^>]+>", " ", " ".join(parts)).split())


def walk(widget: Any) -> Any:
    yield widget
    for child in getattr(widget, "children", ()):
        yield from walk(child)


def press(panel: DrillPanel, label: str) -> None:
    found = [w for w in walk(panel.widget) if isinstance(w, widgets.Button)]
    (button,) = [w for w in found if w.description == label]
    button.click()


def press_enter(field: Any) -> None:
    """As the page tells of it."""
    message = {"content": {"data": {"method": "custom", "content": {"event": "submit"}}}}
    field._handle_msg(message | {"buffers": []})


def test_an_open_question_hides_its_rubric_until_it_was_answered() -> None:
    panel = DrillPanel(["IV"], ["open"], count=2)
    text = BANK[panel.card.name].en
    assert text.question in shown(panel)
    assert not [w for w in walk(panel.widget) if isinstance(w, widgets.Checkbox)]
    press(panel, "start the clock: two minutes")
    assert "Time is up" in shown(panel), "which the page hides for two minutes"
    assert not [w for w in walk(panel.widget) if isinstance(w, widgets.Checkbox)]
    press(panel, "I have answered: show the rubric")
    ticks = [w for w in walk(panel.widget) if isinstance(w, widgets.Checkbox)]
    assert len(ticks) == len(text.rubric)
    ticks[0].value = True
    press(panel, "These I said: rate")
    worth = text.rubric[0].weight / sum(point.weight for point in text.rubric)
    assert f"{worth:.0%} of the points" in shown(panel)
    (review,) = reviews.recall()
    assert review.rating == cards.rating(worth)
    press(panel, "next card")
    assert BANK[panel.card.name].en.question in shown(panel)


def test_every_choice_is_judged_at_once() -> None:
    for pick in range(4):
        panel = DrillPanel(["II"], ["choice"], 1, random.Random(pick))
        text = BANK[panel.card.name].en
        right = cards.options(text, random.Random(pick)).right
        key = panel.card.key
        press(panel, "abcd"[pick])
        assert ("Right." if pick == right else "No.") in shown(panel)
        told = plain(shown(panel))
        assert plain(text.sentence) in told
        for wrong in text.wrong:
            assert plain(wrong.says) + plain(wrong.why) in told, "option and reason"
        chosen = cards.options(text, random.Random(pick)).says[pick]
        mark = "yoursright" if pick == right else "yours"
        assert f"{'abcd'[pick]}{mark}{plain(chosen)}" in told
        kept = [r.rating for r in reviews.recall() if r.card == key][-1]
        assert kept == (cards.GOOD if pick == right else cards.AGAIN)


def test_a_number_that_cannot_be_read_costs_nothing() -> None:
    panel = DrillPanel(["III"], ["numeric"], 1, random.Random(3))
    answer = DRILLS[panel.card.name].draw(random.Random(3)).answer
    (field,) = [w for w in walk(panel.widget) if isinstance(w, widgets.Text)]
    field.value = "much"
    press(panel, "check")
    assert "That is no number" in shown(panel)
    assert reviews.recall() == []
    press(panel, "check")
    assert reviews.recall() == []
    field.value = f"{answer:.6g}"
    assert "Right." not in shown(panel), "who leaves the field has not answered"
    press_enter(field)
    press_enter(field)
    assert "Right." in shown(panel)
    assert "1 answered, 100% of the points" in shown(panel)
    assert len(reviews.recall()) == 1


def test_a_click_after_enter_answers_no_second_card() -> None:
    panel = DrillPanel(["III"], ["numeric"], 2, random.Random(3))
    key, task = panel.card.key, DRILLS[panel.card.name].draw(random.Random(3))
    (field,) = [w for w in walk(panel.widget) if isinstance(w, widgets.Text)]
    (button,) = [w for w in walk(panel.widget) if isinstance(w, widgets.Button)]
    slip = task.slips[0]
    field.value = f"{slip.value:.6g}"
    press_enter(field)
    button.click()
    assert [review.card for review in reviews.recall()] == [key]
    assert "No." in shown(panel)
    assert "You said" in shown(panel)
    assert plain(slip.why.en) in plain(shown(panel))
    assert plain(task.worked.en) in plain(shown(panel))


def plain(text: str) -> str:
    return re.sub(r"\W", "", unescape(text))


def test_no_sitting_holds_a_question_twice() -> None:
    panel = DrillPanel(["IV"], count=1000)
    names = [card.name for card in panel.sitting.waiting]
    assert len(names) == len(set(names)) > 20


def test_where_nothing_is_due_it_says_when() -> None:
    for card in cards.cards(["VIII"], ["choice"]):
        reviews.remember(reviews.Review(card.key, cards.EASY, time.time()))
    told = shown(DrillPanel(["VIII"], ["choice"]))
    assert "Nothing is due before 20" in told
    assert "with ahead=True the cards come now" in told
    assert len(DrillPanel(["VIII"], ["choice"], ahead=True).sitting.waiting) == 4


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"groups": "IV"}, "groups must be some of"),
        ({"groups": ["IX"]}, "groups must be some of"),
        ({"groups": []}, "groups must be some of"),
        ({"kinds": ["essay"]}, "kinds must be some of"),
        ({"count": 0}, "count must be a whole number"),
        ({"count": 2.5}, "count must be a whole number"),
        ({"count": True}, "count must be a whole number"),
    ],
)
def test_bad_arguments_are_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        DrillPanel(**given)


def test_what_cannot_be_kept_is_told_from_the_first_card_on(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("a file where the folder should be")
    panel = DrillPanel(["II"], ["choice"], 2)
    assert "Here are 2." in shown(panel)
    assert "Your progress is not saved" in shown(panel)
    press(panel, "a")
    assert "Your progress is not saved" in shown(panel)


def test_what_was_missed_comes_once_more_with_other_numbers() -> None:
    panel = DrillPanel(["III"], ["numeric"], 2, random.Random(3))
    first, asked = panel.card, shown(panel)
    for value in (-1e9, DRILLS["k3_of_two_tokens"].draw(random.Random(0)).answer):
        (field,) = [w for w in walk(panel.widget) if isinstance(w, widgets.Text)]
        field.value = f"{value:.6f}"
        press_enter(field)
        press(panel, "next card")
    assert panel.card == first
    assert "missed, once more" in shown(panel)
    assert shown(panel) != asked


def test_it_speaks_chinese(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TINYRL_LANG", "zh")
    panel = DrillPanel(["I"], ["open"], 1)
    assert BANK[panel.card.name].zh.question in shown(panel)
    press(panel, "开始计时：两分钟")
    press(panel, "答完了，显示评分要点")
    press(panel, "选好了，计分")
    assert "得分 0%" in shown(panel)
