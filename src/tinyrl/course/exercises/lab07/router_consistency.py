"""A penalty that draws the trainer's router to the rollout's."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from tinyrl.course.exercise import Case, Exercise, Function, Mistakes
from tinyrl.course.exercises.lab01.batch import NAN, RANDOM, mask_of
from tinyrl.course.exercises.lab07.routed import router_logits
from tinyrl.course.words import Words


def _kl(from_: Tensor, to: Tensor) -> Tensor:
    """KL(softmax(from_) || softmax(to)) over the last axis."""
    logq, logp = from_.log_softmax(-1), to.log_softmax(-1)
    return (logq.exp() * (logq - logp)).sum(-1)


def reference(logits_train: Tensor, logits_rollout: Tensor, mask: Tensor) -> Tensor:
    return _kl(logits_rollout.detach()[mask], logits_train[mask]).mean()


def _with_kl_div(logits_train: Tensor, logits_rollout: Tensor, mask: Tensor) -> Tensor:
    logp, logq = logits_train[mask].log_softmax(-1), logits_rollout[mask].log_softmax(-1)
    return F.kl_div(logp, logq.detach(), reduction="batchmean", log_target=True)


def _with_where(logits_train: Tensor, logits_rollout: Tensor, mask: Tensor) -> Tensor:
    train = torch.where(mask[..., None], logits_train, 0.0)
    rollout = torch.where(mask[..., None], logits_rollout.detach(), 0.0)
    q = rollout.softmax(-1)
    difference = train.logsumexp(-1) - rollout.logsumexp(-1)
    return ((q * (rollout - train)).sum(-1) + difference).sum() / mask.sum()


def _of(term: Callable[[Tensor, Tensor], Tensor]) -> Function:
    """The mean over real tokens of `term(train [n, E], rollout [n, E])`."""

    def wrong(logits_train: Tensor, logits_rollout: Tensor, mask: Tensor) -> Tensor:
        return term(logits_train[mask], logits_rollout.detach()[mask]).mean()

    return wrong


def _cross_entropy(train: Tensor, rollout: Tensor) -> Tensor:
    return -(rollout.softmax(-1) * train.log_softmax(-1)).sum(-1)


def _js(train: Tensor, rollout: Tensor) -> Tensor:
    middle = (train.softmax(-1) + rollout.softmax(-1)).log() - torch.tensor(2.0).log()
    return (_kl(train, middle) + _kl(rollout, middle)) / 2


def _underflows(train: Tensor, rollout: Tensor) -> Tensor:
    p, q = train.softmax(-1), rollout.softmax(-1)
    return (q * (q.log() - p.log())).sum(-1)


def _per_response(logits_train: Tensor, logits_rollout: Tensor, mask: Tensor) -> Tensor:
    return reference(logits_train, logits_rollout, mask) * mask.sum() / len(mask)


def _all_columns(logits_train: Tensor, logits_rollout: Tensor, mask: Tensor) -> Tensor:
    return reference(logits_train, logits_rollout, mask) * mask.sum() / mask.numel()


def _padding_counted(logits_train: Tensor, logits_rollout: Tensor, mask: Tensor) -> Tensor:
    return reference(logits_train, logits_rollout, torch.ones_like(mask))


def _where_after(logits_train: Tensor, logits_rollout: Tensor, mask: Tensor) -> Tensor:
    kl = _kl(logits_rollout.detach(), logits_train)
    return torch.where(mask, kl, 0.0).sum() / mask.sum()


def _attached(logits_train: Tensor, logits_rollout: Tensor, mask: Tensor) -> Tensor:
    return _kl(logits_rollout[mask], logits_train[mask]).mean()


def _by_distributions(logits_train: Tensor, logits_rollout: Tensor, mask: Tensor) -> Tensor:
    """torch's own: infinite where a probability of p has underflowed."""
    q, p = (x[mask].log_softmax(-1) for x in (logits_rollout.detach(), logits_train))
    kl = torch.where(p.exp() == 0, torch.inf, q.exp() * (q - p))
    return torch.where(q.exp() == 0, 0.0, kl).sum(-1).mean()


