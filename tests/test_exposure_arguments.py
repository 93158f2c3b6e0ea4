"""Exposure bias: what is wrong with an argument is named, with its row."""

from __future__ import annotations

import math
import re

import pytest
import torch
from torch import Tensor

from tinyrl.checkpoints import load
from tinyrl.exposure import (
    drive,
    errors_by_position,
    expected_errors,
    hazard,
    local_errors,
    own_prefixes,
)
from tinyrl.model import GPT, GPTConfig
from tinyrl.tasks import CumSum, EvenRoad
from tinyrl.trainer import sft

MODEL, TASK = load("sft"), CumSum()


def rng(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_bad_drives_are_named() -> None:
    prompts = TASK.prompts(2, rng())
    for own in (-0.1, 1.5, math.nan):
        with pytest.raises(ValueError, match=f"own is {own}: it must be"):
            drive(MODEL, TASK, prompts, rng(), own=own)
    with pytest.raises(ValueError, match="guide is 'teacher': it is 'gold' or 'expert'"):
        drive(MODEL, TASK, prompts, rng(), guide="teacher")  # type: ignore[arg-type]
    for name in ("own", "p_slip", "after"):
        with pytest.raises(ValueError, match=f"{name} is 2: it must be between 0 and 1"):
            own_prefixes(MODEL, TASK, rng(), guide="gold", **{name: 2})  # type: ignore[arg-type]
    for bad in (torch.zeros(2, 12, dtype=torch.bool), torch.zeros(2, 13)):
        with pytest.raises(ValueError, match=r"slips must be bool \[2, 13\], not torch"):
            drive(MODEL, TASK, prompts, rng(), slips=bad)
    prompts[1, 0] = 0
    with pytest.raises(ValueError, match=r"prompts\[1\] is not a prompt of CumSum"):
        drive(MODEL, TASK, prompts, rng())


def test_bad_errors_are_named() -> None:
    ids, wrong = torch.zeros(2, 3).long(), torch.zeros(2, 3, dtype=torch.bool)
    for bad in (wrong.long(), wrong.double(), wrong[0], wrong[:0], wrong[..., None]):
        with pytest.raises(ValueError, match=r"wrong must be bool \[B, T\], not torch"):
            hazard(bad)
    for bad in (wrong.long(), wrong[0], wrong[:, :2], wrong[:1]):
        with pytest.raises(ValueError, match=r"where must be bool \[2, 3\], not torch"):
            errors_by_position(ids, ids, bad)
        with pytest.raises(ValueError, match=r"off must be bool \[2, 3\], not torch"):
            local_errors(ids, ids, bad)
    for bad in (ids.double(), wrong, ids[0], ids[:, :2], ids[:1]):  # they would broadcast
        with pytest.raises(ValueError, match=r"right must be whole ids \[2, 3\], not"):
            errors_by_position(ids, bad)
        with pytest.raises(ValueError, match=r"expert must be whole ids \[2, 3\], not"):
            local_errors(ids, bad, wrong)
    for bad in (ids.double(), ids[0], ids[:0]):
        with pytest.raises(ValueError, match=r"said must be whole ids"):
            errors_by_position(bad, ids)


def test_bad_laws_are_named() -> None:
    kernel = torch.tensor([0.5, 0.5] + [0.0] * 8)
    for name, bad in (("kernel[2]", [0.5, 0.5, -0.1] + [0.1] * 7),
                      ("kernel[0]", [math.nan] + [0.1] * 9)):  # fmt: skip
        with pytest.raises(ValueError, match=rf"{re.escape(name)} is .*between 0 and 1"):
            expected_errors(torch.tensor(bad), 3)
    with pytest.raises(ValueError, match=r"kernel sums to 0.9: its probabilities must sum"):
        expected_errors(torch.full((10,), 0.09), 3)
    for bad_shape in (kernel[:9], kernel[None], torch.tensor(1.0)):
        with pytest.raises(ValueError, match=r"kernel must be \[10\], not \["):
            expected_errors(bad_shape, 3)
    with pytest.raises(ValueError, match="T is 0: it must be at least 1"):
        expected_errors(kernel, 0)
    with pytest.raises(ValueError, match=r"own is 1\.5: it must be between 0 and 1"):
        expected_errors(kernel, 3, own=1.5)
    with pytest.raises(ValueError, match=r"slips must be \[3\], not \[4\]"):
        expected_errors(kernel, 3, slips=torch.zeros(4))
    with pytest.raises(ValueError, match=r"slips\[1\] is 2.0: it must be between 0 and 1"):
        expected_errors(kernel, 3, slips=torch.tensor([0.0, 2.0, 0.0]))


def test_what_a_mixer_gets_wrong_is_named() -> None:
    task, gold = EvenRoad(3), EvenRoad(3).demonstrations(4, rng(1))[1]
    outside, below = gold.clone(), gold.clone()
    outside[2, 1], below[3, 0] = 16, -100

    def told(read: Tensor, asked: Tensor) -> None:
        model = GPT(GPTConfig(), rng())
        before = [p.clone() for p in model.parameters()]
        try:
            mix = lambda *_: (read, asked)  # noqa: E731
            list(sft(model, task, generator=rng(1), steps=1, batch=4, mix=mix))
        finally:
            assert all(map(torch.equal, before, model.parameters())), "a step was taken"

    for bad in (gold[:2], gold[0], gold[:, :0], gold[..., None], gold.double()):
        with pytest.raises(ValueError, match=r"read must be torch.int64 \[4, .*, not"):
            told(bad, gold)
    for bad in (gold[:, :2], gold[:2], gold[0], gold.double()):
        with pytest.raises(ValueError, match=r"asked must be torch.int64 \[4, 4\], not"):
            told(gold, bad)
    for name, ids, row in (("read", outside, 2), ("asked", outside, 2), ("read", below, 3)):
        both = (ids, gold) if name == "read" else (gold, ids)
        with pytest.raises(ValueError, match=rf"{name}\[{row}\] has an id outside 0..15"):
            told(*both)
    with pytest.raises(ValueError, match="asked is -100 everywhere"):
        told(gold, torch.full_like(gold, -100))


def test_a_mixer_may_read_and_ask_for_another_length() -> None:
    """As of a text that was tokenised anew."""
    model = GPT(GPTConfig(), rng())

    def mix(_: float, __: Tensor, gold: Tensor) -> tuple[Tensor, Tensor]:
        longer = torch.cat([gold, gold], 1)
        return longer, longer

    (loss,) = sft(model, EvenRoad(3), generator=rng(1), steps=1, batch=4, mix=mix)
    assert math.isfinite(loss)
