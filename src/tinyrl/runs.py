"""A training run as a value: what was asked for, what was seen, and how to go on.

A run is kept in one file: a safetensors file with the weights, the optimizer and all else
that the next step depends on, and in its header, as JSON, the settings and every number.
It is written anew after each step, whole or not at all, so that a run that was killed goes
on from the last step that was finished, with the same numbers as if nothing had happened.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from . import objectives
from .correction import Correction
from .critic import Critic
from .json_values import from_plain, to_plain
from .model import GPT, GPTConfig
from .objectives import LossView, Objective
from .recipe import Recipe
from .snapshots import newest, restore, snapshot
from .stack import Stack
from .steps import Step
from .tasks import Task
from .trainer import Trainer, pass_rate

OBJECTIVES: dict[str, Any] = {
    name: getattr(objectives, name)
    for name in (
        *("ppo", "grpo", "dr_grpo", "dapo", "gspo", "gspo_token"),
        *("sapo", "cispo", "reinforce"),
    )
}
HEADER = "tinyrl.run"
"""Where the numbers stand in the file's metadata."""
EVALUATION = 1_000_003
"""Added to a run's seed for the prompts and draws of its evaluations."""


@dataclass(frozen=True)
class Settings:
    """All that decides a run besides the weights that it starts from and its task."""

    seed: int = 0
    steps: int = 60
    objective: str | None = None
    """A name of `OBJECTIVES`; None is the default of `rl`: see there."""
    options: Mapping[str, float | str] = field(default_factory=dict)
    """Keywords of the objective, such as `{"eps_low": 3e-4}`."""
    correction: Correction = field(default_factory=Correction)
    rollout_stack: Stack = field(default_factory=Stack)
    train_stack: Stack = field(default_factory=Stack)
    view: LossView = field(default_factory=LossView)
    staleness: int = 0
    recipe: Recipe = field(default_factory=Recipe)
    critic: Critic | None = None
    evaluate_every: int = 0
    """Steps between evaluations; 0 is before the first and after the last alone."""
    prompts: int = 256
    """Of each evaluation."""

    def __post_init__(self) -> None:
        for name, least in (
            ("seed", 0),
            ("steps", 0),
            ("staleness", 0),
            ("evaluate_every", 0),
            ("prompts", 1),
        ):
            value = getattr(self, name)
            if type(value) is not int or value < least:
                raise ValueError(
                    f"{name} must be a whole number from {least}, not {value!r}"
                )
        if self.objective is None and self.options:
            raise ValueError("options are an objective's: name it too")
        if self.objective is not None and self.objective not in OBJECTIVES:
            known = ", ".join(OBJECTIVES)
            raise ValueError(f"objective must be one of {known}, not {self.objective!r}")
        if self.objective is not None:
            self._try()

    def loss(self) -> Objective | None:
        """The objective with its options."""
        if self.objective is None:
            return None
        chosen: Objective = partial(OBJECTIVES[self.objective], **self.options)
        return chosen

    def _try(self) -> None:
        """One token, so that an option that is wrong or missing is said now."""
        one, loss = torch.zeros(1, 1), self.loss()
        try:
            assert loss is not None
            loss(one, one, torch.zeros(1), one == 0)
        except (TypeError, ValueError) as error:
            raise ValueError(f"objective {self.objective}: {error}") from None

    def trainer(self, model: GPT, task: Task) -> Trainer:
        """What trains `model` in place as these settings say."""
        return Trainer(
            model,
            task,
            generator=torch.Generator().manual_seed(self.seed),
            rollout_stack=self.rollout_stack,
            train_stack=self.train_stack,
            view=self.view,
            objective=self.loss(),
            correction=self.correction,
            staleness=self.staleness,
            recipe=self.recipe,
            critic=self.critic,
        )


@dataclass(frozen=True)
class Evaluation:
    """Pass rates of the newest weights on fresh prompts, the same for both stacks."""

    step: int
    """Steps that had been taken."""
    rollout: float
    """Under the rollout stack: what would be deployed."""
    train: float
    """Under the training stack: what gradients were taken of."""


