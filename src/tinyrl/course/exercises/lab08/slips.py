"""Slips that are easy to make: each is a line beside the idea of its exercise."""

from __future__ import annotations

import torch
from torch import Tensor

from tinyrl.course.exercise import Function
from tinyrl.course.exercises.lab08.losses import log_ratio
from tinyrl.course.words import Words

Slips = dict[str, tuple[Function, Words]]


def _ppo_no_exp(*args: Tensor) -> Tensor:
    logp, old, A, mask, low, high, dual = args
    d, A = log_ratio(logp, old, mask), A[:, None]
    loss = torch.maximum(-d * A, -d.clamp(1 - low, 1 + high) * A)
    return torch.where(mask, torch.where(A < 0, torch.minimum(loss, -dual * A), loss), 0.0)


PPO: Slips = {
    "no_exp": (
        _ppo_no_exp,
        Words(
            en="You clip the difference of the logprobs. The ratio is its exp.",
            zh="你裁剪的是 logprob 之差。比值是它的 exp。",
        ),
    ),
}


def _stopped(*args: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Good and bad tokens that are stopped, and the advantages as a column."""
    logp, old, A, mask, low, high = args
    r, A = log_ratio(logp, old, mask).exp(), A[:, None]
    return (A > 0) & mask & (r > 1 + high), (A < 0) & mask & (r < 1 - low), A


def _responses(*args: Tensor) -> tuple[Tensor, Tensor]:
    good, bad, A = _stopped(*args)
    return (
        good.any(1).sum() / (A > 0).sum().clamp(min=1),
        bad.any(1).sum() / (A < 0).sum().clamp(min=1),
    )


def _of_the_stopped(*args: Tensor) -> tuple[Tensor, Tensor]:
    good, bad, _ = _stopped(*args)
    n = (good | bad).sum().clamp(min=1)
    return good.sum() / n, bad.sum() / n


STOPPED: Slips = {
    "responses": (
        _responses,
        Words(
            en="You count responses in which some token is stopped. Count tokens, below as "
            "well as above.",
            zh="你数的是有 token 被拦下的回答。分子和分母都应当数 token。",
        ),
    ),
    "of_the_stopped": (
        _of_the_stopped,
        Words(
            en="You divide by the tokens that are stopped: your two numbers add up to 1. "
            "Divide the good ones by all good tokens, the bad ones by all bad tokens.",
            zh="你除以了被拦下的 token 数，两个数之和总是 1。好的应除以全部好 token，坏的除"
            "以全部坏 token。",
        ),
    ),
}


def _own_ratio(logp: Tensor, logp_old: Tensor, mask: Tensor) -> Tensor:
    d = log_ratio(logp, logp_old, mask)
    s = (d.sum(1, keepdim=True) / mask.sum(1, keepdim=True)).exp().detach()
    return torch.where(mask, s * d.exp(), 1.0)


def _unscaled(logp: Tensor, logp_old: Tensor, mask: Tensor) -> Tensor:
    d, own = log_ratio(logp, logp_old, mask), torch.where(mask, logp, 0.0)
    s = (d.sum(1, keepdim=True) / mask.sum(1, keepdim=True)).exp().detach()
    return torch.where(mask, s + own - own.detach(), 1.0)


GSPO: Slips = {
    "own_ratio": (
        _own_ratio,
        Words(
            en="You multiply s by the token's own ratio. Beside s stands pi / sg[pi], "
            "which is 1 in value: the trainer's probability over itself, not over the old "
            "one.",
            zh="你把 s 乘上了 token 自己的比值。s 旁边的是 pi / sg[pi]，数值为 1：训练策略"
            "的概率除以它自己，不是除以旧策略的。",
        ),
    ),
    "unscaled": (
        _unscaled,
        Words(
            en="The values are right, the gradient lacks the factor s: add in the "
            "exponent, or multiply s by exp(logp - logp.detach()).",
            zh="数值正确，但梯度少了因子 s：应当在指数里相加，或者把 s 乘以 exp(logp - "
            "logp.detach())。",
        ),
    ),
}


def _grouped(R: Tensor, out: Tensor) -> Tensor:
    same = R.amax(1, keepdim=True) == R.amin(1, keepdim=True)
    return torch.where(same, 0.0, out).reshape(-1)


def _in_the_root(rewards: Tensor, group_size: int, correction: int) -> Tensor:
    R = rewards.view(-1, group_size)
    var = R.var(1, correction=correction, keepdim=True)
    return _grouped(R, (R - R.mean(1, keepdim=True)) / (var + 1e-6).sqrt())


def _as_floor(rewards: Tensor, group_size: int, correction: int) -> Tensor:
    R = rewards.view(-1, group_size)
    std = R.std(1, correction=correction, keepdim=True)
    return _grouped(R, (R - R.mean(1, keepdim=True)) / std.clamp(min=1e-6))


def _turned(rewards: Tensor, group_size: int, correction: int) -> Tensor:
    R = rewards.view(-1, group_size)
    std = R.std(1, correction=1 - correction, keepdim=True)
    return _grouped(R, (R - R.mean(1, keepdim=True)) / (std + 1e-6))


def _other_view(rewards: Tensor, group_size: int, correction: int) -> Tensor:
    R = rewards.view(group_size, -1)
    std = R.std(1, correction=correction, keepdim=True)
    return _grouped(R, (R - R.mean(1, keepdim=True)) / (std + 1e-6))


GROUPS: Slips = {
    "eps_in_the_root": (
        _in_the_root,
        Words(
            en="1e-6 stands under the root, next to the variance: there it counts as 1e-3. "
            "It is added to the deviation.",
            zh="1e-6 加在了根号里的方差上，相当于 1e-3。它应当加在标准差上。",
        ),
    ),
    "eps_as_floor": (
        _as_floor,
        Words(
            en="1e-6 is your lower bound of the deviation. It is added to it.",
            zh="你把 1e-6 当成标准差的下限。它应当加在标准差上。",
        ),
    ),
    "correction_turned": (
        _turned,
        Words(
            en="You divide by n where `correction` is 1, and by n - 1 where it is 0.",
            zh="`correction` 为 1 时你除以 n，为 0 时除以 n - 1，正好反了。",
        ),
    ),
    "other_view": (
        _other_view,
        Words(
            en="Your groups have the wrong size: `group_size` is how many responses a "
            "group has, the columns of `view(-1, group_size)`, not how many groups there "
            "are.",
            zh="你的组大小不对：`group_size` 是每组的回答数，即 `view(-1, group_size)` 的列"
            "数，不是组数。",
        ),
    ),
}


def _gated(inside: int, by_ratio: bool) -> Function:
    def wrong(*args: Tensor) -> Tensor:
        logp, old, A, mask, pos, neg = args
        r, A = log_ratio(logp, old, mask).exp(), A[:, None]
        tau = torch.where(A > 0, A.new_tensor(pos), A.new_tensor(neg))
        loss = -4 / tau * torch.sigmoid(inside * tau * (r - 1)) * A
        return torch.where(mask, loss * r if by_ratio else loss, 0.0)

    return wrong


SAPO: Slips = {
    "turned": (
        _gated(-1, by_ratio=False),
        Words(
            en="The gate is turned round: it rises with r, sigmoid(tau (r - 1)).",
            zh="门的方向反了：它应随 r 上升，即 sigmoid(tau (r - 1))。",
        ),
    ),
    "times_ratio": (
        _gated(1, by_ratio=True),
        Words(
            en="You multiply the ratio by the gate. The gate stands in its place: r is "
            "only inside the sigmoid.",
            zh="你把比值乘上了门。门代替了比值：r 只出现在 sigmoid 里面。",
        ),
    ),
}


def _log_ratio(*args: Tensor) -> Tensor:
    logp, old, A, mask, lower, upper = args
    d = log_ratio(logp, old, mask)
    return torch.where(mask, -d.exp().clamp(lower, upper).detach() * A[:, None] * d, 0.0)


CISPO: Slips = {
    "log_ratio": (
        _log_ratio,
        Words(
            en="Beside the weight stands the logprob of the policy, not its difference to "
            "the old one. The gradient is the same, the loss is another.",
            zh="权重旁边应是策略自己的 logprob，不是它与旧值之差。梯度相同，损失不同。",
        ),
    ),
}
