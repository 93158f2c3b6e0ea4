"""The importance ratio of each token, as a training step uses it."""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from tinyrl.course.exercise import Case, Exercise, Mistakes
from tinyrl.course.exercises.lab01 import batch
from tinyrl.course.words import Words


def reference(logp_train: Tensor, logp_rollout: Tensor, mask: Tensor) -> Tensor:
    """Clean first, then exp: `where` after exp would let NaN into the gradient."""
    return torch.where(mask, logp_train - logp_rollout.detach(), 0.0).exp()


def _filled(logp_train: Tensor, logp_rollout: Tensor, mask: Tensor) -> Tensor:
    log_ratio = logp_train.masked_fill(~mask, 0.0) - logp_rollout.data.masked_fill(
        ~mask, 0.0
    )
    return torch.exp(log_ratio)


def _indexed(logp_train: Tensor, logp_rollout: Tensor, mask: Tensor) -> Tensor:
    ratio = torch.ones_like(logp_train)
    ratio[mask] = (logp_train[mask] - logp_rollout[mask].detach()).exp()
    return ratio


def _attached(logp_train: Tensor, logp_rollout: Tensor, mask: Tensor) -> Tensor:
    return torch.where(mask, logp_train - logp_rollout, 0.0).exp()


def _where_after(logp_train: Tensor, logp_rollout: Tensor, mask: Tensor) -> Tensor:
    return torch.where(mask, (logp_train - logp_rollout.detach()).exp(), 1.0)


def _quotient(logp_train: Tensor, logp_rollout: Tensor, mask: Tensor) -> Tensor:
    train = torch.where(mask, logp_train, 0.0).exp()
    return train / torch.where(mask, logp_rollout.detach(), 0.0).exp()


def _of_sequence(logp_train: Tensor, logp_rollout: Tensor, mask: Tensor) -> Tensor:
    delta = torch.where(mask, logp_train - logp_rollout.detach(), 0.0)
    return torch.where(mask, delta.sum(-1, keepdim=True).exp(), 1.0)


def _clamped(logp_train: Tensor, logp_rollout: Tensor, mask: Tensor) -> Tensor:
    return torch.where(mask, logp_train - logp_rollout.detach(), 0.0).clamp(-20, 20).exp()


def _delta(logp_train: Tensor, logp_rollout: Tensor, mask: Tensor) -> Tensor:
    return torch.where(mask, logp_train - logp_rollout.detach(), 0.0)


def _zero_on_padding(logp_train: Tensor, logp_rollout: Tensor, mask: Tensor) -> Tensor:
    return torch.where(mask, reference(logp_train, logp_rollout, mask), 0.0)


