"""The compare-runs panel in Chinese, and while nothing runs."""

from __future__ import annotations

import pytest

from test_runs_panel import made, runs  # noqa: F401
from tinyrl.course.panels import runs_panel
from tinyrl.course.panels.run_words import in_words
from tinyrl.sweeps import Runs


def test_it_speaks_chinese(
    runs: Runs,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    english = made(runs=runs)
    monkeypatch.setenv("TINYRL_LANG", "zh")
    p = made(runs=runs)
    assert (p.objective.description, p.run_button.description) == ("目标函数", "运行")
    assert "token 级，截断于 2" in [label for label, _ in p.correction.options]
    assert p.correction.value == english.correction.value
    arm = "grpo; temperature 1.5; 3 steps stale; old: recomputed; sequence, masked above 2"
    assert in_words(arm) == (
        "grpo；温度 1.5；滞后 3 步；旧 logprob：重算；序列级，大于 2 屏蔽"
    )
    assert "训练端" in p.table.value
    assert p.image.value == english.image.value


def test_no_choice_of_a_menu_stays_english(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TINYRL_LANG", "zh")
    choices = (*runs_panel.CORRECTIONS, runs_panel.DEFAULT, runs_panel.GIVEN)
    assert [x for x in choices if in_words(x) == x] == []


def test_an_idle_panel_shows_no_empty_bar() -> None:
    p = made()
    assert p.bar.layout.display == "none"
    seen = []
    p.bar.observe(lambda _: seen.append(p.bar.layout.display), "value")
    p.run()
    assert seen[0] == "flex"
    assert p.bar.layout.display == "none"
