"""The cap panel: its numbers by the library alone, its controls, what it leaves."""

from __future__ import annotations

import base64
import math

import matplotlib.pyplot as plt
import pytest
import torch

from tinyrl.correction import Correction
from tinyrl.course import live
from tinyrl.course.lessons.enumerated import world
from tinyrl.course.panels import cap_panel as caps_module
from tinyrl.course.panels.cap_panel import CAPS, TICKS, CapPanel, bounded, plot_errors


def made(**start: object) -> CapPanel:
    return CapPanel(seed=3, **start)  # type: ignore[arg-type]


def rng() -> torch.Generator:
    return torch.Generator().manual_seed(3)


@pytest.mark.parametrize("level", ["token", "sequence", "geometric"])
@pytest.mark.parametrize("operation", ["truncate", "mask"])
def test_its_numbers_are_those_of_the_world(level: str, operation: str) -> None:
    seen = made(level=level, operation=operation, cap=1.5, gap=0.25, length=4).shown()
    w = world(rng(), gap=0.25, length=4)
    for cap, m in zip(CAPS, seen.along, strict=True):
        upper = None if cap == math.inf and operation == "mask" else cap
        if upper is None:
            everything = torch.ones_like(w.ids, dtype=torch.bool)
            weight, _ = Correction(level, "truncate", None, math.inf).apply(  # type: ignore[arg-type]
                w.train, w.rollout, everything
            )
            assert m == w.of(weight)
        else:
            assert m == w.moments(Correction(level, operation, None, upper))  # type: ignore[arg-type]
    assert seen.plain == w.moments(Correction())
    assert CAPS[seen.at] == 1.5
    m = seen.along[seen.at]
    assert f"error {m.error(64):.3f}" in seen.told()
    assert f"ESS {m.ess:.1%}" in seen.told()
    errors = [x.error(64) for x, C in zip(seen.along, CAPS, strict=True) if 1.5 <= C <= 5]
    assert f"differ by a factor of {max(errors) / min(errors):.2f}" in seen.told()


def test_both_bounds_are_reciprocal() -> None:
    assert bounded("geometric", "mask", 1.25, True) == Correction(
        "geometric", "mask", 0.8, 1.25
    )
    assert bounded("token", "mask", 1.25).lower is None
    assert bounded("token", "mask", math.inf, True).lower is None


def test_without_a_bound_the_product_has_no_bias_and_each_bound_less_noise() -> None:
    along = made().shown().along
    assert along[-1].bias < 1e-12
    noises = [m.noise for m in along]
    assert noises[CAPS.index(1.2)] < noises[-1]


def test_every_control_changes_the_picture_and_going_back_brings_it_back() -> None:
    p = made()
    first, said = p.image.value, p.told.value
    for control, new in (
        (p.level, "token"), (p.operation, "mask"), (p.cap, 1.1), (p.gap, 0.5),
        (p.both, True), (p.length, 3), (p.responses, 4096),
    ):  # fmt: skip
        old = control.value
        control.value = new
        assert p.image.value != first
        control.value = old
        assert p.image.value == first
        assert p.told.value == said


def test_an_error_is_shown_and_the_next_setting_clears_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    p = made()

    def broken(*_: object, **__: object) -> None:
        raise ValueError("no <world>")

    with monkeypatch.context() as m:
        m.setattr(caps_module, "world", broken)
        p.gap.value = 0.9
    assert "no &lt;world&gt;" in p.error.value
    assert "tinyrl-failed" in p.widget._dom_classes
    p.gap.value = 0.3
    assert p.error.value == ""
    assert "tinyrl-failed" not in p.widget._dom_classes


def test_a_bound_that_the_slider_does_not_have_is_refused() -> None:
    with pytest.raises(ValueError, match=r"cap must be one of .*, not 2\.5"):
        made(cap=2.5)


def test_what_no_control_can_show_is_refused_and_not_moved() -> None:
    for name, bad in {
        "gap": (5, -0.05, 0.33, math.nan, "a"),
        "length": (9, 0, 2.5, True),
        "responses": (0, -5, "64", 2.5, math.inf),
        "seed": (1.5, -1),
        "level": ("sequnce", None),
        "operation": ("none", "clip"),
        "both": (1, "yes"),
        "cap": ("a", math.nan, 0),
    }.items():
        for value in bad:
            with pytest.raises(ValueError, match=f"{name} must be"):
                CapPanel(**{name: value})  # type: ignore[arg-type]
    p = made(gap=0.35, length=7, responses=100)
    assert (p.gap.value, p.length.value, p.responses.value) == (0.35, 7, 100)


def test_every_tick_of_the_picture_is_a_place_of_the_slider() -> None:
    picture = made().picture
    axes = picture.figure.axes
    for ax in axes:
        names = [text.get_text() for text in ax.get_xticklabels()]
        assert [math.inf if n == "none" else float(n) for n in names] == [*TICKS, math.inf]
        at = [picture.places[CAPS.index(c)] for c in (*TICKS, math.inf)]
        assert ax.get_xticks().tolist() == at


def test_errors_are_drawn_against_the_gap() -> None:
    worlds = {gap: world(rng(), gap=gap, length=3) for gap in (0.1, 0.4)}
    methods = {"none": Correction(), "token": bounded("token", "truncate", 2.0)}
    figure = plot_errors(worlds, methods, (64, 4096))
    for ax, n in zip(figure.axes, (64, 4096), strict=True):
        assert f"{n} responses" in (ax.get_title(), ax.get_title(loc="left"))
        for line, c in zip(ax.get_lines(), methods.values(), strict=True):
            assert line.get_xdata().tolist() == [0.1, 0.4]
            wanted = [w.moments(c).error(n) for w in worlds.values()]
            assert line.get_ydata().tolist() == wanted
            low, high = ax.get_ylim()
            assert low < min(wanted)
            assert max(wanted) < high
    shown = [t.get_text() for t in figure.axes[0].get_yticklabels()]
    assert "0.1" in shown  # and no 10^-1
    plt.close(figure)


def test_it_leaves_a_picture_with_its_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[dict[str, str]] = []
    monkeypatch.setattr(live, "display", lambda d, **_: shown.append(d))
    p = made()
    p._ipython_display_()
    static, _, controls = shown
    assert base64.b64decode(static["image/png"]) == p.image.value
    assert static["text/plain"] == p.shown().told()
    assert "application/vnd.jupyter.widget-view+json" in controls
