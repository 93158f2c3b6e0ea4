"""Do both sides have the same likeliest tokens, and how likely are those that left?"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Generator, Tensor

from tinyrl.course.exercise import Case, Exercise, Function, Mistakes
from tinyrl.course.exercises.lab10 import slips
from tinyrl.course.exercises.lab10.listed import draw, spread
from tinyrl.course.exercises.lab10.told import COLUMNS, PADDING, ROWS
from tinyrl.course.words import Words

Two = tuple[Tensor, Tensor]


def _stays(ids_a: Tensor, ids_b: Tensor) -> Tensor:
    """Boolean, as `ids_a [..., k]`: which of them are in the set of `ids_b [..., k]`."""
    return (ids_a[..., :, None] == ids_b[..., None, :]).any(-1)


def _parts(ids_r: Tensor, logp_r: Tensor, ids_t: Tensor, logp_t: Tensor) -> Two:
    """Overlap, and the rollout's probability of what left, of each token."""
    stays = _stays(ids_r, ids_t)
    overlap = stays.to(logp_r).mean(-1)
    return overlap, torch.where(stays, 0.0, logp_r.exp()).sum(-1)


def reference(
    ids_rollout: Tensor,
    logp_rollout: Tensor,
    ids_train: Tensor,
    logp_train: Tensor,
    mask: Tensor,
) -> Two:
    real = (x[mask] for x in (ids_rollout, logp_rollout, ids_train, logp_train))
    overlap, left = _parts(*real)
    return overlap.mean(), left.mean()


def _sets(
    ids_rollout: Tensor,
    logp_rollout: Tensor,
    ids_train: Tensor,
    logp_train: Tensor,
    mask: Tensor,
) -> tuple[float, float]:
    a, b = ids_rollout[mask].tolist(), ids_train[mask].tolist()
    p = logp_rollout[mask].exp().tolist()
    k, n = len(a[0]), len(a)
    common = [len(set(x) & set(y)) / k for x, y in zip(a, b, strict=True)]
    left = [
        sum(q for i, q in zip(x, w, strict=True) if i not in y)
        for x, y, w in zip(a, b, p, strict=True)
    ]
    return sum(common) / n, sum(left) / n


def _loops(
    ids_rollout: Tensor,
    logp_rollout: Tensor,
    ids_train: Tensor,
    logp_train: Tensor,
    mask: Tensor,
) -> Two:
    k, n = ids_train.shape[-1], mask.sum()
    common, left = torch.zeros(()), torch.zeros(())
    for i in range(k):
        gone = (ids_train != ids_rollout[..., i, None]).all(-1)
        common = common + (~gone & mask).sum() / (k * n)
        left = left + logp_rollout[..., i][gone & mask].exp().sum() / n
    return common, left


def _with(i: int, f: Callable[..., Tensor]) -> Function:
    """The right numbers, but the one at `i` is the mean of `f` over real tokens."""

    def wrong(a: Tensor, p: Tensor, b: Tensor, q: Tensor, mask: Tensor) -> Two:
        real = [x[mask] for x in (a, p, b, q)]
        overlap, left = _parts(*real)
        both = [overlap.mean(), left.mean()]
        both[i] = f(*real).mean()
        return both[0], both[1]

    return wrong


def _over(average: Callable[[Tensor, Tensor], Tensor]) -> Function:
    """`average(x, mask)` in place of the mean over real tokens."""

    def wrong(a: Tensor, p: Tensor, b: Tensor, q: Tensor, mask: Tensor) -> Two:
        overlap, left = _parts(a, p, b, q)
        return average(overlap, mask), average(left, mask)

    return wrong


def _clean(x: Tensor, mask: Tensor) -> Tensor:
    return torch.where(mask, x, 0.0)


def _not_0(a: Tensor, p: Tensor, b: Tensor, q: Tensor, mask: Tensor) -> Two:
    """Id 0 taken for an empty place."""
    a, p, b = a[mask], p[mask], b[mask]
    stays, there = _stays(a, b) & (a != 0), a != 0
    left = torch.where(there & ~stays, p.exp(), 0.0)
    return stays.to(p).mean(), left.sum(-1).mean()


def _whole(a: Tensor, p: Tensor, b: Tensor, q: Tensor, mask: Tensor) -> Two:
    """Against all that the trainer ever lists in the batch."""
    a, p = a[mask], p[mask]
    stays = torch.isin(a, b[mask])
    return stays.to(p).mean(), torch.where(stays, 0.0, p.exp()).sum(-1).mean()


def _jaccard(common: Tensor, k: int) -> Tensor:
    return common / (2 * k - common)


