"""Whether the rollout can have sampled these tokens at all.

If it did, its probabilities mu and the trainer's p make exp(sum of d) = p(all) / mu(all) a
ratio whose mean is at most 1, whatever the two are: other weights, rounding, a cut tail,
however heavy the tails and however long the responses. So by Markov's inequality it is
above e^x with a probability of e^-x at most. The same holds of (1 - c) mu + c p for any c:
a small c looks at the mean ratio, c = 1 at the mean of d.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from ..said import Said

MIXTURES = (1.0, 0.5, 0.1, 0.01, 0.001)
SURE = 12.0
"""Nats against it from which the rollout is said not to have sampled these tokens: a false
alarm in 160,000 batches at most."""
MANY = 1000
UNEVEN = 0.01
"""Nats a token up to which log-softmax in BF16, whose probabilities do not sum to 1, may
be all that is wrong."""


@dataclass(frozen=True)
class Means:
    """Mean d and mean ratio of tokens, with standard errors."""

    tokens: int
    d: float
    d_error: float
    ratio: float
    ratio_error: float
    few: int
    """Tokens that hold half of the ratio's variance; above `MANY` they are not counted."""
    against: float
    """Nats of evidence, net of what storing logprobs in steps may give."""

    @property
    def foreign(self) -> bool:
        """Whether the rollout cannot have sampled these tokens."""
        return self.against > SURE

    @property
    def known(self) -> bool:
        """Whether the mean ratio is known to a few per cent, and not from a few tokens."""
        return self.ratio_error <= 0.05 and self.few >= 5

    @property
    def shown(self) -> str:
        """The mean ratio with its error."""
        return f"{self.ratio:.4g} ± {self.ratio_error:.2g}"


def means(d: Tensor, step: float = 0.0) -> Means:
    """Of the tokens' d `[N]`; their logprobs may be stored in steps of `step`."""
    n = len(d)
    ratio = d.clamp(max=300.0).exp()
    squares = (ratio - ratio.mean()) ** 2
    largest = squares.topk(min(n, MANY)).values.cumsum(0)
    few = int((largest < squares.sum() / 2).sum()) + 1
    deviation = math.sqrt(n) if n > 1 else math.nan
    return Means(
        n,
        d.mean().item(),
        d.std().item() / deviation if n > 1 else math.inf,
        ratio.mean().item(),
        ratio.std().item() / deviation if n > 1 else math.inf,
        few,
        against(d) - n * max(step, 1e-4),
    )


def against(d: Tensor) -> float:
    """Nats of evidence that tokens with these d were not sampled by the rollout: above x
    with a probability of e^-x at most, if they were."""
    over = torch.expm1(d.clamp(max=300.0))
    logs = [d.sum() if c == 1 else torch.log1p(c * over).sum() for c in MIXTURES]
    return torch.stack(logs).logsumexp(0).item() - math.log(len(MIXTURES))


def said(m: Means) -> Said | None:
    """What to say if the rollout cannot have sampled these tokens; None if it can."""
    if not m.foreign:
        return None
    x = f"{m.against:,.0f}"
    uneven = ("", "")
    if m.against < UNEVEN * m.tokens:
        uneven = (
            ", or probabilities that do not sum to 1 (log-softmax in BF16)",
            "；或概率之和不是 1（BF16 的 log-softmax）",
        )
    return Said(
        f"these tokens were not sampled by the rollout as it reports it: mean d is "
        f"{m.d:+.3g} ± {m.d_error:.1g}, the mean ratio {m.shown}, and samples of its own "
        f"are so with a probability of e^-{x} at most. Rows or tokens of another batch in "
        "one of the files, the files swapped, raw logprobs, a draft model's or another "
        "temperature's, a "
        "correction that was already applied, or a trainer that has made a step on these "
        f"tokens{uneven[0]}. K3, ESS and the means over tokens say nothing then",
        f"这些 token 不是采样端按它上报的概率抽出来的：d 的均值为 {m.d:+.3g} ± "
        f"{m.d_error:.1g}，比值的均值为 {m.shown}；若真是它自己的样本，出现这种情况的概率"
        f"不超过 e^-{x}。可能是：某个文件混入了另一个 batch 的行或 token；两个文件弄反了；"
        "采样端报的是 raw logprob、草稿模型的或另一个温度下的；修正已经做过一次；训练端已"
        "经在这些 token 上"
        f"更新过{uneven[1]}。此时 K3、ESS 和各种均值都没有意义",
    )
