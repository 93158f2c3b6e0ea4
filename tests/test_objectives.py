"""Losses against plain Python, other frameworks' formulas and finite differences."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from batches import batch, seeds
from tinyrl.objectives import (
    LossView,
    aggregate,
    at_level,
    grpo,
    ppo_clip,
    ratio,
)

aggregations = st.sampled_from(["token_mean", "sequence_mean"])
LOSSES = [ppo_clip, grpo]


def plain_ppo(logp, old, A, mask, low, high, aggregation, weight=None):
    """The same loss with nothing but floats, loops and the paper's formula."""
    rows = []
    for b in range(len(logp)):
        row = []
        for t in range(len(logp[0])):
            if mask[b][t]:
                r = math.exp(logp[b][t] - old[b][t])
                surrogate = min(r * A[b], min(max(r, 1 - low), 1 + high) * A[b])
                row.append(-surrogate * (1.0 if weight is None else weight[b][t]))
        rows.append(row)
    if aggregation == "token_mean":
        return math.fsum(x for row in rows for x in row) / sum(map(len, rows))
    return math.fsum(math.fsum(row) / len(row) for row in rows) / len(rows)


@given(seeds, aggregations, st.floats(0.05, 0.5), st.floats(0.05, 2))
def test_ppo_equals_the_formula_in_plain_python(seed, aggregation, low, high):
    logp, old, A, mask = batch(seed)
    weight = torch.rand(logp.shape, dtype=logp.dtype) + 0.5
    how = {"eps_low": low, "eps_high": high, "aggregation": aggregation}
    lists = [x.tolist() for x in (logp, old, A, mask)]
    want = plain_ppo(*lists, low, high, aggregation)
    assert ppo_clip(logp, old, A, mask, **how).item() == pytest.approx(want, rel=1e-12)
    want = plain_ppo(*lists, low, high, aggregation, weight.tolist())
    got = ppo_clip(logp, old, A, mask, weight=weight, **how).item()
    assert got == pytest.approx(want, rel=1e-12)


@given(seeds)
def test_defaults_of_grpo_equal_trl_with_its_reference_term(seed):
    """TRL's loss_type="grpo", its lines written out by hand (GRPOTrainer, July 2026)."""
    logp, old, A, mask = batch(seed)
    ref = old - 0.1
    coef_1 = torch.exp(logp - old)
    coef_2 = torch.clamp(coef_1, 1 - 0.2, 1 + 0.2)
    per_token = -torch.min(coef_1 * A[:, None], coef_2 * A[:, None])
    per_token = per_token + 0.04 * (torch.exp(ref - logp) - (ref - logp) - 1)
    m = mask.double()
    want = ((per_token * m).sum(-1) / m.sum(-1).clamp(min=1.0)).mean()
    got = grpo(logp, old, A, mask, logp_ref=ref)
    assert got.item() == pytest.approx(want.item(), rel=1e-12)


@given(seeds)
def test_token_mean_equals_verl(seed):
    """verl's vanilla policy loss without dual clip, with a rollout-correction weight."""
    logp, old, A, mask = batch(seed)
    weight = torch.rand(logp.shape, dtype=logp.dtype) + 0.5
    r = torch.exp(torch.clamp(logp - old, min=-20.0, max=20.0))
    losses = torch.maximum(-A[:, None] * r, -A[:, None] * torch.clamp(r, 0.8, 1.2)) * weight
    m = mask.double()
    want = (losses * m).sum() / m.sum()
    got = ppo_clip(logp, old, A, mask, weight=weight)
    assert got.item() == pytest.approx(want.item(), rel=1e-12)


@pytest.mark.parametrize("loss", LOSSES)
@given(seed=seeds, aggregation=aggregations)
def test_gradients_agree_with_finite_differences(loss, seed, aggregation):
    logp, old, A, mask = batch(seed, B=3, T=4)
    r = (logp - old).exp()
    near_kink = ((r - 0.8).abs() < 1e-4) | ((r - 1.2).abs() < 1e-4)
    logp = torch.where(near_kink, old, logp).clamp(max=-1e-4)
    extra = {"logp_ref": old - 0.2} if loss is grpo else {}
    assert torch.autograd.gradcheck(
        lambda x: loss(x, old, A, mask, aggregation=aggregation, **extra),
        logp.requires_grad_(),
    )


