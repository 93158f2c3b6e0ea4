"""Agreement on the likeliest tokens: against sets in plain Python, and bad input named."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tinyrl import agreement
from tinyrl.agreement import TopK, top_k, top_k_agreement
from tinyrl.metrics import compare
from tinyrl.monitoring import monitor

seeds = st.integers(0, 2**32 - 1)


def two_logits(seed, B=3, T=4, V=12, spread=1.0):
    g = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(B, T, V, generator=g, dtype=torch.float64)
    return logits, logits + spread * torch.randn(B, T, V, generator=g, dtype=torch.float64)


def plain(rollout, train, k):
    """Of two lists of logits over the vocabulary."""
    p, q = (
        [math.exp(x) / math.fsum(map(math.exp, side)) for x in side]
        for side in (rollout, train)
    )
    best = [sorted(range(len(s)), key=lambda i, s=s: -s[i])[:k] for s in (p, q)]
    r, t = map(set, best)
    return {
        "top1": float(best[0][0] == best[1][0]),
        "overlap": len(r & t) / k,
        "left": math.fsum(p[i] for i in r - t),
        "entered": math.fsum(q[i] for i in t - r),
    }


@given(seeds, st.integers(1, 12))
def test_agreement_in_plain_python(seed, k):
    a, b = two_logits(seed)
    got = top_k_agreement(top_k(a, k), top_k(b, k), torch.ones(3, 4).bool())
    for i in range(3):
        for t in range(4):
            want = plain(a[i, t].tolist(), b[i, t].tolist(), k)
            for name, value in want.items():
                assert got[name][i, t].item() == pytest.approx(value, abs=2e-6), name


@given(seeds, st.integers(1, 6))
def test_the_order_within_a_set_does_not_matter(seed, k):
    a, b = (top_k(x, k) for x in two_logits(seed))
    order = torch.randperm(k, generator=torch.Generator().manual_seed(seed))
    mixed = TopK(b.ids[..., order], b.logp[..., order])
    mask = torch.ones(3, 4).bool()
    want, got = top_k_agreement(a, b, mask), top_k_agreement(a, mixed, mask)
    for name in want:
        assert torch.allclose(want[name], got[name], rtol=0, atol=1e-15), name


def test_equal_sides_agree_and_nothing_moves():
    a = top_k(two_logits(0)[0], 5)
    got = top_k_agreement(a, a, torch.ones(3, 4).bool())
    assert got["top1"].min() == got["overlap"].min() == 1
    assert got["left"].max() == got["entered"].max() == 0


def test_sets_without_a_common_token():
    a = TopK(torch.tensor([[[0, 1]]]), torch.tensor([[[0.6, 0.3]]]).log())
    b = TopK(torch.tensor([[[2, 3]]]), torch.tensor([[[0.2, 0.5]]]).log())
    got = {n: x.item() for n, x in top_k_agreement(a, b, torch.ones(1, 1).bool()).items()}
    assert got["top1"] == got["overlap"] == 0
    assert got["left"] == pytest.approx(0.9)
    assert got["entered"] == pytest.approx(0.7)


def test_a_token_that_a_cut_left_without_probability_is_in_no_set():
    """Top-p leaves two tokens on one side and three on the other: two are in both."""
    cut = torch.tensor([[[0.8, 0.2, 0.0, 0.0]]]).log()
    rollout = TopK(torch.tensor([[[4, 7, 9, 5]]]), cut)
    less = torch.tensor([[[0.5, 0.3, 0.1, 0.0]]]).log()
    train = TopK(torch.tensor([[[7, 4, 9, 5]]]), less)
    got = top_k_agreement(rollout, train, torch.ones(1, 1).bool())
    assert got["top1"].item() == 0
    assert got["overlap"].item() == pytest.approx(2 / 3)
    assert got["left"].item() == 0
    assert got["entered"].item() == pytest.approx(0.1)


def test_padding_may_hold_anything_and_blocks_may_be_small(monkeypatch):
    a, b = (top_k(x, 3) for x in two_logits(1))
    mask = torch.tensor([[1, 1, 0, 0], [1, 0, 0, 0], [1, 1, 1, 1]]).bool()
    want = top_k_agreement(a, b, mask)
    dirty = TopK(
        a.ids.masked_fill(~mask[..., None], -7),
        a.logp.masked_fill(~mask[..., None], math.nan),
    )
    monkeypatch.setattr(agreement, "ROWS", 2)
    got = top_k_agreement(dirty, TopK(b.ids.numpy(), b.logp.numpy()), mask)
    for name in want:
        assert torch.equal(got[name], want[name]), name
        assert (got[name][~mask] == 0).all()


def test_it_is_part_of_what_monitor_gives():
    a, b = two_logits(2, B=4, T=5)
    mask = torch.arange(5) < torch.tensor([[5], [2], [1], [4]])
    ids = a.argmax(-1)
    logps = [x.log_softmax(-1).gather(-1, ids[..., None])[..., 0] for x in (a, b)]
    tops = {"top_rollout": top_k(a, 3), "top_train": top_k(b, 3)}
    got = monitor(*logps, mask, **tops)
    by_token = top_k_agreement(*tops.values(), mask)
    for ours, name in (
        ("top1_agreement", "top1"),
        ("topk_overlap", "overlap"),
        ("topk_left", "left"),
        ("topk_entered", "entered"),
    ):
        assert got[ours] == pytest.approx(by_token[name][mask].mean().item(), rel=1e-12)
    old = compare(*logps, mask, top1_rollout=a.argmax(-1), top1_train=b.argmax(-1))
    assert got["top1_agreement"] == pytest.approx(old.top1_agreement, rel=1e-12)
    assert 0 < got["topk_left"] < 1


def test_rounding_leaves_the_first_in_place_and_moves_the_tail():
    """BF16 logits: top-1 agrees nearly everywhere, the 20th place changes hands."""
    g = torch.Generator().manual_seed(0)
    logits = 3 * torch.randn(1, 400, 200, generator=g)
    rounded = logits.bfloat16().float()
    mask = torch.ones(1, 400).bool()
    got = top_k_agreement(top_k(logits, 20), top_k(rounded, 20), mask)
    assert got["top1"].mean() > 0.97
    assert 0 < 1 - got["overlap"].mean() < 0.05
    assert (got["overlap"] < 1).double().mean() > (got["top1"] < 1).double().mean()


def spoilt(side, what, value):
    a, b = (top_k(x, 2) for x in two_logits(0))
    parts = {"rollout": a, "train": b}
    ids, logp = (x.numpy().copy() for x in parts[side])
    array = ids if what == "ids" else logp
    array[1, 2, 1] = ids[1, 2, 0] if value == "twice" else value
    if value == -math.inf:
        array[1, 2] = value
    parts[side] = TopK(ids, logp)
    return parts["rollout"], parts["train"], torch.ones(3, 4).bool()


@pytest.mark.parametrize("side", ["rollout", "train"])
@pytest.mark.parametrize(
    ("what", "value", "message"),
    [
        ("ids", "twice", "row 1, column 2 has a token twice"),
        ("logp", math.nan, "row 1, column 2 is not a number"),
        ("logp", 0.5, "row 1, column 2 is positive"),
        ("logp", -math.inf, "row 1, column 2 has no token"),
    ],
)
def test_bad_sets_are_named(side, what, value, message):
    with pytest.raises(ValueError, match=f"top_{side} {message}"):
        top_k_agreement(*spoilt(side, what, value))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: TopK(t.ids[0], t.logp), r"top_train.ids must be \[B, T, k\]"),
        (lambda t: TopK(t.ids, t.logp[..., :1]), "top_train.logp has shape"),
        (lambda t: TopK(t.ids.float(), t.logp), "top_train.ids must hold integers"),
        (lambda t: TopK(t.ids, t.ids), "top_train.logp must hold floats"),
        (lambda t: TopK(t.ids[..., :1], t.logp[..., :1]), "differ in shape"),
        (lambda t: None, "give both top_rollout and top_train"),
    ],
)
def test_bad_shapes_are_named(change, message):
    a, b = (top_k(x, 2) for x in two_logits(0))
    with pytest.raises(ValueError, match=message):
        top_k_agreement(a, change(b), torch.ones(3, 4).bool())


@pytest.mark.parametrize(
    ("logits", "k", "message"),
    [
        (torch.zeros(3, 4), 1, "logits must be floats"),
        (torch.zeros(3, 4, 5).long(), 1, "logits must be floats"),
        (torch.zeros(3, 4, 5), 0, "k must be 1 to 5"),
        (torch.zeros(3, 4, 5), 6, "k must be 1 to 5"),
    ],
)
def test_bad_logits(logits, k, message):
    with pytest.raises(ValueError, match=message):
        top_k(logits, k)
