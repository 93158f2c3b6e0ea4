"""tinyrl's corrections, presets and monitoring against verl's rollout correction.

Where verl does otherwise, a test says what, how far, and that nothing else differs.
`peers/README.md` has the list.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
import torch
from peers.client import Peer
from torch import Tensor

from conformance import SEEDS, Case, agree, case, opened, own_loss
from tinyrl.correction import Correction
from tinyrl.framework_names import FRAMEWORKS, translate
from tinyrl.metrics import ess, token_delta
from tinyrl.monitoring import monitor
from tinyrl.objectives import ppo, reinforce
from tinyrl.presets import PRESETS

OURS = {
    key.removeprefix("verl/"): preset
    for key, preset in PRESETS.items()
    if key.startswith("verl/")
}
NOT_OURS = {
    *("decoupled_k3_rs", "decoupled_k3_rs_seq_tis", "decoupled_k3_rs_token_tis"),
    "bypass_ppo_clip_k3_rs",
}
"""Rejection by K3, which no `Correction` says."""


@pytest.fixture(scope="module")
def verl() -> Iterator[Peer]:
    yield from opened("verl")


def corrected(verl: Peer, c: Case, **config: Any) -> dict[str, Any]:
    arrays = c.theirs(
        logp_train=c.theirs("logp_old")["logp_old"],
        logp_rollout=c.theirs("logp_rollout")["logp_rollout"],
    )
    return verl.ask("rollout_correction", arrays, **config)


def near(seed: int) -> Case:
    """A case of which the narrow bands of the presets keep some responses and drop some.

    Two of them lie where it matters that 0.999_1.001 is 1/1.001 to 1/0.999.
    """
    c = case(seed)
    for name in ("logp_rollout", "logp"):
        d = c.arrays["logp_old"] - c.arrays[name]
        d[::2] *= 1e-3 / 4
        d[2], d[4] = -1e-3, 1e-3
        c.arrays[name] = c.arrays["logp_old"] - d
    return c


def applied(correction: Correction, c: Case) -> tuple[Tensor, Tensor]:
    return correction.apply(c.own("logp_old"), c.own("logp_rollout"), c.mask)


def same(c: Case, own: tuple[Tensor, Tensor], theirs: dict[str, Any]) -> None:
    """Mask, and weights on it; a weight of 0 is a token that ours dropped."""
    weight, kept = own
    used = theirs.get("weight", torch.ones_like(weight)) * theirs["mask"]
    assert not used[~c.mask].any()
    torch.testing.assert_close(
        torch.where(kept, weight, 0.0)[c.mask], used[c.mask], rtol=1e-9, atol=1e-12
    )


@pytest.mark.parametrize("level", ["token", "sequence"])
@pytest.mark.parametrize("normalise", [False, True])
@pytest.mark.parametrize("seed", SEEDS)
def test_truncated_weights(verl: Peer, level: Any, normalise: bool, seed: int) -> None:
    """With verl's batch normalisation: over tokens, or over responses."""
    c = case(seed)
    how = {"rollout_is": level, "rollout_is_batch_normalize": normalise}
    theirs = corrected(verl, c, rollout_is_threshold=1.5, **how)
    own = applied(Correction(level, "truncate", None, 1.5, normalise=normalise), c)
    assert (own[0][c.mask] == own[0][c.mask].max()).sum() > 1
    same(c, own, theirs)


@pytest.mark.parametrize("level", ["token", "sequence"])
@pytest.mark.parametrize("normalise", [False, True])
def test_icepop(verl: Peer, level: Any, normalise: bool) -> None:
    """verl's "lower_upper" sets weights to 0, not the mask: its denominator is all."""
    c = case(0)
    how = {"rollout_is": level, "rollout_is_batch_normalize": normalise}
    theirs = corrected(verl, c, rollout_is_threshold="0.5_1.5", **how)
    masked = Correction(level, "mask", 0.5, 1.5, normalise=normalise, denominator="all")
    own = applied(masked, c)
    assert torch.equal(theirs["mask"].bool(), c.mask)
    assert 0 < own[1].sum() < c.mask.sum()
    same(c, own, theirs)
    assert torch.equal(masked.counted(c.mask), c.mask)


