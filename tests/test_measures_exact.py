"""Divergences against their true values, which enumeration of a tiny vocabulary knows.

With mu in multiples of 1/6, a batch of 6^T responses that holds each as often as mu gives
it has expectations for its means: no sampling noise is left.
"""

import itertools
import math
from fractions import Fraction

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tinyrl.monitoring import monitor


@st.composite
def policies(draw, V=3, T=2):
    """A rollout and a trainer policy over responses of T tokens, as exact fractions:
    the probability of each token after each prefix."""
    prefixes = [p for t in range(T) for p in itertools.product(range(V), repeat=t)]
    both = []
    for least, whole in ((1, 6), (1, 7)):
        cuts = st.lists(st.integers(least, whole - 2), min_size=V - 1, max_size=V - 1)
        policy = {}
        for prefix in prefixes:
            parts = draw(cuts.filter(lambda x, whole=whole: sum(x) < whole))
            policy[prefix] = [Fraction(x, whole) for x in (*parts, whole - sum(parts))]
        both.append(policy)
    return V, T, *both


def chances(policy, V, T):
    """Of each response, and of its tokens."""
    out = {}
    for y in itertools.product(range(V), repeat=T):
        tokens = [policy[y[:t]][y[t]] for t in range(T)]
        out[y] = math.prod(tokens), tokens
    return out


def exact_batch(V, T, mu, pi):
    """Responses as often as mu gives them, with the logprobs of both policies."""
    of_mu, of_pi = chances(mu, V, T), chances(pi, V, T)
    whole = 6**T
    ys = [y for y, (p, _) in of_mu.items() for _ in range(int(p * whole))]
    assert len(ys) == whole
    arrays = [
        torch.tensor([[math.log(p) for p in of[y][1]] for y in ys], dtype=torch.float64)
        for of in (of_mu, of_pi)
    ]
    return ys, *arrays, of_mu, of_pi


@given(policies())
def test_divergences_are_the_true_ones(drawn):
    V, T, mu, pi = drawn
    _, roll, train, of_mu, of_pi = exact_batch(V, T, mu, pi)
    got = monitor(roll, train)
    # of tokens: the mean over positions of what holds after each prefix that mu reaches
    kl = chi2 = reverse = 0.0
    for prefix, p in mu.items():
        reach = math.prod(mu[prefix[:t]][prefix[t]] for t in range(len(prefix)))
        q = pi[prefix]
        pairs = list(zip(p, q, strict=True))
        kl += float(reach) * math.fsum(a * math.log(a / b) for a, b in pairs) / T
        chi2 += float(reach * (sum(b * b / a for a, b in pairs) - 1)) / T
        reverse += float(reach * (sum(a * a / b for a, b in pairs) - 1)) / T
    same = {"rel": 1e-9, "abs": 1e-13}
    assert got["k1"] == pytest.approx(kl, **same)
    assert got["k3"] == pytest.approx(kl, **same)
    assert got["chi2"] == pytest.approx(chi2, **same)
    assert got["ratio_mean"] == pytest.approx(1, **same)
    assert got["ess"] == pytest.approx(1 / (1 + chi2), **same)
    assert got["k3_reverse"] == pytest.approx(reverse - kl, **same)
    # of responses
    pairs = [(of_mu[y][0], of_pi[y][0]) for y in of_mu]
    chi2_seq = float(sum(b * b / a for a, b in pairs) - 1)
    assert got["seq_mean"] == pytest.approx(
        -math.fsum(a * math.log(a / b) for a, b in pairs), **same
    )
    assert got["seq_ratio_mean"] == pytest.approx(1, **same)
    assert got["chi2_seq"] == pytest.approx(chi2_seq, **same)
    assert got["ess_seq"] == pytest.approx(1 / (1 + chi2_seq), **same)


@given(policies(), st.lists(st.integers(-3, 3), min_size=9, max_size=9))
def test_the_reward_gap_is_that_of_the_policies(drawn, table):
    """J(trainer) - J(rollout), though only the rollout's responses are there."""
    V, T, mu, pi = drawn
    ys, roll, train, of_mu, of_pi = exact_batch(V, T, mu, pi)
    reward = dict(zip(of_mu, table, strict=True))
    R = torch.tensor([float(reward[y]) for y in ys])
    J_mu, J_pi = (sum(of[y][0] * reward[y] for y in of) for of in (of_mu, of_pi))
    got = monitor(roll, train, rewards=R)
    assert got["reward_mean"] == pytest.approx(float(J_mu), abs=1e-12)
    assert got["reward_gap"] == pytest.approx(float(J_pi - J_mu), abs=1e-12)


def test_two_of_nemos_numbers_are_no_divergences():
    """As their docstrings have it: under mu, neither KL(train || mu) nor Jensen-Shannon."""
    p, q = [0.75, 0.25], [0.25, 0.75]
    roll = torch.tensor([[0.75]] * 3 + [[0.25]], dtype=torch.float64).log()
    train = torch.tensor([[0.25]] * 3 + [[0.75]], dtype=torch.float64).log()
    got = monitor(roll, train)
    kl_reverse = math.fsum(b * math.log(b / a) for a, b in zip(p, q, strict=True))
    m = [(a + b) / 2 for a, b in zip(p, q, strict=True)]
    js = math.fsum(
        (a * math.log(a / c) + b * math.log(b / c)) / 2
        for a, b, c in zip(p, q, m, strict=True)
    )
    assert abs(got["k3_reverse"] - kl_reverse) > 0.2
    assert abs(got["log_cosh"] - js) > 0.01
