"""Stacks as values: paths, differences, replacement; every field does something."""

from __future__ import annotations

import pytest
import torch

from tinyrl.checkpoints import load
from tinyrl.kernels import Kernels, Numerics
from tinyrl.model import GPT, GPTConfig
from tinyrl.positions import Positions
from tinyrl.rollout import rollout
from tinyrl.sampling import Sampler
from tinyrl.scoring import score
from tinyrl.stack import PRESETS, Stack, diff, leaves, replace_at
from tinyrl.tasks import CumSum
from tinyrl.trainer import generate

OTHER = {
    "numerics.weights": "bf16",
    "numerics.activations": "bf16",
    "numerics.kv": "fp8_e4m3",
    "numerics.router": "bf16",
    "numerics.head": "bf16",
    "numerics.logits": "bf16",
    "numerics.rope": "bf16",
    "numerics.boundary": "bf16",
    "numerics.partial": "bf16",
    "numerics.overflow": "nan",
    "kernels.attention": "naive",
    "kernels.shapes": "fixed",
    "kernels.norm": "unfused",
    "kernels.norm_eps": 1e-5,
    "kernels.logsumexp": "naive",
    "kernels.tensor_parallel": 2,
    "kernels.prefill": 5,
    "positions.offset": 1,
    "positions.of": "all",
    "router.replay": "rollout",
    "sampler.temperature": 0.7,
    "sampler.top_k": 3,
    "sampler.top_p": 0.8,
    "sampler.min_p": 0.1,
    "sampler.repetition_penalty": 1.2,
    "sampler.logprobs": "raw",
    "sampler.replay": "rollout",
}
"""For each field a value that is not its default."""

