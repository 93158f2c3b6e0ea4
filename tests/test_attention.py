"""Four orders of attention against a float64 softmax, one query at a time."""

from __future__ import annotations

import math

import pytest
import torch

from tinyrl.attention import attend

WAYS = ("sdpa", "naive", "online", "split_kv")
u = 2.0**-24
"""Half the gap between 1 and the next float32: the largest error of one rounding."""


def normal(*shape: int, seed: int = 0, dtype=torch.float32) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=dtype)


def inputs(B=3, H=4, K=2, T=5, S=11, D=8, scale=1.0, dtype=torch.float32):
    """Queries, keys, values and the causal mask of the last T of S tokens."""
    q = normal(B, H, T, D, dtype=dtype) * scale
    k, v = (normal(B, K, S, D, seed=seed, dtype=dtype) for seed in (1, 2))
    return q, k, v, torch.arange(S) <= torch.arange(S - T, S)[:, None]


def by_hand(q, k, v, visible):
    """softmax(q k / sqrt(D)) v, one query at a time, float64."""
    q, k, v = q.double(), k.double(), v.double()
    y = torch.zeros_like(q)
    B, H, T, D = q.shape
    for b in range(B):
        for h in range(H):
            key = h * k.shape[1] // H
            for t in range(T):
                see = visible[t]
                p = torch.softmax(k[b, key, see] @ q[b, h, t] / D**0.5, -1)
                y[b, h, t] = p @ v[b, key, see]
    return y


def bound(q, k, v):
    """How far float32 may be off, whatever the order of additions.

    A score is a sum of D products, so it is off by e = (D + 3) u sum |q| |k| / sqrt(D) at
    most, which changes each weight by a factor within exp(2 e). Exponentials are off by 8u
    and by u times their argument (S / e in all), and there is one for each key and each
    merge of at most S; then come two sums of S. Split-KV also rounds a logsumexp, which is
    as large as the largest score.
    """
    S, D = k.shape[2], k.shape[3]
    size = q.abs().double().amax((0, 1, 2)) @ k.abs().double().amax((0, 1, 2)) / D**0.5
    wrong = (D + 3) * u * size + u * (size + 2 * math.log(S) + 8)
    return v.abs().max() * (torch.expm1(2 * wrong) + (24 * S + 8) * u)


@pytest.mark.parametrize("fixed", [False, True])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "shape",
    [
        {},
        {"T": 1},  # a decoding step
        {"T": 11},  # a prompt
        {"K": 4},
        {"K": 1},
        {"S": 500, "D": 32},  # long
        {"scale": 1e4},  # scores of 1e4: exp overflows unless the maximum is taken off
    ],
    ids=str,
)
def test_attention_is_the_softmax_of_the_scores(way, shape, fixed):
    q, k, v, visible = inputs(**shape)
    y = attend(q, k, v, visible, way, fixed)
    error = (y.double() - by_hand(q, k, v, visible)).abs().max()
    assert error <= bound(q, k, v)


def test_what_each_way_rounds_in_16_bits():
    """By the formulas in float64, with scores and weights rounded where the way says."""
    q, k, v, visible = inputs(S=8, T=8)

    def bf16(x):
        return x.bfloat16().to(x.dtype)

    def formula(score_rounded, weight_rounded):
        keys, values = (t.double().repeat_interleave(2, 1) for t in (k, v))
        s = q.double() @ keys.transpose(-1, -2) / q.shape[-1] ** 0.5
        s = (bf16(s) if score_rounded else s).masked_fill(~visible, -torch.inf)
        p = (s - s.amax(-1, keepdim=True)).exp()  # what FlashAttention feeds on
        if not score_rounded:
            return (bf16(p) if weight_rounded else p) @ values / p.sum(-1, keepdim=True)
        return bf16(p / p.sum(-1, keepdim=True)) @ values

    for way, scores, weights in (
        ("sdpa", False, False),
        ("online", False, True),
        ("naive", True, True),
    ):
        y = attend(q, k, v, visible, way, rounded=bf16).double()
        # a rounding that falls the other way in FP32 moves one weight by a last bit of BF16
        torch.testing.assert_close(y, formula(scores, weights), rtol=0, atol=3e-3)
        others = [
            (s, w) for s, w in ((0, 0), (0, 1), (1, 1)) if (s, w) != (scores, weights)
        ]
        near = (y - formula(scores, weights)).abs().mean()
        assert all(near < 0.2 * (y - formula(*o)).abs().mean() for o in others)


