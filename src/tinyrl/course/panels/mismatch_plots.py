"""Five plots of the same tokens under two policies: what lies between their logprobs.

delta = logp_train - logp_rollout, ratio = exp(delta). A plot is built once; an update
moves its artists. Its axes take their limits from a short list of levels: small changes
leave them where they are, and one setting always gives one picture.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import RendererAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator
from matplotlib.transforms import Bbox
from numpy.typing import NDArray
from torch import Tensor

from tinyrl.course import style
from tinyrl.metrics import Mismatch, by_position, by_probability, token_delta

Floats = NDArray[np.float64]
Cell = tuple[float, float, float, float]  # left, bottom, right, top

FRAMES = 16  # kept for each plot, at most 1 MB apiece
FLOOR, DECADES, PER_DECADE = 1e-7, 9, 4  # the delta axis: 0 and, both ways, 1e-7 .. 1e2
LOWEST = (-1, -2, -5, -10, -20, -50, -100)
RATIOS = {  # the largest ratio on the axis (its inverse the smallest): the ticks between
    1.5: (0.7, 0.8, 1, 1.2, 1.4),
    3: (0.4, 0.6, 1, 1.6, 2.5),
    10: (0.15, 0.4, 1, 2.5, 7),
    100: (0.03, 0.2, 1, 5, 30),
    1e3: (0.01, 0.1, 1, 10, 100),
    1e4: (0.001, 0.03, 1, 30, 1e3),
}
PROBABILITIES = torch.tensor([0.0, 0.1, 0.5, 0.9, 0.99, 1.0], dtype=torch.float64)
NEAR = 0.02  # nats; what the eye still takes for the diagonal


@dataclass(frozen=True)
class Tokens:
    """Two logprobs `[B, T]` of the same tokens, real where `mask` is true."""

    logp_rollout: Tensor
    logp_train: Tensor
    mask: Tensor
    numbers: Mismatch  # what `metrics.compare` makes of them

    @cached_property
    def delta(self) -> Tensor:
        """`[B, T]`, 0 in padding."""
        return token_delta(self.logp_rollout, self.logp_train, self.mask)

    def flat(self, x: Tensor) -> Floats:
        """The real tokens of a `[B, T]`, in a row."""
        return _floats(x[self.mask])


class Plot(ABC):
    """A frame that its limits decide, and artists that move within. All stay in `cell`."""

    title: str
    x: str

    def __init__(self, figure: Figure, cell: Cell) -> None:
        left, bottom, right, top = cell
        room = (left + 0.066, bottom + 0.1, right - left - 0.076, top - bottom - 0.2)
        self.axes = axes = figure.add_axes(room)
        axes.set_title(self.title, fontweight="bold", pad=16)
        axes.set_xlabel(self.x)
        axes.tick_params(labelsize=8.5)
        self.finding = axes.annotate(
            "", (0, 1), (0, 4), xycoords="axes fraction", textcoords="offset points"
        )
        self.moving: list[Artist] = [self.finding]
        self._cell = figure.transFigure.transform_bbox(Bbox.from_extents(*cell))
        self._paper = Rectangle((left, bottom), right - left, top - bottom, fc="white")
        self._paper.set(lw=0, transform=figure.transFigure, figure=figure)
        self._frames: dict[tuple[float, ...], Any] = {}

    @abstractmethod
    def update(self, tokens: Tokens) -> None:
        """Move artists and limits to these tokens."""

    def draw_frame(self, renderer: RendererAgg) -> None:
        """Draw all that does not move, from memory if these limits were seen lately."""
        limits = tuple(self.axes.viewLim.extents)
        if limits in self._frames:
            renderer.restore_region(self._frames[limits])  # type: ignore[no-untyped-call]
            return
        for artist in self.moving:
            artist.set_animated(True)  # left out by `draw`
        self._paper.draw(renderer)
        self.axes.draw(renderer)
        self._frames[limits] = renderer.copy_from_bbox(self._cell)
        if len(self._frames) > FRAMES:
            del self._frames[next(iter(self._frames))]


class Scatter(Plot):
    title = "The same tokens, two logprobs"
    x = "logp_rollout: the policy that sampled"

    def __init__(self, figure: Figure, cell: Cell) -> None:
        super().__init__(figure, cell)
        axes = self.axes
        axes.set(box_aspect=1, anchor="N")
        axes.apply_aspect()
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_locator(MaxNLocator(5, integer=True))
        axes.grid(True, axis="both")
        axes.plot([-1e6, 0], [-1e6, 0], color=style.QUIET, lw=1)
        axes.set_ylabel("logp_train: the policy that is trained", labelpad=1)
        axes.yaxis.label.set_color(style.TRAIN)
        axes.xaxis.label.set_color(style.ROLLOUT)
        self.points = Line2D([], [], ls="", marker="o", ms=3.4, mew=0, alpha=0.45)
        axes.add_line(self.points).set_color(style.DELTA)
        self.numbers = axes.annotate(
            "", (0, 0), (0, -44), xycoords="axes fraction", textcoords="offset points",
            va="top", linespacing=1.5, fontsize=9,
        )  # fmt: skip
        self.moving += [self.points, self.numbers]

    def update(self, tokens: Tokens) -> None:
        x, y = tokens.flat(tokens.logp_rollout), tokens.flat(tokens.logp_train)
        self.points.set_data(x, y)
        lowest = min(x.min(), y.min())
        low = next((level for level in LOWEST if level <= lowest), 1.02 * lowest)
        self.axes.set(xlim=(1.03 * low, -0.03 * low), ylim=(1.03 * low, -0.03 * low))
        off = (np.abs(y - x) > NEAR).mean()
        self.finding.set_text(f"{len(x):,} tokens, {share(off)} off by more than {NEAR}")
        n = tokens.numbers
        self.numbers.set_text(
            f"|delta|: mean {short(n.mean_abs)}, max {short(n.max_abs)}\n"
            f"|sequence delta|: mean {short(n.seq_mean_abs)}\nK3: {short(n.k3)}"
        )


class Deltas(Plot):
    title = "delta of each token"
    x = "delta; each tick is a factor of 10"

    def __init__(self, figure: Figure, cell: Cell) -> None:
        super().__init__(figure, cell)
        axes = self.axes
        up = 0.5 + np.linspace(0, DECADES, DECADES * PER_DECADE + 1)
        self.edges = np.concatenate([-up[::-1], up])
        axes.axvspan(-0.5, 0.5, color=style.GOOD, alpha=0.16, lw=0)
        self.bars = axes.stairs(self.edges[1:], self.edges, fill=True, color=style.DELTA)
        _count_axis(axes)
        axes.set_xlim(self.edges[0], self.edges[-1])
        named = {-1.0: "-1", -1e-3: "-0.001", 0.0: "0", 1e-3: "0.001", 1.0: "1"}
        axes.set_xticks(decades(np.array(list(named))), list(named.values()))
        minor = np.concatenate([-up, up])[::PER_DECADE]
        axes.xaxis.set_minor_locator(FixedLocator(minor.tolist()))
        self.moving.append(self.bars)

    def update(self, tokens: Tokens) -> None:
        delta = tokens.flat(tokens.delta)
        last = self.edges[-1] - 1e-9
        inside = np.clip(decades(delta), -last, last)
        self.bars.set_data(np.histogram(inside, self.edges)[0])
        self.axes.set_ylim(0.7, round_up(1.3 * len(delta)))
        zero, above = (delta == 0).mean(), (delta > 0).mean()
        self.finding.set_text(
            "every token exactly 0"
            if zero == 1
            else f"{share(zero)} exactly 0, {share(above)} above 0"
        )


class Ratios(Plot):
    title = "ratio = exp(delta)"

    def __init__(self, figure: Figure, cell: Cell, clip: float) -> None:
        self.clip, self.x = clip, f"ratio; green: within 1 \u00b1 {clip:g}"
        super().__init__(figure, cell)
        axes = self.axes
        low, high = math.log(max(1 - clip, 1e-9)), math.log1p(clip)
        axes.axvspan(low, high, color=style.GOOD, alpha=0.16, lw=0)
        self.bars = axes.stairs(np.ones(41), np.arange(42), fill=True, color=style.DELTA)
        _count_axis(axes)
        axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: short(math.exp(x), 2)))
        axes.xaxis.set_minor_locator(NullLocator())
        self.moving.append(self.bars)

    def update(self, tokens: Tokens) -> None:
        delta = tokens.flat(tokens.delta)
        widest = np.abs(delta).max()
        level = next((x for x in RATIOS if widest <= math.log(x)), max(RATIOS))
        edges = np.linspace(-math.log(level), math.log(level), 42)
        inside = np.clip(delta, edges[0], edges[-1])
        self.bars.set_data(np.histogram(inside, edges)[0], edges)
        self.axes.set_xlim(edges[0], edges[-1])
        self.axes.set_ylim(0.7, round_up(1.3 * len(delta)))
        ticks = [math.log(x) for x in RATIOS[level]]
        self.axes.xaxis.set_major_locator(FixedLocator(ticks))
        self.finding.set_text(
            f"{share(tokens.numbers.clip_fraction)} outside 1 \u00b1 {self.clip:g}"
        )


class ByPosition(Plot):
    title = "delta by position"
    x = "token of the response"

    def __init__(self, figure: Figure, cell: Cell) -> None:
        super().__init__(figure, cell)
        axes = self.axes
        axes.axhline(0, color=style.QUIET, lw=0.8)
        axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: short(y)))
        axes.xaxis.set_major_locator(MaxNLocator(7, integer=True))
        self.bars = axes.stairs([0], [0, 1], fill=True, color=style.DELTA, alpha=0.4)
        (self.line,) = axes.plot([], [], "o-", ms=3, lw=1.4, color=style.INK)
        self.moving += [self.bars, self.line]

    def update(self, tokens: Tokens) -> None:
        size, bias, count = (_floats(x) for x in by_position(tokens.delta, tokens.mask))
        T = int(np.flatnonzero(count)[-1]) + 1
        self.bars.set_data(np.nan_to_num(size[:T]), np.arange(T + 1) + 0.5)
        self.line.set_data(np.arange(T) + 1, bias[:T])
        top = round_up(np.nanmax(size))
        low = -top if np.nanmin(bias) < -0.3 * top else -0.3 * top
        self.axes.set(xlim=(0.5, T + 0.5), ylim=(low, top))
        self.finding.set_text("bars: mean |delta|, line: mean")


class ByProbability(Plot):
    title = "delta by probability"
    x = "probability under the rollout"

    def __init__(self, figure: Figure, cell: Cell) -> None:
        super().__init__(figure, cell)
        axes = self.axes
        names = ("<.1", ".1\u2013.5", ".5\u2013.9", ".9\u2013.99", ">.99")
        places = range(len(names))
        self.bars = axes.bar(places, [0.0] * len(names), 0.8, color=style.DELTA)
        self.counts = [
            axes.text(i, 0, "", ha="center", va="bottom", fontsize=7.5) for i in places
        ]
        axes.set_xticks(places, names, fontsize=8)
        axes.set_xlim(-0.5, len(names) - 0.5)
        axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: short(y)))
        self.moving += [*self.bars, *self.counts]

    def update(self, tokens: Tokens) -> None:
        delta, logp, mask = tokens.delta, tokens.logp_rollout, tokens.mask
        parts = by_probability(delta, logp, mask, PROBABILITIES)
        size, _, count = (np.nan_to_num(_floats(x)) for x in parts)
        top = round_up(size.max())
        for bar, text, y, n in zip(self.bars, self.counts, size, count, strict=True):
            bar.set_height(y)
            text.set(y=y + 0.01 * top, text=f"{n:.0f}")
        self.axes.set_ylim(0, 1.15 * top)
        self.finding.set_text("mean |delta|, token counts")


def decades(delta: Floats) -> Floats:
    """Signed decades above 1e-7: 0 stays 0, +-1e-7 and less is +-0.5, +-1e-6 is +-1.5."""
    above = np.log10(np.maximum(np.abs(delta), FLOOR) / FLOOR)
    return np.asarray(np.sign(delta) * (0.5 + np.maximum(above, 1e-9)))


def round_up(x: float) -> float:
    """The next of 1, 2, 5, 10, 20 ... at or above `x`; 1e-7 for what is smaller."""
    decade = 10.0 ** math.floor(math.log10(max(x, FLOOR)))
    return next(m * decade for m in (1, 2, 5, 10, 20) if x <= m * decade)


def share(x: float) -> str:
    """A share in percent; some never reads as none, nor most as all."""
    return "100 %" if x == 1 else f"{100 * x:.2g} %" if x < 0.99 else "over 99 %"


def short(x: float, digits: int = 3) -> str:
    """A number in few characters: `0.0123`, `1e4`, `4.9e-5`."""
    text = f"{x:.{digits}g}"
    return text.replace("e-0", "e-").replace("e+0", "e").replace("e+", "e")


def _floats(x: Tensor) -> Floats:
    return x.detach().cpu().double().numpy()


def _count_axis(axes: Axes) -> None:
    axes.set_yscale("log")
    axes.yaxis.set_minor_locator(NullLocator())
    axes.set_ylabel("tokens", labelpad=0)