MISTAKES: Mistakes = {
    "inverted": (
        lambda logp_train, logp_rollout, mask: reference(logp_rollout, logp_train, mask),
        Words(
            en="The ratio is upside down. Samples came from the rollout policy, so its "
            "probability goes below: pi_train / pi_rollout.",
            zh="比值倒过来了。样本来自 rollout 策略，它的概率在分母：pi_train / pi_rollou"
            "t。",
        ),
    ),
    "no_exp": (
        _delta,
        Words(
            en="This is still delta, the log of the ratio. Take exp of it.",
            zh="这还是 delta，即比值的对数。还要取 exp。",
        ),
    ),
    "linear": (
        lambda logp_train, logp_rollout, mask: 1 + _delta(logp_train, logp_rollout, mask),
        Words(
            en="1 + delta is only the start of the series of exp. At delta = 0.5 it says "
            "1.5 where the ratio is 1.65, and it can turn negative.",
            zh="1 + delta 只是 exp 展开的前两项。delta = 0.5 时它给出 1.5，而真正的比值是"
            " 1.65；它甚至会变成负数。",
        ),
    ),
    "base_2": (
        lambda logp_train, logp_rollout, mask: torch.exp2(
            _delta(logp_train, logp_rollout, mask)
        ),
        Words(
            en="You raise 2 to the power of delta. Logprobs are natural logarithms: use "
            "exp.",
            zh="你算的是 2 的 delta 次方。logprob 是自然对数，应当用 exp。",
        ),
    ),
    "absolute": (
        lambda logp_train, logp_rollout, mask: (
            _delta(logp_train, logp_rollout, mask).abs().exp()
        ),
        Words(
            en="exp(|delta|) is never below 1. Where the trainer finds a token less likely "
            "than the sampler did, its ratio is.",
            zh="exp(|delta|) 永远不小于 1。而训练端认为概率更低的那些 token，比值应当小于"
            " 1。",
        ),
    ),
    "sequence_level": (
        _of_sequence,
        Words(
            en="Each token got the ratio of its whole sequence, exp of the sum of deltas. "
            "Here a token's ratio comes from its own delta.",
            zh="每个 token 都用了整条序列的比值（delta 之和的 exp）。这里每个 token 的比值"
            "只取决于它自己的 delta。",
        ),
    ),
    "clipped": (
        lambda logp_train, logp_rollout, mask: reference(
            logp_train, logp_rollout, mask
        ).clamp(0.8, 1.2),
        Words(
            en="The ratio is already clipped to [0.8, 1.2]. Clipping belongs to the loss; "
            "a clipped ratio can no longer show that something is wrong.",
            zh="比值已经被裁剪到 [0.8, 1.2]。裁剪是 loss 里的事；裁剪过的比值再也看不出哪"
            "里有问题。",
        ),
    ),
    "clamped": (
        _clamped,
        Words(
            en="Delta is clamped to [-20, 20] before exp. Trainers do that to survive; "
            "here it hides the worst tokens: show the ratio as it is.",
            zh="取 exp 之前把 delta 截到了 [-20, 20]。训练代码常用它保命，但在这里会掩盖最"
            "糟的 token：比值是多少就给多少。",
        ),
    ),
    "padding_kept": (
        lambda logp_train, logp_rollout, mask: (logp_train - logp_rollout.detach()).exp(),
        Words(
            en="The padding is still in. A padded position should have ratio 1: delta 0.",
            zh="padding 没有去掉。padding 处的 delta 应为 0，比值为 1。",
        ),
    ),
    "zero_on_padding": (
        _zero_on_padding,
        Words(
            en="On padding the ratio is 0. Asked for is 1, exp(0): no token, no "
            "difference. A 0 would drag down every mean and product in which it turns up.",
            zh="padding 处的比值成了 0。题目要求是 1，即 exp(0)：没有 token 就没有差异。0 "
            "会拉低所有用到它的平均和乘积。",
        ),
    ),
    "times_mask": (
        lambda logp_train, logp_rollout, mask: (
            (logp_train - logp_rollout.detach()) * mask
        ).exp(),
        Words(
            en="Multiplying by the mask does not remove NaN: NaN * 0 is NaN. Choose with "
            "`torch.where`.",
            zh="乘以 mask 去不掉 NaN：NaN * 0 还是 NaN。请用 `torch.where` 来选择。",
        ),
    ),
    "where_after_exp": (
        _where_after,
        Words(
            en="The values are right, the gradient is NaN on padding. `where` after `exp` "
            "hides the garbage, but backward still multiplies 0 by exp(NaN). Clean delta "
            "first, then take exp.",
            zh="数值正确，但 padding 处的梯度是 NaN。先 `exp` 再 `where` 只是把垃圾值藏了"
            "起来，反向传播仍会算 0 * exp(NaN)。要先清理 delta，再取 exp。",
        ),
    ),
    "attached_rollout": (
        _attached,
        Words(
            en="A gradient flows into logp_rollout. It is data, recorded when the token "
            "was sampled: `detach()` it. Where both come from one model, the two gradients "
            "cancel and nothing is learnt.",
            zh="梯度流进了 logp_rollout。它是采样时记录下来的数据，要 `detach()`。如果两边"
            "来自同一个模型，两份梯度会互相抵消，什么也学不到。",
        ),
    ),
    "detach": (
        lambda logp_train, logp_rollout, mask: reference(
            logp_train, logp_rollout, mask
        ).detach(),
        Words(
            en="The values are right, but no gradient reaches logp_train. This ratio is "
            "what the policy gradient flows through; only a correction weight is detached.",
            zh="数值正确，但梯度传不到 logp_train。策略梯度正是通过这个比值传播的；只有修"
            "正权重才需要 detach。",
        ),
    ),
    "quotient": (
        _quotient,
        Words(
            en="exp(logp_train) / exp(logp_rollout): both underflow to 0 in float32 for an "
            "unlikely token, and 0 / 0 is NaN. Subtract the logprobs first.",
            zh="exp(logp_train) / exp(logp_rollout)：小概率 token 在 float32 里都会下溢成"
            " 0，0 / 0 得到 NaN。请先把 logprob 相减。",
        ),
    ),
}

APART = Words(
    en="deltas of 80 and -80: one side finds the token impossible",
    zh="delta 为 80 和 -80：其中一边认为这个 token 几乎不可能",
)
UNLIKELY = Words(en="tokens of probability e^-120", zh="概率约为 e^-120 的 token")


def cases(generator: Generator) -> list[Case]:
    train, rollout, mask = batch.policies(generator)
    deep = (train - 120, rollout - 120, mask)
    apart = torch.tensor([[80.0, 0.0], [0.0, 80.0], [80.0, 0.0]]).repeat(1, 3)
    return [
        *batch.usual(generator),
        Case("numbers", UNLIKELY, deep),
        Case("numbers", APART, (train - apart, rollout - (80 - apart), mask)),
    ]


EXERCISE = Exercise(
    name="ratio",
    title=Words(en="The importance ratio", zh="重要性比率"),
    reference=reference,
    returns=("ratio",),
    cases=cases,
    mistakes=MISTAKES,
    alternatives={"masked_fill": _filled, "indexing": _indexed},
    hints=(
        Words(
            en="The ratio of two probabilities, given their logarithms. And: which of the "
            "two is a record of the past?",
            zh="已知两个概率的对数，怎样得到它们的比？另外想一想：哪一个是过去的记录？",
        ),
        Words(
            en="exp(logp_train - logp_rollout), with delta 0 on padding before exp, and "
            "logp_rollout detached.",
            zh="exp(logp_train - logp_rollout)；取 exp 之前先把 padding 处的 delta 置 0，"
            "并对 logp_rollout 做 detach。",
        ),
        Words(
            en="`torch.where(mask, logp_train - logp_rollout.detach(), 0.0)`, then `.exp()`"
            ".",
            zh="先 `torch.where(mask, logp_train - logp_rollout.detach(), 0.0)`，再 "
            "`.exp()`。",
        ),
    ),
    points=(1, 2),
    minutes=7,
    gradient=("logp_train",),
    data=("logp_rollout",),
)
