"""From two arrays to a verdict: how far apart, what it looks like, what to do."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ..logprobs import check_logps
from ..metrics import Mismatch, compare, kl_terms
from .bands import Band, band
from .signatures import (
    Finding,
    exact_zeros,
    first_tokens,
    mean_ratio_z,
    minority,
    offset,
    rank_correlation,
    realigned,
    scale,
    shift,
)

FLOOR = 1e-4
"""max |d| up to which nothing is looked for: the order of float32 additions gives 1e-5."""


@dataclass(frozen=True)
class Diagnosis:
    """What two arrays of logprobs say about the stacks that made them."""

    mismatch: Mismatch
    band: Band
    """Reading of K3, before any fault is taken away."""
    findings: tuple[Finding, ...]
    """Causes that the evidence supports, the one that explains most first. May be empty."""
    rest: str
    """What is left when they are taken away, in words."""

    def __str__(self) -> str:
        lines = [f"K3 {self.mismatch.k3:.3g}: {self.band.reading}"]
        for found in self.findings:
            lines.append(f"{found.what} (explains {found.explains:.0%} of |d|)")
            lines += [f"  evidence: {found.evidence}", f"  remedy: {found.remedy}"]
        return "\n".join([*lines, f"rest: {self.rest}"])


@torch.no_grad()
def diagnose(logp_rollout: Any, logp_train: Any, mask: Any = None) -> Diagnosis:
    """Look for the five commonest faults of meaning in two `[B, T]` arrays of logprobs.

    Shift by one, exact zeros, first tokens only; then, over what is left, constant offset
    and scale. Each that is found is taken away before the next is looked for, so that
    faults which occur together are told apart. A cause is named only where its evidence
    rules rounding out. Raises `ValueError` as `check_logps` does.
    """
    roll, train, real = check_logps(mask, logp_rollout=logp_rollout, logp_train=logp_train)
    a, b, real = roll.cpu().double(), train.cpu().double(), real.cpu()
    mismatch = compare(a, b, real)
    findings, rest = [], "" if mismatch.max_abs else "nothing: equal to the last bit"
    if mismatch.max_abs > FLOOR:
        findings, a, b, d = peel(a, b, real)
    else:
        d = (b - a)[real]
    return Diagnosis(
        mismatch,
        band(mismatch.k3, mismatch.max_abs),
        tuple(sorted(findings, key=lambda found: -found.explains)),
        leftover(a, b, d),
    )


def peel(
    a: Tensor, b: Tensor, mask: Tensor
) -> tuple[list[Finding], Tensor, Tensor, Tensor]:
    """Findings, and what is left of both arrays and of d behind them: `[N]` tokens."""
    findings: list[Finding] = []
    unexplained = 1.0

    def add(found: Finding, share: float) -> None:
        nonlocal unexplained
        findings.append(replace(found, explains=unexplained * share))
        unexplained *= 1 - share

    if found := shift(a, b, mask):
        before = (b - a)[mask].abs().mean()
        a, b, mask = realigned(a, b, mask, int(found.value))
        add(found, 1 - ((b - a)[mask].abs().mean() / before).item())
    moving = (a != 0) & (b != 0)
    if found := first_tokens(unexplained_d(a, b, mask & moving), a, b, mask & moving):
        gone = mask & (torch.arange(a.shape[1]) < found.value)
        add(found, _share(b - a, mask, gone))
        mask = mask & ~gone
    d = unexplained_d(a, b, mask & moving)
    processed = not torch.equal(d, b - a)
    for side, found in exact_zeros(d, a, b, mask, processed).items():
        gone = mask & ((a if side == "rollout" else b) == 0)
        add(found, _share(b - a, mask, gone))
        mask = mask & ~gone
    off, scaled = offset(a, b, mask), scale(a, b, mask)
    x, y = a[mask], b[mask]
    d = y - x
    if scaled and not (off and minority(d) < 0.03):
        found, line = scaled
        after = y - line.predict(x)
        add(found, 1 - (after.abs().sum() / d.abs().sum()).item())
        d = after
    if off:
        after = d - d.mean()
        add(off, 1 - (after.abs().sum() / d.abs().sum()).item())
        d = after
    return findings, x, y, d


def unexplained_d(a: Tensor, b: Tensor, mask: Tensor) -> Tensor:
    """d `[B, T]` without an offset or a scale that holds everywhere, or from half-way on.

    Behind a wrong prefix only the later tokens show what else is wrong.
    """
    if offset(a, b, mask):
        return torch.zeros_like(a)
    place = torch.arange(a.shape[1]).expand_as(a)
    late = mask & (place >= place.shape[1] // 2)
    for use in (mask, late):
        if scaled := scale(a, b, use):
            return b - scaled[1].predict(a)
    d = b - a
    return d - d[late].mean() if offset(a, b, late) else d


def leftover(a: Tensor, b: Tensor, d: Tensor) -> str:
    """A reading of what no finding explains."""
    n = len(d)
    if n == 0 or d.abs().max() == 0:
        return "nothing"
    size = (
        f"mean |d| {d.abs().mean():.2g}, K3 {kl_terms(d)[2].mean():.2g} over {n:,} tokens"
    )
    if d.abs().max() < FLOOR:
        return f"the floor of float32 ({size})"
    if n < 30:
        return f"{size}: too few tokens to name a cause, other than exact zeros"
    unsure = b < b.median()
    alike = rank_correlation(a, b)
    louder = d[unsure].abs().mean() > d[~unsure].abs().mean()
    if minority(d) > 0.1 and abs(mean_ratio_z(d)) < 10 and alike > 0.7 and louder:
        return (
            f"{size}: like rounding, both signs and larger where the policy is unsure. "
            "Number formats, kernels or weights a few updates apart look so; logprobs alone "
            "do not tell them apart"
        )
    return (
        f"{size}: none of the five signatures (rank correlation of the two sides "
        f"{alike:.2f}). Compare token ids, rows and weight versions"
    )


def _share(d: Tensor, mask: Tensor, gone: Tensor) -> float:
    return (d[gone].abs().sum() / d[mask].abs().sum()).item()
