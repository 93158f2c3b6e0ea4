"""tinyrl's objectives and corrections against TRL's GRPOTrainer, in float64.

Where TRL does otherwise, a test says what, how far, and that nothing else differs.
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

from conformance import REWARDS, SEEDS, Case, agree, case, far, opened, own_loss
from tinyrl.advantages import group_advantages
from tinyrl.correction import Correction, off_policy_mask
from tinyrl.framework_names import translate
from tinyrl.monitoring import monitor
from tinyrl.objectives import cispo, dapo, diagnostics, dr_grpo, grpo, gspo, ppo, sapo
from tinyrl.presets import PRESETS

LENGTH = 16
SEQUENCE = {"importance_sampling_level": "sequence"}
WIDE = {"epsilon": 0.2, "epsilon_high": 0.28}
LOSSES: dict[str, tuple[Any, dict[str, Any]]] = {
    "grpo": (partial(grpo, eps_high=0.28), WIDE),
    "bnpo": (partial(ppo, eps_high=0.28), WIDE),
    "dr_grpo": (
        partial(dr_grpo, eps_high=0.28, length=LENGTH),
        {**WIDE, "max_completion_length": LENGTH},
    ),
    "dapo": (dapo, WIDE),
    "cispo": (partial(cispo, cap=5.0), {"epsilon_high": 5.0}),
    "sapo": (sapo, {}),
    "luspo": (
        partial(gspo, eps_low=0.1, eps_high=0.2, aggregation="sequence_sum"),
        {**SEQUENCE, "epsilon": 0.1, "epsilon_high": 0.2},
    ),
}
"""By TRL's loss_type; luspo is GSPO's ratio in a sum over tokens. tinyrl has no vespo."""
MODES = ("token_truncate", "token_mask", "sequence_truncate", "sequence_mask")
BOTH = "logp", "logp_old", "advantages"


@pytest.fixture(scope="module")
def trl() -> Iterator[Peer]:
    yield from opened("trl")


def asked(trl: Peer, c: Case, *more: str, **options: Any) -> dict[str, Any]:
    """TRL's loss of a case; `weight` among `more` is its importance-sampling ratio."""
    arrays = c.theirs("logp", "logp_old", *more)
    return trl.ask(
        "loss", {**arrays, "advantages": c.arrays["advantages"][:, 0]}, **options
    )


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", LOSSES)
def test_losses(trl: Peer, name: str, seed: int) -> None:
    """Each `loss_type`, with and without an importance-sampling ratio."""
    c = case(seed)
    loss, options = LOSSES[name]
    agree(own_loss(loss, c), asked(trl, c, loss_type=name, **options))
    answer = asked(trl, c, "weight", loss_type=name, **options)
    if name == "luspo":  # its ratio is one for a response: the weight broadcasts
        c.arrays["weight"] = torch.where(c.mask, c.arrays["weight"], 0.0)
    agree(own_loss(loss, c, weight=c.own("weight")), answer)


@pytest.mark.parametrize("seed", SEEDS)
def test_gspo(trl: Peer, seed: int) -> None:
    """TRL has the response's ratio itself: its gradient goes through the mean."""
    c = case(seed)
    options = {"loss_type": "grpo", "epsilon": 0.1, "epsilon_high": 0.2, **SEQUENCE}
    own = partial(gspo, eps_low=0.1, eps_high=0.2)
    agree(own_loss(own, c), asked(trl, c, **options))


def test_cispos_epsilon_high_is_the_cap_itself_in_trl(trl: Peer) -> None:
    """0.28, which is a width elsewhere, makes every weight at most 0.28; no lower bound."""
    c = case(0)
    small = asked(trl, c, loss_type="cispo", epsilon_high=0.28)

    def capped(logp: Tensor, old: Tensor, A: Tensor, mask: Tensor) -> Tensor:
        logp, old, A = (torch.where(mask, x, 0.0) for x in (logp, old, A))
        r = (logp - old).exp().detach().clamp(max=0.28)
        return -(r * A * logp)[mask].mean()

    agree(own_loss(capped, c), small)
    with pytest.raises(ValueError, match="cap must be above 1"):
        own_loss(partial(cispo, cap=0.28), c)
    of_width = own_loss(partial(cispo, eps_high=0.28), c)["gradient"].abs().sum()
    assert of_width > 2 * small["gradient"].abs().sum()


