"""Losses of TRL and verl, their lines written out by hand, on the same arrays.

TRL's are of `GRPOTrainer._compute_loss`, verl's of `core_algos`, both of summer 2026.
"""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from batches import batch, seeds
from plain_losses import value_and_gradient


def verl_mean(x, m, mode):
    if mode == "token-mean":
        return (x * m).sum() / m.sum()
    rows = (x * m).sum(-1)
    if mode == "seq-mean-token-mean":
        rows = rows / (m.sum(-1) + 1e-8)
    return rows.sum() / (m.sum(-1) > 0).sum()


def verl_vanilla(logp, old, A, m, low=0.2, high=0.2, c=3.0):
    ratio = torch.exp(torch.clamp(logp - old, min=-20.0, max=20.0))
    losses1, losses2 = -A * ratio, -A * torch.clamp(ratio, 1 - low, 1 + high)
    clip1 = torch.maximum(losses1, losses2)
    clip2 = torch.min(-A * c, clip1)
    return verl_mean(torch.where(A < 0, clip2, clip1), m, "token-mean")


def verl_gspo(logp, old, A, m, low=3e-4, high=4e-4):
    seq = ((logp - old) * m).sum(-1) / m.sum(-1).clamp(min=1)
    log_s = logp - logp.detach() + seq.detach().unsqueeze(-1)
    s = torch.exp(torch.clamp(log_s, max=10.0))
    losses = torch.maximum(-A * s, -A * torch.clamp(s, 1 - low, 1 + high))
    return verl_mean(losses, m, "seq-mean-token-mean")


def verl_sapo(logp, old, A, m):
    ratio = torch.exp(torch.clamp(logp - old, min=-20.0, max=20.0))
    tau = torch.where(A > 0, A.new_tensor(1.0), A.new_tensor(1.05))
    gates = torch.sigmoid(tau * (ratio - 1.0)) * (4.0 / tau)
    return verl_mean(-gates * A, m, "seq-mean-token-mean")


def verl_cispo(logp, old, A, m, low=10, high=0.2):
    ratio = torch.exp(torch.clamp(logp - old, min=-20.0, max=20.0))
    clipped = torch.clamp(ratio, 1 - low, 1 + high).detach()
    return verl_mean(-clipped * A * logp, m, "token-mean")


def verl_reinforce(logp, old, A, m):
    return verl_mean(-A * logp, m, "seq-mean-token-sum")


def trl(logp, old, A, m, loss_type, level="token", high=0.2, low=0.2, ref=None):
    log_ratio = logp - old
    if level == "sequence":
        log_ratio = ((log_ratio * m).sum(-1) / m.sum(-1).clamp(min=1.0)).unsqueeze(-1)
    coef_1 = torch.exp(log_ratio)
    if loss_type == "cispo":
        per_token = -torch.clamp(coef_1, max=high).detach() * A * logp
    elif loss_type == "sapo":
        tau = torch.where(A > 0, 1.0, 1.05)
        per_token = -torch.sigmoid(tau * (coef_1 - 1)) * 4 / tau * A
    else:
        coef_2 = torch.clamp(coef_1, 1 - low, 1 + high)
        per_token = -torch.min(coef_1 * A, coef_2 * A)
    if ref is not None:
        per_token = per_token + 0.04 * (torch.exp(ref - logp) - (ref - logp) - 1)
    if loss_type in ("grpo", "sapo"):
        return ((per_token * m).sum(-1) / m.sum(-1).clamp(min=1.0)).mean()
    if loss_type == "dr_grpo":
        return (per_token * m).sum() / (per_token.size(0) * 16)
    return (per_token * m).sum() / m.sum().clamp(min=1.0)


def trl_as(loss_type, **how):
    return lambda *arrays: trl(*arrays, loss_type, **how)


