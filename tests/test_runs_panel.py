"""The compare-runs panel: it trains what the library would, can be stopped, and says so."""

from __future__ import annotations

import asyncio
import base64
import math
from dataclasses import replace

import pytest
import torch

from tinyrl.checkpoints import load as checkpoint
from tinyrl.correction import Correction
from tinyrl.course import live
from tinyrl.course.panels import runs_panel
from tinyrl.course.panels.run_plots import (
    LOWEST,
    RunsFigure,
    plot_runs,
    spread_of,
    trailing,
)
from tinyrl.course.panels.run_table import rows, told
from tinyrl.course.panels.runs_panel import DEFAULT, STACKS, RunsPanel
from tinyrl.objectives import LossView
from tinyrl.recipe import Recipe
from tinyrl.runs import OBJECTIVES, Settings
from tinyrl.sweeps import Runs, curves, experiment, paired, sampled, spread, trained
from tinyrl.tasks import CumSum

TASK, MODEL = CumSum(), checkpoint("sft")
BASE = Settings(steps=3, recipe=Recipe(groups=2, group_size=4), prompts=16)
STALE = replace(BASE, staleness=4, rollout_stack=STACKS["int4_weights"])


def made(**how: object) -> RunsPanel:
    return RunsPanel(MODEL, TASK, **{"base": BASE, "seeds": 2} | how)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def runs() -> Runs:
    return experiment(MODEL, TASK, {"a": BASE, "b": STALE}, [0, 1])


def choose(p: RunsPanel, **values: object) -> None:
    for name, value in values.items():
        getattr(p, name).value = value


def test_it_trains_what_the_library_trains(runs: Runs) -> None:
    p = made()
    p.run()
    choose(p, rollout="int4_weights", stale=4)
    p.run()
    first, second = p.arms
    assert first == DEFAULT
    assert second == f"{DEFAULT}; int4_weights; 4 steps stale; old: recomputed"
    assert p.arms[first] == runs["a"]
    assert p.arms[second] == runs["b"]
    assert p.error.value == ""


@pytest.mark.parametrize("name", OBJECTIVES)
def test_every_objective_can_be_chosen_and_runs(name: str) -> None:
    p = made(base=replace(BASE, steps=1), seeds=1)
    choose(p, objective=name)
    assert p.settings().objective == name
    p.run()
    assert p.error.value == ""
    assert p.arms[name][0].done


def test_every_control_is_in_the_settings() -> None:
    p = made()
    assert p.settings() == BASE
    for change, expected in (
        ({"correction": "token, masked outside 0.5 to 2"},
         replace(BASE, correction=Correction("token", "mask", 0.5, 2.0))),
        ({"anchor": "rollout"}, replace(BASE, view=LossView("rollout"))),
        ({"rollout": "temperature 1.5"},
         replace(BASE, rollout_stack=STACKS["temperature 1.5"])),
        ({"stale": 5}, replace(BASE, staleness=5)),
    ):  # fmt: skip
        (name,) = change
        before = getattr(p, name).value
        choose(p, **change)
        assert p.settings() == expected
        choose(p, **{name: before})
    odd = replace(BASE, correction=Correction("geometric", "mask", 0.7, 1.2), staleness=30)
    assert made(base=odd).settings() == odd


def test_an_arm_that_is_done_is_not_trained_again(runs: Runs, monkeypatch) -> None:
    p = made(runs=runs)
    begun = []
    real = runs_panel.begin
    monkeypatch.setattr(runs_panel, "begin", lambda *a: begun.append(a[2].seed) or real(*a))
    p.run()
    assert begun == []
    assert p.arms == runs
    choose(p, seeds=3)
    p.run()
    assert begun == [2]
    assert [run.settings.seed for run in p.arms["a"]] == [0, 1, 2]
    assert p.arms["a"][:2] == runs["a"]
    assert len(runs["a"]) == 2  # what it was given is not changed


