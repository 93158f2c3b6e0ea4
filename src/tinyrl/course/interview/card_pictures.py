"""Pictures for the interview's cards: one idea each, drawn by the library's own functions.

A question names one; `fingerprint:FIELD` is the trace that a field of the stack leaves in
delta, measured on the shipped checkpoint as the atlas does. They hold symbols and no words:
one picture serves both languages, on machines without a Chinese font, and `captions` says
in either what it shows.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from tinyrl.correction import Correction
from tinyrl.course import style
from tinyrl.formats import FormatName, bits, neighbours, round_to
from tinyrl.metrics import kl_terms
from tinyrl.objectives.gates import clip, soft_gate
from tinyrl.sampling import top_p

SIZE = (4.8, 2.5)
DPI = 160
NAMES: dict[FormatName, str] = {
    "fp32": "FP32",
    "bf16": "BF16",
    "fp16": "FP16",
    "fp8_e4m3": "E4M3",
    "fp8_e5m2": "E5M2",
}


def save(name: str, folder: Path) -> Path:
    """Draw `name` into a PNG in `folder`. Raises `ValueError` for a name unknown."""
    kind, _, field = name.partition(":")
    if kind not in PICTURES and kind != "fingerprint":
        raise ValueError(f"no picture {name!r}: choose one of {', '.join(PICTURES)}")
    with rc_context(style.RC):
        figure = Figure(figsize=SIZE, dpi=DPI, facecolor="white")
        FigureCanvasAgg(figure)
        if kind == "fingerprint":
            fingerprint(figure, field)
        else:
            PICTURES[kind](figure.subplots())
        path = folder / f"tinyrl-{name.replace(':', '-')}.png"
        figure.savefig(path)
    return path


def _bits(axes: Axes) -> None:
    """Where the bits of a format go."""
    for row, (fmt, name) in enumerate(NAMES.items()):
        at = 0
        fields = bits(1.0, fmt).split("|")
        colours = (style.QUIET, style.ROLLOUT, style.TRAIN)
        for field, colour in zip(fields, colours, strict=True):
            for _ in field:
                axes.add_patch(Rectangle((at, -row), 0.9, 0.7, color=colour))
                at += 1
        counts = f"1 + {len(fields[1])} + {len(fields[2])}"
        inside = at > 20
        place, ink = (9.4, "white") if inside else (at + 0.4, style.INK)
        axes.text(place, -row + 0.32, counts, va="center", size=8, color=ink)
        axes.text(-0.5, -row + 0.32, name, ha="right", va="center")
    axes.set(xlim=(-4.5, 33), ylim=(-4.3, 1.1))
    axes.axis("off")


def _neighbours(axes: Axes) -> None:
    """The numbers just above 1 in two formats."""
    for row, (fmt, colour) in enumerate(
        {"fp16": style.TRAIN, "bf16": style.ROLLOUT}.items()
    ):
        x, found = torch.tensor(1.0, dtype=torch.float64), [1.0]
        while found[-1] < 1.03:
            x = neighbours(x + 1e-6, fmt)[1]  # type: ignore[arg-type]
            found.append(x.item())
        axes.vlines(found, row - 0.3, row + 0.3, color=colour)
        axes.text(0.9985, row, fmt.upper(), ha="right", va="center")
    axes.set(xlim=(0.993, 1.0305), ylim=(-0.7, 1.7), yticks=[])
    axes.grid(False)


def _exponential(axes: Axes) -> None:
    """The ratio of a delta."""
    d = torch.linspace(-3, 3, 200)
    axes.plot(d, d.exp(), color=style.DELTA)
    for x in (-2.0, 0.0, 1.0, 2.0, 3.0):
        y = torch.tensor(x).exp().item()
        axes.plot(x, y, "o", color=style.DELTA, ms=4)
        axes.annotate(f"{y:.2f}", (x, y), (-4, 6), textcoords="offset points", ha="right")
    axes.axhspan(0.8, 1.2, color=style.GOOD, alpha=0.2, lw=0)
    axes.set(xlabel="Δ", ylabel="r = exp(Δ)", ylim=(-1, 24))


def _length(axes: Axes) -> None:
    """Noise and bias over a response."""
    T = torch.arange(1, 4001).double()
    axes.loglog(T, 0.01 * T.sqrt(), color=style.TRAIN, label="0.01 √T")
    axes.loglog(T, 0.01 * T, color=style.ROLLOUT, label="0.01 T")
    axes.axhline(0.2, color=style.QUIET, ls="--")
    axes.text(1.1, 0.23, "ε = 0.2", color=style.QUIET, size=8)
    axes.set(xlabel="T", ylabel="|ΣΔ|")
    axes.legend()


def _clip(axes: Axes) -> None:
    """PPO's objective of a token by its ratio."""
    r = torch.linspace(0.4, 1.8, 300)
    for A, colour in ((1.0, style.GOOD), (-1.0, style.BAD)):
        gain = -clip(r, torch.full_like(r, A), 0.2, 0.2)
        axes.plot(r, gain, color=colour, label=f"A = {A:+.0f}")
    axes.axvline(1, color=style.QUIET, ls="--")
    axes.set(xlabel="r", ylabel="J")
    axes.legend()


