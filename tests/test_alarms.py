"""Alarms: each has a source, rings beyond its bounds, and is blind where it says so."""

import math
import re

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tinyrl.alarms import ALARMS, BLIND, Alarm, judge
from tinyrl.intervals import Interval, intervals
from tinyrl.measures import NUMBERS
from tinyrl.monitoring import apart, monitor

B, T = 32, 256


def noise(seed=0):
    g = torch.Generator().manual_seed(seed)
    return torch.randn(B, T, generator=g, dtype=torch.float64)


def numbers(d):
    """Of deltas `[B, T]`, or of one that all tokens have."""
    roll = torch.full((B, T), -50.0, dtype=torch.float64)
    return monitor(roll, roll + d)


def ringing(found, **options):
    return {v.alarm.name for v in judge(found, **options) if v.rings}


EVERY = {alarm.name: alarm for alarm in ALARMS}


def test_every_alarm_has_a_source_a_date_and_a_known_number():
    assert len(EVERY) == len(ALARMS), "names are unique"
    for alarm in ALARMS:
        assert alarm.number in NUMBERS
        assert re.fullmatch(r"20\d\d-\d\d(-\d\d)?", alarm.date)
        assert re.search(r"\.(md|py)\b", alarm.source), "a file that can be looked up"
        assert alarm.says
        assert alarm.blind
        assert alarm.low is not None or alarm.high is not None
    assert BLIND.keys() == {alarm.number for alarm in ALARMS}


def test_bounds_are_those_of_the_sources():
    """Copied a second time from the texts that are cited."""
    assert {(a.source.split()[0], a.number, a.low, a.high) for a in ALARMS} == {
        ("verl", "ratio_mean", 0.5, 2.0),
        ("verl", "ess", 0.3, None),
        ("verl", "ratio_std", None, 1.0),
        ("verl", "k1", -0.1, 0.1),
        ("verl", "chi2", None, 1.0),
        ("NeMo-RL", "error_factor", None, 1.05),
        ("NeMo-RL", "k3", None, 0.001),
        ("NeMo-RL", "k3_reverse", None, 0.001),
        ("NeMo-RL", "log_cosh", None, 0.001),
        ("tinker-cookbook", "k1", None, 0.01),
        ("tinker-cookbook", "k2", None, 0.01),
        ("prime-rl", "k3", None, 0.015),
        ("prime-rl", "k3", None, 0.01),
        ("slime", "mean_abs", None, 0.1),
        ("Miles", "k3", None, 0.001),
        ("Miles", "k3", None, 0.1),
        ("slime", "k1", None, 1e-8),
    }


@pytest.mark.parametrize("alarm", ALARMS, ids=lambda alarm: alarm.name)
def test_it_rings_beyond_its_bounds_only(alarm):
    for bound, out in ((alarm.low, -1), (alarm.high, 1)):
        if bound is None:
            continue
        step = max(abs(bound), 1e-9) * 1e-6
        for value, rings in ((bound, False), (bound + out * step, True)):
            (verdict,) = judge({alarm.number: value}, of=alarm.of, alarms=[alarm])
            assert verdict.rings is rings
            assert verdict.value == value


def test_two_equal_policies_ring_nothing():
    assert ringing(numbers(0.0)) == set()
    roll = torch.full((B, T), -2.0)
    assert ringing(apart(roll, roll, roll).staleness, of="staleness") == set()


def test_noise_of_a_size_rings_the_sources_that_find_it_large():
    """They differ: noise of 5 % is beyond NeMo-RL's K3 and slime's band, within others."""
    assert ringing(numbers(0.05 * noise())) == {
        *("NeMo-RL KL", "NeMo-RL KL, other way", "slime dense band")
    }
    assert ringing(numbers(0.02 * noise())) == set()
    silent = {a.name for a in ALARMS if a.of == "mismatch"} - ringing(numbers(3 * noise()))
    assert silent <= {"verl KL", "Tinker KL v1"}, "noise has no mean"


# What each is blind to


def shift_by_one():
    """Logprobs of the neighbours: the deltas of a response add up to nearly nothing."""
    x = 2 * noise()
    return x.roll(1, 1) - x


def rare(d):
    """One token far off among 8,192."""
    out = torch.zeros(B, T, dtype=torch.float64)
    out[0, 0] = d
    return out


CASES = {  # by number: deltas at which its alarms are silent, and one that is not blind
    "k1": (shift_by_one(), "k3"),
    "ratio_mean": (torch.tensor(0.3) * noise().sign(), "k3"),
    "ess": (torch.tensor(math.log(0.4)), "ratio_mean"),
    "ratio_std": (torch.tensor(math.log(0.4)), "ratio_mean"),
    "k2": (rare(-3.0), "max_abs"),
    "k3": (rare(-3.0), "max_abs"),
    "chi2": (torch.tensor(-3.0), "k3"),
    "error_factor": (torch.tensor(-0.045), "seq_mean"),
    "mean_abs": (torch.tensor(-0.09), "seq_mean"),
    "log_cosh": (rare(-3.0), "max_abs"),
}


@pytest.mark.parametrize("name", CASES)
def test_what_it_is_blind_to(name):
    """The alarms of a number are silent, while another number is far from its 0 or 1."""
    d, seen_by = CASES[name]
    found = numbers(d)
    mine = [a for a in ALARMS if a.number == name and a.of == "mismatch"]
    assert [v.alarm.name for v in judge(found, alarms=mine) if v.rings] == []
    if seen_by in BLIND:
        theirs = [a for a in ALARMS if a.number == seen_by]
        assert any(v.rings for v in judge(found, alarms=theirs))
    else:
        assert abs(found[seen_by]) > 2