NEEDS = {
    "numerics.partial": {"kernels.tensor_parallel": 2},
    "numerics.overflow": {"numerics.kv": "fp8_e4m3"},
    "kernels.norm": {"numerics.activations": "bf16"},
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


def needed(path: str) -> Stack:
    """A stack in which the field at `path` matters."""
    base = Stack()
    for other_path, value in NEEDS.get(path, {}).items():
        base = replace_at(base, other_path, value)
    return base


@pytest.mark.parametrize("path", sorted(OTHER.keys() - {"kernels.prefill"}))
def test_every_field_changes_a_logprob(path):
    """Through the real forward pass: same weights, same tokens, one field."""
    model, task = load("sft"), CumSum()
    if path == "numerics.overflow":  # a key beyond the range of FP8, as outliers are
        model.layers[0].self_attn.k_norm.weight.data[0] = 1000.0
    generator, routes = torch.Generator().manual_seed(0), None
    prompt, response = task.demonstrations(64, generator)
    base, kept = needed(path), torch.ones(64, 13, 16, dtype=torch.bool)
    kept[..., :2] = False  # two of the special tokens, as a rollout may have cut them
    if "router" in path:  # only a mixture of experts has one
        model = GPT(GPTConfig(experts=8), generator)
        routes = score(model, prompt.flip(0), response.flip(0), base).routes
    with torch.no_grad():
        before, after = (
            score(model, prompt, response, stack, routes, kept=kept).logp
            for stack in (base, replace_at(base, path, OTHER[path]))
        )
    assert not torch.equal(before, after)


def test_a_chunk_of_the_prompt_changes_what_a_rollout_reports():
    """Training has no cache to read the prompt into, so this field acts there alone."""
    reported = []
    for chunk in (0, 1):
        generator = torch.Generator().manual_seed(0)
        stack = replace_at(Stack(), "kernels.prefill", chunk)
        prompts = CumSum().prompts(64, generator)
        how = {"max_new": 13, "eos_id": 2, "pad_id": 0}
        reported.append(rollout(load("sft"), prompts, stack, generator, **how))
    assert not torch.equal(reported[0].logp_rollout, reported[1].logp_rollout)


@pytest.mark.parametrize("chunk", [1, 5, 16, 99])
def test_the_prompt_is_read_in_chunks(chunk, monkeypatch):
    """Each token once and in order, whatever the chunk; the last may be shorter."""
    model, seen = load("sft"), []
    real = model.forward

    def watched(ids, ops, positions, cache, since=0):
        seen.append((ids.shape[1], cache.length, positions.cos))
        return real(ids, ops, positions, cache, since)

    monkeypatch.setattr(model, "forward", watched)
    generator, stack = torch.Generator().manual_seed(0), Stack(Numerics(), Kernels())
    stack = replace_at(stack, "kernels.prefill", chunk)
    prompts = CumSum().prompts(3, generator)
    P = prompts.shape[1]
    rollout(model, prompts, stack, generator, max_new=1, eos_id=2, pad_id=0)
    starts = list(range(0, P, chunk))
    assert [length for _, length, _ in seen] == starts
    assert [n for n, _, _ in seen] == [min(chunk, P - start) for start in starts]
    told = torch.cat([cos for _, _, cos in seen])
    assert torch.equal(told, model.places(torch.arange(P)).cos)


SAME = {
    "online": {"kernels.attention": "online"},
    "split_kv": {"kernels.attention": "split_kv"},
    "unfused": {"kernels.norm": "unfused", "kernels.norm_eps": 1e-5},
    "logsumexp": {"kernels.logsumexp": "chunked"},
    "tensor parallel": {"kernels.tensor_parallel": 4, "numerics.partial": "bf16"},
    "prefill": {"kernels.prefill": 5},
    "single places": {
        "numerics.head": "fp16",
        "numerics.logits": "bf16",
        "numerics.rope": "bf16",
        "numerics.boundary": "fp8_e4m3",
    },
}


@pytest.mark.parametrize("name", SAME)
def test_with_fixed_shapes_every_way_is_true_on_policy(name):
    """Decoding and scoring agree to the last bit on the machine that runs this.

    Whichever order is chosen: what matters is that both sides choose it, and that no
    token's arithmetic depends on what is computed beside it.
    """
    stack, task = PRESETS["true_on_policy"], CumSum()
    for path, value in SAME[name].items():
        stack = replace_at(stack, path, value)
    for fmt in ("fp32", "bf16"):
        stack = replace_at(stack, "numerics.activations", fmt)
        for B in (1, 7, 96):
            generator = torch.Generator().manual_seed(B)
            batch = generate(
                load("sft"), task, task.prompts(B, generator), stack, generator
            )
            with torch.no_grad():
                logp = score(load("sft"), batch.prompt, batch.response, stack).logp
            assert torch.equal(logp[batch.mask], batch.logp_rollout[batch.mask])


def test_one_layer_hands_nothing_on():
    """A boundary lies between layers: a model of one layer has none."""
    prompt, response = CumSum().demonstrations(8, torch.Generator().manual_seed(0))
    for layers in (1, 2):
        model = GPT(GPTConfig(layers=layers), torch.Generator().manual_seed(0))
        stacks = Stack(), replace_at(Stack(), "numerics.boundary", "fp8_e4m3")
        with torch.no_grad():
            one, two = (score(model, prompt, response, stack).logp for stack in stacks)
        assert torch.equal(one, two) == (layers == 1)


SAMPLED = ["numerics.weights", "sampler.temperature", "sampler.top_k", "sampler.top_p",
           "sampler.min_p", "sampler.repetition_penalty"]  # fmt: skip


@pytest.mark.parametrize("path", SAMPLED)
def test_a_field_changes_what_is_sampled(path):
    model, task, value = load("sft"), CumSum(), OTHER[path]
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
        ("kernels.tensor_parallel", 3, "tensor_parallel must be one of 1, 2, 4, not 3"),
        ("kernels.norm_eps", -1, "norm_eps must be 0 or more, not -1.0"),
        ("kernels.prefill", 1.5, "kernels.prefill must be a whole number, not 1.5"),
        ("kernels.prefill", -1, "prefill must be 0 or more tokens, not -1"),
        ("positions.offset", "one", "positions.offset must be a number, not 'one'"),
        ("positions.offset", 1.9, "positions.offset must be a whole number, not 1.9"),
        ("positions.offset", 10**400, "offset must be a number that a float can"),
        (
            "positions.offset",
            float("inf"),
            "offset must be a whole number, not inf",
        ),
        ("sampler.temperature", 0, "temperature must be at least 1e-06"),
        ("sampler.temperature", float("nan"), "temperature must be at least 1e-06"),
        ("sampler.top_k", -1, r"top_k must be 0 \(all\) or more, not -1"),
        ("sampler.top_k", 1.5, "sampler.top_k must be a whole number, not 1.5"),
        ("sampler.top_k", True, "sampler.top_k must be a number, not True"),
        ("sampler.top_p", 0, "top_p must be above 0 and at most 1, not 0.0"),
        ("sampler.top_p", 1.01, "top_p must be above 0 and at most 1, not 1.01"),
        ("sampler.min_p", -0.1, "min_p must be 0 to 1, not -0.1"),
        ("sampler.repetition_penalty", 0, "penalty must be at least 1e-06, not 0.0"),
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
