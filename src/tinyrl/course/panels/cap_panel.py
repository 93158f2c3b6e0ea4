"""The cap panel: what a bound on importance weights costs in bias and saves in noise.

A tiny world is added up whole (`enumerated`), so nothing in the picture is a matter of
luck. Left, bias, noise and error of the corrected gradient against the bound; right, the
effective sample size and the share of tokens that is kept.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import cycle
from typing import Any, get_args

import ipywidgets as widgets  # type: ignore[import-untyped]
import matplotlib
import matplotlib.pyplot as plt
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from tinyrl.correction import Correction, Operation
from tinyrl.course import style
from tinyrl.course.lessons.enumerated import Moments, World, world
from tinyrl.course.panels.canvas import Canvas
from tinyrl.course.panels.frame import PicturePanel, menu, slider
from tinyrl.course.words import Words
from tinyrl.logprobs import number
from tinyrl.objectives import Level, one_of

SIZE, DPI = (8.7, 3.7), 130
CAPS = (
    *(1.001, 1.002, 1.005, 1.01, 1.02, 1.05, 1.1, 1.2, 1.5, 2.0, 3.0),
    *(5.0, 10.0, 20.0, 50.0, 100.0, math.inf),
)
"""Upper bounds of the slider; the last is none."""
FAR = 200.0
"""Where no bound at all is drawn."""
GAPS, LONGEST = 20, 7
"""Steps of the mismatch slider, from 0 to 1, and the most tokens of a response."""
ERRORS = (style.QUIET, style.ROLLOUT, style.GOOD, style.DELTA)
TICKS = (1.001, 1.01, 1.1, 2.0, 10.0)
BOUND = "bound C (scale: log of C - 1)"
LEVEL, OPERATION = Words("level", "层级"), Words("operation", "操作")
CAP, LOWER = Words("bound C", "上界 C"), Words("1/C below", "下界 1/C")
GAP, LENGTH = Words("mismatch", "不一致"), Words("tokens T", "长度 T")
RESPONSES = Words("responses", "回答数")
OPERATIONS: dict[Operation, Words] = {
    "truncate": Words("truncate", "截断"),
    "mask": Words("mask", "屏蔽"),
}
UNBOUNDED = Words("none", "无")
LEVELS: dict[Level, Words] = {
    "token": Words("token", "token"),
    "sequence": Words("sequence (product)", "序列（连乘）"),
    "geometric": Words("geometric", "几何平均"),
}
TOLD = Words(
    "bias {:.3f}, noise of {} responses {:.3f}, error {:.3f} (all weights 1: {:.3f}); "
    "ESS {:.1%}, kept {:.1%}, mean weight {:.3f}; "
    "errors at C from 1.5 to 5 differ by a factor of {:.2f}",
    "偏差 {:.3f}，{} 条回答的噪声 {:.3f}，总误差 {:.3f}（权重全为 1 时：{:.3f}）；"
    "ESS {:.1%}，保留 {:.1%}，平均权重 {:.3f}；C 从 1.5 到 5，总误差最多相差 {:.2f} 倍",
)


def bounded(
    level: Level, operation: Operation, cap: float, both: bool = False
) -> Correction:
    """Weights bounded by `cap` and, with `both`, by 1 / cap; inf is no bound."""
    lower = 1 / cap if both and cap < math.inf else None
    return Correction(level, operation, lower, cap)


@dataclass(frozen=True)
class Caps:
    """What one setting shows: each bound's moments, and those where all weights are 1."""

    along: tuple[Moments, ...]
    """Of `CAPS`."""
    plain: Moments
    at: int
    """The bound that is chosen."""
    responses: int

    def told(self) -> str:
        """The numbers at the bound, in words."""
        m, n = self.along[self.at], self.responses
        middle = [
            x.error(n) for x, C in zip(self.along, CAPS, strict=True) if 1.5 <= C <= 5
        ]
        return str(TOLD).format(
            *(m.bias, n, m.noise / math.sqrt(n), m.error(n), self.plain.error(n)),
            *(m.ess, m.kept, m.mean, max(middle) / min(middle)),
        )


class CapPanel(PicturePanel):
    """Controls for a correction in a tiny world, and a picture of its bias and noise."""

    def __init__(
        self,
        *,
        level: Level = "sequence",
        operation: Operation = "truncate",
        cap: float = 2.0,
        both: bool = False,
        gap: float = 0.3,
        length: int = 5,
        responses: int = 64,
        seed: int = 0,
    ) -> None:
        one_of("level", level, get_args(Level))
        one_of("operation", operation, tuple(OPERATIONS))
        if not isinstance(both, bool):
            raise ValueError(f"both must be true or false, not {both!r}")
        if number("cap", cap) not in CAPS:
            raise ValueError(f"cap must be one of {CAPS}, not {cap}")
        # A slider would move to the nearest place that it has, and say nothing.
        if not 0 <= number("gap", gap) <= 1 or abs(gap * GAPS - round(gap * GAPS)) > 1e-9:
            raise ValueError(f"gap must be from 0 to 1 in steps of {1 / GAPS}, not {gap}")
        _whole("length", length, 1, LONGEST)
        _whole("responses", responses, 1, 10**9)
        self._seed = _whole("seed", seed, 0, 2**63 - 1)
        self.world = lru_cache(maxsize=32)(self._world)
        self.along = lru_cache(maxsize=64)(self._along)
        self.level = menu(LEVEL, {str(LEVELS[x]): x for x in get_args(Level)}, level)
        self.operation = menu(
            OPERATION, {str(said): name for name, said in OPERATIONS.items()}, operation
        )
        names = [(str(UNBOUNDED) if c == math.inf else f"{c:g}", c) for c in CAPS]
        self.cap = widgets.SelectionSlider(
            options=names, value=cap, description=str(CAP), continuous_update=False
        )
        self.both = widgets.Checkbox(both, description=str(LOWER), indent=False)
        self.gap = slider(GAP, float(gap), 0, 1, 1 / GAPS)
        self.length = slider(LENGTH, length, 1, LONGEST)
        sizes = sorted({16, 64, 256, 1024, 4096, responses})
        self.responses = menu(RESPONSES, {str(n): n for n in sizes}, responses)
        self.picture = CapFigure()
        controls = (
            *(self.level, self.operation, self.cap, self.both),
            *(self.gap, self.length, self.responses),
        )
        super().__init__(controls, "tinyrl-caps")

    def shown(self) -> Caps:
        """What the controls say, added up."""
        gap, length = round(self.gap.value, 6), self.length.value
        how = self.level.value, self.operation.value, self.both.value
        plain = self.world(gap, length).moments(Correction())
        at = CAPS.index(self.cap.value)
        return Caps(self.along(gap, length, *how), plain, at, self.responses.value)

    def _world(self, gap: float, length: int) -> World:
        g = torch.Generator().manual_seed(self._seed)
        return world(g, gap=gap, length=length)

    def _along(
        self, gap: float, length: int, level: Level, operation: Operation, both: bool
    ) -> tuple[Moments, ...]:
        w = self.world(gap, length)
        return tuple(w.moments(bounded(level, operation, cap, both)) for cap in CAPS)