def test_delta_is_dual_clip(trl: Peer) -> None:
    """TRL's bound of the unclipped branch acts where A < 0 alone, as dual clip does."""
    c = case(0, spread=1.5)
    answer = asked(trl, c, loss_type="grpo", delta=3.0)
    own = partial(ppo, dual_clip=3.0, aggregation="sequence_mean")
    agree(own_loss(own, c), answer)
    without = asked(trl, c, loss_type="grpo")
    assert not torch.equal(without["gradient"], answer["gradient"])


def test_trl_does_not_stop_log_ratios(trl: Peer) -> None:
    """Beyond 20, tinyrl's ratio stays at e^20 and gives no gradient; TRL's does not."""
    c = far(25.0, -1.0)
    answer, own = asked(trl, c, loss_type="grpo"), own_loss(grpo, c)
    assert answer["loss"].item() == pytest.approx(math.exp(25), rel=1e-9)
    assert answer["gradient"].sum().item() == pytest.approx(math.exp(25), rel=1e-9)
    assert own["loss"].item() == pytest.approx(math.exp(20), rel=1e-9)
    assert not own["gradient"].any()
    below = far(19.0, -1.0)
    agree(own_loss(grpo, below), asked(trl, below, loss_type="grpo"))


@pytest.mark.parametrize("beta", [0.04, 0.5])
def test_reference(trl: Peer, beta: float) -> None:
    """GRPO's paper has K3 as it is; TRL multiplies it by the ratio unless told not to."""
    c = case(0)
    how = {"loss_type": "grpo", "beta": beta}
    own = own_loss(partial(grpo, logp_ref=c.own("logp_ref"), beta=beta), c)
    agree(own, asked(trl, c, "logp_ref", use_bias_correction_kl=False, **how))
    default = asked(trl, c, "logp_ref", **how)
    assert trl.ask("defaults", {})["use_bias_correction_kl"] is True

    def corrected(logp: Tensor, old: Tensor, A: Tensor, mask: Tensor) -> Tensor:
        d, log_x = (
            torch.where(mask, x, 0.0)
            for x in (logp - c.own("logp_old"), c.own("logp_ref") - logp)
        )
        k3 = torch.where(mask, (torch.expm1(log_x) - log_x) * d.exp(), 0.0)
        rows = k3.sum(1) / mask.sum(1)
        return grpo(logp, old, A, mask) + beta * rows.mean()

    agree(own_loss(corrected, c), default)
    assert abs(default["loss"] - own["loss"]) > 1e-3 * beta


def test_a_weight_does_not_touch_the_reference_term(trl: Peer) -> None:
    """TRL drops a token by a weight of 0: it stays bound to the reference, as it does here
    where the mask is left alone. With a token that left the mask, its bond goes too."""
    c = case(1)
    keep = c.arrays["weight"] > 0.7
    c.arrays["weight"] = torch.where(keep, c.arrays["weight"], 0.0)
    answer = asked(
        trl,
        c,
        "weight",
        "logp_ref",
        loss_type="grpo",
        beta=0.1,
        use_bias_correction_kl=False,
    )
    own = partial(grpo, logp_ref=c.own("logp_ref"), beta=0.1, weight=c.own("weight"))
    agree(own_loss(own, c), answer)
    narrowed = own_loss(own, c, c.mask & keep, counted=c.mask)
    assert abs(narrowed["loss"] - answer["loss"]) > 1e-3


