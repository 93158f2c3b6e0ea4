"""What an exercise is: a right answer, inputs, and the wrong answers that teach something.

An exercise is plain data. `judge` (judging.py) walks a learner's function through the
cases, and the kill matrix walks the mistakes and the alternatives through the same ones.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from tinyrl.course.words import Words

Function = Callable[..., Any]
Argument = Tensor | float | int
Mistakes = Mapping[str, tuple[Function, Words]]

Stage = Literal["example", "property", "inputs", "padding", "gradient", "numbers"]
STAGES: dict[Stage, Words] = {
    "example": Words(en="the simplest example", zh="最简单的例子"),
    "property": Words(en="a property", zh="性质"),
    "inputs": Words(en="other inputs", zh="其他输入"),
    "padding": Words(en="garbage in the padding", zh="padding 里的垃圾值"),
    "gradient": Words(en="the gradient", zh="梯度"),
    "numbers": Words(en="hard numbers", zh="数值极端情形"),
}


@dataclass(frozen=True)
class Case:
    """One call of the function. `what` says in a few words what is special about it."""

    stage: Stage
    what: Words
    args: tuple[Argument, ...]


@dataclass(frozen=True)
class Exercise:
    """One function for the learner to write.

    reference     right, on float64 arguments; its parameters name those of the function
    returns       a name for each value that it returns
    cases         inputs from a generator, stage by stage; the first is the example, the
                  same for every seed and small enough to do by hand
    mistakes      name -> (wrong function, what is wrong with it), each told apart from
                  every other by the cases
    alternatives  right answers written differently
    gradient      arguments through which the gradient must flow
    data          arguments that no gradient may reach: they came from elsewhere
    points        of the visible test and of the hidden one
    floor         a size that even a careful float32 answer handles on its way to a smaller
                  value, so that it may lose 16 eps of it
    boolean       returned values that are true and false: 0.0 and 1.0 would be added to
                  scores, and do not select
    whole         returned values of an integer dtype: ids and places, which look things up
    exact         its values jump as numbers of a format do, and float32 holds them: nothing
                  is forgiven for how far they move with an argument
    """

    name: str
    title: Words
    reference: Function
    returns: tuple[str, ...]
    cases: Callable[[torch.Generator], list[Case]]
    mistakes: Mistakes
    alternatives: Mapping[str, Function]
    hints: tuple[Words, Words, Words]
    points: tuple[int, int]
    minutes: int
    gradient: tuple[str, ...] = ()
    data: tuple[str, ...] = ()
    floor: float = 0.0
    exact: bool = False
    boolean: tuple[str, ...] = ()
    whole: tuple[str, ...] = ()

    @property
    def arguments(self) -> tuple[str, ...]:
        """The names of the function's parameters, in order."""
        return tuple(inspect.signature(self.reference).parameters)

    def called(self, name: str) -> str:
        """What a learner knows a returned value by: a single one, by its function."""
        return name if len(self.returns) > 1 else self.name

    def inputs(self, seed: int) -> list[Case]:
        """The cases of a seed, in the order in which an answer is walked through them."""
        cases = self.cases(torch.Generator().manual_seed(seed))
        return sorted(cases, key=lambda case: list(STAGES).index(case.stage))
