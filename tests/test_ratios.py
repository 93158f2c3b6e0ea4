"""Importance ratios at three levels: plain Python, their relations, no overflow."""

import math

import pytest
import torch
from hypothesis import given

from batches import batch, seeds
from plain_losses import NAMES, value_and_gradient
from tinyrl.objectives import at_level, ratio


@given(seeds)
def test_ratios_in_plain_python(seed):
    logp, old, _, mask = batch(seed)
    d = (logp - old).tolist()
    got = {n: ratio(logp - old, mask, n) for n in ("token", "sequence", "geometric")}
    for b, row in enumerate(d):
        real = [x for x, m in zip(row, mask[b].tolist(), strict=True) if m]
        for t in range(len(real)):
            assert got["token"][b, t].item() == pytest.approx(math.exp(real[t]))
            product = math.prod(math.exp(x) for x in real)
            assert got["sequence"][b, t].item() == pytest.approx(product)
            mean = product ** (1 / len(real))
            assert got["geometric"][b, t].item() == pytest.approx(mean)
        for r in got.values():
            assert (r[b, len(real) :] == 1).all()


@given(seeds)
def test_one_token_has_one_ratio_at_every_level(seed):
    logp, old, _, mask = batch(seed, T=1)
    token, sequence, geometric = (
        ratio(logp - old, mask, n) for n in ("token", "sequence", "geometric")
    )
    assert torch.equal(token, sequence)
    assert torch.equal(token, geometric)


@given(seeds)
def test_the_product_is_the_geometric_mean_to_the_length(seed):
    logp, old, _, mask = batch(seed)
    length = mask.sum(1, keepdim=True)
    product = ratio(logp - old, mask, "sequence")
    power = ratio(logp - old, mask, "geometric") ** length
    assert torch.allclose(product, torch.where(mask, power, 1.0), rtol=1e-12)


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_long_sequence_cannot_overflow(sign, dtype):
    d = torch.full((1, 5000), sign * 0.5, dtype=dtype, requires_grad=True)
    mask = torch.ones(1, 5000, dtype=torch.bool)
    r = ratio(d, mask, "sequence")
    assert torch.allclose(r, torch.tensor(math.exp(sign * 20), dtype=dtype))
    r.sum().backward()
    assert (d.grad == 0).all()
    assert at_level(d, mask, "sequence")[0, 0].item() == pytest.approx(sign * 2500)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("A", [1.0, -1.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_token_beyond_all_bounds_leaves_the_loss_finite(name, A, dtype):
    logp = torch.tensor([[-0.1, -1e4]], dtype=dtype)
    old = torch.tensor([[-1e4, -0.1]], dtype=dtype)
    mask = torch.ones(1, 2, dtype=torch.bool)
    more = {"logp_ref": old} if name == "grpo" else {}
    for x, y in ((logp, old), (logp[:, :1].expand(1, 2), old[:, :1].expand(1, 2))):
        value, gradient = value_and_gradient(name, x, y, torch.tensor([A]), mask, **more)
        assert value.isfinite()
        assert gradient.isfinite().all()
        assert value.dtype == gradient.dtype == dtype


def test_an_unknown_level_is_refused():
    with pytest.raises(ValueError, match="level must be one of token, sequence, geo"):
        ratio(torch.zeros(1, 1), torch.ones(1, 1, dtype=torch.bool), "batch")