def stepped(trl: Peer, c: Case, rewards: Tensor, **options: Any) -> dict[str, Any]:
    arrays = c.theirs("logp", "logp_old", "logp_rollout", rewards=rewards)
    return trl.ask("step", arrays, num_generations=3, **options)


@pytest.mark.parametrize("scale", ["group", "batch", "none"])
def test_advantages(trl: Peer, scale: str) -> None:
    theirs = stepped(trl, case(0), REWARDS, scale_rewards=scale)["advantages"]
    std = {"group": "sample"}.get(scale, scale)
    own = group_advantages(REWARDS, 3, std=std, eps=1e-4)
    torch.testing.assert_close(own, theirs, rtol=1e-9, atol=1e-12)


def corrected(correction: Correction, c: Case, loss: Any) -> dict[str, Tensor]:
    """Weight (0 where dropped), loss and gradient in the decoupled form."""
    arrays = c.own("logp_old"), c.own("logp_rollout"), c.mask
    weight, kept = correction.apply(*arrays)
    c.arrays["advantages"] = group_advantages(REWARDS, 3, eps=1e-4)[:, None].expand_as(kept)
    how = {"weight": weight, "counted": correction.counted(c.mask)}
    return {"weight": weight * kept, **own_loss(loss, c, kept, **how)}


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", [name for name in LOSSES if name != "luspo"])
@pytest.mark.parametrize("mode", MODES)
def test_importance_sampling_modes(trl: Peer, mode: str, name: str, seed: int) -> None:
    """From rewards and both old logprobs to the loss, by the preset of the mode's name."""
    c = case(seed)
    loss, options = LOSSES[name]
    how = {"vllm_importance_sampling_mode": mode, "loss_type": name, **options}
    answer = stepped(trl, c, REWARDS, **how)
    own = corrected(PRESETS[f"trl/{mode}"].correction, c, loss)
    theirs = answer["weight"].expand_as(c.mask)[c.mask]
    torch.testing.assert_close(own["weight"][c.mask], theirs, rtol=1e-9, atol=1e-12)
    assert (theirs == (0 if "mask" in mode else 3)).any(), "no ratio was out of bounds"
    agree(own, answer)


@pytest.mark.parametrize("mode", MODES)
def test_lower_bounds(trl: Peer, mode: str) -> None:
    level, operation = mode.split("_")
    c = case(0)
    answer = stepped(
        trl,
        c,
        REWARDS,
        vllm_importance_sampling_mode=mode,
        vllm_importance_sampling_clip_min=0.8,
        loss_type="dapo",
        **WIDE,
    )
    both: Any = (level, operation, 0.8, 3.0)
    own = corrected(Correction(*both, denominator="all"), c, dapo)
    theirs = answer["weight"].expand_as(c.mask)[c.mask]
    torch.testing.assert_close(own["weight"][c.mask], theirs, rtol=1e-9, atol=1e-12)
    agree(own, answer)


def test_the_denominator_of_trl_counts_what_its_mask_dropped(trl: Peer) -> None:
    c = case(0)
    answer = stepped(trl, c, REWARDS, vllm_importance_sampling_mode="token_mask", **WIDE)
    dropped = (answer["weight"] == 0) & c.mask
    kept = (c.mask & ~dropped).sum().double() / c.mask.sum()
    own = corrected(Correction("token", "mask", None, 3.0, denominator="kept"), c, dapo)
    assert 0.5 < kept < 1
    torch.testing.assert_close(own["loss"] * kept, answer["loss"], rtol=1e-9, atol=1e-12)


def test_an_unscored_token_gets_ratio_1_in_trl_and_is_named_here(trl: Peer) -> None:
    """What a rollout could not score is no evidence; tinyrl does not go on with it."""
    c = case(0)
    c.arrays["logp_rollout"][2, 1] = math.nan
    how = {"vllm_importance_sampling_mode": "token_truncate"}
    assert stepped(trl, c, REWARDS, **how)["weight"][2, 1] == 1
    with pytest.raises(ValueError, match="logp_rollout row 2, column 1 is not a number"):
        Correction().apply(c.own("logp_old"), c.own("logp_rollout"), c.mask)


