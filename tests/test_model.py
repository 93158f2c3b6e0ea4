"""The model against `transformers`, its cache, its file, and its errors."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from tinyrl.kernels import Kernels, Numerics, Ops
from tinyrl.model import GPT, Cache, GPTConfig
from tinyrl.positions import Positions
from tinyrl.pretrained import load_pretrained, save_pretrained

SHAPES = [
    GPTConfig(),
    GPTConfig(hidden=48, layers=3, heads=4, kv_heads=2, intermediate=85, rope_base=1e6),
]


def gpt(config: GPTConfig | None = None, seed: int = 0) -> GPT:
    return GPT(config or GPTConfig(), torch.Generator().manual_seed(seed))


def random_ids(batch: int, length: int, seed: int = 1) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 16, (batch, length), generator=generator)


@pytest.mark.parametrize("config", SHAPES, ids=["course", "grouped"])
@pytest.mark.parametrize("attention", ["sdpa", "naive"])
def test_transformers_computes_the_same_logits(config, attention, tmp_path):
    from transformers import AutoModelForCausalLM, Qwen3ForCausalLM

    model, ids = gpt(config), random_ids(5, 28)
    save_pretrained(model, tmp_path)
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path)
    assert type(theirs) is Qwen3ForCausalLM
    with torch.no_grad():
        ours = model(ids, Ops(Kernels(attention), Numerics()))
        difference = (ours - theirs(ids).logits).abs().max().item()
    assert difference <= 1e-5


def test_transformers_computes_the_same_gradients(tmp_path):
    from transformers import AutoModelForCausalLM

    model, ids = gpt(), random_ids(3, 20)
    save_pretrained(model, tmp_path)
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path)
    for m, logits in (
        (model, model(ids, Ops(Kernels(), Numerics()))),
        (theirs, theirs(ids).logits),
    ):
        m.zero_grad()
        logits.logsumexp(-1).sum().backward()
    wanted = {k.removeprefix("model."): p.grad for k, p in theirs.named_parameters()}
    for name, p in model.named_parameters():
        torch.testing.assert_close(p.grad, wanted[name], rtol=1e-4, atol=1e-4)


def test_a_cache_continues_the_sequence():
    """Prefill in two chunks, then token by token, equals one full pass within rounding."""
    model, ids = gpt(), random_ids(4, 24)
    for kernels in (Kernels(), Kernels("naive"), Kernels("sdpa", "fixed")):
        ops, cache = Ops(kernels, Numerics()), Cache(model.config, 4)
        with torch.no_grad():
            chunks = [
                model(part, ops, cache=cache) for part in ids.split([9, 6] + 9 * [1], 1)
            ]
            full = model(ids, ops)
        torch.testing.assert_close(torch.cat(chunks, 1), full, rtol=0, atol=2e-5)


@pytest.mark.parametrize("numerics", [Numerics(), Numerics("bf16", "bf16", "fp8_e4m3")])
@pytest.mark.parametrize("batch", [1, 3, 8, 33])
def test_fixed_shapes_make_decoding_equal_to_scoring_to_the_last_bit(numerics, batch):
    for seed in range(3):
        model, ids = gpt(seed=seed), random_ids(batch, 29, seed)
        ops, cache = Ops(Kernels("naive", "fixed"), numerics), Cache(model.config, batch)
        with torch.no_grad():
            parts = [
                model(part, ops, cache=cache) for part in ids.split([16] + 13 * [1], 1)
            ]
            assert torch.equal(torch.cat(parts, 1), model(ids, ops))
            alone = torch.cat([model(row[None], ops) for row in ids])
            assert torch.equal(alone, model(ids, ops))


def test_free_shapes_do_not():
    """The control of the test above: it can tell the two apart."""
    differ = 0
    for seed in range(5):
        model, ids = gpt(seed=seed), random_ids(3, 29, seed)
        ops, cache = Ops(Kernels(), Numerics()), Cache(model.config, 3)
        with torch.no_grad():
            parts = [
                model(part, ops, cache=cache) for part in ids.split([16] + 13 * [1], 1)
            ]
            differ += not torch.equal(torch.cat(parts, 1), model(ids, ops))
    assert differ


def test_moving_all_positions_changes_nothing_but_moving_the_response_does():
    model, ids = gpt(), random_ids(4, 20)
    ops = Ops(Kernels(), Numerics())
    with torch.no_grad():
        plain = model(ids, ops)
        everything = model(ids, ops, Positions(3, "all").ids(10, 20))
        response = model(ids, ops, Positions(3, "response").ids(10, 20))
    torch.testing.assert_close(everything, plain, rtol=0, atol=2e-5)
    torch.testing.assert_close(response[:, :10], plain[:, :10], rtol=0, atol=2e-5)
    assert (response[:, 10:] - plain[:, 10:]).abs().max() > 0.1


def test_since_skips_the_head_and_nothing_else():
    model, ids, ops = gpt(), random_ids(2, 12), Ops(Kernels(), Numerics())
    full, tail = model(ids, ops), model(ids, ops, since=7)
    torch.testing.assert_close(tail, full[:, 7:], rtol=0, atol=2e-5)


def test_the_file_is_the_model(tmp_path):
    model = gpt(seed=3)
    save_pretrained(model, tmp_path)
    again = load_pretrained(tmp_path)
    assert again.config == model.config
    for name, value in model.state_dict().items():
        assert torch.equal(again.state_dict()[name], value), name


def damage_nothing_there(folder: Path) -> None:
    for path in folder.iterdir():
        path.unlink()


def damage_cut(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:1000])


def damage_config(folder: Path) -> None:
    (folder / "config.json").write_text("{")


def damage_other_model(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    config["tinyrl"]["layers"] = 3
    (folder / "config.json").write_text(json.dumps(config))


def damage_shape(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    config["tinyrl"]["intermediate"] = 64
    (folder / "config.json").write_text(json.dumps(config))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (damage_nothing_there, "no checkpoint in"),
        (damage_cut, "is damaged"),
        (damage_config, "is damaged"),
        (damage_other_model, r"layers.2.* is nothing, config.json wants \["),
        (damage_shape, r"is \[32, 96\], config.json wants \[32, 64\]"),
    ],
)
def test_a_damaged_checkpoint_is_named(damage, message, tmp_path):
    save_pretrained(gpt(), tmp_path)
    damage(tmp_path)
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        load_pretrained(tmp_path)


def test_too_long_a_sequence_is_refused():
    with pytest.raises(ValueError, match="33 tokens do not fit in block_size 32"):
        gpt()(random_ids(1, 33), Ops(Kernels(), Numerics()))


def test_impossible_shapes_are_refused():
    with pytest.raises(ValueError, match="heads"):
        GPTConfig(heads=3, kv_heads=2)
    with pytest.raises(ValueError, match="head_dim"):
        GPTConfig(head_dim=31)
