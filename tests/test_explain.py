"""What flags of verl, TRL and slime are said to do."""

import math
import re
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from plain_corrections import batch, corrections, seeds
from tinyrl.correction import Correction
from tinyrl.explain import FRAMEWORKS, FlagError, code, explain

MIS = "--use-tis --custom-tis-function-path=a.b.compute_mis_weights_with_cp"
MODE = "vllm_importance_sampling_mode"
MEANS = "loss_agg_mode=seq-mean-token-mean"
TOKEN = ("token: each token", "token 级")
PRODUCT = ("by product", "连乘")
MEAN = ("by geometric mean", "几何平均")


def said(reading):
    """All of a reading's English, and all of its Chinese."""
    texts = [x for part in reading.parts for x in part]
    texts += [reading.where, reading.denominator, *reading.beside, *reading.traps]
    texts += [reading.lacking] if reading.lacking else []
    return tuple("\n".join(x) for x in zip(*texts, strict=True))


@pytest.mark.parametrize(
    ("framework", "flags", "level", "operation", "arguments"),
    [
        ("verl", "rollout_is=token", TOKEN, "truncate:", ("token", "truncate")),
        ("verl", "rollout_is=sequence", PRODUCT, "truncate:", ("sequence", "truncate")),
        (
            "verl",
            "rollout_is=token rollout_is_threshold=0.5_5",
            TOKEN,
            "mask:",
            ("token", "mask", 0.5, 5.0, "ratio", False, None, "all"),
        ),
        (
            "verl",
            "rollout_rs=seq_sum_k1 rollout_rs_threshold=4",
            PRODUCT,
            "mask:",
            ("sequence", "mask", 0.25, 4.0, "one"),
        ),
        (
            "verl",
            "rollout_rs=seq_mean_k1 rollout_rs_threshold=0.5_2 bypass_mode=true",
            MEAN,
            "mask:",
            ("geometric", "mask", 0.5, 2.0, "one", False, None, "all"),
        ),
        (
            "trl",
            f"{MODE}=token_truncate",
            TOKEN,
            "truncate:",
            ("token", "truncate", None, 3.0),
        ),
        (
            "trl",
            "",
            PRODUCT,
            "mask:",
            ("sequence", "mask", None, 3.0, "ratio", False, None, "all"),
        ),
        (
            "trl",
            "vllm_importance_sampling_clip_max=null",
            PRODUCT,
            "weigh:",
            ("sequence", "truncate", None, math.inf),
        ),
        (
            "trl",
            f"vllm_importance_sampling_cap=2 {MODE}=sequence_truncate",
            PRODUCT,
            "truncate:",
            ("sequence", "truncate", None, 2.0),
        ),
        (
            "slime",
            "--use-tis --tis-clip 3 --tis-clip-low 0.5",
            TOKEN,
            "truncate on both sides",
            ("token", "truncate", 0.5, 3.0),
        ),
        (
            "slime",
            f"{MIS} tis_level=geometric tis_mode=mask use_rs=no tis_batch_normalize=no",
            MEAN,
            "mask:",
            ("geometric", "mask", 0.5, 2.0, "ratio", False, None, "all"),
        ),
        (
            "slime",
            f"{MIS} tis_level=sequence tis_mode=clip use_rs=no",
            PRODUCT,
            "truncate on both sides",
            ("sequence", "truncate", 0.5, 2.0, "ratio", True),
        ),
    ],
)
def test_level_operation_and_correction(framework, flags, level, operation, arguments):
    reading = explain(framework, flags.split())
    (part,) = reading.parts
    assert level[0] in part.level.en
    assert level[1] in part.level.zh
    assert part.operation.en.startswith(operation)
    assert reading.correction == Correction(*arguments)


@pytest.mark.parametrize(
    ("framework", "flags", "where", "denominator"),
    [
        ("verl", "rollout_is=token", "outside the clip on p_new/p_old", "unchanged"),
        ("verl", "", "no weight", "unchanged"),
        ("verl", "rollout_is=token bypass_mode=true", "no weight is applied", "unchanged"),
        ("verl", "bypass_mode=1 loss_type=reinforce", "-w A log p_new", "unchanged"),
        ("verl", "rollout_is=token rollout_is_threshold=0.5_5", "outside", "all tokens"),
        ("verl", "rollout_rs=token_k1 rollout_rs_threshold=2", "no weight", "kept tokens"),
        (
            "verl",
            "rollout_rs=token_k1 rollout_rs_threshold=2 bypass_mode=true",
            "no weight",
            "all tokens: response_mask is edited inside the loss",
        ),
        (
            "verl",
            f"{MEANS} rollout_rs=seq_sum_k1 rollout_rs_threshold=2",
            "no weight",
            "its kept tokens inside a response, then the fixed number of responses",
        ),
        ("trl", f"{MODE}=token_mask", "before the KL term", "all tokens"),
        ("trl", "loss_type=dr_grpo", "outside", "B * max_completion_length, dropped ones"),
        ("trl", "use_vllm=false", "no weight is computed", "unchanged"),
        ("trl", "vllm_importance_sampling_correction=false", "no weight is", "unchanged"),
        ("slime", "", "p_old/mu is left out", "unchanged"),
        ("slime", "--use-rollout-logprobs", "bypass, two policies", "unchanged"),
        ("slime", MIS, "outside the clip on p_new/p_old", "all tokens: a mask or a weight"),
    ],
)
def test_place_and_denominator(framework, flags, where, denominator):
    reading = explain(framework, flags.split())
    assert where in reading.where.en
    assert denominator in reading.denominator.en


