"""Lab 09's exercises against truth from elsewhere, and its open question's numbers."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.distributions import Normal

from lab_sources import lab
from lab_truths import close, draw, seeds
from plain_corrections import plain
from tinyrl.correction import Correction, off_policy_mask
from tinyrl.course.exercises import LABS, find
from tinyrl.course.exercises.lab09.exact_bias import enumerated
from tinyrl.metrics import ess as ess_of_logs
from tinyrl.objectives import ppo

LEVELS = ("token", "sequence", "geometric")


def applied(c: Correction, d: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """The library's correction of these deltas; it refuses logprobs above 0."""
    far = torch.full_like(d, -50.0)
    return c.apply(far + d, far, mask)


def lists(d: Tensor, mask: Tensor) -> list[list[float]]:
    """The deltas of real tokens, a list a response."""
    return [row[real].tolist() for row, real in zip(d, mask, strict=True)]


@seeds
def test_levels_are_those_of_the_library_and_of_plain_python(seed: int) -> None:
    for train, rollout, mask in draw("weight_levels", seed):
        mine = find("weight_levels").reference(train, rollout, mask)
        for part, level in zip(mine, LEVELS, strict=True):
            c = Correction(level, "truncate", None, math.inf)  # type: ignore[arg-type]
            close(part, c.apply(train, rollout, mask)[0])
            slow, _ = plain(c, lists(train - rollout, mask))
            for row, real, wanted in zip(part, mask, slow, strict=True):
                close(row[real], wanted)
                assert (row[~real] == 1).all()


@seeds
def test_operations_are_those_of_the_library(seed: int) -> None:
    on = 0
    for rho, mask, lower, upper in draw("bounded_weights", seed):
        truncated, masked, kept = find("bounded_weights").reference(rho, mask, lower, upper)
        # the library compares logarithms: bounds that are hit are compared here by hand
        d = torch.where(mask, rho, 1.0).log()
        close(
            truncated[mask],
            applied(Correction("token", "truncate", None, upper), d, mask)[0][mask],
        )
        inside = [[lower <= x <= upper for x in row] for row in rho.tolist()]
        assert torch.equal(kept, torch.tensor(inside) & mask)
        assert torch.equal(masked, torch.where(kept, rho, 0.0))
        on += int(((rho == lower) | (rho == upper))[mask].sum())
        inverse = rho.new_tensor(lower * upper)
        assert abs(inverse.log()) > 0.2, "else a bound can be taken from the other"
    assert on >= 8, "else borders are not examined"


@seeds
def test_ess_by_definition_and_by_the_librarys(seed: int) -> None:
    for weight, mask in draw("weight_ess", seed):
        mine = find("weight_ess").reference(weight, mask)
        w = weight[mask].tolist()
        close(mine, math.fsum(w) ** 2 / len(w) / math.fsum(x * x for x in w))
        assert (weight[mask] == 0).any(), "else dropping is not examined"
        some = weight[mask & (weight > 0)]
        share = len(some) / len(w)
        close(mine, share * ess_of_logs(some.log()))


@seeds
def test_normalised_is_the_librarys_with_the_kept_denominator(seed: int) -> None:
    for weight, kept in draw("normalised_weights", seed):
        mine = find("normalised_weights").reference(weight, kept)
        close(mine[kept].mean(), 1.0)
        assert (mine[~kept] == 0).all()
        w = weight[kept]
        close(mine[kept], w * len(w) / math.fsum(w.tolist()))
        positive = kept & (weight > 0)
        d = torch.where(positive, weight, 1.0).log()
        c = Correction("token", "truncate", None, math.inf, normalise=True)
        theirs = applied(c, d, positive)[0]
        close(mine[positive] * positive.sum() / kept.sum(), theirs[positive])


