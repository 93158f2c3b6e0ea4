"""The exposure panel: one model driven over its own answers, with slips put in.

Left, how many totals are wrong at each place, beside what follows if every step errs alike.
Right, the model judged by what it had just read, on the road and off it.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import ipywidgets as widgets  # type: ignore[import-untyped]
import matplotlib
import torch
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from torch import Tensor

from tinyrl.course import style
from tinyrl.course.panels.canvas import Canvas
from tinyrl.course.panels.frame import PicturePanel, menu, slider
from tinyrl.course.words import Words
from tinyrl.exposure import drive, errors_by_position, expected_errors, local_errors
from tinyrl.model import GPT
from tinyrl.tasks import EvenRoad

SIZE, DPI = (8.7, 3.5), 130
MODEL = Words("model", "模型")
SLIP = Words("slips put in", "注入错误")
OWN = Words("own prefix", "自己的前文")
START = Words("start off the road", "从路外出发")
NONE = Words("none seen", "没有遇到")
TOLD = Words(
    "last total wrong: {:.1%}, expected if every step errs alike: {:.1%}; "
    "wrong steps on the road: {}, off it: {}",
    "最后一个和算错：{:.1%}，若每步出错率相同则应为 {:.1%}；路上出错的步：{}，路外：{}",
)


@dataclass(frozen=True)
class Roads:
    """What one setting shows. `[n]` float64, of the places of the totals."""

    forced: Tensor
    """Wrong totals after gold prefixes."""
    driven: Tensor
    """Wrong totals, driven as set."""
    expected: Tensor
    """The same of a model that errs alike everywhere, as often as after gold prefixes."""
    on: Tensor
    """Wrong steps where the total that was read is one that training shows."""
    off: Tensor
    """Wrong steps where it is not."""
    overall: tuple[float, float]
    """The last two over all places."""

    def told(self) -> str:
        """The numbers in words."""
        on, off = (f"{x:.2%}" if x == x else str(NONE) for x in self.overall)
        return str(TOLD).format(self.driven[-1], self.expected[-1], on, off)


class RoadPanel(PicturePanel):
    """Controls for one drive, and a picture of its errors. It copies the models."""

    def __init__(
        self,
        models: Mapping[str, GPT],
        task: EvenRoad,
        *,
        slip: float = 0.03,
        own: float = 1.0,
        start: bool = False,
        sequences: int = 512,
        seed: int = 0,
    ) -> None:
        if not models:
            raise ValueError("models is empty: the panel needs at least one")
        self._models, self._task, self._seed = deepcopy(dict(models)), task, seed
        self._prompts = task.prompts(sequences, torch.Generator().manual_seed(seed))
        self.roads = lru_cache(maxsize=64)(self._roads)
        self.model = menu(MODEL, {name: name for name in models}, next(iter(models)))
        self.slip = slider(SLIP, float(slip), 0, 0.3, 0.01)
        self.own = slider(OWN, float(own), 0, 1, 0.05)
        self.start = widgets.Checkbox(start, description=str(START), indent=False)
        self.picture = RoadFigure(task.n)
        controls = (self.model, self.slip, self.own, self.start)
        super().__init__(controls, "tinyrl-roads")

    def setting(self) -> tuple[str, float, float, bool]:
        """Model, slips, own share and start, as the controls say."""
        slip, own = (round(x.value, 6) for x in (self.slip, self.own))
        return self.model.value, slip, own, self.start.value

    def shown(self) -> Roads:
        return self.roads(*self.setting())

    def _roads(self, name: str, slip: float, own: float, start: bool) -> Roads:
        """Drive, and compare with gold, with the expert and with the law."""
        model, task, prompts = self._models[name], self._task, self._prompts
        n, gold = task.n, task.answer(prompts)
        g = torch.Generator().manual_seed(self._seed)
        forced = drive(model, task, prompts, g, own=0)
        p = torch.full((task.max_new,), slip)
        p[n:], p[0] = 0, 1.0 if start else slip
        slips = torch.rand(gold.shape, generator=g) < p
        driven = drive(model, task, prompts, g, own=own, slips=slips)
        expert, off = task.expert(prompts, driven.read), task.off_road(driven.read)
        places = tuple(x[:, :n] for x in (driven.said, expert, off))
        said, right, off = places
        by = ((forced.said - gold)[:, :n] % 10).flatten()
        kernel = by.bincount(minlength=10).double() / by.numel()
        return Roads(
            errors_by_position(forced.said, gold)[:n],
            errors_by_position(driven.said, gold)[:n],
            expected_errors(kernel, n, own, p[:n]),
            errors_by_position(said, right, ~off),
            errors_by_position(said, right, off),
            local_errors(said, right, off),
        )


class RoadFigure(Canvas):
    """Left wrong totals, right wrong steps, at each place of the response."""

    def __init__(self, n: int) -> None:
        with matplotlib.rc_context(style.RC):
            super().__init__(SIZE, DPI)
            self.places = list(range(1, n + 1))
            left, right = self.figure.subplots(1, 2)
            self.lines = {
                "expected": _line(left, "expected, if every step errs alike", "--"),
                "forced": _line(left, "after gold prefixes", "o-", style.TRAIN),
                "driven": _line(left, "as driven", "o-", style.ROLLOUT),
                "off": _line(right, "off the road", "o-", style.BAD),
                "on": _line(right, "on the road", "o-", style.GOOD),
            }
            style.label(left, "Wrong totals", "total", "share")
            style.label(right, "Wrong steps, given what was read", "total", "share")
            for axes in (left, right):
                axes.set(xlim=(0.7, n + 0.3), ylim=(-0.03, 1.03))
            below: Any = {"loc": "outside lower left", "ncols": 2}
            self.figure.legend(handles=left.get_lines(), **below)
            below["loc"] = "outside lower right"
            self.figure.legend(handles=right.get_lines(), **below)
            self.freeze(self.lines.values())

    def png(self, seen: Roads) -> bytes:
        """The picture of these errors."""
        for name, line in self.lines.items():
            line.set_data(self.places, getattr(seen, name).numpy())
        return self.drawn(self.lines.values())


def _line(axes: Axes, name: str, form: str, colour: str = style.QUIET) -> Line2D:
    (line,) = axes.plot([], [], form, ms=4, color=colour, label=name)
    return line