@dataclass(frozen=True, repr=False)
class Run:
    """One run so far. Equal runs have equal settings and saw equal numbers."""

    settings: Settings
    task: str
    """Its `repr`."""
    config: GPTConfig
    start: str
    """Digest of the weights that it began with."""
    steps: tuple[Step, ...]
    evaluations: tuple[Evaluation, ...]
    state: dict[str, Tensor] = field(compare=False)
    """See `snapshots`."""

    def __repr__(self) -> str:
        """In a line: its numbers would fill pages."""
        taken, total = len(self.steps), self.settings.steps
        return f"<run of {self.task}, seed {self.settings.seed}: {taken} of {total} steps>"

    @property
    def done(self) -> bool:
        """Whether all steps were taken."""
        return len(self.steps) >= self.settings.steps

    @property
    def final(self) -> Evaluation:
        """The last evaluation; `ValueError` for a run that is not done."""
        if not self.done:
            raise ValueError(
                f"the run of seed {self.settings.seed} has taken {len(self.steps)} of "
                f"{self.settings.steps} steps: it has no final evaluation"
            )
        return self.evaluations[-1]

    def series(self, name: str) -> Tensor:
        """A number of each step, `[steps]` float64: `reward`, or `mismatch.k3`."""
        numbers = [_number(step, name) for step in self.steps]
        return torch.tensor(numbers, dtype=torch.float64)

    def model(self) -> GPT:
        """A copy of the policy as it is now."""
        model = GPT(self.config, torch.Generator())
        model.load_state_dict(newest(self.state))
        return model

    def save(self, path: Path | str) -> None:
        """Write it to `path`, over what was there, whole or not at all."""
        numbers = {f.name: getattr(self, f.name) for f in fields(self) if f.compare}
        header = {HEADER: json.dumps(to_plain(numbers))}
        path = Path(path)
        part = path.with_name(path.name + ".part")
        with part.open("wb") as file:
            file.write(save(self.state, header))
            file.flush()
            os.fsync(file.fileno())  # the disk may be full, and say so only now
        os.replace(part, path)


def load(path: Path | str) -> Run:
    """The run that `Run.save` wrote to `path`; an error says what is amiss with it."""
    if not Path(path).is_file():
        raise FileNotFoundError(f"there is no run in {path}")
    try:
        with safe_open(path, "pt") as file:
            header = file.metadata() or {}
            # copies: the file must not stay open, it will be replaced
            state = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
        if HEADER not in header:
            raise ValueError("it is some other safetensors file")
        return from_plain(Run, json.loads(header[HEADER]), state=state)
    except (SafetensorError, ValueError) as error:
        raise ValueError(f"{path} holds no run that can be read: {error}") from None


def begin(
    model: GPT, task: Task, settings: Settings, before: Evaluation | None = None
) -> Run:
    """A run before its first step; the model is copied.

    `before` is what `evaluate` would find, where that is known.
    """
    trainer = settings.trainer(deepcopy(model), task)
    before = before or evaluate(trainer, settings)
    start = snapshot(trainer)
    return Run(settings, repr(task), model.config, digest(model), (), (before,), start)


def advance(run: Run, task: Task, path: Path | str | None = None) -> Iterator[Run]:
    """Go on to the end; yields the run after each step, which is in `path` by then.

    What was yielded does not change any more, so an interrupt in the middle of a step, or
    closing this generator, loses that step alone.
    """
    if repr(task) != run.task:
        raise ValueError(f"the run is of the task {run.task}, not of {task!r}")
    settings, trainer = run.settings, run.settings.trainer(run.model(), task)
    restore(trainer, run.state)
    while not run.done:
        run = replace(run, steps=(*run.steps, trainer.step()))
        every, taken = settings.evaluate_every, len(run.steps)
        if run.done or (every and taken % every == 0):
            seen = evaluate(trainer, settings)
            run = replace(run, evaluations=(*run.evaluations, seen))
        run = replace(run, state=snapshot(trainer))
        if path is not None:
            run.save(path)
        yield run


def evaluate(trainer: Trainer, settings: Settings) -> Evaluation:
    """Pass rates now, with draws of their own that only the seed decides."""
    rates = {}
    for stack in {trainer.rollout_stack, trainer.train_stack}:
        g = torch.Generator().manual_seed(settings.seed + EVALUATION)
        rates[stack] = pass_rate(trainer.model, trainer.task, stack, g, settings.prompts)
    rollout, train = rates[trainer.rollout_stack], rates[trainer.train_stack]
    return Evaluation(trainer.done, rollout, train)


def digest(model: GPT) -> str:
    """A fingerprint of the weights: equal where all of them are."""
    found = hashlib.sha256()
    for name, w in model.state_dict().items():
        found.update(name.encode() + w.detach().numpy().tobytes())
    return found.hexdigest()


def _number(step: Step, name: str) -> float:
    value: Any = step
    for part in name.split("."):
        if not hasattr(value, part):
            raise ValueError(f"a step has no number {name!r}")
        value = getattr(value, part)
    return float("nan") if value is None else float(value)
