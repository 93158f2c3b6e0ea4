"""Every objective against plain Python, finite differences and its relatives."""

import math

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from batches import batch, seeds
from plain_losses import (
    AVERAGE,
    NAMES,
    loss,
    plain,
    settings_of,
    value_and_gradient,
)
from tinyrl.correction import Correction
from tinyrl.objectives import (
    at_level,
    cispo,
    dapo,
    grpo,
    gspo,
    gspo_token,
    ppo,
    reinforce,
)


def drawn(seed, like):
    g = torch.Generator().manual_seed(seed)
    return torch.rand(like.shape, generator=g, dtype=like.dtype)


def thinned(seed, mask):
    """A mask from which tokens are gone, of some rows all."""
    return (
        mask
        & (drawn(seed, mask.double()) < 0.7)
        & (drawn(seed, mask[:, :1].double()) < 0.8)
    )


@pytest.mark.parametrize("name", NAMES)
@given(data=st.data(), seed=seeds)
def test_value_and_gradient_equal_the_formula_in_plain_python(name, data, seed):
    logp, old, A, mask = batch(seed, spread=0.7)
    how = data.draw(settings_of(name))
    if name != "gspo" and data.draw(st.booleans()):
        A = A[:, None] + 0.5 * drawn(seed, logp)
    arrays = {"weight": drawn(seed, logp) + 0.5} if data.draw(st.booleans()) else {}
    if data.draw(st.booleans()):
        arrays["counted"], mask = mask, thinned(seed, mask)
    lists = [x.tolist() for x in (logp, old, A, mask)]
    want, slopes = plain(name, *lists, **{k: x.tolist() for k, x in arrays.items()}, **how)
    value, gradient = value_and_gradient(name, logp, old, A, mask, **arrays, **how)
    assert value.item() == pytest.approx(want, rel=1e-11, abs=1e-14)
    slopes = torch.tensor(slopes, dtype=torch.float64)
    assert torch.allclose(gradient, slopes, rtol=1e-10, atol=1e-14)


@pytest.mark.parametrize("name", NAMES)
@given(seed=seeds)
def test_the_defaults_are_the_papers(name, seed):
    """Those of `plain` are written out again there: widths, temperatures, averages."""
    logp, old, A, mask = batch(seed, spread=0.02 if "gspo" in name else 0.4)
    want, slopes = plain(name, *(x.tolist() for x in (logp, old, A, mask)))
    value, gradient = value_and_gradient(name, logp, old, A, mask)
    assert value.item() == pytest.approx(want, rel=1e-11, abs=1e-14)
    assert torch.allclose(gradient, torch.tensor(slopes, dtype=torch.float64), rtol=1e-10)


SURROGATES = ("cispo", "gspo_token")
"""Their gradient is not that of their value: a factor is held still."""


@pytest.mark.parametrize("name", [n for n in NAMES if n not in SURROGATES])
@given(seed=seeds, data=st.data())
def test_gradients_agree_with_finite_differences(name, seed, data):
    logp, old, A, mask = batch(seed, B=3, T=4)
    logp = logp.clamp(max=-1e-4)
    how = data.draw(settings_of(name))
    if "eps_low" in how:
        level = "geometric" if name == "gspo" else "token"
        r = at_level(logp - old, mask, level).exp()
        kinks = [1 - how["eps_low"], 1 + how["eps_high"], how.get("dual_clip") or 0]
        assume(all((r - kink).abs().min() > 1e-4 for kink in kinks))
    extra = {"logp_ref": old - 0.2, "beta": 0.3} if name == "grpo" else {}
    assert torch.autograd.gradcheck(
        lambda x: loss(name, x, old, A, mask, weight=old.exp(), **how, **extra),
        logp.requires_grad_(),
    )


@pytest.mark.parametrize("name", NAMES)
@given(seed=seeds, data=st.data())
def test_at_the_old_policy_the_gradient_is_that_of_reinforce(name, seed, data):
    _, old, A, mask = batch(seed)
    how = data.draw(settings_of(name))
    average = {"aggregation": how.get("aggregation", AVERAGE[name])}
    if average["aggregation"] == "constant":
        average["length"] = how["length"]
    _, gradient = value_and_gradient(name, old, old, A, mask, **how)
    x = old.clone().requires_grad_()
    reinforce(x, old, A, mask, **average).backward()
    assert torch.allclose(gradient, x.grad, rtol=1e-12, atol=0)
    if average["aggregation"] == "token_mean":
        by_hand = torch.where(mask, -A[:, None] / mask.sum(), 0.0)
        assert torch.allclose(gradient, by_hand, rtol=1e-12, atol=0)


