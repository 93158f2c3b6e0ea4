"""Gates: their shape, the weight that they leave to a gradient, numbers they refuse."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from batches import batch
from plain_losses import surrogate
from tinyrl.objectives import cispo, clip, ppo, soft_gate

ratios = st.floats(0.01, 20)
advantages = st.floats(-3, 3)


def slope(gate, r, A, *how):
    """A gate's loss of one ratio, and its derivative by the logprob, r d/dr."""
    x = torch.tensor(math.log(r), dtype=torch.float64, requires_grad=True)
    value = gate(x.exp(), torch.tensor(A, dtype=torch.float64), *how)
    (d,) = torch.autograd.grad(value, x)
    return value.item(), d.item()


@given(ratios, advantages, st.none() | st.floats(1.5, 10))
def test_clip_in_plain_python(r, A, c):
    value, d = slope(clip, r, A, 0.2, 0.28, c)
    want, want_d = surrogate(r, A, 0.2, 0.28, c)
    assert value == pytest.approx(want, rel=1e-12)
    assert d == pytest.approx(want_d * r, rel=1e-12)


@given(ratios, st.floats(0, 3))
def test_dual_clip_bounds_the_loss_of_a_bad_token_and_leaves_a_good_one_alone(r, A):
    assert slope(clip, r, A, 0.2, 0.2, 3.0) == slope(clip, r, A, 0.2, 0.2)
    value, d = slope(clip, r, -A, 0.2, 0.2, 3.0)
    plain, plain_d = slope(clip, r, -A, 0.2, 0.2)
    assert value == pytest.approx(min(plain, 3 * A), rel=1e-12)
    assert d == (plain_d if r < 3 else 0)


def test_without_dual_clip_the_loss_of_a_bad_token_grows_without_end():
    r = torch.tensor([2.9, 3.1, 1e3, 4.8e8])
    minus = torch.tensor(-1.0)
    assert torch.equal(clip(r, minus, 0.2, 0.2), r)
    assert clip(r, minus, 0.2, 0.2, 3.0).tolist() == pytest.approx([2.9, 3, 3, 3])


@given(ratios, advantages, st.floats(0.2, 5), st.floats(0.2, 5))
def test_soft_gate_weighs_a_gradient_by_4_s_1_minus_s_r(r, A, pos, neg):
    tau = pos if A > 0 else neg
    s = 1 / (1 + math.exp(-tau * (r - 1)))
    value, d = slope(soft_gate, r, A, pos, neg)
    assert value == pytest.approx(-4 / tau * s * A, rel=1e-12, abs=1e-300)
    # 1 - s loses digits as s nears 1: written as sigmoid(-x) it does not
    rest = 1 / (1 + math.exp(tau * (r - 1)))
    assert d == pytest.approx(-A * r * 4 * s * rest, rel=1e-9, abs=1e-12)


@given(st.floats(0.05, 5), st.floats(0.05, 5), advantages)
def test_soft_gate_is_reinforce_at_a_ratio_of_one_at_every_temperature(pos, neg, A):
    assert slope(soft_gate, 1.0, A, pos, neg)[1] == pytest.approx(-A, rel=1e-12)


def test_soft_gate_fades_where_clip_stops_and_for_bad_tokens_sooner():
    weights = {r: slope(soft_gate, r, 1.0)[1] for r in (1.0, 1.21, 2.0, 5.0, 20.0)}
    assert slope(clip, 1.21, 1.0, 0.2, 0.2)[1] == 0
    far = [-weights[r] / r for r in sorted(weights)]
    assert far == sorted(far, reverse=True)
    assert 0.98 < far[1] < 1
    assert 0 < far[-1] < 1e-6
    for r in (0.1, 0.5, 1.5, 3.0):
        assert slope(soft_gate, r, -1.0)[1] < -slope(soft_gate, r, 1.0)[1]


@given(ratios, advantages.filter(bool), st.floats(0, 1), st.floats(1.01, 10))
def test_cispo_keeps_every_gradient_at_its_bounded_weight(r, A, eps_low, cap):
    """Neither end stops a token, not even where PPO's clip does."""
    logp = torch.tensor([[-25.0]], dtype=torch.float64, requires_grad=True)
    old = logp.detach() - math.log(r)
    one = torch.ones(1, 1, dtype=torch.bool)
    A = torch.tensor([A], dtype=torch.float64)
    cispo(logp, old, A, one, eps_low=eps_low, cap=cap).backward()
    want = -min(max(r, 1 - eps_low), cap) * A.item()
    assert logp.grad.item() == pytest.approx(want, rel=1e-12)


def test_cispo_has_no_lower_bound_unless_told_and_none_above_with_an_infinite_cap():
    old = torch.tensor([[-1.0, -9.0]], dtype=torch.float64)
    logp = torch.tensor([[-9.0, -1.0]], dtype=torch.float64, requires_grad=True)
    mask = torch.ones(1, 2, dtype=torch.bool)
    cispo(logp, old, torch.ones(1), mask, cap=math.inf).backward()
    want = [[-math.exp(-8) / 2, -math.exp(8) / 2]]
    assert torch.allclose(logp.grad, torch.tensor(want, dtype=torch.float64), rtol=1e-12)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        (
            {"cap": 0.28},
            r"cap must be above 1, not 0\.28: .*; a width above 1 is eps_high=0",
        ),
        ({"cap": 1}, "cap must be above 1"),
        ({"cap": math.nan}, "cap must be above 1"),
        ({"eps_high": 5.0}, r"eps_high must be between 0 and 1, not 5\.0: .* is cap=5\.0"),
        ({"eps_high": -0.1}, "eps_high must be between 0 and 1"),
        ({}, "eps_high or cap must be given, one of them, not None and None"),
        ({"eps_high": 0.28, "cap": 5.0}, "one of them, not 0.28 and 5.0"),
        ({"cap": 5.0, "eps_low": 10}, "eps_low must be between 0 and 1, not 10.0: at 1"),
    ],
)
def test_no_number_is_taken_for_both_a_width_and_a_cap(how, message):
    logp, old, A, mask = batch(0)
    with pytest.raises(ValueError, match=message):
        cispo(logp, old, A, mask, **how)


@pytest.mark.parametrize("c", [1.0, 0.5, -3, math.inf, math.nan])
def test_a_dual_clip_is_above_one(c):
    logp, old, A, mask = batch(0)
    with pytest.raises(ValueError, match="dual_clip must be above 1"):
        ppo(logp, old, A, mask, dual_clip=c)


@pytest.mark.parametrize("tau", [0, -1.0, math.inf, math.nan])
@pytest.mark.parametrize("name", ["tau_pos", "tau_neg"])
def test_temperatures_are_above_zero(name, tau):
    with pytest.raises(ValueError, match=f"{name} must be above 0 and finite"):
        soft_gate(torch.ones(2), torch.ones(2), **{name: tau})
