"""The tiny world added up: against autograd, against sampling, and its own laws."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from torch import Tensor

from tinyrl.correction import Correction
from tinyrl.course.enumerated import World, world

UNBOUNDED = Correction("sequence", "truncate", None, math.inf)
METHODS = [
    Correction(),
    Correction("token", "truncate", None, 1.3),
    Correction("token", "mask", 0.7, 1.5),
    Correction("sequence", "mask", None, 1.5),
    Correction("geometric", "mask", 0.9, 1.1),
]


def made(seed: int, gap: float = 0.4, length: int = 3, vocab: int = 3) -> World:
    g = torch.Generator().manual_seed(seed)
    return world(g, gap=gap, length=length, vocab=vocab)


def by_hand(logits: Tensor, ids: tuple[int, ...]) -> list[Tensor]:
    """Each token's logprob: rows are prefixes, shorter ones first, in order."""
    V = logits.shape[1]
    prefixes = [p for t in range(len(ids)) for p in itertools.product(range(V), repeat=t)]
    rows = {prefix: i for i, prefix in enumerate(prefixes)}
    return [logits[rows[ids[:t]]].log_softmax(0)[token] for t, token in enumerate(ids)]


@pytest.mark.parametrize("vocab", [2, 3])
def test_its_responses_and_logprobs_are_counted(vocab: int) -> None:
    w = made(0, vocab=vocab)
    everything = list(itertools.product(range(vocab), repeat=3))
    assert [tuple(row) for row in w.ids.tolist()] == everything
    for row, ids in zip(w.train, everything, strict=True):
        assert row.tolist() == pytest.approx(
            [x.item() for x in by_hand(w.logits_train, ids)]
        )
    for side in (w.train, w.rollout):
        assert side.sum(1).exp().sum().item() == pytest.approx(1)
    assert w.reward.tolist() == [1.0] + [0.0] * (vocab**3 - 1)


@pytest.mark.parametrize("seed", range(3))
def test_its_gradient_is_that_of_autograd(seed: int) -> None:
    """J by the definition, differentiated."""
    w = made(seed)
    for logits, mine in (
        (w.logits_train, w.true_gradient),
        (w.logits_rollout, w.rollout_gradient),
    ):
        z = logits.clone().requires_grad_()
        J = torch.stack(by_hand(z, (0, 0, 0))).sum().exp()
        (g,) = torch.autograd.grad(J, z)
        torch.testing.assert_close(mine, g, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("correction", METHODS)
def test_bias_and_noise_are_those_of_every_responses_own_gradient(
    seed: int, correction: Correction
) -> None:
    """g(y) by autograd for each y, then mean and variance in plain sums."""
    w = made(seed)
    everything = torch.ones_like(w.ids, dtype=torch.bool)
    weight, kept = correction.apply(w.train, w.rollout, everything)
    weight = torch.where(kept, weight, 0.0)
    mu = w.chances.tolist()
    b = sum(m * r for m, r in zip(mu, w.reward.tolist(), strict=True))
    z = w.logits_train.clone().requires_grad_()
    each = []
    for n, ids in enumerate(w.ids.tolist()):
        logp = by_hand(z, tuple(ids))
        A = w.reward[n].item() - b
        loss = sum(c * A * x for c, x in zip(weight[n].tolist(), logp, strict=True))
        (g,) = torch.autograd.grad(torch.as_tensor(loss), z)
        each.append(g.flatten())
    g = torch.stack(each)
    p = w.chances[:, None]
    mean = (p * g).sum(0)
    variance = (p * (g - mean).square()).sum()
    G = w.true_gradient.flatten()
    m = w.moments(correction)
    assert m.bias == pytest.approx(((mean - G).norm() / G.norm()).item(), rel=1e-9)
    assert m.noise == pytest.approx((variance.sqrt() / G.norm()).item(), rel=1e-9)
    assert m.cosine == pytest.approx(torch.cosine_similarity(mean, G, 0).item(), rel=1e-9)
    share = sum(m * k for m, k in zip(mu, kept.double().mean(1).tolist(), strict=True))
    assert m.kept == pytest.approx(share)
    first = sum(m * x for m, x in zip(mu, weight.mean(1).tolist(), strict=True))
    second = sum(m * x for m, x in zip(mu, weight.square().mean(1).tolist(), strict=True))
    assert m.mean == pytest.approx(first)
    assert m.ess == pytest.approx(first**2 / second)


@pytest.mark.parametrize("seed", range(5))
def test_the_product_alone_is_unbiased(seed: int) -> None:
    w = made(seed, length=4)
    assert w.moments(UNBOUNDED).bias < 1e-12
    assert w.moments(UNBOUNDED).mean == pytest.approx(1)
    for correction in METHODS:
        assert w.moments(correction).bias > 1e-3
    same = made(seed, gap=0.0)
    for correction in (UNBOUNDED, *METHODS):
        m = same.moments(correction)
        assert m.bias < 1e-12
        assert m.ess == m.kept == pytest.approx(1)


def test_one_token_needs_no_product() -> None:
    """With one token all levels are one, and unbiased."""
    w = made(1, length=1)
    for level in ("token", "sequence", "geometric"):
        m = w.moments(Correction(level, "truncate", None, math.inf))  # type: ignore[arg-type]
        assert m.bias < 1e-12


def test_a_sample_mean_errs_as_much_as_it_says() -> None:
    """Ten thousand batches of 8: the root of their mean squared error."""
    w = made(2)
    correction = Correction("sequence", "truncate", None, 1.5)
    everything = torch.ones_like(w.ids, dtype=torch.bool)
    weight, _ = correction.apply(w.train, w.rollout, everything)
    A = w.reward - (w.chances * w.reward).sum()
    one = torch.eye(len(w.ids), dtype=torch.float64)
    each = torch.stack([w.gradient(y, weight * A[:, None]).flatten() for y in one])
    g = torch.Generator().manual_seed(0)
    drawn = torch.multinomial(w.chances, 80_000, replacement=True, generator=g)
    means = each[drawn].view(10_000, 8, -1).mean(1)
    off = (means - w.true_gradient.flatten()).square().sum(1).mean().sqrt()
    said = w.moments(correction).error(8)
    assert (off / w.true_gradient.norm()).item() == pytest.approx(said, rel=0.03)


def test_nothing_kept_is_no_estimate() -> None:
    w = made(0)
    none = torch.zeros_like(w.train)
    m = w.of(none, none.bool())
    assert (m.bias, m.noise, m.ess, m.kept, m.mean) == (pytest.approx(1), 0, 0, 0, 0)


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match=r"\[13, 3\] for 3 tokens of 3"):
        World(torch.zeros(12, 3), torch.zeros(12, 3), 3)
    with pytest.raises(ValueError, match="too many"):
        made(0, length=10)
    for bad in ({"gap": -0.1}, {"length": 0}, {"vocab": 1}):
        with pytest.raises(ValueError, match="must be"):
            made(0, **bad)  # type: ignore[arg-type]
