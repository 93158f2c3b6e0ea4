"""Lab 07's exercises against truth from elsewhere, and its open question's numbers."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.distributions import Categorical, kl_divergence
from transformers.models.qwen3_moe.modeling_qwen3_moe import load_balancing_loss_func

from lab_sources import lab
from lab_truths import close, draw, seeds
from tinyrl.course.checking.judging import judge
from tinyrl.course.exercises import LABS, find
from tinyrl.moe import Routes, balance_loss, router_kl


def best(row: list[float], k: int) -> list[int]:
    return sorted(range(len(row)), key=lambda e: -row[e])[:k]


def gates(row: list[float], chosen: list[int]) -> list[float]:
    total = math.fsum(math.exp(row[e]) for e in chosen)
    return [math.exp(z) / total if e in chosen else 0.0 for e, z in enumerate(row)]


@seeds
def test_gates_and_margins_in_plain_python(seed: int) -> None:
    for logits, k in draw("top_k_gates", seed):
        rows = logits.tolist()
        wanted = [gates(row, best(row, k)) for row in rows]
        close(find("top_k_gates").reference(logits, k), wanted)
    for logits, k in draw("router_margin", seed):
        ranked = [sorted(row, reverse=True) for row in logits.tolist()]
        wanted = [row[k - 1] - row[k] for row in ranked]
        close(find("router_margin").reference(logits, k), wanted)


@seeds
def test_replay_takes_the_set_of_one_and_the_logits_of_the_other(seed: int) -> None:
    for train, rollout, k in draw("replayed_gates", seed):
        pairs = list(zip(train.tolist(), rollout.tolist(), strict=True))
        wanted = [gates(mine, best(theirs, k)) for mine, theirs in pairs]
        close(find("replayed_gates").reference(train, rollout, k), wanted)
        flips = [set(best(a, k)) != set(best(b, k)) for a, b in pairs]
        assert any(flips), "else nothing is examined"


def test_a_move_of_more_than_half_the_margin_flips_and_of_less_does_not() -> None:
    (logits, k), *_ = draw("router_margin", 0)
    margin = find("router_margin").reference(logits, k)
    ranked = logits.argsort(-1, descending=True)
    for share, flips in ((0.49, False), (0.51, True)):
        moved = logits.clone()
        rows = torch.arange(len(moved))
        moved[rows, ranked[:, k - 1]] -= share * margin
        moved[rows, ranked[:, k]] += share * margin
        before, after = (x.topk(k).indices.sort(-1).values for x in (logits, moved))
        assert ((before != after).any(-1) == flips).all()


@seeds
def test_flips_and_loads_by_counting(seed: int) -> None:
    for a, b, mask in draw("flip_rate", seed):
        pairs = list(zip(a[mask].tolist(), b[mask].tolist(), strict=True))
        flips = [set(x) != set(y) for x, y in pairs]
        assert 0 < sum(flips) < len(flips)
        close(find("flip_rate").reference(a, b, mask), sum(flips) / len(flips))
    for a, b, mask, n in draw("load_drift", seed):
        loads = []
        for side in (a, b):
            counts = Counter(side[mask].flatten().tolist())
            loads.append([counts[e] / sum(counts.values()) for e in range(n)])
        moved = math.fsum(max(y - x, 0) for x, y in zip(*loads, strict=True))
        rollout, train, drift = find("load_drift").reference(a, b, mask, n)
        close(rollout, loads[0])
        close(train, loads[1])
        close(drift, moved)
        assert drift <= find("flip_rate").reference(a, b, mask) + 1e-12


def test_choices_are_sets_of_different_experts() -> None:
    for name, seed in itertools.product(("flip_rate", "load_drift"), range(5)):
        for case in find(name).inputs(seed)[1:]:
            a, b, mask = case.args[:3]
            assert isinstance(a, Tensor)
            assert isinstance(b, Tensor)
            assert isinstance(mask, Tensor)
            for chosen in (a[mask].tolist(), b[mask].tolist()):
                assert all(len(set(x)) == len(x) for x in chosen)


@seeds
def test_delta_by_flip_in_plain_python(seed: int) -> None:
    for train, rollout, flipped, mask in draw("delta_by_flip", seed):
        some: list[float] = []
        rest: list[float] = []
        for b, t in mask.nonzero().tolist():
            size = abs(float(train[b, t]) - float(rollout[b, t]))
            (some if sum(flipped[b, t].tolist()) else rest).append(size)
        share = math.fsum(some) / math.fsum(some + rest)
        wanted = math.fsum(some) / len(some), math.fsum(rest) / len(rest), share
        reference = find("delta_by_flip").reference
        close(torch.stack(reference(train, rollout, flipped, mask)), wanted)


def routes(logits: Tensor, k: int) -> Routes:
    """One layer's routes `[B, T, 1, ...]` of these logits `[B, T, E]`."""
    layer = logits[:, :, None]
    return Routes(layer.topk(k).indices, layer.topk(k).values.softmax(-1), layer)


