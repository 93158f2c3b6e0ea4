"""Few tokens or responses that hold most of K3, and the tail that rounding gives anyway."""

from __future__ import annotations

import pytest
import torch

from faults import late, rounded, temperature
from policies import NOISES, Policy, logp
from tinyrl.diagnosis import concentration, diagnose
from tinyrl.diagnosis.concentration import FAR_RESPONSE, FAR_TOKEN, scaled
from tinyrl.diagnosis.statistics import quantile

SEEDS = range(12)
SHARP = [(1, 12), (0.5, 4), (4, 30), (10, 40)]


def draw(seed, B=256, T=64):
    return Policy.draw(seed, B, T, 64, SHARP[seed % 4])


def places(p, n):
    """Real tokens `[n, 2]`, each once."""
    real = p.mask.nonzero()
    return real[torch.randperm(len(real), generator=p.generator)[:n]]


@pytest.mark.parametrize("sizes", [[-6.0] * 12, [-4, -3, -2, -1.5, 3], [5.0]])
def test_few_bad_tokens_are_named_with_their_places(sizes):
    for seed in SEEDS:
        p = draw(seed)
        a, b = rounded(p)
        at = places(p, len(sizes))
        size = torch.tensor(sizes)
        # A token that gets likelier has to be unlikely before.
        a[at[:, 0], at[:, 1]] = torch.where(size > 0, -7.0, a[at[:, 0], at[:, 1]])
        b[at[:, 0], at[:, 1]] = a[at[:, 0], at[:, 1]] + size
        verdict = diagnose(a, b, p.mask)
        assert verdict.findings == ()
        (note,) = verdict.notes
        n, s = len(sizes), "s" * (len(sizes) > 1)
        assert note.en.startswith(f"{n} token{s}, ")
        assert note.zh.startswith(f"{n} 个 token")
        worst = at[size.abs().argmax()] if n < 12 else at
        named = [f"row {row} column {column}" in note.en for row, column in at.tolist()]
        assert sum(named) == min(n, 3)
        assert n == 12 or f"row {worst[0]} column {worst[1]}" in note.en
        assert "Without" in note.en
        assert "usual for a dense model" in note.en.split("Without")[1] or seed % 4 == 3
        assert f"over {int(p.mask.sum()) - n:,} tokens" in verdict.rest.en
        assert "near 1" in verdict.rest.en


@pytest.mark.parametrize("off", [-2.0, -0.7, 1.0])
def test_one_bad_response_is_named(off):
    for seed in SEEDS:
        p = draw(seed)
        a, b = rounded(p)
        a[17] -= 2 * (off > 0)
        b[17] = a[17] + off
        (note,) = diagnose(a, b, p.mask).notes
        assert note.en.startswith("1 response, 0.39% of all, holds ")
        assert "(row 17)" in note.en
        assert "第 17 行" in note.zh


def test_two_responses_that_changed_places_are_named():
    for seed in SEEDS:
        p = draw(seed)
        a, b = rounded(p)
        both = p.mask[3] & p.mask[90]
        p.mask[[3, 90]] = both
        b[[3, 90]] = b[[90, 3]]
        notes = diagnose(a, b, p.mask).notes
        assert any("2 responses" in note.en and "row 90" in note.en for note in notes)


@pytest.mark.parametrize("noise", NOISES)
def test_the_tail_of_rounding_is_not_told(noise):
    for seed in range(24):
        p = draw(seed, *((256, 64), (32, 32))[seed % 2])
        roll = p.logits(noise)
        ids = p.sample(roll)
        a, b = (logp(z, ids).double() for z in (roll, p.logits()))
        assert concentration.few(a, b, p.mask) is None
        u = scaled(a, b)[p.mask]
        assert u.max() < FAR_TOKEN * max(quantile(u, 0.99), 1e-3)


def test_a_token_at_the_bound_is_told_from_one_beyond():
    """The control: the same token nearer and nearer to the others' tail."""
    p = draw(0)
    a, b = rounded(p)
    tail = quantile(scaled(a.double(), b.double())[p.mask], 0.99)
    assert FAR_RESPONSE == FAR_TOKEN == 6
    row, column = places(p, 1)[0].tolist()
    told = []
    for times in (3, 300):
        a[row, column] = -3.0
        b[row, column] = -3.0 - times * tail
        told.append(diagnose(a, b, p.mask).notes != ())
    assert told == [False, True]


def test_what_few_tokens_have_in_common_is_told():
    """Zeros that are too few to be sure of, at the end of responses; one column."""
    last = zeros = column = 0
    for seed in SEEDS:
        p = draw(seed)
        a, b = rounded(p)
        rows = torch.arange(5) * 40
        end = p.mask[rows].sum(1) - 1
        b[rows, end] = a[rows, end] - 5
        (note,) = diagnose(a, b, p.mask).notes
        last += "all are the last of their response" in note.en
        assert "exactly 0.0" not in note.en
        a, b = rounded(p)
        b[rows, 7] = a[rows, 7] - 5
        (note,) = diagnose(a, b, p.mask).notes
        column += "all stand in column 7" in note.en
        far = torch.zeros_like(p.mask)
        far[rows, 7] = True
        a[far] = 0
        common = concentration._common(a, b, p.mask, far)
        zeros += "the rollout's logprobs are exactly 0.0 there" in common.en
    assert last == zeros == column == len(SEEDS)


def test_faults_of_all_tokens_are_no_few_tokens():
    for seed in SEEDS:
        p = draw(seed)
        for a, b in (late(p), temperature(p, 0.7)):
            assert diagnose(a, b, p.mask).notes == ()