@pytest.mark.parametrize(
    ("option", "level"),
    [("token_k1", "token"), ("seq_sum_k1", "sequence"), ("seq_mean_k1", "geometric")],
)
def test_bounds_of_k1_are_upside_down_in_verl(verl: Peer, option: str, level: Any) -> None:
    """k1 is -log rho, so verl's 0.9_1.6 keeps rho from 1/1.6 to 1/0.9 (verl#6377)."""
    c = case(0)
    theirs = corrected(verl, c, rollout_rs=option, rollout_rs_threshold="0.9_1.6")
    inverted = Correction(level, "mask", 1 / 1.6, 1 / 0.9, weight="one")
    own = applied(inverted, c)
    assert 0 < own[1].sum() < c.mask.sum()
    same(c, own, theirs)
    as_written = applied(Correction(level, "mask", 0.9, 1.6, weight="one"), c)[1]
    assert not torch.equal(as_written, theirs["mask"].bool())
    reciprocal = {"rollout_rs": option, "rollout_rs_threshold": "0.5_2.0"}
    same(
        c,
        applied(Correction(level, "mask", 0.5, 2.0, weight="one"), c),
        corrected(verl, c, **reciprocal),
    )


def test_a_rejection_is_anded_with_the_next(verl: Peer) -> None:
    c = case(1)
    theirs = corrected(
        verl, c, rollout_rs="token_k1,seq_sum_k1", rollout_rs_threshold="0.5_2.0,0.2_5.0"
    )
    second = Correction("sequence", "mask", 0.2, 5.0, weight="one")
    both = Correction("token", "mask", 0.5, 2.0, weight="one", also=second)
    same(c, applied(both, c), theirs)


def test_log_ratios_stop_at_20_in_both(verl: Peer) -> None:
    """Of weights; bounds are held against the sum itself in ours, and in verl for k1."""
    c = case(0)
    c.arrays["logp_rollout"] = (c.arrays["logp_old"] - 30).clamp(max=0.0)
    for level in ("token", "sequence"):
        theirs = corrected(verl, c, rollout_is=level, rollout_is_threshold=1e300)
        own = applied(Correction(level, "truncate", None, math.inf), c)  # type: ignore
        assert own[0].max() == pytest.approx(math.exp(20), rel=1e-9)
        same(c, own, theirs)


def test_every_recipe_of_verl_is_a_preset_of_that_name_or_named_here(verl: Peer) -> None:
    theirs = verl.ask("recipes", {}).keys()
    assert theirs - {"disabled", "default"} == OURS.keys() - {"default"} | NOT_OURS


@pytest.mark.parametrize("name", OURS)
def test_presets(verl: Peer, name: str) -> None:
    """verl's own recipe applied to the same arrays, and what it does with the loss."""
    preset = OURS[name]
    recipe = verl.ask("recipes", {})["disabled" if name == "default" else name]
    assert recipe["bypass_mode"] is (preset.mode == "bypass")
    fields = {k: v for k, v in recipe.items() if k.startswith("rollout_")}
    for seed in SEEDS:
        c = near(seed)
        theirs = corrected(verl, c, **fields)
        own = applied(preset.correction, c)
        same(c, own, theirs)
        if fields["rollout_rs"] is not None:
            assert 0 < own[1].sum() < c.mask.sum()


@pytest.mark.parametrize("name", OURS)
def test_losses_of_the_presets(verl: Peer, name: str) -> None:
    """Decoupled: weight and mask go into PPO. Bypass: verl's loss makes them, and counts
    tokens before it rejects, since its trainer counts them first."""
    preset = OURS[name]
    recipe = verl.ask("recipes", {})["disabled" if name == "default" else name]
    recipe = {k: v for k, v in recipe.items() if not k.startswith("_")}
    fields = {k: v for k, v in recipe.items() if k.startswith("rollout_")}
    c = near(0)
    if preset.mode == "decoupled":
        theirs = corrected(verl, c, **fields)
        arrays = c.theirs("logp", "logp_old", "advantages")
        more = {"weight": theirs["weight"]} if "weight" in theirs else {}
        answer = verl.ask(
            "policy_loss", {**arrays, "mask": theirs["mask"], **more}, name="vanilla"
        )
        weight, kept = applied(preset.correction, c)
        own = partial(ppo, dual_clip=3.0)
    else:
        c.arrays["logp_old"] = c.arrays["logp_rollout"]
        answer = verl.ask(
            "policy_loss",
            c.theirs("logp", "logp_old", "advantages"),
            name="bypass_mode",
            rollout_correction=recipe,
            global_batch={"batch_num_tokens": int(c.mask.sum())},
        )
        weight, kept = preset.correction.apply(c.own("logp"), c.own("logp_rollout"), c.mask)
        own = partial(ppo, dual_clip=3.0)
        if preset.loss == "reinforce":
            own = partial(reinforce, aggregation="token_mean")
        else:
            weight = torch.ones_like(weight)
    how = {"weight": weight, "counted": preset.correction.counted(c.mask)}
    agree(own_loss(own, c, kept, **how), answer)


