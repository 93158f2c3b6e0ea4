"""A logprob over a vocabulary that is shared out among ranks: three small messages."""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from tinyrl.course.exercise import Case, Exercise, Function, Mistakes
from tinyrl.course.exercises.lab04.draws import normal, whole
from tinyrl.course.words import Words


def reference(z: Tensor, top: Tensor, total: Tensor) -> Tensor:
    highest = top.max(0).values
    return z - highest - (total * (top - highest).exp()).sum(0).log()


def _by_logsumexp(z: Tensor, top: Tensor, total: Tensor) -> Tensor:
    return z - (top + total.log()).logsumexp(0)


def _rank_by_rank(z: Tensor, top: Tensor, total: Tensor) -> Tensor:
    lse = top[0] + total[0].log()
    for m, t in zip(top[1:], total[1:], strict=True):
        lse = torch.logaddexp(lse, m + t.log())
    return z - lse


def _of_one_rank(z: Tensor, top: Tensor, total: Tensor) -> Tensor:
    return z - top[0] - total[0].log()


def _to_the_first(z: Tensor, top: Tensor, total: Tensor) -> Tensor:
    return z - top[0] - total.sum(0).log()


def _mean_of_ranks(z: Tensor, top: Tensor, total: Tensor) -> Tensor:
    return reference(z, top, total) + torch.tensor(float(len(top))).log()


def _anchored(at: Function) -> Function:
    """Sums rescaled to something else than the largest maximum of a token."""

    def wrong(z: Tensor, top: Tensor, total: Tensor) -> Tensor:
        anchor = at(z, top)
        return z - anchor - (total * (top - anchor).exp()).sum(0).log()  # type: ignore[no-any-return]

    return wrong


MISTAKES: Mistakes = {
    "sums_not_rescaled": (
        lambda z, top, total: z - top.max(0).values - total.sum(0).log(),
        Words(
            en="You add sums that refer to different maxima. Multiply each by "
            "exp(its maximum - the largest one) first.",
            zh="你把以不同最大值为基准的和直接相加了。先各自乘以 exp(自己的最大值 - 全局最"
            "大值)。",
        ),
    ),
    "first_maximum": (
        _to_the_first,
        Words(
            en="You use rank 0's maximum for all ranks, without rescaling their sums.",
            zh="你对所有 rank 都用了 rank 0 的最大值，而且没有重新缩放各自的和。",
        ),
    ),
    "one_rank": (
        _of_one_rank,
        Words(
            en="This is the logprob within rank 0's part of the vocabulary. The sum goes "
            "over all parts.",
            zh="这是只在 rank 0 的那部分词表里的 logprob。求和应当覆盖所有部分。",
        ),
    ),
    "maximum_not_subtracted": (
        lambda z, top, total: reference(z, top, total) + top.max(0).values,
        Words(
            en="The largest maximum is missing from the logsumexp: it is maximum + log of "
            "the sum.",
            zh="logsumexp 里漏了全局最大值：它等于最大值加上和的对数。",
        ),
    ),
    "logs_added": (
        lambda z, top, total: z - (top + total.log()).sum(0),
        Words(
            en="You add the ranks' logsumexps. Exps add, logarithms don't.",
            zh="你把各 rank 的 logsumexp 相加了。相加的应当是 exp，不是对数。",
        ),
    ),
    "largest_rank": (
        lambda z, top, total: z - (top + total.log()).max(0).values,
        Words(
            en="You take the largest of the ranks' logsumexps: the other parts are "
            "missing.",
            zh="你取了各 rank 的 logsumexp 中最大的：漏掉了其他部分。",
        ),
    ),
    "mean_of_ranks": (
        _mean_of_ranks,
        Words(
            en="You average over ranks instead of adding (an all-reduce with the wrong "
            "operation): too high by log N.",
            zh="你对各 rank 取了平均而不是求和（all-reduce 的运算选错了）：结果大了 log "
            "N。",
        ),
    ),
    "no_log": (
        lambda z, top, total: (
            z - top.max(0).values - (total * (top - top.max(0).values).exp()).sum(0)
        ),
        Words(
            en="The logarithm of the sum is missing.",
            zh="漏了对和取对数。",
        ),
    ),
    "one_maximum": (
        _anchored(lambda z, top: top.max()),
        Words(
            en="You subtract more than a token's own largest maximum (one for all tokens, "
            "or one that is never below 0). A token whose logits lie far below it "
            "underflows to log 0: each token has its own.",
            zh="你减去的数大于这个 token 自己的全局最大值（对所有 token 只取了一个，或者它"
            "从不小于 0）。logit 远低于它的 token 会下溢成 log 0：每个 token 要用自己的。",
        ),
    ),
    "rescaled_to_rank_0": (
        _anchored(lambda z, top: top[0]),
        Words(
            en="You rescale to rank 0's maximum. Where another rank's lies far above it, "
            "`exp` overflows: rescale to the largest.",
            zh="你以 rank 0 的最大值为基准缩放。别的 rank 的最大值远高于它时 `exp` 会溢出："
            "应当以全局最大值为基准。",
        ),
    ),
    "rescaled_to_the_token": (
        _anchored(lambda z, top: z),
        Words(
            en="The logit of the sampled token goes into `exp`. Where the token is an "
            "unlikely one, exp(top - z) overflows, and exp(z - top) is 0, whose log is "
            "-inf: rescale the sums to the largest maximum and take their log from z.",
            zh="你把采样到的 token 的 logit 放进了 `exp`。它的概率很小时，exp(top - z) 会溢"
            "出，exp(z - top) 则为 0，取对数得 -inf：应当以全局最大值为基准缩放各个和，再"
            "从 z 中减去它们的对数。",
        ),
    ),
    "plain_exp": (
        _anchored(lambda z, top: torch.zeros_like(z)),
        Words(
            en="`exp` of a maximum overflows as soon as logits are large. Subtract the "
            "largest maximum first.",
            zh="logit 较大时，最大值的 `exp` 会溢出。先减去全局最大值。",
        ),
    ),
    "probability": (
        lambda z, top, total: reference(z, top, total).exp(),
        Words(
            en="This is the probability; asked for is its logarithm.",
            zh="这是概率，题目要的是它的对数。",
        ),
    ),
    "loss": (
        lambda z, top, total: -reference(z, top, total),
        Words(
            en="The sign is that of a loss: a logprob is never above 0.",
            zh="这是损失的符号：logprob 不会大于 0。",
        ),
    ),
}

