"""Lab 06's exercises against truth from elsewhere, and its open question's numbers."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.distributions import Categorical
from transformers import (
    MinPLogitsWarper,
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from lab_sources import lab
from lab_truths import close, draw, seeds
from tinyrl.course.checking.judging import judge
from tinyrl.course.exercises import LABS, find
from tinyrl.sampling import Sampler, occurred

NO_IDS = torch.zeros(1, 1, dtype=torch.long)


@seeds
def test_temperature_is_that_of_transformers_and_of_a_power(seed: int) -> None:
    for logits, T in draw("tempered_logp", seed):
        mine = find("tempered_logp").reference(logits, T)
        close(mine, TemperatureLogitsWarper(T)(NO_IDS, logits).log_softmax(-1))
        power = logits.softmax(-1) ** (1 / T)
        close(mine.exp(), power / power.sum(-1, keepdim=True))


@seeds
@pytest.mark.parametrize(
    ("name", "warper"),
    [
        ("top_k_kept", TopKLogitsWarper),
        ("top_p_kept", TopPLogitsWarper),
        ("min_p_kept", MinPLogitsWarper),
    ],
)
def test_cuts_are_those_of_transformers(name: str, warper: Any, seed: int) -> None:
    """Ordinary inputs and ties, in both precisions: no border is near a token."""
    some = 0
    for case in find(name).inputs(seed):
        logits, setting = case.args
        assert isinstance(logits, Tensor)
        kept = find(name).reference(logits, setting)
        for z in (logits, logits.double()):
            theirs = warper(setting)(NO_IDS, z.clone()).isfinite()
            assert torch.equal(find(name).reference(z, setting), theirs)
        assert torch.equal(kept, theirs)
        some += not kept.all()
    assert some >= 4, "else nothing is examined"


@seeds
def test_a_sum_just_below_p_is_not_enough(seed: int) -> None:
    for logits, p in draw("top_p_kept", seed):
        kept = find("top_p_kept").reference(logits, p)
        for keep, row in zip(kept, logits.softmax(-1), strict=True):
            inside = sorted(row[keep].tolist())
            assert math.fsum(inside[1:]) < p <= math.fsum(inside)


@seeds
def test_the_penalty_is_that_of_transformers(seed: int) -> None:
    for logits, ids, r in draw("repetition_penalty", seed):
        theirs = RepetitionPenaltyLogitsProcessor(r)(ids, logits.clone())
        close(find("repetition_penalty").reference(logits, ids, r), theirs)
        seen = occurred(ids, ids[:, :1], logits.shape[-1])[:, 0]
        close(theirs, Sampler(repetition_penalty=r).penalised(logits, seen))
        both = [(logits[seen] < 0).any(), (logits[seen] > 0).any(), not seen.all()]
        assert all(both), "else nothing is examined"
        twice = [len(set(row)) < len(row) for row in ids.tolist()]
        assert all(twice)


def test_the_gradient_of_a_token_seen_twice_counts_once() -> None:
    """By differences: what `gather` and `scatter` return for it is double."""
    z = torch.tensor([[1.0, 2.0]], dtype=torch.float64, requires_grad=True)
    ids = torch.tensor([[0, 0]])
    penalised = find("repetition_penalty").reference(z, ids, 2.0)
    (gradient,) = torch.autograd.grad(penalised.sum(), z)
    assert gradient.tolist() == [[0.5, 1.0]]
    wrong = find("repetition_penalty").mistakes["gathered"][0](z, ids, 2.0)
    (doubled,) = torch.autograd.grad(wrong.sum(), z)
    assert doubled.tolist() == [[1.0, 1.0]]


@seeds
def test_log_mass_by_counting_probabilities(seed: int) -> None:
    for logits, kept in draw("kept_log_mass", seed):
        p = logits.softmax(-1).tolist()
        wanted = [
            math.log(math.fsum(q for q, k in zip(row, some, strict=True) if k))
            for row, some in zip(p, kept.tolist(), strict=True)
        ]
        close(find("kept_log_mass").reference(logits, kept), wanted)
        assert max(wanted) < 0


@seeds
def test_replay_is_the_categorical_of_the_kept(seed: int) -> None:
    for logits, ids, kept, mask in draw("replayed_logp", seed):
        mine = find("replayed_logp").reference(logits, ids, kept, mask)
        cut = Categorical(probs=logits.softmax(-1) * kept)
        close(mine[mask], cut.log_prob(ids)[mask])
        assert (mine[~mask] == 0).all()
        full = Categorical(logits=logits).log_prob(ids)
        log_S = find("kept_log_mass").reference(logits[mask], kept[mask])
        close((full[mask] - mine[mask]), log_S)
        theirs = Sampler().reported(logits, ids, kept=kept)
        close(mine[mask], theirs[mask])


@seeds
def test_unreachable_mass_is_one_minus_s(seed: int) -> None:
    for logits, kept, mask in draw("unreachable_mass", seed):
        S = find("kept_log_mass").reference(logits[mask], kept[mask]).exp()
        close(find("unreachable_mass").reference(logits, kept, mask), (1 - S).mean())


@seeds
def test_what_is_never_drawn_is_what_the_weights_miss(seed: int) -> None:
    """Enumerated: E over the engine's tokens of p / mu falls short of 1 by that mass."""
    for logits, kept, mask in draw("unreachable_mass", seed):
        p = logits[mask].softmax(-1)
        mu = p * kept[mask]
        mu = mu / mu.sum(-1, keepdim=True)
        weight = torch.where(mu > 0, p / mu, 0.0)
        close(
            1 - (mu * weight).sum(-1).mean(),
            find("unreachable_mass").reference(logits, kept, mask),
        )


