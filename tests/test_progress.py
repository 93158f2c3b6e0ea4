"""Progress, hints and solutions: kept on disk, honest, never in the way."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from tinyrl.course import check, hint, progress, records, set_language, solution
from tinyrl.course.checking import coach
from tinyrl.course.checking.checks import CheckFailed
from tinyrl.course.exercises import LABS, find
from tinyrl.course.records import Record, path, recall, remember, standing


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TINYRL_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("TINYRL_LANG", "en")
    monkeypatch.delenv("NBGRADER_EXECUTION", raising=False)
    return tmp_path / "home"


def right(logp_train: Tensor, logp_rollout: Tensor, mask: Tensor) -> Tensor:
    return torch.where(mask, logp_train - logp_rollout, 0.0)


def wrong(logp_train: Tensor, logp_rollout: Tensor, mask: Tensor) -> Tensor:
    return torch.where(mask, logp_rollout - logp_train, 0.0)


def fail(answer: object, **kwargs: int) -> None:
    with pytest.raises(CheckFailed):
        check("token_delta", answer, **kwargs)


def test_checks_are_remembered(home: Path) -> None:
    fail(None)
    assert standing("token_delta").tries == 0, "nothing was tried"
    fail(wrong)
    fail(wrong, seed=7)
    assert standing("token_delta").tries == 1, "a hidden test is no try"
    assert not standing("token_delta").solved
    check("token_delta", right)
    fail(wrong)
    now = standing("token_delta")
    assert (now.tries, now.solved) == (3, True)
    assert standing("ratio").tries == 0
    lines = [line for line in (home / "progress.jsonl").read_text().split("\n") if line]
    assert [json.loads(line)["event"] for line in lines] == [
        "blank",
        "wrong",
        "right",
        "wrong",
    ]
    assert json.loads(lines[1])["mistake"] == "sign"
    assert set(json.loads(lines[2])) == {"event", "exercise", "at"}


def test_default_folder_is_the_users_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TINYRL_HOME")
    assert records.path().name == "progress.jsonl"
    assert Path.home() in records.path().parents


def test_nothing_is_remembered_while_nbgrader_grades(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NBGRADER_EXECUTION", "autograde")
    check("token_delta", right)
    hint("token_delta")
    assert not home.exists()


def test_a_folder_that_cannot_be_written_costs_nothing_but_the_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TINYRL_HOME", str(tmp_path / "file" / "home"))
    check("token_delta", right)
    fail(wrong)
    hint("token_delta")
    hint("token_delta")
    out, err = capfd.readouterr()
    assert err == ""
    assert out.count("Your progress is not saved") == 4
    assert "Not a directory" in out
    assert "Set TINYRL_HOME to a folder of yours" in out
    assert "hint 2 of 3" in out, "kept for as long as the process lives"
    assert standing("token_delta").solved
    set_language("zh")
    check("token_delta", right)
    assert "进度没有保存" in capfd.readouterr().out


def test_a_full_disk_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records.os, "write", lambda file, line: 3)
    note = remember(Record("right", "ratio"))
    assert note is not None
    assert "No space left" in note.en


def test_damaged_lines_are_skipped(home: Path) -> None:
    check("token_delta", right)
    file = home / "progress.jsonl"
    with file.open("ab") as f:
        f.write(b'not json\n[1]\n{"event": "right"}\n\xff\xfe\n{"event": "ri')
    remember(Record("right", "ratio"))
    assert standing("token_delta").solved
    assert standing("ratio").solved, "a line that was cut off does not spoil the next"
    assert len(records.recall()) == 2


WRITER = """
import sys
from tinyrl.course.records import Record, remember
for i in range(300):
    assert remember(Record("wrong", sys.argv[1], mistake="x" * 200)) is None