@seeds
def test_band_and_veto_are_the_librarys_and_far_from_borders(seed: int) -> None:
    for train, rollout, mask, lower, upper, veto in draw("kept_responses", seed):
        mine = find("kept_responses").reference(train, rollout, mask, lower, upper, veto)
        c = Correction("geometric", "mask", lower, upper, veto=veto)
        assert torch.equal(mine, c.apply(train, rollout, mask)[1])
        deltas = lists(train - rollout, mask)
        _, slow = plain(c, deltas)
        assert [row[real].tolist() for row, real in zip(mine, mask, strict=True)] == slow
        for d in deltas:
            mean = math.fsum(d) / len(d)
            assert min(abs(mean - math.log(x)) for x in (lower, upper)) > 0.005
            assert min(abs(x - math.log(veto)) for x in d) > 0.005
        assert 2 <= mine.any(1).sum() <= 6


@seeds
def test_exact_bias_is_what_a_large_sample_shows(seed: int) -> None:
    """A million draws of one response each: within five standard errors."""
    for train, rollout, value, cap in draw("exact_bias", seed):
        bias, variance = find("exact_bias").reference(train, rollout, value, cap)
        mu, pi = rollout.sum(1).exp(), train.sum(1).exp()
        assert mu.sum().item() == pytest.approx(1, abs=1e-6)
        g = torch.Generator().manual_seed(seed)
        n = 1_000_000
        counts = torch.multinomial(mu, n, replacement=True, generator=g).bincount(
            minlength=len(mu)
        )
        x = torch.minimum(pi / mu, pi.new_tensor(cap)) * value
        mean = (counts * x).sum() / n
        error = 5 * math.sqrt(float(variance) / n)
        assert abs(mean - (pi * value).sum() - bias) < error
        spread = (counts * (x - mean).square()).sum() / n
        assert spread.item() == pytest.approx(variance.item(), rel=0.02)
        assert 0.1 < (pi / mu > cap).double().mean() < 0.5, "else nothing is cut"


@seeds
def test_both_signs_of_the_bias_are_examined(seed: int) -> None:
    found = {
        float(find("exact_bias").reference(*args)[0]) > 0
        for args in draw("exact_bias", seed)
    }
    assert found == {True, False}


@pytest.mark.parametrize(("vocab", "length"), [(2, 4), (3, 3)])
def test_worlds_are_whole(vocab: int, length: int) -> None:
    for side in enumerated(torch.Generator().manual_seed(0), vocab, length, 0.7):
        assert side.shape == (vocab**length, length)
        assert side.double().sum(1).exp().sum().item() == pytest.approx(1, abs=1e-6)


@seeds
def test_loss_and_gradient_are_the_librarys_and_by_differences(seed: int) -> None:
    for new, old, rollout, A, mask, eps, cap in draw("decoupled_loss", seed):
        leaf = new.clone().requires_grad_()
        mine = find("decoupled_loss").reference(leaf, old, rollout, A, mask, eps, cap)
        (g,) = torch.autograd.grad(mine, leaf)
        weight, kept = Correction("token", "truncate", None, cap).apply(old, rollout, mask)
        again = new.clone().requires_grad_()
        theirs = ppo(
            again,
            old,
            A,
            kept,
            eps_low=eps,
            eps_high=eps,
            dual_clip=None,
            weight=weight,
            aggregation="token_mean",
        )
        close(mine.detach(), theirs.detach())
        close(g, torch.autograd.grad(theirs, again)[0])
        for b, t in mask.nonzero()[:8].tolist():
            step = torch.zeros_like(new)
            step[b, t] = 1e-6
            two = [
                find("decoupled_loss").reference(new + s, old, rollout, A, mask, eps, cap)
                for s in (step, -step)
            ]
            assert g[b, t].item() == pytest.approx(
                ((two[0] - two[1]) / 2e-6).item(), abs=1e-8
            )
        r, rho = (new - old).exp(), (old - rollout).exp()
        stopped = ((r > 1 + eps) & (A[:, None] > 0)) | ((r < 1 - eps) & (A[:, None] < 0))
        low, bad = rho < min(0.5, 1 / cap), A[:, None] < 0
        kinds = (stopped, rho > cap, stopped & (rho > cap), ~stopped & (rho > cap))
        for some in (*kinds, low & (rho > 0.2), low & (rho < 0.2), bad & (r > 3)):
            assert (some & mask).any(), "else nothing is examined"
        assert torch.equal(g == 0, stopped | ~mask | (A[:, None] == 0))


