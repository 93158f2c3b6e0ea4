"""Lab 05's exercises against truth from elsewhere, and its open question's numbers."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from lab_sources import lab
from lab_truths import close, draw, seeds
from tinyrl import tokens
from tinyrl.collate import Collator, lay_out
from tinyrl.course.exercises import find
from tinyrl.logprobs import token_logp
from tinyrl.metrics import compare
from tinyrl.objectives import aggregate
from tinyrl.positions import places


@seeds
def test_first_difference_is_the_librarys_and_what_a_prefix_says(seed: int) -> None:
    seen = set()
    for a, b in draw("first_difference", seed, ("example", "property", "inputs")):
        at = find("first_difference").reference(a, b)
        theirs = tokens.first_difference(a, b)
        assert at == (-1 if theirs is None else theirs)
        if at >= 0:
            assert torch.equal(a[:at], b[:at])
            assert not torch.equal(a[: at + 1], b[: at + 1])
        seen.add((at < 0, len(a) == len(b), at == min(len(a), len(b))))
    assert len(seen) == 4, "same, within, at the end, and within lists of two lengths"


@seeds
def test_end_mask_is_the_librarys_and_plain_pythons(seed: int) -> None:
    for ids, ends in draw("end_mask", seed):
        mask = find("end_mask").reference(ids, ends)
        assert torch.equal(mask, tokens.response_mask(ids, ends.tolist()))
        for row, got in zip(ids.tolist(), mask.tolist(), strict=True):
            length = next((t + 1 for t, i in enumerate(row) if i in ends), len(row))
            assert got == [t < length for t in range(len(row))]
        assert not mask.all()
        assert mask.all(1).any(), "one is cut off"


@seeds
def test_positions_are_those_of_the_collator(seed: int) -> None:
    for (attention,) in draw("position_ids", seed):
        positions = find("position_ids").reference(attention)
        for told, real in zip(positions, attention, strict=True):
            assert told[real].tolist() == list(range(int(real.sum())))
            assert not told[~real].any()
        assert (~attention[:, 0]).any()
        assert (~attention[:, -1]).any()
    prompts, responses = [[1, 2, 3], [1]], [[4], [5, 6]]
    made = lay_out(prompts, responses, Collator("left"), pad_id=0, width=9)
    mine = find("position_ids").reference(made.segments >= 0)
    assert torch.equal(mine, made.positions)


@seeds
def test_visibility_is_that_of_the_model(seed: int) -> None:
    for (segments,) in draw("packed_visible", seed):
        L = segments.shape[1]
        theirs = places(torch.arange(L), 0, L, 8, 100.0, segments).visible
        visible = find("packed_visible").reference(segments)
        assert torch.equal(visible, theirs)
        assert visible.any(-1).all(), "every query sees a key"
        assert (segments.diff() != 0).sum() > len(segments), "several a row"
        assert (segments < 0).any()


@seeds
def test_borders_that_a_wrong_answer_may_miss_are_drawn(seed: int) -> None:
    """The first place and the last, one of several, a filler's id."""
    pairs = draw("first_difference", seed)
    places = [find("first_difference").reference(a, b) for a, b in pairs]
    assert 0 in places
    assert any(at == min(len(a), len(b)) and torch.cat([a, b])[at:].min() == 0
               for at, (a, b) in zip(places, pairs, strict=True))  # fmt: skip
    ended = set()
    for ids, ends in draw("end_mask", seed):
        mask = find("end_mask").reference(ids, ends)
        last = mask[:, -1] & torch.isin(ids[:, -1], ends)
        ended |= {len(ends), *(["first"] if (mask.sum(1) == 1).any() else [])}
        ended |= {"last"} if last.any() else set()
    assert ended == {1, 2, 3, "first", "last"}
    for (segments,) in draw("packed_visible", seed):
        assert (segments[:, -1] >= 0).any(), "a row without padding at the end"
        runs = segments[1].unique_consecutive(return_counts=True)[1]
        assert (runs == 1).any(), "a conversation of one token"
    (lone,) = draw("position_ids", seed)[-1]
    assert (lone.sum(1) == 1).all()
    assert lone[:, 0].any()
    assert lone[:, -1].any()
    assert any(response[:, 1].any() for _, _, response in draw("padded_logp", seed))
    limits = [c.args[1:] for c in find("reward_in_step").inputs(seed)]
    assert any(limit == 1 for _, limit in limits)
    assert any(isinstance(m, Tensor) and m.shape[1] == n for m, n in limits)
    assert any(isinstance(m, Tensor) and m.shape[1] < int(n) for m, n in limits)