@given(seeds, st.tuples(st.floats(0.2, 0.95), st.floats(1.05, 4.0)))
def test_verls_k1_bounds_are_read_as_verl_compares_them(seed, bounds):
    """Kept where log lower <= -log rho <= log upper, as in its compute_rollout_..."""
    low, high = bounds
    flags = ["rollout_rs=token_k1", f"rollout_rs_threshold={low!r}_{high!r}"]
    train, roll, mask = batch(seed)
    _, kept = explain("verl", flags).correction.apply(train, roll, mask)
    k1 = roll - train
    assert torch.equal(kept, mask & (k1 >= math.log(low)) & (k1 <= math.log(high)))


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        ("rollout_rs=seq_mean_k3 rollout_rs_threshold=0.01", "not on K3"),
        ("rollout_is=token rollout_is_threshold=0.28", "leave 1 out"),
        (
            "rollout_is=token rollout_is_threshold=0.5_5 "
            "rollout_rs=token_k1 rollout_rs_threshold=2",
            "IcePop's zeros count",
        ),
        (
            f"{MEANS} rollout_rs=token_k1 rollout_rs_threshold=2",
            "among responses all do",
        ),
    ],
)
def test_what_no_correction_says(flags, why):
    reading = explain("verl", flags.split())
    assert reading.correction is None
    assert why in reading.lacking.en
    assert "every weight is 1" not in said(reading)[0]


def test_masking_by_the_advantage_is_told_with_whose_probability_it_takes():
    (trl,) = explain("trl", ["off_policy_mask_threshold=0.5"]).beside
    (slime,) = explain("slime", ["--use-opsm"]).beside
    (bypass,) = explain("slime", ["--use-opsm", "--use-rollout-logprobs"]).beside
    assert "mean(log mu - log p_new) above 0.5" in trl.en
    assert "mean(log p_old - log p_new) above 0.0001; with p_old" in slime.en
    assert "mean(log mu - log p_new) above 0.0001" in bypass.en


@given(corrections())
def test_a_correction_is_written_so_that_it_can_be_read(correction):
    counts = correction.denominator
    raw = Correction("token", "truncate", None, math.inf, denominator=counts)
    for c in (correction, raw, replace(raw, also=correction)):
        assert eval(code(c), {"Correction": Correction, "math": math}) == c


VALUES = [
    "0.5",
    "2.0",
    "0.5_5.0",
    "1e-4",
    "null",
    "true",
    "token",
    "sequence",
    "geometric",
    "-1",
    "0",
    "x",
    "nan",
    "inf",
    "1e999",
    "clip",
    "mask",
    "seq_mean_k1",
    "token_k2",
    "seq_sum_k1,token_k1",
    "sequence_mask",
    "cispo",
    "reinforce",
    "dr_grpo",
    "x.compute_mis_weights_with_cp",
    "x.icepop_function",
]
NAMES = [flag.name for flags, _ in FRAMEWORKS.values() for flag in flags]
PAIR = "{}={}".format
TEXT = st.text(max_size=8)
WORDS = st.one_of(
    TEXT,
    st.builds(PAIR, TEXT, TEXT),
    st.builds(PAIR, st.sampled_from(NAMES), TEXT),
    st.builds(PAIR, st.sampled_from(NAMES), st.sampled_from(["", *VALUES])),
)


@given(st.sampled_from(sorted(FRAMEWORKS)), st.lists(WORDS, max_size=6))
def test_any_flags_are_explained_or_refused_in_one_line(framework, words):
    refused = ""
    try:
        reading = explain(framework, words, tokens=10**9)
    except FlagError as error:
        refused = str(error)
    if refused:
        assert refused.isprintable()
        return
    english, chinese = said(reading)
    assert re.search(r"[\u4e00-\u9fff]", chinese)
    assert not re.search(r"[\u4e00-\u9fff]", english)
    assert "None" not in english + chinese
    assert "{" not in english + chinese
    assert (reading.correction is None) == (reading.lacking is not None)