@pytest.mark.parametrize("loss", LOSSES)
@given(seed=seeds, aggregation=aggregations)
def test_at_the_old_policy_the_gradient_is_that_of_reinforce(loss, seed, aggregation):
    _, old, A, mask = batch(seed)
    logp = old.clone().requires_grad_()
    loss(logp, old, A, mask, aggregation=aggregation).backward()
    tokens = mask.sum() if aggregation == "token_mean" else mask.sum(1, keepdim=True) * 5
    reinforce = torch.where(mask, -A[:, None] / tokens, 0.0)
    assert torch.allclose(logp.grad, reinforce, rtol=1e-13, atol=0)


@pytest.mark.parametrize("loss", LOSSES)
@given(
    seed=seeds,
    aggregation=aggregations,
    garbage=st.sampled_from([math.nan, math.inf, -math.inf, 1e30, 3.0]),
)
def test_padding_changes_neither_loss_nor_gradient(loss, seed, aggregation, garbage):
    logp, old, A, mask = batch(seed)

    def run(dirt, extra):
        def pad(x):
            return torch.cat([torch.where(mask, x, dirt), x.new_full((5, extra), dirt)], 1)

        x = pad(logp).requires_grad_()
        y, m = pad(old), torch.cat([mask, torch.zeros(5, extra, dtype=torch.bool)], 1)
        more = {"logp_ref": pad(old - 0.1)} if loss is grpo else {}
        value = loss(x, y, A, m, weight=pad(old.exp()), aggregation=aggregation, **more)
        value.backward()
        return value, x.grad

    value, grad = run(-1.0, 0)
    dirty, dirty_grad = run(garbage, 3)
    assert dirty.item() == pytest.approx(value.item(), rel=1e-14)
    assert torch.allclose(dirty_grad[:, :7], grad, rtol=1e-14, atol=0)
    assert (dirty_grad[:, 7:] == 0).all()
    assert (dirty_grad[:, :7][~mask] == 0).all()


@pytest.mark.parametrize("loss", LOSSES)
@given(seed=seeds, aggregation=aggregations)
def test_the_order_of_responses_does_not_matter(loss, seed, aggregation):
    logp, old, A, mask = batch(seed)
    order = torch.randperm(5, generator=torch.Generator().manual_seed(seed))
    one = loss(logp, old, A, mask, aggregation=aggregation)
    two = loss(*(x[order] for x in (logp, old, A, mask)), aggregation=aggregation)
    assert two.item() == pytest.approx(one.item(), rel=1e-13)


@given(seeds)
def test_advantages_of_a_response_are_those_of_its_tokens(seed):
    logp, old, A, mask = batch(seed)
    per_token = A[:, None].repeat(1, 7)
    per_token[~mask] = math.nan
    assert torch.equal(ppo_clip(logp, old, A, mask), ppo_clip(logp, old, per_token, mask))


def test_token_mean_weighs_long_responses_more():
    x = torch.tensor([[1.0, 1, 1, 1], [5.0, 0, 0, 0]])
    mask = torch.tensor([[True] * 4, [True, False, False, False]])
    assert aggregate(x, mask, "token_mean").item() == pytest.approx(9 / 5)
    assert aggregate(x, mask, "sequence_mean").item() == pytest.approx(3)


def test_a_response_without_tokens_is_left_out_of_the_mean():
    x, mask = torch.tensor([[4.0], [9.0]]), torch.tensor([[True], [False]])
    assert aggregate(x, mask, "sequence_mean").item() == 4
    assert aggregate(x, mask, "token_mean").item() == 4


@pytest.mark.parametrize("loss", LOSSES)
def test_nothing_kept_means_no_loss_and_no_gradient(loss):
    logp, old, A, mask = batch(0)
    x = logp.clone().requires_grad_()
    value = loss(x, old, A, mask & False)
    value.backward()
    assert value.item() == 0
    assert (x.grad == 0).all()


# Ratios at three levels


@given(seeds)
def test_ratios_in_plain_python(seed):
    logp, old, _, mask = batch(seed)
    d = (logp - old).tolist()
    got = {n: ratio(logp - old, mask, n) for n in ("token", "sequence", "geometric")}
    for b, row in enumerate(d):
        real = [x for x, m in zip(row, mask[b].tolist(), strict=True) if m]
        for t in range(len(real)):
            assert got["token"][b, t].item() == pytest.approx(math.exp(real[t]))
            product = math.prod(math.exp(x) for x in real)
            assert got["sequence"][b, t].item() == pytest.approx(product)
            mean = product ** (1 / len(real))
            assert got["geometric"][b, t].item() == pytest.approx(mean)
        for r in got.values():
            assert (r[b, len(real) :] == 1).all()


