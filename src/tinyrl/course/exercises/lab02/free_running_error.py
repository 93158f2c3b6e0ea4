"""From the hazard to the share of answers that are spoiled by each place."""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from tinyrl.course.exercise import Case, Exercise, Mistakes
from tinyrl.course.exercises.lab01.batch import uniform
from tinyrl.course.words import Words


def reference(hazard: Tensor) -> Tensor:
    return 1 - (1 - hazard).cumprod(0)


def _logs(hazard: Tensor) -> Tensor:
    return -torch.expm1(torch.log1p(-hazard).cumsum(0))


def _step_by_step(hazard: Tensor) -> Tensor:
    spoiled, found = torch.zeros(()), []
    for h in hazard:
        spoiled = spoiled + (1 - spoiled) * h
        found.append(spoiled)
    return torch.stack(found)


def _places(hazard: Tensor) -> Tensor:
    return torch.arange(1, len(hazard) + 1)


MISTAKES: Mistakes = {
    "summed": (
        lambda hazard: hazard.cumsum(0),
        Words(
            en="You add hazards up. Each holds only for answers still right: with large "
            "ones the sum passes 1.",
            zh="你把风险率直接相加了。每个风险率只对仍然正确的回答成立：大一些时总和会超"
            "过 1。",
        ),
    ),
    "summed_and_cut": (
        lambda hazard: hazard.cumsum(0).clamp(max=1),
        Words(
            en="A sum cut at 1 is still a sum: an answer can only be spoiled once. "
            "Multiply the shares that stay right.",
            zh="截断到 1 的和仍然是和：一条回答只会被毁一次。应当把保持正确的比例相乘。",
        ),
    ),
    "constant": (
        lambda hazard: 1 - (1 - hazard) ** _places(hazard),
        Words(
            en="You take the hazard of place t as that of all places before it. Each place "
            "has its own.",
            zh="你把位置 t 的风险率当成了此前所有位置的。每个位置有自己的风险率。",
        ),
    ),
    "mean_rate": (
        lambda hazard: 1 - (1 - hazard.mean()) ** _places(hazard),
        Words(
            en="You take the mean hazard for every place. That is right only if it is "
            "constant.",
            zh="你对每个位置都用了平均风险率。只有风险率恒定时才对。",
        ),
    ),
    "survival": (
        lambda hazard: (1 - hazard).cumprod(0),
        Words(
            en="This is the share that is still right.",
            zh="这是仍然正确的比例。",
        ),
    ),
    "before": (
        lambda hazard: torch.nn.functional.pad(reference(hazard), (1, -1)),
        Words(
            en="One place late: the error at place t counts at place t already.",
            zh="晚了一个位置：位置 t 的错误在位置 t 就已计入。",
        ),
    ),
    "exponential": (
        lambda hazard: 1 - (-hazard.cumsum(0)).exp(),
        Words(
            en="exp(-sum of hazards) is the law of continuous time. Tokens come one by "
            "one: multiply 1 - h.",
            zh="exp(-风险率之和) 是连续时间的公式。token 是一个一个来的：把 1 - h 相乘。",
        ),
    ),
    "product": (
        lambda hazard: hazard.cumprod(0),
        Words(
            en="You multiply the hazards: the chance to err at every place. One error "
            "spoils it.",
            zh="你把风险率相乘了：那是每个位置都出错的概率。错一次就毁了。",
        ),
    ),
    "density": (
        lambda hazard: (
            hazard * torch.nn.functional.pad((1 - hazard).cumprod(0), (1, -1), value=1.0)
        ),
        Words(
            en="This is the share whose first error is there. Asked for is the share with "
            "an error by then: add them up.",
            zh="这是首次错误恰在该位置的比例。题目要的是到那时已有错误的比例：再累加起来。",
        ),
    ),
    "last": (
        lambda hazard: reference(hazard)[-1],
        Words(
            en="This is the last place alone. Return one number for each.",
            zh="这只是最后一个位置。每个位置都要返回一个数。",
        ),
    ),
}

BY_HAND = Words(en="hazards of a half and a quarter", zh="风险率为二分之一和四分之一")
CONSTANT = Words(en="a constant hazard", zh="恒定的风险率")
RANDOM = Words(en="random hazards", zh="随机的风险率")
SAFE = Words(
    en="places at which nobody errs, the first among them",
    zh="有些位置从不出错，第一个位置也是",
)
SMALL = Words(en="a thousand places, tiny hazards", zh="一千个位置，风险率极小")


def cases(generator: Generator) -> list[Case]:
    constant = uniform(generator, (1,), 0.05, 0.3).expand(8).clone()
    safe = uniform(generator, (12,), 0.1, 0.9)
    safe[0] = safe[5] = 0.0
    return [
        Case("example", BY_HAND, (torch.tensor([0.5, 0.25, 0.25]),)),
        Case("property", CONSTANT, (constant,)),
        Case("inputs", RANDOM, (uniform(generator, (7,), 0.02, 0.5),)),
        Case("inputs", SAFE, (safe,)),
        Case("numbers", SMALL, (uniform(generator, (1000,), 0.0, 0.002),)),
    ]


EXERCISE = Exercise(
    name="free_running_error",
    title=Words(en="What a hazard adds up to", zh="风险率的累积"),
    reference=reference,
    returns=("spoiled",),
    cases=cases,
    mistakes=MISTAKES,
    alternatives={"logs": _logs, "step_by_step": _step_by_step},
    hints=(
        Words(
            en="What share is still right after place t? After the next?",
            zh="过了位置 t 还有多少是对的？再下一个位置呢？",
        ),
        Words(
            en="The share still right is multiplied by 1 - hazard at each place.",
            zh="每过一个位置，仍然正确的比例就乘以 1 - 风险率。",
        ),
        Words(en="`1 - (1 - hazard).cumprod(0)`.", zh="用 `1 - (1 - hazard).cumprod(0)`。"),
    ),
    points=(1, 1),
    minutes=5,
    floor=1.0,
)
