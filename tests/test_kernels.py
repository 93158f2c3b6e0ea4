"""Each operation against float64, and what each format does to it."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from tinyrl.formats import FORMATS, quantise
from tinyrl.kernels import Kernels, Numerics, make, pad_rows

ALL_KERNELS = [Kernels(a, s) for a in ("sdpa", "naive") for s in ("free", "fixed")]


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def attention_by_hand(q, k, v, visible):
    """softmax(q k / sqrt(D)) v, one query at a time, float64."""
    q, k, v = q.double(), k.double(), v.double()
    y = torch.zeros_like(q)
    B, H, T, D = q.shape
    for b in range(B):
        for h in range(H):
            key = h * k.shape[1] // H
            for t in range(T):
                see = visible[t]
                p = torch.softmax(k[b, key, see] @ q[b, h, t] / D**0.5, -1)
                y[b, h, t] = p @ v[b, key, see]
    return y


@pytest.mark.parametrize("kernels", ALL_KERNELS, ids=str)
@pytest.mark.parametrize("start", [0, 6])
def test_attention(kernels, start):
    B, H, K, T, D = 3, 4, 2, 5, 8
    S = start + T
    q, k, v = normal(B, H, T, D), normal(B, K, S, D, seed=1), normal(B, K, S, D, seed=2)
    visible = torch.arange(S) <= torch.arange(start, S)[:, None]
    y = make(kernels, Numerics()).attention(q, k, v, visible)
    wanted = attention_by_hand(q, k, v, visible)
    torch.testing.assert_close(y.double(), wanted, rtol=0, atol=2e-6)


@pytest.mark.parametrize("shapes", ["free", "fixed"])
def test_linear_norm_swiglu_rope(shapes):
    ops = make(Kernels("naive", shapes), Numerics())
    x = normal(3, 5, 8)
    with torch.no_grad():
        one, two = nn.Linear(8, 4, bias=False), nn.Linear(8, 6, bias=False)
        y = ops.linear(x, one, two).double()
        weights = torch.cat([one.weight, two.weight]).double()
    torch.testing.assert_close(y, x.double() @ weights.T, rtol=0, atol=1e-6)
    gain = normal(8, seed=4)
    d = x.double()
    wanted = d / (d.pow(2).mean(-1, keepdim=True) + 1e-6).sqrt() * gain.double()
    torch.testing.assert_close(ops.norm(x, gain, 1e-6).double(), wanted, rtol=0, atol=1e-5)
    gate, up = d.chunk(2, -1)
    wanted = gate / (1 + (-gate).exp()) * up
    torch.testing.assert_close(ops.swiglu(x).double(), wanted, rtol=0, atol=1e-6)
    angle = normal(5, 1, 4).double().repeat(1, 1, 2)
    q = x[:, :, None]
    z = torch.complex(q[..., :4].double(), q[..., 4:].double()) * torch.exp(
        1j * angle[..., :4]
    )
    wanted = torch.cat([z.real, z.imag], -1)
    y = ops.rope(q, angle.cos().float(), angle.sin().float())
    torch.testing.assert_close(y.double(), wanted, rtol=0, atol=1e-6)


@pytest.mark.parametrize("fmt", FORMATS)
def test_weights_are_rounded_per_output_and_once(fmt):
    ops = make(Kernels(), Numerics(weights=fmt))
    layer, x = nn.Linear(8, 4, bias=False), torch.eye(8)
    with torch.no_grad():
        assert torch.equal(ops.linear(x, layer).T, quantise(layer.weight, fmt, dim=1))
        layer.weight.mul_(2)  # the copy is kept: a new Ops is needed to see the change
        assert torch.equal(ops.linear(x, layer).T, quantise(layer.weight / 2, fmt, dim=1))


def test_narrow_activations_round_the_inputs_of_products_only():
    ops = make(Kernels(), Numerics(activations="int4"))
    layer, x = nn.Linear(8, 4, bias=False), normal(5, 8)
    with torch.no_grad():
        wanted = quantise(x, "int4") @ layer.weight.T
        torch.testing.assert_close(ops.linear(x, layer), wanted)
        assert torch.equal(ops.add(x, x), x + x)
        wide = make(Kernels(), Numerics(activations="bf16"))
        assert torch.equal(wide.add(x, x), quantise(x + x, "bf16"))


def test_gradients_pass_through_rounding():
    """The straight-through gradient is that of the unrounded product at rounded inputs."""
    ops = make(Kernels(), Numerics(weights="int8", activations="int8"))
    layer, x = nn.Linear(8, 4, bias=False), normal(5, 8).requires_grad_()
    ops.linear(x, layer).sum().backward()
    torch.testing.assert_close(
        x.grad, quantise(layer.weight.detach(), "int8").sum(0).expand(5, 8)
    )
    torch.testing.assert_close(
        layer.weight.grad, quantise(x.detach(), "int8").sum(0).expand(4, 8)
    )


def test_pad_rows():
    x = normal(2, 5, 3)
    y = pad_rows(x, 8)
    assert y.shape == (2, 8, 3)
    assert torch.equal(y[:, :5], x)
    assert not y[:, 5:].any()
    assert pad_rows(x, 5) is x
