"""The picture shows every token where it belongs, can be read, and holds still."""

import io
import time
from itertools import pairwise
from typing import TypeVar

import matplotlib
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.axis import Axis
from matplotlib.text import Text
from PIL import Image

from tinyrl.course.panels.mismatch_figure import DPI, SIZE, MismatchFigure
from tinyrl.course.panels.mismatch_plots import (
    ByPosition,
    ByProbability,
    Deltas,
    Plot,
    Ratios,
    Scatter,
    Tokens,
    decades,
    round_up,
    share,
    short,
)
from tinyrl.metrics import compare

SCALES = [0.0, 1e-9, 1e-7, 1e-4, 0.003, 0.05, 0.4, 3.0, 12.0, 300.0]
P = TypeVar("P", bound=Plot)


def tokens(scale: float, *, seed: int = 0, B: int = 64, T: int = 13) -> Tokens:
    """Random logprobs whose deltas are about `scale`, more where the policy is unsure."""
    g = torch.Generator().manual_seed(seed)
    logp = -torch.empty(B, T).exponential_(2.0, generator=g)
    length = torch.randint(1, T + 1, (B, 1), generator=g)
    length[0] = T
    mask = torch.arange(T) < length
    noise = torch.randn(B, T, generator=g) * scale * (1 - logp.exp())
    train = (logp.double() + noise).clamp(max=0)
    rubbish = torch.tensor([float("nan"), float("inf"), 7.0])[torch.arange(B * T) % 3]
    train = torch.where(mask, train, rubbish.view(B, T).double())
    return Tokens(logp, train, mask, compare(logp, train, mask))


def real(t: Tokens) -> tuple[np.ndarray, np.ndarray]:
    """The logprobs of the real tokens, by numpy alone."""
    m = t.mask.numpy()
    return t.logp_rollout.double().numpy()[m], t.logp_train.numpy()[m]


def the(kind: type[P], figure: MismatchFigure) -> P:
    (found,) = (p for p in figure.plots if isinstance(p, kind))
    return found


@pytest.fixture(scope="module")
def figure() -> MismatchFigure:
    return MismatchFigure()


def test_one_setting_gives_one_picture(figure):
    """Kept frames and moved artists draw, to the byte, what a new figure draws."""
    shown = [tokens(scale) for scale in (0.0, 1e-7, 0.003, 0.4, 12.0)]
    fresh = [MismatchFigure().png(t) for t in shown]
    for _ in range(2):  # the second time from kept frames
        assert [figure.png(t) for t in shown] == fresh


def test_all_pictures_have_one_size_and_differ(figure):
    pngs = {figure.png(tokens(scale)) for scale in SCALES}
    assert len(pngs) == len(SCALES)
    for png in pngs:
        with Image.open(io.BytesIO(png)) as image:
            assert image.format == "PNG"
            assert image.size == tuple(round(side * DPI) for side in SIZE)


@pytest.mark.parametrize("scale", SCALES)
def test_every_real_token_is_drawn_inside_the_axes(figure, scale):
    t = tokens(scale)
    x, y = real(t)
    figure.png(t)
    scatter = the(Scatter, figure)
    np.testing.assert_array_equal(scatter.points.get_xydata(), np.stack([x, y], 1))
    for shown, (low, high) in ((x, scatter.axes.get_xlim()), (y, scatter.axes.get_ylim())):
        assert low <= shown.min()
        assert shown.max() <= high
    for kind in (Deltas, Ratios):
        bars = the(kind, figure).bars.get_data()
        assert bars.values.sum() == len(x)
        assert bars.values.max() <= the(kind, figure).axes.get_ylim()[1]


@pytest.mark.parametrize("scale", SCALES)
def test_bars_count_what_numpy_counts(figure, scale):
    t = tokens(scale)
    x, y = real(t)
    figure.png(t)
    values, edges, _ = the(Deltas, figure).bars.get_data()
    middle = len(values) // 2
    assert values[middle] == np.sum(x == y)
    assert values[:middle].sum() == np.sum(y < x)
    values, edges, _ = the(Ratios, figure).bars.get_data()
    for i in range(1, len(values) - 1):  # the last bins also hold what lies beyond
        inside = (y - x >= edges[i]) & (y - x < edges[i + 1])
        assert values[i] == inside.sum()


@pytest.mark.parametrize("scale", SCALES)
def test_means_by_position_and_probability_are_numpys(figure, scale):
    t = tokens(scale)
    m = t.mask.numpy()
    d = np.where(m, t.logp_train.numpy() - t.logp_rollout.double().numpy(), 0)
    figure.png(t)
    by_position = the(ByPosition, figure)
    size = np.abs(d).sum(0) / m.sum(0)
    np.testing.assert_allclose(by_position.bars.get_data().values, size, rtol=1e-9)
    np.testing.assert_allclose(
        by_position.line.get_ydata(), d.sum(0) / m.sum(0), atol=1e-15
    )
    p = np.exp(t.logp_rollout.double().numpy())
    edges = [0, 0.1, 0.5, 0.9, 0.99, 1]
    by_probability = the(ByProbability, figure)
    for bar, text, (low, high) in zip(
        by_probability.bars, by_probability.counts, pairwise(edges), strict=True
    ):
        inside = m & (p > low) & (p <= high)
        assert text.get_text() == str(inside.sum())
        want = np.abs(d)[inside].mean() if inside.any() else 0
        assert bar.get_height() == pytest.approx(want, rel=1e-9)
        assert bar.get_height() <= by_probability.axes.get_ylim()[1]


