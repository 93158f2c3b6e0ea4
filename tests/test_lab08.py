"""Lab 08's exercises against truth from elsewhere, and its open question's numbers."""

from __future__ import annotations

import inspect
import math
import re
import statistics
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from lab_sources import lab
from lab_truths import close, draw, seeds
from tinyrl import advantages, objectives
from tinyrl.course.checking.judging import judge
from tinyrl.course.exercises import LABS, find
from tinyrl.objectives import aggregation


def slope(f: Any, args: list[Any], h: float = 1e-6) -> Tensor:
    """Gradient of the sum of `f(logp, ...) [B, T]` by differences, a token at a time."""
    logp, rest, mask = args[0], args[1:], args[3]
    out = torch.zeros_like(logp)
    for b, t in mask.nonzero().tolist():
        step = torch.zeros_like(logp)
        step[b, t] = h
        out[b, t] = ((f(logp + step, *rest) - f(logp - step, *rest)) / (2 * h))[mask].sum()
    return out


def paper(r: float, A: float, low: float, high: float, dual: float) -> float:
    """PPO with dual clip as a case distinction, negated."""
    objective = min(r * A, min(max(r, 1 - low), 1 + high) * A)
    return -(max(objective, dual * A) if A < 0 else objective)


@seeds
def test_ppo_token_by_token_and_by_the_library(seed: int) -> None:
    for logp, old, A, mask, low, high, dual in draw("ppo_loss", seed):
        mine = find("ppo_loss").reference(logp, old, A, mask, low, high, dual)
        stopped = 0
        for b, t in mask.nonzero().tolist():
            r = math.exp(logp[b, t] - old[b, t])
            close(mine[b, t], paper(r, float(A[b]), low, high, dual))
            stopped += A[b] < 0 and r > dual
        assert (mine[~mask] == 0).all()
        how = {"eps_low": low, "eps_high": high, "dual_clip": dual}
        close(mine[mask].mean(), objectives.ppo(logp, old, A, mask, **how))
        assert stopped or dual > 5, "dual clip has something to do"


@seeds
def test_gradients_are_those_of_differences(seed: int) -> None:
    for name in ("ppo_loss", "sapo_loss"):
        for args in draw(name, seed):
            logp, rest, mask = args[0].clone().requires_grad_(), args[1:], args[3]
            f = find(name).reference
            (mine,) = torch.autograd.grad(f(logp, *rest)[mask].sum(), logp)
            torch.testing.assert_close(mine, slope(f, args), rtol=1e-6, atol=1e-6)


@seeds
def test_shares_are_of_tokens_that_get_no_gradient(seed: int) -> None:
    """By the gradient of the library's PPO, and as counts of its diagnostics."""
    for logp, old, A, mask, low, high in draw("stopped_shares", seed):
        good, bad = find("stopped_shares").reference(logp, old, A, mask, low, high)
        new = logp.clone().requires_grad_()
        loss = objectives.ppo(new, old, A, mask, eps_low=low, eps_high=high)
        (g,) = torch.autograd.grad(loss, new)
        for share, side in ((good, A > 0), (bad, A < 0)):
            of = mask & side[:, None]
            close(share, (g[of] == 0).double().mean())
            assert 0 < share < 1
        told = objectives.diagnostics(logp, old, A, mask, eps_low=low, eps_high=high)
        of_good, of_bad = ((mask & s[:, None]).sum() for s in (A > 0, A < 0))
        close(good * of_good / mask.sum(), told["clip_fraction_high"])
        close(bad * of_bad / mask.sum(), told["clip_fraction_low"])


@seeds
def test_gspo_s_ratio_is_a_root_of_a_product(seed: int) -> None:
    for logp, old, mask in draw("gspo_ratio", seed):
        mine = find("gspo_ratio").reference(logp, old, mask)
        for b in range(len(mask)):
            new, before = logp[b][mask[b]].tolist(), old[b][mask[b]].tolist()
            product = math.prod(
                math.exp(x) / math.exp(y) for x, y in zip(new, before, strict=True)
            )
            close(mine[b][mask[b]], [product ** (1 / len(new))] * len(new))
        assert (mine[~mask] == 1).all()
        close(mine, objectives.ratio(logp - old, mask, "geometric"))


@seeds
def test_gspo_s_token_form_has_the_library_s_gradient(seed: int) -> None:
    """With one advantage for each response, wide open: the gradient of GSPO itself."""
    for logp, old, mask in draw("gspo_ratio", seed):
        A = torch.linspace(-1.5, 2.0, len(mask), dtype=torch.float64)
        new = logp.clone().requires_grad_()
        s = find("gspo_ratio").reference(new, old, mask)
        mine = -(torch.where(mask, s * A[:, None], 0.0).sum(1) / mask.sum(1)).mean()
        theirs = objectives.gspo(new, old, A, mask, eps_low=1.0, eps_high=100.0)
        for x, y in zip(
            *(torch.autograd.grad(v, new) for v in (mine, theirs)), strict=True
        ):
            close(x, y)


