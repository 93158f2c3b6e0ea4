"""From two arrays to a verdict: how far apart, what it looks like, what to do."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ..logprobs import check_logps
from ..metrics import Mismatch, compare, kl_terms
from ..said import Language, Said, joined
from . import concentration, sampled
from .altered import clamped, multiple
from .bands import Band, band
from .finding import CHINESE, Finding
from .left import FLOOR, NOTHING, hidden, left
from .offset import even, offset
from .sampled import Means, means
from .signatures import first_tokens, realigned, shift
from .statistics import coarse, minority
from .temperature import scale
from .zeros import exact_zeros

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
    notes: tuple[Said, ...]
    """What else must be known before the numbers are believed. May be empty."""
    rest: Said
    """What is left when they are taken away, in words."""
    means: Means
    """Mean d and mean ratio of all tokens, with errors, before any fault is taken away."""

    def __str__(self) -> str:
        return self.text("en")

    def text(self, language: Language) -> str:
        """All of it but the table, in lines."""
        words = WORDS[language]
        lines = [f"K3 {self.mismatch.k3:.3g}{words[0]}{self.band.reading.to(language)}"]
        for found in self.findings:
            share = words[1].format(found.share.to(language))
            lines.append(found.what.to(language) + share)
            texts = found.evidence, found.remedy
            heads = words[2:4]
            lines += [h + t.to(language) for h, t in zip(heads, texts, strict=True)]
        lines += [words[4] + note.to(language) for note in self.notes]
        return "\n".join([*lines, words[5] + self.rest.to(language)])


WORDS = {
    "en": (
        *(": ", " (explains {} of |d|)", "  evidence: ", "  remedy: ", "note: "),
        "rest: ",
    ),
    "zh": ("：", "（解释了 |d| 的 {}）", "  证据：", "  对策：", "注意：", "剩余："),
}
TWICE = Said(
    "equal to the last bit is what one program shows against itself. Two programs that "
    "compute so are rare: see that it is not one array given twice, and that neither file "
    "holds the other's numbers (recomputed logprobs written over the engine's, or raw ones "
    "kept in both)",
    "逐位相等通常只出现在同一程序与自己相比时，两个程序算得这样一致很少见：请确认没有把同"
    "一个数组给了两次，也没有一个文件存的其实是另一侧的数（重算的 logprob 覆盖了引擎的，"
    "或两边存的都是 raw）",
)


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
    peel = Peel(roll.cpu().double(), train.cpu().double(), real.cpu())
    mismatch = compare(roll, train, real)
    if mismatch.max_abs > FLOOR:
        peel.shift()
        peel.multiple()
        peel.clamp()
        peel.first_tokens()
        peel.exact_zeros()
        peel.sampler()
    ranked = sorted(peel.findings, key=lambda found: -found.explains)
    reading = band(mismatch.k3, mismatch.max_abs)
    notes = (TWICE,) if mismatch.max_abs == 0 else peel.notes()
    of_all = means((train - roll).cpu().double()[real.cpu()])
    return Diagnosis(mismatch, reading, tuple(ranked), notes, peel.reading(), of_all)


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
        self.known: Means | None = None
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

    def notes(self) -> tuple[Said, ...]:
        """Whether the rollout sampled what is left, and whether few tokens are what is.

        A line or an uneven offset leaves no ratio of probabilities to ask that of.
        """
        named = {found.cause for found in self.findings}
        if not self.mask.any() or self.fitted or self.hidden or "offset" in named:
            return ()
        few = concentration.few(self.a, self.b, self.mask)
        if few is not None:  # what is left is read without them
            self.mask = self.mask & ~few.far
        foreign = sampled.said(self._means())
        return tuple(x for x in (few and concentration.said(few), foreign) if x)

    def reading(self) -> Said:
        """What is left, in words, and what coarse logprobs hide of it."""
        stored = [
            Said(
                f"the {side}'s logprobs are multiples of {step:g}: nothing smaller can be "
                "told",
                f"{CHINESE[side]}的 logprob 都是 {step:g} 的倍数：更小的差别看不出来",
            )
            for side, step in self.steps.items()
        ]
        return joined([self._left(), *stored], "; ", "；")

    def _left(self) -> Said:
        d = self.d[self.mask]
        if len(d) == 0 or d.abs().max() == 0:
            return NOTHING
        if self.hidden:
            return hidden(d)
        k3 = kl_terms(d)[2].mean().item()
        sides = self.a[self.mask], self.b[self.mask]
        return left(*sides, d, k3, self._means(), self.fitted)

    def _means(self) -> Means:
        """Of what is left; worked out once, when nothing more is taken away."""
        if self.known is None:
            step = max(self.steps.values(), default=0.0)
            self.known = means(self.d[self.mask], step)
        return self.known

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
