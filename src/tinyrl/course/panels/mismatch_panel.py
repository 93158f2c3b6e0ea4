"""The mismatch panel: set two stacks, see at once what lies between their logprobs.

What the library can vary, a learner can vary (`controls`). Rollouts and scores are kept by
the stacks that made them, and each number shown is one that `metrics.compare` returned.
The picture of the first setting is also left in the notebook, for readers who have no
kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import asdict
from functools import lru_cache, partial
from typing import Any, overload

import ipywidgets as widgets  # type: ignore[import-untyped]
import torch
from torch import Tensor

from tinyrl.course.labels import LABELS, METRICS, reading
from tinyrl.course.live import picture, show_live
from tinyrl.course.panels.controls import Controls, Setting
from tinyrl.course.panels.frame import Panel, named, rooted
from tinyrl.course.panels.mismatch_figure import MismatchFigure
from tinyrl.course.panels.mismatch_plots import Tokens
from tinyrl.course.panels.readout import explain, number_table, verdict
from tinyrl.course.words import Words
from tinyrl.logprobs import check_logps
from tinyrl.metrics import Mismatch, compare
from tinyrl.model import GPT
from tinyrl.rollout import Batch
from tinyrl.scoring import Score, score
from tinyrl.stack import PRESETS, Stack, replace_at
from tinyrl.tasks import Task
from tinyrl.trainer import generate

EXACT = PRESETS["true_on_policy"]
INJECTIONS: tuple[tuple[Words, Setting], ...] = (
    (Words("BF16 rollout", "BF16 采样"), Setting(PRESETS["bf16"], Stack())),
    (Words("FP8 KV cache", "FP8 KV cache"), Setting(PRESETS["fp8_kv"], Stack())),
    (Words("INT4 weights", "INT4 权重"), Setting(PRESETS["int4_weights"], Stack())),
    (
        Words("temperature 0.7, rollout only", "仅采样端温度 0.7"),
        Setting(replace_at(Stack(), "sampler.temperature", 0.7), Stack()),
    ),
    (
        Words("top-p 0.9, rollout only", "仅采样端 top-p 0.9"),
        Setting(replace_at(Stack(), "sampler.top_p", 0.9), Stack()),
    ),
    (
        Words("positions off by one", "位置错一"),
        Setting(replace_at(Stack(), "positions.offset", 1), Stack()),
    ),
    (Words("stale weights", "滞后的权重"), Setting(Stack(), Stack(), stale=4)),
    (Words("true on-policy", "严格 on-policy"), Setting(EXACT, EXACT)),
)
RESET = Words("reset", "重置")
ALIGN = Words("align both sides", "两端对齐")


class Picture:
    """Verdict, picture and numbers of two logprobs of the same tokens."""

    def __init__(self, clip: float = 0.2) -> None:
        self.clip, self.figure = clip, MismatchFigure(clip)
        self.mismatch: Mismatch | None = None
        """The numbers shown."""
        self.image = named(widgets.Image, "image", format="png")
        self.verdict, self.numbers = (
            named(widgets.HTML, name) for name in ("verdict", "numbers")
        )
        parts = [self.verdict, self.image, self.numbers]
        self.widget = named(widgets.VBox, "view", parts)

    def show(
        self, logp_rollout: Tensor, logp_train: Tensor, mask: Tensor, **top1: Tensor
    ) -> None:
        """Show what `compare` says of `[B, T]` logprobs; `top1` as it takes them."""
        mismatch = compare(logp_rollout, logp_train, mask, clip=self.clip, **top1)
        self.image.value = self.figure.png(Tokens(logp_rollout, logp_train, mask, mismatch))
        self.numbers.value, self.mismatch = number_table(mismatch), mismatch
        self.judge(str(reading(mismatch)))

    def judge(self, said: str) -> None:
        """Say in a line above the picture what it comes to."""
        self.verdict.value = f'<b role="status">{said}</b>'

    def clear(self) -> None:
        """No numbers and no verdict; the old picture stays, faded (panel.css)."""
        self.verdict.value, self.numbers.value, self.mismatch = "", "", None

    def show_before(self, live: Any) -> None:
        """Picture and numbers for readers without a kernel, then the live panel."""
        if self.mismatch is None:  # the picture is of another setting
            show_live(live)
            return
        numbers = asdict(self.mismatch)
        lines = [f"{METRICS[k][0]!s:>16} {v}" for k, v in numbers.items()]
        alt = "Two logprobs of the same tokens: " + ", ".join(x.strip() for x in lines)
        show_live(live, *picture(self.image.value, "\n".join(lines), alt))


class ArraysPanel:
    """The pictures and numbers of the learner's own arrays."""

    def __init__(
        self, logp_rollout: Any, logp_train: Any, mask: Any = None, *, clip: float = 0.2
    ) -> None:
        sampled, trained, mask = check_logps(
            mask, logp_rollout=logp_rollout, logp_train=logp_train
        )
        self.view = Picture(clip)
        self.view.show(sampled.cpu(), trained.cpu(), mask.cpu())
        self.widget = rooted([self.view.widget], "tinyrl-arrays")

    def _ipython_display_(self) -> None:
        self.view.show_before(self.widget)