def test_verls_trainer_divides_by_every_row_of_a_minibatch(verl: Peer) -> None:
    """So where its rejection edits the mask, tokens are counted as kept but rows as all:
    with means over responses its loss is ours times the rows that have a token left."""
    c = near(0)
    rejected = Correction("geometric", "mask", 1 / 1.001, 1 / 0.999, weight="one")
    _, kept = applied(rejected, c)
    arrays = {**c.theirs("logp", "logp_old", "advantages"), "mask": kept.long()}
    how = {"name": "vanilla", "loss_agg_mode": "seq-mean-token-mean"}
    own = own_loss(partial(ppo, dual_clip=3.0), c, kept, aggregation="sequence_mean")
    agree(own, verl.ask("policy_loss", arrays, **how))
    rows = len(kept)
    answer = verl.ask(
        "policy_loss", arrays, global_batch={"global_batch_size": rows}, **how
    )
    share = kept.any(1).sum().item() / rows
    assert 0 < share < 1
    agree({k: x * share for k, x in own.items()}, answer)


VERL = FRAMEWORKS["verl"].names


def numbers(verl: Peer, c: Case, **config: Any) -> dict[str, float]:
    """All that verl logs of a case's mismatch, by its names."""
    arrays = c.theirs("logp_rollout", logp_train=c.theirs("logp_old")["logp_old"])
    metrics = verl.ask("probabilities", arrays)["metrics"]
    return {**corrected(verl, c, **config)["metrics"], **metrics}


@pytest.mark.parametrize("seed", SEEDS)
def test_metrics(verl: Peer, seed: int) -> None:
    """Each number that the table of names calls equal, where nothing is corrected."""
    c = case(seed)
    theirs = numbers(verl, c)
    arrays = c.own("logp_rollout"), c.own("logp_old"), c.mask
    own = translate("verl", monitor(*arrays, probabilities=True))
    assert theirs.keys() - own.keys() == {"training/rollout_probs_diff_valid"}
    assert own.keys() <= theirs.keys()
    for name, value in own.items():
        assert value == pytest.approx(theirs[name], rel=1e-9), name


@pytest.mark.parametrize("seed", SEEDS)
def test_metrics_of_weights_and_rejections(verl: Peer, seed: int) -> None:
    """verl's mean and ESS are of truncated weights: ours of rho, unless cut first. Its
    shares count in float32, those "below" against 1 / C where no lower bound is set."""
    c, C = case(seed), 1.5
    how = {"rollout_rs": "seq_mean_k1", "rollout_rs_threshold": "0.8_1.25"}
    theirs = numbers(verl, c, rollout_is="token", rollout_is_threshold=C, **how)
    _, kept = applied(Correction("geometric", "mask", 0.8, 1.25, weight="one"), c)
    arrays = c.own("logp_rollout"), c.own("logp_old"), c.mask
    bounds = Correction("token", "truncate", None, C)
    all_of_ours = monitor(*arrays, kept=kept, correction=bounds)
    own = translate("verl", all_of_ours)
    for name in ("ratio_fraction_high", "masked_fraction", "seq_masked_fraction"):
        kind = "is" if name.startswith("ratio") else "rs"
        assert own[f"rollout_corr/rollout_{kind}_{name}"] > 0
    for name, value in own.items():
        assert value == pytest.approx(theirs[name], rel=1e-7), name
    d = token_delta(*arrays)[c.mask]
    cut = d.clamp(max=math.log(C))
    reciprocal = monitor(*arrays, correction=Correction("token", "truncate", 1 / C, C))
    for name, value in {
        "mean": cut.exp().mean().item(),
        "std": cut.exp().std(correction=0).item(),
        "max": cut.exp().max().item(),
        "eff_sample_size": ess(cut),
        "ratio_fraction_low": reciprocal["below"],
    }.items():
        found = theirs[f"rollout_corr/rollout_is_{name}"]
        assert value > 0
        assert found == pytest.approx(value, rel=1e-7), name
    for name, ours, equal, _, of in VERL:
        if not equal and ours in all_of_ours and of == "mismatch":
            assert theirs[name] != pytest.approx(all_of_ours[ours], rel=1e-3), name