@seeds
def test_the_gradient_of_padded_logp_is_finite_with_nan_in_the_padding(seed: int) -> None:
    (case,) = (c for c in find("padded_logp").inputs(seed) if c.stage == "gradient")
    logits, ids, response = case.args
    assert isinstance(logits, Tensor)
    assert logits.isnan().any()
    z = logits.double().requires_grad_()
    (mine,) = torch.autograd.grad(find("padded_logp").reference(z, ids, response).sum(), z)
    wanted = torch.zeros_like(mine)
    for b, c in torch.as_tensor(response).nonzero().tolist():
        wanted[b, c - 1] = -logits[b, c - 1].double().softmax(-1)
        wanted[b, c - 1, ids[b, c]] += 1  # type: ignore[index]
    close(mine, wanted)


def one_by_one(logits: Tensor, ids: Tensor, response: Tensor) -> Iterator[float]:
    for b, row in enumerate(response.tolist()):
        for c, real in enumerate(row):
            z = logits[b, c - 1].tolist()
            total = math.fsum(math.exp(x) for x in z)
            yield z[int(ids[b, c])] - math.log(total) if real else 0.0


@seeds
def test_logprobs_in_plain_python_and_the_librarys(seed: int) -> None:
    for logits, ids, response in draw("padded_logp", seed, ("example", "inputs")):
        logp = find("padded_logp").reference(logits, ids, response)
        close(logp.flatten(), [*one_by_one(logits, ids, response)])
        theirs = token_logp(logits[:, :-1], ids[:, 1:])
        close(logp[:, 1:], theirs.where(response[:, 1:], 0.0))
        assert not response[:, 0].any()


@seeds
def test_kept_loss_is_the_librarys_mean_over_what_is_kept(seed: int) -> None:
    for loss, mask, cut in draw("kept_loss", seed, ("example", "inputs")):
        mine = find("kept_loss").reference(loss, mask, cut)
        close(mine, aggregate(loss, mask & ~cut[:, None], "token_mean"))
        pairs = [(b, t) for b, t in mask.nonzero().tolist() if not cut[b]]
        close(mine, math.fsum(float(loss[at]) for at in pairs) / len(pairs))
        assert 0 < int(cut.sum()) < len(cut)
    cases = find("kept_loss").inputs(seed)
    gone = [(c.stage, c.args) for c in cases if "every" in c.what.en]
    assert [stage for stage, _ in gone] == ["gradient", "numbers"]
    assert all(find("kept_loss").reference(*args) == 0 for _, args in gone)
    means = [find("kept_loss").reference(*c.args) for c in cases]
    assert min(means) < 0 < max(means)


@seeds
def test_reward_in_step_in_plain_python(seed: int) -> None:
    for reward, mask, limit in draw("reward_in_step", seed, ("example", "inputs")):
        rewards, kept = find("reward_in_step").reference(reward, mask, limit)
        lengths = mask.sum(1).tolist()
        wanted = torch.zeros(len(reward), min(mask.shape[1], limit)).double()
        for b, n in enumerate(lengths):
            if n <= limit:
                wanted[b, n - 1] = reward[b]
        close(rewards, wanted)
        assert torch.equal(kept, mask[:, :limit])
        assert (rewards[~kept] == 0).all(), "no reward lies in padding"
        assert {n < limit for n in lengths} == {True, False}
        assert limit in lengths
        assert max(lengths) > limit


@seeds
def test_k3_is_the_librarys_and_padding_makes_it_large(seed: int) -> None:
    for train, rollout, mask in draw("k3_with_padding", seed):
        real, padded = find("k3_with_padding").reference(train, rollout, mask)
        close(real, compare(rollout, train, mask).k3)
        deltas = (train - rollout).flatten().tolist()
        close(padded, math.fsum(math.exp(d) - 1 - d for d in deltas) / len(deltas))
        assert (rollout[~mask] == 0).all()
        assert padded > 2 * real


def test_numbers_in_the_open_question() -> None:
    cells = {
        c.metadata.nbgrader.grade_id: " ".join(c.source.split())
        for c in lab("lab05_templates").cells
        if "nbgrader" in c.metadata
    }
    columns = 512 * 4000
    assert columns == 2_048_000
    assert columns == 2 * 1_024_000
    rubric, answer = cells["open_rubric"], cells["open_answer"]
    for text in ("512 * 4,000 = 2,048,000", "1,024,000"):
        assert text in rubric
        assert text in answer
    assert "of 512 responses of 4,000 columns" in rubric.lower()
