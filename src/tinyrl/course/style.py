"""One look for every figure of the course: whose quantity it is decides the colour.

Colours are those of Okabe and Ito (2008), told apart by colour-blind readers and in grey
print. Figures carry English text only, so that no machine lacks a font for them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from torch import Tensor

if TYPE_CHECKING:
    from matplotlib.typing import RcKeyType

ROLLOUT = "#D55E00"  # the policy that sampled, its logprobs, the engine
TRAIN = "#0072B2"  # the policy that is trained, its logprobs
DELTA = "#7B4EA3"  # their difference: delta, ratio, KL
GOOD = "#009E73"  # repaired, aligned, as it should be
BAD = "#B3261E"  # a bound that is crossed, a wrong value
QUIET = "#8A8F98"  # reference lines, what is only there to compare with
INK = "#22262B"  # text and axes

WIDTH = 8.4  # inches; fits a notebook column without being scaled down
HEIGHT = 2.9

RC: dict[RcKeyType, Any] = {
    "figure.dpi": 110,
    "figure.figsize": (WIDTH, HEIGHT),
    "figure.constrained_layout.use": True,
    "font.size": 9.5,
    "text.color": INK,
    "axes.titlesize": 10.5,
    "axes.titlelocation": "left",
    "axes.labelcolor": INK,
    "axes.edgecolor": QUIET,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "grid.color": "#E4E6EA",
    "grid.linewidth": 0.8,
    "xtick.color": INK,
    "ytick.color": INK,
    "lines.linewidth": 1.8,
    "legend.frameon": False,
    "legend.fontsize": 9,
}


def use() -> None:
    """Give every later figure of this kernel the course's look.

    A notebook calls it once, at the top; a widget that must not change the learner's own
    figures draws inside `matplotlib.rc_context(style.RC)` instead.
    """
    plt.rcParams.update(RC)


def label(axes: Axes, title: str, x: str = "", y: str = "") -> None:
    """Title and axis names in one line: a picture without them says nothing."""
    axes.set_title(title)
    axes.set_xlabel(x)
    axes.set_ylabel(y)


def table(axes: Axes, values: Tensor, rows: Sequence[str], columns: Sequence[str]) -> None:
    """Positive numbers `[R, C]`, each written into its cell, darker as its size grows."""
    axes.imshow(values.log10(), cmap="Purples", vmin=-8, vmax=2, aspect="auto")
    for i, row in enumerate(values.tolist()):
        for j, value in enumerate(row):
            colour = "white" if value > 1e-2 else INK
            axes.text(j, i, f"{value:.0e}", ha="center", va="center", color=colour)
    axes.set_xticks(range(len(columns)), columns)
    axes.set_yticks(range(len(rows)), rows)
    axes.grid(False)


def bars(
    axes: Axes,
    heights: Mapping[str, float],
    colours: str | Sequence[str],
    form: str = ".2g",
) -> None:
    """A bar for each name with its height written above it, in `form`at."""
    drawn = axes.bar(list(heights), list(heights.values()), color=colours)
    axes.bar_label(drawn, [format(height, form) for height in heights.values()], padding=2)
    axes.margins(y=0.15)