@seeds
def test_averages_by_hand_and_by_the_library(seed: int) -> None:
    for x, mask, length in draw("aggregates", seed):
        mine = find("aggregates").reference(x, mask, length)
        rows = [row[real].tolist() for row, real in zip(x, mask, strict=True)]
        close(mine[0], statistics.fmean(v for row in rows for v in row))
        close(mine[1], statistics.fmean(statistics.fmean(row) for row in rows))
        close(mine[2], statistics.fmean(math.fsum(row) / length for row in rows))
        hows: Any = (
            ("token_mean", {}),
            ("sequence_mean", {}),
            ("constant", {"length": length}),
        )
        for value, (how, more) in zip(mine, hows, strict=True):
            close(value, objectives.aggregate(x, mask, how, **more))
        assert len({f"{v:.9f}" for v in map(float, mine)}) == 3


@seeds
def test_group_advantages_by_numpy_and_by_the_library(seed: int) -> None:
    for R, n, correction in draw("group_advantages", seed):
        mine = find("group_advantages").reference(R, n, correction)
        groups = R.numpy().reshape(-1, n)
        std = groups.std(1, ddof=correction, keepdims=True)
        close(mine, ((groups - groups.mean(1, keepdims=True)) / (std + 1e-6)).reshape(-1))
        kind: Any = ("population", "sample")[correction]
        close(mine, advantages.group_advantages(R, n, std=kind))


def test_a_lone_success_has_the_advantage_that_the_lesson_says() -> None:
    for n in (4, 8, 64):
        R = torch.zeros(n, dtype=torch.float64)
        R[1] = 1
        A = find("group_advantages").reference(R, n, 1)
        torch.testing.assert_close(
            A.max().item(), (n - 1) / math.sqrt(n), rtol=1e-4, atol=0
        )


@seeds
def test_the_group_of_equal_rewards_has_a_mean_that_is_not_theirs(seed: int) -> None:
    for name in ("group_advantages", "informative_rows"):
        (equal,) = (c.args for c in find(name).inputs(seed) if "not exactly" in c.what.en)
        R = torch.as_tensor(equal[0]).view(-1, int(torch.as_tensor(equal[1])))
        same = R.amax(1) == R.amin(1)
        assert 0 < same.sum() < len(R)
        assert (R.mean(1) != R[:, 0])[same].all()
        kept = find(name).reference(*equal)
        assert ((kept != 0).view(R.shape).any(1) == ~same).all()


@seeds
def test_rows_that_stay_are_those_with_an_advantage(seed: int) -> None:
    for R, n in draw("informative_rows", seed):
        kept = find("informative_rows").reference(R, n)
        A = np.array([len(set(g)) > 1 for g in R.view(-1, n).tolist()])
        assert kept.tolist() == A.repeat(n).tolist()
        assert torch.equal(kept, advantages.informative(R, n).repeat_interleave(n))
        assert 0 < kept.double().mean() < 1


@seeds
def test_sapo_by_the_library_and_its_gradient_by_the_formula(seed: int) -> None:
    for logp, old, A, mask, pos, neg in draw("sapo_loss", seed):
        new = logp.clone().requires_grad_()
        mine = find("sapo_loss").reference(new, old, A, mask, pos, neg)
        how = {"tau_pos": pos, "tau_neg": neg, "aggregation": "token_mean"}
        close(mine[mask].mean().detach(), objectives.sapo(logp, old, A, mask, **how))
        (g,) = torch.autograd.grad(mine.sum(), new)
        for b, t in mask.nonzero().tolist():
            r = math.exp(logp[b, t] - old[b, t])
            s = 1 / (1 + math.exp(-(pos if A[b] > 0 else neg) * (r - 1)))
            close(g[b, t], -4 * s * (1 - s) * r * float(A[b]))


@seeds
def test_cispo_by_the_library_and_its_gradient_is_the_weight(seed: int) -> None:
    for logp, old, A, mask, low, high in draw("cispo_loss", seed):
        new = logp.clone().requires_grad_()
        mine = find("cispo_loss").reference(new, old, A, mask, low, high)
        how = {"eps_low": 1 - low, "cap": high}
        close(mine[mask].mean().detach(), objectives.cispo(logp, old, A, mask, **how))
        (g,) = torch.autograd.grad(mine.sum(), new)
        for b, t in mask.nonzero().tolist():
            r = math.exp(logp[b, t] - old[b, t])
            close(g[b, t], -min(max(r, low), high) * float(A[b]))


@seeds
def test_every_border_has_tokens_on_both_sides(seed: int) -> None:
    """Also between a border of the ratio and that of its logarithm."""
    for logp, old, A, mask, low, high in draw("stopped_shares", seed):
        d = (logp - old)[mask]
        sides = [
            (d > math.log(1 + high)) & (d < high), d > high, d < -low,
            (d < -low) & (d > math.log(1 - low)), d < math.log(1 - low), d.abs() < 1e-6,
        ]  # fmt: skip
        assert all(side.any() for side in sides)
        near = torch.cat([d.exp() - 1 - high, d.exp() - 1 + low]).abs().min()
        assert near > 3e-3, "no rounding decides"
        assert (A > 0).any()
        assert (A < 0).any()


