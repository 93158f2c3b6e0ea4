"""The road panel: its numbers by the library alone, its controls, what it leaves."""

from __future__ import annotations

import base64
import math
import time
from dataclasses import fields

import pytest
import torch

from tinyrl.course import live
from tinyrl.course.panels import exposure_panel as roads_module
from tinyrl.course.panels.exposure_panel import RoadPanel, Roads
from tinyrl.exposure import drive
from tinyrl.model import GPT, GPTConfig
from tinyrl.tasks import EvenRoad

TASK = EvenRoad(5)


def rng(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


MODEL = GPT(GPTConfig(), rng())
with torch.no_grad():  # says digits and nothing else, so that it has errors of all kinds
    MODEL.lm_head.weight[:6] = 0
    MODEL.lm_head.weight[6:] *= 30


def made(**start: object) -> RoadPanel:
    return RoadPanel({"one": MODEL, "two": GPT(GPTConfig(), rng(1))}, TASK,
                     sequences=64, seed=3, **start)  # type: ignore[arg-type]  # fmt: skip


def law(forced: list[list[int]], own: float, slips: list[float]) -> list[float]:
    """Wrong totals by place if every step errs alike: errors add up, in plain Python."""
    T, flat = len(slips), [error for row in forced for error in row]
    kernel = [flat.count(e) / len(flat) for e in range(10)]
    read, wrong = [1.0] + [0.0] * 9, []
    for t in range(T):
        said = [sum(read[a] * kernel[(e - a) % 10] for a in range(10)) for e in range(10)]
        wrong.append(1 - said[0])
        kept = [own * x + (1 - own) * (e == 0) for e, x in enumerate(said)]
        p = slips[t]
        read = [(1 - p) * kept[e] + p * kept[e - 1] for e in range(10)]
    return wrong


@pytest.mark.parametrize("own", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("start", [False, True])
def test_its_numbers_are_counted(own: float, start: bool) -> None:
    seen = made(slip=0.2, own=own, start=start).roads("one", 0.2, own, start)
    prompts, g = TASK.prompts(64, rng(3)), rng(3)
    gold = TASK.answer(prompts)
    forced = drive(MODEL, TASK, prompts, g, own=0)
    p = [1.0 if start else 0.2, 0.2, 0.2, 0.2, 0.2]
    slips = torch.rand((64, 6), generator=g) < torch.tensor([*p, 0.0])
    driven = drive(MODEL, TASK, prompts, g, own=own, slips=slips)
    wrong, met = ({side: [0] * 5 for side in ("on", "off")} for _ in range(2))
    for t in range(5):
        for row in range(64):
            before = driven.read[row, t - 1].item() - 6 if t else 0
            digit = prompts[row, 2 + t].item() - 6
            right = (before + digit) % 10
            side = "off" if before % 2 else "on"
            wrong[side][t] += driven.said[row, t].item() - 6 != right
            met[side][t] += 1
        assert seen.forced[t] == (forced.said[:, t] != gold[:, t]).double().mean()
        assert seen.driven[t] == (driven.said[:, t] != gold[:, t]).double().mean()
    for side, found in zip(("on", "off"), seen.overall, strict=True):
        assert found == pytest.approx(sum(wrong[side]) / sum(met[side]))
        curve = [
            x / n if n else math.nan for x, n in zip(wrong[side], met[side], strict=True)
        ]
        assert getattr(seen, side).tolist() == pytest.approx(curve, nan_ok=True)
    assert met["off"][0] == 0
    if own == 0:  # a slip of a right total is odd
        assert (met["on"][1] == 0) == start
    errors = ((forced.said - gold)[:, :5] % 10).tolist()
    assert seen.expected.tolist() == pytest.approx(law(errors, own, p))


def test_what_is_expected_is_seen_where_nothing_goes_wrong() -> None:
    """Behind gold prefixes each place errs as often as the mean step."""
    seen = made().roads("one", 0.0, 0.0, False)
    per_step = seen.forced.mean().item()
    assert seen.expected.tolist() == pytest.approx([per_step] * 5)


def test_every_control_changes_the_picture_and_going_back_brings_it_back() -> None:
    p = made()
    first, said = p.image.value, p.told.value
    for control, new in (
        (p.model, "two"), (p.slip, 0.2), (p.own, 0.5), (p.start, True)
    ):  # fmt: skip
        old = control.value
        control.value = new
        assert p.image.value != first
        assert p.told.value != said
        control.value = old
        assert p.image.value == first
        assert p.told.value == said


def test_a_cached_setting_is_shown_within_150_ms() -> None:
    p = made()
    p.slip.value = 0.2
    begun = time.perf_counter()
    p.slip.value = 0.03
    assert time.perf_counter() - begun < 0.15


def test_training_on_does_not_change_what_was_seen() -> None:
    model = GPT(GPTConfig(), rng())
    p = RoadPanel({"one": model}, TASK, sequences=16)
    first = p.image.value
    with torch.no_grad():
        model.lm_head.weight.zero_()
    p.roads.cache_clear()
    p.refresh()
    assert p.image.value == first


def test_an_error_is_shown_and_the_next_setting_clears_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    p = made()
    with monkeypatch.context() as patch:
        patch.setattr(roads_module, "drive", lambda *_, **__: 1 / 0)
        p.slip.value = 0.25
        assert "ZeroDivisionError" in p.error.value
        assert p.told.value == ""
    p.slip.value = 0.1
    assert p.error.value == ""
    assert "last total wrong" in p.told.value
    with pytest.raises(ValueError, match="models is empty"):
        RoadPanel({}, TASK)


def test_readers_without_a_kernel_get_picture_and_numbers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shown: list[dict[str, str]] = []
    monkeypatch.setattr(live, "display", lambda data, **_: shown.append(data))
    p = made()
    p._ipython_display_()
    static, _, controls = shown
    assert base64.b64decode(static["image/png"]) == p.image.value
    assert static["image/png"].startswith("iVBOR")
    assert "last total wrong" in static["text/plain"]
    assert "run this cell" in controls["text/plain"]


def test_no_step_off_the_road_is_told_as_none() -> None:
    lines = dict.fromkeys([f.name for f in fields(Roads)], torch.zeros(2))
    seen = Roads(**lines | {"overall": (0.0, math.nan)})  # type: ignore[arg-type]
    assert "off it: none seen" in seen.told()


def test_it_speaks_chinese(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TINYRL_LANG", "zh")
    p = made()
    assert p.model.description == "模型"
    assert "路上出错的步" in p.told.value