BY_HAND = Words(
    en="two ranks with the logits log 2, log 2 and log 4, log 4",
    zh="两个 rank，logit 分别是 log 2、log 2 与 log 4、log 4",
)
ONE = Words(en="one rank holds all", zh="只有一个 rank")
ANY = Words(en="several ranks, several tokens", zh="多个 rank，多个 token")
APART = Words(
    en="tokens and ranks whose logits lie 1000 apart",
    zh="各 token、各 rank 的 logit 相差 1000",
)
LARGE = Words(en="logits near 1000", zh="接近 1000 的 logit")


def cases(generator: Generator) -> list[Case]:
    def shared(
        ranks: int,
        middle: float | Tensor = 0.0,
        *,
        at: int | None = None,
        tokens: int = 4,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The sampled tokens lie on rank `at`, on any one if it is None."""
        logits = middle + 2 * normal(generator, ranks, tokens, 5)
        top = logits.max(-1).values
        total = (logits - top[..., None]).exp().sum(-1)
        at = whole(generator, 0, ranks) if at is None else at
        return logits[at, :, 0], top, total

    # One token lies low on all ranks; the others lie high on one, each on another.
    # The ranks where they lie high have one large logit each, and so the smallest sums.
    apart = 1000 * torch.cat([-torch.ones(3, 1), torch.eye(3)], 1)[..., None]
    apart = apart * torch.tensor([1.0, 1.0, 1.0, 1.0, 1.02])
    two = torch.tensor([[2.0], [4.0]]).log()
    example = torch.tensor([4.0]).log(), two, torch.full((2, 1), 2.0)
    return [
        Case("example", BY_HAND, example),
        Case("property", ONE, shared(1)),
        Case("inputs", ANY, shared(3)),
        Case("inputs", ANY, shared(4, tokens=6)),
        Case("numbers", LARGE, shared(3, 1000.0)),
        Case("numbers", APART, shared(3, apart, at=1)),
    ]


EXERCISE = Exercise(
    name="parallel_logp",
    title=Words(en="A vocabulary on several ranks", zh="词表分在多个 rank 上"),
    reference=reference,
    returns=("logp",),
    cases=cases,
    mistakes=MISTAKES,
    alternatives={"logsumexp": _by_logsumexp, "rank_by_rank": _rank_by_rank},
    hints=(
        Words(
            en="logp = z - logsumexp over the whole vocabulary. Each rank has summed "
            "exp(logit - its own maximum).",
            zh="logp = z - 整个词表上的 logsumexp。每个 rank 求的是 exp(logit - 自己的最大"
            "值) 之和。",
        ),
        Words(
            en="With M the largest of the maxima, the whole sum is exp(M) times the sum "
            "over ranks of total * exp(top - M).",
            zh="设 M 为各最大值中最大的，则总和等于 exp(M) 乘以各 rank 的 total * exp(top "
            "- M) 之和。",
        ),
        Words(
            en="Ranks are axis 0: `top.max(0).values` is [B], and `.sum(0)` adds ranks.",
            zh="rank 在第 0 维：`top.max(0).values` 的形状是 [B]，`.sum(0)` 对 rank 求和。",
        ),
    ),
    points=(1, 1),
    minutes=8,
)
