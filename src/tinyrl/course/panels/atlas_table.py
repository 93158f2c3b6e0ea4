"""The atlas on a page: for each field a row of numbers, a picture and words."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Sequence
from html import escape
from statistics import mean

import numpy as np
import torch
import torch.nn.functional as F
from matplotlib import rc_context
from matplotlib.figure import Figure
from torch import Tensor

from tinyrl.course import style
from tinyrl.course.labels import LABELS, linked, value
from tinyrl.course.lessons.atlas import Entry, Sighting
from tinyrl.course.panels.mismatch_plots import decades
from tinyrl.course.words import Words
from tinyrl.metrics import Mismatch, by_position

HEADINGS = (
    Words("what differs", "差异"),
    Words("K3 (lowest, highest seed)", "K3（最小、最大种子）"),
    Words("|δ| mean, p99, max", "|δ| 均值、p99、最大"),
    Words("mean |Δ|", "|Δ| 均值"),
    Words("top-1", "首选一致"),
    Words("growth", "增长指数"),
    Words("fingerprint", "形态"),
)
REAL, REMEDY = Words("real systems:", "真实系统："), Words("remedy:", "对策：")
BOTH = Words("on both sides", "两侧相同")
MIXTURE = Words("mixture of experts", "MoE 检查点")
HOW = {
    "generate": Words("the changed stack samples", "由改动后的一侧采样"),
    "replay": Words("routes of a BF16 rollout", "沿用 BF16 采样的路由"),
    "cut": Words("kept tokens of a top-p 0.9 rollout", "沿用 top-p 0.9 采样保留的 token"),
    "view": Words("rollout on INT4 weights", "用 INT4 权重采样"),
    "turns": Words("short questions, half in a second turn", "短问题，一半在第二轮"),
}
EDGES = np.arange(-10.0, 10.5, 0.5)  # decades of delta above 1e-7, both ways
SIZE, DPI = (2.6, 0.8), 100  # inches; pixels an inch
BREAKS = 14  # characters from which on a heading may take two lines
WHOLE = 'style="max-width:none"'
ALT = "left: histogram of delta in decades, 0 in the middle; right: mean |delta| by place"


class AtlasTable(tuple[list[Sighting], ...]):
    """The rows, each a field on all seeds: a table in a notebook, lines elsewhere."""

    def __str__(self) -> str:
        head = f"{'what differs':38}{'K3':>9}{'mean':>9}{'p99':>9}{'max':>9}{'seq':>9}"
        return "\n".join([f"{head}{'top-1':>7}{'growth':>8}", *map(_line, self)])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        head = "".join(_th(str(heading)) for heading in HEADINGS)
        pictures = fingerprints()
        body = "".join(_tbody(rows, pictures(rows)) for rows in self)
        wide = 'style="table-layout:auto;width:100%"'  # Jupyter's is fixed: all alike
        return f"<table {wide}><thead><tr>{head}</tr></thead>{body}</table>"


def numbers(rows: Sequence[Sighting]) -> dict[str, float | None]:
    """What the table shows of a field: means over the seeds, K3's extremes, the growth."""

    def over(what: Callable[[Mismatch], float | None]) -> list[float]:
        seen = (what(row.mismatch) for row in rows)
        return [x for x in seen if x is not None]

    k3, grown = over(lambda m: m.k3), [row.growth for row in rows]
    slopes = [p for p in grown if p is not None]
    return {
        "k3": mean(k3),
        "k3_lowest": min(k3),
        "k3_highest": max(k3),
        "mean": mean(over(lambda m: m.mean_abs)),
        "p99": mean(over(lambda m: m.p99_abs)),
        "max": mean(over(lambda m: m.max_abs)),
        "seq": mean(over(lambda m: m.seq_mean_abs)),
        "top1": mean(over(lambda m: m.top1_agreement)),
        "growth": mean(slopes) if slopes else None,
    }


