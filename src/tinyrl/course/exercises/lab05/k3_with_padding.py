"""K3 of the real tokens, and what a metric shows that forgot the mask."""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from tinyrl.course.exercise import Case, Exercise, Mistakes
from tinyrl.course.exercises.lab01.batch import LONG, mask_of, uniform
from tinyrl.course.words import Words

Two = tuple[Tensor, Tensor]


def _k3(logp_train: Tensor, logp_rollout: Tensor) -> Tensor:
    d = logp_train.double() - logp_rollout.double()
    return torch.expm1(d) - d


def reference(logp_train: Tensor, logp_rollout: Tensor, mask: Tensor) -> Two:
    k3 = _k3(logp_train, logp_rollout)
    return k3[mask].mean(), k3.mean()


def _summed(logp_train: Tensor, logp_rollout: Tensor, mask: Tensor) -> Two:
    d = (logp_train - logp_rollout).double()
    k3 = d.exp() - 1 - d
    return torch.where(mask, k3, 0.0).sum() / mask.sum(), k3.sum() / mask.numel()


def _in_two_parts(logp_train: Tensor, logp_rollout: Tensor, mask: Tensor) -> Two:
    k3 = _k3(logp_train, logp_rollout)
    real, padding = k3[mask].sum(), k3[~mask].sum()
    return real / mask.sum(), (real + padding) / mask.numel()


def _padding_alone(logp_train: Tensor, logp_rollout: Tensor, mask: Tensor) -> Two:
    k3 = _k3(logp_train, logp_rollout)
    return k3[mask].mean(), torch.where(mask, 0.0, k3).sum() / (~mask).sum().clamp(min=1)


def _row_means(logp_train: Tensor, logp_rollout: Tensor, mask: Tensor) -> Two:
    k3 = _k3(logp_train, logp_rollout)
    rows = torch.where(mask, k3, 0.0).sum(1) / mask.sum(1)
    return rows.mean(), k3.mean(1).mean()


def _of(made: Tensor, mask: Tensor) -> Two:
    return made[mask].mean(), made.mean()


def _by_columns(logp_train: Tensor, logp_rollout: Tensor, mask: Tensor) -> Two:
    k3 = _k3(logp_train, logp_rollout)
    return torch.where(mask, k3, 0.0).mean(), k3.mean()


def _over_real(logp_train: Tensor, logp_rollout: Tensor, mask: Tensor) -> Two:
    k3 = _k3(logp_train, logp_rollout)
    return k3[mask].mean(), k3.sum() / mask.sum()


def _by_filler(logp_train: Tensor, logp_rollout: Tensor, mask: Tensor) -> Two:
    return reference(logp_train, logp_rollout, logp_rollout != 0)


def _clamped(logp_train: Tensor, logp_rollout: Tensor, mask: Tensor) -> Two:
    d = (logp_train.double() - logp_rollout.double()).clamp(-20, 20)
    return _of(torch.expm1(d) - d, mask)


MISTAKES: Mistakes = {
    "sign": (
        lambda train, rollout, mask: reference(rollout, train, mask),
        Words(
            en="Delta has the wrong sign: it is train - rollout, and tokens came from the "
            "rollout.",
            zh="delta 的符号反了：应为 train - rollout，token 来自采样端。",
        ),
    ),
    "k1": (
        lambda train, rollout, mask: _of(rollout.double() - train.double(), mask),
        Words(
            en="This is K1, the mean of -delta. K3 is exp(delta) - 1 - delta.",
            zh="这是 K1，即 -delta 的平均。K3 是 exp(delta) - 1 - delta。",
        ),
    ),
    "k2": (
        lambda train, rollout, mask: _of((train - rollout).double() ** 2 / 2, mask),
        Words(
            en="This is K2, half the mean of delta squared. K3 is exp(delta) - 1 - delta.",
            zh="这是 K2，即 delta 平方平均的一半。K3 是 exp(delta) - 1 - delta。",
        ),
    ),
    "no_minus_one": (
        lambda train, rollout, mask: _of(_k3(train, rollout) + 1, mask),
        Words(
            en="The 1 is missing: where both sides agree K3 is 0, yours is 1.",
            zh="少减了 1：两边一致时 K3 应为 0，你的是 1。",
        ),
    ),
    "swapped": (
        lambda train, rollout, mask: reference(train, rollout, mask)[::-1],
        Words(
            en="The two numbers are swapped: real tokens first.",
            zh="两个数的顺序反了：先是真实 token 的。",
        ),
    ),
    "padding_alone": (
        _padding_alone,
        Words(
            en="The second number is of the padding alone. Asked for is the mean over all "
            "columns, as a metric without a mask takes it.",
            zh="第二个数只算了 padding。题目要的是全部列的平均，即忘了 mask 的指标。",
        ),
    ),
    "row_means": (
        _row_means,
        Words(
            en="You average each response first. Here each real token weighs the same.",
            zh="你先在每条回答内取平均。这里每个真实 token 权重相同。",
        ),
    ),
    "by_columns": (
        _by_columns,
        Words(
            en="The first number is divided by all columns. Divide by the real tokens.",
            zh="第一个数除以了全部列数。应当除以真实 token 数。",
        ),
    ),
    "over_real": (
        _over_real,
        Words(
            en="The second number sums over all columns and divides by the real tokens "
            "only. Without a mask both are of all columns.",
            zh="第二个数对全部列求和，却只除以真实 token 数。没有 mask 时两者都是全部列。",
        ),
    ),
    "by_filler": (
        _by_filler,
        Words(
            en="You take a rollout logprob of 0.0 for padding. A real token of which the "
            "engine is certain has it as well: which ones are real is what the mask says.",
            zh="你把采样端 logprob 为 0.0 的都当成了 padding。引擎完全确定的真实 token 也"
            "是 0.0：哪些是真实 token 要看 mask。",
        ),
    ),
    "clamped": (
        _clamped,
        Words(
            en="You clamp delta to [-20, 20]. Trainers do that to survive; a metric has to "
            "show the worst tokens as they are.",
            zh="你把 delta 截到了 [-20, 20]。训练代码常用它保命，但指标要如实反映最糟的 "
            "token。",
        ),
    ),
    "mask_ignored": (
        lambda train, rollout, mask: (_k3(train, rollout).mean(),) * 2,
        Words(
            en="Both numbers ignore the mask. The first is of real tokens.",
            zh="两个数都没用 mask。第一个只算真实 token。",
        ),
    ),
}

