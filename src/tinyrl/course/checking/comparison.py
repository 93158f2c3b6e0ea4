"""What a function did with a case, in numbers, and what would have been right.

Truth is the exercise's reference in float64. Learners compute in float32, so a value may
be off by what float32 explains: 16 eps (eps = 2^-23) times the size of the value plus how
far it moves when an argument does (change of the value over relative change of the
argument; nothing in an `exact` exercise). Gradients may be off by 64 eps of the largest.
"""

from __future__ import annotations

# Looked up once: what a notebook does to builtins later does not reach this file.
from builtins import abs, all, getattr, isinstance, len, max, tuple, type, zip  # noqa: UP029
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy import float64, isfinite, isnan, ndarray
from numpy.typing import NDArray
from torch import Tensor
from torch.autograd import grad

from tinyrl.course.checking import messages
from tinyrl.course.checking.guarded_call import Attempt, as_shipped, attempt
from tinyrl.course.checking.perturbations import STEP, perturbed, real
from tinyrl.course.exercise import Argument, Case, Exercise, Function
from tinyrl.course.words import Words

Array = NDArray[float64]

EPS = 2.0**-23  # float32
SLACK = 16
SAME = 1e-5  # relative; two float32 programs that compute the same thing, in any order

_PLAIN = (bool, int, float, np.float16, np.float32, np.float64, np.int32, np.int64)
_INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
_UNREADABLE = (TypeError, ValueError, RuntimeError, NotImplementedError)


@dataclass(frozen=True)
class Seen:
    """What came of one call. `unreadable` says why the value is no answer at all.

    `unfit` says what is wrong with the type of numbers that may be right. `unspoiled` are
    the values once the arguments hold again what they held: a view of one that was written
    to is then what it would have been. Empty where nothing was written to.
    """

    attempt: Attempt
    values: tuple[Array, ...] = ()
    unreadable: Words | None = None
    gradients: dict[str, Array | None] = field(default_factory=dict)
    unfit: Words | None = None
    unspoiled: tuple[Array, ...] = ()


@dataclass(frozen=True)
class Truth:
    """The right values of a case, how far off they may be, and the right gradients."""

    values: tuple[Array, ...]
    tolerances: tuple[Array, ...]
    gradients: dict[str, Array | None]


def observe(
    exercise: Exercise, function: Function, case: Case, *, own: bool = False
) -> Seen:
    """Call `function` on a case; in a gradient case differentiate what it returns.

    The course's `own` functions are called without the guards that a learner's need.
    """
    if case.stage != "gradient":
        made = attempt(function, case.args, guarded=not own)
        return _seen(exercise, case, made, {})

    gradients: dict[str, Tensor | None] = {}

    def differentiated(*args: Argument) -> Any:
        value = function(*args)
        gradients.update(pull(exercise, value, args))
        return value

    wants = tuple(name in exercise.gradient + exercise.data for name in exercise.arguments)
    made = attempt(differentiated, case.args, wants_grad=wants, guarded=not own)
    found = {n: None if g is None else array(g) for n, g in gradients.items()}
    return _seen(exercise, case, made, found)


def _seen(
    exercise: Exercise, case: Case, made: Attempt, gradients: dict[str, Array | None]
) -> Seen:
    values, unreadable = read(exercise, made.value)
    unfit = None if unreadable else _unfit(exercise, made.value)
    unspoiled = _unspoiled(exercise, case, made) if made.changed else ()
    return Seen(made, values, unreadable, gradients, unfit, unspoiled)


def _unspoiled(exercise: Exercise, case: Case, made: Attempt) -> tuple[Array, ...]:
    """The values, read again after what was written to the arguments is undone."""
    try:
        for i in made.changed:
            held, was = made.args[i], case.args[i]
            if isinstance(held, Tensor) and isinstance(was, Tensor):
                Tensor.copy_(Tensor.detach(held), was)
        return read(exercise, made.value)[0]
    except _UNREADABLE:  # made sparse, resized or the like in place
        return ()


def read(exercise: Exercise, value: object) -> tuple[tuple[Array, ...], Words | None]:
    """The values that a function returned, or why they are not numbers."""
    if len(exercise.returns) > 1 and (
        type(value) not in (tuple, list) or len(value) != len(exercise.returns)  # type: ignore[arg-type]
    ):
        return (), messages.not_a_tuple(exercise, value)
    found = []
    for name, part in parts(exercise, value):
        try:
            found.append(array(part))
        except _UNREADABLE:
            return (), messages.not_numbers(exercise.called(name), part)
        if name in exercise.boolean and not _boolean(part):
            return (), messages.not_boolean(exercise.called(name))
    return tuple(found), None


def parts(exercise: Exercise, value: Any) -> Iterator[tuple[str, object]]:
    """What was returned, by name; one value may be a tuple by mistake."""
    several = len(exercise.returns) > 1
    return zip(exercise.returns, value if several else (value,), strict=True)


def _unfit(exercise: Exercise, value: object) -> Words | None:
    for name, part in parts(exercise, value):
        if name in exercise.whole and not _whole(part):
            return messages.not_whole(exercise.called(name))
    return None


def array(value: object) -> Array:
    """A float64 copy of a plain number or array; raises for anything else.

    Only exact types count, and a tensor's methods are those of its class: an object that
    claims to equal everything is no number.
    """
    if type(value) is Tensor and not Tensor.is_complex(value):
        return Tensor.detach(value).to("cpu", torch.float64, copy=True).numpy()
    if type(value) is ndarray and value.dtype.kind in "fiub":
        return value.astype(float64)
    if type(value) in _PLAIN:
        return np.array(value, float64)
    raise TypeError(f"not a number: {type(value)}")