def _gates(axes: Axes) -> None:
    """How much of a token's gradient each gate lets through, A = 1."""
    r = torch.linspace(0.02, 2.5, 400, requires_grad=True)
    one = torch.ones_like(r)
    for name, loss, colour in (
        ("PPO", clip(r, one, 0.2, 0.2), style.TRAIN),
        ("SAPO", soft_gate(r, one), style.DELTA),
    ):
        (slope,) = torch.autograd.grad(loss.sum(), r)
        axes.plot(r.detach(), -slope, color=colour, label=name)
    axes.set(xlabel="r", ylabel="∂J / ∂r")
    axes.legend()


def _kl_estimates(axes: Axes) -> None:
    """K1, K2, K3 of one token."""
    d = torch.linspace(-2, 2, 200)
    colours = (style.ROLLOUT, style.QUIET, style.DELTA)
    for name, k, colour in zip(("K1", "K2", "K3"), kl_terms(d), colours, strict=True):
        axes.plot(d, k, color=colour, label=name)
    axes.set(xlabel="Δ", ylabel="K")
    axes.legend()


def _softmax_terms(axes: Axes) -> None:
    """What BF16 logits do to a softmax."""
    logits = torch.tensor([11.37, 10.91, 10.2, 9.68, 7.3, 5.1], dtype=torch.float64)
    exact = logits.softmax(0)
    coarse = round_to(logits, "bf16").softmax(0)
    x = np.arange(len(logits))
    axes.bar(x - 0.2, exact.numpy(), 0.4, color=style.TRAIN, label="z")
    axes.bar(x + 0.2, coarse.numpy(), 0.4, color=style.ROLLOUT, label="BF16(z)")
    for i, d in enumerate((coarse / exact).log().tolist()):
        axes.text(
            i,
            max(exact[i].item(), coarse[i].item()) + 0.01,
            f"{d:+.3f}",
            ha="center",
            size=8,
        )
    axes.set(
        xticks=x, xticklabels=[f"{v:g}" for v in logits.tolist()], xlabel="z", ylabel="p"
    )
    axes.legend()


def _nucleus(axes: Axes) -> None:
    """Top-p keeps the head, and divides by its mass."""
    logits = torch.tensor([2.6, 1.9, 1.3, 0.4, 0.0, -0.5, -1.0], dtype=torch.float64)
    p, kept = logits.softmax(0), top_p(logits, 0.8)
    x = np.arange(len(p))
    S = p[kept].sum().item()
    axes.bar(
        x, torch.where(kept, p / S, 0.0).numpy(), color="none", edgecolor=style.ROLLOUT
    )
    axes.bar(x, p.numpy(), color=[style.TRAIN if k else style.QUIET for k in kept.tolist()])
    axes.set(xticks=[], ylabel="p")
    axes.set_title(f"S = {S:.2f}")


