"""One step of online softmax: a block of keys more, without having seen the others."""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from tinyrl.course.exercise import Case, Exercise, Function, Mistakes
from tinyrl.course.exercises.lab04.draws import normal, whole
from tinyrl.course.words import Words

Three = tuple[Tensor, Tensor, Tensor]

NOTHING = -1e30
"""Stands for the largest score of no scores: exp of it is 0."""


def reference(m: Tensor, total: Tensor, y: Tensor, s: Tensor, v: Tensor) -> Three:
    higher = torch.maximum(m, s.max(-1).values)
    shrink, p = (m - higher).exp(), (s - higher[:, None]).exp()
    return higher, total * shrink + p.sum(-1), y * shrink[:, None] + p @ v


def _as_one_more_key(m: Tensor, total: Tensor, y: Tensor, s: Tensor, v: Tensor) -> Three:
    """What came before is one more score: its logsumexp, with the mean of its values."""
    higher = torch.cat([m[:, None], s], -1).amax(-1)
    weights = torch.cat([m[:, None], s], -1).sub(higher[:, None]).exp()
    total = weights[:, 0] * total + weights[:, 1:].sum(-1)
    return higher, total, weights[:, :1] * y + torch.einsum("rk,kd->rd", weights[:, 1:], v)


def _key_by_key(m: Tensor, total: Tensor, y: Tensor, s: Tensor, v: Tensor) -> Three:
    for score, value in zip(s.unbind(-1), v, strict=True):
        higher = torch.maximum(m, score)
        shrink, p = (m - higher).exp(), (score - higher).exp()
        total, y = total * shrink + p, y * shrink[:, None] + p[:, None] * value
        m = higher
    return m, total, y


def _with(shrink_total: bool = True, shrink_y: bool = True) -> Function:
    def wrong(m: Tensor, total: Tensor, y: Tensor, s: Tensor, v: Tensor) -> Three:
        higher, new_total, new_y = reference(m, total, y, s, v)
        shrink = (m - higher).exp()
        new_total = new_total if shrink_total else new_total + total * (1 - shrink)
        new_y = new_y if shrink_y else new_y + y * (1 - shrink)[:, None]
        return higher, new_total, new_y

    return wrong


def _block_maximum(m: Tensor, total: Tensor, y: Tensor, s: Tensor, v: Tensor) -> Three:
    top = s.max(-1).values
    shrink, p = (m - top).exp(), (s - top[:, None]).exp()
    return top, total * shrink + p.sum(-1), y * shrink[:, None] + p @ v


def _maximum_kept(m: Tensor, total: Tensor, y: Tensor, s: Tensor, v: Tensor) -> Three:
    p = (s - m[:, None]).exp()
    return m, total + p.sum(-1), y + p @ v


def _upside_down(m: Tensor, total: Tensor, y: Tensor, s: Tensor, v: Tensor) -> Three:
    higher = torch.maximum(m, s.max(-1).values)
    shrink, p = (higher - m).exp(), (s - higher[:, None]).exp()
    return higher, total * shrink + p.sum(-1), y * shrink[:, None] + p @ v


def _normalised(m: Tensor, total: Tensor, y: Tensor, s: Tensor, v: Tensor) -> Three:
    higher, new_total, new_y = reference(m, total, y, s, v)
    return higher, new_total, new_y / new_total[:, None]


def _block_softmax(m: Tensor, total: Tensor, y: Tensor, s: Tensor, v: Tensor) -> Three:
    higher, new_total, _ = reference(m, total, y, s, v)
    shrink = (m - higher).exp()
    return higher, new_total, y * shrink[:, None] + s.softmax(-1) @ v


def _one_maximum(m: Tensor, total: Tensor, y: Tensor, s: Tensor, v: Tensor) -> Three:
    higher = torch.maximum(m, s.max()).max().expand_as(m)
    shrink, p = (m - higher).exp(), (s - higher[:, None]).exp()
    return higher, total * shrink + p.sum(-1), y * shrink[:, None] + p @ v


def _plain_exp(m: Tensor, total: Tensor, y: Tensor, s: Tensor, v: Tensor) -> Three:
    higher = torch.maximum(m, s.max(-1).values)
    new_total = total * m.exp() + s.exp().sum(-1)
    new_y = y * m.exp()[:, None] + s.exp() @ v
    return higher, new_total / higher.exp(), new_y / higher.exp()[:, None]


