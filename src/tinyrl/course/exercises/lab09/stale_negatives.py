"""Off-policy sequence masking: drop bad responses that the policy has left behind."""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from tinyrl.course.exercise import Case, Exercise, Mistakes
from tinyrl.course.exercises.lab01 import batch
from tinyrl.course.exercises.lab09 import left_behind as rule
from tinyrl.course.exercises.lab09 import slips
from tinyrl.course.words import Words

MISTAKES: Mistakes = {
    "positives": (
        lambda new, roll, A, mask, delta: rule.reference(new, roll, -A, mask, delta),
        Words(
            en="You drop *good* responses. They stay, however far the policy has moved: "
            "only those with A < 0 can go.",
            zh="你丢掉了 *好* 回答。策略走得再远它们也要留下，只有 A < 0 的才可能丢掉。",
        ),
    ),
    "both_signs": (
        lambda new, roll, A, mask, delta: (
            mask & ~(rule.mean_behind(new, roll, mask) > delta)
        ),
        Words(
            en="You drop good and bad responses alike. Those with A >= 0 always stay.",
            zh="你不分好坏都丢。A >= 0 的始终留下。",
        ),
    ),
    "at_delta": (
        lambda new, roll, A, mask, delta: (
            mask & ~((A < 0)[:, None] & (rule.mean_behind(new, roll, mask) >= delta))
        ),
        Words(
            en="A bad response whose mean is exactly delta was dropped. Above is above.",
            zh="均值恰好等于 delta 的坏回答被丢掉了。要严格大于。",
        ),
    ),
    "all_negatives": (
        lambda new, roll, A, mask, delta: mask & (A >= 0)[:, None],
        Words(
            en="You drop every bad response. Those that the policy still finds likely "
            "must be punished: compare with delta.",
            zh="你把坏回答全丢了。策略仍认为可能的那些要受惩罚：请与 delta 比较。",
        ),
    ),
    "zero_is_negative": (
        lambda new, roll, A, mask, delta: rule.reference(
            new, roll, torch.where(A == 0, -1.0, A), mask, delta
        ),
        Words(
            en="A response with advantage 0 was dropped: A < 0 is meant, not A <= 0.",
            zh="advantage 为 0 的回答被丢掉了：条件是 A < 0，不是 A <= 0。",
        ),
    ),
    "reversed": (
        rule.turned_round,
        Words(
            en="The difference is turned round. Left behind means that p_new is *smaller* "
            "than the rollout's probability: log mu - log p_new above delta.",
            zh="差的方向反了。被甩在后面指 p_new *小于* 采样时的概率：log mu - log p_new "
            "大于 delta。",
        ),
    ),
    "absolute": (
        rule.absolute,
        Words(
            en="You take the absolute value of the mean. A bad response that became "
            "*likelier* is what most needs its push down: it stays.",
            zh="你对均值取了绝对值。变得 *更可能* 的坏回答最需要压下去，应当留下。",
        ),
    ),
    "mean_of_absolute": (
        rule.mean_abs,
        Words(
            en="You average |delta|. Ups and downs of tokens cancel here: the mean keeps "
            "signs.",
            zh="你对 |delta| 取了平均。这里 token 的涨落应相互抵消，均值要保留符号。",
        ),
    ),
    "sum": (
        rule.summed,
        Words(
            en="You compare the sum with delta: then every long response goes. Divide by "
            "its length.",
            zh="你拿总和与 delta 比较，长回答就都丢了。请除以长度。",
        ),
    ),
    "columns": (
        rule.columns,
        Words(
            en="You divide by the number of columns: short responses look nearer than "
            "they are.",
            zh="你除以了列数，短回答显得比实际更近。",
        ),
    ),
    "ratio": (
        rule.ratio,
        Words(
            en="You hold a ratio against delta, which is in nats: no exp here.",
            zh="你拿比值与 delta 比较，而 delta 的单位是 nat：这里不取 exp。",
        ),
    ),
    "relative": (
        rule.relative,
        Words(
            en="You hold exp(mean) - 1 against delta. That is near the mean only where it "
            "is small; delta is in nats, as the mean itself.",
            zh="你拿 exp(均值) - 1 与 delta 比较。只有均值很小时二者才接近；delta 和均值"
            "本身一样以 nat 为单位。",
        ),
    ),
    "nonzero": (rule.nonzero, batch.NONZERO),
    "centred": (
        rule.centred,
        Words(
            en="You subtract the mean from the advantages first. They are what they are: "
            "their own sign decides.",
            zh="你先减去了 advantage 的均值。advantage 已是最终值，由它自己的符号决定。",
        ),
    ),
    "by_token": (
        rule.tokens,
        Words(
            en="You drop tokens one by one. A response goes whole, by its mean.",
            zh="你逐个丢 token。应按均值整条丢掉。",
        ),
    ),
    "dropped": (
        lambda new, roll, A, mask, delta: mask & ~rule.reference(new, roll, A, mask, delta),
        Words(
            en="These are the tokens that are dropped. True is what stays.",
            zh="这是被丢掉的 token。为真应表示留下。",
        ),
    ),
    "padding_kept": (
        lambda new, roll, A, mask, delta: (
            rule.reference(new, roll, A, mask, delta).any(1, keepdim=True).expand_as(mask)
        ),
        Words(
            en="A kept response takes its padding with it. Keep real tokens only.",
            zh="留下的回答把 padding 也带上了。只留真实 token。",
        ),
    ),
} | slips.STALE

