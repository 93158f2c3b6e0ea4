"""The share of tokens that two engines send to different experts."""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from tinyrl.course.exercise import Case, Exercise, Mistakes
from tinyrl.course.exercises.lab07.routed import OUTSIDE, shuffled, two_choices
from tinyrl.course.words import Words


def _flips(rollout: Tensor, train: Tensor) -> Tensor:
    return (rollout.sort(-1).values != train.sort(-1).values).any(-1)


def _moved(rollout: Tensor, train: Tensor) -> Tensor:
    """Boolean `[B, T, k]`: the trainer's choices that the rollout had not made."""
    return ~(train[..., :, None] == rollout[..., None, :]).any(-1)


def reference(experts_rollout: Tensor, experts_train: Tensor, mask: Tensor) -> Tensor:
    return _flips(experts_rollout, experts_train)[mask].double().mean()


def _by_membership(experts_rollout: Tensor, experts_train: Tensor, mask: Tensor) -> Tensor:
    flipped = _moved(experts_rollout, experts_train).any(-1)
    return (flipped & mask).sum() / mask.sum()


def _by_sets(experts_rollout: Tensor, experts_train: Tensor, mask: Tensor) -> float:
    pairs = zip(experts_rollout[mask].tolist(), experts_train[mask].tolist(), strict=True)
    flips = [set(a) != set(b) for a, b in pairs]
    return sum(flips) / len(flips)


def _row_means(experts_rollout: Tensor, experts_train: Tensor, mask: Tensor) -> Tensor:
    flipped = _flips(experts_rollout, experts_train) & mask
    return (flipped.sum(-1) / mask.sum(-1)).mean()


MISTAKES: Mistakes = {
    "order_counts": (
        lambda a, b, mask: (a != b).any(-1)[mask].double().mean(),
        Words(
            en="You compare the lists as they stand. The same experts in another order are "
            "the same choice: their outputs are added. Sort both first.",
            zh="你按原顺序逐个比较。同样的专家换个顺序仍是同一选择，因为输出是相加的。请先"
            "把两边排序。",
        ),
    ),
    "first_only": (
        lambda a, b, mask: (a[..., 0] != b[..., 0])[mask].double().mean(),
        Words(
            en="Only the first expert of each is compared. A flip is a change of any of "
            "the k.",
            zh="你只比较了第一个专家。k 个专家中任何一个变了都算翻转。",
        ),
    ),
    "all_change": (
        lambda a, b, mask: _moved(a, b).all(-1)[mask].double().mean(),
        Words(
            en="You count tokens that share no expert at all. One that changed is enough.",
            zh="你数的是两边没有一个相同专家的 token。只要变了一个就算。",
        ),
    ),
    "choices": (
        lambda a, b, mask: _moved(a, b)[mask].double().mean(),
        Words(
            en="This is the share of choices that moved, out of k for each token. Asked "
            "for is the share of tokens with a change.",
            zh="这是变动的选择所占的比例（每个 token 有 k 个选择）。题目要的是发生变化的 "
            "token 的比例。",
        ),
    ),
    "sorted_places": (
        lambda a, b, mask: (a.sort(-1).values != b.sort(-1).values)[mask].double().mean(),
        Words(
            en="You average over the k places of the sorted lists. One change can move "
            "them all; a token flips or it does not: `.any(-1)`.",
            zh="你对排序后的 k 个位置取了平均。改变一个专家可能让所有位置都错开；一个 tok"
            "en 要么翻转要么没有：`.any(-1)`。",
        ),
    ),
    "sums": (
        lambda a, b, mask: (a.sum(-1) != b.sum(-1))[mask].double().mean(),
        Words(
            en="You compare sums of expert numbers: {1, 4} and {2, 3} have the same.",
            zh="你比较的是专家编号之和：{1, 4} 和 {2, 3} 的和相同。",
        ),
    ),
    "kept": (
        lambda a, b, mask: 1 - reference(a, b, mask),
        Words(
            en="This is the share of tokens that keep their experts.",
            zh="这是专家没有变化的 token 的比例。",
        ),
    ),
    "padding_counted": (
        lambda a, b, mask: _flips(a, b).double().mean(),
        Words(
            en="The padding is counted: buffers hold other experts there. Use the mask.",
            zh="把 padding 也算进去了：缓冲区里那些位置是别的专家。请用 mask。",
        ),
    ),
    "all_columns": (
        lambda a, b, mask: (_flips(a, b) & mask).double().mean(),
        Words(
            en="You divide by B * T, padding included. Divide by the real tokens.",
            zh="你除以了 B * T，包含 padding。应当除以真实 token 数。",
        ),
    ),
    "row_means": (
        _row_means,
        Words(
            en="You average each response first. Here each real token counts the same.",
            zh="你先在每条回答内取平均。这里每个真实 token 权重相同。",
        ),
    ),
    "responses": (
        lambda a, b, mask: (_flips(a, b) & mask).any(-1).double().mean(),
        Words(
            en="This is the share of responses with a flip somewhere: near 1 as soon as "
            "they are long.",
            zh="这是含有翻转的回答的比例：回答一长就接近 1。",
        ),
    ),
    "expert_0_is_none": (
        lambda a, b, mask: _flips(a, b)[mask & (a != 0).any(-1)].double().mean(),
        Words(
            en="You take expert 0 for no expert, and leave its tokens out. It is an expert "
            "like any other: only the mask says which tokens are real.",
            zh="你把 0 号专家当成了没有专家，漏掉了选它的 token。它和其他专家一样：哪些 "
            "token 真实只由 mask 决定。",
        ),
    ),
    "count": (
        lambda a, b, mask: (_flips(a, b) & mask).sum(),
        Words(
            en="This is the number of flips; divide by the number of real tokens.",
            zh="这是翻转的个数，还要除以真实 token 数。",
        ),
    ),
}