"""


def test_two_processes_can_write_at_once() -> None:
    names = ("a", "b")
    writers = [subprocess.Popen([sys.executable, "-c", WRITER, name]) for name in names]
    assert [writer.wait(120) for writer in writers] == [0, 0]
    assert [standing(name).tries for name in names] == [300, 300]
    lines = records.path().read_text().splitlines()
    assert len([line for line in lines if line]) == 600


def test_hints_come_one_after_the_other(capsys: pytest.CaptureFixture[str]) -> None:
    for level in (1, 2, 3, 3):
        hint("ratio")
        shown = " ".join(capsys.readouterr().out.split())
        assert f"ratio: hint {level} of 3" in shown
        assert find("ratio").hints[level - 1].en in shown
    hint("ratio", 1)
    assert "hint 1 of 3" in capsys.readouterr().out
    assert standing("ratio").hints == 3
    with pytest.raises(ValueError, match="levels 1 to 3, not 4"):
        hint("ratio", 4)


def test_solution_comes_after_an_honest_try(capsys: pytest.CaptureFixture[str]) -> None:
    solution("token_delta")
    fail(None)
    capsys.readouterr()
    solution("token_delta")
    assert "Try first" in capsys.readouterr().out
    fail(wrong)
    capsys.readouterr()
    solution("token_delta")
    out = capsys.readouterr().out
    assert "def token_delta(" in out
    assert "return torch.where(mask, logp_train - logp_rollout, 0.0)" in out
    assert standing("token_delta").saw_solution


@pytest.mark.parametrize("exercise", [e for lab in LABS.values() for e in lab])
def test_every_solution_is_shown_whole_and_clean(exercise: object) -> None:
    code = coach.written(exercise.name)  # type: ignore[attr-defined]
    assert code is not None
    compile(code, "<solution>", "exec")
    assert "return" in code
    assert not any(word in code for word in ("CANARY", "SOLUTION", "HIDDEN"))


def test_without_a_clone_there_are_no_solutions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(coach, "SOLUTIONS", tmp_path)
    fail(wrong)
    solution("token_delta")
    assert "comes without solutions" in capsys.readouterr().out
    assert not standing("token_delta").saw_solution


def test_progress_lists_every_exercise(capsys: pytest.CaptureFixture[str]) -> None:
    check("token_delta", right)
    fail(wrong)
    hint("ratio")
    capsys.readouterr()
    progress()
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "· lab01_two_policies: 1 of 11 solved"
    mine = lines[1 : 1 + len(LABS["lab01_two_policies"])]
    told = {line.split()[0]: line.split(maxsplit=1)[1] for line in mine}
    rest = " ".join(line.strip() for line in lines[1 + len(mine) : -1])
    assert rest == "· not begun " + ", ".join(list(LABS)[1:])
    assert list(told) == [exercise.name for exercise in LABS["lab01_two_policies"]]
    assert told["token_delta"] == "solved, checked 2 times"
    assert told["ratio"] == "open, hint 1 seen"
    assert told["masked_mean"] == "open"
    set_language("zh")
    progress()
    assert "11 题中完成 1 题" in capsys.readouterr().out


@pytest.mark.parametrize("lab", LABS)
def test_an_open_question_is_answered_after_a_try(
    lab: str, capsys: pytest.CaptureFixture[str]
) -> None:
    solution(lab[:5])
    assert "Try first" in capsys.readouterr().out
    remember(Record("wrong", LABS[lab][0].name))
    solution(lab[:5])
    out = capsys.readouterr().out
    starts = [line.strip()[:3] for line in out.splitlines()]
    assert starts.count("1. ") == 1, "the marker's list"
    assert len(out.split()) > 150
    assert "canary" not in out.lower()
    assert "#" not in out


def test_the_last_hint_says_what_comes_next(capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(2):
        hint("ratio")
    assert "solution(" not in capsys.readouterr().out
    hint("ratio")
    out = " ".join(capsys.readouterr().out.split())
    assert 'After one checked try, solution("ratio") shows one right answer' in out


@pytest.mark.parametrize("ask", [hint, solution])
def test_a_name_that_is_none_is_said_in_a_line(
    ask: Callable[[str], None], capsys: pytest.CaptureFixture[str]
) -> None:
    ask("ppo")
    assert "did you mean 'ppo_loss'" in capsys.readouterr().out
    ask("nothing like it")
    assert "its lab has the names" in capsys.readouterr().out


@pytest.mark.parametrize(
    "line",
    [
        '{"event": "hint", "exercise": "ratio", "at": 1, "level": 1e999}',
        '{"event": "hint", "exercise": "ratio", "at": ' + 400 * "9" + "}",
        100_000 * "[",
    ],
    ids=["infinite level", "endless time", "deep"],
)
def test_a_line_that_no_reader_survives_is_skipped(line: str) -> None:
    remember(Record("right", "ratio"))
    with path().open("a") as file:
        file.write(line + "\n")
    assert [record.event for record in recall()] == ["right"]
    assert standing("ratio").solved


def test_a_damaged_level_does_not_stop_the_hints(
    capsys: pytest.CaptureFixture[str],
) -> None:
    remember(Record("hint", "ratio", level=-5))
    hint("ratio")
    assert "hint 1 of 3" in capsys.readouterr().out


def test_a_home_of_nobody_costs_nothing_but_the_record(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TINYRL_HOME", "~no_such_user_here/state")
    remember(Record("right", "ratio"))
    assert standing("ratio").solved
