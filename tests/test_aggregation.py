"""Averages and their denominators: by hand, by relation, as the frameworks write them."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from batches import batch, seeds
from plain_losses import NAMES, loss, settings_of, value_and_gradient
from tinyrl.correction import Correction
from tinyrl.objectives import LossView, aggregate, dr_grpo, grpo, ppo

X = torch.tensor([[1.0, 1, 1, 1], [5.0, 0, 0, 0], [7.0, 9, 0, 0]], dtype=torch.float64)
KEPT = torch.tensor([[1, 1, 1, 1], [1, 0, 0, 0], [0, 0, 0, 0]]).bool()
ALL = torch.tensor([[1, 1, 1, 1], [1, 1, 1, 0], [1, 1, 0, 0]]).bool()


@pytest.mark.parametrize(
    ("how", "counted", "length", "want"),
    [
        ("token_mean", None, None, 9 / 5),
        ("token_mean", ALL, None, 9 / 9),
        ("sequence_mean", None, None, (4 / 4 + 5 / 1) / 2),
        ("sequence_mean", ALL, None, (4 / 4 + 5 / 3 + 0) / 3),
        ("sequence_sum", None, None, (4 + 5) / 2),
        ("sequence_sum", ALL, None, (4 + 5 + 0) / 3),
        ("constant", None, 4, (4 + 5) / 2 / 4),
        ("constant", ALL, 10.0, (4 + 5 + 0) / 3 / 10),
    ],
)
def test_by_hand(how, counted, length, want):
    got = aggregate(X, KEPT, how, counted=counted, length=length)
    assert got.item() == pytest.approx(want, rel=1e-15)


def test_only_the_mean_over_tokens_and_the_sums_weigh_long_responses_more():
    """Gradient of the loss by one token of a long and of a short response."""
    mask = torch.tensor([[1, 1, 1, 1], [1, 0, 0, 0]]).bool()
    pull = {}
    for how in ("token_mean", "sequence_mean", "sequence_sum"):
        x = torch.ones(2, 4, requires_grad=True)
        aggregate(x, mask, how).backward()
        pull[how] = (x.grad.sum(1)[0] / x.grad.sum(1)[1]).item()
    assert pull == {"token_mean": 4, "sequence_mean": 1, "sequence_sum": 4}


def test_a_response_without_tokens_is_left_out_of_the_mean():
    x, mask = torch.tensor([[4.0], [9.0]]), torch.tensor([[True], [False]])
    for how in ("token_mean", "sequence_mean", "sequence_sum"):
        assert aggregate(x, mask, how).item() == 4
    assert aggregate(x, mask, "constant", length=2).item() == 2


@given(seeds)
def test_trl_and_verl_divide_dr_grpo_alike_and_verl_up_to_070_by_b_less(seed):
    """Their lines by hand: TRL July 2026; verl 0.7.1 to 0.9.0; verl up to 0.7.0."""
    x, _, _, mask = batch(seed)
    m, length = mask.double(), 16
    trl = (x * m).sum() / (x.size(0) * length)
    rows, seq_mask = (x * m).sum(-1), (m.sum(-1) > 0).double()
    verl = (rows * seq_mask).sum() / seq_mask.sum() / length
    verl_070 = rows.sum() / length
    got = aggregate(x, mask, "constant", length=length).item()
    assert got == pytest.approx(trl.item(), rel=1e-13)
    assert got == pytest.approx(verl.item(), rel=1e-13)
    assert got * 5 == pytest.approx(verl_070.item(), rel=1e-13)


@given(seeds)
def test_a_constant_length_does_not_see_how_wide_the_batch_is(seed):
    logp, old, A, mask = batch(seed)
    wide = [torch.cat([x, x.new_zeros(5, 4)], 1) for x in (logp, old, mask)]
    one = dr_grpo(logp, old, A, mask, length=16)
    two = dr_grpo(wide[0], wide[1], A, wide[2], length=16)
    assert two.item() == pytest.approx(one.item(), rel=1e-13)


@given(seeds)
def test_dr_grpo_is_a_mean_of_sums_over_its_length(seed):
    logp, old, A, mask = batch(seed)
    sums = ppo(logp, old, A, mask, aggregation="sequence_sum")
    assert dr_grpo(logp, old, A, mask, length=8).item() == pytest.approx(sums.item() / 8)


# What is dropped, and what is still counted


TOKEN_LEVEL = [n for n in NAMES if not n.startswith("gspo")]


@pytest.mark.parametrize("name", TOKEN_LEVEL)
@given(seed=seeds, data=st.data())
def test_dropping_by_mask_and_counting_all_is_dropping_by_a_weight_of_zero(
    name, seed, data
):
    """verl's way with TRL's denominator is TRL's way."""
    logp, old, A, mask = batch(seed)
    how = data.draw(settings_of(name))
    weight, kept = Correction("token", "mask", 0.8, 1.25).apply(logp, old, mask)
    by_mask = value_and_gradient(
        name, logp, old, A, kept, weight=weight, counted=mask, **how
    )
    by_weight = value_and_gradient(name, logp, old, A, mask, weight=weight * kept, **how)
    assert by_mask[0].item() == pytest.approx(by_weight[0].item(), rel=1e-12, abs=1e-15)
    assert torch.allclose(by_mask[1], by_weight[1], rtol=1e-12, atol=0)