def test_answers_in_float32_that_are_careful_are_right() -> None:
    def by_exp(logits: Tensor, kept: Tensor) -> Tensor:
        """As written on paper, after the largest logit was taken off."""
        w = (logits - logits.amax(-1, keepdim=True)).exp()
        cut = torch.where(kept, w, 0.0).sum(-1)
        return torch.log(cut) - torch.log(w.sum(-1))

    told = [judge(find("kept_log_mass"), by_exp, seed) for seed in range(5)]
    assert {v.stage for v in told} == {"numbers"}, "only hopeless sets are too much for it"

    def sorted_cut(logits: Tensor, p: float) -> Tensor:
        """Rows one by one, in plain Python."""
        rows = []
        for row in logits.softmax(-1).tolist():
            total, kept = 0.0, [False] * len(row)
            for i in sorted(range(len(row)), key=lambda i: -row[i]):
                if total < p:
                    kept[i] = True
                total += row[i]
            rows.append(kept)
        return torch.tensor(rows)

    told = [judge(find("top_p_kept"), sorted_cut, seed) for seed in range(20)]
    assert {v.outcome for v in told} == {"right"}


@seeds
def test_sums_come_as_near_to_p_as_the_lab_says_and_from_both_sides(seed: int) -> None:
    off = []
    for logits, p in (c.args for c in find("top_p_kept").inputs(seed)):
        q = torch.as_tensor(logits).double().softmax(-1)
        off.append((q.sort(-1, descending=True).values.cumsum(-1) - p).flatten())
    assert torch.cat(off).abs().min() > 5e-4
    (last,) = (o for c, o in zip(find("top_p_kept").inputs(seed), off, strict=True)
               if "just" in c.what.en)  # fmt: skip
    assert {s for d in last.tolist() if abs(d) < 4e-3 for s in (d > 0,)} == {True, False}