def _rescaled_later(anchor_of: Function) -> Function:
    """The right sums relative to a wrong maximum, put right when it is too late."""

    def wrong(m: Tensor, total: Tensor, y: Tensor, s: Tensor, v: Tensor) -> Three:
        anchor, higher = anchor_of(m, s), torch.maximum(m, s.max(-1).values)
        grow, p = (m - anchor).exp(), (s - anchor[:, None]).exp()
        back = (anchor - higher).exp()
        new_y = y * grow[:, None] + p @ v
        return higher, (total * grow + p.sum(-1)) * back, new_y * back[:, None]

    return wrong


def _logarithm(m: Tensor, total: Tensor, y: Tensor, s: Tensor, v: Tensor) -> Three:
    """Right on paper: total as exp of a logsumexp less the maximum."""
    higher, _, new_y = reference(m, total, y, s, v)
    lse = torch.logaddexp(m + total.log(), s.logsumexp(-1))
    return higher, (lse - higher).exp(), new_y


MISTAKES: Mistakes = {
    "nothing_shrunk": (
        _with(shrink_total=False, shrink_y=False),
        Words(
            en="What has been summed still refers to the old maximum. Multiply total and y "
            "by exp(old maximum - new maximum) before you add.",
            zh="已有的和仍以旧的最大值为基准。相加之前，total 和 y 都要乘以 exp(旧最大值 - "
            "新最大值)。",
        ),
    ),
    "total_not_shrunk": (
        _with(shrink_total=False),
        Words(
            en="You scale y down but not total: the two no longer belong together.",
            zh="你缩小了 y，却没有缩小 total：两者不再对应。",
        ),
    ),
    "y_not_shrunk": (
        _with(shrink_y=False),
        Words(
            en="You scale total down but not y: old values keep too much weight.",
            zh="你缩小了 total，却没有缩小 y：旧的值权重过大。",
        ),
    ),
    "block_maximum": (
        _block_maximum,
        Words(
            en="You take the maximum of the block alone. A larger score of an earlier "
            "block then overflows; keep the larger of the two maxima.",
            zh="你只取了这一块的最大值。之前的块若有更大的分数就会溢出；应当保留两者中较大"
            "的。",
        ),
    ),
    "maximum_kept": (
        _maximum_kept,
        Words(
            en="You never raise the maximum: a larger score in the new block makes exp "
            "overflow.",
            zh="你没有更新最大值：新的一块里若有更大的分数，exp 会溢出。",
        ),
    ),
    "upside_down": (
        _upside_down,
        Words(
            en="You blow up what was summed instead of shrinking it: the exponent is old "
            "minus new, never above 0.",
            zh="你把已有的和放大了而不是缩小：指数应为旧减新，不会大于 0。",
        ),
    ),
    "normalised": (
        _normalised,
        Words(
            en="You divide y by total already. Divide once, after the last block.",
            zh="你已经把 y 除以 total 了。应当在最后一块之后只除一次。",
        ),
    ),
    "block_softmax": (
        _block_softmax,
        Words(
            en="You add the softmax of this block times v: each block is then worth 1, "
            "whatever its scores. Use exp(s - maximum).",
            zh="你加的是这一块的 softmax 乘以 v：这样每一块的总权重都是 1，与分数无关。应当"
            "用 exp(s - 最大值)。",
        ),
    ),
    "one_maximum_for_all": (
        _one_maximum,
        Words(
            en="You take one maximum for all queries. Each row has its own.",
            zh="你对所有 query 只取了一个最大值。每一行要用自己的。",
        ),
    ),
    "plain_exp": (
        _plain_exp,
        Words(
            en="`exp` of the scores themselves overflows, and dividing afterwards is too "
            "late. Subtract the new maximum before you take exp.",
            zh="分数本身的 `exp` 会溢出，之后再除已经晚了。应当先减去新的最大值，再取 "
            "exp。",
        ),
    ),
    "through_the_logarithm": (
        _logarithm,
        Words(
            en="Your total goes through a logsumexp and back. Where the maximum is in the "
            "thousands its logarithm keeps two or three digits behind the point: keep sums "
            "relative to the maximum.",
            zh="你的 total 先变成 logsumexp 再变回来。最大值上千时，它的对数只剩小数点后两"
            "三位：和应当始终以最大值为基准。",
        ),
    ),
    "block_maximum_first": (
        _rescaled_later(lambda m, s: s.max(-1).values),
        Words(
            en="You sum relative to the block's maximum and rescale afterwards. Where the "
            "old maximum lies far above it, exp has overflowed by then.",
            zh="你先以这一块的最大值为基准求和，之后才重新缩放。旧的最大值远高于它时，exp "
            "已经溢出了。",
        ),
    ),
}