@given(seeds)
def test_a_token_dropped_by_weight_is_still_held_to_the_reference(seed):
    logp, old, A, mask = batch(seed)
    kept = mask & (logp > old)
    how = {"logp_ref": old - 0.3, "counted": mask}
    _, by_mask = value_and_gradient("grpo", logp, old, A, kept, **how)
    _, by_weight = value_and_gradient("grpo", logp, old, A, mask, weight=kept, **how)
    dropped = mask & ~kept
    assert (by_mask[dropped] == 0).all()
    assert (by_weight[dropped] != 0).all()


@pytest.mark.parametrize("name", NAMES)
@given(seed=seeds)
def test_counting_what_was_kept_is_the_default(name, seed):
    logp, old, A, mask = batch(seed)
    kept = mask & (logp > old - 0.2)
    one = loss(name, logp, old, A, kept)
    assert torch.equal(one, loss(name, logp, old, A, kept, counted=kept))
    as_numbers = loss(name, logp, old, A, kept.double(), counted=kept.int().tolist())
    assert torch.equal(one, as_numbers)


@given(seeds)
def test_counting_all_makes_a_mean_over_tokens_smaller_by_the_share_kept(seed):
    logp, old, A, mask = batch(seed)
    kept = mask & (logp > old)
    how = {"aggregation": "token_mean", "logp_ref": old - 0.1}
    some, every = (grpo(logp, old, A, kept, counted=c, **how) for c in (kept, mask))
    share = kept.sum().item() / mask.sum().item()
    assert every.item() == pytest.approx(some.item() * share, rel=1e-12)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        (
            {"how": "mean"},
            "aggregation must be one of token_mean, sequence_mean, sequence_",
        ),
        ({"how": "constant"}, "length must be given for aggregation 'constant'"),
        ({"length": 3}, "length is for aggregation 'constant', not for 'token_mean'"),
        ({"how": "constant", "length": 0}, "length must be above 0 and finite, not 0"),
        ({"how": "constant", "length": math.nan}, "length must be above 0 and finite"),
        ({"how": "constant", "length": "4"}, "length must be a number, not '4'"),
        ({"counted": ALL[:2]}, r"counted must be \[B, T\] = \[3, 4\], got \[2, 4\]"),
        ({"counted": ALL * 2}, "counted row 0, column 0 is neither 0 nor 1: 2"),
        ({"counted": X * math.nan}, "counted row 0, column 0 is neither 0 nor 1: nan"),
        (
            {"counted": KEPT.triu()},
            "counted row 1, column 0 is false where mask is true: a mean would have",
        ),
    ],
)
def test_bad_arguments(how, message):
    with pytest.raises(ValueError, match=message):
        aggregate(**{"x": X, "mask": KEPT, "how": "token_mean", **how})


def test_a_view_has_no_length_to_divide_by():
    with pytest.raises(ValueError, match=r"needs a length, .*: choose the objective dr_gr"):
        LossView(aggregation="constant")
    with pytest.raises(ValueError, match="anchor must be one of recompute, rollout"):
        LossView(anchor="trainer")
    with pytest.raises(ValueError, match="aggregation must be one of"):
        LossView(aggregation="mean")
    assert LossView(aggregation="sequence_sum").aggregation == "sequence_sum"
