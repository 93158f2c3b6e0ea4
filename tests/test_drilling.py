"""Cards of the drill, what an answer is worth; the drill and the mock as they are used."""

from __future__ import annotations

import math
import os
import pkgutil
import random
import re
import subprocess
import sys
import time
from collections import Counter
from importlib import import_module
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from tinyrl import cli
from tinyrl.course import interview
from tinyrl.course.interview import questions, reviews, sitting
from tinyrl.course.interview.cards import (
    AGAIN,
    EASY,
    GOOD,
    HARD,
    KINDS,
    cards,
    options,
    rating,
    share,
)
from tinyrl.course.interview.number_entry import number
from tinyrl.course.interview.questions import GROUPS
from tinyrl.course.words import Words

BANK = questions.load()


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TINYRL_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("TINYRL_LANG", "en")
    return tmp_path / "home"


def test_every_question_is_an_open_card_and_a_choice() -> None:
    found = Counter(card.kind for card in cards())
    assert found["open"] == found["choice"] == 70
    assert len({card.key for card in cards()}) == len(cards())
    assert {card.group for card in cards(["IV"])} == {"IV"}
    assert {card.kind for card in cards(kinds=["numeric"])} == {"numeric"}
    kinds = [card.kind for card in cards(["IV"])[:6]]
    assert kinds == [*KINDS, *KINDS], "the kinds take turns"


def test_no_sitting_holds_a_question_twice() -> None:
    keys = [card.key for group in GROUPS for card in cards([group])]
    for count in (1, 6, 20):
        names = [key.partition(":")[2] for key in sitting.first(keys, count)]
        assert len(names) == len(set(names)) == count
    assert sitting.first(["open:a", "choice:a"], 5) == ["open:a"]
    first = [card.name for card in cards(["I"]) if card.kind != "numeric"][:6]
    assert len(set(first)) == 6, "the choice beside an open question is of another"


def test_the_right_option_may_stand_anywhere() -> None:
    generator = random.Random(0)
    for question in BANK.values():
        text = question.en
        places = Counter()
        for _ in range(40):
            drawn = options(text, generator)
            places[drawn.right] += 1
            assert drawn.says[drawn.right] == text.sentence
            assert [bool(why) for why in drawn.why] == [
                i != drawn.right for i in range(len(drawn.says))
            ]
            assert {*drawn.says} == {text.sentence, *(w.says for w in text.wrong)}
        assert set(places) == set(range(1 + len(text.wrong)))


def test_a_rubric_is_worth_what_its_points_weigh() -> None:
    text = BANK["IV-04"].en
    weights = [point.weight for point in text.rubric]
    assert share(text, set()) == 0
    assert share(text, set(range(len(weights)))) == 1
    assert share(text, {0, 3}) == (weights[0] + weights[3]) / sum(weights)
    known = {0: AGAIN, 0.39: AGAIN, 0.4: HARD, 0.69: HARD, 0.7: GOOD, 0.99: GOOD, 1: EASY}
    assert {reached: rating(reached) for reached in known} == known
    assert rating(1, "choice") == rating(1, "numeric") == GOOD


def test_groups_take_turns() -> None:
    first = [card.group for card in cards()[:8]]
    assert first == [*GROUPS], "a short sitting touches all of them"
    assert {card.kind for card in cards()[:3]} == {*KINDS}, "and has every kind"
    assert [card.key for card in cards(kinds=["open"])[:2]] == ["open:I-01", "open:II-01"]


@pytest.mark.parametrize(
    ("said", "value"),
    [
        ("0.25", 0.25),
        (" -3 ", -3),
        ("−3", -3),
        ("+.5", 0.5),
        ("1/4", 0.25),
        ("-1/8", -0.125),
        ("25%", 0.25),
        ("2^-7", 2**-7),
        ("-2^-7", -(2**-7)),
        ("2**10", 1024),
        ("1e-3", 0.001),
        ("3.2E+2", 320),
        ("exp(-0.5)", math.exp(-0.5)),
        ("ln(2)", math.log(2)),
        ("sqrt(2)", math.sqrt(2)),
        ("22,026", 22026),
        ("1,234,567", 1234567),
        ("65 504", 65504),
        ("1 / 4", 0.25),
        ("0．5", 0.5),
        ("１２", 12),
        ("50％", 0.5),
        ("2.04×10^-5", 2.04e-5),
        ("-3*10**4", -3e4),
        ("e^-0.5", math.exp(-0.5)),
        ("e^(0.5)", math.exp(0.5)),
    ],
)
def test_a_number_may_be_written_in_any_usual_way(said: str, value: float) -> None:
    assert number(said) == pytest.approx(value, rel=1e-12)


@pytest.mark.parametrize(
    "said",
    ["", "x", "1/0", "1e999", "nan", "inf", "2^9999", "exp(9999)", "1,5", "--1", "1 + 1",
     "__import__('os')", "9" * 5000 + "x", "0^-1", "exp(", "1//2", "1 9", "3 4/5",
     "ln(0)", "ln(-1)", "sqrt(-1)", "0,302",
     "0,125", "0.123,456", "1234,567", "1,234,56", "5×10^", "5×9^2"],
)  # fmt: skip
def test_anything_else_is_refused_in_words(said: str) -> None:
    with pytest.raises(ValueError, match="no number"):
        number(said)


