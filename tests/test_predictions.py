"""Predictions: a click commits, the experiment judges, and the first verdict stays."""

from __future__ import annotations

from pathlib import Path

import pytest

from tinyrl.course import predictions, records
from tinyrl.course.predictions import buttons, committed, predict, reveal, tally, verdict
from tinyrl.course.records import Record
from tinyrl.course.words import set_language

OPTIONS = ["up", "down", "<neither>"]


@pytest.fixture(autouse=True)
def fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An own progress file, English words, and a kernel that asked nothing."""
    monkeypatch.setenv("TINYRL_HOME", str(tmp_path))
    monkeypatch.setenv("TINYRL_LANG", "en")
    monkeypatch.delenv("NBGRADER_EXECUTION", raising=False)
    monkeypatch.setattr(predictions, "_asked", {})
    monkeypatch.setattr(predictions, "_revealed", set())
    return tmp_path


def click(name: str, option: str) -> str:
    """Choose `option` in a fresh widget; returns what the widget says then."""
    toggles, status = buttons(name, OPTIONS).children
    toggles.value = option
    return str(status.value)


def test_asking_shows_question_and_options(capsys: pytest.CaptureFixture[str]) -> None:
    predict("00.x", "Which way?", OPTIONS)
    shown = capsys.readouterr().out
    for text in ("Your prediction. Which way?", "A. up", "B. down", "C. <neither>"):
        assert text in shown
    assert committed("00.x") is None


@pytest.mark.parametrize("options", [[], ["one"], ["same", "same"]])
def test_options_must_be_told_apart(options: list[str]) -> None:
    with pytest.raises(ValueError, match=r"00\.x: give two or more different options"):
        predict("00.x", "Which way?", options)


def test_a_click_commits_and_can_be_changed_before_the_answer() -> None:
    assert click("00.x", "up").startswith("Noted")
    assert committed("00.x") == "up"
    assert click("00.x", "down").startswith("Noted")
    assert committed("00.x") == "down"
    assert committed("00.y") is None


def test_a_commitment_survives_the_kernel_and_is_shown_again() -> None:
    click("00.x", "down")
    toggles, _ = buttons("00.x", OPTIONS).children
    assert toggles.value == "down"
    toggles, _ = buttons("00.x", ["other", "options"]).children
    assert toggles.value is None


@pytest.mark.parametrize(
    ("choice", "shown", "right"),
    [("up", "As you predicted: up", True), ("down", "You predicted: down", False)],
)
def test_the_answer_beside_the_prediction(
    choice: str, shown: str, right: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    click("00.x", choice)
    reveal("00.x", "up")
    assert shown in capsys.readouterr().out
    assert verdict("00.x") is right


def test_the_answer_repeats_its_question(capsys: pytest.CaptureFixture[str]) -> None:
    predict("00.x", "Which way?", OPTIONS)
    predict("00.y", "And then?", OPTIONS)
    click("00.x", "down")
    capsys.readouterr()
    reveal("00.x", "up")
    assert "Which way?" in capsys.readouterr().out
    reveal("00.y", "up")
    assert "And then?" in capsys.readouterr().out
    reveal("00.z", "up")  # asked by another kernel
    assert "?" not in capsys.readouterr().out


def test_without_a_prediction_the_answer_is_shown_and_nothing_is_judged(
    capsys: pytest.CaptureFixture[str],
) -> None:
    reveal("00.x", "up")
    shown = capsys.readouterr().out
    assert "The answer: up" in shown
    assert "no prediction" in shown
    assert verdict("00.x") is None
    assert tally("00") == (0, 0)


def test_who_predicts_below_a_shown_answer_is_told_to_run_it_again(
    capsys: pytest.CaptureFixture[str],
) -> None:
    reveal("00.x", "up")
    assert "stands below already" in click("00.x", "down")
    reveal("00.x", "up")
    assert "You predicted: down" in capsys.readouterr().out


def test_once_the_answer_is_known_a_prediction_no_longer_counts() -> None:
    click("00.x", "down")
    reveal("00.x", "up")
    assert "no longer counts" in click("00.x", "up")
    reveal("00.x", "up")
    assert committed("00.x") == "down"
    assert verdict("00.x") is False
    records.remember(Record("predicted", "00.x", choice="up"))  # from an older kernel
    assert committed("00.x") == "down"
    assert [record.event for record in records.recall()].count("wrong") == 1


def test_a_predicted_answer_that_turns_out_otherwise_later_keeps_its_verdict() -> None:
    click("00.x", "up")
    reveal("00.x", "up")
    reveal("00.x", "down")  # another seed, another outcome
    assert verdict("00.x") is True


def test_an_answer_that_was_no_option_is_the_authors_error() -> None:
    predict("00.x", "Which way?", OPTIONS)
    with pytest.raises(ValueError, match=r"00\.x: 'sideways' is none of its options"):
        reveal("00.x", "sideways")
    reveal("00.other", "sideways")  # asked by no cell of this kernel: nothing to compare


def test_tally_counts_the_judged_predictions_of_one_notebook() -> None:
    for name, choice in {"00.a": "up", "00.b": "down", "01.a": "up", "00.c": "up"}.items():
        click(name, choice)
        if name != "00.c":
            reveal(name, "up")
    assert tally("00") == (1, 2)
    assert tally("01") == (1, 1)
    assert tally("02") == (0, 0)


def test_a_folder_that_cannot_be_written_is_said_and_nothing_breaks(
    fresh: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (fresh / "file").touch()
    monkeypatch.setenv("TINYRL_HOME", str(fresh / "file"))
    assert "not saved" in click("00.x", "up")
    assert not records.path().exists()
    reveal("00.x", "up")


def test_chinese(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    set_language("zh")
    predict("00.x", "往哪边？", OPTIONS)
    click("00.x", "up")
    reveal("00.x", "up")
    shown = capsys.readouterr().out
    assert "先猜一猜" in shown
    assert "猜对了：up" in shown
