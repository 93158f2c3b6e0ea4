"""The mock interview: its plan, its report, and the debugging question."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from tinyrl.course.interview import mock, questions, reviews
from tinyrl.course.interview.answers import Part
from tinyrl.course.interview.cards import AGAIN
from tinyrl.course.interview.questions import TITLES
from tinyrl.course.interview.terminal import ON
from tinyrl.course.words import Words

BANK = questions.load()


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TINYRL_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("TINYRL_LANG", "en")


def test_a_mock_fits_its_time_and_covers_the_groups() -> None:
    for minutes in (4, 13, 45, 90):
        chosen = mock.plan(minutes, random.Random(minutes))
        spent = sum(mock.MINUTES["debugging" if c is None else c.kind] for c in chosen)
        assert minutes - 4 < spent <= minutes
    chosen = mock.plan(45, random.Random(0))
    kinds = Counter("debugging" if card is None else card.kind for card in chosen)
    assert kinds == {"open": 7, "numeric": 4, "debugging": 3}
    groups = [card.group for card in chosen if card is not None and card.kind == "open"]
    assert len(set(groups)) == 7, "no group twice before each came once"
    assert chosen != mock.plan(45, random.Random(1))


class Script:
    """A terminal that answers from a list and keeps what it was shown."""

    def __init__(self, *answers: str) -> None:
        self.answers, self.shown = [*answers], []

    def say(self, text: object, style: str = "", indent: int = 0) -> None:
        self.shown.append(str(text))

    show = rule = say

    def pages(self, parts: Sequence[Part], last: bool = False) -> None:
        for part in parts:
            self.say(part.title)
            self.say(part.text)
        if not last:
            self.pause()

    def pause(self, prompt: Words = ON) -> None:
        self.say(prompt)

    def ask(self, prompt: object) -> str:
        if not self.answers:
            raise mock.Left
        return self.answers.pop(0)

    def spoken(self, seconds: int) -> float:
        return 60.0


def test_the_report_leads_back_to_what_went_badly(monkeypatch: pytest.MonkeyPatch) -> None:
    script = Script("0", "0", "0", "a")
    monkeypatch.setattr(mock, "Terminal", lambda: script)
    assert mock.run(13, random.Random(4)) == 0
    text = "\n".join(script.shown)
    card = mock.plan(13, random.Random(4))[0]
    assert card is not None
    section = BANK[card.name].sections[0]
    assert f"notebooks/{section.notebook}.ipynb: {section.heading}" in text
    assert BANK[card.name].en.answer in text, "at the end, not while the clock runs"
    assert f"{mock.ANSWERS}\n{mock.TO_READ}" in text, "no next question comes"
    assert f"{card.group:>4}, {TITLES[card.group]}: 0% of the points" in text
    assert reviews.recall()[0].rating == AGAIN


def test_weak_groups_are_gone_over_again_and_only_these() -> None:
    """A slip in a group that is known well costs no reading, but its answer is shown."""
    well, slip, bad = BANK["I-01"], BANK["I-04"], BANK["VI-04"]
    script = Script()
    asked = [
        mock.Asked("I", 1.0, ("00.ipynb: a",), well),
        mock.Asked("I", 0.6, ("00.ipynb: b",), slip),
        mock.Asked("VI", 0.2, ("07.ipynb: c",), bad),
        mock.Asked("VI", 1.0, ("07.ipynb: d",)),
        mock.Asked("VIII", 0.0, ("10.ipynb: e",)),
    ]
    mock.report(asked, script)  # type: ignore[arg-type]
    text = "\n".join(script.shown)
    assert f"   I, {TITLES['I']}: 80% of the points, questions: 2" in text
    assert f"  VI, {TITLES['VI']}: 60% of the points, questions: 2" in text
    read = {line for line in text.splitlines() if "notebooks/" in line}
    assert read == {"- notebooks/07.ipynb: c", "- notebooks/10.ipynb: e"}
    answers = [q.key for q in (well, slip, bad) if q.en.answer in text]
    assert answers == ["I-04", "VI-04"]
    script = Script()
    mock.report(asked[:2], script)  # type: ignore[arg-type]
    assert str(mock.SOLID).format(mock.WEAK) in script.shown
    assert str(mock.AGAIN) not in script.shown


def test_one_may_leave_the_report(monkeypatch: pytest.MonkeyPatch) -> None:
    class Hasty(Script):
        def pause(self, prompt: Words = ON) -> None:
            raise mock.Left

    script = Hasty("0")
    monkeypatch.setattr(mock, "Terminal", lambda: script)
    assert mock.run(13, random.Random(4)) == 0
    assert str(mock.REPORT) in script.shown


def test_what_cannot_be_kept_is_told_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "home").write_text("a file where the folder should be")
    script = Script("0", "0", "0", "a")
    monkeypatch.setattr(mock, "Terminal", lambda: script)
    assert mock.run(13, random.Random(4)) == 0
    told = [line for line in script.shown if "Your progress is not saved" in line]
    assert len(told) == 1
    assert script.shown.index(told[0]) == 1, "before the first question"


def test_when_the_time_is_over_the_rest_is_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ticks = iter([0.0, 0.0, 60 * 46.0])
    script = Script("1 2 3")
    monkeypatch.setattr(mock, "Terminal", lambda: script)
    mock.run(45, random.Random(0), clock=lambda: next(ticks))
    assert any(str(mock.TIME) in line for line in script.shown)
    assert any("45 min left" in line for line in script.shown)
    assert len(reviews.recall()) == 1


def test_a_debugging_question_is_judged_by_what_was_injected() -> None:
    from tinyrl.course.interview.cases import FAULTS, case

    drawn = case(random.Random(5))
    for i, letter in enumerate("abcd"):
        script = Script(letter)
        assert mock.debug(script, random.Random(5)).reached == float(i == drawn.right)  # type: ignore[arg-type]
        assert str(FAULTS[drawn.options[drawn.right]].why) in "\n".join(script.shown)
