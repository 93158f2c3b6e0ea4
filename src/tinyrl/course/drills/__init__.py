"""The numeric drills of the interview, by name."""

from tinyrl.course.drills import (
    batches,
    corrections,
    divergences,
    exposure,
    formats,
    gspo,
    ideas,
    losses,
    ranges,
    ratios,
    rewards,
    rounding,
    routers,
    sampling,
    watching,
)
from tinyrl.course.drills.drill import Drill, Slip, Task

__all__ = ["DRILLS", "Drill", "Slip", "Task"]

DRILLS: dict[str, Drill] = {
    drill.name: drill
    for drill in (
        *ideas.DRILLS,
        *exposure.DRILLS,
        *ratios.DRILLS,
        *formats.DRILLS,
        *ranges.DRILLS,
        *rounding.DRILLS,
        *sampling.DRILLS,
        *batches.DRILLS,
        *routers.DRILLS,
        *gspo.DRILLS,
        *divergences.DRILLS,
        *corrections.DRILLS,
        *watching.DRILLS,
        *losses.DRILLS,
        *rewards.DRILLS,
    )
}
