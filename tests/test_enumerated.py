"""The tiny world added up: against autograd, against sampling, and its own laws."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from torch import Tensor

from tinyrl.correction import Correction
from tinyrl.course.lessons.enumerated import World, table, versus, world

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


@pytest.mark.parametrize("where", ["itself", "also"])
def test_a_batchs_mean_weight_is_refused(where: str) -> None:
    """`apply` would divide by the plain mean over rows, which no rollout draws from."""
    own = Correction("token", "truncate", None, 1.3, normalise=True)
    how = own if where == "itself" else Correction(also=own)
    with pytest.raises(ValueError, match="normalise divides by the mean of a batch"):
        made(0).moments(how)


def test_what_is_dropped_counts_as_0_whatever_the_denominator() -> None:
    kept, every = (
        Correction("token", "mask", 0.7, 1.5, denominator=x)  # type: ignore[arg-type]
        for x in ("kept", "all")
    )
    assert made(0).moments(kept) == made(0).moments(every)


def test_what_does_not_fit_is_refused() -> None:
    right = torch.zeros(13, 3, dtype=torch.float64)
    with pytest.raises(ValueError, match=r"\[13, 3\] for 3 tokens of 3"):
        World(torch.zeros(12, 3), torch.zeros(12, 3), 3)
    with pytest.raises(ValueError, match="logits_rollout must be float64"):
        World(right, torch.zeros(13, 3), 3)
    with pytest.raises(ValueError, match="logits_train must be float64"):
        World(right.long(), right, 3)
    with pytest.raises(TypeError, match="logits_train must be a tensor, not list"):
        World([[0.0]], right, 3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"logits_rollout must be \[P, V\], got \[3\]"):
        World(right, right[0], 3)
    with pytest.raises(ValueError, match="logits_rollout row 4 holds nan"):
        World(right, right.index_fill(0, torch.tensor([4]), math.nan), 3)
    with pytest.raises(ValueError, match="vocab must be a whole number from 2, not 1"):
        World(right[:3, :1], right[:3, :1], 3)
    with pytest.raises(TypeError, match="generator must be"):
        world(None, gap=0.1)  # type: ignore[arg-type]
    for name, bad in {
        "gap": (-0.1, math.nan, math.inf, "a", [0.1]),
        "length": (0, 1.5, True),
        "vocab": (1, 3.0),
        "sure": (800, -21, math.nan, "x"),
    }.items():
        for value in bad:
            g = torch.Generator()
            with pytest.raises(ValueError, match=f"{name} must be"):
                world(g, **{"gap": 0.1, name: value})  # type: ignore[arg-type]


def test_too_many_responses_are_refused_before_they_are_made() -> None:
    for length in (10, 15, 10**6):  # 3^15 rows of logits would be 300 MiB
        g = torch.Generator().manual_seed(0)
        before = g.get_state()
        with pytest.raises(ValueError, match=rf"3\^{length} responses are too many"):
            world(g, gap=0.1, length=length)
        assert g.get_state().equal(before)  # nothing was drawn
    with pytest.raises(ValueError, match="too many"):
        World(torch.zeros(1, 2), torch.zeros(1, 2), 10**6)


def test_the_surest_world_is_still_exact() -> None:
    g = torch.Generator().manual_seed(0)
    m = world(g, gap=0.5, sure=20.0).moments(UNBOUNDED)
    assert m.bias < 1e-6
    certain = torch.tensor([[0.0, -800.0]], dtype=torch.float64)
    with pytest.raises(ValueError, match="true gradient is 0"):
        World(certain, certain, 1).moments(Correction())


def test_weights_that_do_not_fit_are_refused() -> None:
    w = made(0)
    one = torch.ones_like(w.train)
    with pytest.raises(ValueError, match=r"weight must be \[27, 3\], got \[3\]"):
        w.of(one[0])
    with pytest.raises(ValueError, match=r"kept must be \[27, 3\], got \[27\]"):
        w.of(one, (one > 0)[:, 0])
    with pytest.raises(ValueError, match="kept must be boolean"):
        w.of(one, one / 2)
    one[5, 2] = math.nan
    with pytest.raises(ValueError, match="weight row 5, column 2 is nan"):
        w.of(one)


def test_the_error_of_no_responses_is_refused() -> None:
    m = made(0).moments(Correction())
    for bad in (0, -1, math.nan, "8"):
        with pytest.raises(ValueError, match="responses must be"):
            m.error(bad)  # type: ignore[arg-type]
    assert m.error(math.inf) == m.bias


def test_its_size_is_the_mean_of_token_deltas() -> None:
    w = made(1)
    mu = w.chances.tolist()
    deltas = zip(mu, (w.train - w.rollout).tolist(), strict=True)
    assert w.size == pytest.approx(sum(m * sum(map(abs, d)) / 3 for m, d in deltas))
    assert made(1, gap=0.0).size == 0


@pytest.mark.parametrize("seed", range(3))
def test_directions_are_cosines_with_both_policies_gradients(seed: int) -> None:
    w = made(seed)
    for correction in METHODS:
        train, _ = w.directions(correction)
        assert train == pytest.approx(w.moments(correction).cosine)
    A = w.reward[:, None].expand(w.ids.shape) - (w.chances @ w.reward)
    plain = w.gradient(w.chances, A)
    G = w.rollout_gradient
    wanted = (plain * G).sum() / plain.norm() / G.norm()
    assert w.directions(Correction())[1] == pytest.approx(wanted.item())
    assert w.directions(UNBOUNDED)[0] == pytest.approx(1)
    assert w.directions(UNBOUNDED)[1] < w.directions(Correction())[1]


def test_versus_counts_worlds() -> None:
    worlds = [made(seed) for seed in range(5)]
    token = Correction("token", "truncate", None, math.inf)
    pairs = [(w.moments(token), w.moments(Correction())) for w in worlds]
    found = versus(worlds, token, Correction())
    assert found.bias == sorted(a.bias / b.bias for a, b in pairs)
    assert found.noise == sorted(a.noise / b.noise for a, b in pairs)
    assert found.nearer == sum(a.cosine > b.cosine for a, b in pairs)
    more = sum(a.bias > b.bias for a, b in pairs)
    assert f"(more in {more})," in str(found)
    assert str(found).startswith(f"bias x {found.bias[0]:.2f}-{found.bias[-1]:.2f}")


def test_a_table_has_a_line_for_each_name() -> None:
    w = made(0)
    rows = {"none": w.moments(Correction()), "product": w.moments(UNBOUNDED)}
    head, none, product = table({"a": rows, "b": rows}).splitlines()
    assert head.split() == ["a:", *(x := ["bias", "noise", "cosine", "ESS"]), "b:", *x]
    m = rows["none"]
    said = [f"{m.bias:.3f}", f"{m.noise:.1f}", f"{m.cosine:.3f}", f"{m.ess:.0%}"]
    assert none.split() == ["none", *said, *said]
    assert product.split()[:2] == ["product", "0.000"]
    assert len(head) == len(none) == len(product)