@seeds
def test_an_advantage_is_0_and_one_below_the_mean_is_positive(seed: int) -> None:
    for name in ("ppo_loss", "sapo_loss", "cispo_loss"):
        f = find(name)
        (one,) = (c.args for c in f.inputs(seed) if "one token" in c.what.en)
        A, loss = torch.as_tensor(one[2]), f.reference(*one)
        assert ((A > 0) & (A.mean() > A)).any()
        assert (loss[A == 0] == 0).all()
        assert (loss != 0).any(1).sum() >= 2


@seeds
def test_no_product_of_a_thousand_ratios_fits(seed: int) -> None:
    (long,) = (c.args for c in find("gspo_ratio").inputs(seed) if "long" in c.what.en)
    logp, old, mask = (torch.as_tensor(x) for x in long)
    product = torch.where(mask, logp - old, 0.0).exp().prod(1)
    assert ((product == 0) | product.isinf()).any()
    assert find("gspo_ratio").reference(*long).isfinite().all()


def test_numbers_in_the_messages() -> None:
    """What is told of other systems is what the library says of them."""
    said = " ".join(m.en for e in LABS["lab08_objectives"] for _, m in e.mistakes.values())
    assert "verl did that up to 0.7.0" in said
    assert "verl up to 0.7.0" in (aggregation.__doc__ or "")
    assert "at ratio 1 is that of PPO, whatever tau is" in said
    for tau in (0.5, 1.0, 3.0):
        r = torch.ones(1, dtype=torch.float64, requires_grad=True)
        (g,) = torch.autograd.grad(objectives.soft_gate(r, torch.ones(1), tau, tau), r)
        close(g, [-1.0])


def test_open_question_has_the_lesson_s_numbers() -> None:
    cells = {
        c.metadata.nbgrader.grade_id: c.source
        for c in lab("lab08_objectives").cells
        if "nbgrader" in c.metadata
    }
    asked = cells["open_rubric"].partition("=== BEGIN MARK SCHEME ===")[0]
    flat = re.sub(r"\s+", " ", asked)
    gspo = inspect.signature(objectives.gspo).parameters
    width = [f"{gspo[name].default:.4f}" for name in ("eps_low", "eps_high")]
    for text in ("clip 0.2", "from 0.36 to 0.05", "{} to {}".format(*width)):
        assert text in flat
    for name in ("open_rubric", "open_answer"):
        for text in ("0.8", "0.1 to 10"):
            assert text in cells[name]


def test_the_guess_has_the_answer_that_the_lab_means() -> None:
    old = torch.tensor([[-1.0, -1.0, -2.0], [-1.5, -3.0, 0.0]])
    delta = torch.tensor([[0.5, -0.5, 0.1], [0.5, -0.5, 0.0]])
    mask = torch.tensor([[True, True, True], [True, True, False]])
    args = old + delta, old, torch.tensor([1.0, -1.0]), mask, 0.2, 0.3
    good, bad = find("stopped_shares").reference(*args)
    assert (good * 3, bad * 2) == (pytest.approx(1), 1)
    source = next(
        c.source
        for c in lab("lab08_objectives").cells
        if c.metadata.get("nbgrader", {}).get("grade_id") == "by_hand"
    )
    names: dict[str, Any] = {"torch": torch}
    exec(source, names)
    assert torch.equal(names["by_hand_old"], old)
    assert torch.equal(names["by_hand_delta"], delta)
    assert torch.equal(names["by_hand_mask"], mask)


def test_answers_in_another_style_are_right() -> None:
    def whole_batch(
        logp: Tensor,
        logp_old: Tensor,
        advantages: Tensor,
        mask: Tensor,
        eps_low: float,
        eps_high: float,
        dual: float,
    ) -> Tensor:
        """float64, einsum, stacked candidates, infinity where there is no bound."""
        x, y = (torch.nan_to_num(t.double(), 0.0, 0.0, 0.0) for t in (logp, logp_old.data))
        r = torch.exp((x - y) * mask)
        both = torch.stack([r, torch.clip(r, 1 - eps_low, 1 + eps_high)])
        worse = torch.einsum("kbt,b->kbt", both, -advantages.double()).amax(0)
        cap = torch.where(advantages < 0, -dual * advantages, torch.inf)[:, None]
        return torch.minimum(worse, cap).masked_fill(~mask, 0.0).to(logp.dtype)

    def in_place(rewards: Tensor, group_size: int, correction: int) -> Tensor:
        """Group by group, with the variance by its definition."""
        out = rewards.clone()
        for group in out.split(group_size):
            mean, same = group.mean(), group.max() == group.min()
            variance = ((group - mean) ** 2).sum() / (group_size - correction)
            group.sub_(mean).div_(variance.sqrt() + 1e-6)
            if same:
                group.zero_()
        return out

    for name, answer in (("ppo_loss", whole_batch), ("group_advantages", in_place)):
        told = [judge(find(name), answer, seed) for seed in range(20)]
        assert {v.outcome for v in told} == {"right"}, told[0].text.en
