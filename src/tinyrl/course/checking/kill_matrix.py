"""The kill matrix: every known wrong answer against the checks, and every right one.

On each seed each wrong function has to fail with its own message, not merely to fail, and
each right one, written differently, has to pass. `make kill-matrix` prints it.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass

from tinyrl.course.checking.judging import Known, walk
from tinyrl.course.exercise import Exercise
from tinyrl.course.exercises import LABS

SEEDS = 20


@dataclass(frozen=True)
class Row:
    """One function on all seeds. `told` is what the checks said where they were wrong."""

    exercise: str
    function: str
    wrong: bool
    seeds: int
    as_meant: int  # seeds on which it was told its own message, or was found right
    stages: tuple[str, ...]  # where it was caught
    told: tuple[str, ...]

    @property
    def complete(self) -> bool:
        return self.as_meant == self.seeds


def matrix(exercise: Exercise, seeds: int = SEEDS) -> list[Row]:
    """All rows of one exercise: its mistakes, then its right answers."""
    known = [Known(exercise, seed) for seed in range(seeds)]
    rows = [
        _row(known, name, function, name)
        for name, (function, _) in exercise.mistakes.items()
    ]
    right = {"reference": exercise.reference, **exercise.alternatives}
    return rows + [_row(known, name, function, None) for name, function in right.items()]


def _row(known: list[Known], name: str, function: object, mistake: str | None) -> Row:
    verdicts = [walk(of_seed, function, own=True) for of_seed in known]
    meant = [
        verdict.outcome == ("wrong" if mistake else "right") and verdict.mistake == mistake
        for verdict in verdicts
    ]
    pairs = list(zip(verdicts, meant, strict=True))
    return Row(
        known[0].exercise.name,
        name,
        mistake is not None,
        len(known),
        sum(meant),
        tuple(dict.fromkeys(v.stage for v in verdicts if v.stage)),
        tuple(dict.fromkeys(f"{v.outcome}: {v.text.en}" for v, ok in pairs if not ok)),
    )


def main(arguments: list[str] | None = None) -> int:
    """Print the matrix; 1 if a cell of it is not as it should be."""
    from rich.progress import track
    from rich.table import Table

    from tinyrl.course.printing import console

    parser = argparse.ArgumentParser(prog="make kill-matrix", description=__doc__)
    parser.add_argument("--seeds", type=int, default=SEEDS, help="how many (20)")
    seeds = parser.parse_args(arguments).seeds
    out = console()
    asked = [exercise for lab in LABS.values() for exercise in lab]
    rows = [
        row
        for e in track(asked, "checking", console=out, transient=True)
        for row in matrix(e, seeds)
    ]
    table = Table("exercise", "answer", "kind", "as meant", "caught at", "told instead")
    for row in rows:
        style = None if row.complete else "red"
        kind = "wrong" if row.wrong else "right"
        count = f"{row.as_meant}/{row.seeds}"
        told = "\n".join(row.told)
        table.add_row(
            row.exercise,
            row.function,
            kind,
            count,
            ", ".join(row.stages),
            told,
            style=style,
        )
    out.print(table)
    wrong, right = [r for r in rows if r.wrong], [r for r in rows if not r.wrong]
    out.print(
        f"{len(asked)} exercises, {seeds} seeds: "
        f"{sum(r.complete for r in wrong)} of {len(wrong)}"
        f" wrong answers fail with their own "
        f"message, {sum(r.complete for r in right)} of {len(right)} right ones pass"
    )
    return 0 if all(row.complete for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
