"""Sequence delta: how far two policies disagree on a whole response."""

from __future__ import annotations

import torch
from torch import Tensor

from tinyrl.course.exercise import Exercise, Mistakes
from tinyrl.course.exercises.lab01 import batch
from tinyrl.course.words import Words


def _token_delta(logp_train: Tensor, logp_rollout: Tensor, mask: Tensor) -> Tensor:
    return torch.where(mask, logp_train - logp_rollout, 0.0)


def reference(logp_train: Tensor, logp_rollout: Tensor, mask: Tensor) -> Tensor:
    return _token_delta(logp_train, logp_rollout, mask).sum(-1)


def _of_sums(logp_train: Tensor, logp_rollout: Tensor, mask: Tensor) -> Tensor:
    """log pi(y | x) of each side is the sum over tokens; then take the difference."""
    of_train = logp_train.masked_fill(~mask, 0.0).sum(-1)
    return of_train - logp_rollout.masked_fill(~mask, 0.0).sum(-1)


def _by_rows(logp_train: Tensor, logp_rollout: Tensor, mask: Tensor) -> Tensor:
    rows = zip(logp_train, logp_rollout, mask, strict=True)
    return torch.stack([(train[m] - rollout[m]).sum() for train, rollout, m in rows])


def _mean(logp_train: Tensor, logp_rollout: Tensor, mask: Tensor) -> Tensor:
    return reference(logp_train, logp_rollout, mask) / mask.sum(-1)


def _last_dropped(logp_train: Tensor, logp_rollout: Tensor, mask: Tensor) -> Tensor:
    last = mask.sum(-1, keepdim=True) - 1
    kept = mask & (torch.arange(mask.shape[1]) != last)
    return reference(logp_train, logp_rollout, kept)


def _first_dropped(logp_train: Tensor, logp_rollout: Tensor, mask: Tensor) -> Tensor:
    return reference(logp_train[:, 1:], logp_rollout[:, 1:], mask[:, 1:])