def _flip(axes: Axes) -> None:
    """Two experts at the border of the top-k."""
    noise = torch.linspace(-0.15, 0.15, 201)
    logits = torch.stack([1.2 + 0 * noise, 0.62 + noise, 0.6 - noise, -0.4 + 0 * noise], 1)
    gates = logits.softmax(1)
    kept = torch.zeros_like(gates, dtype=torch.bool).scatter(1, gates.topk(2).indices, True)
    colours = (style.QUIET, style.TRAIN, style.ROLLOUT, style.QUIET)
    for e, colour in enumerate(colours):
        axes.plot(noise, gates[:, e], color=colour, lw=0.8, ls=":")
        used = torch.where(kept[:, e], gates[:, e], float("nan"))
        axes.plot(noise, used, color=colour, lw=2.6, label=f"E{e}")
    axes.set(xlabel="ε", ylabel="g")


def _teacher_forcing(axes: Axes) -> None:
    """Whose tokens the next one is conditioned on."""
    for row, cells in enumerate(("GGGGGG", "GGXXXX")):
        for i, cell in enumerate(cells):
            colour = style.TRAIN if cell == "G" else style.ROLLOUT
            axes.add_patch(Rectangle((i, -row), 0.86, 0.5, color=colour))
            sign = ("y" if row == 0 else "ŷ") + f"$_{i + 1}$"
            axes.text(i + 0.43, -row + 0.25, sign, ha="center", va="center", color="white")
    axes.set(xlim=(-0.1, 6), ylim=(-1.2, 0.7))
    axes.axis("off")


def _cap(axes: Axes) -> None:
    """What truncating and masking make of a weight."""
    delta = torch.linspace(-2, 2, 401)[:, None]
    mask = torch.ones_like(delta, dtype=torch.bool)
    rollout = torch.full_like(delta, -3.0)
    axes.plot(delta, delta.exp(), color=style.QUIET, ls=":", label="r")
    kinds = (
        ("truncate", style.TRAIN, "min(max(r, 0.5), 2)"),
        ("mask", style.ROLLOUT, "r · 1[0.5 ≤ r ≤ 2]"),
    )
    for operation, colour, label in kinds:
        correction = Correction(operation=operation, lower=0.5, upper=2.0)  # type: ignore[arg-type]
        w, kept = correction.apply(rollout + delta, rollout, mask)
        axes.plot(delta, torch.where(kept, w, 0.0), color=colour, label=label)
    axes.set(xlabel="Δ", ylabel="w", ylim=(-0.1, 4))
    axes.legend()


PICTURES: dict[str, Callable[[Axes], None]] = {
    "bits": _bits,
    "neighbours": _neighbours,
    "exponential": _exponential,
    "length": _length,
    "clip": _clip,
    "gates": _gates,
    "kl_estimates": _kl_estimates,
    "softmax_terms": _softmax_terms,
    "nucleus": _nucleus,
    "flip": _flip,
    "teacher_forcing": _teacher_forcing,
    "cap": _cap,
}


def fingerprint(figure: Figure, field: str) -> None:
    """Delta's distribution and its size by position, with one field changed."""
    from tinyrl.checkpoints import load
    from tinyrl.course.lessons.atlas import AGE, ENTRIES, survey
    from tinyrl.metrics import by_position
    from tinyrl.tasks import CumSum

    entries = [entry for entry in ENTRIES if entry.path == field and field != "weights"]
    if not entries:
        raise ValueError(f"the atlas has no row {field!r} that needs no training")
    versions = [load()] * (AGE + 1)
    ((sighting,),) = survey(versions, load("moe"), CumSum(), [0], entries)
    delta, mask = sighting.delta, sighting.mask
    left, right = figure.subplots(1, 2)
    left.hist(delta[mask].numpy(), 60, color=style.DELTA, log=True)
    left.set(xlabel="Δ", ylabel="n")
    place = by_position(delta, mask).mean_abs.numpy()
    right.bar(np.arange(1, len(place) + 1), place, 1.0, color=style.DELTA)
    right.set(xlabel="t", ylabel="|Δ|")
    title = f"{field} = {entries[0].to}"  # as it is written in a stack
    figure.suptitle(title, size=9.5, x=0.02, ha="left")
