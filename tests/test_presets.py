"""Named recipes: complete, dated, and what their flags say."""

import math
import re
from datetime import date

import pytest
import torch

from plain_corrections import batch
from tinyrl import presets
from tinyrl.correction import Correction
from tinyrl.explain import FRAMEWORKS, explain
from tinyrl.objectives import LossView, grpo
from tinyrl.presets import PRESETS, VERL

ALL = pytest.mark.parametrize("preset", PRESETS.values(), ids=lambda p: p.name)

# classmethods of RolloutCorrectionConfig at the commit of VERL, `disabled` apart
VERLS = {
    *("decoupled_token_is", "decoupled_seq_is", "decoupled_token_icepop"),
    *("decoupled_seq_is_rs", "decoupled_geo_rs", "decoupled_geo_rs_seq_tis"),
    *("decoupled_geo_rs_token_tis", "bypass_ppo_clip", "bypass_ppo_clip_geo_rs"),
    *("bypass_pg_is", "bypass_pg_token_icepop", "bypass_pg_geo_rs"),
    *("bypass_pg_geo_rs_seq_tis", "bypass_pg_geo_rs_token_tis"),
}
BY_K3 = {
    *("decoupled_k3_rs", "decoupled_k3_rs_seq_tis", "decoupled_k3_rs_token_tis"),
    "bypass_ppo_clip_k3_rs",
}


@ALL
def test_a_preset_says_where_and_when_it_was_read(preset):
    release = preset.release
    assert re.fullmatch(r"[\w.-]+/[\w.-]+", release.repository)
    assert re.fullmatch(r"[0-9a-f]{40}", release.commit)
    assert re.fullmatch(r"v\d+\.\d+\.\d+|main", release.version)
    assert date(2026, 1, 1) <= date.fromisoformat(release.date) <= date(2026, 11, 30)
    assert re.search(r"^[\w.-]+/[\w./-]+\w", preset.source)
    assert PRESETS[preset.name] is preset
    assert preset.name == f"{preset.framework}/{preset.name.partition('/')[2]}"


def test_every_framework_is_there_and_none_of_verls_methods_is_forgotten():
    frameworks = {p.framework for p in PRESETS.values()}
    others = {"openrlhf", "nemo-rl", "areal", "skyrl", "ms-swift"}
    assert frameworks == {"verl", "trl", "slime"} | others
    names = {p.name.partition("/")[2] for p in PRESETS.values() if p.release is VERL}
    assert names == VERLS | {"default"}
    assert set(re.findall(r"\w+", presets.__doc__)) >= BY_K3


@ALL
def test_a_preset_is_what_its_flags_say(preset):
    if preset.framework in FRAMEWORKS:
        reading = explain(preset.framework, preset.flags.split())
        assert reading.correction == preset.correction
        assert (reading.mode, reading.loss) == (preset.mode, preset.loss)
        assert reading.release is preset.release
        assert preset.name in reading.presets(preset.framework)


def test_the_same_correction_in_another_mode_or_loss_is_another_preset():
    geo = "rollout_rs=seq_mean_k1 rollout_rs_threshold=0.999_1.001"
    for more, name in (
        ("", "decoupled_geo_rs"),
        ("bypass_mode=true", "bypass_ppo_clip_geo_rs"),
        ("bypass_mode=true loss_type=reinforce", "bypass_pg_geo_rs"),
    ):
        reading = explain("verl", f"{geo} {more}".split())
        assert reading.presets("verl") == [f"verl/{name}"]


@ALL
def test_a_preset_goes_into_a_loss_and_leaves_equal_policies_alone(preset):
    train, roll, mask = batch(1)
    A = torch.tensor([1.0, -1.0, 0.5, -0.5, 2.0])
    LossView(anchor=preset.anchor)

    def loss(logp_train):
        weight, kept = preset.correction.apply(logp_train, roll, mask)
        counted = preset.correction.counted(mask)
        return grpo(logp_train, logp_train, A, kept, weight=weight, counted=counted)

    assert loss(train).isfinite()
    assert loss(roll).item() == grpo(roll, roll, A, mask).item()


@pytest.mark.parametrize("framework", ["trl", "slime", "areal", "openrlhf", "nemo-rl"])
def test_frameworks_that_count_what_they_drop(framework):
    dropping = [
        p.correction
        for p in PRESETS.values()
        if p.framework == framework
        and "mask" in (p.correction.operation, getattr(p.correction.also, "operation", ""))
    ]
    assert dropping
    assert {c.denominator for c in dropping} == {"all"}