def test_weights_end_at_e_to_minus_20_here_and_at_0_in_trl(trl: Peer) -> None:
    c = case(0)
    c.arrays["logp_old"] = c.arrays["logp_rollout"] - 800.0
    how = {"vllm_importance_sampling_mode": "token_truncate"}
    answer = stepped(trl, c, REWARDS, **how)
    weight, _ = PRESETS["trl/token_truncate"].correction.apply(
        c.own("logp_old"), c.own("logp_rollout"), c.mask
    )
    assert not answer["weight"][c.mask].any()
    assert (weight[c.mask] == math.exp(-20)).all()


@pytest.mark.parametrize("threshold", [0.05, 0.3])
def test_off_policy_sequence_masking(trl: Peer, threshold: float) -> None:
    """arXiv 2512.02556: what it drops counts in the denominator."""
    c = case(2)
    answer = asked(
        trl, c, "logp_rollout", loss_type="grpo", off_policy_mask_threshold=threshold
    )
    A = c.own("advantages")
    kept = off_policy_mask(c.own("logp"), c.own("logp_rollout"), A, c.mask, delta=threshold)
    assert 0 < (c.mask & ~kept).any(1).sum() < len(kept)
    agree(own_loss(grpo, c, kept, counted=c.mask), answer)


@pytest.mark.parametrize("seed", SEEDS)
def test_diagnostics(trl: Peer, seed: int) -> None:
    """TRL's clip ratios, which it counts in float32."""
    c = case(seed, spread=1.2)
    theirs = asked(trl, c, loss_type="dapo", **WIDE)["metrics"]
    own = diagnostics(*(c.own(x) for x in BOTH), c.mask, eps_high=0.28)
    for side in ("low", "high"):
        assert own[f"clip_fraction_{side}"] > 0
        want = pytest.approx(own[f"clip_fraction_{side}"], rel=1e-7)
        assert theirs[f"clip_ratio/{side}_mean"] == want
    assert theirs["clip_ratio/region_mean"] == pytest.approx(own["clip_fraction"], rel=1e-7)


@pytest.mark.parametrize("mode", MODES)
def test_metrics(trl: Peer, mode: str) -> None:
    """The numbers that the table of names calls equal; TRL's ratios are those applied."""
    c = case(0)
    how = {"vllm_importance_sampling_mode": mode}
    theirs = stepped(trl, c, REWARDS, **how)["metrics"]
    arrays = c.own("logp_rollout"), c.own("logp_old"), c.mask
    numbers = monitor(*arrays)
    own = translate("TRL", numbers)
    assert own.keys() == {f"sampling/sampling_logp_difference/{x}" for x in ("mean", "max")}
    for name, value in own.items():
        assert theirs[name] == pytest.approx(value, rel=1e-9), name
    weight, kept = PRESETS[f"trl/{mode}"].correction.apply(*reversed(arrays[:2]), c.mask)
    used = (weight * kept)[c.mask] if "token" in mode else (weight * kept)[:, 0]
    for name, value in (("min", used.min()), ("mean", used.mean()), ("max", used.max())):
        found = theirs[f"sampling/importance_sampling_ratio/{name}"]
        assert found == pytest.approx(value.item(), rel=1e-9), name
        if name != "min" or "mask" in mode:
            assert found != pytest.approx(numbers[f"ratio_{name}"], rel=1e-3)


def test_defaults_of_the_presets_are_trls(trl: Peer) -> None:
    defaults = trl.ask("defaults", {})
    own = PRESETS["trl/default"].correction
    assert defaults["vllm_importance_sampling_correction"] is True
    assert defaults["vllm_importance_sampling_mode"] == f"{own.level}_{own.operation}"
    assert defaults["vllm_importance_sampling_clip_max"] == own.upper
    assert defaults["vllm_importance_sampling_clip_min"] is own.lower is None