class CapFigure(Canvas):
    """Left bias, noise and error against the bound, right what is left of the batch."""

    def __init__(self) -> None:
        with matplotlib.rc_context(style.RC):
            super().__init__(SIZE, DPI)
            self.places = [(c if c < math.inf else FAR) - 1 for c in CAPS]
            left, right = self.figure.subplots(1, 2)
            self.lines = {
                "plain": _line(left, "error, all weights 1", "--"),
                "noise": _line(left, "noise / √N", "o-", style.ROLLOUT),
                "bias": _line(left, "bias", "o-", style.BAD),
                "error": _line(left, "error", "-", style.INK),
                "ess": _line(right, "effective sample size", "o-", style.DELTA),
                "kept": _line(right, "tokens kept", "o-", style.GOOD),
            }
            self.marks = [axes.axvline(1.0, color=style.QUIET) for axes in (left, right)]
            style.label(left, "Error of N responses' gradient", BOUND, "in true gradients")
            style.label(right, "What is left of the batch", BOUND, "share")
            left.set(yscale="log", ylim=(1e-3, 30))
            right.set(ylim=(-0.03, 1.05))
            for axes in (left, right):
                axes.set_xscale("log")
                axes.set_xlim(self.places[0] / 1.6, self.places[-1] * 1.6)
                names = [*(f"{c:g}" for c in TICKS), "none"]
                axes.set_xticks([c - 1 for c in (*TICKS, FAR)], names)
                axes.minorticks_off()
            below: Any = {"loc": "outside lower left", "ncols": 4}
            shown = [x for x in left.get_lines() if x not in self.marks]
            self.figure.legend(handles=shown, **below)
            below["loc"] = "outside lower right"
            shown = [x for x in right.get_lines() if x not in self.marks]
            self.figure.legend(handles=shown, **below)
            self.moving = [*self.marks, *self.lines.values()]
            self.freeze(self.moving)

    def png(self, seen: Caps) -> bytes:
        """The picture of these bounds."""
        n = seen.responses
        curves = {
            "plain": [seen.plain.error(n)] * len(CAPS),
            "noise": [m.noise / math.sqrt(n) for m in seen.along],
            "bias": [m.bias for m in seen.along],
            "error": [m.error(n) for m in seen.along],
            "ess": [m.ess for m in seen.along],
            "kept": [m.kept for m in seen.along],
        }
        for mark in self.marks:
            mark.set_xdata([self.places[seen.at]] * 2)
        for name, line in self.lines.items():
            line.set_data(self.places, curves[name])
        return self.drawn(self.moving)


def plot_errors(
    worlds: Mapping[float, World],
    corrections: Mapping[str, Correction],
    responses: Sequence[int],
) -> Figure:
    """The error of each correction against the gap of the world, a plot for each number."""
    figure, axes = plt.subplots(1, len(responses), sharey=True, squeeze=False)
    ticks = (0.02, 0.03, 0.05, 0.1, 0.2, 0.3, 0.5, 1.0, 2.0)
    for ax, n in zip(axes[0], responses, strict=True):
        for (name, c), colour in zip(corrections.items(), cycle(ERRORS)):
            errors = [w.moments(c).error(n) for w in worlds.values()]
            ax.semilogy([*worlds], errors, "o-", ms=3, color=colour, label=name)
        style.label(ax, f"{n} responses", "gap", "error, in true gradients")
        ax.minorticks_off()
    limits = axes[0, 0].get_ylim()  # shared; ticks beyond them would widen them
    axes[0, 0].set_yticks(ticks, [f"{tick:g}" for tick in ticks])
    axes[0, 0].set_ylim(limits)
    below: Any = {"loc": "outside lower center", "ncols": len(corrections)}
    figure.legend(*axes[0, 0].get_legend_handles_labels(), **below)
    return figure


def _line(axes: Axes, name: str, form: str, colour: str = style.QUIET) -> Line2D:
    (line,) = axes.plot([], [], form, ms=4, color=colour, label=name)
    return line


def _whole(name: str, value: int, least: int, most: int) -> int:
    if type(value) is not int or not least <= value <= most:
        raise ValueError(
            f"{name} must be a whole number from {least} to {most}, not {value!r}"
        )
    return value
