"""`tinyrl diagnose` on files, good and bad."""

import os
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from typer.testing import CliRunner

from faults import (
    constant,
    cut,
    floored,
    last_missing,
    late,
    learned,
    logarithm,
    prefix,
    rounded,
    temperature,
)
from policies import Policy, policy, seeds, top_p
from tinyrl.cli import app
from tinyrl.diagnosis import diagnose
from tinyrl.diagnosis.command import run
from tinyrl.diagnosis.files import load
from tinyrl.diagnosis.finding import NAMES
from tinyrl.diagnosis.table import HEADS, rows

ALL = {
    "late": late,
    "rounded": rounded,
    "equal": lambda p: (rounded(p)[0],) * 2,
    "constant": constant,
    "swapped": lambda p: reversed(constant(p)),
    "top-p": lambda p: cut(p, lambda z: top_p(z, 0.8)),
    "temperature": lambda p: temperature(p, 0.7),
    "prefix": lambda p: prefix(p, 2),
    "missing": lambda p: (last_missing(rounded(p)[0], p.mask), rounded(p)[1]),
    "log2": lambda p: logarithm(p, "trainer", 2),
    "clamp": lambda p: floored(p, "rollout", -3.0),
    "learned": learned,
    "rows": lambda p: (rounded(p)[0], rounded(p)[1].roll(1, 0)),
}


def save(folder, name, array):
    path = folder / name
    np.save(path, array)
    return path


@pytest.fixture
def files(tmp_path):
    p = policy(0)
    a, b = late(p)
    return (
        save(tmp_path, "a.npy", a.numpy()),
        save(tmp_path, "b.npy", b.numpy()),
        save(tmp_path, "m.npy", p.mask.numpy()),
    )


def test_the_command_prints_metrics_cause_and_remedy(files):
    a, b, m = (str(path) for path in files)
    result = CliRunner().invoke(app, ["diagnose", a, b, "--mask", m])
    assert result.exit_code == 0, result.output
    p = policy(0)
    k3 = diagnose(*late(p), p.mask).mismatch.k3
    assert f"{k3:.4g}" in result.output
    for words in (
        "a.npy (rollout)",
        "Reading of K3",
        "1. shift",
        "one token late",
        "remedy",
        "only if the rollout itself sampled these tokens",
    ):
        assert words in " ".join(result.output.split())


def test_the_command_without_a_mask_and_without_a_fault(tmp_path, capsys):
    a = np.full((2, 3), -1.0)
    path = save(tmp_path, "[red]a.npy", a)
    assert run(path, path) == 0
    out = capsys.readouterr().out
    assert "[red]a.npy (rollout)" in out
    assert "None of: shift by one" in out


RUDE = "a\x1b[31m\n\r\x85\u202e.npy"
MEEK = r"a\x1b[31m\n\r\x85\u202e.npy"


@pytest.mark.skipif(os.name != "posix", reason="file names of POSIX")
def test_names_of_files_cannot_command_a_terminal(tmp_path, capsys):
    good = save(tmp_path, RUDE, np.full((2, 3), -1.0))
    wide = save(tmp_path, "wide" + RUDE, np.full((2, 4), -1.0))
    text = tmp_path / ("text" + RUDE)
    text.write_text("hello")
    cut_short = tmp_path / ("short" + RUDE)
    cut_short.write_bytes(good.read_bytes()[:20])
    assert run(good, good) == 0
    out, _ = capsys.readouterr()
    assert MEEK in out
    for path in (wide, text, cut_short, tmp_path / ("absent" + RUDE)):
        assert run(good, path) == 2
        out, err = capsys.readouterr()
        assert out == ""
        assert MEEK in err
        assert err.removesuffix("\n").isprintable()
    with pytest.raises(ValueError, match="text" + re.escape(MEEK)):
        load(text)


@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.parametrize("lang", ["en", "zh"])
def test_nothing_is_cut_at_any_width_in_either_language(files, capsys, lang, width):
    a, b, m = files
    os.environ["COLUMNS"] = str(width)
    try:
        assert run(a, b, m, lang) == 0
    finally:
        del os.environ["COLUMNS"]
    out = capsys.readouterr().out
    assert all(cell_len(line) <= width for line in out.splitlines())
    assert "…" not in out
    verdict = diagnose(*late(policy(0)), policy(0).mask)
    bare = "".join(out.split())
    (found,) = verdict.findings
    texts = [found.what, found.evidence, found.remedy, found.share, verdict.rest]
    texts += [said for _, _, said in rows(verdict)]
    for text in [*texts, verdict.band.reading, *HEADS, NAMES["shift"]]:
        if text is not NAMES["shift"] or lang == "zh":
            assert "".join(text.to(lang).split()) in bare


def test_every_number_has_a_meaning_of_its_own(files):
    verdict = diagnose(*late(policy(0)), policy(0).mask)
    table = list(rows(verdict))
    assert len({said.en for _, _, said in table}) == len(table)
    assert not [said.en for _, _, said in table if re.search("^(of )?its|^of", said.en)]
    means = [value for name, value, _ in table if name == "ratio_mean"]
    assert means == [verdict.means.shown]


def test_it_speaks_chinese_where_that_is_set(files):
    a, b, _ = (str(path) for path in files)
    chinese = CliRunner().invoke(app, ["diagnose", a, b, "--lang", "zh"])
    by_variable = CliRunner().invoke(app, ["diagnose", a, b], env={"TINYRL_LANG": "zh"})
    assert chinese.exit_code == 0
    assert chinese.output == by_variable.output
    for words in ("采样端", "训练端", "错位一个 token（第 05 课）", "证据", "对策", "剩余"):
        assert words in chinese.output
    assert "remedy" not in chinese.output
    wrong = CliRunner().invoke(app, ["diagnose", a, a + "x", "--lang", "zh"])
    assert (wrong.exit_code, "没有文件" in wrong.output) == (2, True)


@given(seeds, st.sampled_from(sorted(ALL)))
@settings(max_examples=60)
def test_every_verdict_is_said_in_both_languages(seed, fault):
    p = Policy.draw(seed, 32, 32, 64, (1, 12))
    verdict = diagnose(*ALL[fault](p), p.mask)
    english, chinese = verdict.text("en"), verdict.text("zh")
    assert english == str(verdict)
    assert not re.search(r"[\u4e00-\u9fff]", english)
    assert len(english.splitlines()) == len(chinese.splitlines())
    for line in chinese.splitlines():
        assert re.search(r"[\u4e00-\u9fff]", line), line
    assert "{" not in english + chinese
