"""The compare-runs panel: choose policies, objective and correction, train, and compare.

Each press of Run adds an arm, trained on every seed while the kernel goes on answering: it
can be stopped between any two steps, and what was done stays. The picture of
the runs it begins with is left in the notebook for readers who have no kernel.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from typing import Any, TypeVar

import ipywidgets as widgets  # type: ignore[import-untyped]

from tinyrl.correction import Correction
from tinyrl.course.live import picture, show_live
from tinyrl.course.panels.frame import (
    WAIT,
    error_box,
    menu,
    named,
    refusal,
    rooted,
    row,
    slider,
)
from tinyrl.course.panels.run_plots import COLOURS, RunsFigure
from tinyrl.course.panels.run_table import table, told
from tinyrl.course.panels.run_words import (
    ANCHOR,
    ANCHORS,
    CANCEL,
    CANCELLED,
    CLEAR,
    CLEARS,
    CORRECTION,
    DOING,
    DONE,
    FULL,
    NONE,
    OBJECTIVE,
    ROLLOUT,
    RUN,
    SEEDS,
    STALE,
    TWICE,
    in_words,
)
from tinyrl.course.panels.runs_panel_given import check_given
from tinyrl.model import GPT
from tinyrl.recipe import Recipe
from tinyrl.runs import OBJECTIVES, Run, Settings, advance, begin
from tinyrl.stack import PRESETS, Stack, replace_at
from tinyrl.sweeps import Runs
from tinyrl.tasks import Task

CORRECTIONS = {
    "none": Correction(),
    "token, truncated at 2": Correction("token", "truncate"),
    "token, masked outside 0.5 to 2": Correction("token", "mask", 0.5, 2.0),
    "sequence, truncated at 2": Correction("sequence", "truncate"),
    "sequence, masked above 2": Correction("sequence", "mask"),
    "geometric, masked outside 0.9 to 1.1": Correction("geometric", "mask", 0.9, 1.1),
}
STACKS: dict[str, Stack] = PRESETS | {
    "temperature 1.5": replace_at(Stack(), "sampler.temperature", 1.5),
    "top-p 0.9": replace_at(Stack(), "sampler.top_p", 0.9),
}
DEFAULT = "grpo, mean over tokens"  # what `rl` does if nothing is said
GIVEN = "as given"
QUICK = Settings(steps=40, recipe=Recipe(groups=8, lr=7e-4))
"""A run of 2.5 seconds on the course's checkpoint, in which staleness of 8 steps hurts."""
REDRAW = 0.25  # seconds between pictures while it trains


class Refused(ValueError):
    """What a learner asked for and cannot have, in the words of the controls."""


