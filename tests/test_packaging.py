"""One pinned set is installed, everywhere the same; the wheel holds what it needs."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from importlib import metadata
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def pins() -> list[Requirement]:
    lines = (ROOT / "requirements.lock").read_text().splitlines()
    return [Requirement(line) for line in lines if not line.lstrip().startswith("#")]


def asked() -> list[Requirement]:
    groups = [PROJECT["dependencies"], *PROJECT["optional-dependencies"].values()]
    return [Requirement(line) for group in groups for line in group]


def test_every_dependency_is_pinned_on_every_platform() -> None:
    everywhere = {canonicalize_name(p.name): p for p in pins() if p.marker is None}
    for wanted in asked():
        pin = everywhere.get(canonicalize_name(wanted.name))
        assert pin is not None, f"{wanted} is not in requirements.lock: run `make lock`"
        version = next(iter(pin.specifier)).version
        assert wanted.specifier.contains(version), f"{pin} is not {wanted}"


def test_the_lock_serves_every_platform_and_says_how_it_is_made() -> None:
    assert "make lock" in (ROOT / "requirements.lock").read_text().partition("==")[0]
    for pin in pins():
        (specifier,) = pin.specifier
        assert specifier.operator == "==", pin
        assert "+" not in specifier.version, f"{pin} is a build of one platform"
        assert not pin.url, pin
    for platform, name in [("darwin", "appnope"), ("win32", "pywinpty")]:
        (pin,) = [p for p in pins() if p.name == name]
        here = {
            "sys_platform": platform,
            "os_name": "nt" if platform == "win32" else "posix",
        }
        assert pin.marker is not None
        assert pin.marker.evaluate(here), f"{name} is not pinned for {platform}"


def test_this_environment_is_the_pinned_set() -> None:
    wrong = []
    for pin in pins():
        if pin.marker is not None and not pin.marker.evaluate():
            continue
        try:
            here = Version(metadata.version(pin.name)).public
        except metadata.PackageNotFoundError:
            continue  # torch's CUDA libraries, where its CPU build is installed
        if not pin.specifier.contains(here):
            wrong.append(f"{pin.name} is {here}, pinned {pin.specifier}")
    assert not wrong, f"run `make lab` or `make test`, not pip: {wrong}"


def test_every_way_in_is_the_same_pinned_set() -> None:
    conda = yaml.safe_load((ROOT / "environment.yml").read_text())
    makefile = (ROOT / "Makefile").read_text()
    (by_pip,) = [d["pip"] for d in conda["dependencies"] if isinstance(d, dict)]
    assert by_pip == ["-c requirements.lock", "-e .[lab,dev]"]
    assert "-c requirements.lock -e '.[lab,dev]'" in makefile
    assert (
        f"JUPYTER_CONFIG_PATH := $(CURDIR)/{conda['variables']['JUPYTER_CONFIG_PATH']}"
        in (makefile)
    )


def test_every_way_in_takes_the_same_pythons() -> None:
    conda = yaml.safe_load((ROOT / "environment.yml").read_text())
    (python,) = [d for d in conda["dependencies"] if str(d).startswith("python>")]
    low, high = re.search(
        r"\((\d+, \d+)\) <= sys.version_info\[:2\] <= \((\d+, \d+)\)",
        (ROOT / "Makefile").read_text(),
    ).groups()
    low, high = low.replace(", ", "."), high.replace(", ", ".")
    assert PROJECT["requires-python"] == f">={low}"
    allowed = SpecifierSet(python.removeprefix("python"))
    for minor in range(8, 20):
        inside = Version(low) <= Version(f"3.{minor}") <= Version(high)
        assert allowed.contains(f"3.{minor}") == inside, f"3.{minor}"


# A python that writes down what it is asked, and "makes" a venv by copying itself.
RECORDER = """#!/bin/sh
echo "$@" >> "{log}"
case "$*" in
  "-m venv --clear .venv") rm -rf .venv; mkdir -p .venv/bin; cp "$0" .venv/bin/python ;;
  --version) echo "Python 3.9.18" ;;
  -c*) exit {too_old} ;;
