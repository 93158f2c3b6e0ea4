"""Names of frameworks: that what is called equal is equal, by their own formulas.

Their formulas are written out here from the files that the table cites; `make peers` runs
the real functions of some of them.
"""

import math
import re

import pytest
import torch

from tinyrl.correction import Correction
from tinyrl.framework_names import FRAMEWORKS, TWO_MEANINGS, translate
from tinyrl.measures import EXTREMES, NUMBERS, QUANTILES
from tinyrl.monitoring import apart, monitor

B, T = 7, 9


def batch(spread=0.4):
    g = torch.Generator().manual_seed(3)
    roll = -3 * torch.rand(B, T, generator=g, dtype=torch.float64) - 1
    train = roll + spread * torch.randn(B, T, generator=g, dtype=torch.float64)
    mask = torch.arange(T) < torch.randint(1, T + 1, (B, 1), generator=g)
    return roll, train.clamp(max=0), mask


def rows(x, mask):
    return [
        [v for v, m in zip(*row, strict=True) if m] for row in zip(x, mask, strict=True)
    ]


def test_the_table_names_what_there_is():
    known = NUMBERS.keys() | EXTREMES.keys() | QUANTILES.keys()
    for framework in FRAMEWORKS.values():
        assert re.fullmatch(r"2026-\d\d-\d\d", framework.date)
        assert framework.files
        theirs = [name.theirs for name in framework.names]
        assert len(set(theirs)) == len(theirs)
        for name in framework.names:
            assert name.ours is None or name.ours in known
            assert name.note or name.same, f"{name.theirs} differs, and is not explained"
            assert not (name.same and name.ours is None)


def test_all_nine_are_there():
    assert FRAMEWORKS.keys() == {
        *("verl", "TRL", "slime", "prime-rl", "AReaL"),
        *("OpenRLHF", "ms-swift", "NeMo-RL", "Tinker"),
    }


def test_two_meanings_are_of_names_in_the_table():
    named = {f for text in TWO_MEANINGS.values() for f in FRAMEWORKS if f in text}
    assert named >= {"verl", "TRL", "slime", "prime-rl", "AReaL", "ms-swift", "NeMo-RL"}


def masked_mean(values, mask):
    flat = [v for row in rows(values.tolist(), mask.tolist()) for v in row]
    return math.fsum(flat) / len(flat)


def mean_of_means(values, mask):
    means = [math.fsum(r) / len(r) for r in rows(values.tolist(), mask.tolist())]
    return math.fsum(means) / len(means)