class RunsPanel:
    """Controls for an arm, its training, and all arms so far. It copies the model.

    `runs` are arms to begin with, as `sweeps.experiment` returns them; `base` has what the
    controls do not set: sizes, rates, the training stack. Controls begin as it says.
    """

    def __init__(
        self,
        model: GPT,
        task: Task,
        *,
        runs: Mapping[str, Sequence[Run]] | None = None,
        base: Settings = QUICK,
        seeds: int = 3,
    ) -> None:
        check_given(model, task, runs, base, seeds)
        self._model, self._task, self._base = deepcopy(model), task, base
        self.arms: Runs = {name: list(arm) for name, arm in (runs or {}).items()}
        self._first = frozenset(self.arms)
        given = [run for arm in self.arms.values() for run in arm]
        steps = [run.settings.steps for run in given]
        self.picture = RunsFigure(max([base.steps, *steps]))
        self._training: asyncio.Task[None] | None = None
        self._drawn = 0.0
        self._corrections, correction = _with(base.correction, CORRECTIONS)
        self._stacks, rollout = _with(base.rollout_stack, STACKS)
        names = (DEFAULT, *OBJECTIVES)
        self.objective = menu(OBJECTIVE, _worded(names), base.objective or DEFAULT)
        self.correction = menu(CORRECTION, _worded(self._corrections), correction)
        anchors = {str(words): name for name, words in ANCHORS.items()}
        self.anchor = menu(ANCHOR, anchors, base.view.anchor)
        self.rollout = menu(ROLLOUT, _worded(self._stacks), rollout)
        self.stale = slider(STALE, base.staleness, 0, max(16, base.staleness))
        self.seeds = slider(SEEDS, seeds, 1, max(5, seeds))
        self.run_button, self.cancel_button, self.clear_button = (
            widgets.Button(description=str(words)) for words in (RUN, CANCEL, CLEAR)
        )
        self.clear_button.tooltip = str(CLEARS)
        self.bar = widgets.IntProgress(0, 0, 1, layout={"width": "120px"})
        self.image = named(widgets.Image, "image", format="png")
        self.status, self.error, self.table = (
            named(widgets.HTML, name) for name in ("status", "error", "table")
        )
        self.widget = self._lay_out()
        self.run_button.on_click(lambda _: self.run())
        self.cancel_button.on_click(lambda _: self.cancel())
        self.clear_button.on_click(lambda _: self.clear())
        self._idle()
        self._draw()  # an error here is the cell's, and raised

    def settings(self) -> Settings:
        """What the controls say; raises `ValueError` for what does not go together."""
        name, base = self.objective.value, self._base
        correction = self._corrections[self.correction.value]
        if self.anchor.value == "rollout" and correction.operation == "truncate":
            raise Refused(str(TWICE))
        needed: dict[
            str, dict[str, float | str]
        ] = {  # CISPO's cap is ScaleRL's, 2510.13786
            "dr_grpo": {"length": self._task.max_new + base.recipe.room},
            "cispo": {"cap": 5.0},
        }
        return replace(
            base,
            objective=None if name == DEFAULT else name,
            options=base.options if name == base.objective else needed.get(name, {}),
            recipe=replace(base.recipe, std="none") if name == "dr_grpo" else base.recipe,
            correction=correction,
            view=replace(base.view, anchor=self.anchor.value),
            rollout_stack=self._stacks[self.rollout.value],
            staleness=self.stale.value,
        )

    def run(self) -> None:
        """Train the arm that the controls describe; beside a kernel, which goes on."""
        if self.training:
            return
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:  # no kernel: nobody could press anything meanwhile
            asyncio.run(self.train())
        else:
            self._training = loop.create_task(self.train())

    def cancel(self) -> None:
        """Stop after the present step. The next run of this arm goes on from there."""
        if self._training is not None:
            self._training.cancel()

    @property
    def training(self) -> bool:
        """Whether an arm is being trained beside a kernel."""
        return self._training is not None and not self._training.done()

    def clear(self) -> None:
        """Forget the arms that were added; where there are none, all."""
        if not self.training:
            first = {name: arm for name, arm in self.arms.items() if name in self._first}
            self.arms = first if len(first) < len(self.arms) else {}
            self.error.value = self.status.value = ""
            self._draw()

    async def train(self) -> None:
        """Train on each seed that is not done; what goes wrong is shown, not raised."""
        self._busy()
        try:
            settings = self.settings()
            arm = self._arm(settings)
            done = sum(run.done for run in self.arms[arm])
            for seed in range(self.seeds.value):
                await self._train(arm, replace(settings, seed=seed))
            asked = self.seeds.value
            again = str(DONE).format(in_words(arm), done) if done >= asked else ""
            self.status.value = again
        except asyncio.CancelledError:
            self.status.value = f"<i>{CANCELLED}</i>"
        except Refused as error:
            self.status.value = ""
            self.error.value = refusal(error)
        except Exception as error:  # whatever it is: nobody sees what a callback raises
            self.status.value, self.error.value = "", error_box(error)
        finally:
            self.arms = {name: runs for name, runs in self.arms.items() if runs}
            self._training = None
            self._idle()
            self._draw()

    async def _train(self, arm: str, settings: Settings) -> None:
        """One run, as far as it is not there yet; others get their turn after each step."""
        runs = self.arms[arm]
        place = next(
            (i for i, run in enumerate(runs) if run.settings.seed == settings.seed),
            len(runs),
        )
        if place == len(runs):
            runs.append(begin(self._model, self._task, settings))
        for run in advance(runs[place], self._task):
            runs[place] = run
            taken, total = len(run.steps), settings.steps
            self.bar.max, self.bar.value = total, taken
            doing = in_words(arm), settings.seed, taken, total
            self.status.value = str(DOING).format(*doing)
            if time.perf_counter() - self._drawn > REDRAW:
                self._draw()
            await asyncio.sleep(0)

    def _arm(self, settings: Settings) -> str:
        """The arm of these settings, which may be there already."""
        for name, runs in self.arms.items():
            if runs and replace(runs[0].settings, seed=settings.seed) == settings:
                return name
        if len(self.arms) == len(COLOURS):
            raise Refused(str(FULL).format(len(COLOURS)))
        name = self._name()
        while name in self.arms:
            name += "'"
        self.arms[name] = []
        return name

    def _name(self) -> str:
        """What sets the arm apart, in the English of the picture."""
        parts = [self.objective.value]
        exact = self.rollout.value == "fp32" and not self.stale.value
        if self.rollout.value != "fp32":
            parts.append(self.rollout.value)
        if self.stale.value:
            parts.append(f"{self.stale.value} steps stale")
        if self.anchor.value == "rollout":
            parts.append("old: rollout's")
        elif not exact:
            parts.append("old: recomputed")
        if self.correction.value != "none":
            parts.append(self.correction.value)
        return "; ".join(parts)

    def _busy(self) -> None:
        self.error.value, self.status.value = "", f"<i>{WAIT}</i>"  # the first step is long
        self.run_button.disabled = self.clear_button.disabled = True
        self.cancel_button.disabled = False
        self.bar.layout.display = "flex"

    def _idle(self) -> None:
        self.run_button.disabled = self.clear_button.disabled = False
        self.cancel_button.disabled = True
        self.bar.value, self.bar.layout.display = 0, "none"  # empty, it is a grey box

    def _draw(self) -> None:
        self.image.value = self.picture.png(self.arms)
        self.table.value = table(self.arms)
        self._drawn = time.perf_counter()

    def _lay_out(self) -> Any:
        controls = (self.objective, self.correction, self.anchor, self.rollout, self.stale)
        buttons = (self.run_button, self.cancel_button, self.clear_button)
        rows = row(*controls), row(self.seeds, *buttons, self.bar, self.status)
        self.image.layout.max_width = "900px"
        parts = [*rows, self.error, self.image, self.table]
        return rooted([widgets.VBox(parts)], "tinyrl-runs")

    def _ipython_display_(self) -> None:
        text = "\n".join(told(self.arms)) or str(NONE)
        show_live(self.widget, *picture(self.image.value, text, text))


T = TypeVar("T")


def _with(given: T, named: dict[str, T]) -> tuple[dict[str, T], str]:
    """The choices, among them the one to begin with, and its name."""
    choices = named if given in named.values() else {GIVEN: given} | named
    return choices, next(name for name, x in choices.items() if x == given)


def _worded(names: Iterable[str]) -> dict[str, str]:
    """The choices of a menu by their words."""
    return {in_words(name): name for name in names}
