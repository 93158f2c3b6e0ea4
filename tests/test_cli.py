"""The `tinyrl` command as a user types it, in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from importlib import metadata
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from tinyrl import cli

COMMANDS = [["run"], ["lab", "check"], ["lab", "doctor"], ["diagnose"], ["explain"]]


def tinyrl(
    *args: str, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", "from tinyrl.cli import main; main()", *args],
        env={**os.environ, **(env or {})},
        capture_output=True,
        text=True,
    )


def test_the_installed_command_is_this_one() -> None:
    (entry,) = metadata.entry_points(group="console_scripts", name="tinyrl")
    assert entry.load() is cli.main


def test_version_is_the_installed_one() -> None:
    done = tinyrl("--version")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"tinyrl {metadata.version('tinyrl')}\n"


def test_the_module_runs_as_the_command_does() -> None:
    how = [sys.executable, "-m", "tinyrl.cli", "--version"]
    done = subprocess.run(how, capture_output=True, text=True)
    assert done.stdout == tinyrl("--version").stdout


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_is_listed_and_explains_itself(command: list[str]) -> None:
    *group, name = command
    assert name in tinyrl(*group, "--help").stdout
    helped = tinyrl(*command, "--help")
    assert (helped.returncode, helped.stderr) == (0, "")
    assert "Usage: " in helped.stdout


@pytest.mark.parametrize("group", [[], ["lab"]], ids=str)
def test_no_summary_is_cut(group: list[str]) -> None:
    assert (
        "..."
        not in tinyrl(*group, "--help", env={"COLUMNS": "80"}).stdout.split("Commands:")[1]
    )


def test_help_takes_at_most_twice_the_imports_of_typer_and_rich() -> None:
    """The smallest of ten, taken by turns, so that a busy machine slows both alike."""

    def seconds(*command: str) -> float:
        start = time.perf_counter()
        subprocess.run([sys.executable, *command], check=True, capture_output=True)
        return time.perf_counter() - start

    help_command = ("-c", "from tinyrl.cli import main; main()", "--help")
    pairs = [
        (seconds(*help_command), seconds("-c", "import typer, rich")) for _ in range(10)
    ]
    shown, imports = (min(column) for column in zip(*pairs, strict=True))
    assert shown <= 2 * imports, f"--help {shown:.3f} s, imports {imports:.3f} s"


def test_help_imports_nothing_that_computes() -> None:
    code = (
        "import sys; from tinyrl.cli import main\ntry: main()\nexcept SystemExit: pass\n"
        "print([m for m in ('torch', 'numpy', 'nbclient', 'rich') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "--help"], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize("command", COMMANDS[:3], ids=" ".join)
def test_a_missing_extra_is_one_line_with_the_way_to_get_it(
    command: list[str], tmp_path: Path
) -> None:
    """As if jupyter and the like were not installed, which a plain install leaves out."""
    for name in ("nbclient", "nbformat", "jupytext", "psutil"):
        (tmp_path / f"{name}.py").write_text(
            f"raise ModuleNotFoundError('No module named {name}', name='{name}')"
        )
    done = tinyrl(*command, "lab01_two_policies", env={"PYTHONPATH": str(tmp_path)})
    assert done.returncode == 2, done.stderr
    (line,) = done.stderr.splitlines()
    assert "which is not installed" in line
    assert "python -m pip install -e '.[lab]'" in line


def test_our_own_missing_module_is_no_missing_extra(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken() -> None:
        raise ModuleNotFoundError("No module named 'tinyrl.gone'", name="tinyrl.gone")

    monkeypatch.setattr(cli, "app", broken)
    with pytest.raises(ModuleNotFoundError, match="gone"):
        cli.main()


@pytest.mark.parametrize(
    "args", [["diagnose"], ["lab", "check"], ["nonsense"], ["run", "-x"]]
)
def test_a_mistyped_command_is_told_and_exits_2(args: list[str]) -> None:
    done = CliRunner().invoke(cli.app, args)
    assert done.exit_code == 2
    assert "Usage:" in done.output
    assert "Traceback" not in done.output


def test_a_terminal_that_knows_little_is_no_error(tmp_path: Path) -> None:
    (notebook := tmp_path / "é.py").write_text("# %%\n1 / 0  # ✗ 中\n", "utf-8")
    for name in ("é.npy", "ê.npy"):
        np.save(tmp_path / name, np.full((8, 8), -1.0 - (name == "é.npy")))
    files = [str(tmp_path / name) for name in ("é.npy", "ê.npy")]
    plain = {"PYTHONIOENCODING": "ascii"}
    ran = tinyrl("run", str(notebook), "--output", str(tmp_path), env=plain)
    assert (ran.returncode, ran.stderr) == (1, "")
    assert ran.stdout.startswith("x ")
    compared = tinyrl("diagnose", *files, env=plain)
    assert (compared.returncode, compared.stderr) == (0, "")
    assert "?.npy (rollout)" in compared.stdout


def test_checks_speak_the_language_that_is_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TINYRL_LANG", "en")
    told = {}
    for lang in ("en", "zh"):
        done = CliRunner().invoke(cli.app, ["lab", "check", "lab01", "--lang", lang])
        assert done.exit_code == 1
        told[lang] = done.output
    assert "is not written yet" in told["en"]
    assert "还没有写" in told["zh"]
    refused = CliRunner().invoke(cli.app, ["lab", "check", "lab01", "--lang", "fr"])
    assert refused.exit_code == 2
    assert "neither en nor zh" in refused.output
