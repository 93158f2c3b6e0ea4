"""Generalised advantage estimation against its sum written out, and at both ends of lam."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from batches import seeds
from tinyrl.advantages import gae

shares = st.floats(0, 1)


def drawn(seed, B=4, T=6, holes=True):
    """Rewards, values and a mask with holes, whose rows are of many lengths, one empty."""
    g = torch.Generator().manual_seed(seed)
    R, V = torch.randn(2, B, T, generator=g, dtype=torch.float64)
    mask = torch.arange(T) < torch.randint(1, T + 1, (B, 1), generator=g)
    if holes:
        mask = mask & (torch.rand(B, T, generator=g) < 0.8)
    mask[0] = False
    return R, V, mask


def written_out(R, V, mask, gamma, lam):
    """A_t = sum_l (gamma lam)^l delta_{t+l}, over the tokens of each row's mask."""
    B, T = R.shape
    A = [[0.0] * T for _ in range(B)]
    for b in range(B):
        places = [t for t in range(T) if mask[b, t]]
        r, v = ([x[b, t].item() for t in places] for x in (R, V))
        v.append(0.0)
        delta = [r[i] + gamma * v[i + 1] - v[i] for i in range(len(places))]
        for i, t in enumerate(places):
            A[b][t] = math.fsum((gamma * lam) ** k * x for k, x in enumerate(delta[i:]))
    return torch.tensor(A, dtype=torch.float64)


@given(seeds, shares, shares)
def test_equals_the_sum_written_out(seed, gamma, lam):
    R, V, mask = drawn(seed)
    want = written_out(R, V, mask, gamma, lam)
    A, returns = gae(R, V, mask, gamma=gamma, lam=lam)
    assert torch.allclose(A, want, rtol=1e-12, atol=1e-12)
    assert torch.allclose(returns, torch.where(mask, want + V, 0.0), rtol=1e-12, atol=1e-12)


@given(seeds, shares)
def test_lam_1_is_the_reward_to_go_and_lam_0_one_step(seed, gamma):
    R, V, mask = drawn(seed)
    A, returns = gae(R, V, mask, gamma=gamma, lam=1)
    for b in range(len(R)):
        r, v = R[b][mask[b]].tolist(), [*V[b][mask[b]].tolist(), 0.0]
        n = len(r)
        to_go = [math.fsum(gamma**k * x for k, x in enumerate(r[t:])) for t in range(n)]
        assert returns[b][mask[b]].tolist() == pytest.approx(to_go, rel=1e-11, abs=1e-11)
        one = [r[t] + gamma * v[t + 1] - v[t] for t in range(n)]
        A, _ = gae(R, V, mask, gamma=gamma, lam=0)
        assert A[b][mask[b]].tolist() == pytest.approx(one, rel=1e-11, abs=1e-11)


@given(seeds)
def test_the_right_values_leave_no_advantage(seed):
    """A value that foresees the reward of every token: nothing is a surprise."""
    R, _, mask = drawn(seed)
    _, V = gae(R, torch.zeros_like(R), mask, gamma=0.9, lam=1)
    A, returns = gae(R, V, mask, gamma=0.9, lam=0.7)
    assert A.abs().max() < 1e-12
    assert torch.allclose(returns, V, atol=1e-12)


@given(seeds, shares, shares)
def test_the_reward_of_a_response_is_given_at_its_last_token(seed, gamma, lam):
    R, V, mask = drawn(seed)
    of_response = R[:, 0]
    placed = torch.zeros_like(R)
    for b in range(len(R)):
        if mask[b].any():
            placed[b, mask[b].nonzero().max()] = of_response[b]
    how = {"gamma": gamma, "lam": lam}
    for one, two in zip(
        gae(of_response, V, mask, **how), gae(placed, V, mask, **how), strict=True
    ):
        assert torch.equal(one, two)


