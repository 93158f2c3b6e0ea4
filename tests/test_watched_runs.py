"""Live runs with a fault that comes in on the way, and served policies."""

from __future__ import annotations

import pytest
import torch

from tinyrl.checkpoints import load
from tinyrl.course.lessons.watched_runs import live, serve
from tinyrl.recipe import Recipe
from tinyrl.stack import PRESETS, Stack, replace_at
from tinyrl.tasks import CumSum
from tinyrl.trainer import Trainer, generate, pass_rate

POLICY, TASK = load("sft"), CumSum()
SMALL = Recipe(groups=2, group_size=4, minibatches=1, lr=1e-3)


def noise(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_watched_runs_are_runs_and_their_fault_comes_when_it_should() -> None:
    faults = {"none": "none", "int4": PRESETS["int4_weights"], "stop": "weights stop"}
    how = {"steps": 5, "after": 2, "recipe": SMALL, "faults": faults}
    runs = live(POLICY, TASK, Stack(), Stack(), noise(), **how)
    alone = Trainer(load("sft"), TASK, generator=noise(), recipe=SMALL)
    rewards = [alone.step().reward for _ in range(5)]
    assert runs["none"].rewards == rewards
    assert all(run.rewards[:2] == rewards[:2] for run in runs.values())
    trained = [runs["none"].trainer.model.state_dict(), alone.model.state_dict()]
    for name, w in trained[1].items():
        assert torch.equal(trained[0][name], w)
    small = {n: [x["k3"] < 1e-9 for x in run.numbers] for n, run in runs.items()}
    assert small["none"] == [True] * 5
    assert small["int4"] == [True, True, False, False, False]
    assert small["stop"] == [True, True, True, False, False]
    for name, w in load("sft").state_dict().items():
        assert torch.equal(POLICY.state_dict()[name], w)


def test_served_is_the_pass_rate_and_a_second_bos_is_read() -> None:
    given = serve(POLICY, TASK, Stack(), noise(), 128)
    assert given.right == pytest.approx(pass_rate(POLICY, TASK, Stack(), noise(), 128))
    hot, g = replace_at(Stack(), "sampler.temperature", 2.0), noise()
    asked = TASK.prompts(128, g)
    x = generate(POLICY, TASK, asked, hot, g)
    rows = [r[m].tolist() for r, m in zip(x.response, x.mask, strict=True)]
    ended = [row for row in rows if row[-1] == TASK.tokenizer.eos_id]
    formatted = sum(len(row) == TASK.max_new for row in ended)
    assert formatted < len(ended)
    given = serve(POLICY, TASK, hot, noise(), 128)
    assert given.formatted == pytest.approx(formatted / 128)
    assert given.length == pytest.approx(sum(map(len, rows)) / 128)
    twice = serve(POLICY, TASK, Stack(), noise(), 128, bos_twice=True)
    assert twice != serve(POLICY, TASK, Stack(), noise(), 128)


def test_a_fault_that_would_never_come_is_refused() -> None:
    def watched(**change: object) -> None:
        how = {"steps": 2, "after": 1, "recipe": SMALL, "faults": {"a": "none"}} | change
        live(POLICY, TASK, Stack(), Stack(), noise(), **how)  # type: ignore[arg-type]

    for change, message in (
        ({"after": 2}, "after must be below steps, 2, not 2"),
        ({"after": -1}, "after must be a whole number from 0"),
        ({"steps": 0, "after": 0}, "steps must be a whole number from 1"),
        ({"faults": {}}, "faults must name one"),
        ({"faults": {"a": "weights stopp"}}, r"faults\['a'\] must be .*'weights stopp'"),
        ({"faults": {"a": None}}, r"faults\['a'\] must be a Stack, .* not None"),
    ):
        with pytest.raises(ValueError, match=message):
            watched(**change)
    with pytest.raises(ValueError, match="n must be a whole number from 1, not 0"):
        serve(POLICY, TASK, Stack(), noise(), 0)
