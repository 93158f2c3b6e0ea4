"""Pairs with one fault, what a number makes of it, live runs and served policies."""

from __future__ import annotations

import pytest
import torch

from tinyrl.checkpoints import load
from tinyrl.course.watching import (
    BLIND,
    DROWNED,
    ONE_IN,
    SEES,
    Look,
    Pair,
    first_update,
    in_parts,
    live,
    look,
    measured,
    serve,
    sight,
    sights,
)
from tinyrl.intervals import Interval, intervals
from tinyrl.metrics import token_delta
from tinyrl.recipe import Recipe
from tinyrl.stack import PRESETS, Stack, replace_at
from tinyrl.tasks import CumSum
from tinyrl.trainer import Trainer, generate, pass_rate

POLICY, TASK = load("sft"), CumSum()
SMALL = Recipe(groups=2, group_size=4, minibatches=1, lr=1e-3)


def noise(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def delta(x: Look) -> torch.Tensor:
    return token_delta(*x.arrays)


def test_equal_sides_agree_and_a_fault_shows() -> None:
    assert delta(look(POLICY, TASK, Pair(), noise(), 64)).abs().max() < 1e-4
    int4 = look(POLICY, TASK, Pair(PRESETS["int4_weights"]), noise(), 64)
    assert delta(int4).abs().max() > 0.1
    other = load("sft")
    with torch.no_grad():
        other.lm_head.weight.mul_(1.5)
    stale = look(POLICY, TASK, Pair(weights=other), noise(), 64)
    assert delta(stale).abs().max() > 0.1
    sides = {"top_rollout", "top_train", "rewards", "probabilities"}
    assert set(int4.more) == sides


def test_one_column_late_moves_logprobs_and_hardly_their_sum() -> None:
    right = look(POLICY, TASK, Pair(), noise(), 64)
    late = look(POLICY, TASK, Pair(slip="column"), noise(), 64)
    mask = right.arrays[2]
    both = mask[:, 1:] & mask[:, :-1]
    moved, there = late.arrays[0][:, 1:][both], right.arrays[0][:, :-1][both]
    assert torch.equal(moved, there)
    full = mask.all(1)
    assert full.sum() > 50
    assert delta(late)[full].sum(1).abs().max() < 1e-4 < delta(late)[full].abs().max()


def test_one_prompt_in_256_is_another_s() -> None:
    right = look(POLICY, TASK, Pair(), noise(), 2 * ONE_IN)
    wrong = look(POLICY, TASK, Pair(slip="prompt"), noise(), 2 * ONE_IN)
    size = delta(wrong).abs().amax(1)
    assert (size > 0.5).nonzero().flatten().tolist() == [ONE_IN // 2, 3 * ONE_IN // 2]
    rest = size <= 0.5
    assert torch.equal(right.arrays[0][rest], wrong.arrays[0][rest])


def test_a_number_sees_is_drowned_or_blind() -> None:
    equal, healthy = Interval(1e-9, 0.0, 2e-9), Interval(0.01, 0.008, 0.012)
    for found, wanted in (
        (Interval(0.1, 0.05, 0.2), SEES),
        (Interval(0.1, 0.01, 0.2), DROWNED),
        (Interval(0.005, 0.004, 0.006), DROWNED),
        (Interval(0.1, 0.0, 0.2), BLIND),
        (Interval(-0.1, -0.2, -0.05), SEES),
    ):
        assert sight(found, equal, healthy) == wanted
    one = Interval(0.9999, 0.9998, 1.0)
    assert sight(Interval(0.5, 0.4, 0.6), one, Interval(0.99, 0.98, 0.999)) == SEES
    nearer = Interval(1e-12, 0.0, 1e-11), Interval(1e-9, 5e-10, 2e-9)
    assert sight(*nearer, healthy) == BLIND, "smaller than that of equal policies"


def test_the_worst_batch_decides() -> None:
    seen, unseen = Interval(1.0, 0.9, 1.1), Interval(1.0, 0.0, 2.0)
    zero, small = Interval(0.0, 0.0, 0.0), Interval(0.1, 0.1, 0.2)
    found = {
        "equal": {"k3": [zero, zero]},
        "healthy": {"k3": [small, small]},
        "a": {"k3": [seen, seen]},
        "b": {"k3": [seen, unseen]},
    }
    grid = sights(found, ["k3"], equal="equal", healthy="healthy")
    assert grid.tolist() == [[DROWNED, SEES, BLIND]]


def test_numbers_have_the_bootstrap_s_intervals_and_extremes_a_range() -> None:
    looks = [look(POLICY, TASK, Pair(PRESETS["bf16"]), noise(s), 32) for s in (1, 2)]
    found = measured(looks, noise(3), 50)
    alone = intervals(*looks[0].arrays, generator=noise(3), resamples=50, **looks[0].more)
    assert found["k3"][0] == alone["k3"]
    largest = [delta(x).abs().max().item() for x in looks]
    for x, value in zip(found["max_abs"], largest, strict=True):
        assert x == pytest.approx((value, min(largest), max(largest)))


def test_parts_are_batches_of_their_own() -> None:
    arrays = look(POLICY, TASK, Pair(PRESETS["bf16"]), noise(), 48).arrays
    parts = in_parts(arrays, 16, noise(1), 40)
    assert len(parts) == 3
    first = intervals(*(x[:16] for x in arrays), generator=noise(1), resamples=40)
    assert parts[0] == first


def test_a_first_update_is_right_with_equal_engines_and_turned_by_a_temperature() -> None:
    same = first_update(POLICY, TASK, Stack(), noise(), 6)
    assert same.cosine == pytest.approx(1, abs=1e-5)
    assert same.stopped_good == same.stopped_bad == 0
    hot = replace_at(Stack(), "sampler.temperature", 1.5)
    turned = first_update(POLICY, TASK, hot, noise(), 6)
    assert turned.cosine < 0.5
    assert turned.stopped_good > 0.5


def test_a_watched_run_is_a_run_and_its_fault_comes_when_it_should() -> None:
    how = {"steps": 5, "after": 2, "recipe": SMALL}
    clean = live(POLICY, TASK, Stack(), Stack(), noise(), **how)
    alone = Trainer(load("sft"), TASK, generator=noise(), recipe=SMALL)
    assert clean.rewards == [alone.step().reward for _ in range(5)]
    assert [x["k3"] < 1e-9 for x in clean.numbers] == [True] * 5
    int4 = live(
        POLICY, TASK, Stack(), Stack(), noise(), fault=PRESETS["int4_weights"], **how
    )
    assert [x["k3"] < 1e-9 for x in int4.numbers] == [True, True, False, False, False]
    stop = live(POLICY, TASK, Stack(), Stack(), noise(), fault="weights stop", **how)
    assert [x["k3"] < 1e-9 for x in stop.numbers] == [True, True, True, False, False]


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
