"""Pairs with one fault: what a batch of them shows, and how sure its numbers are."""

from __future__ import annotations

import pytest
import torch

from tinyrl.checkpoints import load
from tinyrl.course.lessons.faulty_pairs import ONE_IN, Look, Pair, in_parts, look, measured
from tinyrl.intervals import intervals
from tinyrl.metrics import token_delta
from tinyrl.stack import PRESETS
from tinyrl.tasks import CumSum

POLICY, TASK = load("sft"), CumSum()


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


def test_without_sets_the_same_batch_is_looked_at() -> None:
    whole = look(POLICY, TASK, Pair(PRESETS["int4_weights"]), noise(), 32)
    bare = look(POLICY, TASK, Pair(PRESETS["int4_weights"]), noise(), 32, k=0)
    assert set(whole.more) - set(bare.more) == {"top_rollout", "top_train"}
    for x, y in zip(whole.arrays, bare.arrays, strict=True):
        assert torch.equal(x, y)


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


def test_what_would_show_nothing_is_refused() -> None:
    for wrong, message in (
        ({"slip": "colum"}, "slip must be one of none, column, prompt, not 'colum'"),
        ({"engine": "bf16"}, "engine must be a Stack, not 'bf16'"),
        ({"trainer": None}, "trainer must be a Stack, not None"),
        ({"weights": "sft"}, "weights must be a GPT or None, not 'sft'"),
    ):
        with pytest.raises((TypeError, ValueError), match=message):
            Pair(**wrong)
    for how, message in (
        ({"n": 0}, "n must be a whole number from 1, not 0"),
        ({"n": 2.5}, "n must be a whole number"),
        ({"k": -1}, "k must be a whole number from 0"),
    ):
        with pytest.raises(ValueError, match=message):
            look(POLICY, TASK, Pair(), noise(), **how)
    with pytest.raises(ValueError, match="n must be above 128 for a slip of one prompt"):
        look(POLICY, TASK, Pair(slip="prompt"), noise(), ONE_IN // 2)
    one = look(POLICY, TASK, Pair(), noise(), 4, k=0)
    for few in ([], [one]):
        with pytest.raises(ValueError, match=f"two batches or more.*not {len(few)}"):
            measured(few, noise())
    for size in (0, 1, 3, 8):
        with pytest.raises(ValueError, match="size must"):
            in_parts(one.arrays, size, noise())
    broken = one.arrays[0].clone()
    broken[1, 2] = float("nan")
    bad = one._replace(arrays=(broken, *one.arrays[1:]))
    with pytest.raises(ValueError, match=r"logp_rollout.*row 1, column 2"):
        measured([one, bad], noise())