def test_the_numbers_are_the_librarys(runs: Runs) -> None:
    first, second = rows(runs)
    assert first[:2] == ["a", "2/2"]
    for cells, arm in ((first, "a"), (second, "b")):
        for cell, of in zip(cells[2:4], (trained, sampled), strict=True):
            seen = spread(runs[arm], of)
            assert cell == f"{seen.mean:.3f} ± {seen.sd:.3f}"
    gap = paired(runs["b"], runs["a"])
    assert first[4] == "–"
    assert second[4] == f"{gap.mean:+.3f}, above in {gap.above} of 2"
    p = made(runs=runs)
    for cell in (*first, *second):
        assert f">{cell}</td>" in p.table.value
    begun = replace(runs["a"][0], steps=())
    assert list(rows({"c": [begun]})) == [["c", "0/1", "–", "–", "–"]]


def test_the_picture_shows_the_runs(runs: Runs) -> None:
    figure = RunsFigure(3)
    empty = figure.png({})
    assert figure.png(runs) != empty
    for arm, shown in zip(runs.values(), figure.arms, strict=False):
        reward = torch.stack([run.series("reward") for run in arm])
        mean = torch.stack([reward[:, : t + 1].mean(1) for t in range(3)], 1)
        k3 = torch.stack([run.series("mismatch.k3") for run in arm]).clamp(min=LOWEST)
        for line, band, values in zip(shown.lines, shown.bands, (mean, k3), strict=True):
            assert line.get_xdata() == [1, 2, 3]
            assert line.get_ydata() == pytest.approx(values.mean(0).tolist())
            low, high = values.amin(0).tolist(), values.amax(0).tolist()
            outline = [*zip((1, 2, 3), low), *zip((3, 2, 1), high[::-1])]  # noqa: B905
            assert band.get_xy()[:6] == pytest.approx(torch.tensor(outline).numpy())
        for marks, side in zip(shown.rates, ("train", "rollout"), strict=True):
            ends = [getattr(run.final, side) for run in arm]
            assert list(marks.get_ydata()) == ends
    assert figure.png({}) == empty  # one setting, one picture
    with pytest.raises(ValueError, match="7 arms: more than 6 look alike"):
        figure.png({str(i): runs["a"] for i in range(7)})


def test_running_means_and_spread_of_runs_that_differ_in_length() -> None:
    x = torch.tensor([[1.0, 2, 6, 4], [3, 5, math.nan, math.nan]], dtype=torch.float64)
    two = trailing(x, 2)
    assert two[0].tolist() == [1, 1.5, 4, 5]
    assert two[1, :2].tolist() == [3, 4]
    low, mean, high = spread_of(two)
    assert low.tolist() == [1, 1.5, 4, 5]
    assert mean.tolist() == [2, 2.75, 4, 5]
    assert high.tolist() == [3, 4, 4, 5]


def test_a_notebook_can_draw_them_too(runs: Runs) -> None:
    from matplotlib.figure import Figure

    axes = Figure().subplots()
    plot_runs(axes, runs, "mismatch.k3", window=1)
    for line, arm in zip(axes.get_lines(), runs, strict=True):
        assert line.get_label() == arm
        expected = curves(runs[arm], "mismatch.k3").mean(0)
        assert list(line.get_ydata()) == pytest.approx(expected.tolist())
    assert len(axes.collections) == 2


def test_others_get_their_turn_and_cancel_stops_between_steps(runs: Runs) -> None:
    """In an event loop, as in a kernel: what was done stays, and run goes on from there."""
    p, turns = made(), []

    async def learner() -> None:
        p.run()
        assert p.training
        p.run()  # a second press does nothing
        while not (p.arms and any(len(r.steps) == 2 for r in p.arms[DEFAULT])):
            turns.append((p.run_button.disabled, p.cancel_button.disabled))
            await asyncio.sleep(0)
        assert "seed 0: step 2 of 3" in p.status.value
        p.cancel()
        while p.training:
            await asyncio.sleep(0)

    asyncio.run(learner())
    assert len(turns) >= 2
    assert turns[-1] == (True, False)
    (partial,) = p.arms[DEFAULT]
    assert 2 <= len(partial.steps) < 3
    assert partial.steps == runs["a"][0].steps[:2]
    assert "run goes on from there" in p.status.value
    assert (p.run_button.disabled, p.cancel_button.disabled) == (False, True)
    assert ">0/1</td>" in p.table.value
    p.run()
    assert p.arms[DEFAULT] == runs["a"]
    assert p.status.value == ""