esac
"""


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A folder with what `make` needs, whose python only records."""
    folder = tmp_path / "my clone"
    folder.mkdir()
    for name in ("Makefile", "pyproject.toml", "requirements.lock"):
        shutil.copy(ROOT / name, folder)
    _recorder(folder, too_old=0)
    return folder


def _recorder(folder: Path, too_old: int) -> None:
    python = folder / "python3"
    python.write_text(RECORDER.format(log=folder.parent / "log", too_old=too_old))
    python.chmod(0o755)


def _make(folder: Path, *args: str, python: str = "./python3") -> tuple[list[str], str]:
    """What the recording python was asked to do, and what the user read."""
    log = folder.parent / "log"
    log.write_text("")
    env = {k: v for k, v in os.environ.items() if not k.startswith(("MAKE", "MFLAGS"))}
    done = subprocess.run(
        ["make", *args, f"PYTHON={python}"],
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
    )
    asked = [line for line in log.read_text().splitlines() if line.startswith("-m")]
    return asked, done.stderr


INSTALL = (
    "-m pip install --disable-pip-version-check --no-compile -c requirements.lock "
    "-e .[lab,dev]"
)
VENV = "-m venv --clear .venv"
LAB = "-m jupyterlab --no-browser"


def test_make_installs_once_and_again_only_when_it_must(clone: Path) -> None:
    lab = ("lab", "ARGS=--no-browser")
    assert _make(clone, *lab)[0] == [VENV, INSTALL, LAB]
    assert _make(clone, *lab)[0] == [LAB]
    later = (clone / "requirements.lock").stat().st_mtime + 10
    os.utime(clone / "requirements.lock", (later, later))
    assert _make(clone, *lab)[0] == [INSTALL, LAB]
    stamp = next((clone / ".venv").glob("installed-*"))
    os.utime(stamp, (later + 1, later + 1))
    assert _make(clone, *lab)[0] == [LAB]
    (clone / ".venv/bin/python").unlink()  # the python under it was removed
    assert _make(clone, *lab)[0] == [VENV, INSTALL, LAB]
    moved = clone.rename(clone.parent / "moved")
    assert _make(moved, *lab)[0] == [VENV, INSTALL, LAB]


@pytest.mark.parametrize("python", ["./python3", "./no-such-python"])
def test_make_says_which_python_it_needs(clone: Path, python: str) -> None:
    _recorder(clone, too_old=1)
    asked, said = _make(clone, "lab", python=python)
    assert asked == []
    assert "tinyrl needs Python 3.11 to 3.14" in said
    assert "make lab PYTHON=" in said
    assert "3.9.18" in said or python == "./no-such-python"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The unpacked wheel, built from a copy of the sources."""
    folder = tmp_path_factory.mktemp("wheel")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder)
    shutil.copytree(
        ROOT / "src", folder / "src", ignore=shutil.ignore_patterns("*.egg-info")
    )
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", "."]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    (built,) = folder.glob("*.whl")
    with zipfile.ZipFile(built) as file:
        file.extractall(folder / "unpacked")
    return folder / "unpacked"


def test_the_wheel_holds_the_whole_package_and_nothing_else(wheel: Path) -> None:
    def files(folder: Path) -> set[Path]:
        found = {p.relative_to(folder) for p in folder.rglob("*") if p.is_file()}
        return {p for p in found if p.suffix != ".pyc" and ".part" not in p.suffix}

    assert files(wheel / "tinyrl") == files(ROOT / "src/tinyrl")
    others = {p.name for p in wheel.iterdir()} - {"tinyrl"}
    assert len(others) == 1, others
    (info,) = (wheel / name for name in others)
    assert (info / "licenses/LICENSE").read_text().strip().startswith("Apache License")
    assert "tinyrl = tinyrl.cli:main" in (info / "entry_points.txt").read_text()


def test_the_wheel_works_away_from_the_clone(wheel: Path, tmp_path: Path) -> None:
    code = "import tinyrl, tinyrl.checkpoints as c; c.load('sft'); print(tinyrl.__file__)"
    env = {**os.environ, "PYTHONPATH": str(wheel)}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=env, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str(wheel / "tinyrl/__init__.py")
