"""Diagnostics of a loss against plain Python and against the gradient itself."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from batches import batch, seeds
from tinyrl.objectives import diagnostics, gspo, gspo_token, ppo


@given(seeds, st.none() | st.floats(1.3, 3))
def test_clipped_tokens_are_those_that_get_no_gradient(seed, dual_clip):
    logp, old, A, mask = batch(seed, spread=0.6)
    x = logp.clone().requires_grad_()
    ppo(x, old, A, mask, eps_high=0.28, dual_clip=dual_clip).backward()
    stopped = (x.grad == 0) & mask
    told = diagnostics(logp, old, A, mask, eps_high=0.28, dual_clip=dual_clip)
    n = mask.sum().item()
    good = (A > 0)[:, None]
    high = (stopped & (logp > old) & good).sum().item() / n
    low = (stopped & (logp < old)).sum().item() / n
    dual = (stopped & (logp > old) & ~good).sum().item() / n
    assert told["clip_fraction_high"] == pytest.approx(high)
    assert told["clip_fraction_low"] == pytest.approx(low)
    assert told["clip_fraction_dual"] == pytest.approx(dual)
    assert told["clip_fraction"] == pytest.approx(high + low + dual)
    assert dual_clip is not None or dual == 0


@pytest.mark.parametrize("loss", [gspo, gspo_token])
@given(seed=seeds)
def test_gspos_clip_stops_whole_responses(loss, seed):
    logp, old, A, mask = batch(seed, spread=0.1)
    how = {"eps_low": 0.02, "eps_high": 0.03}
    x = logp.clone().requires_grad_()
    loss(x, old, A, mask, **how).backward()
    stopped = (x.grad == 0) & mask
    assert torch.equal(stopped, stopped.any(1, keepdim=True) & mask)
    told = diagnostics(logp, old, A, mask, level="geometric", **how)
    share = stopped.sum().item() / mask.sum().item()
    assert told["clip_fraction"] == pytest.approx(share)
    s = [
        math.exp(math.fsum(row) / len(row))
        for row in ((logp - old)[b][mask[b]].tolist() for b in range(5))
    ]
    assert told["ratio_min"] == pytest.approx(min(s))
    assert told["ratio_max"] == pytest.approx(max(s))


@given(seeds)
def test_diagnostics_in_plain_python(seed):
    logp, old, A, mask = batch(seed)
    told = diagnostics(logp, old, A, mask)
    d = sorted((logp - old)[mask].tolist())
    n = len(d)
    assert told["k1"] == pytest.approx(-math.fsum(d) / n)
    assert told["k3"] == pytest.approx(math.fsum(math.expm1(x) - x for x in d) / n)
    assert told["ratio_min"] == pytest.approx(math.exp(d[0]))
    assert told["ratio_max"] == pytest.approx(math.exp(d[-1]))
    below = sum(math.exp(x) < told["ratio_p50"] - 1e-12 for x in d)
    above = sum(math.exp(x) > told["ratio_p50"] + 1e-12 for x in d)
    assert max(below, above) <= n / 2
    assert told["ratio_p01"] <= told["ratio_p50"] <= told["ratio_p99"]


def test_estimates_of_kl_do_not_depend_on_the_level():
    logp, old, A, mask = batch(3)
    levels = ("token", "sequence", "geometric")
    told = [diagnostics(logp, old, A, mask, level=level) for level in levels]
    assert len({(x["k1"], x["k3"]) for x in told}) == 1
    assert len({x["ratio_max"] for x in told}) == 3


def test_diagnostics_of_no_token():
    told = diagnostics(*batch(0)[:3], torch.zeros(5, 7, dtype=torch.bool))
    assert told["clip_fraction"] == told["k1"] == told["k3"] == 0
    assert math.isnan(told["ratio_p50"])


def test_diagnostics_leave_the_graph_alone():
    logp, old, A, mask = batch(0)
    assert isinstance(diagnostics(logp.requires_grad_(), old, A, mask)["k3"], float)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"level": "row"}, "level must be one of token, sequence, geometric"),
        ({"dual_clip": 0.9}, "dual_clip must be above 1"),
        ({"eps_low": 2}, "clip widths"),
    ],
)
def test_bad_settings(how, message):
    with pytest.raises(ValueError, match=message):
        diagnostics(*batch(0), **how)