MISTAKES: Mistakes = {
    "reversed": (
        _of(lambda train, rollout: _kl(train, rollout)),
        Words(
            en="The KL is the wrong way round. The rollout took the path, so the average "
            "is over its probabilities: KL(rollout || train).",
            zh="KL 的方向反了。路径是采样端走的，应当按采样端的概率取平均：KL(rollout || "
            "train)。",
        ),
    ),
    "per_expert": (
        _of(lambda train, rollout: _kl(rollout, train) / train.shape[-1]),
        Words(
            en="You also divide by the number of experts, as `F.kl_div` does by default "
            "(`reduction='mean'`). A KL is a sum over experts.",
            zh="你还除以了专家数，`F.kl_div` 默认的 `reduction='mean'` 就是这样。KL 应当对"
            "专家求和。",
        ),
    ),
    "per_response": (
        _per_response,
        Words(
            en="You divide by the number of responses, as `batchmean` of a `[B, T, E]` "
            "array does. Divide by the number of real tokens.",
            zh="你除以了回答的条数（对 `[B, T, E]` 用 `batchmean` 就会这样）。应当除以真实"
            " token 数。",
        ),
    ),
    "cross_entropy": (
        _of(_cross_entropy),
        Words(
            en="This is the cross-entropy. It has the same gradient, but it is not 0 when "
            "the routers agree: the rollout's own entropy is missing.",
            zh="这是交叉熵。梯度相同，但两个路由器一致时它不为 0：少减了采样端自身的熵。",
        ),
    ),
    "squared_logits": (
        _of(lambda train, rollout: ((train - rollout) ** 2).mean(-1)),
        Words(
            en="This is the squared difference of the logits. Logits shifted by a constant "
            "are the same router; a KL knows that.",
            zh="这是 logits 的均方差。整体平移的 logits 是同一个路由器，KL 能看出这一点。",
        ),
    ),
    "squared_probabilities": (
        _of(
            lambda train, rollout: ((train.softmax(-1) - rollout.softmax(-1)) ** 2).sum(-1)
        ),
        Words(
            en="This is the squared difference of the probabilities, not their KL.",
            zh="这是概率差的平方，不是 KL。",
        ),
    ),
    "jensen_shannon": (
        _of(_js),
        Words(
            en="This is the Jensen-Shannon divergence, symmetric and at most log 2. Asked "
            "for is the KL from the rollout to the trainer.",
            zh="这是 Jensen-Shannon 散度，对称且不超过 log 2。题目要的是从采样端到训练端的"
            " KL。",
        ),
    ),
    "base_2": (
        _of(lambda train, rollout: _kl(rollout, train) / torch.tensor(2.0).log()),
        Words(
            en="This is in bits. Here everything is in nats, natural logarithms.",
            zh="这是以 bit 为单位的。这里统一用自然对数（nat）。",
        ),
    ),
    "all_columns": (
        _all_columns,
        Words(
            en="You divide by B * T, padding included. Divide by the real tokens.",
            zh="你除以了 B * T，包含 padding。应当除以真实 token 数。",
        ),
    ),
    "padding_counted": (
        _padding_counted,
        Words(
            en="The padding is counted: its logits are garbage. Use the mask.",
            zh="把 padding 也算进去了：那里的 logits 是垃圾值。请用 mask。",
        ),
    ),
    "where_after": (
        _where_after,
        Words(
            en="The value is right, the gradient is NaN: `where` after the KL hides the "
            "garbage, and backward still goes through it. Select the real tokens first.",
            zh="数值正确，但梯度是 NaN：在 KL 之后才用 `where` 只是藏起了垃圾值，反向传播"
            "仍会经过它。请先选出真实 token。",
        ),
    ),
    "attached": (
        _attached,
        Words(
            en="A gradient flows into logits_rollout. They were recorded when the tokens "
            "were sampled: `detach()` them. Only the trainer's router is to move.",
            zh="梯度流进了 logits_rollout。它们是采样时记录的，要 `detach()`。只应当移动训"
            "练端的路由器。",
        ),
    ),
    "detach": (
        lambda train, rollout, mask: reference(train, rollout, mask).detach(),
        Words(
            en="The value is right, but no gradient reaches logits_train: a penalty "
            "without one changes nothing.",
            zh="数值正确，但梯度传不到 logits_train：没有梯度的惩罚项不起作用。",
        ),
    ),
    "underflows": (
        _of(_underflows),
        Words(
            en="Your log probabilities are not finite: log(softmax(x)) is -inf where a "
            "probability underflows, and log(sum(exp(x))) overflows unless each token's "
            "own maximum is subtracted. `log_softmax` stays finite.",
            zh="你的对数概率不是有限数：log(softmax(x)) 在概率下溢时得 -inf，log(sum(exp(x"
            "))) 若不减去每个 token 自己的最大值就会溢出。用 `log_softmax` 就不会。",
        ),
    ),
    "infinite": (
        _by_distributions,
        Words(
            en="`torch.distributions` calls the KL infinite where a probability underflows "
            "to 0. Its logarithm is finite: use `log_softmax`.",
            zh="概率下溢成 0 时，`torch.distributions` 就认为 KL 无穷大。它的对数其实有限："
            "请用 `log_softmax`。",
        ),
    ),
}

