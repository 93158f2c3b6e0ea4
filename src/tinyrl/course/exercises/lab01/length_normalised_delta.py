"""Length-normalised delta: disagreement a token, comparable between long and short."""

from __future__ import annotations

import torch
from torch import Tensor

from tinyrl.course.exercise import Exercise, Mistakes
from tinyrl.course.exercises.lab01 import batch
from tinyrl.course.words import Words


def _token_delta(logp_train: Tensor, logp_rollout: Tensor, mask: Tensor) -> Tensor:
    return torch.where(mask, logp_train - logp_rollout, 0.0)


def reference(logp_train: Tensor, logp_rollout: Tensor, mask: Tensor) -> Tensor:
    return _token_delta(logp_train, logp_rollout, mask).sum(-1) / mask.sum(-1)


def _by_rows(logp_train: Tensor, logp_rollout: Tensor, mask: Tensor) -> Tensor:
    rows = zip(logp_train, logp_rollout, mask, strict=True)
    return torch.stack([(train[m] - rollout[m]).mean() for train, rollout, m in rows])


def _weighted(logp_train: Tensor, logp_rollout: Tensor, mask: Tensor) -> Tensor:
    weight = mask / mask.sum(-1, keepdim=True)
    delta = (logp_train - logp_rollout).masked_fill(~mask, 0.0)
    return torch.einsum("bt,bt->b", delta, weight.to(delta.dtype))


def _all_columns(logp_train: Tensor, logp_rollout: Tensor, mask: Tensor) -> Tensor:
    return _token_delta(logp_train, logp_rollout, mask).mean(-1)


def _mean_length(logp_train: Tensor, logp_rollout: Tensor, mask: Tensor) -> Tensor:
    length = mask.sum(-1).float().mean()
    return _token_delta(logp_train, logp_rollout, mask).sum(-1) / length


def _nonzero(logp_train: Tensor, logp_rollout: Tensor, mask: Tensor) -> Tensor:
    delta = _token_delta(logp_train, logp_rollout, mask)
    return delta.sum(-1) / (delta != 0).sum(-1)