def test_an_error_is_shown_and_leaves_no_arm(runs: Runs) -> None:
    p = made(runs=runs)
    choose(p, anchor="rollout", correction="token, truncated at 2")
    picture = p.image.value
    p.run()
    assert "truncating would count it twice" in p.error.value
    assert "ValueError" not in p.error.value
    assert p.arms == runs
    assert p.image.value == picture
    assert not p.run_button.disabled
    choose(p, correction="none")
    p.run()
    assert p.error.value == ""
    assert len(p.arms) == 3


def test_an_error_in_the_middle_keeps_what_was_done(monkeypatch) -> None:
    p = made()
    real, left = runs_panel.advance, [2]

    def broken(*args):
        for run in real(*args):
            left[0] -= 1
            if left[0] < 0:
                raise ZeroDivisionError("boom")
            yield run

    monkeypatch.setattr(runs_panel, "advance", broken)
    p.run()
    assert "<b>ZeroDivisionError</b>: boom" in p.error.value
    assert [len(run.steps) for run in p.arms[DEFAULT]] == [2]


def test_six_arms_are_enough_and_clear_forgets_them(runs: Runs) -> None:
    p = made(runs={str(i): runs["b"] for i in range(6)})
    p.run()
    assert "6 arms are as many as one picture holds" in p.error.value
    p.clear()
    assert (p.arms, p.error.value, p.table.value) == ({}, "", "")
    assert p.image.value == made().image.value


def test_clear_takes_what_was_added_first(runs: Runs) -> None:
    p = made(runs=runs, seeds=1)
    choose(p, objective="gspo")
    p.run()
    assert list(p.arms) == ["a", "b", "gspo"]
    p.clear()
    assert p.arms == runs
    p.clear()
    assert p.arms == {}


def test_an_arm_that_is_trained_is_said_to_be(runs: Runs) -> None:
    p = made(runs=runs)
    p.run()
    assert "a is trained on 2 seeds already" in p.status.value
    assert p.arms == runs


def test_two_arms_may_differ_in_what_no_control_shows(runs: Runs) -> None:
    other = experiment(MODEL, TASK, {DEFAULT: replace(BASE, prompts=8)}, [0])
    p = made(runs=other, seeds=1)
    p.run()
    assert list(p.arms) == [DEFAULT, DEFAULT + "'"]
    assert p.arms[DEFAULT + "'"] == runs["a"][:1]


def test_training_leaves_the_model_alone() -> None:
    model = checkpoint("sft")
    p = RunsPanel(model, TASK, base=BASE, seeds=1)
    p.run()
    pairs = zip(model.parameters(), MODEL.parameters(), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)


@pytest.mark.parametrize("some", [True, False])
def test_readers_without_a_kernel_get_picture_and_numbers(
    runs: Runs, some: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = []
    monkeypatch.setattr(live, "display", lambda data, **more: shown.append((data, more)))
    p = made(runs=runs if some else None)
    p._ipython_display_()
    (static, more), _, (controls, _) = shown
    assert base64.b64decode(static["image/png"]) == p.image.value
    assert static["text/plain"] == ("\n".join(told(runs)) if some else runs_panel.NONE.en)
    assert more["metadata"]["image/png"]["alt"] == static["text/plain"]
    assert "run this cell" in controls["text/plain"]


def test_cancelled_before_it_began_it_can_begin_again(runs: Runs) -> None:
    p = made()

    async def learner() -> None:
        p.run()
        p.cancel()
        await asyncio.sleep(0)
        assert not p.training
        assert p.arms == {}
        p.run()
        while p.training:
            await asyncio.sleep(0)

    asyncio.run(learner())
    assert p.arms[DEFAULT] == runs["a"]