def _subtracted(a: Tensor, p: Tensor, b: Tensor, q: Tensor) -> Tensor:
    """What is left of all when the common ones are taken away, in float32."""
    p = p.float().exp()
    kept = torch.where(_stays(a, b), p, 0.0).sum(-1)
    return (p.sum(-1) - kept).to(q)


MISTAKES: Mistakes = {
    "by_place": (
        lambda a, p, b, q, mask: (
            (a == b)[mask].to(p).mean(),
            torch.where(a == b, 0.0, p.exp()).sum(-1)[mask].mean(),
        ),
        Words(
            en="You compare place by place. The order of a set is no matter: ask of each "
            "token of one side whether it is anywhere in the other.",
            zh="你按位置逐个比较。集合与顺序无关：要问一侧的每个 token 是否出现在另一侧的任"
            "何位置。",
        ),
    ),
    "jaccard": (
        _with(0, lambda a, p, b, q: _jaccard(_stays(a, b).to(p).sum(-1), a.shape[-1])),
        Words(
            en="You divide by the union (Jaccard). Asked for is the share of the k.",
            zh="你除以了并集（Jaccard）。题目要的是占 k 的比例。",
        ),
    ),
    "not_common": (
        _with(0, lambda a, p, b, q: (~_stays(a, b)).to(p).mean(-1)),
        Words(
            en="The first number is the share that left. Overlap is what both have.",
            zh="第一个数是离开的比例。重合度指两边共有的部分。",
        ),
    ),
    "counted": (
        _with(1, lambda a, p, b, q: (~_stays(a, b)).to(p).mean(-1)),
        Words(
            en="The second number counts tokens. Weigh them: unlikely ones come and go.",
            zh="第二个数只是计数。应当按概率加权：不太可能的 token 进进出出很平常。",
        ),
    ),
    "entered": (
        _with(1, lambda a, p, b, q: torch.where(_stays(b, a), 0.0, q.exp()).sum(-1)),
        Words(
            en="This is the trainer's probability of tokens that are new to its set. Asked "
            "for is the rollout's of those that left: what was sampled and is not liked "
            "any more.",
            zh="这是训练端新进入集合的 token 的概率。题目要的是采样端在离开的 token 上的概"
            "率：它会采到而训练端不再看好的部分。",
        ),
    ),
    "trainer_p": (
        _with(1, lambda a, p, b, q: torch.where(_stays(a, b), 0.0, q.exp()).sum(-1)),
        Words(
            en="You add up logp_train's numbers, of other tokens. Take the rollout's.",
            zh="你累加的是 logp_train 里别的 token 的概率。应当用采样端的。",
        ),
    ),
    "per_token_left": (
        _with(1, lambda a, p, b, q: p.exp()[~_stays(a, b)]),
        Words(
            en="You average over the tokens that left. Add them up; average over places.",
            zh="你对离开的 token 取了平均。应当在每个位置上累加，再对位置取平均。",
        ),
    ),
    "kept_mass": (
        _with(1, lambda a, p, b, q: torch.where(_stays(a, b), p.exp(), 0.0).sum(-1)),
        Words(
            en="This is the probability of those that stayed. Asked for are those that "
            "left.",
            zh="这是仍在集合中的 token 的概率。题目要的是离开的那些。",
        ),
    ),
    "outside": (
        _with(1, lambda a, p, b, q: 1 - torch.where(_stays(a, b), p.exp(), 0.0).sum(-1)),
        Words(
            en="1 - what stayed also holds all that was in neither set. Add up those that "
            "left.",
            zh="1 减去留下的概率还包含了两个集合之外的部分。应当只累加离开的 token。",
        ),
    ),
    "of_the_k": (
        _with(1, lambda a, p, b, q: _parts(a, p.log_softmax(-1), b, q)[1]),
        Words(
            en="You renormalise over the k first. Their logprobs are of the whole "
            "vocabulary: take them as they are.",
            zh="你先在 k 个 token 内重新归一化了。给出的 logprob 是对整个词表的：直接使用。"
            "",
        ),
    ),
    "logprobs": (
        _with(1, lambda a, p, b, q: torch.where(_stays(a, b), 0.0, p).sum(-1)),
        Words(
            en="You add logprobs. Probabilities can be added: `exp` first.",
            zh="你把 logprob 相加了。能相加的是概率：先取 `exp`。",
        ),
    ),
    "anywhere": (
        _whole,
        Words(
            en="You look for a token anywhere in the batch. Sets belong to a place: "
            "compare those of the same one.",
            zh="你在整批里查找 token。每个位置有自己的集合：只能与同一位置的集合比较。",
        ),
    ),
    "id_0_is_none": (
        _not_0,
        Words(
            en="You take id 0 for an empty place. It is a token like any other.",
            zh="你把 id 0 当成了空位。它是一个普通的 token。",
        ),
    ),
    "padding_counted": (
        _over(lambda x, mask: x.mean()),
        PADDING,
    ),
    "all_columns": (
        _over(lambda x, mask: _clean(x, mask).mean()),
        COLUMNS,
    ),
    "row_means": (
        _over(lambda x, mask: (_clean(x, mask).sum(1) / mask.sum(1)).mean()),
        ROWS,
    ),
    "subtracted": (
        _with(1, _subtracted),
        Words(
            en="Mass of all k less mass of those that stayed: nothing is left of 1e-9. Add "
            "up those that left.",
            zh="用 k 个的总概率减去留下的概率：1e-9 的差会消失。应当直接累加离开的部分。",
        ),
    ),
} | slips.TOP_K

