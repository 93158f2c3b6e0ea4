"""A run as a value: what it holds, that a file holds the same, and how it goes on."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from tinyrl import runs as runs_module
from tinyrl.checkpoints import load as checkpoint
from tinyrl.correction import Correction
from tinyrl.critic import Critic
from tinyrl.objectives import LossView
from tinyrl.recipe import Recipe
from tinyrl.runs import Run, Settings, advance, begin, digest, load
from tinyrl.snapshots import newest, restore, snapshot
from tinyrl.stack import PRESETS, Stack, replace_at
from tinyrl.tasks import CumSum
from tinyrl.trainer import pass_rate, rl

TASK = CumSum()
SMALL = Settings(steps=4, recipe=Recipe(groups=2, group_size=4), prompts=16)
HARD = replace(  # everything that has a state of its own
    SMALL,
    seed=3,
    staleness=2,
    rollout_stack=PRESETS["int4_weights"],
    correction=Correction("token", "truncate"),
    critic=Critic(),
    evaluate_every=2,
)
MOE = replace(
    SMALL,
    objective="gspo",
    options={"eps_low": 0.1, "eps_high": 0.1},
    train_stack=replace_at(Stack(), "router.replay", "rollout"),
    recipe=replace(SMALL.recipe, balance=0.01, sampling="resample", room=2, overlong=2),
)
CASES = [("sft", SMALL), ("sft", HARD), ("moe", MOE)]


def complete(name: str, settings: Settings, path: Path | None = None) -> list[Run]:
    first = begin(checkpoint(name), TASK, settings)
    return [first, *advance(first, TASK, path)]


def same_state(a: Run, b: Run) -> bool:
    return a.state.keys() == b.state.keys() and all(
        torch.equal(a.state[name], b.state[name]) for name in a.state
    )


def test_a_run_is_what_rl_does() -> None:
    model, start = checkpoint("sft"), checkpoint("sft")
    how = {"rollout_stack": HARD.rollout_stack, "correction": HARD.correction}
    g = torch.Generator().manual_seed(3)
    steps = list(
        rl(model, TASK, generator=g, steps=4, staleness=2, recipe=HARD.recipe,
           critic=Critic(), **how)
    )  # fmt: skip
    first, *_, last = complete("sft", HARD)
    assert list(last.steps) == steps
    assert digest(last.model()) == digest(model)
    assert (first.start, last.start) == (digest(start), digest(start))
    assert first.steps == ()
    assert (first.done, last.done) == (False, True)
    assert last.task == "CumSum(n=12, p_slip=0.08)"
    assert repr(last) == "<run of CumSum(n=12, p_slip=0.08), seed 3: 4 of 4 steps>"


def test_evaluations_are_of_both_stacks_on_the_same_draws() -> None:
    runs = complete("sft", HARD)
    assert [e.step for e in runs[-1].evaluations] == [0, 2, 4]
    for run, seen in zip(runs[::2], runs[-1].evaluations, strict=True):
        assert run.evaluations[-1] == seen
        rates = [
            pass_rate(
                run.model(), TASK, stack, torch.Generator().manual_seed(1_000_006), 16
            )
            for stack in (HARD.rollout_stack, HARD.train_stack)
        ]
        assert [seen.rollout, seen.train] == rates
    assert runs[-1].final == runs[-1].evaluations[-1]
    with pytest.raises(ValueError, match="seed 3 has taken 3 of 4 steps"):
        _ = runs[3].final


def test_evaluating_changes_nothing() -> None:
    often = complete("sft", replace(SMALL, evaluate_every=1))[-1]
    never = complete("sft", SMALL)[-1]
    assert often.steps == never.steps
    assert same_state(often, never)
    assert [e.step for e in often.evaluations] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(("name", "settings"), CASES)
def test_a_file_holds_all_of_it(name: str, settings: Settings, tmp_path: Path) -> None:
    path = tmp_path / "a.run"
    *_, last = complete(name, settings, path)
    back = load(path)
    assert back == last
    assert back.settings == settings
    assert [s.seconds for s in back.steps] == [s.seconds for s in last.steps]
    assert same_state(back, last)
    assert [p.name for p in tmp_path.iterdir()] == ["a.run"]


def test_equal_means_equal_numbers() -> None:
    a, b = complete("sft", SMALL)[-1], complete("sft", SMALL)[-1]
    assert a == b
    assert a != complete("sft", replace(SMALL, seed=1))[-1]
    worse = replace(a.steps[-1], reward=a.steps[-1].reward + 1e-9)
    assert a != replace(a, steps=(*a.steps[:-1], worse))


@pytest.mark.parametrize(("name", "settings"), CASES)
@pytest.mark.parametrize("after", [0, 1, 3])
def test_a_run_goes_on_as_if_nothing_had_been(name, settings, after, tmp_path) -> None:
    """From the value and from the file: every later number and tensor is the same."""
    runs, path = complete(name, settings), tmp_path / "a.run"
    runs[after].save(path)
    for stopped in (runs[after], load(path)):
        *_, last = advance(stopped, TASK)
        assert last == runs[-1]
        assert same_state(last, runs[-1])


def test_what_was_yielded_stays(tmp_path: Path) -> None:
    """Training on in place must not change the runs and files of earlier steps."""
    path = tmp_path / "a.run"
    growing = advance(begin(checkpoint("sft"), TASK, HARD), TASK, path)
    first = next(growing)
    kept = {name: x.clone() for name, x in first.state.items()}
    assert load(path) == first
    next(growing)
    assert all(torch.equal(kept[name], x) for name, x in first.state.items())
    growing.close()
    assert len(load(path).steps) == 2
    *_, last = advance(load(path), TASK, path)
    assert last == complete("sft", HARD)[-1]


def test_an_interrupt_in_a_step_loses_that_step_alone(monkeypatch, tmp_path) -> None:
    path, growing = tmp_path / "a.run", None
    growing = advance(begin(checkpoint("sft"), TASK, HARD), TASK, path)
    two = [next(growing), next(growing)][-1]

    def interrupted(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:  # after the rollout, before the update
        patch.setattr("tinyrl.trainer.compare", lambda *a, **k: interrupted())
        with pytest.raises(KeyboardInterrupt):
            next(growing)
    assert load(path) == two
    *_, last = advance(two, TASK)
    assert last == complete("sft", HARD)[-1]


def test_series() -> None:
    run = complete("sft", HARD)[-1]
    assert run.series("reward").tolist() == [s.reward for s in run.steps]
    assert run.series("mismatch.k3").tolist() == [s.mismatch.k3 for s in run.steps]
    assert complete("sft", SMALL)[-1].series("value_loss").isnan().all()
    for name in ("rewards", "mismatch.k4", "reward.k3"):
        with pytest.raises(ValueError, match=f"a step has no number '{name}'"):
            run.series(name)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seed": -1}, "seed must be a whole number from 0, not -1"),
        ({"steps": 2.0}, "steps must be a whole number from 0, not 2.0"),
        ({"prompts": 0}, "prompts must be a whole number from 1, not 0"),
        ({"objective": "ppo2"}, "objective must be one of ppo, grpo, .*, not 'ppo2'"),
        ({"options": {"eps_low": 0.1}}, "options are an objective's: name it too"),
        ({"objective": "dr_grpo"}, "objective dr_grpo: .*'length'"),
        ({"objective": "cispo"}, "objective cispo: eps_high or cap must be given"),
        (
            {"objective": "gspo", "options": {"eps": 1}},
            "objective gspo: .*unexpected keyword argument 'eps'",
        ),
        (
            {"objective": "ppo", "options": {"eps_low": 2.0}},
            "objective ppo: clip widths must be",
        ),
    ],
)
def test_settings_name_what_is_wrong(change, message) -> None:
    with pytest.raises(ValueError, match=message):
        Settings(**change)


def test_a_run_that_contradicts_itself_does_not_begin() -> None:
    both = replace(
        SMALL, view=LossView("rollout"), correction=Correction("token", "truncate")
    )
    with pytest.raises(ValueError, match="would count old/rollout twice"):
        begin(checkpoint("sft"), TASK, both)


def test_a_run_goes_on_with_its_own_task_only() -> None:
    run = begin(checkpoint("sft"), TASK, SMALL)
    with pytest.raises(ValueError, match=r"of the task CumSum\(n=12.*not of CumSum\(n=5"):
        next(advance(run, CumSum(n=5)))


def test_files_that_hold_no_run_are_named(tmp_path: Path) -> None:
    path = tmp_path / "a.run"
    with pytest.raises(FileNotFoundError, match=r"there is no run in .*a\.run"):
        load(path)
    save_file({"x": torch.zeros(1)}, path)
    with pytest.raises(ValueError, match=r"a\.run holds no run .* other safetensors file"):
        load(path)
    run = begin(checkpoint("sft"), TASK, SMALL)
    run.save(path)
    whole = path.read_bytes()
    for cut in (5, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:cut])
        with pytest.raises(ValueError, match=r"a\.run holds no run that can be read"):
            load(path)
    assert whole.count(b'\\"steps\\": 4') == 1
    path.write_bytes(whole.replace(b'\\"steps\\": 4', b'\\"stepz\\": 4'))
    with pytest.raises(ValueError, match=r"Run.settings has no field 'stepz'"):
        load(path)


def test_a_full_disk_leaves_the_old_file(monkeypatch, tmp_path: Path) -> None:
    path = tmp_path / "a.run"
    first, second, *_ = complete("sft", SMALL)
    first.save(path)

    def full(_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(runs_module.os, "fsync", full)
        with pytest.raises(OSError, match="No space left"):
            second.save(path)
    assert load(path) == first
    second.save(path)
    assert load(path) == second


def test_the_newest_weights_can_be_read_by_their_names(tmp_path: Path) -> None:
    path = tmp_path / "a.run"
    run = complete("sft", HARD, path)[-1]
    weights = newest(load_file(path))
    own = run.model().state_dict()
    assert weights.keys() == own.keys()
    assert all(torch.equal(weights[name], w) for name, w in own.items())


def test_a_state_of_another_run_is_refused() -> None:
    state = begin(checkpoint("sft"), TASK, HARD).state
    other = MOE.trainer(checkpoint("moe"), TASK)
    with pytest.raises(ValueError, match="this is no state of such a run"):
        restore(other, state)
    trainer = HARD.trainer(checkpoint("sft"), TASK)
    for lacking in ("generator", "critic.weight", "weights.0.norm.weight", "done"):
        part = {name: x for name, x in state.items() if name != lacking}
        with pytest.raises(ValueError, match="this is no state of such a run"):
            restore(trainer, part)
    assert math.isfinite(trainer.step().loss)
    assert snapshot(trainer).keys() > state.keys()
