"""What PPO's ratio means when its old logprobs come from the rollout engine."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Generator, Tensor

from tinyrl.course.exercise import Case, Exercise, Function, Mistakes
from tinyrl.course.exercises.lab01 import batch
from tinyrl.course.words import Words

Three = tuple[Tensor, Tensor, Tensor]


def _exp(delta: Tensor, mask: Tensor) -> Tensor:
    return torch.where(mask, delta, 0.0).exp()


def reference(
    logp_train: Tensor, logp_train_old: Tensor, logp_rollout: Tensor, mask: Tensor
) -> Three:
    old, rollout = logp_train_old.detach(), logp_rollout.detach()
    merged = _exp(logp_train - rollout, mask)
    return merged, _exp(logp_train - old, mask), _exp(old - rollout, mask)


def _product(
    logp_train: Tensor, logp_train_old: Tensor, logp_rollout: Tensor, mask: Tensor
) -> Three:
    zero = torch.zeros(())
    new = torch.where(mask, logp_train, zero)
    old = torch.where(mask, logp_train_old, zero).detach()
    rollout = torch.where(mask, logp_rollout, zero).detach()
    drift, mismatch = (new - old).exp(), (old - rollout).exp()
    return drift * mismatch, drift, mismatch


def _indexed(
    logp_train: Tensor, logp_train_old: Tensor, logp_rollout: Tensor, mask: Tensor
) -> Three:
    def exp(a: Tensor, b: Tensor) -> Tensor:
        out = torch.ones_like(logp_train)
        out[mask] = (a[mask] - b[mask].detach()).exp()
        return out

    old = logp_train_old.detach()
    return exp(logp_train, logp_rollout), exp(logp_train, old), exp(old, logp_rollout)


def _but(change: Callable[[Tensor, Tensor, Tensor], Three]) -> Function:
    """The right answer, but for what `change` makes of merged, drift and mismatch."""

    def wrong(*args: Tensor) -> Three:
        return change(*reference(*args))

    return wrong


def _padding_kept(
    logp_train: Tensor, logp_train_old: Tensor, logp_rollout: Tensor, mask: Tensor
) -> Three:
    return reference(logp_train, logp_train_old, logp_rollout, torch.ones_like(mask))


def _zero_on_padding(*args: Tensor) -> Three:
    merged, drift, mismatch = reference(*args)
    return merged * args[3], drift * args[3], mismatch * args[3]


def _where_after(
    logp_train: Tensor, logp_train_old: Tensor, logp_rollout: Tensor, mask: Tensor
) -> Three:
    old, rollout = logp_train_old.detach(), logp_rollout.detach()
    merged = torch.where(mask, (logp_train - rollout).exp(), 1.0)
    drift = torch.where(mask, (logp_train - old).exp(), 1.0)
    return merged, drift, torch.where(mask, (old - rollout).exp(), 1.0)


def _attached(
    logp_train: Tensor, logp_train_old: Tensor, logp_rollout: Tensor, mask: Tensor
) -> Three:
    merged = _exp(logp_train - logp_rollout, mask)
    drift = _exp(logp_train - logp_train_old, mask)
    return merged, drift, _exp(logp_train_old - logp_rollout, mask)


def _detached(logp_train: Tensor, *others: Tensor) -> Three:
    return reference(logp_train.detach(), *others)


MISTAKES: Mistakes = {
    "swapped": (
        _but(lambda merged, drift, mismatch: (merged, mismatch, drift)),
        Words(
            en="drift and mismatch are swapped. Drift is how far the trainer has moved "
            "since the samples were taken; mismatch is how far apart the two engines were "
            "then.",
            zh="drift 和 mismatch 写反了。drift 是采样之后训练端自己走了多远；mismatch 是"
            "采样那一刻两个引擎差多少。",
        ),
    ),
    "mismatch_inverted": (
        _but(lambda merged, drift, mismatch: (merged, drift, 1 / mismatch)),
        Words(
            en="mismatch is upside down: drift * mismatch would not give the merged ratio. "
            "The sampler's probability goes below.",
            zh="mismatch 倒过来了：drift * mismatch 得不到合并的比值。采样端的概率应在分"
            "母。",
        ),
    ),
    "all_inverted": (
        _but(lambda merged, drift, mismatch: (1 / merged, 1 / drift, 1 / mismatch)),
        Words(
            en="All three are upside down. The policy that came first, and gave the "
            "samples, goes below.",
            zh="三个都倒过来了。先有的、产生样本的那个策略应在分母。",
        ),
    ),
    "drift_from_rollout": (
        _but(lambda merged, drift, mismatch: (merged, merged, mismatch)),
        Words(
            en="Your drift is anchored at the rollout engine, so it is the merged ratio "
            "again. Anchor it at the trainer's own old logprobs: then it is 1 before the "
            "first step.",
            zh="你的 drift 以 rollout 引擎为锚，得到的还是合并的比值。应以训练端自己的旧"
            " logprob 为锚：这样第一步之前它恰好是 1。",
        ),
    ),
    "mismatch_from_new": (
        _but(lambda merged, drift, mismatch: (merged, drift, merged)),
        Words(
            en="Your mismatch uses the trainer's current logprobs, so it moves with every "
            "update. It belongs to the moment of sampling: logp_train_old.",
            zh="你的 mismatch 用了训练端当前的 logprob，会随更新变化。它属于采样那一刻，应"
            "当用 logp_train_old。",
        ),
    ),
    "merged_from_old": (
        _but(lambda merged, drift, mismatch: (drift, drift, mismatch)),
        Words(
            en="Your merged ratio leaves the rollout engine out. Merged is what PPO sees "
            "when its `old` logprobs are the rollout's.",
            zh="你的 merged 里没有 rollout 引擎。merged 指的是：PPO 把 rollout 的 logprob "
            "当作 old 时看到的比值。",
        ),
    ),
    "added": (
        _but(lambda merged, drift, mismatch: (drift + mismatch, drift, mismatch)),
        Words(
            en="You add drift and mismatch. Logs add, so ratios multiply.",
            zh="你把 drift 和 mismatch 加了起来。对数相加，比值相乘。",
        ),
    ),
    "no_exp": (
        _but(lambda merged, drift, mismatch: (merged.log(), drift.log(), mismatch.log())),
        Words(
            en="These are the logs of the three ratios; take exp.",
            zh="这是三个比值的对数，还要取 exp。",
        ),
    ),
    "padding_kept": (
        _padding_kept,
        Words(
            en="The padding is still in: all three ratios are 1 there.",
            zh="padding 没有去掉：三个比值在那里都应为 1。",
        ),
    ),
    "zero_on_padding": (
        _zero_on_padding,
        Words(
            en="On padding the ratios are 0; they should be 1, exp(0).",
            zh="padding 处的比值成了 0，应当是 1，即 exp(0)。",
        ),
    ),
    "where_after_exp": (
        _where_after,
        Words(
            en="The values are right, the gradient is NaN on padding: `where` after `exp` "
            "does not stop 0 * NaN on the way back. Clean the difference before exp.",
            zh="数值正确，但 padding 处的梯度是 NaN：先 `exp` 再 `where` 挡不住反向时的"
            " 0 * NaN。要在取 exp 之前清理差值。",
        ),
    ),
    "attached": (
        _attached,
        Words(
            en="A gradient flows into the old or the rollout logprobs. Both are records of "
            "the past: `detach()` them. Only logp_train is trained.",
            zh="梯度流进了旧的训练端 logprob 或 rollout logprob。两者都是过去的记录，要 "
            "`detach()`；只有 logp_train 在被训练。",
        ),
    ),
    "detach": (
        _detached,
        Words(
            en="The values are right, but no gradient reaches logp_train: merged and drift "
            "have to carry one.",
            zh="数值正确，但梯度传不到 logp_train：merged 和 drift 都应当带梯度。",
        ),
    ),
}

FIRST_STEP = Words(
    en="before the first update the trainer has not moved: drift is 1",
    zh="第一次更新之前训练端没有动过：drift 为 1",
)
NO_MISMATCH = Words(
    en="both engines agreed when sampling: mismatch is 1",
    zh="采样时两个引擎一致：mismatch 为 1",
)
SURE = Words(
    en="a token of probability 1 on each of the three sides",
    zh="三边各有一个概率为 1 的 token",
)
FAR = Words(
    en="on each side a response of tokens of probability e^-60",
    zh="三边各有一条回答，它的 token 概率都是 e^-60",
)


def cases(generator: Generator) -> list[Case]:
    train, old, rollout, mask = batch.policies(generator, sides=3)
    by_hand = batch.ROLLOUT + torch.tensor([[0.2, 0.0, 0.1], [-0.1, 0.3, 0.0]])
    *far, far_mask = batch.policies(generator, rows=3, columns=4, sides=3)
    for row, side in enumerate(far):
        side[row] -= 60
    *sure, some = batch.policies(generator, sides=3, rows=5, columns=9)
    for row, side in enumerate(sure):
        side[row, 0] = 0.0
    return [
        Case("example", batch.BY_HAND, (batch.TRAIN, by_hand, batch.ROLLOUT, batch.MASK)),
        Case("property", FIRST_STEP, (old, old, rollout, mask)),
        Case("property", NO_MISMATCH, (train, rollout, rollout, mask)),
        Case("inputs", batch.RANDOM, batch.policies(generator, sides=3)),
        Case("inputs", SURE, (*sure, some)),
        Case("padding", batch.NAN, batch.policies(generator, sides=3, padding="nan")),
        Case("padding", batch.INF, batch.policies(generator, sides=3, padding="inf")),
        Case("gradient", batch.GRADIENT, batch.policies(generator, sides=3, padding="nan")),
        Case("numbers", FAR, (*far, far_mask)),
    ]


EXERCISE = Exercise(
    name="ratio_parts",
    title=Words(
        en="PPO's ratio, wrong old logprobs",
        zh="用错 old logprob 的 PPO 比值",
    ),
    reference=reference,
    returns=("merged", "drift", "mismatch"),
    cases=cases,
    mistakes=MISTAKES,
    alternatives={"product": _product, "indexing": _indexed},
    hints=(
        Words(
            en="There are three logprobs of one token: the sampler's, the trainer's at the "
            "same moment, the trainer'"
            "s now. Which pair differs by engine, which by training?",
            zh="同一个 token 有三个 logprob：采样端的、同一时刻训练端的、训练端现在的。哪"
            "一对之差来自引擎，哪一对之差来自训练？",
        ),
        Words(
            en="drift = exp(train - train_old), mismatch = exp(train_old - rollout), and "
            "merged = exp(train - rollout) is their product.",
            zh="drift = exp(train - train_old)，mismatch = exp(train_old - rollout)，"
            "merged = exp(train - rollout) 是两者之积。",
        ),
        Words(
            en="Write one helper, `exp(where(mask, a - b, 0.0))`, and call it three times "
            "with `.detach()` on what is past. Return merged, drift, mismatch.",
            zh="写一个小函数 `exp(where(mask, a - b, 0.0))`，调用三次；过去的量加 "
            "`.detach()`。返回 merged, drift, mismatch。",
        ),
    ),
    points=(1, 2),
    minutes=8,
    gradient=("logp_train",),
    data=("logp_train_old", "logp_rollout"),
)
