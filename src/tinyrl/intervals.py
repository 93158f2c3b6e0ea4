"""How sure a number is: intervals by a bootstrap over responses.

Tokens of one response share its weights, prompt and prefix, so their deltas go together: a
bootstrap over tokens takes them for independent, and its intervals are too narrow by far.
What is drawn here, with replacement, is whole responses, or whole groups of them.

Percentile intervals (Efron 1979), for three reasons. They stay inside a number's own range:
K3 not below 0, a share not above 1. Their ends do not depend on the scale: K3 or its
logarithm. And the correction of bias and skew that BCa adds (Efron 1987) bought no coverage
where the two were simulated side by side.

An interval tells of what was sampled and no more. Where rare responses decide a number
(`chi2_seq`, `ess_seq`, `reward_gap` once |Delta| is about 1 and more), nearly every batch
lacks them, and no resampling brings them in: the interval is narrow, and wrong.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor

from .logprobs import as_mask, as_tensor, number
from .measures import QUANTILES, of_totals
from .tally import deltas, tally


class Interval(NamedTuple):
    estimate: float
    """The number of the batch itself."""
    low: float
    high: float


@torch.no_grad()
def intervals(
    logp_rollout: Any,
    logp_train: Any,
    mask: Any = None,
    *,
    generator: torch.Generator,
    resamples: int = 1000,
    level: float = 0.9,
    groups: Any = None,
    **more: Any,
) -> dict[str, Interval]:
    """An interval on every number of `monitor` but the extremes, which have none.

    `groups [B]` are whole numbers: responses of equal ones are drawn together. Give those
    of the prompts where a reward is looked at: responses to one prompt are alike. `more` is
    as in `tally.tally`. A resample in which a number is undefined is left out of it.
    Raises `ValueError` as `tally` does, and where there are fewer than two to draw from.
    """
    share, R = _share(level), _whole("resamples", resamples)
    batch = tally(logp_rollout, logp_train, mask, **more)
    unit = _units(groups, len(batch.sums["tokens"]))
    batch = batch.merged(unit)
    counts = resample(len(batch.sums["tokens"]), R, generator)
    point = of_totals({name: x[None] for name, x in batch.total().items()})
    drawn = of_totals(batch.total(counts))
    d = deltas(logp_rollout, logp_train, mask)
    real = as_mask(mask, as_tensor("logp_rollout", logp_rollout)).cpu()
    owner = unit[:, None].expand_as(real)[real]
    for values, ends in ((d.abs(), "abs"), (d.exp(), "")):
        qs = {n: q for n, q in QUANTILES.items() if n.endswith("abs") == (ends == "abs")}
        rows = torch.cat([torch.ones_like(counts[:1]), counts])
        found = token_quantiles(values, owner, rows, list(qs.values()))
        point |= {n: x[:1] for n, x in zip(qs, found.unbind(1), strict=True)}
        drawn |= {n: x[1:] for n, x in zip(qs, found.unbind(1), strict=True)}
    return {name: percentile(point[name].item(), drawn[name], share) for name in drawn}


def resample(n: int, resamples: int, generator: torch.Generator) -> Tensor:
    """How often each of `n` is drawn, n times with replacement: `[resamples, n]`."""
    if not isinstance(generator, torch.Generator):
        raise ValueError(f"generator must be a torch.Generator, not {generator!r}")
    n, resamples = _whole("n", n), _whole("resamples", resamples)
    if n < 2:
        raise ValueError("a bootstrap needs two responses (or groups of them) or more")
    drawn = torch.randint(n, (resamples, n), generator=generator, device=generator.device)
    counts = torch.zeros(resamples, n, dtype=torch.float64)
    return counts.scatter_add_(1, drawn.cpu(), torch.ones_like(counts))


def percentile(estimate: float, drawn: Tensor, level: float = 0.9) -> Interval:
    """The interval that holds the middle `level` of the resamples `drawn [R]`."""
    level = _share(level)
    drawn = drawn[~drawn.isnan()]
    if not len(drawn):
        return Interval(estimate, math.nan, math.nan)
    ends = drawn.new_tensor([(1 - level) / 2, (1 + level) / 2])
    return Interval(estimate, *torch.quantile(drawn, ends).tolist())


def token_quantiles(
    values: Tensor, owner: Tensor, counts: Tensor, qs: list[float]
) -> Tensor:
    """Quantiles of tokens, `[R, Q]`, where token n counts `counts[r, owner[n]]` times.

    `values [N]`, `owner [N]` the response of each, `counts [R, B]`. Exact, with linear
    interpolation. All tokens are sorted once. For a rank, first the block of sorted tokens
    is found in which it lies, from counts by block; then its place in there.
    """
    values, order = values.sort()
    N, (R, B) = len(values), counts.shape
    size = math.isqrt(N - 1) + 1
    blocks = -(-N // size)
    owner = torch.cat([owner[order], owner.new_full((blocks * size - N,), B)])
    counts = torch.cat([counts, counts.new_zeros(R, 1)], 1)  # of what fills the last block
    at = owner.view(blocks, size)
    held = counts.new_zeros(blocks, B + 1)
    held.scatter_add_(1, at, torch.ones_like(at, dtype=held.dtype))
    upto = (counts @ held.T).cumsum(1)  # [R, blocks]
    rank = (upto[:, -1:] - 1) * upto.new_tensor(qs)  # [R, Q]
    ends = [
        _found(rank.floor() + step, upto, counts, at).clamp(max=N - 1) for step in (0, 1)
    ]
    low, high = (values[end] for end in ends)
    return low + (rank - rank.floor()) * (high - low)


def _found(rank: Tensor, upto: Tensor, counts: Tensor, at: Tensor) -> Tensor:
    """Index among the sorted tokens of that of each rank (0 the first), `[R, Q]`."""
    rank = torch.minimum(rank, upto[:, -1:] - 1)
    block = torch.searchsorted(upto, rank, right=True)
    before = torch.where(block > 0, upto.gather(1, (block - 1).clamp(min=0)), 0.0)
    columns = []
    for q in range(rank.shape[1]):
        inside = counts.gather(1, at[block[:, q]]).cumsum(1)
        passed = (inside <= (rank - before)[:, q, None]).sum(1)
        columns.append(block[:, q] * at.shape[1] + passed)
    return torch.stack(columns, 1)


def _units(groups: Any, B: int) -> Tensor:
    """The unit that each response is drawn with: itself, or its group's number from 0."""
    if groups is None:
        return torch.arange(B)
    labels = as_tensor("groups", groups).cpu()
    if labels.shape != (B,) or labels.is_floating_point():
        raise ValueError(f"groups must be whole numbers [B] = [{B}], one a response")
    _, unit = torch.unique(labels, return_inverse=True)
    return cast(Tensor, unit)


def _share(level: float) -> float:
    if not 0 < number("level", level) < 1:
        raise ValueError(f"level must be between 0 and 1, not {level}")
    return number("level", level)


def _whole(name: str, x: Any) -> int:
    if isinstance(x, bool) or not isinstance(x, int) or x < 1:
        raise ValueError(f"{name} must be a whole number above 0, not {x!r}")
    return x