def tick_labels(axis: Axis) -> list[Text]:
    """Those that are drawn: a tick beyond the limits has a label too, and is not."""
    low, high = axis.get_view_interval()
    pairs = zip(axis.get_majorticklocs(), axis.get_majorticklabels(), strict=True)
    return [label for x, label in pairs if low <= x <= high]


@pytest.mark.parametrize("scale", SCALES)
def test_no_text_leaves_its_cell_or_covers_a_neighbour(figure, scale):
    figure.png(tokens(scale, B=256))
    for plot in figure.plots:
        x, y = plot.axes.xaxis, plot.axes.yaxis
        texts = [plot.axes.title, plot.finding, x.label, y.label]
        texts += [*tick_labels(x), *tick_labels(y)]
        texts += [text for text in plot.moving if isinstance(text, Text)]
        for text in filter(Text.get_text, texts):
            box = text.get_window_extent(figure.renderer)
            assert (box.min >= plot._cell.min - 1).all(), text
            assert (box.max <= plot._cell.max + 1).all(), text
        boxes = [label.get_window_extent(figure.renderer) for label in tick_labels(x)]
        boxes.sort(key=lambda box: box.x0)
        assert all(a.x1 + 2 < b.x0 for a, b in pairwise(boxes)), plot.title


@pytest.mark.parametrize("scale", SCALES)
def test_axes_hold_still_for_small_changes(figure, scale):
    """Another seed of the same noise moves the tokens, and seldom an axis."""

    def limits(seed):
        figure.png(tokens(scale, seed=seed, B=512))
        return [tuple(p.axes.viewLim.extents) for p in figure.plots]

    first = limits(0)
    moved = [
        a != b for seed in range(1, 4) for a, b in zip(first, limits(seed), strict=True)
    ]
    assert sum(moved) <= len(moved) / 2


def test_findings_say_what_is_seen(figure):
    def findings(scale):
        t = tokens(scale)
        figure.png(t)
        return t, {type(p): p.finding.get_text() for p in figure.plots}

    t, said = findings(0.0)
    assert said[Deltas] == "every token exactly 0"
    assert said[Ratios] == "0 % outside 1 \u00b1 0.2"
    t, said = findings(3.0)
    x, y = real(t)
    outside = np.mean(np.abs(np.exp(y - x) - 1) > 0.2)
    assert said[Ratios] == f"{share(outside)} outside 1 \u00b1 0.2"
    assert said[Scatter] == (
        f"{len(x):,} tokens, {share(np.mean(abs(y - x) > 0.02))} off by more than 0.02"
    )


@pytest.mark.parametrize(("B", "T"), [(1, 1), (1, 40), (300, 1), (4, 1000)])
def test_any_shape_can_be_drawn(B, T):
    t = tokens(0.1, B=B, T=T)
    figure = MismatchFigure(clip=1.5)
    figure.png(t)
    assert the(ByPosition, figure).axes.get_xlim() == (0.5, T + 0.5)


def test_a_position_without_tokens_is_a_gap_and_shifts_nothing(figure):
    t = tokens(0.1, B=8, T=6)
    mask = torch.ones(8, 6, dtype=torch.bool)
    mask[:, 2] = False
    logp = t.logp_rollout
    train = logp - torch.tensor([0.0, 0.1, 9.0, 0.3, 0.4, 0.5])
    figure.png(Tokens(logp, train, mask, compare(logp, train, mask)))
    shown = the(ByPosition, figure).bars.get_data().values
    np.testing.assert_allclose(shown, [0, 0.1, 0, 0.3, 0.4, 0.5], atol=1e-6)


def test_the_learners_own_figures_keep_their_look():
    before = dict(matplotlib.rcParams)
    MismatchFigure().png(tokens(0.1))
    assert dict(matplotlib.rcParams) == before


@given(st.floats(1e-30, 1e30))
def test_round_up_is_the_next_of_one_two_five(x):
    level = round_up(x)
    assert max(x, 1e-7) <= level <= 2.5 * max(x, 1e-7) * (1 + 1e-9)
    assert f"{level:e}"[0] in "125"


@given(st.floats(-50, 50), st.floats(-50, 50))
def test_decades_keep_order_and_sign(a, b):
    x, y = decades(np.array([a, b]))
    assert np.sign(x) == np.sign(a)
    assert (x <= y) if a <= b else (x >= y)
    assert abs(x) > 0.5 or a == 0


@given(st.floats(0, 1))
def test_some_never_reads_as_none_and_most_never_as_all(x):
    text = share(x)
    assert (text == "0 %") == (x == 0)
    assert (text == "100 %") == (x == 1)
    assert (text == "over 99 %") == (0.99 <= x < 1)
    assert "e" not in text.replace("over", "") or x < 1e-6


@pytest.mark.parametrize(
    ("x", "text"), [(0, "0"), (0.0123, "0.0123"), (4.9e-5, "4.9e-5"), (1e4, "1e4")]
)
def test_short_numbers(x, text):
    assert short(x, 3 if x < 1 else 2) == text


def test_a_picture_takes_a_tenth_of_a_second(figure):
    """A loose bound for a busy machine; `make bench` prints what a panel's takes."""
    shown = [tokens(scale, B=256) for scale in SCALES]
    for t in shown:
        figure.png(t)
    took = []
    for t in shown * 3:
        begun = time.process_time()
        figure.png(t)
        took.append(1e3 * (time.process_time() - begun))
    assert np.median(took) < 300