def said(entry: Entry) -> str:
    """The change in words: `KV cache: FP8 E4M3`, and what was set on both sides."""
    given = ", ".join(f"{LABELS[path].name} {value(x)}" for path, x in entry.given.items())
    notes = [f"{given} {BOTH}"] if given else []
    notes += [str(MIXTURE)] if entry.checkpoint == "moe" else []
    notes += [str(HOW[entry.by])] if entry.by in HOW else []
    special = f" ({'; '.join(notes)})" if notes else ""
    return f"{LABELS[entry.path].name}: {value(entry.to)}{special}"


def fingerprints() -> Callable[[Sequence[Sighting]], bytes]:
    """Makes the small picture of a row, all in one figure: a figure each takes longer."""
    with rc_context({"figure.constrained_layout.use": False}):  # the course's style has it
        figure = Figure(figsize=SIZE, dpi=DPI, facecolor="white")
    left, right = figure.subplots(1, 2, gridspec_kw={"wspace": 0.1})
    figure.subplots_adjust(0.01, 0.06, 0.99, 0.97)

    def draw(rows: Sequence[Sighting]) -> bytes:
        delta, mask = (_stacked([getattr(r, x) for r in rows]) for x in ("delta", "mask"))
        place = by_position(delta, mask).mean_abs.numpy()
        for axes in (left, right):
            axes.clear()
            axes.spines[:].set_color("#E4E6EA")
        inside = np.clip(decades(delta[mask].double().numpy()), EDGES[0], EDGES[-1] - 1e-9)
        left.hist(inside, EDGES, color=style.DELTA, log=True)
        left.axvline(0, color=style.QUIET, lw=0.7)
        right.bar(np.arange(len(place)), place, 1.0, color=style.DELTA)
        for axes in (left, right):
            axes.tick_params(which="both", bottom=False, left=False)
            axes.tick_params(which="both", labelbottom=False, labelleft=False)
        out = io.BytesIO()
        figure.savefig(out, format="png")
        return out.getvalue()

    return draw


def _stacked(parts: Sequence[Tensor]) -> Tensor:
    """All `[B, T]` below each other, the shorter ones filled up with 0."""
    T = max(part.shape[1] for part in parts)
    return torch.cat([F.pad(part, (0, T - part.shape[1])) for part in parts])


def _line(rows: Sequence[Sighting]) -> str:
    n, entry = numbers(rows), rows[0].entry
    sizes = "".join(f"{n[k]:9.1e}" for k in ("k3", "mean", "p99", "max", "seq"))
    grown = "-" if n["growth"] is None else f"{n['growth']:.2f}"
    return f"{entry.path + ' ' + value(entry.to):38}{sizes}{n['top1']:7.2f}{grown:>8}"


def _th(heading: str) -> str:
    space = "nowrap" if len(heading) < BREAKS else "normal"
    return f'<th style="text-align:left;white-space:{space}">{escape(heading)}</th>'


def _tbody(rows: Sequence[Sighting], picture: bytes) -> str:
    """Two lines of the table: what was measured; below it, over its whole width, words."""
    entry, n = rows[0].entry, numbers(rows)
    label, data = LABELS[entry.path], base64.b64encode(picture).decode()
    source = f"data:image/png;base64,{data}"
    cells = (
        f"<b>{escape(said(entry))}</b><br><code>{entry.path}</code>",
        f"<b>{n['k3']:.0e}</b><br>{n['k3_lowest']:.0e},<br>{n['k3_highest']:.0e}",
        f"{n['mean']:.1e}<br>{n['p99']:.1e}<br>{n['max']:.1e}",
        f"{n['seq']:.1e}",
        f"{n['top1']:.2f}",
        "–" if n["growth"] is None else f"{n['growth']:.2f}",
        f'<img alt="{ALT}" src="{source}" width="{SIZE[0] * 80:.0f}" {WHOLE}>',
    )
    top = 'style="text-align:left;vertical-align:top"'
    told = "".join(f"<td {top}>{cell}</td>" for cell in cells)
    words = "<br>".join(
        f"<i>{name}</i> {linked(str(text))}"
        for name, text in ((REAL, label.real), (REMEDY, label.remedy))
    )
    return (
        f"<tbody><tr>{told}</tr>"
        f"<tr><td {top} colspan={len(HEADINGS)}>{words}</td></tr></tbody>"
    )
