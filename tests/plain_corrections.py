"""Corrections in plain Python, on lists, and random ones for the tests."""

import math

import torch
from hypothesis import strategies as st

from tinyrl.correction import Correction

LEVELS = ("token", "sequence", "geometric")
WEIGHTS = ("ratio", "one")
seeds = st.integers(0, 2**32 - 1)


def batch(seed, B=5, T=6, spread=0.5):
    g = torch.Generator().manual_seed(seed)
    roll = -2 * torch.rand(B, T, generator=g, dtype=torch.float64) - 0.5
    train = roll + spread * torch.randn(B, T, generator=g, dtype=torch.float64)
    length = torch.randint(1, T + 1, (B, 1), generator=g)
    return train.clamp(max=0), roll, torch.arange(T) < length


def rho(level, d):
    """Ratios of one response from its list of deltas."""
    if level == "token":
        return [math.exp(x) for x in d]
    total = math.fsum(d) / (len(d) if level == "geometric" else 1)
    return [math.exp(total)] * len(d)


def plain(c, deltas):
    """Weights and kept from lists of deltas, a list a response: a Correction, slowly."""
    low, high = c.lower or 0.0, math.inf if c.upper is None else c.upper
    weights, kept = [], []
    for d in deltas:
        r = rho(c.level, d)
        inside = [c.operation != "mask" or low <= x <= high for x in r]
        if c.veto is not None and min(math.exp(x) for x in d) < c.veto:
            inside = [False] * len(d)
        if c.operation == "none" or c.weight == "one":
            r = [1.0] * len(d)
        elif c.operation == "truncate":
            r = [min(max(x, low), high) for x in r]
        weights.append(r)
        kept.append(inside)
    if c.normalise:
        pairs = [list(zip(w, k, strict=True)) for w, k in zip(weights, kept, strict=True)]
        units = [x for row in pairs for x in (row if c.level == "token" else row[:1])]
        used = [w for w, k in units if k]
        mean = math.fsum(used) / (len(units) if c.denominator == "all" else len(used) or 1)
        weights = [[w / mean if mean else w for w in row] for row in weights]
    if c.also is not None:
        more, left = plain(c.also, deltas)
        weights = [
            [x * y for x, y in zip(*z, strict=True)]
            for z in zip(weights, more, strict=True)
        ]
        kept = [
            [x and y for x, y in zip(*z, strict=True)] for z in zip(kept, left, strict=True)
        ]
    return weights, kept


BOUNDS = st.sampled_from([(None, 2.0), (0.5, None), (0.8, 1.25), (0.0, 1.1)])


@st.composite
def corrections(draw, depth=1, denominator=None):
    operation = draw(st.sampled_from(["none", "truncate", "mask"]))
    denominator = denominator or draw(st.sampled_from(["kept", "all"]))
    also = None
    if depth and draw(st.booleans()):
        also = draw(corrections(depth - 1, denominator))
    return Correction(
        draw(st.sampled_from(LEVELS)),
        operation,
        *draw(BOUNDS),
        weight="ratio" if operation == "truncate" else draw(st.sampled_from(WEIGHTS)),
        normalise=draw(st.booleans()),
        veto=draw(st.sampled_from([None, 0.4, 0.7])),
        denominator=denominator,
        also=also,
    )