MISTAKES: Mistakes = {
    "sign": (
        lambda logp_train, logp_rollout, mask: reference(logp_rollout, logp_train, mask),
        Words(
            en="The sign is turned round: take the sampler's logprob away from the "
            "trainer's.",
            zh="符号反了：应当用训练端的 logprob 减去采样端的。",
        ),
    ),
    "mean": (
        _mean,
        Words(
            en="This is a mean over the response. The logprob of a sequence is the sum of "
            "its tokens' logprobs (probabilities multiply), so deltas add up too.",
            zh="这是整条回答的平均。序列的 logprob 是各 token logprob 之和（概率相乘），"
            "delta 也一样要求和。",
        ),
    ),
    "padding_counted": (
        lambda logp_train, logp_rollout, mask: (logp_train - logp_rollout).sum(-1),
        Words(
            en="The padding is counted: columns after the end of a response hold garbage. "
            "Put 0 there, by `mask`, before you sum.",
            zh="把 padding 也加进去了：回答结束之后的列都是垃圾值。求和之前请按 `mask` 置"
            " 0。",
        ),
    ),
    "times_mask": (
        lambda logp_train, logp_rollout, mask: ((logp_train - logp_rollout) * mask).sum(-1),
        Words(
            en="Multiplying by the mask does not remove NaN: NaN * 0 is NaN, and the whole "
            "sum with it. Choose with `torch.where`.",
            zh="乘以 mask 去不掉 NaN：NaN * 0 还是 NaN，整个和也就成了 NaN。请用 "
            "`torch.where` 来选择。",
        ),
    ),
    "over_batch": (
        lambda logp_train, logp_rollout, mask: _token_delta(
            logp_train, logp_rollout, mask
        ).sum(0),
        Words(
            en="You sum over the batch, axis 0, and mix different responses. Sum over "
            "tokens, the last axis: one number a response.",
            zh="你沿 batch 维（第 0 维）求和，把不同的回答混在了一起。应当沿 token 维（最"
            "后一维）求和，每条回答一个数。",
        ),
    ),
    "whole_batch": (
        lambda logp_train, logp_rollout, mask: reference(
            logp_train, logp_rollout, mask
        ).sum(),
        Words(
            en="This is one number for the whole batch. Each response has its own ratio, "
            "so keep one number a response, [B].",
            zh="整个 batch 只得到一个数。每条回答有自己的比值，应当每条一个数，形状 [B]。",
        ),
    ),
    "sum_of_absolute": (
        lambda logp_train, logp_rollout, mask: (
            _token_delta(logp_train, logp_rollout, mask).abs().sum(-1)
        ),
        Words(
            en="You sum |delta|. Errors of opposite sign cancel in the logprob of a "
            "sequence: sum the signed deltas.",
            zh="你加的是 |delta|。在序列 logprob 里，正负误差会相互抵消，应当加带符号的"
            " delta。",
        ),
    ),
    "ratio": (
        lambda logp_train, logp_rollout, mask: reference(
            logp_train, logp_rollout, mask
        ).exp(),
        Words(
            en="This is exp of the sum, the ratio of the sequences' probabilities. Delta "
            "stays in log space.",
            zh="这是和的 exp，即两个序列概率之比。delta 应留在对数空间。",
        ),
    ),
    "sum_of_ratios": (
        lambda logp_train, logp_rollout, mask: torch.where(
            mask, _token_delta(logp_train, logp_rollout, mask).exp(), 0.0
        ).sum(-1),
        Words(
            en="You sum exp(delta). The sum of ratios is not the ratio of the sequence: "
            "that is exp of the sum. Sum the deltas, without exp.",
            zh="你加的是 exp(delta)。比值之和不等于序列的比值，后者是和的 exp。请直接对"
            " delta 求和，不取 exp。",
        ),
    ),
    "last_dropped": (
        _last_dropped,
        Words(
            en="Off by one: the last real token, the end-of-sequence, is left out. To stop "
            "was sampled like any other token.",
            zh="差了一个：漏掉了最后一个真实 token（结束符）。“停下来”也是采样出来的一步。",
        ),
    ),
    "first_dropped": (
        _first_dropped,
        Words(
            en="Off by one: the first token of the response is left out. The arrays start "
            "at the response, they need no further shift.",
            zh="差了一个：漏掉了回答的第一个 token。数组本来就从回答开始，不需要再移位。",
        ),
    ),
    "clamped": (
        lambda *args: _token_delta(*args).clamp(-20, 20).sum(-1),
        batch.CLAMPED,
    ),
    "detach": (
        lambda logp_train, logp_rollout, mask: reference(
            logp_train.detach(), logp_rollout, mask
        ),
        Words(
            en="The values are right, but no gradient reaches logp_train: something "
            "detaches. A sequence-level loss (GSPO) trains through this sum.",
            zh="数值正确，但梯度传不到 logp_train：中间被切断了。序列级的 loss（GSPO）正是"
            "通过这个和来训练的。",
        ),
    ),
}

EXERCISE = Exercise(
    name="sequence_delta",
    title=Words(en="Sequence delta", zh="序列级差值"),
    reference=reference,
    returns=("sequence_delta",),
    cases=batch.usual,
    mistakes=MISTAKES,
    alternatives={"difference_of_sums": _of_sums, "row_by_row": _by_rows},
    hints=(
        Words(
            en="The probability of a response is the product of its tokens' probabilities. "
            "What becomes of a product when you take the log?",
            zh="一条回答的概率是各 token 概率的乘积。取对数以后，乘积变成什么？",
        ),
        Words(
            en="Take the token delta, 0 on padding, and add it up along a response.",
            zh="先算 token 级 delta（padding 处为 0），再沿每条回答累加。",
        ),
        Words(
            en="`torch.where(mask, logp_train - logp_rollout, 0.0).sum(-1)`: the last axis "
            "is that of tokens.",
            zh="`torch.where(mask, logp_train - logp_rollout, 0.0).sum(-1)`：最后一维是"
            " token 维。",
        ),
    ),
    points=(1, 1),
    minutes=4,
    gradient=("logp_train",),
)