HAND = Words(
    en="a bad response left behind, a good one left behind, a bad one still likely",
    zh="被甩在后面的坏回答、被甩在后面的好回答、仍然可能的坏回答",
)
SAME = Words(
    en="the policy has not moved and delta is 0: nothing is dropped",
    zh="策略没有动，delta 为 0：什么也不丢",
)
RANDOM = Words(
    en="bad and good responses, and one of advantage 0, on both sides of delta",
    zh="好坏回答和一条 advantage 为 0 的，delta 两侧都有",
)


def cases(generator: Generator) -> list[Case]:
    def drawn(
        delta: float,
        padding: batch.Padding = "finite",
        columns: int = 10,
        far: float = 0.0,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor, float]:
        """A response for each way in which a rule can differ, in some order."""
        kinds = [  # advantage, mean of log mu - log p_new in units of delta, tokens
            (-0.4, 1.2, 3),  # goes; stays if divided by columns
            (-1e-6, 1.8, 10),  # goes; its first half is near. Both A are above the mean A
            (-1.5, 0.75, 9),  # stays; its sum is above, its mean without zeros
            (-1.5, 0.75, 3),  # stays; goes if divided by 2
            (-1.5, 0.999, 10),  # stays, only just; exp - 1 of it is above delta
            (-1.5, -1.7, 8),  # stays: likelier now, but for its last token
            (-1.5, 0.0, 10),  # stays, with large deltas of both signs
            (0.5, 1.7, 7),  # stays: good
            (0.5, -1.6, 8),
            (0.0, 1.9, 6),  # stays
            (-0.9, 1.001, 10),  # goes, only just
        ]
        A, mean, n = (torch.tensor(x)[:, None] for x in zip(*kinds, strict=True))
        mask = torch.arange(columns) < n
        moved = mask.clone()
        moved[2, 1:6:2] = False  # both sides agree there
        d = batch.uniform(generator, (len(A), columns), -0.1, 0.1)
        d[6, ::2] += 4
        d[6, 1::2] -= 4
        d[1, 5:] += 2.4
        d[4, :5] += 1
        d[5, 7] += 6
        if far:  # one token, made good by the others; a clamp would turn the rule round
            at = 1 + batch.uniform(generator, (len(A), 1), 0.0, 1.0) * (n - 1)
            token = torch.arange(columns) == at.long()
            d = d + torch.where(mean > 1, far, -far) / delta * token
        mean = mean * (1 + batch.uniform(generator, (len(A), 1), -2e-4, 2e-4))
        left = mean * n - (d * moved).sum(1, keepdim=True)
        d = torch.where(moved, d + left / moved.sum(1, keepdim=True), 0.0) * delta
        most = batch.uniform(generator, (len(A), columns), -5.0, -3.0)
        most[2, 1] = 0.0  # of probability 1
        new, roll = most - d.clamp(min=0), most - d.clamp(max=0).abs()
        A = A[:, 0] * batch.uniform(generator, (len(A),), 0.9, 1.1)
        order = torch.randperm(len(A), generator=generator)
        new, roll, A, mask = (x[order] for x in (new, roll, A, mask))
        sides = (batch.garbage(generator, x, mask, padding) for x in (new, roll))
        return (*sides, A, mask, delta)  # type: ignore[return-value]

    roll = torch.tensor([[-1.0, -2.0], [-1.0, -2.0], [-1.0, -2.0]])
    new = roll - torch.tensor([[0.5, 0.9], [0.5, 0.9], [0.3, -0.1]])
    real = torch.ones(3, 2, dtype=torch.bool)
    A = torch.tensor([-1.0, 1.0, -1.0])
    same, _, signs, mask, _ = drawn(0.5)
    same[:, 1] = 0.0
    new_2, roll_2, A_2, some, far_2 = drawn(0.4, far=60.0)
    return [
        Case("example", HAND, (new, roll, A, real, 0.5)),
        Case("property", SAME, (same, same, signs, mask, 0.0)),
        Case("inputs", RANDOM, drawn(0.5)),
        Case("inputs", RANDOM, drawn(0.2, columns=12)),
        Case("padding", batch.NAN, drawn(0.5, "nan")),
        Case("padding", batch.INF, drawn(0.3, "inf")),
        Case(
            "numbers",
            batch.IMPOSSIBLE,
            (new_2[:7], roll_2[:7], A_2[:7], some[:7], far_2),
        ),
    ]


EXERCISE = Exercise(
    name="stale_negatives",
    title=Words(en="Bad responses left behind", zh="被甩在后面的坏回答"),
    reference=rule.reference,
    returns=("kept",),
    cases=cases,
    mistakes=MISTAKES,
    alternatives={"row_by_row": rule.row_by_row, "kept_if": rule.kept_if},
    hints=(
        Words(
            en="Two conditions must both hold for a response to go: one on its advantage, "
            "one on how much less likely it has become.",
            zh="丢掉一条回答要同时满足两个条件：一个关于 advantage，一个关于它变得不可能了"
            "多少。",
        ),
        Words(
            en="The mean over real tokens of logp_rollout - logp_new, above delta; and A "
            "< 0. Everything else that is real stays.",
            zh="真实 token 上 logp_rollout - logp_new 的均值大于 delta，且 A < 0。其余真"
            "实 token 都留下。",
        ),
        Words(
            en="`mask & ~((advantages < 0)[:, None] & (mean > delta))` with `mean [B, 1]`.",
            zh="即 `mask & ~((advantages < 0)[:, None] & (mean > delta))`，其中 `mean` 的"
            "形状为 [B, 1]。",
        ),
    ),
    points=(1, 1),
    minutes=7,
    boolean=("kept",),
    exact=True,
)
