"""Students' words, and ours, on consoles and in tables that could not hold them."""

from __future__ import annotations

import csv
import io
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adversaries.students import cell, own
from submissions import good, save
from tinyrl.course.classroom import doctor, grading, labcheck, regrade
from tinyrl.course.classroom.grading import Mark, Marks
from tinyrl.course.classroom.regrade import Result
from tinyrl.course.printing import console, plain

STRANGE = "\ud800[/red]\x1b[2J\u202e]\n\r=1+1 [bold]"
anything = st.text(st.characters(exclude_categories=()))


@given(anything)
def test_any_text_becomes_one_line_that_can_be_encoded(text: str) -> None:
    said = plain(text)
    said.encode()
    assert len(said.splitlines()) <= 1
    assert not set(said) & {"\x1b", "\u202e"}


def test_a_console_of_any_encoding_prints_everything(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for encoding, expected in [
        ("ascii", "+ x - ??\n"),
        ("gbk", "+ x \xa1\xa4 \xd6\xd0?\n"),
    ]:
        written = io.BytesIO()
        monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding))
        console().print("✓ ✗ · 中\ud800")
        assert written.getvalue().decode("latin-1") == expected


def test_the_command_and_a_console_say_the_same_on_a_plain_terminal() -> None:
    said = "✓ ✗ · − … 中"
    show = f"console().print({said!r})"
    code = {
        "command": f"from tinyrl import cli; cli.app = lambda: print({said!r}); cli.main()",
        "console": f"from tinyrl.course.printing import console; {show}",
    }
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    out = {
        name: subprocess.check_output([sys.executable, "-c", lines], env=environment)
        for name, lines in code.items()
    }
    assert out["command"] == out["console"] == b"+ x - - ... ?\n"


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_the_doctor_speaks_on_a_terminal_that_knows_little(
    tmp_path: Path, encoding: str
) -> None:
    folder = tmp_path / "实验"
    folder.mkdir()
    save(folder, good())
    code = "import sys; from tinyrl.course.classroom.doctor import run; "
    code += "sys.exit(run(sys.argv[1]))"
    environment = {**os.environ, "PYTHONIOENCODING": encoding}
    done = subprocess.run(
        [sys.executable, "-c", code, str(folder)], env=environment, capture_output=True
    )
    assert done.returncode == doctor.CLEAN, done.stderr.decode()
    assert "Nothing here costs marks" in done.stdout.decode(encoding)


def test_what_an_answer_raises_is_one_line() -> None:
    said = grading._one_line(ValueError(STRANGE))
    assert said == r"\ud800[/red] [2J ] =1+1 [bold]"
    assert grading._one_line(ValueError("\n")) == "ValueError"
    assert grading._one_line(NameError(name=STRANGE)).isprintable()


def marks() -> tuple[Mark, ...]:
    return (
        Mark("ratio_test", "ratio", 0.0, 1.0, STRANGE),
        Mark("masked_mean_test", "masked_mean", 1.0, 1.0),
    )


@pytest.mark.parametrize("width", [40, 60, 80, 120])
@pytest.mark.parametrize("language", ["en", "zh"])
def test_lab_check_cuts_nothing_off_and_reads_no_markup(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    width: int,
    language: str,
) -> None:
    """`length_normalised_delta` is the longest name that a lab has."""
    nb = good()
    odd = own("1")
    odd.metadata.nbgrader = {**cell(nb, "ratio").metadata.nbgrader, "grade_id": STRANGE}
    nb.cells.append(odd)
    path = tmp_path / f"{doctor.labs.released()[0].name}.ipynb"
    path.write_text(doctor.notebooks.dumps(nb), "utf-8")
    said = {"en": "it_is_" * 20 + "[/red]", "zh": "你的函数返回了错误的结果" * 12}[language]
    made = Marks((Mark("t", "length_normalised_delta", 0.0, 2.0, said), *marks()), {})
    monkeypatch.setattr(grading, "grade", lambda *_: made)
    monkeypatch.setenv("COLUMNS", str(width))
    assert labcheck.run(path) == labcheck.LESS
    out = capsys.readouterr().out
    assert "…" not in out
    if width >= 60:  # below, the name is folded, too
        table = out.partition("exercise")[2].partition("✗  ratio")[0]
        assert said in "".join(table.replace("length_normalised_delta", "").split())


def test_lab_check_speaks_chinese(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TINYRL_LANG", "zh")
    path = tmp_path / "another_name.ipynb"
    path.write_text(doctor.notebooks.dumps(good()), "utf-8")
    made = Marks((Mark("t", "ratio", 0.5, 2.0), Mark("u", "kl", 1.0, 1.0)), {})
    monkeypatch.setattr(grading, "grade", lambda *_: made)
    assert labcheck.run(path) == labcheck.LESS
    out = "".join(capsys.readouterr().out.split()).partition(".ipynb")[2]
    for said in ("题目", "得分", "1.5/3分", "另有", "这样交上去可能丢分（文件必须叫"):
        assert said in out
    assert not {"exercise", "points", "Handed"} & set(re.findall("[a-zA-Z]+", out))


def test_a_strange_student_costs_the_class_no_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = {"ratio_test": 1.0, "masked_mean_test": None}
    names = ("ann", STRANGE, "王")
    results = [Result(n, dict(first), marks(), 0.0, 1, (STRANGE,)) for n in names]
    regrade.show(console(), results)
    assert "ann" in capsys.readouterr().out
    for table in regrade.write(tmp_path / "new", results):
        with table.open(newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        students = list(dict.fromkeys(row["student"] for row in rows))
        assert students == ["ann", plain(STRANGE), "王"]
        assert all("\n" not in cell for row in rows for cell in row.values())
