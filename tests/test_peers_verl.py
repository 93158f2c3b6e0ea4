"""tinyrl's objectives against verl's own functions, value and gradient in float64.

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

from conformance import REWARDS, SEEDS, Case, agree, case, far, opened, own_loss
from tinyrl.advantages import gae, group_advantages, leave_one_out
from tinyrl.critic import value_loss
from tinyrl.objectives import (
    aggregate,
    cispo,
    diagnostics,
    grpo,
    gspo,
    gspo_token,
    ppo,
    reinforce,
    sapo,
)

MODES = {
    "token-mean": "token_mean",
    "seq-mean-token-mean": "sequence_mean",
    "seq-mean-token-sum": "sequence_sum",
    "seq-mean-token-sum-norm": "constant",
}
LENGTH = 16
LOSSES: dict[str, Any] = {
    "vanilla": partial(ppo, dual_clip=3.0),
    "gspo": partial(gspo_token, eps_low=0.2, eps_high=0.2),
    "sapo": sapo,
    "cispo": partial(cispo, eps_low=0.2, eps_high=0.2),
    "gpg": reinforce,
}
OTHERS = {"dppo_tv", "dppo_kl", "clip_cov", "kl_cov", "geo_mean", "dro", "bypass_mode"}
"""verl's losses that tinyrl has none for; bypass_mode is no loss of its own."""


@pytest.fixture(scope="module")
def verl() -> Iterator[Peer]:
    yield from opened("verl")


