"""DAgger's labels: the right next total, given what was read."""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from tinyrl.course.exercise import Case, Exercise, Mistakes
from tinyrl.course.exercises.lab02.answers import LONG
from tinyrl.course.words import Words


def _before(read: Tensor) -> Tensor:
    return torch.nn.functional.pad(read[:, :-1], (1, 0))


def reference(digits: Tensor, read: Tensor) -> Tensor:
    return (_before(read) + digits) % 10


def _cat(digits: Tensor, read: Tensor) -> Tensor:
    later = (read[:, :-1] + digits[:, 1:]) % 10
    return torch.cat([digits[:, :1], later], 1)


def _loop(digits: Tensor, read: Tensor) -> Tensor:
    rows = []
    for steps, totals in zip(digits.tolist(), read.tolist(), strict=True):
        pairs = zip([0, *totals], steps, strict=False)
        rows.append([(before + step) % 10 for before, step in pairs])
    return torch.tensor(rows)


def _gold(digits: Tensor) -> Tensor:
    return digits.cumsum(1) % 10


def _back_to_gold(digits: Tensor, read: Tensor) -> Tensor:
    astray = _before(read) != _before(_gold(digits))
    return torch.where(astray, _before(_gold(digits)), reference(digits, read))


def _first_zero(digits: Tensor, read: Tensor) -> Tensor:
    return _before(reference(digits, read).roll(-1, 1))


def _no_carry(digits: Tensor, read: Tensor) -> Tensor:
    return _before(read) + digits


MISTAKES: Mistakes = {
    "gold": (
        lambda digits, read: _gold(digits),
        Words(
            en="These are the right totals of the question, whatever was read: the target "
            "of scheduled sampling. The expert goes on from the total that stands there.",
            zh="这是题目本身的正确总和，与读到的内容无关：那是计划采样的目标。专家要从眼前的"
            "总和接着算。",
        ),
    ),
    "back_to_gold": (
        _back_to_gold,
        Words(
            en="Behind a wrong total you ask for the gold total of the place before. The "
            "expert does not go back: it adds the next digit to what was read.",
            zh="在错误的总和之后，你要求的是前一个位置的标准总和。专家不回头：它把下一个数字"
            "加到读到的总和上。",
        ),
    ),
    "itself": (
        lambda digits, read: read,
        Words(
            en="You ask for what was read: the model would imitate its own mistakes.",
            zh="你把读到的内容当成目标：模型会模仿自己的错误。",
        ),
    ),
    "own_place": (
        lambda digits, read: (read + digits) % 10,
        Words(
            en="You add the digit to the total of the same place, which already holds it. "
            "The total before is `read[:, t - 1]`.",
            zh="你把数字加到了同一位置的总和上，而那里已经加过了。之前的总和是 `read[:, t"
            " - 1]`。",
        ),
    ),
    "digit_before": (
        lambda digits, read: (_before(read) + _before(digits)) % 10,
        Words(
            en="The digit is that of the place before. Total t adds digit t.",
            zh="你用了前一个位置的数字。第 t 个总和要加第 t 个数字。",
        ),
    ),
    "wrapped": (
        lambda digits, read: (read.roll(1, 1) + digits) % 10,
        Words(
            en="At the first place you go on from the last total: `roll` goes round. "
            "Nothing was read before it, so the total is 0.",
            zh="在第一个位置你接着最后一个总和算：`roll` 会绕回来。之前什么也没读，总和是"
            " 0。",
        ),
    ),
    "no_modulo": (
        _no_carry,
        Words(
            en="Totals live modulo 10.",
            zh="总和要对 10 取模。",
        ),
    ),
    "first_left_out": (
        _first_zero,
        Words(
            en="At the first place the expert says the first digit, not 0.",
            zh="在第一个位置专家说的是第一个数字，而不是 0。",
        ),
    ),
    "difference": (
        lambda digits, read: (_before(read) - digits) % 10,
        Words(
            en="The sign is wrong: digits are added.",
            zh="符号反了：数字是要加上的。",
        ),
    ),
}

BY_HAND = Words(
    en="three digits, a slip at the first total", zh="三个数字，第一个总和就出错"
)
ON_GOLD = Words(en="nothing but right totals was read", zh="读到的全是正确的总和")
RANDOM = Words(en="answers with slips", zh="带注入错误的回答")


def _draw(generator: Generator, rows: int, n: int, share: float) -> tuple[Tensor, Tensor]:
    """Digits, and totals that were read: each goes on from the one before, or slips."""
    digits = torch.randint(10, (rows, n), generator=generator)
    slips = torch.rand((rows, n), generator=generator) < share
    by = torch.randint(1, 10, (rows, n), generator=generator)
    return digits, (digits + slips * by).cumsum(1) % 10


def cases(generator: Generator) -> list[Case]:
    small = torch.tensor([[3, 1, 4]]), torch.tensor([[4, 5, 9]])
    return [
        Case("example", BY_HAND, small),
        Case("property", ON_GOLD, _draw(generator, 4, 8, 0.0)),
        Case("inputs", RANDOM, _draw(generator, 4, 8, 0.3)),
        Case("inputs", RANDOM, _draw(generator, 6, 12, 0.5)),
        Case("numbers", LONG, _draw(generator, 3, 500, 0.2)),
    ]


EXERCISE = Exercise(
    name="expert_targets",
    title=Words(en="DAgger's labels", zh="DAgger 的标签"),
    reference=reference,
    returns=("targets",),
    cases=cases,
    mistakes=MISTAKES,
    alternatives={"cat": _cat, "loop": _loop},
    hints=(
        Words(
            en="At place t the model has read the total of place t - 1, right or wrong. "
            "What comes next?",
            zh="在位置 t，模型已经读到位置 t - 1 的总和，不管对错。接下来应是什么？",
        ),
        Words(
            en="(total read before + digit) modulo 10; before the first place the total "
            "is 0.",
            zh="（之前读到的总和 + 数字）对 10 取模；第一个位置之前的总和是 0。",
        ),
        Words(
            en="`before = torch.nn.functional.pad(read[:, :-1], (1, 0))`, then "
            "`(before + digits) % 10`.",
            zh="`before = torch.nn.functional.pad(read[:, :-1], (1, 0))`，再 `(before + "
            "digits) % 10`。",
        ),
    ),
    points=(1, 2),
    minutes=7,
    whole=("targets",),
)
