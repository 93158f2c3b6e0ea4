"""A cause that the evidence supports, in both languages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ..said import Said, same

Cause = Literal["shift", "zeros", "first", "offset", "scale", "clamp"]
Side = Literal["rollout", "trainer"]
CHINESE: dict[str, str] = {"rollout": "采样端", "trainer": "训练端"}

NAMES: dict[Cause, Said] = {
    "shift": Said("shift by one", "错位一个 token"),
    "zeros": Said("exact zeros", "恰为 0 的 logprob"),
    "first": Said("first tokens only", "只有开头几个 token"),
    "offset": Said("one-sided offset", "单向偏移"),
    "scale": Said("scale", "倍数或温度"),
    "clamp": Said("clamp", "clamp 过的 logprob"),
}
LESSONS: dict[Cause, str] = {
    "shift": "05",
    "zeros": "05",
    "first": "05",
    "offset": "06",
    "scale": "06",
    "clamp": "01",
}
"""The lesson of the course that teaches each."""


@dataclass(frozen=True)
class Finding:
    """A cause that the evidence supports, what supports it and what to do."""

    cause: Cause
    what: Said
    """The fault in one sentence, with its fitted number."""
    evidence: Said
    remedy: Said
    value: float
    """The fitted number: lag, share of zeros, positions, mean d, the bound of a clamp,
    T_rollout / T_train or, of a multiple, trainer / rollout."""
    explains: float = 0.0
    """Share of all |d| that goes away with it, above 0; findings are ranked by this."""
    at_most: bool = False
    """Whether noise that goes with the fault is counted in `explains`."""
    beside: Said | None = None
    """What has to be said of `explains`."""

    @property
    def share(self) -> Said:
        """`explains` in words: never 0%."""
        if self.explains < 0.01:
            return Said("under 1%", "不到 1%")
        share = f"{self.explains:.0%}"
        return Said(f"up to {share}", f"至多 {share}") if self.at_most else same(share)
