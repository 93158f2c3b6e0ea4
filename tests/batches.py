"""Random arrays for the tests of losses."""

import torch
from hypothesis import strategies as st

seeds = st.integers(0, 2**32 - 1)


def batch(seed, B=5, T=7, spread=0.3):
    """logp, logp_old, advantages, mask in float64; every row has a token."""
    g = torch.Generator().manual_seed(seed)
    old = -3 * torch.rand(B, T, generator=g, dtype=torch.float64) - 0.1
    logp = (old + spread * torch.randn(B, T, generator=g, dtype=torch.float64)).clamp(max=0)
    A = torch.randn(B, generator=g, dtype=torch.float64)
    length = torch.randint(1, T + 1, (B, 1), generator=g)
    return logp, old, A, torch.arange(T) < length
