"""A figure that is drawn once; from then on only its moving artists are drawn anew.

A learner who moves a control sees the next picture at once, and in the same place.
"""

from __future__ import annotations

import io
from collections.abc import Iterable

from matplotlib.artist import Artist
from matplotlib.backends.backend_agg import FigureCanvasAgg, RendererAgg
from matplotlib.figure import Figure
from PIL import Image


class Canvas:
    """A figure outside pyplot: no window, and nothing of it outlives the panel."""

    def __init__(self, size: tuple[float, float], dpi: int) -> None:
        self.figure = Figure(figsize=size, dpi=dpi, facecolor="white")
        self._agg = FigureCanvasAgg(self.figure)
        self.renderer: RendererAgg = self._agg.get_renderer()  # type: ignore[no-untyped-call]

    def freeze(self, moving: Iterable[Artist]) -> None:
        """Draw all but these, once."""
        for artist in moving:
            artist.set_animated(True)  # left out by `draw`
        self._agg.draw()  # type: ignore[no-untyped-call]
        self._frame = self.renderer.copy_from_bbox(self.figure.bbox)

    def drawn(self, moving: Iterable[Artist], share: float = 1.0) -> bytes:
        """PNG of what was frozen with these on it; `share` of its height, from the top."""
        self.renderer.restore_region(self._frame)  # type: ignore[no-untyped-call]
        for artist in moving:
            artist.draw(self.renderer)
        return self.encoded(share)

    def encoded(self, share: float = 1.0) -> bytes:
        """PNG of what is drawn; compressed weakly, which is fast and hardly larger."""
        size = int(self.renderer.width), int(self.renderer.height)
        drawn = self.renderer.buffer_rgba()  # type: ignore[no-untyped-call]
        pixels = Image.frombuffer("RGBA", size, drawn)
        out = io.BytesIO()
        pixels = pixels.crop((0, 0, size[0], round(share * size[1])))
        pixels.convert("RGB").save(out, "png", compress_level=1)
        return out.getvalue()
