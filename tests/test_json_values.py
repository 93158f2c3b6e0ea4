"""Dataclasses through JSON: what comes back is equal, and what is amiss has its path."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field, replace
from typing import Literal

import pytest

from tinyrl.correction import Correction
from tinyrl.critic import Critic
from tinyrl.json_values import from_plain, to_plain
from tinyrl.objectives import LossView
from tinyrl.recipe import Recipe
from tinyrl.runs import Settings
from tinyrl.stack import PRESETS, Stack, leaves, replace_at


def there_and_back(value):
    return from_plain(type(value), json.loads(json.dumps(to_plain(value))))


def other(leaf):
    """A value of a stack's field that is not its default."""
    if leaf.choices is not None:
        return next(x for x in leaf.choices if x != leaf.value)
    return {"sampler.top_p": 0.9, "sampler.min_p": 0.1}.get(leaf.path, leaf.type(3))


@pytest.mark.parametrize("leaf", list(leaves(Stack())), ids=lambda leaf: leaf.path)
def test_every_field_of_a_stack_comes_back(leaf) -> None:
    stack = replace_at(Stack(), leaf.path, other(leaf))
    assert stack != Stack()
    assert there_and_back(stack) == stack


@pytest.mark.parametrize(
    "value",
    [
        *PRESETS.values(),
        Correction("sequence", "mask", None, 3.0, weight="one", veto=1e-4),
        Correction(also=Correction("geometric", "mask", 0.99, 1.01), normalise=True),
        LossView("rollout", "sequence_sum"),
        Recipe(groups=3, group_size=4, lr=1e-3, sampling="resample", overlong=2),
        Critic(lr=0.1 + 0.2, clip=math.inf),
        Settings(),
        Settings(
            seed=7,
            objective="cispo",
            options={"cap": 5.0, "aggregation": "sequence_mean"},
            critic=Critic(),
            rollout_stack=PRESETS["bf16"],
            staleness=3,
        ),
    ],
    ids=lambda x: type(x).__name__,
)
def test_what_a_run_is_made_of_comes_back(value) -> None:
    back = there_and_back(value)
    assert back == value
    assert type(back) is type(value)


@dataclass(frozen=True)
class Inner:
    rate: float
    rows: tuple[tuple[float, ...], ...] = ()


@dataclass(frozen=True)
class Outer:
    name: str
    count: int = 1
    flag: bool = False
    kind: Literal["a", "b"] = "a"
    inner: Inner | None = None
    times: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.count < 0:
            raise ValueError(f"count must be 0 or more, not {self.count}")


FULL = Outer("x", 3, True, "b", Inner(0.1, ((1.5, 2.0), (0.25,))), {"t": 0.1 + 0.2})


def test_nested_values_and_every_digit() -> None:
    assert there_and_back(FULL) == FULL
    assert there_and_back(Outer("y")) == Outer("y")
    tiny = replace(FULL, inner=Inner(5e-324))
    assert there_and_back(tiny).inner.rate == 5e-324


def test_an_absent_field_takes_its_default() -> None:
    assert from_plain(Outer, {"name": "x"}) == Outer("x")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"nmae": 1}, "Outer has no field 'nmae'; it has name, count"),
        ({"name": 3}, "Outer.name must be str, not 3"),
        ({"count": 1.0}, "Outer.count must be int, not 1.0"),
        ({"count": True}, "Outer.count must be int, not True"),
        ({"count": -1}, "Outer: count must be 0 or more, not -1"),
        ({"flag": 1}, "Outer.flag must be bool, not 1"),
        ({"inner": 3}, "Outer.inner must be named values, not 3"),
        ({"inner": {}}, "Outer.inner.rate is missing"),
        ({"inner": {"rate": "1"}}, "Outer.inner.rate must be float, not '1'"),
        ({"inner": {"rate": 1, "rows": 3}}, "Outer.inner.rows must be a list, not 3"),
        (
            {"inner": {"rate": 1, "rows": [[1], ["x"]]}},
            r"Outer.inner.rows\[1\]\[0\] must be float, not 'x'",
        ),
        ({"times": {"t": None}}, "Outer.times.t must be float, not None"),
        ({"times": []}, r"Outer.times must be named values, not \[\]"),
    ],
)
def test_what_is_amiss_is_named_by_its_path(change, message) -> None:
    with pytest.raises(ValueError, match=message):
        from_plain(Outer, {"name": "x"} | change)


def test_no_object_is_written_by_its_looks() -> None:
    with pytest.raises(TypeError, match="a set cannot be written as JSON"):
        to_plain({"a": {1}})
