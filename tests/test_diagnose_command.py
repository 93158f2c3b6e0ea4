"""`tinyrl diagnose` on files, good and bad."""

import math
import os
import pickle
import re

import numpy as np
import pytest
from typer.testing import CliRunner

from faults import late
from policies import (
    policy,
)
from tinyrl.cli import app
from tinyrl.diagnosis import diagnose
from tinyrl.diagnosis.command import load, run


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


class Evil:
    def __reduce__(self):
        return (print, ("pickle was run",))


def bad_files(folder):
    good = save(folder, "good.npy", np.full((2, 3), -1.0))
    np.savez(folder / "many.npz", a=np.zeros(3))
    (folder / "text.npy").write_text("hello")
    (folder / "empty.npy").write_bytes(b"")
    (folder / "short.npy").write_bytes(good.read_bytes()[:-8])
    (folder / "header.npy").write_bytes(good.read_bytes()[:20])
    (folder / "pickle.npy").write_bytes(pickle.dumps(Evil()))
    np.save(folder / "objects.npy", np.array([[Evil()]]), allow_pickle=True)
    save(folder, "wide.npy", np.full((2, 4), -1.0))
    save(folder, "nan.npy", np.array([[-1.0, math.nan, -1.0]] * 2))
    save(folder, "positive.npy", np.full((2, 3), 0.5))
    save(folder, "flat.npy", np.full(6, -1.0))
    save(folder, "text_array.npy", np.array([["a", "b", "c"]] * 2))
    save(folder, "mask_wide.npy", np.ones((2, 4), dtype=bool))
    save(folder, "mask_two.npy", np.full((2, 3), 2))
    save(folder, "mask_none.npy", np.zeros((2, 3), dtype=bool))
    return good


@pytest.mark.parametrize(
    ("train", "mask", "message"),
    [
        ("absent.npy", None, "there is no file .*absent.npy"),
        (".", None, "is a folder, not a .npy file"),
        ("text.npy", None, "text.npy is not a .npy file"),
        ("empty.npy", None, "empty.npy is not a .npy file"),
        ("many.npz", None, "many.npz is not a .npy file"),
        ("pickle.npy", None, "pickle.npy is not a .npy file"),
        (
            "objects.npy",
            None,
            "objects.npy cannot be read: it holds pickled Python objects",
        ),
        ("short.npy", None, "short.npy cannot be read"),
        ("header.npy", None, "header.npy cannot be read"),
        ("wide.npy", None, r"differ in shape: \[2, 3\] and \[2, 4\].*wide.npy"),
        ("nan.npy", None, "logp_train row 0, column 1 is not a number.*nan.npy"),
        ("positive.npy", None, "row 0, column 0 is positive.*positive.npy"),
        ("flat.npy", None, r"logp_train must be \[B, T\].*flat.npy"),
        ("text_array.npy", None, "logp_train must hold numbers"),
        ("good.npy", "mask_wide.npy", r"mask has shape \[2, 4\].*mask_wide.npy"),
        ("good.npy", "mask_two.npy", "mask row 0, column 0 is neither 0 nor 1: 2"),
        ("good.npy", "mask_none.npy", "mask is false everywhere"),
        ("good.npy", "absent.npy", "there is no file"),
    ],
)
def test_the_command_says_what_is_wrong_with_a_file(tmp_path, capfd, train, mask, message):
    good = bad_files(tmp_path)
    code = run(good, tmp_path / train, None if mask is None else tmp_path / mask)
    out, err = capfd.readouterr()
    assert code == 2
    assert out == ""  # pickles were not run either
    assert err.startswith("tinyrl diagnose: ")
    assert err.count("\n") == 1
    assert re.search(message, err), err
