"""What is recorded of routes, and the numbers of a lesson about them."""

from __future__ import annotations

import pytest
import torch

from mixtures import BF16, EXACT, INT4, P, sample, scored
from tinyrl.checkpoints import load
from tinyrl.metrics import token_delta
from tinyrl.moe import Routes, balance_loss, expert_load, router_kl
from tinyrl.routing import compare_routes, flips
from tinyrl.stack import Stack, replace_at


def test_a_rollout_records_each_router_that_was_asked():
    batch = sample(Stack(), B=70)  # more rows than one prefill takes
    B, T = batch.response.shape
    routes = batch.routes
    assert routes.experts.shape == (B, P + T - 1, 2, 2)
    assert routes.logits.shape == (B, P + T - 1, 2, 8)
    assert routes.asked[:, :, 0].all()
    # the last layer reads a prompt for its last token only
    assert routes.asked[:, P - 1 :, 1].all()
    assert not routes.asked[:, : P - 1, 1].any()
    assert routes.of_response(P).experts.shape == (B, T, 2, 2)
    assert sample(Stack(), name="sft").routes is None
    assert scored(sample(Stack(), name="sft"), Stack(), load("sft")).routes is None


def test_the_tokens_read_are_the_prompt_and_what_came_before_a_real_token():
    batch = sample(replace_at(Stack(), "sampler.temperature", 3.0))
    lengths = batch.mask.sum(1).tolist()
    assert len(set(lengths)) > 1  # at T = 3 some end early
    for read, n in zip(batch.read, lengths, strict=True):
        assert len(read) == P + batch.response.shape[1] - 1
        assert read.nonzero()[:, 0].tolist() == list(range(P - 1 + n))


@pytest.mark.parametrize("chunk", [0, 5])
def test_the_trainer_records_the_same_where_nothing_differs(chunk):
    stack = replace_at(Stack(), "kernels.prefill", chunk)
    batch = sample(stack)
    own = scored(batch, stack).routes
    both = own.asked & batch.routes.asked
    assert torch.equal(both, own.asked)
    differ = flips(own.experts, batch.routes.experts)[both]
    assert differ.float().mean() < 0.002  # two logits equal to the last bits, if any
    first = (own.logits - batch.routes.logits)[:, :, 0]  # before any expert
    assert first.abs().max() < 1e-4


def test_gates_are_the_softmax_of_the_chosen_logits():
    routes = sample(BF16).routes
    at = routes.asked
    wanted = torch.softmax(routes.logits[at].double().gather(-1, routes.experts[at]), -1)
    torch.testing.assert_close(routes.gates[at].double(), wanted, rtol=0, atol=1e-6)


# ---- compared


def test_routes_are_compared_by_hand():
    batch = sample(INT4)
    free = scored(batch, Stack())
    seen, mask = compare_routes(batch, free), batch.mask
    ours, theirs = free.routes.experts[:, P - 1 :], batch.routes.experts[:, P - 1 :]
    differ = [
        [
            [set(a) != set(b) for a, b in zip(x, y, strict=True)]
            for x, y in zip(row.tolist(), other.tolist(), strict=True)
        ]
        for row, other in zip(ours, theirs, strict=True)
    ]
    flipped = torch.tensor(differ)
    assert seen.flips == pytest.approx(flipped[mask].double().mean(0).tolist())
    some = flipped.any(-1)[mask]
    assert seen.flipped_tokens == pytest.approx(some.double().mean().item())
    size = token_delta(batch.logp_rollout, free.logp)[mask].abs()
    assert seen.delta_flipped == pytest.approx(size[some].mean().item())
    assert seen.delta_kept == pytest.approx(size[~some].mean().item())
    loads = [expert_load(r.of_response(P), mask) for r in (batch.routes, free.routes)]
    assert torch.allclose(torch.tensor(seen.load_rollout), loads[0])
    assert torch.allclose(torch.tensor(seen.load_train), loads[1])
    drift = (loads[0] - loads[1]).clamp(min=0).sum(-1)
    assert seen.drift == pytest.approx(drift.tolist(), abs=1e-6)


def test_without_a_flip_there_is_no_mean():
    batch = sample(EXACT, B=4)
    seen = compare_routes(batch, scored(batch, EXACT))
    assert seen.flips == (0.0, 0.0)
    assert seen.delta_flipped is None
    assert seen.delta_kept == 0
    assert seen.drift == (0.0, 0.0)
    dense = sample(EXACT, B=4, name="sft")
    with pytest.raises(ValueError, match="only a mixture of experts has some"):
        compare_routes(dense, scored(dense, EXACT, load("sft")))


def test_order_of_experts_is_no_flip():
    a, b = torch.tensor([[0, 3], [1, 2]]), torch.tensor([[3, 0], [1, 3]])
    assert flips(a, b).tolist() == [False, True]


def test_routes_of_other_shapes_are_refused_not_broadcast():
    a, b = sample(Stack(), B=4).routes, sample(Stack(), B=1).routes
    with pytest.raises(ValueError, match="choices differ in shape"):
        flips(a.experts, a.experts[..., :1])
    with pytest.raises(ValueError, match="route other tokens"):
        router_kl(a, b)
    with pytest.raises(ValueError, match="mask has shape"):
        balance_loss(a, torch.ones(a.experts.shape[1], dtype=torch.bool))
    whole = Routes(a.experts.float(), a.gates, a.logits)
    with pytest.raises(ValueError, match="whole numbers of experts"):
        load("moe").routed(torch.zeros(4, 3, dtype=torch.long), Stack().ops(), follow=whole)