def _boolean(value: object) -> bool:
    dtype = getattr(value, "dtype", None)
    return type(value) is bool or dtype in (torch.bool, np.bool_)


def _whole(value: object) -> bool:
    if type(value) is Tensor:
        return value.dtype in _INTEGERS
    kind = getattr(getattr(value, "dtype", None), "kind", None)  # numpy's
    return type(value) is int or kind in ("i", "u")


def pull(
    exercise: Exercise, value: Any, args: tuple[Argument, ...]
) -> dict[str, Tensor | None]:
    """The gradient of a fixed weighted sum of all outputs, by the name of the argument."""
    outputs = value if type(value) in (tuple, list) else (value,)
    total = torch.zeros((), dtype=torch.float64)
    generator = torch.Generator().manual_seed(0)
    for output in outputs:
        if type(output) is Tensor:
            weight = torch.rand(output.shape, generator=generator, dtype=torch.float64)
            total = total + ((0.5 + weight) * Tensor.double(output)).sum()
    names = [n for n in exercise.arguments if n in exercise.gradient + exercise.data]
    leaves = [args[exercise.arguments.index(name)] for name in names]
    if not total.requires_grad:
        return dict.fromkeys(names)
    return dict(zip(names, grad(total, leaves, allow_unused=True), strict=True))  # type: ignore[arg-type]


@as_shipped()
def truth(exercise: Exercise, case: Case) -> Truth:
    """The right answer to a case, from the reference in float64."""
    args = tuple(_double(argument) for argument in case.args)
    values = _right(exercise, args)
    still = [np.zeros_like(value) for value in values]
    moves = still if exercise.exact else _moves(exercise, args, values)
    tolerances = tuple(
        SLACK * EPS * (abs(value) + exercise.floor + move)
        for value, move in zip(values, moves, strict=True)
    )
    gradients: dict[str, Array | None] = {}
    if case.stage == "gradient":
        wanted = exercise.gradient + exercise.data
        leaves = tuple(
            a.requires_grad_() if isinstance(a, Tensor) and name in wanted else a
            for name, a in zip(exercise.arguments, args, strict=True)
        )
        found = pull(exercise, exercise.reference(*leaves), leaves)
        gradients = {n: None if g is None else array(g) for n, g in found.items()}
    return Truth(values, tolerances, gradients)


def _moves(
    exercise: Exercise, args: tuple[Argument, ...], values: tuple[Array, ...]
) -> list[Array]:
    """How far each value moves with the arguments, summed over them.

    The numbers of an argument are perturbed in several patterns of up and down: the largest
    move counts, lest one that cancels in a pattern passes for none. A value that is inf
    moves by NaN, which forgives nothing: only inf is inf.
    """
    total = [np.zeros_like(value) for value in values]
    for i, argument in enumerate(args):
        largest = [np.zeros_like(value) for value in values]
        for other in perturbed(argument):
            moved = _right(exercise, (*args[:i], other, *args[i + 1 :]))
            for k, value in enumerate(moved):
                with np.errstate(invalid="ignore"):  # inf - inf
                    largest[k] = np.maximum(largest[k], abs(value - values[k]) / STEP)
        total = [t + move for t, move in zip(total, largest, strict=True)]
    return total


def _right(exercise: Exercise, args: tuple[Argument, ...]) -> tuple[Array, ...]:
    value = exercise.reference(*args)
    return tuple(array(part) for part in (value if type(value) is tuple else (value,)))


def _double(argument: Argument) -> Argument:
    return (
        argument.double() if isinstance(argument, Tensor) and real(argument) else argument
    )


def within(mine: Array, theirs: Array, tolerance: Array | float) -> bool:
    """Whether all of `mine` is as close to `theirs` as it has to be.

    Inf is close to itself alone, NaN to nothing.
    """
    with np.errstate(invalid="ignore"):  # inf - inf; a warning would cost the mark
        near = isfinite(theirs) & (abs(mine - theirs) <= tolerance)
    return bool((near | (mine == theirs)).all())


def gradient_slack(right: Array | None, others: Iterable[Array | None]) -> float:
    """What float32 may lose of a gradient; where none should flow, of the `others`.

    Terms that cancel leave a rounding error of their size.
    """
    sizes = [
        abs(g).max()
        for g in ([right] if right is not None else others)
        if g is not None and g.size
    ]
    return 4 * SLACK * EPS * max(sizes, default=0.0)


def same(a: Seen, b: Seen, right: Truth) -> bool:
    """Whether two functions did the same with a case: values, NaNs, gradients, errors.

    They may differ by what float32 explains at these inputs, and not by a fixed amount, to
    which all tiny numbers would be alike.
    """
    if a.attempt.error or b.attempt.error:
        return type(a.attempt.error) is type(b.attempt.error)
    if a.unreadable or b.unreadable:
        return False
    numbers = zip(a.values, b.values, right.tolerances, strict=True)
    if not all(_alike(x, y, tolerance) for x, y, tolerance in numbers):
        return False
    slacks = {
        name: np.array(gradient_slack(theirs, right.gradients.values()))
        for name, theirs in right.gradients.items()
    }
    return all(_alike(a.gradients[n], b.gradients[n], slacks[n]) for n in a.gradients)


def _alike(x: Array | None, y: Array | None, slack: Array) -> bool:
    if x is None or y is None:
        return x is y
    if x.shape != y.shape:
        return False
    if (x == y).all():  # as nearly always where they are alike
        return True
    room = np.where(isfinite(slack), slack, 0.0)
    room = room if room.shape == x.shape else room.max(initial=0.0)
    with np.errstate(invalid="ignore"):
        near = isfinite(y) & (abs(x - y) <= room + SAME * abs(y))
    return bool((near | (x == y) | (isnan(x) & isnan(y))).all())
