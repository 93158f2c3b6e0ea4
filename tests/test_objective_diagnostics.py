"""Diagnostics of a loss against plain Python and against the gradient itself."""

import math

import pytest
import torch
from hypothesis import given

from batches import batch, seeds
from tinyrl.objectives import (
    diagnostics,
    ppo_clip,
)


@given(seeds)
def test_clipped_tokens_are_those_that_get_no_gradient(seed):
    logp, old, A, mask = batch(seed)
    x = logp.clone().requires_grad_()
    ppo_clip(x, old, A, mask, eps_high=0.28).backward()
    stopped = (x.grad == 0) & mask
    told = diagnostics(logp, old, A, mask, eps_high=0.28)
    n = mask.sum().item()
    high = (stopped & (logp > old)).sum().item() / n
    low = (stopped & (logp < old)).sum().item() / n
    assert told["clip_fraction_high"] == pytest.approx(high)
    assert told["clip_fraction_low"] == pytest.approx(low)
    assert told["clip_fraction"] == pytest.approx(high + low)


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


def test_diagnostics_of_no_token():
    told = diagnostics(*batch(0)[:3], torch.zeros(5, 7, dtype=torch.bool))
    assert told["clip_fraction"] == told["k1"] == told["k3"] == 0
    assert math.isnan(told["ratio_p50"])


def test_diagnostics_leave_the_graph_alone():
    logp, old, A, mask = batch(0)
    assert isinstance(diagnostics(logp.requires_grad_(), old, A, mask)["k3"], float)


# Gradients belong to the new policy alone