def test_k3_reverse_is_decided_by_one_token():
    """NeMo-RL's own example: -5 against -15 is 22,015 there and 9 in K3."""
    found = numbers(rare(-10.0))
    assert found["k3_reverse"] * B * T == pytest.approx(22_015, rel=1e-4)
    assert found["k3"] * B * T == pytest.approx(9, rel=1e-4)
    assert "NeMo-RL KL, other way" in ringing(found)


def test_a_size_does_not_tell_which_side_is_wrong():
    for name in ("k2", "error_factor", "mean_abs", "log_cosh"):
        assert numbers(0.2)[name] == pytest.approx(numbers(-0.2)[name], rel=1e-12)


def test_nothing_sees_tokens_that_the_rollout_never_samples():
    """Raw logprobs under top-p: both sides report the full distribution, only the tokens
    come of a cut one. Every number is that of two equal policies."""
    logp = torch.tensor([0.6, 0.3, 0.1], dtype=torch.float64).log()
    g = torch.Generator().manual_seed(0)
    ids = torch.multinomial(torch.tensor([0.6, 0.3, 0.0]), B * T, True, generator=g)
    reported = logp[ids].view(B, T)
    assert (ids < 2).all(), "the third token is cut away"
    assert ringing(monitor(reported, reported)) == set()


@given(st.lists(st.floats(0, 2), min_size=2, max_size=30))
def test_verls_mean_and_spread_cannot_ring_on_weights_cut_at_2(weights):
    """As their notes say: verl takes them of weights cut to 0 .. 2."""
    w = torch.tensor(weights, dtype=torch.float64)
    assert not EVERY["verl weight spread"].rings(w.std(correction=0).item() - 1e-12)
    assert w.mean() <= EVERY["verl mean weight"].high


@given(st.lists(st.floats(0.5, 2), min_size=1, max_size=30))
def test_verls_ess_could_not_ring_on_weights_cut_from_below_too(weights):
    """0.64 by Kantorovich's inequality: 4 a b / (a + b)^2 with a = 1/2, b = 2."""
    w = torch.tensor(weights, dtype=torch.float64)
    assert w.mean() ** 2 / (w * w).mean() >= 0.64 - 1e-12
    assert EVERY["verl ESS"].low < 0.64


# Judging


def test_with_intervals_a_verdict_says_whether_it_is_sure():
    alarm = EVERY["verl KL"]
    cases = {
        Interval(0.2, 0.15, 0.3): (True, True),
        Interval(0.2, 0.05, 0.3): (True, False),
        Interval(0.05, 0.01, 0.2): (False, False),
        Interval(0.05, -0.01, 0.09): (False, True),
        Interval(-0.2, -0.3, 0.3): (True, False),  # both ends ring, on either side
    }
    for interval, (rings, sure) in cases.items():
        (verdict,) = judge({"k1": interval}, alarms=[alarm])
        assert (verdict.rings, verdict.sure) == (rings, sure)
    (verdict,) = judge({"k1": 0.2}, alarms=[alarm])
    assert verdict.sure is None


def test_what_intervals_gives_can_be_judged():
    roll = torch.full((B, T), -50.0, dtype=torch.float64)
    found = intervals(
        roll, roll + 0.05 * noise(), generator=torch.Generator().manual_seed(0)
    )
    verdicts = {v.alarm.name: v for v in judge(found)}
    assert verdicts["NeMo-RL KL"].rings
    assert verdicts["NeMo-RL KL"].sure
    assert not verdicts["verl ESS"].rings
    assert len(verdicts) == sum(a.of == "mismatch" for a in ALARMS)


def test_ringing_ones_come_first():
    found = judge(numbers(0.05 * noise()))
    assert [v.rings for v in found] == sorted((v.rings for v in found), reverse=True)


def test_staleness_has_its_own_alarms():
    roll = torch.full((B, T), -2.0, dtype=torch.float64)
    found = apart(roll, roll, roll - 1e-6)
    assert ringing(found.staleness, of="staleness") == {"slime first step"}
    assert "slime first step" not in {v.alarm.name for v in judge(found.mismatch)}


def test_a_verdict_reads_as_a_sentence():
    (verdict,) = judge({"k1": Interval(0.2, 0.05, 0.3)}, alarms=[EVERY["verl KL"]])
    text = str(verdict)
    assert text.startswith("verl KL: rings (the interval reaches across): k1 0.2, bounds")
    assert "-0.1 .. 0.1" in text
    assert "2026-04-30" in text
    assert verdict.alarm.blind in text
    (silent,) = judge({"k3": 1e-5}, alarms=[EVERY["NeMo-RL KL"]])
    assert "silent: k3 1e-05" in str(silent)


def test_bad_numbers_are_named():
    with pytest.raises(ValueError, match="k3 is NaN: no alarm can judge it"):
        judge({"k3": math.nan})
    with pytest.raises(ValueError, match="none of the numbers has an alarm: reward"):
        judge({"reward": 1.0})
    with pytest.raises(ValueError, match="none of the numbers has an alarm"):
        judge({"k3": 1.0}, of="staleness")


def test_an_alarm_of_ones_own_can_be_judged_beside_them():
    own = Alarm("ours", "k3", None, 0.5, "notes.md", "2026-11", "documentation", "why")
    (verdict,) = judge({"k3": 1.0}, alarms=[own])
    assert verdict.rings