BY_HAND = Words(
    en="one token differs, one is padding", zh="一个 token 不同，一个是 padding"
)
AGREE = Words(en="the two sides agree on real tokens", zh="两边在真实 token 上一致")
FAR = Words(
    en="a token that one side finds impossible, on either side",
    zh="两边各有一个 token 被另一边认为几乎不可能",
)
FILLED = Words(
    en="the engine fills padding with 0.0, the trainer does not",
    zh="引擎用 0.0 填充 padding，训练端不是",
)


def cases(generator: Generator) -> list[Case]:
    def sides(rows: int, columns: int, spread: float) -> tuple[Tensor, Tensor, Tensor]:
        mask, size = mask_of(generator, rows, columns), (rows, columns)
        rollout = uniform(generator, size, -4, -1)
        train = rollout + uniform(generator, size, -spread, spread)
        rollout[0, 0] = train[1, 1] = rollout[1, 1] = 0.0  # certain, as far as they go
        train[0, 0] = -spread
        filled = torch.where(mask, rollout, 0.0)
        return torch.where(mask, train, uniform(generator, size, -6, -3)), filled, mask

    train = torch.tensor([[-0.5, -1.0, -2.0], [-0.25, -3.0, -4.0]])
    rollout = torch.tensor([[-0.5, -1.5, -2.0], [-0.25, -3.0, 0.0]])
    real = torch.tensor([[True, True, True], [True, True, False]])
    far, other, some = sides(3, 7, 0.9)
    far[1, 0] -= 30
    other[2, 1] -= 30
    return [
        Case("example", BY_HAND, (train, rollout, real)),
        Case("property", AGREE, sides(3, 6, 0.0)),
        Case("inputs", FILLED, sides(3, 7, 0.9)),
        Case("inputs", FILLED, sides(5, 10, 0.9)),
        Case("numbers", LONG, sides(2, 2000, 0.9)),
        Case("numbers", FAR, (far, other, some)),
    ]


EXERCISE = Exercise(
    name="k3_with_padding",
    title=Words(en="K3 with and without padding", zh="计入与不计 padding 的 K3"),
    reference=reference,
    returns=("k3", "k3_padded"),
    cases=cases,
    mistakes=MISTAKES,
    alternatives={"summed": _summed, "in_two_parts": _in_two_parts},
    hints=(
        Words(
            en="K3 of one token is exp(delta) - 1 - delta. Two means of it: over which "
            "columns?",
            zh="单个 token 的 K3 是 exp(delta) - 1 - delta。要取两个平均：各在哪些列上？",
        ),
        Words(
            en="The first mean is over `k3[mask]`, the second over all of `k3`.",
            zh="第一个平均取 `k3[mask]`，第二个取整个 `k3`。",
        ),
        Words(
            en="`d = logp_train - logp_rollout`, `k3 = torch.expm1(d) - d`, in float64.",
            zh="先算 `d = logp_train - logp_rollout`，再算 `k3 = torch.expm1(d) - d`，用 "
            "float64。",
        ),
    ),
    points=(1, 1),
    minutes=6,
)
