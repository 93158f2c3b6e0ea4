"""Arms and seeds: what is run, what is kept, and what a comparison says."""

from __future__ import annotations

import statistics
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tinyrl import runs, sweeps
from tinyrl.checkpoints import load as checkpoint
from tinyrl.correction import Correction
from tinyrl.recipe import Recipe
from tinyrl.runs import Run, Settings, advance, begin, evaluate, load
from tinyrl.stack import PRESETS
from tinyrl.sweeps import curves, experiment, paired, sampled, spread, sweep, trained
from tinyrl.tasks import CumSum

TASK = CumSum()
BASE = Settings(steps=3, recipe=Recipe(groups=2, group_size=4), prompts=16)
ARMS = {
    "on-policy": BASE,
    "stale, masked": replace(BASE, staleness=1, correction=Correction("token", "mask")),
}


def alone(settings: Settings, seed: int) -> Run:
    """The run by itself."""
    first = begin(checkpoint("sft"), TASK, replace(settings, seed=seed))
    return [first, *advance(first, TASK)][-1]


def test_every_arm_on_every_seed_is_the_run_by_itself() -> None:
    model = checkpoint("sft")
    before = {name: w.clone() for name, w in model.state_dict().items()}
    runs = experiment(model, TASK, ARMS, [4, 1])
    assert list(runs) == list(ARMS)
    for arm, settings in ARMS.items():
        assert [run.settings.seed for run in runs[arm]] == [4, 1]
        assert runs[arm] == [alone(settings, 4), alone(settings, 1)]
    assert all(torch.equal(before[name], w) for name, w in model.state_dict().items())


def test_arms_with_equal_stacks_are_evaluated_once_before_they_begin(monkeypatch) -> None:
    seen = []

    def counted(trainer, settings):
        seen.append(settings.seed)
        return evaluate(trainer, settings)

    monkeypatch.setattr(runs, "evaluate", counted)
    other = replace(BASE, steps=0, rollout_stack=PRESETS["int4_weights"])
    arms = {"a": replace(BASE, steps=0), "b": replace(BASE, steps=0, staleness=2)}
    found = experiment(checkpoint("sft"), TASK, arms | {"other": other}, [3, 4])
    assert seen == [3, 3, 4, 4]
    for name, some in found.items():
        for run in some:
            settings = replace({**arms, "other": other}[name], seed=run.settings.seed)
            assert run == begin(checkpoint("sft"), TASK, settings)


def test_seed_by_seed_so_that_what_is_there_can_be_compared() -> None:
    seen = [
        (arm, run.settings.seed, len(run.steps))
        for arm, run in sweep(checkpoint("sft"), TASK, ARMS, [0, 1])
    ]
    assert seen == [(arm, seed, n) for seed in (0, 1) for arm in ARMS for n in range(4)]


def interrupt_after(monkeypatch: pytest.MonkeyPatch, steps: int) -> None:
    """The learner presses stop in the middle of a step."""
    real, left = sweeps.advance, [steps]

    def advance(run, task, path=None):
        for grown in real(run, task, path):
            if not left[0]:
                raise KeyboardInterrupt
            left[0] -= 1
            yield grown

    monkeypatch.setattr(sweeps, "advance", advance)


def test_an_interrupt_keeps_what_was_done(monkeypatch, capsys) -> None:
    interrupt_after(monkeypatch, 8)
    runs = experiment(checkpoint("sft"), TASK, ARMS, [0, 1])
    assert [len(run.steps) for run in runs["on-policy"]] == [3, 2]
    assert [len(run.steps) for run in runs["stale, masked"]] == [3]
    assert [run.done for run in runs["on-policy"]] == [True, False]
    assert runs["stale, masked"] == [alone(ARMS["stale, masked"], 0)]
    assert "interrupted: 8 of 12 steps are there" in capsys.readouterr().out
    # what is there can be compared, and what isn't is not taken for an end
    assert paired(runs["stale, masked"], runs["on-policy"]).values.keys() == {0}
    with pytest.raises(ValueError, match="seed 1 has taken 2 of 3 steps"):
        spread(runs["on-policy"])