@pytest.mark.parametrize("way", WAYS)
def test_in_float64_only_rounding_is_left(way):
    """The same formula: what differs shrinks with the format, by 2^29."""
    q, k, v, visible = inputs(S=40, T=7, dtype=torch.float64)
    y = attend(q, k, v, visible, way)
    torch.testing.assert_close(y, by_hand(q, k, v, visible), rtol=0, atol=1e-13)


@pytest.mark.parametrize("way", WAYS)
def test_a_mask_with_whole_blocks_hidden(way):
    """As in a cache that is longer than what it holds, and with a window that starts late.

    What is hidden is large, so that a weight that is not exactly 0 would show.
    """
    q, k, v, _ = inputs(S=40, T=5, dtype=torch.float64)
    place = torch.arange(40)
    visible = (place >= 17) & (place <= torch.arange(20, 25)[:, None])
    unseen = ~visible.any(0)
    k[:, :, unseen], v[:, :, unseen] = 1e3, 1e9
    y = attend(q, k, v, visible, way)
    torch.testing.assert_close(y, by_hand(q, k, v, visible), rtol=0, atol=1e-12)


@pytest.mark.parametrize("way", WAYS)
def test_scores_far_below_zero_are_not_taken_for_hidden(way):
    """The keys that are seen may all have scores below -1e4, beside hidden ones of 0."""
    q, k, v, visible = inputs(S=40, T=5, dtype=torch.float64)
    q, k = q.abs() * 100, -k.abs() * 100
    k[:, :, 36:] = 0
    visible[:, 36:] = False
    assert (q @ k.repeat_interleave(2, 1).transpose(-1, -2)).amax() <= 0
    y = attend(q, k, v, visible, way)
    torch.testing.assert_close(y, by_hand(q, k, v, visible), rtol=0, atol=1e-10)


@pytest.mark.parametrize("fixed", [False, True])
@pytest.mark.parametrize("way", WAYS)
def test_gradients_against_finite_differences(way, fixed):
    q, k, v, _ = inputs(B=1, H=2, K=1, T=3, S=11, D=2, dtype=torch.float64)
    visible = torch.arange(11) <= torch.tensor([0, 4, 9])[:, None]  # one sees one key only
    q, k, v = (x.requires_grad_() for x in (q, k, v))
    assert torch.autograd.gradcheck(lambda *x: attend(*x, visible, way, fixed), (q, k, v))


def test_the_orders_differ_in_float32_and_in_nothing_else():
    q, k, v, visible = inputs(S=40, T=5, D=32)
    ways = [attend(q, k, v, visible, way) for way in WAYS]
    different = {tuple(y.flatten().tolist()) for y in ways}
    assert len(different) == len(WAYS)
    for y in ways[1:]:
        assert (y - ways[0]).abs().max() <= 2 * bound(q, k, v)


@pytest.mark.parametrize("way", ["naive", "online", "split_kv"])
def test_with_fixed_shapes_a_query_does_not_see_its_neighbours(way):
    """To the last bit on the machine that runs this: the lesson of `shapes`."""
    q, k, v, visible = inputs(B=5, S=32, T=9, D=32)
    together = attend(q, k, v, visible, way, True)
    for b in range(5):
        for t in range(9):
            mine, row = slice(b, b + 1), slice(t, t + 1)
            alone = attend(q[mine, :, row], k[mine], v[mine], visible[row], way, True)
            assert torch.equal(alone[0, :, 0], together[b, :, t])
