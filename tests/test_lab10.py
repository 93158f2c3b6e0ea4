"""Lab 10's exercises against truth from elsewhere, and its open question's numbers."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
import pytest
import torch
from torch import Tensor

from lab_sources import lab
from lab_truths import close, draw, seeds
from tinyrl.agreement import TopK, top_k_agreement
from tinyrl.correction import Correction
from tinyrl.course.checking.judging import judge
from tinyrl.course.exercises import LABS, find
from tinyrl.intervals import percentile
from tinyrl.monitoring import apart, monitor


@seeds
def test_quantile_is_numpy_s(seed: int) -> None:
    for p, m, mask, q in draw("delta_quantile", seed):
        wanted = np.quantile((p - m)[mask].abs().numpy(), q)
        close(find("delta_quantile").reference(p, m, mask, q), wanted)


@seeds
def test_causes_are_those_of_the_monitor(seed: int) -> None:
    for new, old, rollout, mask in draw("two_causes", seed):
        mine = find("two_causes").reference(new, old, rollout, mask)
        close(torch.stack(mine), [x["k3"] for x in apart(rollout, old, new, mask)])


@seeds
def test_two_causes_do_not_add_up(seed: int) -> None:
    (cancel,) = (c.args for c in find("two_causes").inputs(seed) if "undo" in c.what.en)
    mismatch, staleness, both = find("two_causes").reference(*cancel)
    assert both == 0 < min(mismatch, staleness)


@seeds
def test_weights_by_enumeration_in_plain_python(seed: int) -> None:
    for p, m, mask in draw("ess_and_chi2", seed):
        ess, chi2 = find("ess_and_chi2").reference(p, m, mask)
        sums = [
            math.fsum((a - b)[real].tolist()) for a, b, real in zip(p, m, mask, strict=True)
        ]
        w = [math.exp(x) for x in sums]
        n = len(w)
        close(ess, math.fsum(w) ** 2 / math.fsum(x * x for x in w) / n)
        close(chi2, math.fsum(x * x for x in w) / n - 1)
        numbers = monitor(m, p, mask)
        close([ess, chi2], [numbers["ess_seq"], numbers["chi2_seq"]])


@seeds
def test_far_weights_are_0_to_a_computer_or_inf(seed: int) -> None:
    far = [c.args for c in find("ess_and_chi2").inputs(seed) if c.stage == "numbers"]
    for args, w, expected in zip(far, (0, math.inf), (-1, math.inf), strict=True):
        p, m, mask = (torch.as_tensor(x) for x in args)
        Delta = torch.where(mask, p - m, 0.0).double().sum(1)
        assert (Delta.exp() == w).all()
        ess, chi2 = find("ess_and_chi2").reference(p.double(), m.double(), mask)
        assert 0 < ess <= 1
        assert chi2 == expected


@seeds
def test_correlation_is_numpy_s(seed: int) -> None:
    for p, m, rewards, mask in draw("reward_correlation", seed):
        Delta = torch.where(mask, p - m, 0.0).sum(1)
        r = find("reward_correlation").reference(p, m, rewards, mask)
        close(r, np.corrcoef(Delta, rewards)[0, 1])
        close(r, monitor(m, p, mask, rewards=rewards)["reward_corr"])
    for case in find("reward_correlation").inputs(seed):
        if case.stage == "property":
            assert find("reward_correlation").reference(*case.args) == 0


@seeds
def test_responses_that_are_alike_have_no_correlation(seed: int) -> None:
    """Although a formula without a guard makes 1 or -1 of what rounding leaves."""
    (alike,) = (
        c.args for c in find("reward_correlation").inputs(seed) if "rounded" in c.what.en
    )
    p, m, rewards, mask = (torch.as_tensor(x) for x in alike)
    x = torch.where(mask, p - m, 0.0).sum(1)
    assert len(x.unique()) == 1 == len(rewards.unique())
    assert find("reward_correlation").reference(*alike) == 0
    a, b = x - x.mean(), rewards - rewards.mean()
    size = (a * a).sum().sqrt() * (b * b).sum().sqrt()
    torch.testing.assert_close((a * b).sum().abs() / size, torch.tensor(1.0))


@seeds
def test_dropped_is_what_a_correction_s_mask_lacks(seed: int) -> None:
    for weight, mask in draw("dropped_shares", seed):
        logp = torch.full(mask.shape, -1.0)
        kept = mask & (weight != 0)
        numbers = monitor(logp, logp, mask, kept=kept)
        wanted = [numbers[n] for n in ("dropped", "dropped_some", "dropped_whole")]
        close(torch.stack(find("dropped_shares").reference(weight, mask)), wanted)


def test_a_mask_of_the_library_writes_exact_zeros() -> None:
    p, m, mask = (torch.as_tensor(x) for x in find("ess_and_chi2").inputs(0)[2].args)
    weight, kept = Correction("token", "mask", 0.8, 1.25).apply(p, m, mask)
    shares = find("dropped_shares").reference(weight * kept, mask)
    close(shares[0], (~kept & mask).sum().double() / mask.sum())
    assert 0 < shares[0] < 1


@seeds
def test_drift_is_the_library_s(seed: int) -> None:
    for a, p, b, q, mask in draw("top_k_drift", seed):
        theirs = top_k_agreement(TopK(a, p), TopK(b, q), mask)
        wanted = [theirs[n][mask].mean() for n in ("overlap", "left")]
        close(torch.stack(find("top_k_drift").reference(a, p, b, q, mask)), wanted)
        assert 0 < wanted[0] < 1
        assert wanted[1] > 0


@seeds
def test_what_left_may_be_1e_9(seed: int) -> None:
    (tiny,) = (c.args for c in find("top_k_drift").inputs(seed) if c.stage == "numbers")
    assert 1e-11 < find("top_k_drift").reference(*tiny)[1] < 1e-8


@seeds
def test_interval_is_that_of_resamples_done_one_by_one(seed: int) -> None:
    for p, m, mask, draws, level in draw("bootstrap_interval", seed):
        means = []
        for rows in draws.tolist():
            d = [abs(x) for b in rows for x in (p - m)[b][mask[b]].tolist()]
            means.append(math.fsum(d) / len(d))
        drawn = torch.tensor(means, dtype=torch.float64)
        mine = find("bootstrap_interval").reference(p, m, mask, draws, level)
        close(torch.stack(mine), percentile(0.0, drawn, level)[1:])


def test_drawing_tokens_is_told_and_too_narrow_where_a_response_is_off() -> None:
    g = torch.Generator().manual_seed(0)
    p, m = torch.zeros(64, 20), torch.zeros(64, 20)
    p[:4] = -1.0
    mask = torch.ones(64, 20, dtype=torch.bool)
    draws = torch.randint(64, (400, 64), generator=g)
    low, high = find("bootstrap_interval").reference(p, m, mask, draws, 0.9)
    tokens = torch.randint(64 * 20, (400, 64 * 20), generator=g)
    d = (p - m)[mask].abs()
    ends = percentile(0.0, d[tokens].mean(1).double(), 0.9)
    assert high - low > 3 * (ends.high - ends.low)

    def by_token(
        logp_train: Tensor, logp_rollout: Tensor, mask: Tensor, draws: Tensor, level: float
    ) -> tuple[Tensor, ...]:
        x = (logp_train - logp_rollout)[mask].abs()[draws].mean(1)
        return x.quantile(torch.tensor([(1 - level) / 2, (1 + level) / 2])).unbind()

    assert judge(find("bootstrap_interval"), by_token).mistake == "tokens"


def test_normal_mistake_is_the_normal_interval() -> None:
    assert NormalDist().inv_cdf(0.95) == pytest.approx(
        math.sqrt(2) * torch.erfinv(torch.tensor(0.9, dtype=torch.float64)).item()
    )


@seeds
def test_alarm_by_its_definition(seed: int) -> None:
    """On at t: some window of `patience` bad values ends by t, and none after it is low."""
    for case in find("alarm_on").inputs(seed):
        values, high, low, n = case.args
        assert isinstance(values, Tensor)
        assert isinstance(n, int)
        x = values.tolist()
        bad = [math.isnan(v) or v > high for v in x]

        def on(t: int, x: list[float] = x, bad: list[bool] = bad) -> bool:
            ends = [s for s in range(n - 1, t + 1) if all(bad[s - n + 1 : s + 1])]  # noqa: B023
            return any(not any(v < low for v in x[s + 1 : t + 1]) for s in ends)  # noqa: B023

        wanted = [on(t) for t in range(len(x))]
        assert find("alarm_on").reference(values, high, low, n).tolist() == wanted
        if case.stage == "inputs":
            assert 0 < sum(wanted) < len(x)


@seeds
def test_borders_are_examined(seed: int) -> None:
    (values, high, low, _) = next(
        c.args for c in find("alarm_on").inputs(seed) if "on the bounds" in c.what.en
    )
    assert (torch.as_tensor(values) == high).any()
    assert (torch.as_tensor(values) == low).any()
    nans = [c.args[0] for c in find("alarm_on").inputs(seed) if c.stage == "numbers"]
    assert all(torch.as_tensor(x).isnan().any() for x in nans)
    for name in ("delta_quantile", "two_causes", "ess_and_chi2", "bootstrap_interval"):
        padded = [c.args for c in find(name).inputs(seed) if c.stage == "padding"]
        at = find(name).arguments.index("mask")
        for args in padded:
            mask = torch.as_tensor(args[at])
            assert not torch.as_tensor(args[0])[~mask].isfinite().any()


def test_numbers_in_the_messages() -> None:
    said = " ".join(m.en for e in LABS["lab10_monitoring"] for _, m in e.mistakes.values())
    assert "can't fall below 0.64" in said
    shares = torch.linspace(0, 1, 1001, dtype=torch.float64)
    mean, square = 0.5 + 1.5 * shares, 0.25 + 3.75 * shares
    assert (mean**2 / square).min().item() == pytest.approx(0.64, abs=1e-3)
    assert "5e-9, and the steps of float32 near 1 are 1.2e-7" in said
    assert f"{1e-4**2 / 2:.0e}" == "5e-09"


def test_open_question_has_right_numbers() -> None:
    cells = {
        c.metadata.nbgrader.grade_id: c.source
        for c in lab("lab10_monitoring").cells
        if "nbgrader" in c.metadata
    }
    error = math.sqrt(0.7 * 0.3 / 400)
    assert f"{error:.3f}" == "0.023"
    assert 8.5 < 0.2 / error < 9
    z = NormalDist().inv_cdf(0.95)
    assert [f"{0.7 + s * z * error:.2f}" for s in (-1, 1)] == ["0.66", "0.74"]
    for name in ("open_rubric", "open_answer"):
        assert "sqrt(0.7 * 0.3 / 400) = 0.023" in cells[name]


def test_the_guess_has_the_answer_that_the_lab_means() -> None:
    p = torch.tensor([[-0.5, -1.0, -2.0], [-0.25, -3.0, 0.0]])
    m = torch.tensor([[-0.6, -1.2, -1.5], [-0.5, -2.0, 0.0]])
    mask = torch.tensor([[True, True, True], [True, True, False]])
    middle = find("delta_quantile").reference(p, m, mask, 0.5)
    size = (p - m)[mask].abs()
    assert size.mean() - middle < size.max() - size.mean()