class MismatchPanel(Panel):
    """Controls for both sides of a mismatch, and a `Picture` that follows them.

    It copies the models, so that training on does not change what was seen.
    """

    def __init__(
        self,
        models: Sequence[GPT],
        task: Task,
        *,
        rollout: Stack | None = None,
        train: Stack | None = None,
        stale: int = 0,
        sequences: int = 256,
        seed: int = 0,
        clip: float = 0.2,
    ) -> None:
        if not models:
            raise ValueError("models is empty: the panel needs at least one")
        if not 0 <= stale < len(models):
            raise ValueError(f"stale is {stale}, but there are {len(models)} models")
        super().__init__()
        self._models, self._task, self._seed = deepcopy(list(models)), task, seed
        self._prompts = task.prompts(sequences, torch.Generator().manual_seed(seed))
        self._rollout = lru_cache(maxsize=32)(self._roll)
        self._trained = lru_cache(maxsize=64)(self._score)
        self._start = Setting(rollout or Stack(), train or Stack(), stale)
        self.view, self.reading = Picture(clip), named(widgets.HTML, "reading")
        dense = not self._models[-1].config.experts
        unseen = [path for path in LABELS if dense and "router" in path]
        self.controls = Controls(self._start, len(models), self.refresh, unseen)
        self.buttons = self._make_buttons()
        bar = named(widgets.HBox, "bar", [*self.buttons.values(), self.status])
        # in the order in which they stand where there is no room for two columns
        parts = [bar, self.error, self.view.widget, self.controls.widget, self.reading]
        self.widget = rooted(parts, "tinyrl-models")
        self.update()  # an error here is the cell's, and raised

    def align(self) -> None:
        """Give training the rollout's stack, and the rollout the newest weights."""
        stack = self.controls.setting().rollout
        self.controls.set(Setting(stack, stack))

    def show(self) -> None:
        setting = self.controls.setting()
        self.controls.mark(setting.differences())
        batch = self._rollout(setting.stale, setting.rollout)
        trained = self._trained(setting.stale, setting.rollout, setting.train)
        self.view.show(
            batch.logp_rollout,
            trained.logp,
            batch.mask,
            top1_rollout=batch.top1_rollout,
            top1_train=trained.top1,
        )
        assert self.view.mismatch is not None
        self.view.judge(verdict(setting, self.view.mismatch))
        self.reading.value = explain(setting, self.view.mismatch)

    def clear(self) -> None:
        self.view.clear()

    def _roll(self, stale: int, stack: Stack) -> Batch:
        generator = torch.Generator().manual_seed(self._seed)
        model = self._models[-1 - stale]
        return generate(model, self._task, self._prompts, stack, generator)

    @torch.no_grad()
    def _score(self, stale: int, rollout: Stack, train: Stack) -> Score:
        batch = self._rollout(stale, rollout)
        ids = (batch.prompt, batch.response)
        return score(self._models[-1], *ids, train, batch.routes, kept=batch.kept)

    def _make_buttons(self) -> dict[str, Any]:
        several = len(self._models) > 1
        actions: dict[Words, Callable[[], None]] = {
            name: partial(self.controls.set, setting)
            for name, setting in INJECTIONS
            if several or not setting.stale
        }
        actions[ALIGN] = self.align
        actions[RESET] = partial(self.controls.set, self._start)
        buttons: dict[str, Any] = {}
        for name, action in actions.items():
            button = buttons[name.en] = widgets.Button(description=str(name))
            button.layout.width = "auto"
            button.on_click(lambda _, action=action: action())
        for name in (ALIGN, RESET):
            buttons[name.en].add_class("tinyrl-back")
        return buttons

    def _ipython_display_(self) -> None:
        self.view.show_before(self.widget)


@overload
def panel(
    models: GPT | Sequence[GPT],
    task: Task,
    /,
    *,
    rollout: Stack | None = None,
    train: Stack | None = None,
    stale: int = 0,
    sequences: int = 256,
    seed: int = 0,
    clip: float = 0.2,
) -> MismatchPanel: ...
@overload
def panel(
    logp_rollout: Any, logp_train: Any, mask: Any = None, /, *, clip: float = 0.2
) -> ArraysPanel: ...
def panel(
    first: Any, second: Any, mask: Any = None, /, **options: Any
) -> MismatchPanel | ArraysPanel:
    """A panel; it shows itself where it is the last line of a cell.

    `panel(models, task)` samples `task` under one stack, scores the same tokens under
    another, and has a control for every field of either. `models` are one GPT, or its
    versions from old to new: the newest is trained, an older one may sample. Options:
    `rollout` and `train`, the stacks to begin with, `stale`, how many versions behind the
    sampling weights begin, `sequences` (256), `seed` (0), `clip` (0.2).

    `panel(logp_rollout, logp_train, mask)` shows the same of your own `[B, T]` arrays,
    torch or numpy; option `clip`. What is wrong with an array is said in a `ValueError`.
    """
    models = [first] if isinstance(first, GPT) else first
    if not isinstance(models, list | tuple) or not all(isinstance(m, GPT) for m in models):
        return ArraysPanel(first, second, mask, **options)
    if not hasattr(second, "prompts") or mask is not None:
        raise TypeError("panel(models, task) takes models and a task, and no mask")
    return MismatchPanel(models, second, **options)
