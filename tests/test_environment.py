"""Advice about the learner's machine: each check is shown machines that it must judge."""

from __future__ import annotations

from pathlib import Path

import pytest

from tinyrl.course import environment as env
from tinyrl.course.environment import Finding, Survey
from tinyrl.course.words import Words

FINE = Finding(Words(en="A", zh="甲"), "1")
POOR = Finding(Words(en="B", zh="乙"), "2", Words(en="do this", zh="这样做"))
BROKEN = Finding(Words(en="C", zh="丙"), "3", Words(en="do that", zh="那样做"), blocks=True)


@pytest.mark.parametrize(
    ("version", "good"),
    [((3, 11, 0), True), ((3, 14), True), ((3, 10, 9), False), ((2, 7), False)],
)
def test_python(version: tuple[int, ...], good: bool) -> None:
    finding = env.check_python(version)
    assert finding.blocks is not good
    assert (finding.advice is None) is good
    assert finding.value == ".".join(map(str, version))


def test_kernel_of_the_system_gets_advice_but_does_not_block() -> None:
    assert env.check_kernel("/usr/bin/python3", True, {}).advice is None
    assert (
        env.check_kernel("/opt/c/bin/python", False, {"CONDA_PREFIX": "/opt/c"}).advice
        is None
    )
    system = env.check_kernel("/usr/bin/python3", False, {})
    assert "make lab" in str(system.advice)
    assert not system.blocks


def test_library_of_another_clone_is_noticed(tmp_path: Path) -> None:
    here, other = tmp_path / "here", tmp_path / "other"
    (here / "notebooks").mkdir(parents=True)
    assert env.check_library(other / "src/tinyrl", here / "notebooks").advice is None
    (here / "syllabus.yml").touch()
    assert env.check_library(here / "src/tinyrl", here / "notebooks").advice is None
    finding = env.check_library(other / "src/tinyrl", here / "notebooks")
    assert str(here) in str(finding.advice)


def test_packages_missing_and_too_old() -> None:
    versions = {"torch": "2.6.0", "numpy": "1.26.4", "jinja2": "3.1.dev1"}
    needed = ["torch>=2.6", "jinja2"]
    fine = env.check_packages(needed, versions.get)
    assert (fine.value, fine.advice, fine.blocks) == ("2 of 2", None, False)
    poor = env.check_packages([*needed, "numpy>=2.0", "rich"], versions.get)
    assert poor.value == "numpy 1.26.4 (need >=2.0); rich is missing"
    assert poor.blocks


@pytest.mark.parametrize(
    ("cores", "threads", "best"),
    [(2, 2, None), (2, 1, None), (0.5, 1, None), (2, 64, 2), (1.5, 4, 1), (0.5, 2, 1)],
)
def test_threads(cores: float, threads: int, best: int | None) -> None:
    finding = env.check_threads(cores, threads)
    if best is None:
        assert finding.advice is None
    else:
        assert f"OMP_NUM_THREADS={best} " in finding.advice.en
        assert not finding.blocks


def test_memory() -> None:
    assert env.check_memory(2 * 2**30).advice is None
    assert "0.5 GiB" in env.check_memory(2**29).value
    assert env.check_memory(2**29).advice is not None


def test_a_gpu_is_told_and_not_needed() -> None:
    assert "CUDA" in env.check_accelerator(True).value
    assert env.check_accelerator(False).advice is None


def test_a_containers_quota_counts(tmp_path: Path) -> None:
    quota = tmp_path / "cpu.max"
    machine = env.usable_cores(quota)
    assert machine >= 1
    quota.write_text("max 100000\n")
    assert env.usable_cores(quota) == machine
    quota.write_text("50000 100000\n")
    assert env.usable_cores(quota) == 0.5


def test_a_containers_memory_limit_counts(tmp_path: Path) -> None:
    machine = env.free_memory(tmp_path)
    assert machine > 2**20
    (tmp_path / "memory.max").write_text("max\n")
    (tmp_path / "memory.current").write_text("1000000\n")
    assert env.free_memory(tmp_path) > 2**20
    (tmp_path / "memory.max").write_text("3000000\n")
    assert env.free_memory(tmp_path) == 2_000_000


@pytest.mark.parametrize(
    ("findings", "ready", "marks"),
    [
        ((FINE,), True, "✓"),
        ((FINE, POOR), True, "✓!"),
        ((FINE, POOR, BROKEN), False, "✓!✗"),
    ],
)
def test_a_survey_shows_every_finding_and_a_verdict(
    findings: tuple[Finding, ...], ready: bool, marks: str
) -> None:
    survey = Survey(findings)
    assert survey.ready is ready
    for shown in (str(survey), survey._repr_html_()):
        for finding, mark in zip(findings, marks, strict=True):
            assert mark in shown
            assert finding.value in shown
            assert finding.advice is None or str(finding.advice) in shown
        assert ("Not ready" in shown) is not ready


def test_html_is_escaped() -> None:
    assert (
        "<lambda>"
        not in Survey([Finding(Words(en="A", zh="甲"), "<lambda>")])._repr_html_()
    )


def test_this_machine_can_run_the_course() -> None:
    survey = env.survey()
    assert len(survey) == 7
    assert survey.ready, str(survey)
    assert any(requirement.startswith("torch") for requirement in env.required())
    assert not any(requirement.startswith("hypothesis") for requirement in env.required())
