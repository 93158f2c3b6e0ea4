"""Positions and visibility that differ from sequence to sequence, and learned positions."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tinyrl.attention import attend
from tinyrl.kernels import Kernels, Numerics, Ops
from tinyrl.model import GPT, Cache, GPTConfig
from tinyrl.positions import Positions, places
from tinyrl.pretrained import save_pretrained
from tinyrl.rollout import rollout
from tinyrl.scoring import score
from tinyrl.stack import Stack

WAYS = ("sdpa", "naive", "online", "split_kv")


def gpt(position: str = "rope") -> GPT:
    config = GPTConfig(position=position)  # type: ignore[arg-type]
    return GPT(config, torch.Generator().manual_seed(0))


def ids(batch: int, length: int) -> Tensor:
    return torch.randint(16, (batch, length), generator=torch.Generator().manual_seed(1))


def normal(*shape: int, seed: int) -> Tensor:
    g = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=g, dtype=torch.float64)


@pytest.mark.parametrize("fixed", [False, True])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("T", [1, 5])
def test_attention_with_a_mask_of_each_sequence(way, fixed, T):
    """One softmax at a time, in float64; hidden keys are large."""
    B, H, K, S, D = 3, 4, 2, 11, 8
    q, k, v = (
        normal(B, h, n, D, seed=i) for i, (h, n) in enumerate(((H, T), (K, S), (K, S)))
    )
    g = torch.Generator().manual_seed(3)
    visible = torch.rand(B, T, S, generator=g) < 0.5
    visible[:, :, 0] = True
    y = attend(q, k, v, visible, way, fixed)
    for b in range(B):
        for h in range(H):
            for t in range(T):
                see, key = visible[b, t], h * K // H
                p = torch.softmax(k[b, key, see] @ q[b, h, t] / D**0.5, -1)
                wanted = p @ v[b, key, see]
                torch.testing.assert_close(y[b, h, t], wanted, rtol=0, atol=1e-12)


@pytest.mark.parametrize("way", WAYS)
def test_the_same_mask_for_each_is_one_mask(way):
    q, k, v = (normal(3, h, 7, 8, seed=i) for i, h in enumerate((4, 2, 2)))
    visible = torch.ones(7, 7).tril().bool()
    one = attend(q, k, v, visible, way)
    each = attend(q, k, v, visible.expand(3, 7, 7), way)
    torch.testing.assert_close(each, one, rtol=0, atol=1e-13)


def test_places_of_segments():
    segments = torch.tensor([[-1, 0, 0, 1], [0, 0, 0, 0]])
    at = places(torch.arange(4), 0, 6, 8, 100.0, segments)
    assert at.visible.shape == (2, 4, 6)
    assert at.visible[0].int().tolist() == [
        [1, 0, 0, 0, 0, 0],
        [0, 1, 0, 0, 0, 0],
        [0, 1, 1, 0, 0, 0],
        [0, 0, 0, 1, 0, 0],
    ]
    assert torch.equal(at.visible[1, :, :4], torch.ones(4, 4).tril().bool())
    assert at.visible.any(-1).all(), "every query sees a key"
    later = places(torch.tensor([3]), 3, 6, 8, 100.0, segments)
    assert torch.equal(later.visible, at.visible[:, 3:])
    with pytest.raises(ValueError, match=r"segments must be \[B, 4\]"):
        places(torch.arange(4), 0, 6, 8, 100.0, segments[:, :3])


def test_positions_of_each_sequence():
    model, ops, x = gpt(), Ops(Kernels(), Numerics()), ids(2, 9)
    told = torch.stack([torch.arange(9), Positions(3, "response").ids(4, 9)])
    both = model(x, ops, told)
    for row in range(2):
        one = model(x[row : row + 1], ops, told[row])
        torch.testing.assert_close(both[row], one[0], rtol=0, atol=1e-5)


@pytest.mark.parametrize("position", ["rope", "learned"])
@pytest.mark.parametrize("fixed", ["free", "fixed"])
def test_a_cache_of_left_padded_sequences(position, fixed):
    """Prefill and decode with segments equal one pass, and each sequence alone."""
    model, x = gpt(position), ids(2, 10)
    ops = Ops(Kernels("naive", fixed), Numerics())
    segments = torch.zeros(2, 10).long()
    segments[1, :3] = -1
    told = torch.stack([torch.arange(10), (torch.arange(10) - 3).clamp(min=0)])
    full = model(x, ops, model.places(told, segments=segments))
    cache, parts = Cache(model.config, 2), []
    for start, end in ((0, 6), (6, 7), (7, 8), (8, 9), (9, 10)):
        at = model.places(told[:, start:end], start, segments[:, :end])
        parts.append(model(x[:, start:end], ops, at, cache))
    torch.testing.assert_close(torch.cat(parts, 1), full, rtol=0, atol=2e-5)
    alone = model(x[1:, 3:], ops)
    torch.testing.assert_close(full[1:, 3:], alone, rtol=0, atol=2e-5)


# ---- learned positions


def test_a_learned_position_is_added_to_the_token():
    """Then one layer sees tokens that are told one position as a bag without an order."""
    config = GPTConfig(position="learned", layers=1)
    model, ops = GPT(config, torch.Generator().manual_seed(0)), Ops(Kernels(), Numerics())
    x = ids(2, 6)
    assert model.embed_positions is not None
    same, zero = torch.full((6,), 4), torch.zeros(6).long()
    swapped = x[:, [2, 0, 1, 4, 3, 5]]
    last = model(x, ops, same)[:, -1]
    torch.testing.assert_close(model(swapped, ops, same)[:, -1], last, rtol=0, atol=1e-5)
    assert (model(swapped, ops)[:, -1] - model(x, ops)[:, -1]).abs().max() > 0.05
    with torch.no_grad():  # the sum: token + position 4 = token + position 0 + difference
        shift = model.embed_positions.weight[4] - model.embed_positions.weight[0]
        model.embed_tokens.weight += shift
    torch.testing.assert_close(model(x, ops, zero)[:, -1], last, rtol=0, atol=1e-5)


def test_nothing_is_rotated_where_positions_are_learned():
    """Without its table such a model has no order left at all."""
    config = GPTConfig(position="learned", layers=1)
    model, ops = GPT(config, torch.Generator().manual_seed(0)), Ops(Kernels(), Numerics())
    assert model.embed_positions is not None
    torch.nn.init.zeros_(model.embed_positions.weight)
    x = ids(2, 6)
    a, b = (model(y, ops)[:, -1] for y in (x, x[:, [2, 0, 1, 4, 3, 5]]))
    torch.testing.assert_close(a, b, rtol=0, atol=1e-5)


def test_moving_all_learned_positions_is_not_nothing():
    ops, x = Ops(Kernels(), Numerics()), ids(2, 10)
    for position, moves in (("rope", False), ("learned", True)):
        model = gpt(position)
        d = model(x, ops, Positions(5, "all").ids(4, 10)) - model(x, ops)
        assert (d.abs().max() > 0.05) == moves


def test_rollout_and_scoring_agree_on_learned_positions():
    model, g = gpt("learned"), torch.Generator().manual_seed(0)
    batch = rollout(model, ids(8, 20), Stack(), g, max_new=13, eos_id=2, pad_id=0)
    assert batch.response.shape[1] == 13, "to the last position"
    logp = score(model, batch.prompt, batch.response, Stack()).logp
    d = (logp - batch.logp_rollout)[batch.mask]
    assert d.abs().max() <= 2e-5


def test_the_default_draws_what_it_always_drew():
    rope, learned = gpt(), gpt("learned").state_dict()
    assert "embed_positions.weight" not in rope.state_dict()
    for name, w in rope.state_dict().items():
        assert torch.equal(learned[name], w), name


def test_what_is_wrong_is_said(tmp_path):
    model, ops = gpt("learned"), Ops(Kernels(), Numerics())
    with pytest.raises(
        ValueError, match=r"positions \[32, 33\] were never learned.*0\.\.31"
    ):
        model(ids(1, 4), ops, torch.arange(30, 34))
    with pytest.raises(ValueError, match="Qwen3 has no learned positions"):
        save_pretrained(model, tmp_path)
    assert not list(tmp_path.iterdir())
    with pytest.raises(ValueError, match="position must be one of"):
        GPTConfig(position="alibi")  # type: ignore[arg-type]


@pytest.mark.parametrize("way", ["sdpa", "naive", "online", "split_kv"])
def test_one_query_that_may_not_see_all_does_not(way):
    g = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(2, 2, n, 8, generator=g) for n in (1, 5, 5))
    visible = torch.tensor([[True, True, False, False, False]])
    wanted = attend(q, k[:, :, :2], v[:, :, :2], visible[:, :2], way)
    torch.testing.assert_close(attend(q, k, v, visible, way), wanted, rtol=1e-5, atol=1e-6)
    with pytest.raises(ValueError, match=r"visible must be \[T, S\]"):
        attend(q.expand(2, 2, 3, 8), k, v, visible, way)