def keeps(name, ratios):
    """Which of these single-token responses a preset keeps."""
    roll = torch.full((len(ratios), 1), -9.0, dtype=torch.float64)
    mask = torch.ones(len(ratios), 1, dtype=torch.bool)
    delta = torch.tensor(ratios, dtype=torch.float64).log()[:, None]
    weight, kept = PRESETS[name].correction.apply(roll + delta, roll, mask)
    return [w if k else 0 for w, k in zip(weight[:, 0].tolist(), kept[:, 0], strict=True)]


@pytest.mark.parametrize(
    ("name", "ratios", "weights"),
    [
        ("verl/decoupled_token_is", [0.1, 1.5, 3.0], [0.1, 1.5, 2.0]),
        ("verl/decoupled_token_icepop", [0.49, 0.51, 4.9, 5.1], [0, 0.51, 4.9, 0]),
        ("verl/decoupled_geo_rs", [0.9985, 0.9995, 1.0005, 1.0015], [0, 1, 1, 0]),
        ("verl/bypass_ppo_clip", [0.1, 9.0], [1, 1]),
        ("trl/default", [0.01, 2.9, 3.1], [0.01, 2.9, 0]),
        ("trl/sequence_truncate", [0.01, 2.9, 3.1], [0.01, 2.9, 3.0]),
        ("slime/use_tis", [0.01, 1.9, 2.1], [0.01, 1.9, 2.0]),
        ("slime/icepop_function", [0.01, 1.9, 2.1], [0.01, 1.9, 0]),
        ("openrlhf/tis", [0.1, 1.0, 9.0], [0.5, 1.0, 5.0]),
        ("openrlhf/seq-mask-tis", [0.4, 0.6, 4.0, 6.0], [0, 0.6, 4.0, 0]),
        ("nemo-rl/seq-mask-tis", [0.9985, 1.001, 1.003], [0, 1.001, 0]),
        ("areal/rejection_sampling", [0.01, 4.9, 5.1], [0.01, 4.9, 0]),
        ("skyrl/geometric", [0.98, 0.995, 1.005, 1.02], [0, 1, 1, 0]),
        ("ms-swift/sequence_mask", [0.01, 1.9, 2.1], [0.01, 1.9, 0]),
    ],
)
def test_defaults_in_numbers(name, ratios, weights):
    assert keeps(name, ratios) == pytest.approx(weights, rel=1e-9)


@pytest.mark.parametrize(
    ("name", "kept", "weights"),
    [
        ("verl/decoupled_geo_rs", True, [1, 1]),
        ("verl/decoupled_seq_is_rs", True, [1, 1]),
        ("verl/decoupled_token_icepop", False, [4.0, 0.25]),
        ("trl/default", True, [1, 1]),
        ("openrlhf/seq-mask-tis", True, [4.0, 0.25]),
        ("nemo-rl/seq-mask-tis", True, [4.0, 0.25]),
        ("areal/rejection_sampling", True, [4.0, 0.25]),
        ("skyrl/geometric", True, [1, 1]),
        ("ms-swift/sequence_truncate", True, [1, 1]),
        ("ms-swift/sequence_mask", True, [4.0, 0.25]),
    ],
)
def test_who_looks_at_tokens_and_who_at_the_response(name, kept, weights):
    """One token four times as likely, the next four times less: as a whole, no change."""
    roll = torch.full((1, 2), -9.0, dtype=torch.float64)
    delta = math.log(4) * torch.tensor([[1.0, -1.0]], dtype=torch.float64)
    weight, left = PRESETS[name].correction.apply(roll + delta, roll, torch.ones(1, 2))
    assert weight[0].tolist() == pytest.approx(weights, rel=1e-9)
    assert left.all().item() == kept


def test_slimes_example_normalises_over_all_and_vetoes():
    """mis.yaml: weights up to 2 by their mean, tokens outside 0.5 to 2 dropped, responses
    with one below 1e-4 too."""
    got = keeps("slime/mis.yaml", [1e-5, 0.4, 1.0, 1.6, 3.0])
    mean = (1e-5 + 0.4 + 1.0 + 1.6 + 2.0) / 5
    assert got == pytest.approx([0, 0, 1 / mean, 1.6 / mean, 0], rel=1e-9)
    veto = PRESETS["slime/mis.yaml"].correction.also
    roll = torch.full((1, 2), -20.0)
    delta = torch.tensor([[0.0, math.log(0.9e-4)]])
    _, kept = veto.apply(roll + delta, roll, torch.ones(1, 2))
    assert not kept.any()


def test_a_default_without_flags_is_no_correction():
    assert PRESETS["verl/default"].correction == Correction()
    assert PRESETS["slime/default"].correction == Correction()