# What is not a real, kept token changes nothing


@pytest.mark.parametrize("name", NAMES)
@given(
    seed=seeds,
    data=st.data(),
    garbage=st.sampled_from([math.nan, math.inf, -math.inf, 1e30, 3.0]),
)
def test_padding_changes_neither_loss_nor_gradient(name, seed, data, garbage):
    logp, old, A, mask = batch(seed)
    how = data.draw(settings_of(name))

    def run(dirt, extra):
        def pad(x):
            return torch.cat([torch.where(mask, x, dirt), x.new_full((5, extra), dirt)], 1)

        m = torch.cat([mask, torch.zeros(5, extra, dtype=torch.bool)], 1)
        more = {"logp_ref": pad(old - 0.1)} if name == "grpo" else {}
        per_token = pad(A[:, None].expand(5, 7))
        arrays = (pad(logp), pad(old), per_token, m)
        return value_and_gradient(name, *arrays, weight=pad(old.exp()), **how, **more)

    value, gradient = run(-1.0, 0)
    dirty, dirty_gradient = run(garbage, 3)
    assert dirty.item() == pytest.approx(value.item(), rel=1e-14)
    assert torch.allclose(dirty_gradient[:, :7], gradient, rtol=1e-14, atol=0)
    assert (dirty_gradient[:, 7:] == 0).all()
    assert (dirty_gradient[:, :7][~mask] == 0).all()


@pytest.mark.parametrize("name", NAMES)
def test_padding_full_of_nan_is_not_even_met_on_the_way_back(name):
    """torch's anomaly detection stops at the first NaN of any step of the backward pass."""
    logp, old, A, mask = batch(0)
    dirty = [torch.where(mask, x, math.nan) for x in (logp, old, A[:, None], old.exp())]

    def stopping_at_nan():
        with torch.autograd.detect_anomaly():
            return value_and_gradient(name, *dirty[:3], mask, weight=dirty[3])

    with pytest.warns(UserWarning, match="Anomaly"):
        _, gradient = stopping_at_nan()
    assert gradient.isfinite().all()


@pytest.mark.parametrize("name", NAMES)
@given(seed=seeds, data=st.data())
def test_a_row_without_tokens_is_kept_out(name, seed, data):
    logp, old, A, mask = batch(seed)
    how = data.draw(settings_of(name))
    without = mask.clone()
    without[2] = False
    value, gradient = value_and_gradient(name, logp, old, A, without, **how)
    rows = [0, 1, 3, 4]
    arrays = [x[rows] for x in (logp, old, A, mask)]
    want, slopes = value_and_gradient(name, *arrays, **how)
    assert value.item() == pytest.approx(want.item(), rel=1e-13)
    assert torch.allclose(gradient[rows], slopes, rtol=1e-13, atol=0)
    assert (gradient[2] == 0).all()


@pytest.mark.parametrize("name", NAMES)
def test_nothing_kept_means_no_loss_and_no_gradient(name):
    logp, old, A, mask = batch(0)
    for counted in (None, mask):
        value, gradient = value_and_gradient(
            name, logp, old, A, mask & False, counted=counted
        )
        assert value.item() == 0
        assert (gradient == 0).all()


@pytest.mark.parametrize("name", NAMES)
@given(seed=seeds, data=st.data())
def test_the_order_of_responses_does_not_matter(name, seed, data):
    logp, old, A, mask = batch(seed)
    how = data.draw(settings_of(name))
    order = torch.randperm(5, generator=torch.Generator().manual_seed(seed))
    one = loss(name, logp, old, A, mask, **how)
    two = loss(name, *(x[order] for x in (logp, old, A, mask)), **how)
    assert two.item() == pytest.approx(one.item(), rel=1e-12, abs=1e-14)


