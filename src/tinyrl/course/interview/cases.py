"""Debugging questions: a fault between a sampler and a trainer, told by its traces.

The traces are measured, on responses drawn now by the shipped checkpoint. Each fault has a
`sign`, a statement about the traces that holds for it and for none of the others: that is
what one should have seen, and a test holds it against fresh batches.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import torch

from tinyrl.checkpoints import load
from tinyrl.course.interview.questions import Section
from tinyrl.course.lessons.faulty_pairs import Pair, look
from tinyrl.course.words import Words
from tinyrl.metrics import by_position, by_probability, compare, sequence_delta, token_delta
from tinyrl.model import GPT
from tinyrl.stack import PRESETS, Stack, replace_at
from tinyrl.tasks import CumSum

EDGES = torch.tensor([0.0, 0.1, 0.9, 1.0])
"""Tokens that the sampler thought unlikely, undecided, likely."""


@dataclass(frozen=True)
class Traces:
    """What a batch of 256 responses shows of a mismatch; d = logp_train - logp_rollout."""

    mean: float
    mean_abs: float
    max_abs: float
    k3: float
    equal: float  # share of tokens with |d| < 1e-5
    positive: float  # share with d > 1e-5
    first: float  # mean |d| of the first token
    later: float  # and of the third to the last but one
    unlikely: float  # mean d where the sampler had p <= 0.1
    likely: float  # and where it had p > 0.9
    touched: float  # share of responses with some |d| > 0.01
    seq_abs: float  # mean |sum of d| of a response

    def __str__(self) -> str:
        rows = zip(LABELS, vars(self).values(), strict=True)
        return "\n".join(f"{_shown(value):>10}  {label}" for label, value in rows)


NO_TOKEN = Words(en="no token", zh="无此类")


def _shown(value: float) -> str:
    return str(NO_TOKEN) if math.isnan(value) else f"{value:.3g}"


LABELS = (
    Words(en="mean d of a token", zh="token 的平均 d"),
    Words(en="mean |d|", zh="平均 |d|"),
    Words(en="largest |d|", zh="最大 |d|"),
    Words(en="K3", zh="K3"),
    Words(en="share of tokens with d = 0", zh="d = 0 的 token 占比"),
    Words(en="share of tokens with d > 0", zh="d > 0 的 token 占比"),
    Words(en="mean |d| of the first token", zh="首个 token 的平均 |d|"),
    Words(en="mean |d| from the third token on", zh="第三个 token 起的平均 |d|"),
    Words(en="mean d, sampler's p up to 0.1", zh="采样端 p ≤ 0.1 时的平均 d"),
    Words(en="mean d, sampler's p above 0.9", zh="采样端 p > 0.9 时的平均 d"),
    Words(en="share of responses with a |d| > 0.01", zh="含 |d| > 0.01 的回答占比"),
    Words(en="mean |sum of d| of a response", zh="每个回答 |d 之和| 的平均"),
)


@dataclass(frozen=True)
class Fault:
    """A fault that can be injected, and how it is known."""

    label: Words
    pair: Callable[[random.Random], Pair]
    sign: Callable[[Traces], bool]
    why: Words
    shown: Section
    """Where the course shows such a fault."""


def _engine(path: str, *values: float | str) -> Callable[[random.Random], Pair]:
    return lambda generator: Pair(replace_at(Stack(), path, generator.choice(values)))


FAULTS = {
    "rounding": Fault(
        Words(en="none: the engine computes in BF16", zh="没有故障：引擎用 BF16 计算"),
        lambda _: Pair(PRESETS["bf16"]),
        lambda t: t.mean_abs < 0.01 and t.equal < 0.1,
        Words(
            en="Nearly every token is off by a few thousandths and the signs balance: "
            "this is rounding, and K3 is small.",
            zh="几乎每个 token 都差千分之几，正负抵消，K3 很小：这是舍入噪声。",
        ),
        Section("03_number_formats", "BF16 against FP16 rollouts"),
    ),
    "int4": Fault(
        Words(en="the engine serves INT4 weights", zh="引擎使用 INT4 权重"),
        _engine("numerics.weights", "int4"),
        lambda t: t.unlikely < -0.15 and t.likely > -0.01 and 0.02 < t.mean_abs < 0.5,
        Words(
            en="Every token is off, both signs occur, and it is worst where the sampler "
            "was unsure: what it overrates it samples, so unlikely tokens have d < 0. "
            "That is noise on the logits, and too much of it for 16 bits.",
            zh="每个 token 都有偏差，正负都有，采样端没把握的地方最严重：被高估的 token "
            "更容易被采到，所以低概率 token 的 d < 0。这是 logits 上的噪声，而且大得不像 "
            "16 位格式。",
        ),
        Section("03_number_formats", "Where the error sits"),
    ),
    "cold": Fault(
        Words(en="only the sampler uses a temperature below 1", zh="只有采样端温度低于 1"),
        _engine("sampler.temperature", 0.6, 0.7, 0.8),
        lambda t: t.positive < 0.1 and t.unlikely > 0.3 and t.first > 0.01,
        Words(
            en="A cold sampler is surer of what is likely, so d < 0 there, and it "
            "underrates the rest, so d is large and positive on the few unlikely tokens, "
            "from the first token on. Rounding does not sort its signs.",
            zh="低温让采样端对高概率 token 更自信，那里 d < 0；它又低估了其余 token，少数"
            "低概率 token 的 d 是很大的正数，首个 token 就已如此。舍入误差不会这样分正负。",
        ),
        Section("06_decoding", "What the parameters do"),
    ),
    "nucleus": Fault(
        Words(
            en="the sampler renormalises within top-p, the trainer does not",
            zh="采样端在 top-p 内重新归一化，训练端没有",
        ),
        _engine("sampler.top_p", 0.8, 0.85, 0.9),
        lambda t: t.positive < 0.01 and t.max_abs < 0.3 and t.mean < -0.03,
        Words(
            en="d is never positive, and never far below 0: the sampler divided by the "
            "mass S that it kept, at least top-p, so each token has log S less in the "
            "trainer, likely or not. A low temperature would leave large positive d on "
            "unlikely tokens.",
            zh="d 从不为正，也不会比 0 低很多：采样端除以了保留的概率质量 S，S 不小于 "
            "top-p，所以每个 token 在训练端都差 log S，与概率高低无关。若是低温，低概率 "
            "token 上会出现很大的正 d。",
        ),
        Section("06_decoding", "The constant log S"),
    ),
    "column": Fault(
        Words(
            en="the engine's logprobs arrive one position late",
            zh="引擎返回的 logprob 晚了一个位置",
        ),
        lambda _: Pair(slip="column"),
        lambda t: t.k3 > 1 and t.seq_abs < t.mean_abs,
        Words(
            en="Tokens are far off and the sum over a response is not: the same numbers, "
            "in other places. K1 nearly vanishes and K3 is huge.",
            zh="单个 token 差得很远，整个回答的和却几乎不变：数字还是那些数字，只是错位了。"
            "K1 接近 0，K3 极大。",
        ),
        Section("10_monitoring", "Ten pairs, eight faults"),
    ),
    "cache": Fault(
        Words(
            en="one request in 256 was answered after another one's prompt",
            zh="256 个请求中有一个接在了别人的 prompt 后面作答",
        ),
        lambda _: Pair(slip="prompt"),
        lambda t: t.touched < 0.02,
        Words(
            en="Nearly all responses agree but for the last bits; one carries everything. "
            "A fault of all requests looks different: look at that one.",
            zh="几乎所有回答只差最后几位，全部偏差来自一个回答。普遍性的故障不是这样，"
            "应去查那一个请求。",
        ),
        Section("10_monitoring", "Ten pairs, eight faults"),
    ),
    "position": Fault(
        Words(
            en="the engine numbers positions of the response from a wrong start",
            zh="引擎给回答编的位置号起点错了",
        ),
        _engine("positions.offset", 1, 2, 3),
        lambda t: t.first < 1e-3 < 0.05 < t.later and t.seq_abs > t.mean_abs,
        Words(
            en="The first token, computed from the prompt alone, agrees; from the next on "
            "every token is far off. So prompt and weights are the same, and what comes "
            "with the response is not.",
            zh="首个 token 只依赖 prompt，两侧一致；从下一个 token 开始处处偏差很大。所以 "
            "prompt 和权重没问题，出错的是随回答而来的东西。",
        ),
        Section("05_templates", "Positions, and who sees whom"),
    ),
}


@dataclass(frozen=True)
class Case:
    """What is shown, what may be chosen, and which of that is so."""

    traces: Traces
    options: tuple[str, ...]  # names of `FAULTS`
    right: int


def case(generator: random.Random) -> Case:
    """A fresh case: one of the faults, and three others beside it."""
    options = generator.sample(sorted(FAULTS), 4)
    right = generator.randrange(4)
    return Case(traces(options[right], generator), tuple(options), right)


def traces(fault: str, generator: random.Random) -> Traces:
    """The traces of a fault on 256 fresh responses."""
    noise = torch.Generator().manual_seed(generator.getrandbits(32))
    pair = FAULTS[fault].pair(generator)
    (rollout, train, mask), _ = look(_policy(), CumSum(), pair, noise, k=0)
    d = token_delta(rollout, train, mask)
    m = compare(rollout, train, mask)
    place = by_position(d, mask).mean_abs
    bins = by_probability(d, rollout, mask, EDGES).mean
    real = d[mask]
    return Traces(
        mean=real.mean().item(),
        mean_abs=m.mean_abs,
        max_abs=m.max_abs,
        k3=m.k3,
        equal=(real.abs() < 1e-5).double().mean().item(),
        positive=(real > 1e-5).double().mean().item(),
        first=place[0].item(),
        later=place[2:-1].mean().item(),
        unlikely=bins[0].item(),
        likely=bins[2].item(),
        touched=(d.abs() > 0.01).any(1).double().mean().item(),
        seq_abs=sequence_delta(d, mask).abs().mean().item(),
    )


@cache
def _policy() -> GPT:
    return load()
