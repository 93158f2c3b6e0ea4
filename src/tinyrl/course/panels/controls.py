"""Two columns of controls, made from the fields of `Stack`: one for each side.

A field's type says what controls it: listed choices a menu, a number a slider, a flag a
box. Nothing here knows a field by name, so a new one appears by itself.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Container
from dataclasses import dataclass
from typing import Any, Literal

import ipywidgets as widgets  # type: ignore[import-untyped]

from tinyrl.course.labels import LABELS, Label, value
from tinyrl.course.words import Words
from tinyrl.stack import Field, Stack, diff, leaves, replace_at

Side = Literal["rollout", "train"]
SIDES: dict[Side, Words] = {
    "rollout": Words("Rollout", "采样端"),
    "train": Words("Training", "训练端"),
}


@dataclass(frozen=True)
class Setting:
    """All that a panel can set: both stacks, and how old the weights that sample are."""

    rollout: Stack
    train: Stack
    stale: int = 0

    def differences(self) -> dict[str, tuple[Any, Any]]:
        """What differs between rollout and training, by path; "weights" is their age."""
        stale = {"weights": (self.stale, 0)} if self.stale else {}
        return stale | diff(self.rollout, self.train)


class Controls:
    """Shows a `Setting`, lets it be changed, and marks the rows whose sides differ.

    The rows of `unseen` paths are made, but not shown.
    """

    def __init__(
        self,
        start: Setting,
        versions: int,
        changed: Callable[[], None],
        unseen: Container[str] = (),
    ) -> None:
        self._changed, self._quiet = changed, False
        self.inputs: dict[Side, dict[str, Any]] = {side: {} for side in SIDES}
        heads = [f'<b class="tinyrl-{side}">{name}</b>' for side, name in SIDES.items()]
        self._rows: dict[str, Any] = {}
        for leaf in leaves(Stack()):
            cells = [self._input(side, leaf, start) for side in SIDES]
            self._rows[leaf.path] = _row(LABELS[leaf.path], cells)
        self.stale = widgets.IntSlider(
            start.stale, 0, versions - 1, continuous_update=False
        )
        if versions > 1:
            self._watch(self.stale, "rollout", "weights")
            cells = [self.stale, widgets.HTML(f"<i>{value(0, 'weights')}</i>")]
            self._rows = {"weights": _row(LABELS["weights"], cells)} | self._rows
        first, second = (_row(None, [widgets.HTML(x) for x in heads]) for _ in range(2))
        second.add_class("tinyrl-second-head")  # seen only where rows stand in two columns
        rows = [row for path, row in self._rows.items() if path not in unseen]
        half = (len(rows) + 1) // 2
        self.widget = widgets.VBox([first, *rows[:half], second, *rows[half:]])
        self.widget.add_class("tinyrl-controls")

    def setting(self) -> Setting:
        """What the controls say now."""
        stacks = dict.fromkeys(SIDES, Stack())
        for side, inputs in self.inputs.items():
            for leaf in leaves(Stack()):
                x = inputs[leaf.path].value
                x = round(x, 6) if isinstance(x, float) else x  # a slider adds up steps
                if x != leaf.value:
                    stacks[side] = replace_at(stacks[side], leaf.path, x)
        return Setting(stacks["rollout"], stacks["train"], self.stale.value)

    def set(self, setting: Setting) -> None:
        """Show another setting, and report one change however many controls move."""
        self._quiet = True
        try:
            for side in SIDES:
                for leaf in leaves(getattr(setting, side)):
                    self.inputs[side][leaf.path].value = leaf.value
            self.stale.value = min(setting.stale, self.stale.max)
        finally:
            self._quiet = False
        self._on_change()

    def _input(self, side: Side, leaf: Field, start: Setting) -> Any:
        values = {
            of: next(x.value for x in leaves(getattr(start, of)) if x.path == leaf.path)
            for of in SIDES
        }
        control = make_input(leaf, values[side], list(values.values()))
        self.inputs[side][leaf.path] = control
        self._watch(control, side, leaf.path)
        return control

    def _watch(self, control: Any, side: Side, path: str) -> None:
        control.layout.width = "auto"
        control.description = f"{SIDES[side]}: {LABELS[path].name}"
        control.add_class("tinyrl-input")
        control.add_class(f"tinyrl-{side}-{path.replace('.', '-')}")
        control.observe(lambda _: self._on_change(), "value")

    def _on_change(self) -> None:
        if not self._quiet:
            self._changed()

    def mark(self, differing: Container[str]) -> None:
        """Mark the rows of these paths, and no others."""
        for path, row in self._rows.items():
            (row.add_class if path in differing else row.remove_class)("tinyrl-differs")


def make_input(leaf: Field, now: Any, shown: list[Any]) -> Any:
    """The control of a field, showing `now`, with room for all that is to be `shown`.

    Sliders report when let go, not on the way.
    """
    if leaf.choices is not None:
        return widgets.Dropdown(options=[(value(x), x) for x in leaf.choices], value=now)
    if leaf.type is bool:
        return widgets.Checkbox(now, indent=False)
    if leaf.type in (int, float):
        return _slider(leaf, now, shown)
    raise TypeError(f"no control for {leaf.path}: {leaf.type.__name__}")


def _slider(leaf: Field, now: Any, shown: list[Any]) -> Any:
    """Over the label's bounds and what is `shown`; in words where its 0 is no amount."""
    label = LABELS[leaf.path]
    low, high, step = label.bounds or (0, 10, 1)
    if label.zero:
        steps = [leaf.type(round(low + step * i, 9)) for i in range(round(high / step) + 1)]
        options = [(value(x, leaf.path), x) for x in sorted({*steps, *shown})]
        return widgets.SelectionSlider(options=options, value=now, continuous_update=False)
    kind = widgets.IntSlider if leaf.type is int else widgets.FloatSlider
    how = {"step": step, "continuous_update": False}
    return kind(now, min=min(low, *shown), max=max(high, *shown), **how)


def _row(label: Label | None, cells: list[Any]) -> Any:
    name, tip = ("", "") if label is None else (str(label.name), str(label.help))
    tip, name = html.escape(tip, quote=True), html.escape(name)
    text = f'<span class="tinyrl-name" title="{tip}">{name}</span>'
    row = widgets.HBox([widgets.HTML(text), *cells])
    row.add_class("tinyrl-row")
    return row
