"""Two causes apart, and the numbers of many steps in a row."""

import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tinyrl.metrics import compare
from tinyrl.monitoring import apart, averages, monitor, series
from tinyrl.tally import tally

seeds = st.integers(0, 2**32 - 1)


def three(seed, mismatch=0.02, staleness=0.3, B=8, T=16):
    g = torch.Generator().manual_seed(seed)
    roll = -3 * torch.rand(B, T, generator=g, dtype=torch.float64) - 2
    old = roll + mismatch * torch.randn(B, T, generator=g, dtype=torch.float64)
    new = old + staleness * torch.randn(B, T, generator=g, dtype=torch.float64)
    return roll, old.clamp(max=0), new.clamp(max=0), torch.ones(B, T).bool()


@given(seeds)
def test_each_cause_has_its_own_numbers(seed):
    roll, old, new, mask = three(seed)
    got = apart(roll, old, new, mask)
    assert got.mismatch == monitor(roll, old, mask)
    assert got.staleness == monitor(old, new, mask)
    assert got.both == monitor(roll, new, mask)
    for name in ("mean", "seq_mean", "k1", "log_ppl_diff"):
        parts = got.mismatch[name] + got.staleness[name]
        assert got.both[name] == pytest.approx(parts, abs=1e-12), name


def test_one_number_cannot_tell_the_causes_apart_but_two_can():
    stale, wrong = apart(*three(0, 0.02, 0.3)), apart(*three(0, 0.3, 0.02))
    assert stale.both["k3"] == pytest.approx(wrong.both["k3"], rel=0.3)
    assert stale.staleness["k3"] > 50 * stale.mismatch["k3"]
    assert wrong.mismatch["k3"] > 50 * wrong.staleness["k3"]


def test_causes_may_cancel():
    """An update that undoes the mismatch: two arrays show nothing."""
    roll, old, _, mask = three(0)
    got = apart(roll, old, roll, mask)
    assert got.both["max_abs"] == 0
    assert got.mismatch["max_abs"] == got.staleness["max_abs"] > 0


def test_options_go_to_each_of_them():
    R = torch.arange(8.0)
    got = apart(*three(0), clip=0.01, rewards=R)
    for part in got:
        assert part["reward_mean"] == 3.5
    assert got.mismatch["clip_fraction"] > 0.5


@given(seeds)
def test_averages_are_all_but_the_quantiles(seed):
    roll, old, _, mask = three(seed)
    all_of_them = monitor(roll, old, mask)
    some = averages(tally(roll, old, mask))
    rest = {"p50_abs", "p90_abs", "p99_abs", "ratio_p01", "ratio_p50", "ratio_p99"}
    assert some == {n: v for n, v in all_of_them.items() if n not in rest}
    assert rest < all_of_them.keys()


def test_arrays_are_left_as_they_were():
    roll, old, _, mask = three(0)
    copies = [x.clone() for x in (roll, old)]
    monitor(roll, old, mask)
    monitor(roll.numpy(), old.numpy())
    assert torch.equal(roll, copies[0])
    assert torch.equal(old, copies[1])


def test_a_series_has_every_step():
    roll, old, new, mask = three(0)
    steps = [monitor(roll, x, mask) for x in (roll, old, new)]
    steps[1] |= {"reward_mean": 0.5}
    got = series(steps)
    assert got["k3"].tolist() == [step["k3"] for step in steps]
    assert got["k3"].dtype == torch.float64
    nan, value, other = got["reward_mean"].tolist()
    assert math.isnan(nan)
    assert math.isnan(other)
    assert value == 0.5
    assert series([]) == {}


def test_a_series_takes_what_compare_gives():
    roll, old, _, mask = three(0)
    ids = torch.zeros(8, 16).long()
    some = compare(roll, old, mask, top1_rollout=ids, top1_train=ids)
    got = series([compare(roll, roll, mask), some])
    assert got["k3"].tolist() == [0, some.k3]
    assert math.isnan(got["top1_agreement"][0])
    assert got["top1_agreement"][1] == 1
    assert got["tokens"].tolist() == [128, 128]


MEASURE = """
import torch
from tinyrl.monitoring import monitor

def status(key):
    lines = open("/proc/self/status").read().splitlines()
    return next(int(x.split()[1]) for x in lines if x.startswith(key)) * 1024

B, T = 256, 8192
g = torch.Generator().manual_seed(0)
roll = -0.1 - torch.rand(B, T, generator=g)
train = (roll + 0.02 * torch.randn(B, T, generator=g)).clamp(max=0)
mask = torch.ones(B, T, dtype=torch.bool)
monitor(roll[:2], train[:2])
open("/proc/self/clear_refs", "w").write("5")
before = status("VmRSS")
monitor(roll, train, mask)
print((status("VmHWM") - before) / (2 * roll.nbytes + mask.nbytes))
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="needs Linux")
def test_a_large_batch_takes_no_more_than_twice_its_own_memory():
    # What is alive, and not what glibc keeps for later: that differs from run to run.
    fixed = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536"}
    done = subprocess.run(
        [sys.executable, "-c", MEASURE],
        capture_output=True,
        text=True,
        check=True,
        env=fixed,
    )
    assert float(done.stdout) <= 2


def test_a_correction_that_is_none_is_refused():
    roll = torch.full((2, 3), -1.0)
    with pytest.raises(ValueError, match="correction must be a Correction, not 0"):
        monitor(roll, roll, correction=0.5)
