"""Token delta: how far two policies disagree on one token."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from tinyrl.course.exercise import Exercise, Mistakes
from tinyrl.course.exercises.lab01 import batch
from tinyrl.course.words import Words


def reference(logp_train: Tensor, logp_rollout: Tensor, mask: Tensor) -> Tensor:
    return torch.where(mask, logp_train - logp_rollout, 0.0)


def _filled(logp_train: Tensor, logp_rollout: Tensor, mask: Tensor) -> Tensor:
    return (logp_train - logp_rollout).masked_fill(~mask, 0.0)


def _indexed(logp_train: Tensor, logp_rollout: Tensor, mask: Tensor) -> Tensor:
    delta = torch.zeros_like(logp_train)
    delta[mask] = logp_train[mask] - logp_rollout[mask]
    return delta


MISTAKES: Mistakes = {
    "sign": (
        lambda logp_train, logp_rollout, mask: reference(logp_rollout, logp_train, mask),
        Words(
            en="The sign is turned round: delta = logp_train - logp_rollout, positive "
            "where the trainer finds the token likelier than the sampler did.",
            zh="符号反了：delta = logp_train - logp_rollout，训练端认为该 token 概率更高时"
            "为正。",
        ),
    ),
    "absolute": (
        lambda logp_train, logp_rollout, mask: reference(
            logp_train, logp_rollout, mask
        ).abs(),
        Words(
            en="An absolute value loses the sign, and with it the difference between "
            "noise, which cancels over a response, and bias, which adds up.",
            zh="取了绝对值就丢了符号，也就分不清噪声（沿序列会相互抵消）和偏差（会不断累加"
            "）。",
        ),
    ),
    "padding_kept": (
        lambda logp_train, logp_rollout, mask: logp_train - logp_rollout,
        Words(
            en="The padding is still in: those columns belong to no token and hold "
            "garbage. Put 0 there, by `mask`.",
            zh="padding 没有去掉：那些列不对应任何 token，里面是垃圾值。请按 `mask` 置 0。",
        ),
    ),
    "clamped": (
        lambda *args: reference(*args).clamp(-20, 20),
        batch.CLAMPED,
    ),
    "mask_inverted": (
        lambda logp_train, logp_rollout, mask: reference(logp_train, logp_rollout, ~mask),
        Words(
            en="The mask is the wrong way round: it is true on real tokens, and those are "
            "to be kept.",
            zh="mask 用反了：它在真实 token 上为 True，要保留的正是这些位置。",
        ),
    ),
    "times_mask": (
        lambda logp_train, logp_rollout, mask: (logp_train - logp_rollout) * mask,
        Words(
            en="Multiplying by the mask does not remove NaN or inf: NaN * 0 is NaN. Choose "
            "with `torch.where(mask, ..., 0.0)`.",
            zh="乘以 mask 去不掉 NaN 和 inf：NaN * 0 还是 NaN。请用 "
            "`torch.where(mask, ..., 0.0)` 来选择。",
        ),
    ),
    "ratio": (
        lambda logp_train, logp_rollout, mask: reference(
            logp_train, logp_rollout, mask
        ).exp(),
        Words(
            en="This is exp(delta), the ratio of the probabilities. Delta is the "
            "difference of the logprobs themselves.",
            zh="这是 exp(delta)，也就是概率之比。delta 是 logprob 本身的差。",
        ),
    ),
    "of_probabilities": (
        lambda logp_train, logp_rollout, mask: reference(
            logp_train.exp(), logp_rollout.exp(), mask
        ),
        Words(
            en="This is a difference of probabilities. It hides exactly the tokens that "
            "harm: 0.001 against 0.0001 differs by 0.0009, yet the ratio is 10.",
            zh="这是概率之差，恰好会掩盖最有害的 token：0.001 和 0.0001 只差 0.0009，比值"
            "却是 10。",
        ),
    ),
    "log2": (
        lambda logp_train, logp_rollout, mask: (
            reference(logp_train, logp_rollout, mask) / math.log(2)
        ),
        Words(
            en="Delta is in bits here. Logprobs are natural logarithms: leave them in "
            "nats.",
            zh="这里的 delta 换成了比特。logprob 用自然对数，单位应保持为 nat。",
        ),
    ),
    "summed": (
        lambda logp_train, logp_rollout, mask: reference(
            logp_train, logp_rollout, mask
        ).sum(-1),
        Words(
            en="This is the sum over the response, the next exercise. Here keep one number "
            "a token, [B, T].",
            zh="这是整条回答的和，属于下一题。这里每个 token 保留一个数，形状 [B, T]。",
        ),
    ),
    "detach": (
        lambda logp_train, logp_rollout, mask: reference(
            logp_train.detach(), logp_rollout, mask
        ),
        Words(
            en="The values are right, but no gradient reaches logp_train: `detach`, "
            "`no_grad` or numpy cuts it. A loss built on this delta could not train "
            "anything.",
            zh="数值正确，但梯度传不到 logp_train：被 `detach`、`no_grad` 或 numpy 切断"
            "了。用它写的 loss 训练不动任何参数。",
        ),
    ),
}

EXERCISE = Exercise(
    name="token_delta",
    title=Words(en="Token delta", zh="token 级差值"),
    reference=reference,
    returns=("token_delta",),
    cases=batch.usual,
    mistakes=MISTAKES,
    alternatives={"masked_fill": _filled, "indexing": _indexed},
    hints=(
        Words(
            en="Both arrays hold the logprob of the same token. What is left when you take "
            "the sampler's view away from the trainer's?",
            zh="两个数组存的是同一个 token 的 logprob。用训练端的值减去采样端的值，剩下什"
            "么？",
        ),
        Words(
            en="logp_train - logp_rollout, and 0 wherever the mask is false, whatever is "
            "there: NaN too.",
            zh="logp_train - logp_rollout；mask 为 False 的位置一律为 0，不管里面是什么，"
            "NaN 也一样。",
        ),
        Words(
            en="`torch.where(mask, a, 0.0)` takes `a` where the mask is true and 0 "
            "elsewhere.",
            zh="`torch.where(mask, a, 0.0)`：mask 为 True 处取 `a`，其余取 0。",
        ),
    ),
    points=(1, 1),
    minutes=4,
    gradient=("logp_train",),
)