BY_HAND = Words(
    en="two responses, three and two tokens, k = 2", zh="两条回答，三个和两个 token，k = 2"
)
REORDERED = Words(
    en="the same experts in another order: no flip", zh="专家相同、顺序不同：没有翻转"
)
MANY = Words(en="long responses, over 100 experts", zh="很长的回答，100 多个专家")
ONE = Words(
    en="k = 1, and often both sides choose expert 0", zh="k = 1，而且两边常常都选 0 号专家"
)
RANDOM = Words(
    en="random choices, other ones in the padding", zh="随机的选择，padding 里是别的选择"
)


def cases(generator: Generator) -> list[Case]:
    ours = torch.tensor([[[0, 1], [2, 3], [1, 4]], [[5, 6], [0, 3], [1, 2]]])
    theirs = torch.tensor([[[1, 0], [2, 5], [2, 3]], [[6, 5], [3, 0], [7, 4]]])
    real = torch.tensor([[True, True, True], [True, True, False]])
    same, _, mask = two_choices(generator, 3, 6)
    a, b, some = two_choices(generator, 4, 10)
    a[:, :2] = b[:, 1:3] = 0
    x, y, long = two_choices(generator, 2, 2000)
    return [
        Case("example", BY_HAND, (ours, theirs, real)),
        Case("property", REORDERED, (same, shuffled(generator, same), mask)),
        Case("inputs", RANDOM, two_choices(generator, 3, 10)),
        Case("inputs", RANDOM, two_choices(generator, 5, 12)),
        Case("inputs", ONE, (a[..., :1], b[..., :1], some)),
        Case("padding", OUTSIDE, two_choices(generator, 4, 10, "outside")),
        Case("numbers", MANY, (17 * x, 17 * y, long)),  # as large models have
    ]


EXERCISE = Exercise(
    name="flip_rate",
    title=Words(en="The flip rate", zh="翻转率"),
    reference=reference,
    returns=("flip_rate",),
    cases=cases,
    mistakes=MISTAKES,
    alternatives={"membership": _by_membership, "sets": _by_sets},
    hints=(
        Words(
            en="When do two lists of experts mean the same? Then: how many tokens differ, "
            "out of how many?",
            zh="两个专家列表什么时候是同一个意思？然后：有多少 token 不同，占多少？",
        ),
        Words(
            en="Sort each token's k experts on both sides; a token flips if any place "
            "differs. Mean over real tokens.",
            zh="把两边每个 token 的 k 个专家排序；任何位置不同就算翻转。再对真实 token 取"
            "平均。",
        ),
        Words(
            en="`(a.sort(-1).values != b.sort(-1).values).any(-1)`, then pick with "
            "`[mask]`.",
            zh="`(a.sort(-1).values != b.sort(-1).values).any(-1)`，再用 `[mask]` 选出真实"
            " token。",
        ),
    ),
    points=(1, 1),
    minutes=6,
)