HAND = Words(en="three tokens by hand, k = 2", zh="三个可手算的 token，k = 2")
SHUFFLED = Words(en="the same sets in another order", zh="相同的集合，顺序不同")
RANDOM = Words(en="random sets that share some tokens", zh="随机的集合，有部分相同")
LARGE = Words(en="sets of a large vocabulary", zh="大词表的集合")
SINGLE = Words(en="k = 1", zh="k = 1 的集合")
STALE = Words(en="the padding holds NaN and old ids", zh="padding 里是 NaN 和旧的 id")
TINY = Words(en="what left has 1e-9 and less", zh="离开的部分只有 1e-9 或更少")


def cases(generator: Generator) -> list[Case]:
    ids_r = torch.tensor([[[3, 0], [1, 2]], [[4, 1], [0, 2]]])
    ids_t = torch.tensor([[[0, 3], [1, 4]], [[2, 3], [0, 2]]])
    p = torch.tensor([[[0.5, 0.25], [0.6, 0.3]], [[0.4, 0.1], [0.9, 0.05]]])
    q = torch.tensor([[[0.4, 0.3], [0.5, 0.2]], [[0.7, 0.2], [0.8, 0.1]]])
    real = torch.tensor([[True, True], [True, False]])
    a, logp, _, _, mask = draw(generator, 3, 6, 3, 8)
    turn = torch.rand(a.shape, generator=generator).argsort(-1)
    same = a, logp, a.gather(-1, turn), logp.gather(-1, turn), mask
    ids, wide, other, theirs, there = draw(generator, 3, 7, 3, 9)
    other = other.where(_stays(other, ids), 20 + other)
    down = -20.0 - 7 * torch.randint(2, ids.shape, generator=generator)
    lift = torch.where(_stays(ids, other), 0.0, down)
    a4, p4, b4, q4, m4 = draw(generator, 4, 8, 4, 12)
    a3, p3, b3, q3, m3 = draw(generator, 4, 7, 3, 9, padding=True)
    return [
        Case("example", HAND, (ids_r, p.log(), ids_t, q.log(), real)),
        Case("property", SHUFFLED, same),
        Case("inputs", RANDOM, draw(generator, 3, 6, 3, 8)),
        Case("inputs", LARGE, (spread(a4), p4, spread(b4), q4, m4)),
        Case("inputs", SINGLE, draw(generator, 3, 7, 1, 5)),
        Case("padding", STALE, (spread(a3, 2**16), p3, spread(b3, 2**16), q3, m3)),
        Case("numbers", TINY, (ids, wide + lift, other, theirs, there)),
    ]


EXERCISE = Exercise(
    name="top_k_drift",
    title=Words(en="Drift of the top k", zh="top-k 的漂移"),
    reference=reference,
    returns=("overlap", "left"),
    cases=cases,
    mistakes=MISTAKES,
    alternatives={"sets": _sets, "loops": _loops},
    hints=(
        Words(
            en="For each of the rollout's k tokens at a place: is it among the trainer's "
            "k there?",
            zh="对某个位置上采样端的 k 个 token，逐个问：它在训练端同一位置的 k 个之中吗？",
        ),
        Words(
            en="Compare every one with every one: `[..., k, 1] == [..., 1, k]`, any over "
            "the last.",
            zh="两两比较：`[..., k, 1] == [..., 1, k]`，再对最后一维取 any。",
        ),
        Words(
            en="`stays = (a[..., :, None] == b[..., None, :]).any(-1)`; its mean, and the "
            "sum of `exp(logp_rollout)` where it is false.",
            zh="`stays = (a[..., :, None] == b[..., None, :]).any(-1)`；取它的平均，以及在"
            "它为假处累加 `exp(logp_rollout)`。",
        ),
    ),
    points=(1, 2),
    minutes=9,
)
