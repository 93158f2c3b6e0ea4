"""The numeric drills of the interview, by name."""

from tinyrl.course.interview.numeric import (
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
from tinyrl.course.interview.numeric.tasks import Drill, Slip, Task

__all__ = ["BY_LESSON", "DRILLS", "LESSON", "Drill", "Slip", "Task"]

BY_LESSON: dict[str, tuple[Drill, ...]] = {
    "00_start_here": ideas.DRILLS,
    "02_exposure_bias": exposure.DRILLS,
    "01_two_policies": ratios.DRILLS,
    "03_number_formats": (*formats.DRILLS, *ranges.DRILLS, *rounding.DRILLS),
    "06_decoding": sampling.DRILLS,
    "05_templates": batches.DRILLS,
    "07_routers": routers.DRILLS,
    "08_objectives": (*gspo.DRILLS, *losses.DRILLS, *rewards.DRILLS),
    "10_monitoring": (*divergences.DRILLS, *watching.DRILLS),
    "09_corrections": corrections.DRILLS,
}
"""In the order of the groups, under the notebook that teaches what is asked."""
DRILLS: dict[str, Drill] = {
    drill.name: drill for drills in BY_LESSON.values() for drill in drills
}
LESSON: dict[str, str] = {
    drill.name: lesson for lesson, drills in BY_LESSON.items() for drill in drills
}
