"""What drills are made with: drawn numbers, rows for the library, slips kept apart."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from tinyrl.course.interview.numeric.tasks import Drill, Slip, Task
from tinyrl.course.words import Words
from tinyrl.logprobs import as_mask, as_tensor

if TYPE_CHECKING:
    from torch import Tensor

APART = 0.055
"""Slips nearer to the answer than this share are left out: rounding could give them."""
D = Words(
    en="d is a token's logp in the trainer minus its logp in the rollout engine, in nats.",
    zh="d 是同一个 token 在训练端的 logp 减去 rollout 引擎的 logp，单位 nat。",
)


def drill(name: str, group: str, attempt: Callable[[random.Random], Task]) -> Drill:
    """A drill that draws again where a slip cannot be told, or the answer can be read."""

    def draw(generator: random.Random) -> Task:
        for _ in range(1000):
            if _clear(drawn := attempt(generator)):
                return drawn
        raise RuntimeError(f"{name}: none of 1,000 draws makes a clear task")

    return Drill(name, group, draw)


def _clear(task: Task) -> bool:
    said = {three(float(x)) for x in re.findall(r"\d+(?:\.\d+)?", task.question.en)}
    zero = task.answer == 0 and task.within == 0  # a count; else nothing is near it
    large = zero or 2e-6 <= abs(task.answer) < math.inf
    return large and len(task.slips) >= 2 and three(abs(task.answer)) not in said


def task(
    question: Words,
    answer: float,
    worked: Words,
    *slips: tuple[float, str, str],
    within: float = 0.02,
) -> Task:
    """A drawn question. A slip is a value and the mistake, in English and in Chinese.

    Of slips that say the same number the first stays; none may say the answer. Four at
    most are kept.
    """
    kept: list[Slip] = []
    for value, en, zh in slips:
        others = [answer, *(slip.value for slip in kept)]
        if all(abs(value - x) > APART * max(abs(value), abs(x)) for x in others):
            kept.append(Slip(value, Words(en, zh)))
    question, worked = (Words(w.en, w.zh.replace("; ", "；")) for w in (question, worked))
    return Task(question, answer, worked, tuple(kept[:4]), within)


def uniform(generator: random.Random, low: float, high: float, digits: int = 2) -> float:
    """A number with so many decimals, and no minus before a 0."""
    return round(generator.uniform(low, high), digits) + 0.0


def signed(generator: random.Random, low: float, high: float, digits: int = 2) -> float:
    """The same, of either sign."""
    return generator.choice([-1, 1]) * uniform(generator, low, high, digits)


def row(values: Iterable[float]) -> Tensor:
    """`[1, T]`, float64."""
    return as_tensor("values", [[float(x) for x in values]])


def every(x: Tensor) -> Tensor:
    """A mask that is true everywhere."""
    return as_mask(None, x)


def engines(ratios: Iterable[float]) -> tuple[Tensor, Tensor]:
    """Logprobs `[1, T]` of a rollout and a trainer whose tokens have these ratios."""
    d = row(math.log(r) for r in ratios)
    return d * 0 - 20, d - 20


def three(x: float) -> str:
    """With three digits, as an answer is expected."""
    return f"{x:.3g}"


def power(x: float, digits: int = 0) -> str:
    """In powers of ten, as one writes them: 1e-4."""
    return re.sub(r"e([+-])0", r"e\1", f"{x:.{digits}e}")


def listed(values: Iterable[float]) -> str:
    return ", ".join(f"{x:g}" for x in values)


def added(values: Iterable[float]) -> str:
    """The sum as one writes it: 0.1 − 0.2 + 0.3."""
    text = " + ".join(f"{x:g}" for x in values)
    return text.replace("+ -", "− ")
