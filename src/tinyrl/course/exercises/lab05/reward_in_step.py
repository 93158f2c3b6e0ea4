"""A limit cuts responses: mask and reward have to follow."""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from tinyrl.course.exercise import Case, Exercise, Mistakes
from tinyrl.course.exercises.lab01.batch import mask_of, uniform
from tinyrl.course.exercises.lab05.draws import whole
from tinyrl.course.words import Words

Two = tuple[Tensor, Tensor]


def _placed(reward: Tensor, at: Tensor, columns: int) -> Tensor:
    """`reward [B]` in column `at [B]` of zeros `[B, columns]`."""
    return torch.where(torch.arange(columns) == at[:, None], reward[:, None], 0.0)


def reference(reward: Tensor, mask: Tensor, limit: int) -> Two:
    length, kept = mask.sum(1), mask[:, :limit]
    paid = torch.where(length <= limit, reward, 0.0)
    return _placed(paid, length - 1, kept.shape[1]), kept


def _by_rows(reward: Tensor, mask: Tensor, limit: int) -> Two:
    kept = mask[:, :limit]
    out = torch.zeros(kept.shape, dtype=reward.dtype)
    for row, (r, real) in enumerate(zip(reward, mask, strict=True)):
        if (n := int(real.sum())) <= limit:
            out[row, n - 1] = r
    return out, kept


def _by_ends(reward: Tensor, mask: Tensor, limit: int) -> Two:
    """The last real token is one after which no other is."""
    after = torch.nn.functional.pad(mask[:, 1:], (0, 1))
    last = mask & ~after
    return torch.where(last, reward[:, None], 0.0)[:, :limit], mask[:, :limit]


def _cut_paid(reward: Tensor, mask: Tensor, limit: int) -> Two:
    kept = mask[:, :limit]
    return _placed(reward, kept.sum(1) - 1, kept.shape[1]), kept


def _last_column(reward: Tensor, mask: Tensor, limit: int) -> Two:
    kept = mask[:, :limit]
    paid = torch.where(mask.sum(1) <= limit, reward, 0.0)
    return _placed(
        paid, torch.full_like(mask.sum(1), kept.shape[1] - 1), kept.shape[1]
    ), kept


def _one_late(reward: Tensor, mask: Tensor, limit: int) -> Two:
    length, kept = mask.sum(1), mask[:, :limit]
    paid = torch.where(length <= limit, reward, 0.0)
    return _placed(paid, length, kept.shape[1]), kept


def _everywhere(reward: Tensor, mask: Tensor, limit: int) -> Two:
    kept = mask[:, :limit]
    paid = torch.where(mask.sum(1) <= limit, reward, 0.0)
    return torch.where(kept, paid[:, None], 0.0), kept


def _first_token(reward: Tensor, mask: Tensor, limit: int) -> Two:
    rewards, kept = reference(reward, mask, limit)
    return _placed(rewards.sum(1), torch.zeros_like(mask.sum(1)), kept.shape[1]), kept


def _at_the_limit_lost(reward: Tensor, mask: Tensor, limit: int) -> Two:
    rewards, kept = reference(reward, mask, limit)
    return torch.where(mask.sum(1)[:, None] < limit, rewards, 0.0), kept


def _cut_masked(reward: Tensor, mask: Tensor, limit: int) -> Two:
    rewards, kept = reference(reward, mask, limit)
    return rewards, kept & (mask.sum(1) <= limit)[:, None]


def _rows_compacted(reward: Tensor, mask: Tensor, limit: int) -> Two:
    """Rewards of the kept responses, in order, handed to the first rows."""
    fits = mask.sum(1) <= limit
    moved = torch.cat([reward[fits], reward[~fits]])
    return reference(moved, mask, limit)


def _punished(reward: Tensor, mask: Tensor, limit: int) -> Two:
    rewards, kept = reference(reward, mask, limit)
    cut = (mask.sum(1) > limit)[:, None]
    last = torch.arange(kept.shape[1]) == kept.shape[1] - 1
    return torch.where(cut & last, -1.0, rewards), kept