@seeds
def test_a_kept_logit_of_0_is_kept_and_cut_ones_are_not_hopeless(seed: int) -> None:
    for name in ("kept_log_mass", "replayed_logp", "unreachable_mass"):
        for case in find(name).inputs(seed):
            if case.stage != "inputs":
                continue
            args = dict(zip(find(name).arguments, case.args, strict=True))
            logits, kept = torch.as_tensor(args["logits"]), torch.as_tensor(args["kept"])
            if "hundredth" not in case.what.en:
                assert ((logits == 0) & kept).any(-1).all()
    for name in ("kept_log_mass", "replayed_logp"):
        (far,) = (c.args for c in find(name).inputs(seed) if "next to no" in c.what.en)
        assert torch.as_tensor(far[0]).min() < -65504, "FP16's largest"


@seeds
def test_a_tail_of_1e_9_leaves_nothing_of_1_minus_s_in_any_order(seed: int) -> None:
    (tiny,) = (c.args for c in find("unreachable_mass").inputs(seed) if "1e-9" in c.what.en)
    logits, kept, mask = (torch.as_tensor(a) for a in tiny)
    z, some = logits[mask], kept[mask]
    p = z.softmax(-1)
    sums = [(p * some).sum(-1), p.flip(-1).mul(some.flip(-1)).cumsum(-1)[:, -1]]
    sums.append((z.masked_fill(~some, -torch.inf).logsumexp(-1) - z.logsumexp(-1)).exp())
    assert all((1 - S == 0).all() for S in sums)


@seeds
def test_both_kinds_of_padding_and_ties_are_examined(seed: int) -> None:
    at, above, far, near = (
        c.args for c in find("top_k_kept").inputs(seed) if c.stage == "numbers"
    )
    for tied, more, different in ((at, True, 7), (above, False, 8), (near, False, 9)):
        logits, k = tied
        assert isinstance(logits, Tensor)
        assert isinstance(k, int)
        assert ((find("top_k_kept").reference(logits, k).sum(-1) > k) == more).all()
        assert [len(row.unique()) for row in logits] == [different] * len(logits)
    p = torch.as_tensor(far[0]).softmax(-1).sort(-1, descending=True).values
    assert (p[:, 4] == 0).all(), "of the five largest, too"
    gaps = torch.as_tensor(near[0]).sort(-1).values.diff()
    assert ((gaps < 1e-5).sum(-1) == 3).all()
    for name in ("replayed_logp", "unreachable_mass"):
        (padded,) = (c.args for c in find(name).inputs(seed) if c.stage == "padding")
        z, mask = padded[0], padded[-1]
        assert isinstance(z, Tensor)
        assert isinstance(mask, Tensor)
        assert z[~mask].isnan().all()
    (tiny,) = (c.args for c in find("unreachable_mass").inputs(seed) if "1e-9" in c.what.en)
    assert 1e-11 < find("unreachable_mass").reference(*tiny) < 1e-7


def test_numbers_in_the_messages() -> None:
    said = " ".join(m.en for e in LABS["lab06_decoding"] for _, m in e.mistakes.values())
    assert "no number between 1 - 6e-8 and 1" in said
    below = torch.nextafter(torch.tensor(1.0), torch.tensor(0.0))
    assert f"{1 - below.double().item():.0e}" == "6e-08"


def test_open_question_has_right_numbers() -> None:
    cells = {
        c.metadata.nbgrader.grade_id: c.source
        for c in lab("lab06_decoding").cells
        if "nbgrader" in c.metadata
    }
    assert f"{math.exp(200 * -0.06):.0e}" == "6e-06"
    assert f"{math.log(0.9):.3f}" == "-0.105"
    for name in ("open_rubric", "open_answer"):
        for text in ("200 * -0.06 = -12", "exp(-12) = 6e-6", "log 0.9 = -0.105"):
            assert text in cells[name]
    for text in ("top-p 0.9", "-0.06 a token", "200 tokens", "outside 0.1 to 3"):
        assert text in cells["open_rubric"]


def test_the_guess_has_the_answer_that_the_lab_means() -> None:
    logits = torch.tensor([[0.5, 0.25, 0.15, 0.1]]).log()
    kept = find("top_p_kept").reference(logits, 0.7)
    assert kept.sum() == 2
    assert find("kept_log_mass").reference(logits, kept).exp().item() == pytest.approx(0.75)