@seeds
def test_the_penalty_is_torchs_kl_and_the_librarys(seed: int) -> None:
    for train, rollout, mask in draw("router_consistency", seed):
        mine = find("router_consistency").reference(train, rollout, mask)
        p, q = (Categorical(logits=x[mask]) for x in (train, rollout))
        close(mine, kl_divergence(q, p).mean())
        theirs = router_kl(routes(train, 2), routes(rollout, 2), mask)
        torch.testing.assert_close(theirs, mine)


@seeds
def test_the_balance_loss_is_that_of_transformers_and_of_the_library(seed: int) -> None:
    for logits, mask, k in draw("load_balance", seed):
        mine = find("load_balance").reference(logits, mask, k)
        flat = logits.flatten(0, 1)[mask.flatten()]
        theirs = load_balancing_loss_func((flat,), logits.shape[-1], k)
        torch.testing.assert_close(theirs, mine, rtol=1e-6, atol=0, check_dtype=False)
        torch.testing.assert_close(
            balance_loss(routes(logits, k), mask),
            mine,
            rtol=1e-6,
            atol=0,
            check_dtype=False,
        )
        assert mine > k, "an uneven load"


def test_margin_by_way_of_probabilities_is_right() -> None:
    """Its rounding error is that of the logits, for every token."""

    def answer(z: Tensor, k: int) -> Tensor:
        p = z.softmax(1).sort(1, descending=True).values
        return (p[:, k - 1] / p[:, k]).log()

    told = [judge(find("router_margin"), answer, seed).outcome for seed in range(20)]
    assert told == ["right"] * 20


@seeds
def test_both_ends_of_k_and_an_idle_expert_are_examined(seed: int) -> None:
    for name in ("top_k_gates", "replayed_gates", "load_balance"):
        drawn: list[Any] = [case.args for case in find(name).inputs(seed)]
        assert {1, "E"} <= {k if k < z.shape[-1] else "E" for z, *_, k in drawn}
    cases = find("load_balance").inputs(seed)
    (idle,) = (list[Any](c.args) for c in cases if "nobody" in c.what.en)
    logits, mask, k = idle
    assert logits[mask].topk(k).indices.max() < logits.shape[-1] - 1


@seeds
def test_margins_are_asked_for_at_both_ends_and_sets_with_logits_below_0(seed: int) -> None:
    drawn: list[Any] = [case.args for case in find("router_margin").inputs(seed)]
    assert {1, "E - 1"} <= {k if k < z.shape[-1] - 1 else "E - 1" for z, k in drawn}
    sets = [(rollout, k) for _, rollout, k in draw("replayed_gates", seed)]
    assert any((z.topk(k).values[:, -1] < 0).any() for z, k in sets)


@pytest.mark.parametrize("name", ["top_k_gates", "load_balance"])
def test_exp_overflows_in_float64_too(name: str) -> None:
    (last,) = (c.args[0] for c in find(name).inputs(0) if c.stage == "numbers")
    assert isinstance(last, Tensor)
    assert last.double().exp().isinf().any()


def test_numbers_in_the_messages() -> None:
    said = " ".join(m.en for e in LABS["lab07_routers"] for _, m in e.mistakes.values())
    assert "exp of a logit above 88 is inf" in said
    assert torch.tensor(88.0).exp().isfinite()
    assert torch.tensor(89.0).exp().isinf()
    assert "(above 709 in float64)" in said
    assert torch.tensor(709.0).double().exp().isfinite()
    assert torch.tensor(710.0).double().exp().isinf()
    assert 1 + 4 == 2 + 3
    assert "{1, 4} and {2, 3} have the same" in said


def test_open_question_has_right_numbers() -> None:
    cells = {
        c.metadata.nbgrader.grade_id: c.source
        for c in lab("lab07_routers").cells
        if "nbgrader" in c.metadata
    }
    flipped, kept = 0.02 * 0.03, 0.98 * 0.0015
    assert f"{flipped:.4f}" == "0.0006"
    assert f"{kept:.5f}" == "0.00147"
    assert f"{flipped / (flipped + kept):.0%}" == "29%"
    for name in ("open_rubric", "open_answer"):
        for text in ("0.02 * 0.03 = 0.0006", "0.98 * 0.0015", "0.00147", "29 %"):
            assert text in cells[name]
    for text in ("2 % of tokens", "0.03 on these", "0.0015 on the others"):
        assert text in cells["open_rubric"]