def theirs(framework, roll, train, mask):
    """Numbers of a framework by its own formulas, in float64."""
    d = train - roll
    rho = d.exp()
    Delta = [math.fsum(r) for r in rows(d.tolist(), mask.tolist())]
    lengths = [len(r) for r in rows(d.tolist(), mask.tolist())]
    mean_roll = [math.fsum(r) / len(r) for r in rows(roll.tolist(), mask.tolist())]
    mean_train = [math.fsum(r) / len(r) for r in rows(train.tolist(), mask.tolist())]
    diff = [x - y for x, y in zip(mean_roll, mean_train, strict=True)]

    def avg(values):
        values = list(values)
        return math.fsum(values) / len(values)

    ppl = {
        "training_ppl": avg(math.exp(-x) for x in mean_train),
        "training_log_ppl": avg(-x for x in mean_train),
        "rollout_ppl": avg(math.exp(-x) for x in mean_roll),
        "rollout_log_ppl": avg(-x for x in mean_roll),
        "log_ppl_diff": avg(diff),
        "log_ppl_abs_diff": avg(map(abs, diff)),
        "ppl_ratio": avg(map(math.exp, diff)),
    }
    ends = {"log_ppl_diff_max": max(diff), "log_ppl_diff_min": min(diff)}
    p, q = roll.exp(), train.exp()
    gap = (q - p).abs()[mask]
    m = (0.5 * q + 0.5 * p).log()
    to_m = [(x - m).exp() - (x - m) - 1 for x in (train, roll)]
    chi2_seq = avg(math.exp(2 * D) for D in Delta) - 1
    chi2 = masked_mean(rho**2, mask) - 1
    kl, k3 = masked_mean(-d, mask), masked_mean(rho - d - 1, mask)
    numbers = {
        "verl": {
            **{f"rollout_corr/{name}": value for name, value in (ppl | ends).items()},
            "rollout_corr/kl": kl,
            "rollout_corr/k3_kl": k3,
            "rollout_corr/chi2_token": chi2,
            "rollout_corr/chi2_seq": chi2_seq,
            "rollout_corr/rollout_is_ratio_fraction_high": masked_mean(
                (rho > 1.2).double(), mask
            ),
            "training/rollout_probs_diff_mean": gap.mean().item(),
            "training/rollout_probs_diff_max": gap.max().item(),
            "training/rollout_probs_diff_std": gap.std().item(),
            "training/rollout_actor_probs_pearson_corr": torch.corrcoef(
                torch.stack([q[mask], p[mask]])
            )[0, 1].item(),
        },
        "TRL": {
            "sampling/sampling_logp_difference/mean": masked_mean(d.abs(), mask),
            "sampling/sampling_logp_difference/max": d.abs()[mask].max().item(),
        },
        "slime": {
            **{f"mis_{name}": value for name, value in ppl.items()},
            "mis_kl": mean_of_means(-d, mask),
            "mis_chi2_seq": chi2_seq,
        },
        "prime-rl": {},
        "AReaL": {},
        "OpenRLHF": {"vllm_kl": kl},
        "ms-swift": {
            **{f"rollout_correction/{name}": v for name, v in (ppl | ends).items()},
            "rollout_correction/kl": kl,
            "rollout_correction/chi2_token": chi2,
            "rollout_correction/chi2_seq": avg(
                math.exp(D / t) ** 2 for D, t in zip(Delta, lengths, strict=True)
            )
            - 1,
            "rollout_correction/clipped_frac": masked_mean((rho > 1.2).double(), mask),
        },
        "NeMo-RL": {
            "token_mult_prob_error": masked_mean(d.abs().exp(), mask),
            "gen_kl_error": k3,
            "policy_kl_error": masked_mean((-d).exp() + d - 1, mask),
            "js_divergence_error": masked_mean(0.5 * to_m[0] + 0.5 * to_m[1], mask),
        },
        "Tinker": {
            "optim/kl_sample_train_v1": kl,
            "optim/kl_sample_train_v2": masked_mean(0.5 * d**2, mask),
        },
    }
    return numbers[framework]


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_what_is_called_equal_is_equal(framework):
    arrays = batch()
    correction = Correction("token", "truncate", upper=1.2)
    numbers = monitor(*arrays, correction=correction, probabilities=True)
    ours, want = translate(framework, numbers), theirs(framework, *arrays)
    assert ours.keys() == want.keys()
    for name, value in want.items():
        assert ours[name] == pytest.approx(value, rel=1e-9, abs=1e-12), name


def test_other_ratios_have_other_names():
    roll, old, mask = batch()
    g = torch.Generator().manual_seed(4)
    new = old - 0.1 * torch.rand(B, T, generator=g)
    parts = apart(roll, old, new, mask)
    stale = translate("AReaL", parts.staleness, "staleness")
    assert stale["approx_kl"] == pytest.approx(masked_mean(new - old, mask))
    assert stale["importance_weight"] == pytest.approx(masked_mean((new - old).exp(), mask))
    assert translate("OpenRLHF", parts.staleness, "staleness")["ppo_kl"] > 0
    d = new - roll
    got = translate("prime-rl", parts.both, "both")["mismatch_kl/all/mean"]
    assert got == pytest.approx(masked_mean(d.exp() - d - 1, mask))
    async_kl = translate("TRL", parts.both, "both")
    assert async_kl == {"kl (async GRPO)": got}


def test_one_name_two_numbers():
    """Same arrays, same name, other values: chi2_seq, and slime's averages."""
    numbers = monitor(*batch())
    verl, swift = (
        translate("verl", numbers)["rollout_corr/chi2_seq"],
        translate("ms-swift", numbers)["rollout_correction/chi2_seq"],
    )
    assert abs(verl - swift) > 0.1
    assert translate("slime", numbers)["mis_kl"] != pytest.approx(numbers["k1"], rel=1e-3)


def test_nemos_example_has_four_by_its_own_formula():
    """Their text says about 9 for -5 against -15: their code gives 4.3."""
    roll, train = torch.tensor([[-5.0]]), torch.tensor([[-15.0]])
    got = translate("NeMo-RL", monitor(roll, train))
    assert got["js_divergence_error"] == pytest.approx(4.307, abs=1e-3)
    assert got["gen_kl_error"] == pytest.approx(9, abs=1e-3)
    assert got["policy_kl_error"] == pytest.approx(22_015, abs=1)


def test_an_unknown_framework_is_told_of_the_known_ones():
    with pytest.raises(ValueError, match="framework must be one of verl, TRL"):
        translate("keras", {})
