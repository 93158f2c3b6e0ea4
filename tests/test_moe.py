"""The mixture of experts against `transformers`, a loop and a dense model."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from mixtures import COURSE, SHAPES, gpt, plain, random_ids, seeded
from tinyrl.kernels import Kernels, Numerics, Ops
from tinyrl.model import Cache, GPTConfig
from tinyrl.moe import MoE, Routes
from tinyrl.pretrained import load_pretrained, save_pretrained
from tinyrl.routing import flips


def theirs_and_routes(folder: Path, ids: Tensor):
    """`transformers`' model of a folder, its logits, and each layer's experts."""
    from transformers import AutoModelForCausalLM, Qwen3MoeForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, experts_implementation="eager")
    experts: list[Tensor] = []
    assert type(model) is Qwen3MoeForCausalLM
    for layer in model.model.layers:
        layer.mlp.gate.register_forward_hook(lambda _m, _x, y: experts.append(y[2]))
    logits = model(ids).logits
    return model, logits, torch.stack([e.view(*ids.shape, -1) for e in experts], 2)


@SHAPES
def test_transformers_computes_the_same_logits_routes_and_gradients(config, tmp_path):
    ours, ids = gpt(config), random_ids(5, 28)
    save_pretrained(ours, tmp_path)
    theirs, wanted, experts = theirs_and_routes(tmp_path, ids)
    logits, routes = ours.routed(ids, plain())
    assert (logits - wanted).abs().max() <= 1e-5
    assert not flips(routes.experts, experts).any()
    logits.logsumexp(-1).sum().backward()
    wanted.logsumexp(-1).sum().backward()
    grads = {k.removeprefix("model."): p.grad for k, p in theirs.named_parameters()}
    for name, p in ours.named_parameters():
        torch.testing.assert_close(p.grad, fused(grads, name), rtol=1e-4, atol=1e-4)


def fused(grads: dict[str, Tensor], name: str) -> Tensor:
    """The gradient of our parameter `name` from theirs, which keep `[E, ...]` tensors."""
    if "up_proj" in name:  # [E, 2 F, hidden]
        name = name.replace("mlp.gate_up_proj.weight", "mlp.experts.gate_up_proj")
        return grads[name].flatten(0, 1)
    if "down_proj" in name:  # [E, hidden, F]
        name = name.replace("mlp.down_proj.weight", "mlp.experts.down_proj")
        return grads[name].transpose(0, 1).flatten(1)
    return grads[name]


@SHAPES
def test_the_folder_is_the_model_and_so_is_one_that_transformers_wrote(config, tmp_path):
    model = gpt(config, seed=3)
    save_pretrained(model, tmp_path / "ours")
    theirs, *_ = theirs_and_routes(tmp_path / "ours", random_ids(1, 4))
    theirs.save_pretrained(tmp_path / "theirs")
    for folder in ("ours", "theirs"):
        again = load_pretrained(tmp_path / folder)
        assert again.config == config
        for name, value in model.state_dict().items():
            assert torch.equal(again.state_dict()[name], value), name


@SHAPES
def test_a_layer_is_the_sum_of_its_experts_by_their_gates(config):
    """One token and one expert at a time, float64."""
    c = config
    layer = gpt(config).layers[0].mlp
    x = torch.randn(2, 7, c.hidden, generator=seeded(2))
    with torch.no_grad():
        y, routes = layer(x, plain())
        gate_up = layer.gate_up_proj.weight.double().view(c.experts, 2, -1, c.hidden)
        down = layer.down_proj.weight.double().view(c.hidden, c.experts, -1)
        for got, token, chosen in zip(
            y.flatten(0, 1),
            x.double().flatten(0, 1),
            routes.experts.flatten(0, 2),
            strict=True,
        ):
            p = torch.softmax(layer.gate.weight.double() @ token, -1)
            best = p.argsort(descending=True)[: c.experts_per_token]
            assert chosen.tolist() == best.tolist()
            wanted = torch.zeros(c.hidden, dtype=torch.float64)
            for e in best:
                gate, up = gate_up[e, 0] @ token, gate_up[e, 1] @ token
                share = p[e] / (p[best].sum() if c.norm_topk else 1)
                wanted += share * down[:, e] @ (gate / (1 + (-gate).exp()) * up)
            torch.testing.assert_close(got.double(), wanted, rtol=0, atol=2e-6)


def test_equal_experts_are_a_dense_model_whatever_the_routes():
    """Eight copies of a dense MLP and gates that sum to 1: its logits, its gradients."""
    dense = gpt(GPTConfig(intermediate=48))
    model, ids = gpt(GPTConfig(experts=8)), random_ids(5, 28)
    state = model.state_dict()
    for name, value in dense.state_dict().items():
        if "mlp" not in name:
            state[name].copy_(value)
    for mine, its in zip(model.layers, dense.layers, strict=True):
        gate_up = torch.cat([its.mlp.gate_proj.weight, its.mlp.up_proj.weight]).detach()
        mine.mlp.gate_up_proj.weight.data.copy_(gate_up.repeat(8, 1))
        mine.mlp.down_proj.weight.data.copy_(its.mlp.down_proj.weight.detach().repeat(1, 8))
    logits, wanted = model(ids, plain()), dense(ids, plain())
    torch.testing.assert_close(logits, wanted, rtol=0, atol=1e-5)
    logits.logsumexp(-1).sum().backward()
    wanted.logsumexp(-1).sum().backward()
    for mine, its in zip(model.layers, dense.layers, strict=True):
        summed = mine.mlp.down_proj.weight.grad.view(32, 8, 48).sum(1)
        torch.testing.assert_close(
            summed, its.mlp.down_proj.weight.grad, rtol=1e-4, atol=1e-4
        )


@pytest.mark.parametrize(
    "numerics", [Numerics(), Numerics("bf16", "bf16", "fp8_e4m3", router="bf16")], ids=str
)
@pytest.mark.parametrize("batch", [1, 3, 8, 33])
@SHAPES
def test_fixed_shapes_make_decoding_equal_to_scoring_to_the_last_bit(
    config, batch, numerics
):
    for seed in range(3):
        model, ids = gpt(config, seed), random_ids(batch, 29, seed)
        ops, cache = Ops(Kernels("naive", "fixed"), numerics), Cache(config, batch)
        with torch.no_grad():
            parts = [
                model(part, ops, cache=cache) for part in ids.split([16] + 13 * [1], 1)
            ]
            full, routes = model.routed(ids, ops)
            assert torch.equal(torch.cat(parts, 1), full)
            assert torch.equal(cache.routes[:, :29].experts, routes.experts)
            assert torch.equal(cache.routes[:, :29].gates, routes.gates)
            alone = torch.cat([model(row[None], ops) for row in ids])
            assert torch.equal(alone, full)


def test_free_shapes_do_not():
    """The control of the test above."""
    differ = 0
    for seed in range(5):
        model, ids = gpt(seed=seed), random_ids(3, 29, seed)
        cache = Cache(COURSE, 3)
        with torch.no_grad():
            parts = [
                model(part, plain(), cache=cache) for part in ids.split([16] + 13 * [1], 1)
            ]
            differ += not torch.equal(torch.cat(parts, 1), model(ids, plain()))
    assert differ


@pytest.mark.parametrize("fmt", ["bf16", "fp8_e4m3", "int8"])
def test_a_router_format_flips_narrow_margins_only(fmt):
    """The first layer sees the same input, so its logits differ by the format alone."""
    model, ids = gpt(), random_ids(128, 28)
    with torch.no_grad():
        _, wide = model.routed(ids, plain())
        _, narrow = model.routed(ids, Ops(Kernels(), Numerics(router=fmt)))
    flipped = flips(wide.experts, narrow.experts)[:, :, 0]
    error = (wide.logits - narrow.logits)[:, :, 0].abs().amax(-1)
    margin = wide.margins[:, :, 0]
    assert 0 < flipped.float().mean() < 0.5
    assert (margin[flipped] <= 2 * error[flipped]).all()


def test_margins_are_the_gap_behind_the_last_chosen():
    logits = torch.tensor([3.0, -1.0, 2.5, 2.0])[None, None, None]
    chosen = torch.tensor([0, 2])[None, None, None]
    routes = Routes(chosen, torch.ones(1, 1, 1, 2) / 2, logits)
    assert routes.margins.item() == 0.5
    assert Routes(torch.arange(4)[None, None, None], logits, logits).margins.item() == (
        torch.inf
    )
    follows = Routes(torch.tensor([1, 3])[None, None, None], routes.gates, logits)
    assert follows.own.tolist() == [[[[0, 2]]]]


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"experts": 2, "experts_per_token": 3}, r"1 to experts \(2\), not 3"),
        ({"experts": 2, "experts_per_token": 0}, r"1 to experts \(2\), not 0"),
        ({"experts": -1}, "experts must be 0 .dense. or more, not -1"),
        ({"experts": 4, "moe_intermediate": 0}, "moe_intermediate must be at least 1"),
    ],
)
def test_impossible_mixtures_are_refused(how, message):
    with pytest.raises(ValueError, match=message):
        GPTConfig(**how)


def test_a_dense_model_has_no_routes():
    _, routes = gpt(GPTConfig()).routed(random_ids(2, 4), plain())
    assert routes is None
    assert not any(isinstance(m, MoE) for m in gpt(GPTConfig()).modules())