MISTAKES: Mistakes = {
    "cut_paid": (
        _cut_paid,
        Words(
            en="A cut response keeps its reward: it is paid for an ending that nobody "
            "trains. "
            "What is left of it earned nothing.",
            zh="被截断的回答保留了奖励：它为一个没有被训练到的结尾得了分。剩下的部分没有奖"
            "励。",
        ),
    ),
    "last_column": (
        _last_column,
        Words(
            en="The reward stands in the last column, which is padding for every response "
            "that ended early: nobody is paid for ending. Put it on the last real token.",
            zh="奖励放在了最后一列；对提前结束的回答来说那是 padding，结束就拿不到奖励。应"
            "当放"
            "在最后一个真实 token 上。",
        ),
    ),
    "one_late": (
        _one_late,
        Words(
            en="The reward stands one column after the last token, in padding.",
            zh="奖励放在了最后一个 token 的后一列，即 padding 里。",
        ),
    ),
    "everywhere": (
        _everywhere,
        Words(
            en="Every token gets the whole reward, so a response earns it as often as it "
            "is "
            "long. It belongs on the last token alone.",
            zh="每个 token 都拿到了全部奖励，回答越长总奖励越多。奖励只放在最后一个 token "
            "上。",
        ),
    ),
    "first_token": (
        _first_token,
        Words(
            en="The reward stands on the first token. It is known at the last.",
            zh="奖励放在了第一个 token 上。奖励在最后一个 token 才知道。",
        ),
    ),
    "at_the_limit_lost": (
        _at_the_limit_lost,
        Words(
            en="A response of exactly `limit` tokens was not cut and loses its reward: the "
            "comparison is <=.",
            zh="刚好 `limit` 个 token 的回答没有被截断，却丢了奖励：比较应为 <=。",
        ),
    ),
    "cut_masked": (
        _cut_masked,
        Words(
            en="You take the tokens of cut responses out of the mask. That is a choice "
            "(DAPO's), and not the one asked for: they count, without a reward.",
            zh="你把被截断回答的 token 从 mask 里去掉了。那是另一种做法（DAPO），不是这里要"
            "求"
            "的：它们计入，只是没有奖励。",
        ),
    ),
    "rows_compacted": (
        _rows_compacted,
        Words(
            en="Rewards have moved to other rows, as after a filter that was applied to "
            "the "
            "rewards alone. Row b keeps its own.",
            zh="奖励移到了别的行，就像只对奖励做了过滤。第 b 行应保留自己的奖励。",
        ),
    ),
    "punished": (
        _punished,
        Words(
            en="Cut responses are punished by -1. Asked for is no reward, 0.",
            zh="你给被截断的回答 -1 的惩罚。题目要的是没有奖励，即 0。",
        ),
    ),
    "mask_uncut": (
        lambda reward, mask, limit: (reference(reward, mask, limit)[0], mask),
        Words(
            en="The mask still has all T columns. It is cut together with the rest.",
            zh="mask 还是原来的 T 列。它要和其他东西一起截断。",
        ),
    ),
}

BY_HAND = Words(en="limit 3: lengths 2, 4 and 3", zh="上限 3：长度为 2、4、3")
ROOMY = Words(en="a limit above T", zh="上限大于 T")
WHOLE = Words(en="a limit of T: nothing is cut", zh="上限等于 T：什么都不截")
SHORT = Words(en="a limit of one token", zh="上限为一个 token")
SOME = Words(en="a limit that cuts some", zh="上限截断了一部分")
LONG = Words(en="long responses", zh="很长的回答")


def cases(generator: Generator) -> list[Case]:
    def batch(rows: int, columns: int, limit: int) -> tuple[Tensor, Tensor, int]:
        mask = mask_of(generator, rows, columns)
        mask[1] = torch.arange(columns) < limit  # exactly as long as allowed
        mask[0] = torch.arange(columns) < columns  # the first row is cut, so rows move
        reward = uniform(generator, (rows,), 0.5, 2.0)
        reward = reward * (1 - 2 * (torch.arange(rows) % 2))
        return reward, mask, limit

    by_hand = torch.arange(4) < torch.tensor([[2], [4], [3]])
    reward, mask, _ = batch(4, 6, 4)
    nothing, real, limit = batch(6, 12, whole(generator, 6, 9))
    nothing[2] = 0.0
    return [
        Case("example", BY_HAND, (torch.tensor([1.0, 1.0, -0.5]), by_hand, 3)),
        Case("property", ROOMY, (reward, mask, whole(generator, 7, 9))),
        Case("property", WHOLE, (reward, mask, 6)),
        Case("inputs", SOME, batch(5, 8, whole(generator, 4, 6))),
        Case("inputs", SOME, (nothing, real, limit)),
        Case("numbers", SHORT, batch(4, 5, 1)),
        Case("numbers", LONG, batch(4, 900, whole(generator, 400, 700))),
    ]


EXERCISE = Exercise(
    name="reward_in_step",
    title=Words(en="Reward and mask in step", zh="奖励与 mask 同步"),
    reference=reference,
    returns=("rewards", "mask"),
    cases=cases,
    mistakes=MISTAKES,
    alternatives={"by_rows": _by_rows, "by_ends": _by_ends},
    hints=(
        Words(
            en="Three kinds of response: shorter than the limit, exactly as long, longer. "
            "Where does the reward of each stand?",
            zh="三种回答：短于上限、正好等于、长于上限。各自的奖励放在哪里？",
        ),
        Words(
            en="A response of n tokens has its reward in column n - 1; one that is longer "
            "than the limit has none left.",
            zh="n 个 token 的回答，奖励在第 n - 1 列；长于上限的没有奖励。",
        ),
        Words(
            en="`torch.arange(L) == (mask.sum(1) - 1)[:, None]` is true at the last "
            "tokens; "
            "for cut ones that column is gone by itself.",
            zh="`torch.arange(L) == (mask.sum(1) - 1)[:, None]` 在最后一个 token 处为真；对"
            "被截"
            "断的回答，那一列自然不存在了。",
        ),
    ),
    points=(1, 2),
    minutes=8,
    boolean=("mask",),
)
