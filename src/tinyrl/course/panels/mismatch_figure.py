"""The picture of a mismatch: made once, then only its artists change.

A learner who moves a control must see the next picture at once and in the same place. So
axes, bins and texts are built one time, and what an axis' limits decide is drawn once and
kept: mostly only the data and a few words are drawn.
"""

from __future__ import annotations

import matplotlib

from tinyrl.course import style
from tinyrl.course.panels.canvas import Canvas
from tinyrl.course.panels.mismatch_plots import (
    ByPosition,
    ByProbability,
    Deltas,
    Plot,
    Ratios,
    Scatter,
    Tokens,
)

SIZE, DPI = (8.7, 4.75), 150  # inches; pixels an inch, fine enough for a dense screen


class MismatchFigure(Canvas):
    """Draws one comparison after another into a PNG of always the same size."""

    def __init__(self, clip: float = 0.2) -> None:
        with matplotlib.rc_context({**style.RC, "figure.constrained_layout.use": False}):
            super().__init__(SIZE, DPI)
            self.plots: tuple[Plot, ...] = (
                Scatter(self.figure, (0.0, 0.0, 0.385, 1.0)),
                Deltas(self.figure, (0.385, 0.48, 0.695, 1.0)),
                Ratios(self.figure, (0.695, 0.48, 1.0, 1.0), clip),
                ByPosition(self.figure, (0.385, 0.0, 0.695, 0.48)),
                ByProbability(self.figure, (0.695, 0.0, 1.0, 0.48)),
            )

    def png(self, tokens: Tokens) -> bytes:
        """The picture of these tokens."""
        for plot in self.plots:
            plot.update(tokens)
            plot.draw_frame(self.renderer)
        for plot in self.plots:
            for artist in plot.moving:
                artist.draw(self.renderer)
        return self.encoded()
