"""The warnings beside what flags do: each where it belongs, and its numbers right."""

import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tinyrl.explain import explain

MIS = "--use-tis --custom-tis-function-path=a.b.compute_mis_weights_with_cp"
MODE = "vllm_importance_sampling_mode"


@given(st.floats(1.02, 50), st.integers(1, 5000))
def test_the_length_trap_counts_right(upper, tokens):
    """Against a product that is multiplied up."""
    (text,) = (
        t.en
        for t in explain(
            "verl",
            ["rollout_is=sequence", f"rollout_is_threshold={upper!r}"],
            tokens=tokens,
        ).traps
        if t.en.startswith("Length")
    )
    product, T = 1.0, 0
    while product <= upper:
        product, T = product * 1.01, T + 1
    assert f"leaves the bound at T = {T:,}." in text or math.isclose(
        product / 1.01, upper, rel_tol=1e-9
    )
    shown = re.search(r"tokens is (\S+),", text).group(1)
    if shown.startswith("e^"):
        assert int(shown[2:]) == round(tokens * math.log(1.01))
    else:
        assert float(shown.replace(",", "")) == pytest.approx(1.01**tokens, rel=1e-3)


TRAPS = [
    ("verl", "rollout_is=token bypass_mode=true", "Double counting", "leaves it out of"),
    (
        "verl",
        "rollout_is=token bypass_mode=1 loss_type=reinforce",
        "Double counting",
        "right",
    ),
    ("verl", "rollout_is=sequence", "Product or mean", "AReaL, ms-swift and GSPO"),
    (
        "verl",
        "rollout_is=sequence",
        "Length",
        "is 20,959, and it leaves the bound at T = 70.",
    ),
    (
        "verl",
        "rollout_rs=token_k1 rollout_rs_threshold=0.6_1.4",
        "Inverted",
        "from 0.7143 to 1.667 and not from 0.6 to 1.4",
    ),
    (
        "verl",
        "rollout_rs=seq_mean_k1 rollout_rs_threshold=0.999_1.001",
        "Geometric band",
        "between -0.001 and 0.001 a token",
    ),
    ("verl", "rollout_is=token rollout_is_batch_normalize=1", "Batch", "all real tokens"),
    ("verl", "rollout_is=sequence rollout_is_batch_normalize=1", "Batch", "all responses"),
    ("verl", "rollout_is=token", "Metrics", "a cap hides what it cut"),
    ("verl", "rollout_is=sequence", "Metrics", "of products before the operation"),
    ("verl", "rollout_rs=token_k1 rollout_rs_threshold=2", "Denominators", "half the step"),
    ("verl", "loss_mode=cispo clip_ratio_high=0.3", "CISPO is cut on both", "0.8 to 1.3"),
    ("verl", "loss_agg_mode=seq-mean-token-sum-norm", "Dr. GRPO", "since v0.7.1"),
    ("verl", "", "The default depends", "RolloutCorrectionConfig() has sequence"),
    ("verl", "rollout_is_threshold=3", "rollout_is_threshold does", "without rollout_is"),
    ("trl", "epsilon_high=0.28 loss_type=cispo", "CISPO's cap is absolute", "min(r, 0.28)"),
    ("trl", "loss_type=cispo", "CISPO's cap is absolute", "even r = 1 is weighted 0.2"),
    ("trl", "loss_type=cispo epsilon_high=5", "CISPO's cap is absolute", "cut at 1 + 5"),
    ("trl", "loss_type=dr_grpo", "Dr. GRPO", "B * max_completion_length"),
    ("trl", "", "Product or mean", "importance_sampling_level=sequence"),
    ("trl", "", "Length", "at T = 111"),
    ("trl", "", "Metrics", "zeros of masked ones"),
    ("trl", "", "The correction needs", "use_vllm=true"),
    ("trl", "", "Denominators", "half the step"),
    ("trl", "vllm_importance_sampling_cap=2", "vllm_importance_sampling_cap", "deprecated"),
    ("slime", "--use-tis", "Metrics", "not of the weight"),
    ("slime", MIS, "Batch", "a micro-batch"),
    ("slime", MIS, "The helper's README", "divides by all"),
    ("slime", f"{MIS} tis_level=sequence", "Length", "T = 70"),
    ("slime", f"{MIS} rs_level=geometric", "Geometric band", "-0.693 and 0.693"),
    ("slime", f"{MIS} tis_lower_bound=0.4", "tis_mode=truncate ignores", "clip uses"),
    (
        "slime",
        f"{MIS} tis_level=geometric tis_batch_normalize=no",
        "A geometric mean",
        "biased",
    ),
    ("slime", "--use-tis --custom-tis-function-path x.icepop_function", "icepop_", "upper"),
    ("slime", "--use-rollout-logprobs", "Double counting", "refuses --use-tis"),
    ("slime", "use_rs=true", "use_rs does nothing", "--use-tis"),
    ("verl", "rollout.temperature=0.7", "temperature=0.7 is no", "(unless logprobs_mode"),
    ("verl", "temperature=0.7 logprobs_mode=raw_logprobs", "logprobs_mode", "two temper"),
    ("verl", "logprobs_mode=raw_logprobs", "logprobs_mode=raw", "nothing is lost by it"),
    ("verl", "top_p=0.9 top_k=50", "top_p=0.9 top_k=50: ", "the actor's over the whole"),
    ("verl", "calculate_log_probs=False", "calculate_log_probs", "bypass_mode=true it rai"),
    ("verl", "actor.ppo_epochs=2", "ppo_epochs=2", "staleness"),
    ("trl", "temperature=0.6", "temperature=0.6 is no", "huggingface/trl#4159"),
    ("trl", "top_p=0.95 min_p=0.1", "top_p=0.95 min_p=0.1: ", "huggingface/trl#6789"),
    ("trl", "repetition_penalty=1.1", "repetition_penalty", "vllm-project/vllm#9453"),
    ("trl", "num_iterations=2", "num_iterations=2", "from the second pass on"),
    ("slime", "--rollout-temperature 0.8", "rollout_temperature=0.8", "no mismatch by it"),
    ("slime", "--rollout-top-p 0.9", "rollout_top_p=0.9", "normalises the trainer's"),
    ("slime", "--rollout-top-k 20", "rollout_top_k=20", "not top-k's"),
    ("slime", "--use-routing-replay", "use_routing_replay", "only that one acts on"),
    ("slime", "advantage_estimator=cispo", "CISPO is cut on both", "0.8 to 1.2"),
]


