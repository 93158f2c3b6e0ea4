"""How much work each expert gets, and how that differs between two engines."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Generator, Tensor

from tinyrl.course.exercise import Case, Exercise, Function, Mistakes
from tinyrl.course.exercises.lab07.routed import (
    EXPERTS,
    IDLE,
    OUTSIDE,
    shuffled,
    two_choices,
)
from tinyrl.course.words import Words

Three = tuple[Tensor, Tensor, Tensor]


def _load(experts: Tensor, mask: Tensor, n_experts: int) -> Tensor:
    counts = torch.bincount(experts[mask].flatten(), minlength=n_experts).double()
    return counts / counts.sum()


def reference(
    experts_rollout: Tensor, experts_train: Tensor, mask: Tensor, n_experts: int
) -> Three:
    a, b = (_load(x, mask, n_experts) for x in (experts_rollout, experts_train))
    return a, b, (b - a).abs().sum() / 2


def _one_hot(
    experts_rollout: Tensor, experts_train: Tensor, mask: Tensor, n_experts: int
) -> Three:
    a, b = (
        torch.nn.functional.one_hot(x[mask], n_experts).float().mean((0, 1))
        for x in (experts_rollout, experts_train)
    )
    return a, b, (b - a).clamp(min=0).sum()


def _compared(
    experts_rollout: Tensor, experts_train: Tensor, mask: Tensor, n_experts: int
) -> Three:
    ids = torch.arange(n_experts)
    a, b = (
        ((x[..., None] == ids) & mask[..., None, None]).sum((0, 1, 2))
        / (mask.sum() * x.shape[-1])
        for x in (experts_rollout, experts_train)
    )
    return a, b, 1 - torch.minimum(a, b).sum()


def _with_load(load: Callable[[Tensor, Tensor, int], Tensor]) -> Function:
    """The three numbers with loads computed by `load(experts, mask, n_experts)`."""

    def wrong(
        experts_rollout: Tensor, experts_train: Tensor, mask: Tensor, n_experts: int
    ) -> Three:
        a, b = (load(x, mask, n_experts) for x in (experts_rollout, experts_train))
        return a, b, (b - a).abs().sum() / 2

    return wrong


def _with_drift(drift: Callable[[Tensor, Tensor], Tensor]) -> Function:
    """The right loads, and `drift(load_rollout, load_train)`."""

    def wrong(
        experts_rollout: Tensor, experts_train: Tensor, mask: Tensor, n_experts: int
    ) -> Three:
        a, b, _ = reference(experts_rollout, experts_train, mask, n_experts)
        return a, b, drift(a, b)

    return wrong


def _flips(
    experts_rollout: Tensor, experts_train: Tensor, mask: Tensor, n_experts: int
) -> Three:
    a, b, _ = reference(experts_rollout, experts_train, mask, n_experts)
    moved = experts_rollout.sort(-1).values != experts_train.sort(-1).values
    return a, b, moved.any(-1)[mask].double().mean()


def _swapped(
    experts_rollout: Tensor, experts_train: Tensor, mask: Tensor, n_experts: int
) -> Three:
    return reference(experts_train, experts_rollout, mask, n_experts)


def _row_means(experts: Tensor, mask: Tensor, n_experts: int) -> Tensor:
    rows = [_load(experts[[b]], mask[[b]], n_experts) for b in range(len(mask))]
    return torch.stack(rows).mean(0)


def _uncounted(experts: Tensor, mask: Tensor, n_experts: int) -> Tensor:
    counts = torch.bincount(experts[mask].flatten()).double()
    return counts / counts.sum()


MISTAKES: Mistakes = {
    "counts": (
        _with_load(lambda x, mask, n: _load(x, mask, n) * mask.sum() * x.shape[-1]),
        Words(
            en="These are counts. A load is a share of all choices: a side's sums to 1.",
            zh="这是次数。负载是占全部选择的比例：每一侧之和为 1。",
        ),
    ),
    "per_token": (
        _with_load(lambda x, mask, n: _load(x, mask, n) * x.shape[-1]),
        Words(
            en="You divide by the number of tokens, so a side sums to k. Each token makes "
            "k choices: divide by all choices.",
            zh="你除以了 token 数，每一侧之和是 k。每个 token 有 k 次选择：应当除以全部选"
            "择数。",
        ),
    ),
    "first_choice": (
        _with_load(lambda x, mask, n: _load(x[..., :1], mask, n)),
        Words(
            en="Only the first expert of each token is counted. All k do the work.",
            zh="你只统计了每个 token 的第一个专家。k 个专家都在干活。",
        ),
    ),
    "padding_counted": (
        _with_load(lambda x, mask, n: _load(x, torch.ones_like(mask), n)),
        Words(
            en="The padding is counted: its stale choices are nobody's load. Use the mask.",
            zh="把 padding 也算进去了：那里的旧选择不是任何专家的负载。请用 mask。",
        ),
    ),
    "row_means": (
        _with_load(_row_means),
        Words(
            en="You average the loads of the responses, so tokens of short ones weigh "
            "more. Here each token counts the same.",
            zh="你对每条回答的负载取了平均，短回答的 token 权重更大。这里每个 token 权重相"
            "同。",
        ),
    ),
    "no_idle_expert": (
        _with_load(_uncounted),
        Words(
            en="An expert that nobody chose is missing at the end. Its load is 0: there "
            "are always `n_experts` numbers (`minlength`).",
            zh="末尾没人选的专家不见了。它的负载是 0：结果总有 `n_experts` 个数（`minleng"
            "th`）。",
        ),
    ),
    "swapped": (
        _swapped,
        Words(
            en="The two loads are the wrong way round: the rollout's first.",
            zh="两个负载的顺序反了：先返回采样端的。",
        ),
    ),
    "not_halved": (
        _with_drift(lambda a, b: (b - a).abs().sum()),
        Words(
            en="A choice that moves is counted twice, where it left and where it arrived. "
            "Halve the sum.",
            zh="一次移动被算了两遍：离开处一次，到达处一次。总和要除以 2。",
        ),
    ),
    "signed": (
        _with_drift(lambda a, b: (b - a).sum()),
        Words(
            en="The differences are summed with their signs; both loads sum to 1, so that "
            "is always 0.",
            zh="你把差值带符号相加了；两边负载之和都是 1，所以结果永远是 0。",
        ),
    ),
    "largest": (
        _with_drift(lambda a, b: (b - a).abs().max()),
        Words(
            en="This is the largest change of one expert. Asked for is half their sum.",
            zh="这是变化最大的那个专家的变化量。题目要的是全部之和的一半。",
        ),
    ),
    "euclidean": (
        _with_drift(lambda a, b: (b - a).norm()),
        Words(
            en="This is the Euclidean distance. Half the sum of |differences| has a "
            "meaning: the share of choices that moved, net.",
            zh="这是欧氏距离。差值绝对值之和的一半才有明确含义：净移动的选择所占的比例。",
        ),
    ),
    "from_uniform": (
        _with_drift(lambda a, b: (b - 1 / len(b)).abs().sum() / 2),
        Words(
            en="This is the trainer's distance from an even load. Drift is between the two "
            "engines, however uneven both are.",
            zh="这是训练端负载与均匀分布的距离。漂移指两个引擎之间的差异，与各自是否均匀无"
            "关。",
        ),
    ),
    "flips": (
        _flips,
        Words(
            en="The last number is the flip rate. Flips there and back cancel in a load, "
            "so drift is smaller.",
            zh="最后一个数是翻转率。一来一回的翻转在负载里会抵消，所以漂移更小。",
        ),
    ),
}

BY_HAND = Words(
    en="five tokens, four experts, the last expert idle on one side",
    zh="五个 token、四个专家，其中一侧最后一个专家空闲",
)
RANDOM = Words(
    en="random choices, other ones in the padding", zh="随机的选择，padding 里是别的选择"
)
MANY = Words(en="long responses, 128 experts", zh="很长的回答，128 个专家")

Inputs = tuple[Tensor, Tensor, Tensor, int]


def _draw(generator: Generator, rows: int, columns: int, padding: str = "valid") -> Inputs:
    rollout, train, mask = two_choices(generator, rows, columns, padding)
    return rollout, train, mask, EXPERTS


def cases(generator: Generator) -> list[Case]:
    ours = torch.tensor([[[0, 1], [2, 3], [1, 2]], [[0, 1], [0, 3], [3, 3]]])
    theirs = torch.tensor([[[1, 0], [2, 1], [1, 2]], [[0, 2], [3, 0], [3, 3]]])
    real = torch.tensor([[True, True, True], [True, True, False]])
    a, b, mask, _ = _draw(generator, 3, 8)
    idle = (shuffled(generator, a), b, mask, EXPERTS + 1)
    x, y, long, _ = _draw(generator, 2, 2000)
    return [
        Case("example", BY_HAND, (ours, theirs, real, 4)),
        Case("property", IDLE, idle),
        Case("inputs", RANDOM, _draw(generator, 3, 10)),
        Case("inputs", RANDOM, _draw(generator, 5, 12)),
        Case("padding", OUTSIDE, _draw(generator, 4, 10, "outside")),
        Case("numbers", MANY, (17 * x, 17 * y, long, 128)),
    ]


EXERCISE = Exercise(
    name="load_drift",
    title=Words(en="Expert load and its drift", zh="专家负载及其漂移"),
    reference=reference,
    returns=("load_rollout", "load_train", "drift"),
    cases=cases,
    mistakes=MISTAKES,
    alternatives={"one_hot": _one_hot, "compared": _compared},
    hints=(
        Words(
            en="Count how often each expert turns up among the real tokens of a side. What "
            "must the loads sum to?",
            zh="数一数每个专家在一侧的真实 token 中出现多少次。负载之和应当是多少？",
        ),
        Words(
            en="Counts divided by (real tokens) * k. Drift is half the sum of the absolute "
            "differences.",
            zh="次数除以（真实 token 数 × k）。漂移是差值绝对值之和的一半。",
        ),
        Words(
            en="`torch.bincount(experts[mask].flatten(), minlength=n_experts)`, divided by "
            "its sum.",
            zh="`torch.bincount(experts[mask].flatten(), minlength=n_experts)`，再除以它的"
            "总和。",
        ),
    ),
    points=(1, 1),
    minutes=7,
    floor=1.0,
)
