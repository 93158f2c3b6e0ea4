"""Each operation against float64, and what each format and each order does to it."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from tinyrl.attention import pad_rows
from tinyrl.formats import FORMATS, quantise
from tinyrl.kernels import Kernels, Numerics, Ops, log_softmax

u = 2.0**-24
"""The largest relative error of one rounding to float32."""


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("shapes", ["free", "fixed"])
def test_linear_norm_swiglu_rope(shapes):
    ops = Ops(Kernels("naive", shapes), Numerics())
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
    ops = Ops(Kernels(), Numerics(weights=fmt))
    layer, x = nn.Linear(8, 4, bias=False), torch.eye(8)
    with torch.no_grad():
        assert torch.equal(ops.linear(x, layer).T, quantise(layer.weight, fmt))
        layer.weight.mul_(2)  # the copy is kept: a new Ops is needed to see the change
        assert torch.equal(ops.linear(x, layer).T, quantise(layer.weight / 2, fmt))


def test_narrow_activations_round_the_inputs_of_products_only():
    ops = Ops(Kernels(), Numerics(activations="int4"))
    layer, x = nn.Linear(8, 4, bias=False), normal(5, 8)
    with torch.no_grad():
        wanted = quantise(x, "int4") @ layer.weight.T
        torch.testing.assert_close(ops.linear(x, layer), wanted)
        assert torch.equal(ops.add(x, x), x + x)
        wide = Ops(Kernels(), Numerics(activations="bf16"))
        assert torch.equal(wide.add(x, x), quantise(x + x, "bf16"))


def test_gradients_pass_through_rounding():
    """The straight-through gradient is that of the unrounded product at rounded inputs."""
    ops = Ops(Kernels(), Numerics(weights="int8", activations="int8"))
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


def linear(weights: list[list[float]] | torch.Tensor) -> nn.Linear:
    w = torch.as_tensor(weights, dtype=torch.float32)
    layer = nn.Linear(w.shape[1], w.shape[0], bias=False)
    layer.weight.data = w
    return layer


# ---- norm


@pytest.mark.parametrize("way", ["fused", "unfused"])
def test_norm_within_its_rounding_errors(way):
    """The mean of D squares is off by D + 1 roundings, its root by half, then four more."""
    D, ops = 64, Ops(Kernels(norm=way), Numerics())
    x, gain = normal(50, D) * torch.logspace(-3, 3, 50)[:, None], normal(D, seed=1)
    d = x.double()
    wanted = d / (d.pow(2).mean(-1, keepdim=True) + 1e-6).sqrt() * gain.double()
    error = (ops.norm(x, gain, 1e-6).double() - wanted).abs()
    assert (error <= ((D + 1) / 2 + 6) * u * wanted.abs()).all()


@pytest.mark.parametrize(
    ("fmt", "dtype"), [("bf16", torch.bfloat16), ("fp16", torch.float16)]
)
def test_the_unfused_norm_is_a_module_that_runs_in_16_bits(fmt, dtype):
    """torch computes each 16-bit operation in float32 and rounds: the same steps."""
    ops = Ops(Kernels(norm="unfused"), Numerics(fmt, fmt))
    x = (normal(50, 8) * 8).round() / 8  # the sums of squares are exact
    gain = normal(8, seed=1)
    low, eps = x.to(dtype), 2.0**-4
    mean = (low * low).mean(-1, keepdim=True)
    scale = torch.rsqrt(mean.float() + eps).to(dtype)
    wanted = (low * scale) * gain.to(dtype)
    assert torch.equal(ops.norm(x, gain, eps), wanted.float())


def test_only_the_unfused_norm_overflows_in_fp16():
    """300 squared is beyond 65504: inf, and 1 / sqrt(inf) is 0."""
    x, gain = torch.full((1, 4), 300.0), torch.ones(4)
    fused, unfused = (
        Ops(Kernels(norm=way), Numerics("fp16", "fp16")).norm(x, gain, 1e-6)
        for way in ("fused", "unfused")
    )
    assert (fused == 1).all()
    assert (unfused == 0).all()


def test_norm_eps_takes_the_place_of_the_models():
    x, gain = torch.tensor([[3.0, 4.0]]), torch.ones(2)  # mean square 12.5
    for own, eps in ((0.0, 3.5), (3.5, 123.0)):  # 0 keeps the model's
        ops = Ops(Kernels(norm_eps=own), Numerics())
        torch.testing.assert_close(ops.norm(x, gain, eps), x / 4)


# ---- log-softmax


def log_softmax_bound(logits: torch.Tensor, way: str) -> torch.Tensor:
    """Exponentials are off by 8u and by u times an argument (V / e of them matter at most),
    their sum by V u, the logarithm by 2u; then come the subtractions. Where a logsumexp is
    taken whole it is rounded, once for each merge, and so is the shifted result."""
    V = logits.shape[-1]
    lse = logits.double().logsumexp(-1, keepdim=True)
    logp = (logits.double() - lse).abs()
    once = (8 + V / 2.7 + V + 2 * math.log(V)) * u + 3 * u * (logp + math.log(V))
    if way == "fused":
        return once
    return 2 * once + {"naive": 2, "chunked": 4}[way] * u * lse.abs()


@pytest.mark.parametrize("shift", [0.0, 1e4])
@pytest.mark.parametrize("V", [3, 16, 1001])
@pytest.mark.parametrize("way", ["fused", "naive", "chunked"])
def test_log_softmax_within_its_rounding_errors(way, V, shift):
    logits = normal(50, V) * 5 + shift
    wanted = torch.log_softmax(logits.double(), -1)
    error = (log_softmax(logits, way).double() - wanted).abs()
    assert (error <= log_softmax_bound(logits, way)).all()


@pytest.mark.parametrize("way", ["fused", "naive", "chunked"])
def test_log_softmax_survives_what_overflows(way):
    logits = torch.tensor([[1e4, 0.0, -1e4, -torch.inf, 1e4, -torch.inf, -torch.inf]])
    logp = log_softmax(logits, way)
    wanted = torch.tensor([0, -1e4, -2e4, -torch.inf, 0, -torch.inf, -torch.inf])
    wanted -= math.log(2)  # the two largest share the probability
    torch.testing.assert_close(logp[0], wanted, rtol=0, atol=5e4 * u)


@pytest.mark.parametrize("way", ["fused", "naive", "chunked"])
def test_gradient_of_log_softmax(way):
    logits = normal(3, 7).double().requires_grad_()
    assert torch.autograd.gradcheck(lambda x: log_softmax(x, way), logits)


def test_a_large_logit_costs_digits_only_where_the_logsumexp_is_taken_whole():
    """Logits on a grid that the shift does not leave: only the result can differ."""
    logits = (normal(200, 16) * 256).round() / 256
    apart = {}
    for way in ("fused", "naive", "chunked"):
        near, far = log_softmax(logits, way), log_softmax(logits + 2.0**13, way)
        apart[way] = (near - far).abs().max().item()
    assert apart["fused"] <= 2 * log_softmax_bound(logits, "fused").max() < 1e-5
    assert min(apart["naive"], apart["chunked"]) > 1e-4  # the gap at 2^13 is 2^-10


# ---- tensor parallel


@pytest.mark.parametrize("shapes", ["free", "fixed"])
@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_a_split_of_whole_numbers_is_exact(ranks, shapes):
    """No order of additions can matter, so every input must be counted once."""
    layer = linear(torch.randint(-9, 9, (6, 12), generator=torch.Generator()))
    x = torch.randint(-9, 9, (3, 5, 12), generator=torch.Generator()).float()
    y = Ops(Kernels(shapes=shapes, tensor_parallel=ranks), Numerics()).row_parallel(
        x, layer
    )
    assert torch.equal(y, x @ layer.weight.T)


@pytest.mark.parametrize("ranks", [2, 4])
def test_a_split_is_off_by_rounding_only(ranks):
    layer, x = linear(normal(8, 96)), normal(20, 96, seed=1)
    y = Ops(Kernels(tensor_parallel=ranks), Numerics()).row_parallel(x, layer)
    size = x.double().abs() @ layer.weight.double().abs().T
    error = (y - x.double() @ layer.weight.double().T).abs()
    assert (error <= 96 * u * size).all()
    assert not torch.equal(y, Ops(Kernels(), Numerics()).row_parallel(x, layer))


def test_partial_sums_are_rounded_and_added_in_the_order_of_the_ranks():
    """Near 256 the numbers of BF16 are 2 apart, so 256 + 1 is 256: a tie goes to even."""
    bf16 = Numerics(partial="bf16")
    two, four = (Ops(Kernels(tensor_parallel=n), bf16) for n in (2, 4))
    one = torch.ones(1, 4)
    assert two.row_parallel(one[:, :2], linear([[257.0, 1.0]])) == 256
    assert four.row_parallel(one, linear([[256.0, 1.0, 1.0, 1.0]])) == 256
    assert four.row_parallel(one, linear([[1.0, 1.0, 1.0, 256.0]])) == 260
    exact = Ops(Kernels(tensor_parallel=4), Numerics())
    assert exact.row_parallel(one, linear([[256.0, 1.0, 1.0, 1.0]])) == 259


def test_a_row_keeps_its_scale_whoever_holds_a_part_of_it():
    """A checkpoint holds one scale for a row; scales of the halves would be finer."""
    layer, x = linear([[100.0, 30.0, 1.0, 0.3]]), torch.ones(1, 4)
    ops = Ops(Kernels(tensor_parallel=2), Numerics("int4", "int4"))
    wanted = quantise(layer.weight, "int4").sum()
    torch.testing.assert_close(ops.row_parallel(x, layer), wanted.view(1, 1))
    assert (wanted - quantise(layer.weight.view(2, 2), "int4").sum()).abs() > 0.1


def test_a_column_parallel_split_changes_no_bit():
    """On the machine that runs this: each output is the same sum, whoever computes it."""
    ops, x = Ops(Kernels(shapes="fixed"), Numerics()), normal(40, 32, seed=1)
    w = normal(96, 32)
    parts = [ops.linear(x, linear(part.contiguous())) for part in w.chunk(2)]
    assert torch.equal(torch.cat(parts, -1), ops.linear(x, linear(w)))


def test_ranks_that_cannot_share_evenly_are_refused():
    ops = Ops(Kernels(tensor_parallel=4), Numerics())
    with pytest.raises(ValueError, match="tensor_parallel 4 does not divide 6 inputs"):
        ops.row_parallel(torch.ones(1, 6), linear(torch.ones(2, 6)))


# ---- single places


@pytest.mark.parametrize(
    ("numerics", "weights", "logits"),
    [
        (Numerics(), "fp32", "fp32"),
        (Numerics("bf16", "bf16"), "bf16", "bf16"),
        (Numerics("bf16", "bf16", head="fp32"), "fp32", "fp32"),  # the usual repair
        (Numerics("bf16", "bf16", head="fp32", logits="bf16"), "fp32", "bf16"),
        (Numerics("bf16", "bf16", logits="fp32"), "bf16", "fp32"),
        (Numerics("bf16", "bf16", head="int8"), "int8", "bf16"),
        (Numerics(head="fp16"), "fp16", "fp16"),
        (Numerics("int8", "int8"), "int8", "fp32"),
    ],
    ids=str,
)
def test_the_head_has_formats_of_its_own(numerics, weights, logits):
    layer, x = linear(normal(6, 8)), normal(5, 8, seed=1)
    ops = Ops(Kernels(), numerics)
    wanted = quantise(x, weights) @ quantise(layer.weight.detach(), weights).T
    with torch.no_grad():
        assert torch.equal(ops.head(x, layer), quantise(wanted, logits))


def test_the_table_and_the_boundary_are_rounded():
    x, angle = normal(2, 5, 3, 8), normal(5, 1, 4).repeat(1, 1, 2)
    cos, sin = angle.cos(), angle.sin()
    table = [quantise(t, "bf16") for t in (cos, sin)]
    ops, plain = (Ops(Kernels(), n) for n in (Numerics(rope="bf16"), Numerics()))
    assert torch.equal(ops.rope(x, cos, sin), plain.rope(x, *table))
    ops = Ops(Kernels(), Numerics(boundary="fp8_e4m3"))
    assert torch.equal(ops.boundary(x), quantise(x, "fp8_e4m3"))
    assert plain.boundary(x) is x


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"norm_eps": -1e-6}, "norm_eps must be 0 or more, not -1e-06"),
        ({"norm_eps": float("nan")}, "norm_eps must be 0 or more, not nan"),
        ({"norm_eps": float("inf")}, "norm_eps must be 0 or more, not inf"),
        ({"prefill": -1}, "prefill must be 0 or more tokens, not -1"),
        ({"tensor_parallel": 3}, "tensor_parallel must be one of 1, 2, 4, not 3"),
        ({"logsumexp": "fast"}, "logsumexp must be one of"),
        ({"norm": "rms"}, "norm must be one of"),
    ],
)
def test_kernels_that_do_not_exist_are_refused(how, message):
    with pytest.raises(ValueError, match=message):
        Kernels(**how)