@pytest.mark.parametrize(("framework", "flags", "begins", "holds"), TRAPS)
def test_traps_are_named(framework, flags, begins, holds):
    found = [t for t in explain(framework, flags.split()).traps if t.en.startswith(begins)]
    assert len(found) == 1
    assert holds in found[0].en
    assert re.search(r"[\u4e00-\u9fff]", found[0].zh)


@pytest.mark.parametrize(
    ("framework", "flags", "absent"),
    [
        ("verl", "rollout_is=token", ["Length", "Product", "Double", "Batch", "Inverted"]),
        ("verl", "rollout_rs=token_k1 rollout_rs_threshold=0.5_2", ["Inverted", "Metrics"]),
        ("verl", "rollout_rs=token_k1 rollout_rs_threshold=0.999_1.001", ["Inverted"]),
        ("verl", "rollout_is=token rollout_is_threshold=2", ["Denominators", "rollout_is"]),
        ("verl", "loss_mode=cispo bypass_mode=true", ["CISPO", "Double"]),
        ("trl", f"use_vllm=true {MODE}=token_truncate", ["Length", "The corr", "Denomi"]),
        ("trl", "use_vllm=false", ["Length", "Metrics", "Double", "Denominators"]),
        ("slime", "", ["Metrics", "Double", "Denominators", "Batch"]),
        ("verl", "temperature=1.0 top_p=1 top_k=-1", ["temperature", "top_", "logprobs_m"]),
        ("verl", "calculate_log_probs=True ppo_epochs=1", ["calculate", "ppo_epochs"]),
        ("verl", "val_kwargs.top_p=0.7 data.temperature=2", ["top_p", "temperature"]),
        ("verl", "top_p=0.9 logprobs_mode=raw_logprobs", ["top_p"]),
        ("slime", "--use-routing-replay --use-rollout-routing-replay", ["use_routing"]),
    ],
)
def test_no_trap_where_there_is_none(framework, flags, absent):
    for trap in explain(framework, flags.split()).traps:
        assert not trap.en.startswith(tuple(absent))