def tinyrl(*arguments: str, said: str = "") -> Result:
    return CliRunner().invoke(cli.app, [*arguments], input=said)


def test_a_drill_in_a_pipe_keeps_every_answer() -> None:
    first, second, *_ = (card for card in cards(["IV"]) if card.kind == "open")
    done = subprocess.run(
        [sys.executable, "-m", "tinyrl.cli", "drill", "--group", "iv", "--kind", "open",
         "--count", "2"],
        input="\nx\n1 9\n1 2\n\n\n0\n", capture_output=True, text=True, timeout=120,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("Numbers from 1 to") == 3, "what it cannot read it asks again"
    assert "0 due, 10 new. Here are 2." in done.stdout
    assert "Wrong answers" not in done.stdout
    found = reviews.recall()
    assert [review.card for review in found] == [first.key, second.key]
    weights = [point.weight for point in BANK[first.name].en.rubric]
    worth = (weights[0] + weights[1]) / sum(weights)
    assert [review.rating for review in found] == [rating(worth), AGAIN]
    assert f"{worth:.0%} of the points" in done.stdout
    assert "2 answered" in done.stdout


def test_leaving_keeps_what_was_answered() -> None:
    for end in ("q\n", ""):
        done = tinyrl("drill", "--group", "V", "--kind", "choice", said=f"a\n{end}")
        assert done.exit_code == 0
    assert len(reviews.recall()) == 2
    assert len({review.card for review in reviews.recall()}) == 2, "the new one comes next"


def test_what_is_due_comes_before_what_is_new() -> None:
    name = [card.key for card in cards(["V"]) if card.kind == "choice"][7]
    long_ago = time.time() - 30 * 86400
    reviews.remember(reviews.Review(name, AGAIN, long_ago))
    done = tinyrl("drill", "--group", "V", said="q\n")
    assert "1 due" in done.stdout
    asked = BANK[name.partition(":")[2]].en.question
    assert asked[:40] in " ".join(done.stdout.split())


def test_a_sitting_asks_no_question_twice_and_says_when_there_is_more() -> None:
    first, last = (card.key for card in cards(["VIII"], ["open"])[:2])
    now = time.time()
    reviews.remember(reviews.Review(first, AGAIN, now))
    reviews.remember(reviews.Review(last, EASY, now))
    told = tinyrl("drill", "--group", "VIII", "--kind", "open", said="\n1\nq\n").stdout
    soonest = sitting.when(reviews.due_dates(reviews.recall())[first])
    assert f"Next due: {soonest}; until tomorrow night: 2; new cards left: 1." in told
    assert "Weak so far: VIII, Debugging and design (1 of 3 known)." in told
    long_ago = now - 30 * 86400
    for kind in ("open", "choice"):
        reviews.remember(reviews.Review(f"{kind}:V-01", AGAIN, long_ago))
    done = tinyrl("drill", "--group", "V", "--count", "1000", said="q\n")
    assert "2 due" in done.stdout
    questions_and_drills = {card.name for card in cards(["V"])}
    assert f"Here are {len(questions_and_drills)}." in done.stdout


def test_nothing_due_says_when() -> None:
    now = time.time()
    for card in cards(["VIII"], ["open"]):
        reviews.remember(reviews.Review(card.key, EASY, now))
    done = tinyrl("drill", "--group", "VIII", "--kind", "open")
    assert done.exit_code == 0
    assert "Nothing is due before 20" in done.stdout
    ahead = tinyrl("drill", "--group", "8", "--kind", "open", "--ahead", said="\n0\nq\n")
    assert "0 due, 0 new. Here are 4." in ahead.stdout
    assert len(reviews.recall()) == 5


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("drill", "--group", "IX"), "'IX' is none of I, II"),
        (("drill", "--kind", "essay"), "'essay' is none of open, numeric, choice"),
        (("drill", "--lang", "fr"), "'fr' is neither en nor zh"),
        (("drill", "--count", "0"), "--count"),
        (("mock", "--minutes", "1"), "--minutes"),
        (("export", "anki", "no/such/folder/x.apkg"), "cannot be written"),
    ],
)
def test_bad_requests_are_refused_in_a_line(
    arguments: tuple[str, ...], message: str
) -> None:
    done = tinyrl(*arguments)
    assert done.exit_code in (1, 2)
    assert message in " ".join(done.output.replace("│", " ").split())


def test_every_line_for_people_is_in_both_languages() -> None:
    names = [module.name for module in pkgutil.iter_modules(interview.__path__)]
    for module in [import_module(f"{interview.__name__}.{name}") for name in names]:
        for name, value in vars(module).items():
            for words in value.values() if isinstance(value, dict) else [value]:
                if isinstance(words, Words):
                    assert words.en != words.zh or re.fullmatch(r"[\W_]*", words.en), name
                    assert words.en.count("{") == words.zh.count("{"), name


def test_groups_are_named() -> None:
    assert GROUPS == ("I", "II", "III", "IV", "V", "VI", "VII", "VIII")
