"""Where a correction acts: mu, p_old and p_new. Two readings of one weight, and OPSM."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from plain_corrections import batch, seeds
from tinyrl.correction import Correction, off_policy_mask
from tinyrl.objectives import grpo


@given(seeds)
def test_decoupled_and_bypass_are_one_loss_where_nothing_is_clipped(seed):
    """(p_old / mu) (p_new / p_old) = p_new / mu, in value and gradient."""
    old, mu, mask = batch(seed)
    g = torch.Generator().manual_seed(seed)
    new = (old + 0.3 * torch.randn(old.shape, generator=g, dtype=old.dtype)).clamp(max=0)
    A = torch.randn(len(old), generator=g, dtype=old.dtype)
    weight, _ = Correction("token", "truncate", None, math.inf).apply(old, mu, mask)
    wide = {"eps_low": 1.0, "eps_high": 1e9}

    def loss(logp_old, **more):
        logp = new.clone().requires_grad_()
        value = grpo(logp, logp_old, A, mask, **more)
        value.backward()
        return value.item(), logp.grad

    (a, slope_a), (b, slope_b) = loss(old, weight=weight, **wide), loss(mu, **wide)
    assert a == pytest.approx(b, rel=1e-12, abs=1e-14)
    assert torch.allclose(slope_a, slope_b, rtol=1e-12, atol=1e-15)
    twice, _ = loss(mu, weight=weight, **wide)
    if (old != mu)[mask].any() and abs(a) > 1e-3:
        assert twice != pytest.approx(a, rel=1e-6)  # rho counted twice is another loss


@given(seeds, st.sampled_from([0.0, 0.05, 0.3]), st.booleans())
def test_off_policy_masking_in_plain_python(seed, delta, by_token):
    new, mu, mask = batch(seed)
    B, T = new.shape
    A = torch.randn(B, T, generator=torch.Generator().manual_seed(seed))
    A = A if by_token else A[:, 0]
    garbage = torch.where(mask, new, math.nan).requires_grad_()
    kept = off_policy_mask(garbage, mu, A, mask, delta=delta)
    for b in range(B):
        n = mask[b].sum().item()
        kl = math.fsum((mu - new)[b, :n].tolist()) / n
        for t in range(T):
            advantage = A[b, t] if by_token else A[b]
            assert kept[b, t].item() == (t < n and not (advantage < 0 and kl > delta))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"delta": -1}, "delta must be 0 or more, not -1"),
        ({"delta": math.nan}, "delta must be 0 or more, not nan"),
        ({"delta": "1"}, "delta must be a number"),
        ({"advantages": torch.zeros(3)}, r"advantages must be \[B\] or \[B, T\] .*\[3\]"),
        ({"advantages": torch.tensor([0, math.nan])}, "advantages row 1, column 0 is not"),
        ({"logp": torch.ones(2, 2)}, "logp row 0, column 0 is positive"),
        ({"logp_rollout": torch.zeros(2, 3)}, "logp and logp_rollout differ in shape"),
    ],
)
def test_off_policy_masking_of_nonsense(change, message):
    arrays = {"logp": torch.zeros(2, 2), "logp_rollout": torch.zeros(2, 2)}
    good = {**arrays, "advantages": torch.zeros(2), "mask": torch.ones(2, 2), "delta": 0.1}
    assert off_policy_mask(**good).all()
    with pytest.raises(ValueError, match=message):
        off_policy_mask(**{**good, **change})
