"""Arms against each other, seed by seed: who trains better, and is the difference real?

An arm is a `Settings`; every arm is run on every seed. Runs of one seed start from the same
weights and draw from equally seeded generators, so differences are taken within a seed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, fields, replace
from pathlib import Path

import torch
from torch import Tensor
from tqdm.auto import tqdm

from .model import GPT
from .runs import Evaluation, Run, Settings, advance, begin, digest, load
from .tasks import Task

Runs = dict[str, list[Run]]
"""Of each arm, one run for each seed."""


def sweep(
    model: GPT,
    task: Task,
    arms: Mapping[str, Settings],
    seeds: Sequence[int],
    folder: Path | str | None = None,
) -> Generator[tuple[str, Run]]:
    """Every arm on every seed, from `model`: an arm's name and its run, after each step.

    Seed by seed, so that what is there when it ends early can be compared. The seed of an
    arm's settings does not matter. With a `folder`, which must exist, each run is kept in a
    file of it, and a file that is there already is gone on from: `ValueError` where it is
    of another run.
    """
    if not arms or not seeds:
        raise ValueError("arms and seeds need one entry at least")
    if len(set(seeds)) < len(seeds):
        raise ValueError(f"seeds must differ, not {list(seeds)}")
    names = _names(arms)
    known: dict[object, Evaluation] = {}
    for seed in seeds:
        for arm, settings in arms.items():
            path = None if folder is None else Path(folder, f"{names[arm]}-{seed}.run")
            start = _taken_up(model, task, replace(settings, seed=seed), path, known)
            yield arm, start
            for run in advance(start, task, path):
                yield arm, run


def experiment(
    model: GPT,
    task: Task,
    arms: Mapping[str, Settings],
    seeds: Sequence[int],
    folder: Path | str | None = None,
) -> Runs:
    """The runs of `sweep`, with a progress bar.

    An interrupt ends it early and keeps what was done: then the last run is not `done`, and
    those after it are missing.
    """
    found: dict[str, dict[int, Run]] = {name: {} for name in arms}
    total = len(seeds) * sum(settings.steps for settings in arms.values())
    progress = sweep(model, task, arms, seeds, folder)
    with closing(progress), tqdm(total=total, unit="step", leave=False) as bar:
        try:
            for name, run in progress:
                seed = run.settings.seed
                before = found[name].get(seed)
                found[name][seed] = run
                bar.set_description(f"{name}, seed {seed}", refresh=False)
                bar.update(len(run.steps) - (len(before.steps) if before else 0))
        except KeyboardInterrupt:
            bar.write(f"interrupted: {bar.n} of {total} steps are there")
    return {name: list(by_seed.values()) for name, by_seed in found.items()}


@dataclass(frozen=True)
class Spread:
    """One number of several runs, by seed."""

    values: dict[int, float]

    @property
    def mean(self) -> float:
        """Over seeds."""
        return float(self._numbers.mean())

    @property
    def sd(self) -> float:
        """Sample deviation over seeds; NaN where there is one."""
        return float(self._numbers.std()) if len(self.values) > 1 else float("nan")

    @property
    def above(self) -> int:
        """Seeds with a number above 0: of differences, in how many the first was larger."""
        return int((self._numbers > 0).sum())

    @property
    def _numbers(self) -> Tensor:
        return torch.tensor(list(self.values.values()), dtype=torch.float64)

    def __str__(self) -> str:
        n = len(self.values)
        return f"{self.mean:.3f} \u00b1 {self.sd:.3f} ({n} seed{'s' * (n > 1)})"


def trained(run: Run) -> float:
    """Pass rate at the end under the training stack."""
    return run.final.train


def sampled(run: Run) -> float:
    """Pass rate at the end under the rollout stack."""
    return run.final.rollout


def spread(runs: Sequence[Run], of: Callable[[Run], float] = trained) -> Spread:
    """A number of each run, such as `trained`, which refuses a run that is not done."""
    return Spread({seed: of(run) for seed, run in _by_seed(runs).items()})


def paired(
    runs: Sequence[Run], others: Sequence[Run], of: Callable[[Run], float] = trained
) -> Spread:
    """The first arm's number minus the other's, for each seed that both have."""
    ours, theirs = _by_seed(runs), _by_seed(others)
    both = [seed for seed in ours if seed in theirs]
    if not both:
        raise ValueError(f"no seed in common: {list(ours)} and {list(theirs)}")
    for seed in both:
        if ours[seed].start != theirs[seed].start:
            raise ValueError(f"the runs of seed {seed} began with different weights")
    return Spread({seed: of(ours[seed]) - of(theirs[seed]) for seed in both})


def curves(runs: Sequence[Run], name: str) -> Tensor:
    """A number of each run's steps (`Run.series`): `[runs, steps]` of the longest run.

    NaN where a run has not got that far.
    """
    steps = max((len(run.steps) for run in _by_seed(runs).values()), default=0)
    if not steps:
        raise ValueError("there are no steps to look at")
    found = torch.full((len(runs), steps), torch.nan, dtype=torch.float64)
    for row, run in zip(found, runs, strict=True):
        row[: len(run.steps)] = run.series(name)
    return found


def _by_seed(runs: Sequence[Run]) -> dict[int, Run]:
    found = {run.settings.seed: run for run in runs}
    if len(found) < len(runs):
        raise ValueError("two runs of an arm have the same seed")
    return found


def _taken_up(
    model: GPT,
    task: Task,
    settings: Settings,
    path: Path | None,
    known: dict[object, Evaluation],
) -> Run:
    """The run in the file, if there is one, and it is the one that is asked for.

    `known` are evaluations of `model` itself: arms with equal stacks begin with the same.
    """
    if path is None or not path.exists():
        stacks = settings.rollout_stack, settings.train_stack
        same = settings.seed, *stacks, settings.prompts
        run = begin(model, task, settings, known.get(same))
        known[same] = run.evaluations[0]
        return run
    run = load(path)
    if run.settings != settings:
        names = [f.name for f in fields(Settings)]
        other = [n for n in names if getattr(run.settings, n) != getattr(settings, n)]
        raise ValueError(f"{path} holds a run with other settings: {', '.join(other)}")
    if run.start != digest(model):
        raise ValueError(f"{path} holds a run that began with other weights")
    return run


def _names(arms: Mapping[str, Settings]) -> dict[str, str]:
    """What the files of each arm are called, without seed and ending."""
    names = {arm: re.sub(r"\W+", "-", arm).strip("-").lower() or "arm" for arm in arms}
    if len(set(names.values())) < len(names):
        raise ValueError(f"the arms' files would have the same name: {list(arms)}")
    return names