BY_HAND = Words(
    en="one query; the largest score so far is 0, the new ones log 2 and 0",
    zh="一个 query；此前最大分数为 0，新的分数是 log 2 和 0",
)
FIRST = Words(en="the first block: nothing has been summed", zh="第一块：还没有任何累加")
ANY = Words(en="several queries, random scores", zh="多个 query，随机分数")
FAR = Words(
    en="a block of one key, scores near 1000, above and below what was there",
    zh="只有一个 key 的一块，分数接近 1000",
)
APART = Words(
    en="scores 1000 above and below what was there", zh="比已有分数高 1000 或低 1000 的分数"
)

BELOW = Words(
    en="a block far below what was there: it changes nothing",
    zh="远低于已有分数的一块：什么也不改变",
)


def cases(generator: Generator) -> list[Case]:
    def state(rows: int, middle: float | Tensor = 0.0) -> Three:
        m = middle + normal(generator, rows)
        total = 1 + 3 * torch.rand(rows, generator=generator)
        return m, total, normal(generator, rows, 3) * total[:, None]

    def block(
        rows: int, middle: float | Tensor = 0.0, *, one: bool = False
    ) -> tuple[Tensor, Tensor]:
        keys = 1 if one else whole(generator, 3, 6)
        s = 2 * normal(generator, rows, keys)
        s[0, 0], s[-1] = 4.0, 0.1 * s[-1] - 4
        return middle + s, normal(generator, keys, 3)

    empty = torch.full((3,), NOTHING), torch.zeros(3), torch.zeros(3, 3)
    one, by_hand = torch.ones(1), torch.tensor([[2.0, 1.0]]).log()
    values = torch.tensor([[1.0, 0.0], [0.0, 4.0]])
    # Far enough for exp in float64, too; rows lie as far apart as blocks do.
    old, new = torch.tensor([[0.0, 1000.0, -1000.0, 0.0], [1000.0, 0.0, -1000.0, 0.0]])
    return [
        Case("example", BY_HAND, (0 * one, one, torch.ones(1, 2), by_hand, values)),
        Case("property", FIRST, (*empty, *block(3))),
        Case("inputs", ANY, (*state(3), *block(3))),
        Case("inputs", ANY, (*state(5), *block(5))),
        Case("numbers", FAR, (*state(4, 1000.0), *block(4, 1000.0, one=True))),
        Case("numbers", APART, (*state(4, old), *block(4, new[:, None]))),
        Case("numbers", BELOW, (*state(4, 30_000.0), *block(4))),
    ]


EXERCISE = Exercise(
    name="online_step",
    title=Words(en="One block of online softmax", zh="online softmax 的一步"),
    reference=reference,
    returns=("m", "total", "y"),
    cases=cases,
    mistakes=MISTAKES,
    alternatives={"one_more_key": _as_one_more_key, "key_by_key": _key_by_key},
    hints=(
        Words(
            en="total is a sum of exp(score - m). What happens to it when m grows?",
            zh="total 是 exp(分数 - m) 之和。m 变大时，它应当怎样变化？",
        ),
        Words(
            en="new m = max(m, largest of s). Old total and y are multiplied by "
            "exp(m - new m); then the block adds exp(s - new m), and that times v.",
            zh="新的 m = max(m, s 的最大值)。旧的 total 和 y 乘以 exp(m - 新 m)，再加上这一"
            "块的 exp(s - 新 m)，以及它乘以 v 的结果。",
        ),
        Words(
            en="`s.max(-1).values` is [R]; `higher[:, None]` makes it a column, so that "
            "`s - higher[:, None]` is [R, K], and `p @ v` is [R, D].",
            zh="`s.max(-1).values` 的形状是 [R]；`higher[:, None]` 变成一列，`s - "
            "higher[:, None]` 是 [R, K]，`p @ v` 是 [R, D]。",
        ),
    ),
    points=(1, 2),
    minutes=10,
)