GSPO = {"level": "sequence", "low": 3e-4, "high": 4e-4}
CASES = {
    "verl vanilla": ("ppo", {"dual_clip": 3.0}, verl_vanilla),
    "verl gspo": ("gspo_token", {}, verl_gspo),
    "verl sapo": ("sapo", {}, verl_sapo),
    "verl cispo": ("cispo", {"eps_high": 0.2}, verl_cispo),
    "verl reinforce": ("reinforce", {}, verl_reinforce),
    "TRL grpo": ("grpo", {}, trl_as("grpo")),
    "TRL dr_grpo": ("dr_grpo", {"length": 16}, trl_as("dr_grpo")),
    "TRL dapo": ("dapo", {}, trl_as("dapo", high=0.28)),
    "TRL grpo, sequence": ("gspo", {}, trl_as("grpo", **GSPO)),
    "TRL cispo": ("cispo", {"cap": 5.0}, trl_as("cispo", high=5.0)),
}


@pytest.mark.parametrize("case", CASES)
@given(seed=seeds, spread=st.sampled_from([5e-4, 0.3, 1.0]))
def test_value_and_gradient(case, seed, spread):
    name, how, theirs = CASES[case]
    logp, old, A, mask = batch(seed, spread=spread)
    value, gradient = value_and_gradient(name, logp, old, A, mask, **how)
    x = logp.clone().requires_grad_()
    want = theirs(x, old, A[:, None], mask.double())
    (slopes,) = torch.autograd.grad(want, x)
    # verl adds 1e-8 to the number of tokens of a row, so its row's mean is 1e-8 smaller
    gap = 1e-8 if case in ("verl gspo", "verl sapo") else 1e-12
    size = (
        4 * A.abs().max().item() * (logp - old).exp().max().item()
    )  # no token's is larger
    assert value.item() == pytest.approx(want.item(), rel=gap, abs=gap * size)
    assert torch.allclose(gradient, slopes, rtol=gap, atol=gap * size)


@given(seeds)
def test_trls_sapo_rounds_its_temperature_to_float32(seed):
    """`torch.where` of two Python numbers is float32: in float64 they are 1e-8 apart."""
    logp, old, A, mask = batch(seed)
    value, _ = value_and_gradient("sapo", logp, old, A, mask)
    want = trl(logp, old, A[:, None], mask.double(), "sapo").item()
    assert value.item() == pytest.approx(want, abs=1e-6)


@given(seeds)
def test_defaults_of_grpo_equal_trl_with_its_reference_term(seed):
    logp, old, A, mask = batch(seed)
    ref = old - 0.1
    want = trl(logp, old, A[:, None], mask.double(), "grpo", ref=ref)
    got, _ = value_and_gradient("grpo", logp, old, A, mask, logp_ref=ref)
    assert got.item() == pytest.approx(want.item(), rel=1e-12)


@given(seeds)
def test_a_weight_multiplies_each_tokens_loss_as_in_verl(seed):
    """verl's vanilla policy loss without dual clip, with a rollout-correction weight."""
    logp, old, A, mask = batch(seed)
    weight = torch.rand(logp.shape, dtype=logp.dtype) + 0.5
    r = torch.exp(torch.clamp(logp - old, min=-20.0, max=20.0))
    losses = torch.maximum(-A[:, None] * r, -A[:, None] * torch.clamp(r, 0.8, 1.2)) * weight
    want = verl_mean(losses, mask.double(), "token-mean")
    got, _ = value_and_gradient("ppo", logp, old, A, mask, weight=weight)
    assert got.item() == pytest.approx(want.item(), rel=1e-12)


@given(seeds)
def test_ms_swifts_doc_without_4_over_tau_has_another_gradient(seed):
    """SAPO without the factor is a quarter of REINFORCE at r = 1 where tau is 1."""
    _, old, A, mask = batch(seed)
    x = old.clone().requires_grad_()
    bare = -torch.sigmoid((x - old).exp() - 1) * A.abs()[:, None]
    verl_mean(bare, mask.double(), "seq-mean-token-sum").backward()
    _, want = value_and_gradient("reinforce", old, old, A.abs(), mask)
    assert torch.allclose(4 * x.grad, want, rtol=1e-12, atol=0)