MISTAKES: Mistakes = {
    "sign": (
        lambda logp_train, logp_rollout, mask: reference(logp_rollout, logp_train, mask),
        Words(
            en="The sign is turned round: trainer minus sampler.",
            zh="符号反了：应当是训练端减采样端。",
        ),
    ),
    "all_columns": (
        _all_columns,
        Words(
            en="You divide by all T columns, padding included. A short response in a wide "
            "batch then looks better aligned than it is. Divide by its own length.",
            zh="你除以了全部 T 列，把 padding 也算进了长度。短回答放进宽 batch 里就会显得"
            "更一致。应当除以它自己的长度。",
        ),
    ),
    "sum": (
        lambda logp_train, logp_rollout, mask: _token_delta(
            logp_train, logp_rollout, mask
        ).sum(-1),
        Words(
            en="This is the sum: the length has not been divided out, so long responses "
            "look worse only because they are long.",
            zh="这是和，还没有除以长度；长回答只是因为长才显得差。",
        ),
    ),
    "mean_length": (
        _mean_length,
        Words(
            en="You divide every row by the mean length of the batch. Each response has "
            "its own length, `mask.sum(-1)`.",
            zh="每一行都除以了 batch 的平均长度。每条回答要除以自己的长度 `mask.sum(-1)`。",
        ),
    ),
    "nonzero_counted": (_nonzero, batch.NONZERO),
    "one_number": (
        lambda logp_train, logp_rollout, mask: (
            _token_delta(logp_train, logp_rollout, mask).sum() / mask.sum()
        ),
        Words(
            en="This is the mean over all tokens of the batch. Keep one number a response, "
            "[B].",
            zh="这是整个 batch 所有 token 的平均。应当每条回答一个数，形状 [B]。",
        ),
    ),
    "padding_counted": (
        lambda logp_train, logp_rollout, mask: (logp_train - logp_rollout).mean(-1),
        Words(
            en="The padding is counted, in the sum and in the length. Both have to come "
            "from the real tokens.",
            zh="padding 既进了分子，也进了长度。两者都只能来自真实 token。",
        ),
    ),
    "padding_in_sum": (
        lambda logp_train, logp_rollout, mask: (
            (logp_train - logp_rollout).sum(-1) / mask.sum(-1)
        ),
        Words(
            en="The length is right, but the padding is still in the sum.",
            zh="长度对了，但 padding 还在分子的和里。",
        ),
    ),
    "times_mask": (
        lambda logp_train, logp_rollout, mask: (
            ((logp_train - logp_rollout) * mask).sum(-1) / mask.sum(-1)
        ),
        Words(
            en="Multiplying by the mask does not remove NaN: NaN * 0 is NaN. Choose with "
            "`torch.where`.",
            zh="乘以 mask 去不掉 NaN：NaN * 0 还是 NaN。请用 `torch.where` 来选择。",
        ),
    ),
    "geometric_ratio": (
        lambda logp_train, logp_rollout, mask: reference(
            logp_train, logp_rollout, mask
        ).exp(),
        Words(
            en="This is exp of it, the geometric mean of the token ratios (GSPO's ratio). "
            "Here stay in log space.",
            zh="这是它的 exp，即 token 比值的几何平均（GSPO 的 ratio）。这里先留在对数空"
            "间。",
        ),
    ),
    "log_mean_ratio": (
        lambda logp_train, logp_rollout, mask: (
            torch.where(mask, _token_delta(logp_train, logp_rollout, mask).exp(), 0.0).sum(
                -1
            )
            / mask.sum(-1)
        ).log(),
        Words(
            en="This is the log of the mean ratio. Mean and log do not commute: it is "
            "never smaller than the mean of the deltas (Jensen). Average the deltas "
            "themselves.",
            zh="这是平均比值的对数。平均和对数不能交换：由 Jensen 不等式，它不小于 delta "
            "的平均。请直接平均 delta。",
        ),
    ),
    "square_root": (
        lambda logp_train, logp_rollout, mask: (
            _token_delta(logp_train, logp_rollout, mask).sum(-1) / mask.sum(-1).sqrt()
        ),
        Words(
            en="You divide by the square root of the length. That is how the noise of a "
            "sum grows; a mean divides by the length.",
            zh="你除以了长度的平方根。那是和的噪声随长度增长的速度；求平均要除以长度本身。",
        ),
    ),
    "clamped": (
        lambda *args: _token_delta(*args).clamp(-20, 20).sum(-1) / args[2].sum(-1),
        batch.CLAMPED,
    ),
    "detach": (
        lambda logp_train, logp_rollout, mask: reference(
            logp_train.detach(), logp_rollout, mask
        ),
        Words(
            en="The values are right, but no gradient reaches logp_train: something "
            "detaches.",
            zh="数值正确，但梯度传不到 logp_train：中间被切断了。",
        ),
    ),
}

EXERCISE = Exercise(
    name="length_normalised_delta",
    title=Words(en="Length-normalised delta", zh="按长度归一的差值"),
    reference=reference,
    returns=("length_normalised_delta",),
    cases=batch.usual,
    mistakes=MISTAKES,
    alternatives={"row_by_row": _by_rows, "weights": _weighted},
    hints=(
        Words(
            en="Two responses of 10 and 1000 tokens, each token off by 0.01. Their "
            "sequence deltas are 0.1 and 10. Which number says that they are equally bad?",
            zh="两条回答分别有 10 和 1000 个 token，每个 token 都差 0.01，序列 delta 是"
            " 0.1 和 10。哪个数能说明它们一样差？",
        ),
        Words(
            en="Divide each response's sequence delta by the number of its own real "
            "tokens.",
            zh="每条回答的序列 delta 除以它自己的真实 token 数。",
        ),
        Words(
            en="The number of real tokens of each row is `mask.sum(-1)`.",
            zh="每一行的真实 token 数是 `mask.sum(-1)`。",
        ),
    ),
    points=(1, 1),
    minutes=4,
    gradient=("logp_train",),
)
