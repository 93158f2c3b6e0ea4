"""Stacks as values: paths, differences, replacement; every field does something."""

from __future__ import annotations

import pytest
import torch

from tinyrl.checkpoints import load
from tinyrl.kernels import Kernels, Numerics
from tinyrl.model import Positions
from tinyrl.rollout import rollout
from tinyrl.sampling import Sampler
from tinyrl.scoring import score
from tinyrl.stack import PRESETS, Stack, diff, leaves, replace_at
from tinyrl.tasks import CumSum

OTHER = {
    "numerics.weights": "bf16",
    "numerics.activations": "bf16",
    "numerics.kv": "fp8_e4m3",
    "numerics.overflow": "nan",
    "kernels.attention": "naive",
    "kernels.shapes": "fixed",
    "positions.offset": 1,
    "positions.of": "all",
    "sampler.temperature": 0.7,
    "sampler.logprobs": "raw",
}
"""For each field a value that is not its default."""

NEEDS = {
    "numerics.overflow": {"numerics.kv": "fp8_e4m3"},
    "positions.of": {"positions.offset": 3},
    "sampler.logprobs": {"sampler.temperature": 0.7},
}
"""Fields that only matter beside another."""


def test_the_table_above_names_every_field():
    assert [leaf.path for leaf in leaves(Stack())] == list(OTHER)


@pytest.mark.parametrize("path", OTHER)
def test_diff_and_replace_are_inverse(path):
    other = replace_at(Stack(), path, OTHER[path])
    default = {leaf.path: leaf.value for leaf in leaves(Stack())}[path]
    assert diff(Stack(), other) == {path: (default, OTHER[path])}
    assert diff(other, other) == {}
    assert replace_at(other, path, default) == Stack()


@pytest.mark.parametrize("path", OTHER)
def test_every_field_changes_a_logprob(path):
    """Through the real forward pass: same weights, same tokens, one field."""
    model, task = load("sft"), CumSum()
    if path == "numerics.overflow":  # a key beyond the range of FP8, as outliers are
        model.layers[0].self_attn.k_norm.weight.data[0] = 1000.0
    generator = torch.Generator().manual_seed(0)
    prompt, response = task.demonstrations(64, generator)
    base = Stack()
    for other_path, value in NEEDS.get(path, {}).items():
        base = replace_at(base, other_path, value)
    with torch.no_grad():
        before = score(model, prompt, response, base).logp
        after = score(model, prompt, response, replace_at(base, path, OTHER[path])).logp
    assert not torch.equal(before, after)


@pytest.mark.parametrize("path", ["numerics.weights", "sampler.temperature"])
def test_a_field_changes_what_is_sampled(path):
    model, task = load("sft"), CumSum()
    value = {"numerics.weights": "int4", "sampler.temperature": 0.7}[path]
    sampled = []
    for stack in (Stack(), replace_at(Stack(), path, value)):
        generator = torch.Generator().manual_seed(0)
        prompts = task.prompts(64, generator)
        batch = rollout(model, prompts, stack, generator, max_new=13, eos_id=2, pad_id=0)
        sampled.append(batch.response)
    assert not torch.equal(*sampled)


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("numerics.kvcache", "int8", "a stack has no field 'numerics.kvcache'; it has"),
        ("numerics.kv", "fp12", "numerics.kv must be one of .*not 'fp12'"),
        ("positions.offset", "one", "positions.offset must be a number, not 'one'"),
        ("positions.offset", 1.9, "positions.offset must be a whole number, not 1.9"),
        ("positions.offset", 10**400, "positions.offset must be a number, not 1000"),
        ("positions.offset", float("inf"), "positions.offset must be a number, not inf"),
        ("sampler.temperature", 0, "temperature must be above 0, not 0.0"),
        ("sampler.temperature", float("nan"), "temperature must be above 0, not nan"),
    ],
)
def test_a_wrong_field_or_value_is_named(path, value, message):
    with pytest.raises(ValueError, match=message):
        replace_at(Stack(), path, value)


def test_presets_differ_from_the_default_as_they_say():
    assert diff(Stack(), PRESETS["fp32"]) == {}
    assert diff(Stack(), PRESETS["fp8_kv"]) == {"numerics.kv": ("fp32", "fp8_e4m3")}
    assert len({*PRESETS.values()}) == len(PRESETS)


@pytest.mark.parametrize(
    ("part", "how", "message"),
    [
        (Numerics, {"kv": "fp12"}, "kv must be one of .*not 'fp12'"),
        (Kernels, {"attention": "flash"}, "attention must be one of .*not 'flash'"),
        (Kernels, {"shapes": "fix"}, "shapes must be one of"),
        (Positions, {"of": "prompt"}, "of must be one of"),
        (Sampler, {"logprobs": "Processed"}, "logprobs must be one of .*not 'Processed'"),
    ],
)
def test_a_misspelt_choice_does_not_act_as_another(part, how, message):
    with pytest.raises(ValueError, match=message):
        part(**how)
