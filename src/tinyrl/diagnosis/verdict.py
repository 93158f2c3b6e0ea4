"""From two arrays to a verdict: how far apart, what it looks like, what to do."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ..logprobs import check_logps
from ..metrics import Mismatch, compare, kl_terms
from .altered import clamped, multiple
from .bands import Band, band
from .signatures import Finding, even, exact_zeros, first_tokens, offset, realigned, shift
from .statistics import coarse, few, mean_ratio_z, minority, rank_correlation
from .temperature import scale

FLOOR = 1e-4
"""max |d| up to which nothing is looked for: the order of float32 additions gives 1e-5."""
LEAST = 0.05
"""Share of what is left that a fitted number must take away to be named: one number that is
fitted to noise takes about 1 / 2n of it, 2% of the 30 tokens that are needed."""


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
            lines.append(f"{found.what} (explains {found.share} of |d|)")
            lines += [f"  evidence: {found.evidence}", f"  remedy: {found.remedy}"]
        return "\n".join([*lines, f"rest: {self.rest}"])


@torch.no_grad()
def diagnose(logp_rollout: Any, logp_train: Any, mask: Any = None) -> Diagnosis:
    """Look for the commonest faults of meaning in two `[B, T]` arrays of logprobs.

    The tokens must be the rollout's own samples: offset and scale are told by means over
    them, and on other tokens (teacher forcing, another policy's) they may get false names.

    Shift by one, first tokens only, exact zeros, offset, scale, clamp. Each that is found
    is taken away before the next is looked for, so that faults which occur together are
    told apart. A cause is named only where its evidence rules rounding out. Raises
    `ValueError` as `check_logps` does.
    """
    roll, train, real = check_logps(mask, logp_rollout=logp_rollout, logp_train=logp_train)
    left = Peel(roll.cpu().double(), train.cpu().double(), real.cpu())
    mismatch = compare(roll, train, real)
    if mismatch.max_abs > FLOOR:
        left.shift()
        left.multiple()
        left.clamp()
        left.first_tokens()
        left.exact_zeros()
        left.sampler()
    ranked = sorted(left.findings, key=lambda found: -found.explains)
    reading = band(mismatch.k3, mismatch.max_abs)
    return Diagnosis(mismatch, reading, tuple(ranked), left.reading())


class Peel:
    """Two arrays and the tokens of them that no finding has explained yet."""

    def __init__(self, a: Tensor, b: Tensor, mask: Tensor) -> None:
        self.a, self.b, self.mask = a.clamp(max=0), b.clamp(max=0), mask
        self.d = self.b - self.a
        self.findings: list[Finding] = []
        self.unexplained = 1.0
        sides = (("rollout", self.a[mask]), ("trainer", self.b[mask]))
        self.steps = {side: step for side, x in sides if (step := coarse(x))}
        """The side whose logprobs are stored in few digits, and their step."""
        self.fitted = False
        """A line for all tokens was taken away: what it leaves of a temperature is left."""
        self.hidden = False
        """An uneven offset lies over what is left: its size at each token is not known."""

    def shift(self) -> None:
        """Move one array by a token, if that is what is wrong."""
        if found := shift(self.a, self.b, self.mask):
            a, b, mask = realigned(self.a, self.b, self.mask, int(found.value))
            if self._less(found, b - a, mask):
                self.a, self.b = a, b

    def multiple(self) -> None:
        """Divide by a number that one side is multiplied by."""
        if seen := multiple(self.a, self.b, self.mask):
            found, a, b = seen
            if self._less(found, b - a, self.mask):
                self.a, self.b = a, b

    def clamp(self) -> None:
        """Leave out the tokens of a side that lie exactly at its lower bound."""
        for side in ("rollout", "trainer"):
            x, y = (self.a, self.b) if side == "rollout" else (self.b, self.a)
            if found := clamped(side, x, y, self.mask):
                self._leave_out(*found)

    def first_tokens(self) -> None:
        """Leave out the start of all responses, if the prefix is what is wrong."""
        a, b, use = self.a, self.b, self.mask & self._moving()
        if found := first_tokens(unexplained(a, b, use), a, b, use):
            start = torch.arange(a.shape[1]) < found.value
            # d of one sign, at the start or everywhere, is a sampler's and not a prefix's
            if not offset(a, b, use) and not offset(a, b, use & start):
                self._leave_out(found, start)

    def exact_zeros(self) -> None:
        """Leave out all zeros of a side that has some which were never computed."""
        a, b, mask = self.a, self.b, self.mask
        d = unexplained(a, b, mask & self._moving())
        processed = not torch.equal(d, b - a)
        for side, found in exact_zeros(d, a, b, mask, processed).items():
            self._leave_out(found, (a if side == "rollout" else b) == 0)

    def sampler(self) -> None:
        """Take away an offset, a scale, or both.

        A scale's line has an intercept, which would take an offset away as well: where both
        are found, the offset is what the mean ratio says, which no temperature moves.
        """
        off, scaled = offset(self.a, self.b, self.mask), scale(self.a, self.b, self.mask)
        d = self.d[self.mask]
        if scaled and not (off and minority(d) < 0.03):
            found, line = scaled
            if off:
                self._less(off, self.d - d.exp().mean().log(), self.mask)
            self.fitted = self._less(found, self.b - line.predict(self.a), self.mask)
        elif off and even(d):
            self._less(off, self.d - d.mean(), self.mask)
        elif off:
            self._add(replace(off, at_most=True), 1 - 2 * minority(d))
            self.hidden = True

    def reading(self) -> str:
        """What is left, in words, and what coarse logprobs hide of it."""
        stored = [
            f"the {side}'s logprobs are multiples of {step:g}: nothing smaller can be told"
            for side, step in self.steps.items()
        ]
        return "; ".join([self._left(), *stored])

    def _left(self) -> str:
        a, b, d = self.a[self.mask], self.b[self.mask], self.d[self.mask]
        n = len(d)
        if n == 0 or d.abs().max() == 0:
            return "nothing"
        if self.hidden:
            return (
                f"mean |d| of at least {2 * minority(d) * d.abs().mean():.2g} over {n:,} "
                "tokens, as the signs tell: the offset differs from token to token and "
                "hides the rest"
            )
        mean, k3 = d.abs().mean().item(), kl_terms(d)[2].mean().item()
        size = f"mean |d| {mean:.2g}, K3 {k3:.2g} over {n:,} tokens"
        if d.abs().max() < FLOOR:
            return f"{size}: the floor of float32"
        if n < 30:
            return f"{size}: too few tokens to tell offset, scale or a wrong prefix"
        if few(a, b):
            return f"{size}: too few different tokens to tell an offset or a scale"
        alike = rank_correlation(a, b)
        if minority(d) > 0.1 and abs(mean_ratio_z(d)) < 10 and alike > 0.6:
            line = "what one line for all tokens leaves of a temperature, or "
            return (
                f"{size}: both signs and a mean ratio near 1, as {line * self.fitted}two "
                "whole distributions give that differ by rounding, kernels or weights; "
                "logprobs alone do not tell which"
            )
        return (
            f"{size}: none of the signatures, and more than rounding (rank "
            f"correlation of the two sides {alike:.2f}, mean d {d.mean():.2g}). Compare "
            "token ids, rows, positions and weight versions"
        )

    def _moving(self) -> Tensor:
        return (self.a != 0) & (self.b != 0)

    def _leave_out(self, found: Finding, gone: Tensor) -> None:
        size = torch.where(self.mask, self.d.abs(), 0.0)
        self._add(found, (torch.where(gone, size, 0.0).sum() / size.sum()).item())
        self.mask = self.mask & ~gone

    def _less(self, found: Finding, d: Tensor, mask: Tensor) -> bool:
        """Name a fitted finding that leaves `d`, if that is enough less: go on with it."""
        share = 1 - (d[mask].abs().mean() / self.d[self.mask].abs().mean()).item()
        if share < LEAST:
            return False
        self._add(found, share)
        self.d, self.mask = d, mask
        return True

    def _add(self, found: Finding, share: float) -> None:
        self.findings.append(replace(found, explains=self.unexplained * share))
        self.unexplained *= 1 - share


def unexplained(a: Tensor, b: Tensor, mask: Tensor) -> Tensor:
    """d `[B, T]` without an offset or a scale that holds everywhere, or from half-way on.

    Behind a wrong prefix only the later tokens show what else is wrong.
    """
    d = b - a
    late = mask & (torch.arange(a.shape[1]) >= a.shape[1] // 2)
    for use in (mask, late):
        if offset(a, b, use):
            return d - d[use].mean()
        if scaled := scale(a, b, use):
            return b - scaled[1].predict(a)
    return d