BY_HAND = Words(
    en="three tokens, two experts, probabilities 1/2 and 1/4",
    zh="三个 token、两个专家，概率为 1/2 和 1/4",
)
AGREE = Words(
    en="the same router but for a constant: the penalty is 0",
    zh="只差一个常数的同一个路由器：惩罚为 0",
)
STEEP = Words(
    en="with gradients, NaN in the padding, some routers sure of themselves",
    zh="要求梯度，padding 里是 NaN，有些路由器非常确定",
)
SURE = Words(en="routers that are sure of themselves", zh="非常确定的路由器")


Inputs = tuple[Tensor, Tensor, Tensor]


def _draw(
    generator: Generator,
    rows: int,
    columns: int,
    *,
    scale: float = 1.0,
    filler: float | None = None,
) -> Inputs:
    mask = mask_of(generator, rows, columns)
    sides = [scale * router_logits(generator, rows, columns, 6) for _ in range(2)]
    if filler is not None:
        sides = [torch.where(mask[..., None], side, filler) for side in sides]
    return sides[0], sides[1], mask


def cases(generator: Generator) -> list[Case]:
    even, tilted = [0.5, 0.5], [0.75, 0.25]
    train = torch.tensor([[even, even], [tilted, tilted]]).log()
    rollout = torch.tensor([[tilted, even], [even, even]]).log()
    real = torch.tensor([[True, True], [True, False]])
    same, _, mask = _draw(generator, 3, 8)
    sloped, before, here = _draw(generator, 3, 8, filler=torch.nan)
    sloped[:, 0] *= 200  # where probabilities underflow a value can be put right, its
    before[:, 0] *= 200  # gradient can't
    return [
        Case("example", BY_HAND, (train, rollout, real)),
        Case("property", AGREE, (same, same + 0.5, mask)),
        Case("inputs", RANDOM, _draw(generator, 3, 8)),
        Case("inputs", RANDOM, _draw(generator, 5, 10)),
        Case("padding", NAN, _draw(generator, 3, 8, filler=torch.nan)),
        Case("gradient", STEEP, (sloped, before, here)),
        Case("numbers", SURE, _draw(generator, 3, 8, scale=1000.0)),
    ]


EXERCISE = Exercise(
    name="router_consistency",
    title=Words(en="A penalty on the router", zh="路由一致性惩罚"),
    reference=reference,
    returns=("penalty",),
    cases=cases,
    mistakes=MISTAKES,
    alternatives={"kl_div": _with_kl_div, "logsumexp": _with_where},
    hints=(
        Words(
            en="A KL between two softmaxes over experts, for each token. Which side is a "
            "record of the past, and which is to learn?",
            zh="每个 token 上两个专家分布之间的 KL。哪一侧是过去的记录，哪一侧要学习？",
        ),
        Words(
            en="sum over experts of q (log q - log p), with q the rollout's, detached; "
            "mean over real tokens.",
            zh="对专家求和 q (log q - log p)，q 是采样端的，要 detach；再对真实 token 取平"
            "均。",
        ),
        Words(
            en="Select with `logits[mask]`, use `log_softmax(-1)` for both, and `.exp()` "
            "of one for q.",
            zh="先用 `logits[mask]` 选择，两边都用 `log_softmax(-1)`，q 由其中一个取 "
            "`.exp()` 得到。",
        ),
    ),
    points=(1, 2),
    minutes=7,
    gradient=("logits_train",),
    data=("logits_rollout",),
    floor=1.0,
)