@given(seeds, st.sampled_from([math.nan, math.inf, -1e30]))
def test_what_is_no_token_of_the_response_is_not_read(seed, dirt):
    """Padding, and a tool's answer in the middle."""
    R, V, mask = drawn(seed)
    clean = gae(R, V, mask)
    dirty = [
        torch.cat([torch.where(mask, x, dirt), x.new_full((4, 3), dirt)], 1) for x in (R, V)
    ]
    wide = torch.cat([mask, torch.zeros(4, 3, dtype=torch.bool)], 1)
    for one, two in zip(clean, gae(*dirty, wide), strict=True):
        assert torch.equal(one, two[:, :6])
        assert (two[:, 6:] == 0).all()
        assert (one[~mask] == 0).all()


@given(seeds)
def test_a_hole_is_stepped_over(seed):
    R, V, mask = drawn(seed)
    A, returns = gae(R, V, mask)
    for b in range(1, 4):
        kept = mask[b]
        if kept.any():
            row = (x[b][kept][None] for x in (R, V, mask))
            alone = gae(*row)
            assert torch.allclose(A[b][kept], alone[0][0], rtol=1e-13, atol=1e-13)
            assert torch.allclose(returns[b][kept], alone[1][0], rtol=1e-13, atol=1e-13)


@given(seeds, shares, shares)
def test_verls_recursion_without_its_whitening(seed, gamma, lam):
    """verl's lines by hand (core_algos, 2026): equal on the tokens of the mask."""
    R, V, mask = drawn(seed)
    m = mask.double()
    next_value, last, reverse = 0, 0, []
    for t in reversed(range(R.shape[-1])):
        delta = R[:, t] + gamma * next_value - V[:, t]
        new = delta + gamma * lam * last
        next_value = V[:, t] * m[:, t] + (1 - m[:, t]) * next_value
        last = new * m[:, t] + (1 - m[:, t]) * last
        reverse.append(last)
    theirs = torch.stack(reverse[::-1], dim=1)
    A, returns = gae(R, V, mask, gamma=gamma, lam=lam)
    assert torch.allclose(A[mask], theirs[mask], rtol=1e-12, atol=1e-13)
    assert torch.allclose(returns[mask], (theirs + V)[mask], rtol=1e-12, atol=1e-13)


def test_defaults_are_gamma_1_and_ppos_lam():
    R, V, mask = drawn(0)
    for one, two in zip(gae(R, V, mask), gae(R, V, mask, gamma=1, lam=0.95), strict=True):
        assert torch.equal(one, two)


def test_nothing_carries_a_gradient_and_integers_are_rewards():
    V = torch.zeros(2, 3, requires_grad=True)
    A, returns = gae(torch.tensor([1, 0]), V, None, lam=1)
    assert not A.requires_grad
    assert not returns.requires_grad
    assert A.tolist() == [[1, 1, 1], [0, 0, 0]]
    assert A.dtype == torch.float32
    assert torch.equal(gae([[0, 0, 1], [0, 0, 0]], V, None, lam=1)[0], A)


def spoiled(x):
    y = x.clone()
    y[2, 1] = math.nan
    return y


X = torch.zeros(4, 6, dtype=torch.float64)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"rewards": spoiled(X)}, "rewards row 2, column 1 is not finite: nan"),
        ({"values": spoiled(X)}, "values row 2, column 1 is not finite: nan"),
        ({"rewards": spoiled(X)[:, 1]}, "rewards row 2 is not finite: nan"),
        (
            {"rewards": X[:, :5]},
            r"values and rewards differ in shape: \[4, 6\] and \[4, 5\]",
        ),
        ({"rewards": X[:3, 0]}, r"rewards must be \[B\] or \[B, T\] .*, got \[3\]"),
        ({"values": X[0]}, r"values must be \[B, T\], got shape \[6\]"),
        ({"values": X.long()}, "values must hold floats, not int64"),
        ({"mask": X[:3]}, r"values and mask differ in shape: \[4, 6\] and \[3, 6\]"),
        ({"gamma": 1.1}, "gamma must be between 0 and 1, not 1.1"),
        ({"lam": math.nan}, "lam must be between 0 and 1, not nan"),
        ({"lam": "1"}, "lam must be a number, not '1'"),
    ],
)
def test_bad_input(how, message):
    with pytest.raises(ValueError, match=message):
        gae(**{"rewards": X, "values": X, "mask": X == 0, **how})
