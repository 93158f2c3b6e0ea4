"""Exposure bias: drives, laws and trainings against enumeration and the expert."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from torch import Tensor

from tinyrl import exposure
from tinyrl.checkpoints import load
from tinyrl.exposure import (
    drive,
    errors_by_position,
    expected_errors,
    hazard,
    local_errors,
    own_prefixes,
    slip,
)
from tinyrl.model import GPT, GPTConfig
from tinyrl.scoring import response_logits
from tinyrl.stack import Stack
from tinyrl.tasks import CumSum, EvenRoad, Turns
from tinyrl.trainer import generate, sft


def rng(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


# ---- drives


MODEL, TASK = load("sft"), CumSum()


def test_slips_are_one_more_and_only_of_digits() -> None:
    ids = torch.arange(16)
    want = [*range(6), *range(7, 16), 6]
    assert slip(ids, TASK).tolist() == want


def test_teacher_forcing_reads_gold_and_free_running_its_own_words() -> None:
    prompts = TASK.prompts(64, rng())
    gold = TASK.answer(prompts)
    forced = drive(MODEL, TASK, prompts, rng(1), own=0)
    free = drive(MODEL, TASK, prompts, rng(1), own=1)
    assert torch.equal(forced.read, gold)
    assert torch.equal(free.read, free.said)
    assert torch.equal(forced.said[:, 0], free.said[:, 0]), "nothing was read yet"
    assert not torch.equal(forced.said, free.said)
    half = drive(MODEL, TASK, prompts, rng(1), own=0.5)
    assert ((half.read == half.said) | (half.read == gold)).all()
    jumps = (half.read == gold)[half.said != gold].double().mean()
    assert 0.35 < jumps < 0.65  # own errors that were put right again


def test_free_running_is_the_rollout_of_the_engine() -> None:
    prompts = TASK.prompts(64, rng())
    free = drive(MODEL, TASK, prompts, rng(1))
    batch = generate(MODEL, TASK, prompts, Stack(), rng(1))
    assert torch.equal(free.said[batch.mask], batch.response[batch.mask])


def test_what_is_said_is_drawn_from_what_was_read() -> None:
    """Frequencies of a drive against the model's own probabilities, one full pass."""
    prompt = TASK.prompts(1, rng()).expand(4000, -1)
    slips = torch.zeros(4000, 13, dtype=torch.bool)
    slips[:, 0] = True
    driven = drive(MODEL, TASK, prompt, rng(2), own=0, slips=slips)
    with torch.no_grad():
        p = response_logits(MODEL, prompt[:1], driven.read[:1], Stack())[0].softmax(-1)
    for t in (0, 1, 5):
        seen = driven.said[:, t].bincount(minlength=16) / 4000
        assert ((seen - p[t]).abs() <= 5 * (p[t] * (1 - p[t]) / 4000).sqrt() + 1e-6).all()


def test_slips_are_read_and_the_guides_part_after_one() -> None:
    prompts = TASK.prompts(32, rng())
    gold = TASK.answer(prompts)
    slips = torch.zeros(32, 13, dtype=torch.bool)
    slips[:, 3] = True
    to_gold = drive(MODEL, TASK, prompts, rng(1), own=0, slips=slips)
    expert = drive(MODEL, TASK, prompts, rng(1), own=0, slips=slips, guide="expert")
    assert torch.equal(to_gold.guide, gold)
    assert torch.equal(to_gold.read[:, 4:], gold[:, 4:]), "the gold token is put back"
    assert torch.equal(expert.guide, TASK.expert(prompts, expert.read))
    after = (expert.read - gold)[:, 3:12] % 10
    assert (after == 1).all(), "the expert goes on from the wrong total"


def test_the_same_generator_gives_the_same_drive_and_no_other_is_used() -> None:
    prompts, state = TASK.prompts(8, rng()), torch.get_rng_state()
    a, b = (drive(MODEL, TASK, prompts, rng(3), own=0.5) for _ in range(2))
    assert all(torch.equal(x, y) for x, y in zip(a, b, strict=True))
    assert torch.equal(torch.get_rng_state(), state)


# ---- laws