def test_what_was_interrupted_goes_on_from_its_folder(monkeypatch, tmp_path: Path) -> None:
    with monkeypatch.context() as patch:
        interrupt_after(patch, 8)
        experiment(checkpoint("sft"), TASK, ARMS, [0, 1], tmp_path)
    files = {"on-policy-0.run", "on-policy-1.run", "stale-masked-0.run"}
    assert {p.name for p in tmp_path.iterdir()} == files
    taken = []
    monkeypatch.setattr(
        sweeps, "advance", lambda run, *a: taken.append(len(run.steps)) or advance(run, *a)
    )
    runs = experiment(checkpoint("sft"), TASK, ARMS, [0, 1], tmp_path)
    assert taken == [3, 3, 3, 0]  # the third step of seed 1 was written before the stop
    assert runs == experiment(checkpoint("sft"), TASK, ARMS, [0, 1])
    assert load(tmp_path / "stale-masked-1.run") == runs["stale, masked"][1]


def test_a_file_of_another_run_is_not_taken_up(tmp_path: Path) -> None:
    one = {"a": replace(BASE, steps=1)}
    experiment(checkpoint("sft"), TASK, one, [0], tmp_path)
    other = {"a": replace(BASE, steps=1, staleness=1, prompts=8)}
    with pytest.raises(
        ValueError, match=r"a-0\.run holds a run with other settings: staleness, prompts"
    ):
        experiment(checkpoint("sft"), TASK, other, [0], tmp_path)
    moved = checkpoint("sft")
    with torch.no_grad():
        moved.norm.weight[0] += 1
    with pytest.raises(ValueError, match=r"a-0\.run .* began with other weights"):
        experiment(moved, TASK, one, [0], tmp_path)


@pytest.mark.parametrize(
    ("arms", "seeds", "message"),
    [
        ({}, [0], "arms and seeds need one entry at least"),
        (ARMS, [], "arms and seeds need one entry at least"),
        (ARMS, [1, 2, 1], r"seeds must differ, not \[1, 2, 1\]"),
        ({"a b": BASE, "a-b": BASE}, [0], "files would have the same name"),
    ],
)
def test_what_cannot_be_swept_is_named(arms, seeds, message) -> None:
    with pytest.raises(ValueError, match=message):
        list(sweep(checkpoint("sft"), TASK, arms, seeds))


def ended(seed: int, train: float, rollout: float = 0.0) -> Run:
    """A run with this end."""
    run = alone(replace(BASE, steps=0), seed)
    end = replace(run.evaluations[0], train=train, rollout=rollout)
    return replace(run, evaluations=(end,))


def test_spread_and_paired_differences() -> None:
    a = [ended(0, 0.9, 0.8), ended(1, 0.6, 0.1), ended(2, 0.5, 0.2)]
    b = [ended(2, 0.55), ended(0, 0.7), ended(7, 0.0)]
    s = spread(a)
    assert s.values == {0: 0.9, 1: 0.6, 2: 0.5}
    assert s.mean == pytest.approx(2 / 3)
    assert s.sd == pytest.approx(statistics.stdev([0.9, 0.6, 0.5]))
    assert str(s) == "0.667 ± 0.208 (3 seeds)"
    assert spread(a, sampled).values == {0: 0.8, 1: 0.1, 2: 0.2}
    gap = paired(a, b)
    assert gap.values == pytest.approx({0: 0.2, 2: -0.05})
    assert (gap.above, len(gap.values)) == (1, 2)
    assert paired(b, a).mean == pytest.approx(-gap.mean)
    assert str(spread(a[:1])) == "0.900 ± nan (1 seed)"
    assert spread(a, trained).values == s.values


def test_only_what_belongs_together_is_compared() -> None:
    a = ended(0, 0.5)
    with pytest.raises(ValueError, match=r"no seed in common: \[0\] and \[1\]"):
        paired([a], [ended(1, 0.5)])
    with pytest.raises(ValueError, match="seed 0 began with different weights"):
        paired([a], [replace(a, start="another")])
    with pytest.raises(ValueError, match="two runs of an arm have the same seed"):
        spread([a, a])


def test_curves_are_series_side_by_side() -> None:
    runs = [alone(BASE, 0), begin(checkpoint("sft"), TASK, replace(BASE, seed=1))]
    runs[1] = next(advance(runs[1], TASK))
    found = curves(runs, "mismatch.mean_abs")
    assert found.shape == (2, 3)
    assert found[0].tolist() == [s.mismatch.mean_abs for s in runs[0].steps]
    assert found[1, 0] == runs[1].steps[0].mismatch.mean_abs
    assert found[1, 1:].isnan().all()
    with pytest.raises(ValueError, match="there are no steps to look at"):
        curves([ended(0, 0.5)], "reward")
