"""Pictures of training runs: what each arm did, with the spread over its seeds.

A line is the mean over seeds, its band goes from the lowest seed to the highest. Colours
are those of Okabe and Ito (2008), in the order in which arms come.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import matplotlib
import torch
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Polygon
from matplotlib.ticker import MaxNLocator
from torch import Tensor

from tinyrl.course import style
from tinyrl.course.panels.canvas import Canvas
from tinyrl.runs import Run
from tinyrl.sweeps import curves

SIZE, DPI = (8.7, 4.75), 130
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00")
WINDOW = 5
"""Steps that a point of a reward curve is the mean of: one step's reward is noisy."""
FIRST, LINE = 0.265, 0.048
"""Where the name of the first arm stands, and how far below it the next one's."""
LOWEST = 1e-8
"""What K3 is shown as where it is smaller, or 0: two equal policies."""


def trailing(x: Tensor, window: int) -> Tensor:
    """Mean of each value `[R, S]` and the up to `window` - 1 before it."""
    total = torch.nn.functional.pad(x.cumsum(1), (1, 0))
    end = torch.arange(1, x.shape[1] + 1)
    begin = (end - window).clamp(min=0)
    return (total[:, end] - total[:, begin]) / (end - begin)


def plot_runs(
    axes: Axes,
    arms: Mapping[str, Sequence[Run]],
    name: str = "reward",
    window: int = WINDOW,
) -> None:
    """A number of each step (`Run.series`) into `axes`, a line and a band for each arm."""
    if len(arms) > len(COLOURS):
        raise ValueError(f"{len(arms)} arms: more than {len(COLOURS)} look alike")
    for (arm, runs), colour in zip(arms.items(), COLOURS, strict=False):
        low, middle, high = spread_of(trailing(curves(runs, name), window))
        steps = range(1, len(middle) + 1)
        axes.fill_between(steps, low, high, color=colour, alpha=0.18, lw=0)
        axes.plot(steps, middle, color=colour, label=arm)


def spread_of(values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Lowest, mean and highest run at each step of `[R, S]`, of those that got there."""
    there = ~values.isnan()
    low = torch.where(there, values, torch.inf).amin(0)
    high = torch.where(there, values, -torch.inf).amax(0)
    return low, values.nanmean(0), high


class RunsFigure(Canvas):
    """Rewards, mismatch and final pass rates."""

    def __init__(self, steps: int) -> None:
        rc = {**style.RC, "figure.constrained_layout.use": False}
        with matplotlib.rc_context(rc):
            super().__init__(SIZE, DPI)
            places = ((0.065, 0.31), (0.455, 0.26), (0.79, 0.2))
            axes = [self.figure.add_axes((x, 0.44, w, 0.49)) for x, w in places]
            style.label(axes[0], "Reward while training", "step", f"mean of {WINDOW} steps")
            style.label(axes[1], "Mismatch", "step", "K3, nats a token")
            style.label(axes[2], "Pass rate at the end", "arm")
            for ax in axes[:2]:
                ax.set_xlim(0.5, steps + 0.5)
                ax.xaxis.set_major_locator(MaxNLocator(6, integer=True))
            axes[1].set_yscale("log")
            axes[1].set_ylim(LOWEST / 2, 10)
            floor = f"at {LOWEST:.0e}: that or less, 0 too"
            axes[1].text(
                *(0.98, LOWEST * 1.6, floor),
                transform=axes[1].get_yaxis_transform(),
                ha="right",
                fontsize=7,
                color=style.QUIET,
            )
            for ax in (axes[0], axes[2]):
                ax.set_ylim(-0.03, 1.03)
            axes[2].set_xlim(0.4, len(COLOURS) + 0.6)
            axes[2].set_xticks(range(1, len(COLOURS) + 1))
            for marker, side in (("o", "training stack"), ("^", "rollout stack")):
                axes[2].plot([], [], marker, ms=5, color=style.QUIET, label=side)
            axes[2].legend(  # below: it would hide an arm that ended at 0 or at 1
                loc="upper center",
                bbox_to_anchor=(0.4, -0.17),
                ncols=2,
                fontsize=7.5,
                handletextpad=0.1,
                columnspacing=0.8,
            )
            self.arms = [_Arm(self.figure, axes, i) for i in range(len(COLOURS))]
            self.freeze(())  # the arms are empty yet

    def png(self, arms: Mapping[str, Sequence[Run]]) -> bytes:
        """The picture of these runs, finished or not."""
        if len(arms) > len(COLOURS):
            raise ValueError(f"{len(arms)} arms: more than {len(COLOURS)} look alike")
        moving: list[Artist] = []
        for shown, (name, runs) in zip(self.arms, arms.items(), strict=False):
            if any(run.steps for run in runs):
                shown.update(name, runs)
                moving += shown.moving
        return self.drawn(moving, 1 - FIRST + LINE * (len(arms) - 0.4))


class _Arm:
    """The artists of one arm, empty when the frame is drawn."""

    def __init__(self, figure: Figure, axes: Sequence[Axes], place: int) -> None:
        colour, self.place = COLOURS[place], place + 1
        self.lines = [Line2D([], [], color=colour) for _ in range(2)]
        self.bands = [
            Polygon([(0, 0)], color=colour, alpha=0.18, lw=0, closed=True) for _ in range(2)
        ]
        for ax, line, band in zip(axes, self.lines, self.bands, strict=False):
            ax.add_patch(band)
            ax.add_line(line)
        self.rates = [
            axes[2].plot([], [], marker, ms=5, color=colour, ls="")[0] for marker in "o^"
        ]
        self.name = figure.text(
            0.065, FIRST - LINE * place, "", color=colour, fontweight="bold", fontsize=9
        )
        self.moving: list[Artist] = [*self.bands, *self.lines, *self.rates, self.name]

    def update(self, name: str, runs: Sequence[Run]) -> None:
        """Show these runs, of which one at least has begun."""
        reward = trailing(curves(runs, "reward"), WINDOW)
        k3 = curves(runs, "mismatch.k3").clamp(min=LOWEST)
        for values, line, band in zip((reward, k3), self.lines, self.bands, strict=True):
            low, middle, high = spread_of(values)
            steps = list(range(1, len(middle) + 1))
            line.set_data(steps, middle.tolist())
            outline = zip(steps + steps[::-1], [*low, *high.flip(0)], strict=True)
            band.set_xy([(x, float(y)) for x, y in outline])
        ends = [run.final for run in runs if run.done]
        for marks, side in zip(self.rates, ("train", "rollout"), strict=True):
            x = self.place + (-0.15 if side == "train" else 0.15)
            marks.set_data([x] * len(ends), [getattr(end, side) for end in ends])
        seeds = f"{len(ends)} of {len(runs)} seeds" if len(ends) < len(runs) else ""
        self.name.set_text(f"{self.place}  {name}" + (f"  ({seeds})" if seeds else ""))
