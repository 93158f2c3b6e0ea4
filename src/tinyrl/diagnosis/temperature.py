"""A temperature on one side only, from the odds of the chosen tokens."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from ..said import Said
from .finding import Finding
from .statistics import enough, logit, quantile, rank_correlation

NOISY = 1.02
"""What noise may move a bound on beta by."""


@dataclass(frozen=True)
class Line:
    """logit b = slope * logit a + intercept: the two sides' odds of the chosen tokens."""

    slope: float
    intercept: float
    low: float
    """Between `low` and `high` lies beta, if the cause is a temperature."""
    high: float
    consistent: float
    """Share of tokens that are possible under a temperature of this slope."""
    explained: float
    """Share of the difference in log-odds that the line takes away."""

    @property
    def beta(self) -> float:
        """The best guess of beta: the middle of what is possible, or the slope in it."""
        if self.low > 0 and math.isfinite(self.high) and 1 not in (self.low, self.high):
            return math.sqrt(self.low * self.high)
        return min(max(self.slope, self.low), self.high)

    def predict(self, a: Tensor) -> Tensor:
        """The trainer's logprob that the line expects for the rollout's `a`."""
        return torch.nn.functional.logsigmoid(self.slope * logit(a) + self.intercept)


def scale(a: Tensor, b: Tensor, mask: Tensor) -> tuple[Finding, Line] | None:
    """A temperature on one side only.

    If b is a at another temperature, beta = T_a / T_b, then for every token

        logit b = beta logit a + (beta - 1) H,   0 <= H <= log(V - 1),

    where H is the Rényi entropy of order beta of the other tokens under a. So the odds lie
    about a line whose slope is near beta, every token must imply a possible H, and each
    bounds beta: noise and other weights fail the second, and the bounds are honest.
    """
    line = odds_line(a, b, mask)
    if line is None or line.consistent < 0.9 or line.explained < 0.2:
        return None
    if not 0.02 < abs(math.log(line.slope)) < math.log(20):
        return None
    low, high = _ends(line.low / NOISY, line.high * NOISY)
    about = f"{line.beta:.{max(2, len(low.partition('.')[2]))}f}"
    way = "steeper" if line.slope > 1 else "flatter"
    finding = Finding(
        "scale",
        Said(
            f"a temperature on one side only: T_rollout / T_train is about {about}, "
            f"between {low} and {high}",
            f"只有一侧用了温度：T_rollout / T_train 约为 {about}，在 {low} 和 {high} 之间",
        ),
        Said(
            f"{line.consistent:.1%} of the tokens are possible under that temperature and "
            f"nothing else; one line for the odds of all, {way} than equal, takes "
            f"{line.explained:.0%} of their difference away",
            f"仅凭这个温度，{line.consistent:.1%} 的 token 就都说得通；对全部 token 的对数"
            f"几率拟合一条直线（比相等时更{'陡' if way == 'steeper' else '平'}），去掉了差"
            f"异的 {line.explained:.0%}",
        ),
        Said(
            "divide the trainer's logits by the sampler's temperature, or sample at 1. If "
            "this stays, compare versions: weights that grew sharper look much the same",
            "训练端的 logits 除以采样温度，或在温度 1 下采样。若还在，就比较权重版本：变"
            "尖锐的权重看上去差不多",
        ),
        line.beta,
        beside=Said(
            "what one line for all tokens leaves is expected of a temperature, which moves "
            "each by its rivals: no second fault is needed for it",
            "一条直线剩下的部分，单凭温度也会有：每个 token 移动多少取决于其他候选，不必"
            "再找第二个原因",
        ),
    )
    return finding, line


def odds_line(a: Tensor, b: Tensor, mask: Tensor) -> Line | None:
    """Orthogonal fit of the trainer's log-odds to the rollout's; None where there is none.

    Tokens with a probability above 1 - 1e-4 are left out: float32 logprobs do not hold
    their odds.
    """
    use = mask & (a < -1e-4) & (b < -1e-4)
    if not enough(a[use], b[use]) or rank_correlation(a[use], b[use]) < 0.6:
        return None
    x, y = logit(a[use]), logit(b[use])
    (sxx, sxy), (_, syy) = torch.cov(torch.stack([x, y])).tolist()
    slope = (syy - sxx + math.hypot(syy - sxx, 2 * sxy)) / (2 * sxy)
    if slope <= 0 or slope == 1:
        return None
    intercept = (y.mean() - slope * x.mean()).item()
    implied = (y - slope * x) / (slope - 1)
    possible = (implied > -0.1) & (implied < 12)  # log of 160,000 tokens
    error = (y - slope * x - intercept).abs().mean() / max(1.0, slope)
    low, high = beta_bounds(x, y, slope)
    return Line(
        slope,
        intercept,
        low,
        high,
        possible.double().mean().item(),
        1 - (error / (y - x).abs().mean()).item(),
    )


def beta_bounds(x: Tensor, y: Tensor, slope: float) -> tuple[float, float]:
    """Lowest and highest beta that H >= 0 leaves to the log-odds x and y of the tokens.

    (beta - 1) H has the sign of beta - 1, so y / x bounds beta on one side where x > 0 and
    on the other where x < 0. Two per cent of the tokens may lie beyond, for noise's sake;
    if it crosses the bounds, they are put in order.
    """
    r = y / x
    likely, unlikely = r[x > 1], r[x < -1]
    below, above = (likely, unlikely) if slope < 1 else (unlikely, likely)
    low = quantile(below, 0.98) if len(below) >= 20 else 0.0 if slope < 1 else 1.0
    high = quantile(above, 0.02) if len(above) >= 20 else 1.0 if slope < 1 else math.inf
    return min(low, high), max(low, high)


def _ends(low: float, high: float) -> tuple[str, str]:
    """Both, with as many digits as it takes to tell them apart; at least two."""
    for digits in range(2, 7):
        ends = f"{low:.{digits}f}", f"{high:.{digits}f}"
        if ends[0] != ends[1]:
            break
    return ends
