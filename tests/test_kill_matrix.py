"""Every known wrong answer fails with its own message, every right one passes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tinyrl.course.checking import kill_matrix
from tinyrl.course.exercise import Exercise
from tinyrl.course.exercises import LABS, find

EXERCISES = [exercise for lab in LABS.values() for exercise in lab]


@pytest.mark.parametrize("exercise", EXERCISES, ids=lambda exercise: exercise.name)
def test_matrix_is_complete_on_20_seeds(exercise: Exercise) -> None:
    rows = kill_matrix.matrix(exercise)
    assert {row.seeds for row in rows} == {20}
    assert not [row for row in rows if not row.complete]
    assert sum(row.wrong for row in rows) >= 6
    assert sum(not row.wrong for row in rows) >= 3, "the reference and two others"
    assert all(row.stages for row in rows if row.wrong)


SIGN = find("token_delta").mistakes["sign"]


@pytest.mark.parametrize(
    ("sabotaged", "row", "told"),
    [
        # A wrong answer that no case catches.
        (
            replace(find("ratio"), data=(), gradient=()),
            "where_after_exp",
            "right: `ratio` is right",
        ),
        # Two mistakes that no case tells apart.
        (
            replace(find("token_delta"), mistakes={"sign": SIGN, "again": SIGN}),
            "again",
            "wrong: `token_delta` is wrong",
        ),
        # A right answer that is rejected.
        (
            replace(find("token_delta"), alternatives={"not right": SIGN[0]}),
            "not right",
            "wrong: The sign",
        ),
    ],
)
def test_a_hole_is_seen(
    sabotaged: Exercise,
    row: str,
    told: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (found,) = [r for r in kill_matrix.matrix(sabotaged, 2) if r.function == row]
    assert not found.complete
    assert found.told[0].startswith(told)
    monkeypatch.setattr(kill_matrix, "LABS", {"lab": (sabotaged,)})
    monkeypatch.setenv("COLUMNS", "160")
    assert kill_matrix.main(["--seeds", "2"]) == 1
    out = capsys.readouterr().out
    assert row in out
    assert "0/2" in out


def test_main_prints_the_matrix(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(kill_matrix, "LABS", {"lab": (find("token_delta"), find("ratio"))})
    monkeypatch.setenv("COLUMNS", "160")
    assert kill_matrix.main(["--seeds", "2"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    wrong = len(find("token_delta").mistakes) + len(find("ratio").mistakes)
    assert (
        f"2 exercises, 2 seeds: {wrong} of {wrong} wrong answers fail with their own "
        "message, 6 of 6 right ones pass"
    ) in out
    assert "padding_kept" in out