@pytest.mark.parametrize("name", NAMES)
def test_nothing_but_logp_gets_a_gradient(name):
    logp, old, A, mask = batch(0)
    others = [x.clone().requires_grad_() for x in (old, A, old.exp())]
    x = logp.clone().requires_grad_()
    loss(name, x, others[0], others[1], mask, weight=others[2]).backward()
    assert x.grad.abs().sum() > 0
    assert all(y.grad is None for y in others)


# Relatives


@given(seeds, st.floats(0.001, 0.5), st.floats(0.001, 0.5))
def test_gspo_token_is_gspo_where_a_response_has_one_advantage(seed, low, high):
    logp, old, A, mask = batch(seed)
    how = {"eps_low": low, "eps_high": high, "weight": old[:, :1].exp().expand(5, 7)}
    one = value_and_gradient("gspo", logp, old, A, mask, **how)
    two = value_and_gradient("gspo_token", logp, old, A, mask, **how)
    assert two[0].item() == pytest.approx(one[0].item(), rel=1e-13)
    assert torch.allclose(two[1], one[1], rtol=1e-12, atol=0)


def test_gspo_spreads_a_weight_over_the_response_and_gspo_token_does_not():
    old = torch.full((1, 2), -1.0, dtype=torch.float64)
    arrays = (old, old, torch.ones(1), torch.ones(1, 2, dtype=torch.bool))
    weight = torch.tensor([[3.0, 1.0]])
    _, spread = value_and_gradient("gspo", *arrays, weight=weight)
    _, own = value_and_gradient("gspo_token", *arrays, weight=weight)
    assert spread.tolist() == [[-1.0, -1.0]]
    assert own.tolist() == [[-1.5, -0.5]]


def test_gspo_refuses_advantages_of_tokens():
    logp, old, A, mask = batch(0)
    per_token = A[:, None].repeat(1, 7)
    assert gspo(logp, old, per_token, mask) == gspo(logp, old, A, mask)
    per_token[3, 0] += 0.1
    mask[3, :2] = True
    with pytest.raises(ValueError, match=r"advantages row 3 differ from token to token"):
        gspo(logp, old, per_token, mask)
    assert gspo_token(logp, old, per_token, mask).isfinite()


@given(seeds)
def test_dapo_is_ppo_with_clip_higher_and_the_mean_over_tokens(seed):
    logp, old, A, mask = batch(seed, spread=0.5)
    want = ppo(logp, old, A, mask, eps_high=0.28, aggregation="token_mean")
    assert torch.equal(dapo(logp, old, A, mask), want)
    want = grpo(logp, old, A, mask, eps_high=0.28, aggregation="token_mean")
    assert torch.equal(dapo(logp, old, A, mask), want)


@given(seeds, st.floats(1.05, 4))
def test_bypass_reinforce_under_token_truncation_is_cispo_under_a_cap(seed, cap):
    """w = min(pi / mu, C) from a `Correction` of the newest logprobs, or from the gate."""
    logp, mu, A, mask = batch(seed, spread=0.7)
    correction = Correction("token", "truncate", upper=cap)
    weight, kept = correction.apply(logp, mu, mask)
    how = {"weight": weight, "aggregation": "token_mean"}
    one = value_and_gradient("reinforce", logp, mu, A, kept, **how)
    two = value_and_gradient("cispo", logp, mu, A, mask, cap=cap)
    assert one[0].item() == pytest.approx(two[0].item(), rel=1e-12)
    assert torch.allclose(one[1], two[1], rtol=1e-12, atol=0)


@given(seeds)
def test_a_width_and_a_cap_may_say_the_same(seed):
    logp, old, A, mask = batch(seed, spread=0.5)
    by_width = cispo(logp, old, A, mask, eps_high=0.28)
    assert torch.equal(by_width, cispo(logp, old, A, mask, cap=1.28))


@given(seeds)
def test_advantages_of_a_response_are_those_of_its_tokens(seed):
    logp, old, A, mask = batch(seed)
    per_token = A[:, None].repeat(1, 7)
    per_token[~mask] = math.nan
    for name in NAMES:
        one = loss(name, logp, old, A, mask)
        assert torch.equal(one, loss(name, logp, old, per_token, mask))