def settings(mode: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """An average under verl's name with its length, and under ours."""
    length = LENGTH if mode == "seq-mean-token-sum-norm" else None
    theirs = {"loss_agg_mode": mode, "loss_scale_factor": length}
    return theirs, {"aggregation": MODES[mode], "length": length}


def test_the_losses_that_verl_registers_are_all_named_here(verl: Peer) -> None:
    assert set(verl.ask("names", {})["losses"]) == LOSSES.keys() | OTHERS


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", LOSSES)
def test_policy_losses(verl: Peer, name: str, mode: str, seed: int) -> None:
    """Under each average, with and without a rollout's weight."""
    c = case(seed)
    theirs, ours = settings(mode)
    if name == "sapo":  # verl's takes its own average, whatever it is told
        ours = settings("seq-mean-token-mean")[1]
    arrays = "logp", "logp_old", "advantages"
    for more, weight in (((), None), (("weight",), c.own("weight"))):
        answer = verl.ask("policy_loss", c.theirs(*arrays, *more), name=name, **theirs)
        agree(own_loss(LOSSES[name], c, weight=weight, **ours), answer)


@pytest.mark.parametrize("mode", MODES)
def test_averages(verl: Peer, mode: str) -> None:
    """Also of a matrix whose second row has no token: it is in no denominator."""
    c = case(3)
    c.mask[1] = False
    x = c.theirs("logp")["logp"]
    theirs, ours = settings(mode)
    answer = verl.ask(
        "agg_loss",
        {"x": x, "mask": c.mask.long()},
        mode=mode,
        loss_scale_factor=theirs["loss_scale_factor"],
    )
    own = c.own("logp").requires_grad_()
    loss = aggregate(own, c.mask, ours["aggregation"], length=ours["length"])
    (gradient,) = torch.autograd.grad(loss, own)
    agree({"loss": loss.detach(), "gradient": gradient}, answer)


def test_dr_grpo_divides_by_rows_and_length_in_both(verl: Peer) -> None:
    """The factor B between verl and TRL was there up to verl 0.7.0, and is gone.

    Where no length is given, verl takes the width of the batch, which is not constant.
    """
    c = case(0)
    B, T = c.mask.shape
    arrays = c.theirs("logp", "logp_old", "advantages")
    how = {"name": "vanilla", "loss_agg_mode": "seq-mean-token-sum-norm"}
    for given, length in ((LENGTH, LENGTH), (None, T)):
        answer = verl.ask("policy_loss", arrays, loss_scale_factor=given, **how)
        own = own_loss(ppo, c, dual_clip=3.0, aggregation="constant", length=length)
        agree(own, answer)
        total = own_loss(ppo, c, dual_clip=3.0, aggregation="token_mean")["loss"]
        assert answer["loss"].item() == pytest.approx(
            total.item() * c.mask.sum().item() / (B * length), rel=1e-12
        )


@pytest.mark.parametrize("advantage", [1.0, -1.0])
@pytest.mark.parametrize("log_ratio", [25.0, -25.0])
def test_log_ratios_stop_at_20_in_both(
    verl: Peer, log_ratio: float, advantage: float
) -> None:
    """Beyond, both have the ratio e^20 or e^-20 and no gradient."""
    c = far(log_ratio, advantage)
    arrays = c.theirs("logp", "logp_old", "advantages")
    for name, own in (("vanilla", ppo), ("sapo", sapo)):
        answer = verl.ask("policy_loss", arrays, name=name, clip_ratio_c=1e300)
        mine = own_loss(own, c)
        torch.testing.assert_close(mine["loss"], answer["loss"], rtol=1e-9, atol=1e-12)
        assert not answer["gradient"].any()
        assert not mine["gradient"].any()


def test_gspo_stops_at_10_in_verl_and_at_20_here(verl: Peer) -> None:
    """Both without gradient from there on; below, verl does not stop at all."""
    for mean, theirs, ours in ((12.0, 10.0, 12.0), (25.0, 10.0, 20.0)):
        c = far(mean, -1.0)
        arrays = c.theirs("logp", "logp_old", "advantages")
        answer = verl.ask("policy_loss", arrays, name="gspo")
        mine = own_loss(partial(gspo, eps_low=0.2, eps_high=0.2), c)
        assert answer["loss"].item() == pytest.approx(math.exp(theirs), rel=1e-9)
        assert mine["loss"].item() == pytest.approx(math.exp(ours), rel=1e-9)
        assert not answer["gradient"].any()
        assert mine["gradient"].any() == (ours < 20)


@pytest.mark.parametrize("log_ratio", [9.0, -19.0])
def test_gspo_agrees_up_to_there(verl: Peer, log_ratio: float) -> None:
    c = far(log_ratio, -1.0 if log_ratio > 0 else 1.0)
    answer = verl.ask(
        "policy_loss",
        c.theirs("logp", "logp_old", "advantages"),
        name="gspo",
        clip_ratio_low=1.0,
    )
    own = own_loss(partial(gspo, eps_low=1.0, eps_high=0.2), c)
    torch.testing.assert_close(own["loss"], answer["loss"], rtol=1e-9, atol=1e-15)
    torch.testing.assert_close(own["gradient"], answer["gradient"], rtol=1e-9, atol=1e-15)


def test_gspo_and_its_token_form_are_one_where_a_response_has_one_advantage(
    verl: Peer,
) -> None:
    """verl has the token form alone: with one weight a response it equals the paper's."""
    c = case(1)
    c.arrays["weight"] = c.arrays["weight"][:, :1].expand_as(c.mask).contiguous()
    arrays = c.theirs("logp", "logp_old", "advantages", "weight")
    answer = verl.ask(
        "policy_loss", arrays, name="gspo", loss_agg_mode="seq-mean-token-mean"
    )
    own = partial(gspo, eps_low=0.2, eps_high=0.2, weight=c.own("weight"))
    agree(own_loss(own, c), answer)


@pytest.mark.parametrize("seed", SEEDS)
def test_diagnostics(verl: Peer, seed: int) -> None:
    """verl's clip fractions count in float32 and over n + 1e-8 tokens.

    Its `pg_clipfrac` is of both sides, and a token stopped by dual clip is not in it.
    """
    c = case(seed, spread=1.2)
    arrays = c.theirs("logp", "logp_old", "advantages")
    theirs = verl.ask("policy_loss", arrays, name="vanilla")["metrics"]
    own = diagnostics(
        c.own("logp"), c.own("logp_old"), c.own("advantages"), c.mask, dual_clip=3.0
    )
    sides = own["clip_fraction_low"] + own["clip_fraction_high"]
    assert sides > 0
    assert theirs["actor/pg_clipfrac"] == pytest.approx(sides, rel=1e-7)
    dual = own["clip_fraction_dual"]
    assert theirs["actor/pg_clipfrac_lower"] == pytest.approx(dual, rel=1e-7)
    assert theirs["actor/ppo_kl"] == pytest.approx(own["k1"], rel=1e-9)


def reference_term(c: Case) -> dict[str, Tensor]:
    """The KL of `grpo` alone, as a sum over the batch's tokens."""

    def kl(*arrays: Tensor, **how: Any) -> Tensor:
        with_ref = grpo(*arrays, logp_ref=c.own("logp_ref"), beta=1.0, **how)
        return (with_ref - grpo(*arrays, **how)) * c.mask.sum()

    return own_loss(kl, c, aggregation="token_mean")


def test_k3_to_a_reference(verl: Peer) -> None:
    c = case(0)
    answer = verl.ask("kl_penalty", c.theirs("logp", "logp_ref"), kind="low_var_kl")
    agree(reference_term(c), answer)


def test_verl_cuts_k3_at_10(verl: Peer) -> None:
    """So a token that the reference rates 14 times as high, or more, has no gradient."""
    c = far(-3.0, 1.0)
    c.arrays["logp_ref"] = c.arrays["logp_old"]
    answer = verl.ask("kl_penalty", c.theirs("logp", "logp_ref"), kind="low_var_kl")
    own = reference_term(c)
    n = c.mask.sum().item()
    assert own["loss"].item() == pytest.approx(n * (math.exp(3) - 3 - 1), rel=1e-9)
    assert answer["loss"].item() == pytest.approx(n * 10, rel=1e-12)
    assert own["gradient"].any()
    assert not answer["gradient"].any()


@pytest.mark.parametrize(
    ("name", "options", "own"),
    [
        ("grpo", {}, group_advantages),
        ("grpo", {"norm_adv_by_std_in_grpo": False}, partial(group_advantages, std="none")),
        ("rloo", {}, leave_one_out),
    ],
)
def test_advantages_of_groups(
    verl: Peer, name: str, options: dict[str, Any], own: Any
) -> None:
    c = case(0)
    last = c.mask & (c.mask.cumsum(1) == c.mask.sum(1, keepdim=True))
    tensors = {
        "rewards": torch.where(last, REWARDS[:, None], 0.0),
        "index": torch.arange(9) // 3,
        "mask": c.mask.long(),
    }
    got = verl.ask("advantages", tensors, name=name, **options)["advantages"]
    want = torch.where(c.mask, own(REWARDS, 3)[:, None], 0.0)
    torch.testing.assert_close(got, want, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(("gamma", "lam"), [(1.0, 0.95), (0.9, 0.5)])
def test_gae(verl: Peer, gamma: float, lam: float) -> None:
    """verl whitens its advantages; its returns are of those before. Holes are stepped over.

    The n / (n - 1) of its variance is float32: that is as near as the two get.
    """
    c = case(2)
    arrays = c.theirs(rewards=c.theirs("weight")["weight"], values=c.theirs("logp")["logp"])
    answer = verl.ask("advantages", arrays, name="gae", gamma=gamma, lam=lam)
    A, returns = gae(c.own("weight"), c.own("logp"), c.mask, gamma=gamma, lam=lam)
    m = c.mask
    torch.testing.assert_close(answer["returns"][m], returns[m], rtol=1e-9, atol=1e-12)
    white = (A[m] - A[m].mean()) / (A[m].var() + 1e-8).sqrt()
    torch.testing.assert_close(answer["advantages"][m], white, rtol=2**-24, atol=1e-12)


def test_value_loss(verl: Peer) -> None:
    c = case(1)
    arrays = c.theirs("logp", "logp_old", "logp_ref")
    names = {"values": "logp", "values_old": "logp_old", "returns": "logp_ref"}
    tensors = {new: arrays[name] for new, name in names.items()}
    answer = verl.ask("value_loss", {**tensors, "mask": arrays["mask"]}, clip=0.2)
    values = c.own("logp").requires_grad_()
    loss = value_loss(values, c.own("logp_old"), c.own("logp_ref"), c.mask, 0.2)
    (gradient,) = torch.autograd.grad(loss, values)
    agree({"loss": loss.detach(), "gradient": gradient}, answer)
