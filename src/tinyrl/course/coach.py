"""Help for the learner: `hint("ratio")`, `solution("ratio")`, `progress()`."""

from __future__ import annotations

import textwrap
from dataclasses import replace
from pathlib import Path

from tinyrl.course import records
from tinyrl.course.card import Card, show
from tinyrl.course.exercises import LABS, find, lab_of
from tinyrl.course.records import Record, Standing
from tinyrl.course.words import Words

SOLUTIONS = Path(__file__).parents[3] / "solutions"  # in a clone; a wheel has none

NO_TRY = Words(
    en="Try first: run check on an answer of yours, right or wrong, then ask again.",
    zh="先自己试一次：对你写的答案运行 check（对错都行），然后再来看。",
)
NO_SOLUTION = Words(
    en="This copy of the course comes without solutions. Ask whoever gave it to you.",
    zh="这份课程不含参考答案。请向发给你课程的人索取，或克隆课程仓库。",
)
SOLVED = Words(en="solved", zh="已完成")
TRIED = Words(en="tried", zh="做过")
OPEN = Words(en="open", zh="未做")


def hint(name: str, level: int | None = None) -> None:
    """Show the next hint for the exercise, or that of a `level` from 1 to 3."""
    exercise = find(name)
    last = len(exercise.hints)
    if level is None:
        level = min(records.standing(name).hints + 1, last)
    if level not in range(1, last + 1):
        raise ValueError(f"hints have levels 1 to {last}, not {level!r}")
    note = records.remember(Record("hint", name, level=level))
    heading = Words(
        en=f"{name}: hint {level} of {last}", zh=f"{name}：提示 {level} / {last}"
    )
    show(Card("quiet", str(heading), str(exercise.hints[level - 1]), foot=str(note or "")))


def solution(name: str) -> None:
    """Show the course's own answer, once an answer of the learner's has been checked."""
    find(name)
    if not records.standing(name).tries:
        show(Card("quiet", name, str(NO_TRY)))
        return
    code = written(name)
    if code is None:
        show(Card("quiet", name, str(NO_SOLUTION)))
        return
    note = records.remember(Record("solution", name))
    heading = Words(en=f"{name}: one right answer", zh=f"{name}：参考答案")
    show(Card("quiet", str(heading), code=code, foot=str(note or "")))


def written(name: str) -> str | None:
    """The answer as the lab's source has it, or None where that is not at hand."""
    source = SOLUTIONS / f"{lab_of(name)}.py"
    if not source.is_file():
        return None
    text = source.read_text("utf-8")
    start = text.find(f"def {name}(")
    end = text.find("### END SOLUTION", start)
    if start < 0 or end < 0:
        return None
    lines = text[start:end].splitlines()
    kept = [line for line in lines if "BEGIN SOLUTION" not in line and "CANARY" not in line]
    return textwrap.dedent("\n".join(kept)).rstrip()


def progress() -> None:
    """Show how far the learner has come, lab by lab."""
    for lab, exercises in LABS.items():
        standings = [records.standing(exercise.name) for exercise in exercises]
        solved = sum(standing.solved for standing in standings)
        rows = tuple((standing.exercise, _told(standing)) for standing in standings)
        heading = Words(
            en=f"{lab}: {solved} of {len(exercises)} solved",
            zh=f"{lab}：{len(exercises)} 题中完成 {solved} 题",
        )
        card = Card("quiet", str(heading), rows=rows, foot=str(records.path()))
        show(replace(card, tone="good") if solved == len(exercises) else card)


def _told(standing: Standing) -> str:
    tries, hints = standing.tries, standing.hints
    parts = [SOLVED if standing.solved else TRIED if tries else OPEN]
    if tries:
        s = "" if tries == 1 else "s"
        parts.append(Words(en=f"checked {tries} time{s}", zh=f"检查 {tries} 次"))
    if hints:
        parts.append(Words(en=f"hint {hints} seen", zh=f"看到提示 {hints}"))
    if standing.saw_solution:
        parts.append(Words(en="solution seen", zh="看过答案"))
    return ", ".join(map(str, parts))
