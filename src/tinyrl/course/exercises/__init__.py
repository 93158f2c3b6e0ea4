"""The exercises of every lab, in the order in which the lab asks them."""

from __future__ import annotations

from difflib import get_close_matches

from tinyrl.course.exercise import Exercise
from tinyrl.course.exercises import (
    lab01,
    lab02,
    lab03,
    lab04,
    lab05,
    lab06,
    lab07,
    lab08,
    lab09,
    lab10,
)
from tinyrl.course.words import Words

LABS: dict[str, tuple[Exercise, ...]] = {
    "lab01_two_policies": lab01.EXERCISES,
    "lab02_exposure_bias": lab02.EXERCISES,
    "lab03_number_formats": lab03.EXERCISES,
    "lab04_kernels": lab04.EXERCISES,
    "lab05_templates": lab05.EXERCISES,
    "lab06_decoding": lab06.EXERCISES,
    "lab07_routers": lab07.EXERCISES,
    "lab08_objectives": lab08.EXERCISES,
    "lab09_corrections": lab09.EXERCISES,
    "lab10_monitoring": lab10.EXERCISES,
}


def find(name: str) -> Exercise:
    """The exercise called `name`; `ValueError` names the nearest where there is none."""
    known = {exercise.name: exercise for lab in LABS.values() for exercise in lab}
    if name in known:
        return known[name]
    near = get_close_matches(str(name), known, n=1) or [x for x in known if str(name) in x]
    meant = " or ".join(map(repr, near[:3])) if name else ""
    said = Words(
        en=f"did you mean {meant}?" if meant else "its lab has the names.",
        zh=f"你要的是 {meant} 吗？" if meant else "题目的名字见它所在的实验。",
    )
    start = Words(en="no exercise is called {!r}: ", zh="没有叫 {!r} 的题目：")
    raise ValueError(f"{str(start).format(name)}{said}")


def lab_of(name: str) -> str:
    """The lab in which the exercise `name` is asked."""
    return next(lab for lab, asked in LABS.items() if find(name) in asked)
