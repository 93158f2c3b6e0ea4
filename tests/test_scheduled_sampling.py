"""Scheduled sampling and DAgger on the even road: what they repair, by which count."""

from __future__ import annotations

from copy import deepcopy
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

from tinyrl import exposure
from tinyrl.exposure import drive, local_errors, own_prefixes, slip
from tinyrl.model import GPT, GPTConfig
from tinyrl.tasks import CumSum, EvenRoad
from tinyrl.trainer import sft


def rng(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def off_road_errors(
    guide: exposure.Guide | None, seed: int, own: float = 1.0
) -> tuple[float, float]:
    """Local errors on and off the even road after training, slips of 0.03 in use."""
    task, g = EvenRoad(), rng(seed)
    model = GPT(GPTConfig(), g)
    mix = None if guide is None else own_prefixes(model, task, g, guide=guide, own=own)
    for _ in sft(model, task, generator=g, steps=500, batch=64, mix=mix):
        pass
    prompts = task.prompts(1024, g)
    slips = torch.rand((1024, task.max_new), generator=g) < 0.03
    driven = drive(model, task, prompts, g, slips=slips)
    expert = task.expert(prompts, driven.read)
    n = task.n
    off = task.off_road(driven.read)
    return local_errors(driven.said[:, :n], expert[:, :n], off[:, :n])


@pytest.mark.science
@pytest.mark.parametrize("seed", range(5))
def test_dagger_repairs_and_scheduled_sampling_harms(seed: int) -> None:
    on, off = off_road_errors(None, seed)
    assert on < 0.02
    assert off > 0.9
    on_dagger, off_dagger = off_road_errors("expert", seed)
    assert on_dagger < 0.02
    assert off_dagger < 1 / 5, "as of a learner to whom one of five odd totals is strange"
    on_whole, off_whole = off_road_errors("gold", seed)
    assert on_whole > 3 * on
    assert off_whole > 0.9
    on_coin, off_coin = off_road_errors("gold", seed, own=0.5)  # for each token
    assert off_coin > 0.9, "by the expert's count: it goes back, see the next test"
    assert on_coin < on_whole, "and harms less: against `on` the seeds don't agree"


class InUse(NamedTuple):
    """A model of the even road in use, 3 % of what it reads replaced by slips of `by`."""

    off: float
    """Steps from an odd total that the expert counts as wrong."""
    undone: float
    """Steps from an odd total that say the right answer's next total."""
    last: float
    """Wrong last totals."""


def in_use(model: GPT, seed: int, by: int, monkeypatch: pytest.MonkeyPatch) -> InUse:
    task, g = EvenRoad(), rng(1000 * seed + 2)
    prompts = task.prompts(1024, g)
    right, n = task.answer(prompts), task.n
    slips = torch.rand(right.shape, generator=g) < 0.03
    with monkeypatch.context() as patch:
        patch.setattr(exposure, "slip", lambda ids, task: slipped(ids, task, by))
        driven = drive(model, task, prompts, g, slips=slips)
    expert, off = task.expert(prompts, driven.read), task.off_road(driven.read)
    said, right, expert, off = (x[:, 1:n] for x in (driven.said, right, expert, off))
    undone = (said == right)[off].double().mean().item()
    last = (said != right)[:, -1].double().mean().item()
    return InUse(local_errors(said, expert, off)[1], undone, last)


def slipped(ids: Tensor, task: CumSum, by: int) -> Tensor:
    for _ in range(by):
        ids = slip(ids, task)
    return ids


@pytest.mark.science
@pytest.mark.parametrize("seed", range(5))
def test_a_coin_of_one_half_undoes_the_slips_it_was_trained_on(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lesson 02's start and recipe. The expert, who goes on, counts undoing as wrong."""
    task, start = EvenRoad(), GPT(GPTConfig(), rng(1000 * seed + 3))
    how: dict[str, Any] = {"steps": 200, "batch": 64, "lr": 6e-3}
    list(sft(start, task, generator=rng(1000 * seed + 4), **how))
    coin, g = deepcopy(start), rng(1000 * seed + 5)
    mix = own_prefixes(coin, task, g, guide="gold", after=0, own=0.5)
    list(sft(coin, task, generator=g, mix=mix, **how))
    before = in_use(start, seed, 1, monkeypatch)
    taught, other = (in_use(coin, seed, by, monkeypatch) for by in (1, 3))
    print(f"seed {seed}: start {before}, coin +1 {taught}, +3 {other}")
    assert taught.off > 0.9, "by the expert's count nothing is repaired"
    assert taught.undone > 0.5 > before.undone, "by the right answer's it is"
    assert other.undone < 0.2, "+1 is what it undoes, not slips"
    assert other.last > 0.15
