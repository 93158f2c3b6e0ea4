"""Help for the learner: `hint("ratio")`, `solution("ratio")` or `("lab01")`, `progress()`.

A name that no exercise has is said in a line: these are typed by hand.
"""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

from tinyrl.course import records
from tinyrl.course.card import Card, Tone, show
from tinyrl.course.exercise import Exercise
from tinyrl.course.exercises import LABS, find, lab_of
from tinyrl.course.records import Record, Standing
from tinyrl.course.words import Words

SOLUTIONS = Path(__file__).parents[4] / "solutions"  # in a clone; a wheel has none
ANSWER = r"### BEGIN SOLUTION\n(# canary[^\n]*open-answer.*?)# ### END SOLUTION"
SCHEME = r"=== BEGIN MARK SCHEME ===\n(.*?)# === END MARK SCHEME ==="
SECRET = "canary"

NO_TRY = Words(
    en="Try first: run check on an answer of yours, right or wrong, then ask again.",
    zh="先自己试一次：对你写的答案运行 check（对错都行），然后再来看。",
)
NO_SOLUTION = Words(
    en="This copy of the course comes without solutions. Ask whoever gave it to you.",
    zh="这份课程不含参考答案。请向发给你课程的人索取，或克隆课程仓库。",
)
LAST = Words(
    en="That was the last hint. After one checked try, "
    'solution("{}") shows one right answer.',
    zh='这是最后一条提示。check 过一次之后，solution("{}") 会给出一个参考答案。',
)
NOT_BEGUN = Words(en="not begun", zh="尚未开始")
SOLVED = Words(en="solved", zh="已完成")
TRIED = Words(en="tried", zh="做过")
OPEN = Words(en="open", zh="未做")


def hint(name: str, level: int | None = None) -> None:
    """Show the next hint for the exercise, or that of a `level` from 1 to 3."""
    if (exercise := _asked(name)) is None:
        return
    last = len(exercise.hints)
    if level is None:
        level = max(1, min(records.standing(name).hints + 1, last))
    if level not in range(1, last + 1):
        raise ValueError(f"hints have levels 1 to {last}, not {level!r}")
    note = records.remember(Record("hint", name, level=level))
    heading = Words(
        en=f"{name}: hint {level} of {last}", zh=f"{name}：提示 {level} / {last}"
    )
    foot = note or (str(LAST).format(name) if level == last else "")
    show(Card("quiet", str(heading), str(exercise.hints[level - 1]), foot=str(foot)))


def solution(name: str) -> None:
    """Show the course's own answer, once an answer of the learner's has been checked.

    Of "lab01": an answer to its open question, and what a marker looks for.
    """
    lab = next((lab for lab in LABS if name in (lab, lab[:5])), None)
    if lab is None and _asked(name) is None:
        return
    asked = [name] if lab is None else [exercise.name for exercise in LABS[lab]]
    if not any(records.standing(exercise).tries for exercise in asked):
        show(Card("quiet", name, str(NO_TRY)))
        return
    code = written(name) if lab is None else answered(lab)
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


def answered(lab: str) -> str | None:
    """An answer to the open question of a lab and its mark scheme, or None: see above."""
    source = SOLUTIONS / f"{lab}.py"
    if not source.is_file():
        return None
    text = source.read_text("utf-8")
    found = [re.search(f"# {bounds}", text, re.S) for bounds in (ANSWER, SCHEME)]
    parts = [part[1] for part in found if part]
    lines = "\n\n".join(parts).splitlines() if len(parts) == 2 else []
    kept = [
        line.removeprefix("#").removeprefix(" ") for line in lines if SECRET not in line
    ]
    return "\n".join(kept).strip() or None


def progress() -> None:
    """Show how far the learner has come in each lab that is begun, and which are not."""
    fresh: list[str] = []
    for lab, exercises in LABS.items():
        standings = [records.standing(exercise.name) for exercise in exercises]
        solved = sum(standing.solved for standing in standings)
        if not any(standing.tries or standing.hints for standing in standings):
            fresh.append(lab)
            continue
        rows = tuple((standing.exercise, _told(standing)) for standing in standings)
        heading = Words(
            en=f"{lab}: {solved} of {len(exercises)} solved",
            zh=f"{lab}：{len(exercises)} 题中完成 {solved} 题",
        )
        tone: Tone = "good" if solved == len(exercises) else "quiet"
        show(Card(tone, str(heading), rows=rows))
    text = ", ".join(fresh)
    show(Card("quiet", str(NOT_BEGUN if fresh else SOLVED), text, foot=str(records.path())))


def _asked(name: str) -> Exercise | None:
    """The exercise called `name`; where there is none, that is shown."""
    try:
        return find(name)
    except ValueError as error:
        show(Card("quiet", str(error)))
        return None


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