@given(seeds)
def test_one_token_has_one_ratio_at_every_level(seed):
    logp, old, _, mask = batch(seed, T=1)
    token, sequence, geometric = (
        ratio(logp - old, mask, n) for n in ("token", "sequence", "geometric")
    )
    assert torch.equal(token, sequence)
    assert torch.equal(token, geometric)


@given(seeds)
def test_the_product_is_the_geometric_mean_to_the_length(seed):
    logp, old, _, mask = batch(seed)
    length = mask.sum(1, keepdim=True)
    product = ratio(logp - old, mask, "sequence")
    power = ratio(logp - old, mask, "geometric") ** length
    assert torch.allclose(product, torch.where(mask, power, 1.0), rtol=1e-12)


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_long_sequence_cannot_overflow(sign, dtype):
    d = torch.full((1, 5000), sign * 0.5, dtype=dtype, requires_grad=True)
    mask = torch.ones(1, 5000, dtype=torch.bool)
    r = ratio(d, mask, "sequence")
    assert torch.allclose(r, torch.tensor(math.exp(sign * 20), dtype=dtype))
    r.sum().backward()
    assert (d.grad == 0).all()
    assert at_level(d, mask, "sequence")[0, 0].item() == pytest.approx(sign * 2500)


@pytest.mark.parametrize("A", [1.0, -1.0])
def test_a_token_beyond_all_bounds_leaves_the_loss_finite(A):
    logp = torch.tensor([[-0.1, -1e4]], requires_grad=True)
    old = torch.tensor([[-1e4, -0.1]])
    mask = torch.ones(1, 2, dtype=torch.bool)
    loss = grpo(logp, old, torch.tensor([A]), mask, logp_ref=old)
    loss.backward()
    assert loss.isfinite()
    assert logp.grad.isfinite().all()


# Diagnostics


def test_nothing_but_logp_gets_a_gradient():
    logp, old, A, mask = batch(0)
    others = [x.clone().requires_grad_() for x in (old, A, old.exp())]
    x = logp.clone().requires_grad_()
    ppo_clip(x, others[0], others[1], mask, weight=others[2]).backward()
    assert x.grad.abs().sum() > 0
    assert all(y.grad is None for y in others)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"logp": torch.zeros(5)}, r"logp must be \[B, T\], got shape \[5\]"),
        ({"logp_old": torch.zeros(5, 6)}, r"logp and logp_old differ in shape"),
        ({"logp_ref": torch.zeros(5, 6)}, r"logp and logp_ref differ in shape"),
        ({"advantages": torch.zeros(7)}, r"advantages must be \[B\] or .*, got \[7\]"),
        ({"advantages": torch.full((5,), math.nan)}, "advantages row 0, column 0 is not"),
        ({"mask": torch.ones(5, 6)}, r"mask has shape \[5, 6\], logprobs have \[5, 7\]"),
        ({"weight": torch.ones(5)}, r"weight must be \[B, T\] = \[5, 7\], got \[5\]"),
        ({"weight": torch.full((5, 7), math.inf)}, "weight row 0, column 0 is not finite"),
        ({"logp": torch.full((5, 7), math.nan)}, "logp row 0, column 0 is not a number"),
        ({"logp_old": torch.full((5, 7), 0.3)}, "logp_old row 0, column 0 is positive"),
        ({"logp_ref": torch.full((5, 7), -math.inf)}, "logp_ref row 0, column 0 is inf"),
        ({"eps_low": -0.1}, "clip widths must be .*, not -0.1 and 0.2"),
        ({"eps_low": 1.5}, "clip widths"),
        ({"eps_high": math.nan}, "clip widths"),
        ({"aggregation": "mean"}, "aggregation must be one of token_mean, sequence_mean"),
    ],
)
def test_bad_input(change, message):
    names = ("logp", "logp_old", "advantages", "mask")
    arrays = dict(zip(names, batch(0), strict=True))
    arrays["mask"] = torch.ones(5, 7, dtype=torch.bool)
    with pytest.raises(ValueError, match=message):
        grpo(**{**arrays, **change})


def test_bad_views_and_levels():
    with pytest.raises(ValueError, match="anchor must be one of recompute, rollout"):
        LossView(anchor="trainer")
    with pytest.raises(ValueError, match="aggregation must be one of"):
        LossView(aggregation="mean")
    with pytest.raises(ValueError, match="level must be one of token, sequence, geo"):
        ratio(torch.zeros(1, 1), torch.ones(1, 1, dtype=torch.bool), "batch")