def enumerated(kernel: list[float], T: int, own: float, slips: list[float]) -> list[float]:
    """Wrong answers by place, by running through every sequence of events."""
    wrong = [0.0] * T
    steps = [k for k in range(10) if kernel[k]]
    for events in itertools.product(steps, (True, False), (True, False), repeat=T):
        at, p = 0, 1.0
        for t in range(T):
            by, mine, slipped = events[3 * t : 3 * t + 3]
            p *= kernel[by] * (own if mine else 1 - own)
            p *= slips[t] if slipped else 1 - slips[t]
            said = (at + by) % 10
            wrong[t] += p * (said != 0) if t == T - 1 else 0
            at = ((said if mine else 0) + slipped) % 10
    return wrong


@pytest.mark.parametrize("own", [1.0, 0.0, 0.3])
def test_expected_errors_by_enumeration(own: float) -> None:
    kernel, slips = [0.7, 0.2, 0, 0, 0, 0, 0, 0, 0, 0.1], [0.25, 0.0, 0.5, 0.1]
    found = expected_errors(torch.tensor(kernel, dtype=torch.double), 4, own,
                            torch.tensor(slips, dtype=torch.double))  # fmt: skip
    want = [enumerated(kernel, T, own, slips)[-1] for T in range(1, 5)]
    torch.testing.assert_close(found.tolist(), want, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("h", [0.0, 0.01, 0.08, 0.9, 1.0])
def test_expected_errors_in_closed_form(h: float) -> None:
    t = torch.arange(1, 31, dtype=torch.double)
    kernel = torch.tensor([1 - h] + [h / 9] * 9, dtype=torch.double)
    want = 0.9 * (1 - (1 - 10 * h / 9) ** t)
    torch.testing.assert_close(expected_errors(kernel, 30), want, rtol=1e-12, atol=1e-12)


def test_hazard_of_a_constant_one_and_by_hand() -> None:
    wrong = torch.tensor([[0, 1, 0], [0, 0, 1], [1, 1, 1], [0, 0, 0]]).bool()
    assert hazard(wrong).tolist() == [1 / 4, 1 / 3, 1 / 2]
    assert hazard(torch.ones(2, 3, dtype=torch.bool))[1:].isnan().all()
    many = torch.rand((20_000, 6), generator=rng()) < 0.1
    assert (hazard(many) - 0.1).abs().max() < 5 * math.sqrt(0.09 / 11_000)


def test_errors_by_hand() -> None:
    said = torch.tensor([[6, 7, 8], [6, 9, 9]])
    right = torch.tensor([[6, 7, 9], [7, 7, 9]])
    off = torch.tensor([[False, True, True], [False, False, True]])
    assert errors_by_position(said, right).tolist() == [0.5, 0.5, 0.5]
    on, only = (errors_by_position(said, right, x) for x in (~off, off))
    assert on[:2].tolist() == [0.5, 1.0]
    assert on[2].isnan()
    assert only[1:].tolist() == [0.0, 0.5]
    assert only[0].isnan()
    assert local_errors(said, right, off) == (2 / 3, 1 / 3)
    assert math.isnan(local_errors(said, right, off & False)[1])


# ---- training


def test_teacher_forcing_is_what_sft_does_without_a_mixer() -> None:
    def weights(mix: object) -> list[Tensor]:
        g = rng(4)
        model = GPT(GPTConfig(), g)
        list(sft(model, EvenRoad(3), generator=g, steps=3, batch=8, mix=mix))  # type: ignore[arg-type]
        return [p.detach() for p in model.parameters()]

    plain, same = weights(None), weights(lambda _, prompts, gold: (gold, gold))
    assert all(torch.equal(a, b) for a, b in zip(plain, same, strict=True))


def test_what_a_mixer_reads_and_asks_is_what_the_loss_is_of() -> None:
    """-100 asks for nothing, and what is read need not be what is asked for."""
    task, model = Turns(), GPT(GPTConfig(), rng())
    first, rest = task.demonstrations(16, rng(1))
    read = slip(rest, task)
    with torch.no_grad():
        logp = response_logits(model, first, read, Stack()).log_softmax(-1)
    theirs = logp.gather(-1, rest[..., None])[:, task.assistants]

    def mix(_: float, __: Tensor, gold: Tensor) -> tuple[Tensor, Tensor]:
        return slip(gold, task), torch.where(task.assistants, gold, -100)

    (loss,) = sft(model, task, generator=rng(1), steps=1, batch=16, mix=mix)
    assert loss == pytest.approx(-theirs.mean().item(), rel=1e-5)


@pytest.mark.parametrize("batch", [1, 5])
def test_the_larger_half_of_an_odd_batch_is_driven(batch: int) -> None:
    task, model = EvenRoad(), GPT(GPTConfig(), rng())
    mix = own_prefixes(model, task, rng(1), guide="expert", after=0)
    prompts, gold = task.demonstrations(batch, rng(2))
    read, asked = mix(0.0, prompts, gold)
    driven = (read != gold).any(1)  # an untrained model says hardly anything right
    assert driven.tolist() == [2 * row < batch for row in range(batch)]
    assert torch.equal(asked, task.expert(prompts, read))
    (loss,) = sft(model, task, generator=rng(3), steps=1, batch=batch, mix=mix)
    assert math.isfinite(loss)


@pytest.mark.parametrize("guide", ["gold", "expert"])
def test_half_of_a_batch_is_driven_and_asked_as_the_guide_says(
    guide: exposure.Guide,
) -> None:
    task = EvenRoad()
    model = GPT(GPTConfig(), rng())
    mix = own_prefixes(model, task, rng(1), guide=guide, p_slip=0.3)
    prompts, gold = task.demonstrations(40, rng(2))
    read, asked = mix(0.2, prompts, gold)
    assert torch.equal(read, gold)
    assert torch.equal(asked, gold)
    read, asked = mix(0.5, prompts, gold)
    assert torch.equal(read[20:], gold[20:])
    assert torch.equal(asked[20:], gold[20:])
    driven = (read != gold)[:20].any(1)  # an untrained model says hardly anything right
    assert driven.double().mean() > 0.9
    want = gold if guide == "gold" else task.expert(prompts, read)
    assert torch.equal(asked, want)


@pytest.mark.parametrize(
    ("how", "own", "p_slip"),
    [({}, 1.0, 0.15), ({"own": 0.25}, 0.25, 0.15), ({"p_slip": 0.4}, 1.0, 0.4)],
    ids=str,
)
def test_a_mixer_drives_as_it_was_told(
    how: dict[str, float], own: float, p_slip: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counted in what was read: own tokens and slips, 5 standard deviations wide."""
    task, model, drives = EvenRoad(), GPT(GPTConfig(), rng()), list[exposure.Drive]()

    def noted(*args: object, **kwargs: object) -> exposure.Drive:
        drives.append(drive(*args, **kwargs))  # type: ignore[arg-type]
        return drives[-1]

    monkeypatch.setattr(exposure, "drive", noted)
    mix = own_prefixes(model, task, rng(1), guide="gold", **how)  # type: ignore[arg-type]
    prompts, gold = task.demonstrations(6000, rng(2))
    read, _ = mix(1.0, prompts, gold)
    ((said, driven, guide),) = drives
    assert torch.equal(read[:3000], driven)
    digits = task.tokenizer.digit_0
    sources = {"said": said, "gold": guide, "slip": slip(said, task), "slip of gold":
               slip(guide, task)}  # fmt: skip
    names = list(sources)
    told = (said >= digits) & (guide >= digits)
    for a, b in itertools.combinations(sources.values(), 2):
        told &= a != b  # else what was read does not tell where it is from
    count = {name: ((driven == sources[name]) & told).sum().item() for name in names}
    n = sum(count.values())
    assert n == told.sum() > 5000
    want = {"said": own * (1 - p_slip), "gold": (1 - own) * (1 - p_slip),
            "slip": own * p_slip, "slip of gold": (1 - own) * p_slip}  # fmt: skip
    for name, p in want.items():
        assert count[name] / n == pytest.approx(p, abs=5 * math.sqrt(p * (1 - p) / n))