@seeds
def test_stale_negatives_are_the_librarys_off_policy_mask(seed: int) -> None:
    for new, rollout, A, mask, delta in draw("stale_negatives", seed):
        mine = find("stale_negatives").reference(new, rollout, A, mask, delta)
        theirs = off_policy_mask(new, rollout, A, mask, delta=delta)
        assert torch.equal(mine, theirs)
        dropped = ~mine.any(1)
        assert dropped.sum() == 3
        assert (A[dropped] < 0).all()
        assert (A == 0).any()
        assert (A[dropped] > A.mean()).any(), "else the mean can be taken off"
        assert (A[dropped] > -0.25).any()
        same = (new == rollout) & mask
        assert (same & (A < 0)[:, None]).any(), "else zeros can be left out"


def test_the_guess_has_the_answer_that_the_lab_means() -> None:
    """One response has the larger product, the other the larger geometric mean."""
    cells = {
        c.metadata.nbgrader.grade_id: c.source
        for c in lab("lab09_corrections").cells
        if "nbgrader" in c.metadata
    }
    scope: dict[str, Any] = {"torch": torch}
    exec(cells["by_hand"], scope)
    args = (scope[name] for name in ("train", "rollout", "mask"))
    _, product, geometric = find("weight_levels").reference(*args)
    assert product[0, 0] > product[1, 0] > 1
    assert geometric[1, 0] > geometric[0, 0] > 1


def test_open_question_has_right_numbers() -> None:
    cells = {
        c.metadata.nbgrader.grade_id: c.source
        for c in lab("lab09_corrections").cells
        if "nbgrader" in c.metadata
    }
    assert f"{math.log(0.999):.4f} {math.log(1.001):+.4f}" == "-0.0010 +0.0010"
    for name in ("open_rubric", "open_answer"):
        assert "-0.0010" in cells[name]
        assert "+0.0010" in cells[name]
        assert "-0.003" in cells[name]
        assert "2 %" in cells[name]
        assert "one or two of 64" in cells[name]
    # d ~ N(-sigma^2/2, sigma^2) has E[rho] = 1 and E[d] = -KL = -E[K3]: all is possible
    sigma = math.sqrt(2 * 0.003)
    d = Normal(-0.003, sigma)
    x = torch.linspace(-1, 1, 200_001, dtype=torch.float64)
    p = d.log_prob(x).exp() * 1e-5
    assert (p * x.exp()).sum().item() == pytest.approx(1, abs=1e-6)
    assert (p * (x.exp() - 1 - x)).sum().item() == pytest.approx(0.003, abs=1e-6)
    assert sigma / math.sqrt(6000) == pytest.approx(0.001, rel=0.01)

    def kept(tokens: int) -> float:
        mean = Normal(-0.003, sigma / math.sqrt(tokens))
        low, high = mean.cdf(torch.tensor([0.999, 1.001]).double().log())
        return (high - low).item()

    assert kept(6000) == pytest.approx(0.023, abs=0.001)
    assert 1 < 64 * kept(6000) < 2
    assert kept(12_000) < kept(6000) / 4  # longer ones pass less often
    wide = Normal(-0.003, 0.001).cdf(torch.tensor([0.99, 1.01]).double().log())
    assert wide[1] - wide[0] > 0.999


def test_numbers_in_the_messages() -> None:
    said = " ".join(m.en for e in LABS["lab09_corrections"] for _, m in e.mistakes.values())
    assert "ratios 2 and 1/2 give 1, not 1.25" in said
    assert (2 + 0.5) / 2 == 1.25
