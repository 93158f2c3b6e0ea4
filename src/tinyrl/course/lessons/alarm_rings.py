"""When the published alarms ring in a watched run: counted, drawn and told."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from matplotlib.axes import Axes

from tinyrl.alarms import ALARMS
from tinyrl.course import style
from tinyrl.course.lessons.faulty_pairs import whole
from tinyrl.course.lessons.watched_runs import Watched

MISMATCH = tuple(alarm for alarm in ALARMS if alarm.of == "mismatch")
"""Those that ask for trainer and rollout alone, as a run has them at each step."""
LOWEST = min(a.high for a in MISMATCH if a.number == "k3" and a.high is not None)
"""The tightest bound of K3."""
TREND = 10
"""Times what a run began with."""
WINDOW = 5
"""Steps that K3 behind the fault and K3 at the end are means of."""


def rung(run: Watched) -> int:
    """How often an alarm rang, all alarms and steps together."""
    return sum(alarm.rings(m[alarm.number]) for m in run.numbers for alarm in MISMATCH)


def draw_rings(axes: Sequence[Axes], runs: Mapping[str, Watched], after: int) -> None:
    """A row for each alarm, a square for each step at which it rings, a run in each axes.

    The dotted line is where a fault comes in, behind the step number `after`.
    """
    for ax, (name, run) in zip(axes, runs.items(), strict=True):
        for y, alarm in enumerate(MISMATCH):
            at = steps(alarm.rings(m[alarm.number]) for m in run.numbers)
            ax.plot(at, [y] * len(at), "s", ms=3, color=style.BAD)
        ax.axvline(after + 0.5, color=style.QUIET, ls=":")
        ax.set_xlim(0, len(run.numbers) + 1)
        style.label(ax, name, "step")
    names = [f"{alarm.name} ({alarm.number})" for alarm in MISMATCH]
    axes[0].set_yticks(range(len(MISMATCH)), names)
    axes[0].invert_yaxis()


def steps(rings: Iterable[bool]) -> list[int]:
    """The numbers, from 1, of the steps at which it rings."""
    return [step for step, loud in enumerate(rings, 1) if loud]


def told(run: Watched, after: int) -> str:
    """When the tightest bound of K3 rings, the widest alarms, and the run's own trend.

    The trend is K3 above `TREND` times its mean over the first `after` steps. Last, how K3
    grew from the first to the last `WINDOW` steps behind the step number `after`.
    """
    k3 = [m["k3"] for m in run.numbers]
    if whole("after", after) > len(k3):
        raise ValueError(f"after must be a step of the run, 1 to {len(k3)}, not {after}")
    began = sum(k3[:after]) / after
    behind = k3[after:] or k3[-1:]
    grew = sum(behind[-WINDOW:]) / sum(behind[:WINDOW])
    verl = [alarm for alarm in MISMATCH if alarm.name.startswith("verl")]
    wide = steps(any(a.rings(m[a.number]) for a in verl) for m in run.numbers)
    return (
        f"rung {rung(run)} in all; largest K3 {max(k3):.0e}, {LOWEST:g} is "
        f"{LOWEST / max(k3):.2g} times that\n"
        f"   K3 above {LOWEST:g} {_when(steps(x > LOWEST for x in k3))}; above {TREND} "
        f"times that of the first {after} steps "
        f"{_when(steps(x > TREND * began for x in k3))}; one of verl's {_when(wide)}\n"
        f"   K3 of the last {WINDOW} steps over that of the first {WINDOW} after step "
        f"{after}: {grew:.2g}"
    )


def _when(at: Sequence[int]) -> str:
    return f"from step {at[0]}, {len(at)} times" if at else "never"
