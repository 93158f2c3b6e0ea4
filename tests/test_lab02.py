"""Lab 02's exercises against truth from elsewhere, and its open question's numbers."""

from __future__ import annotations

import itertools
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from lab_sources import lab
from lab_truths import close, draw, seeds
from tinyrl.checkpoints import load
from tinyrl.course.exercises import LABS, find
from tinyrl.course.exercises.lab02.answers import after_an_odd_one
from tinyrl.exposure import drive, errors_by_position, expected_errors, local_errors
from tinyrl.exposure import hazard as library_hazard
from tinyrl.scoring import response_logits
from tinyrl.stack import Stack
from tinyrl.tasks import CumSum, EvenRoad, Turns


def rng(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


# ---- in plain Python, one token at a time


@seeds
def test_targets_are_the_next_tokens_of_the_answer(seed: int) -> None:
    for ids, prompt, length in draw("shift_targets", seed):
        inputs, targets = find("shift_targets").reference(ids, prompt, length)
        for b, row in enumerate(ids.tolist()):
            asked = [-100] * (len(row) - 1)
            for t in range(int(prompt[b]), int(length[b])):
                asked[t - 1] = row[t]
            assert inputs[b].tolist() == row[:-1]
            assert targets[b].tolist() == asked


@seeds
def test_shares_and_hazards_by_counting(seed: int) -> None:
    for said, right, length in draw("wrong_by_place", seed):
        wanted = []
        for t in range(said.shape[1]):
            rows = [b for b, n in enumerate(length.tolist()) if n > t]
            wrong = sum(said[b, t].item() != right[b, t].item() for b in rows)
            wanted.append(wrong / len(rows))
        close(find("wrong_by_place").reference(said, right, length), wanted)
    for wrong, length in draw("hazard", seed):
        wanted = []
        for t in range(wrong.shape[1]):
            risk = [
                b
                for b, n in enumerate(length.tolist())
                if n > t and not any(wrong[b, :t].tolist())
            ]
            wanted.append(sum(wrong[b, t].item() for b in risk) / len(risk))
        close(find("hazard").reference(wrong, length), wanted)
        ended = (length < wrong.shape[1]).any()
        assert ended, "someone is censored"


@seeds
def test_what_hazards_add_up_to_by_enumeration(seed: int) -> None:
    for (hazard,) in draw("free_running_error", seed):
        h = hazard.tolist()[:7]
        spoiled = [0.0] * len(h)
        for errs in itertools.product((True, False), repeat=len(h)):
            p = 1.0
            for x, err in zip(h, errs, strict=True):
                p *= x if err else 1 - x
            for t in range(len(h)):
                spoiled[t] += p * any(errs[: t + 1])
        close(find("free_running_error").reference(hazard)[: len(h)], spoiled)


def test_hazard_and_its_sum_fit_a_simulation() -> None:
    """Answers that never end early: the sum of the hazard is the share with an error."""
    wrong = torch.rand((5000, 6), generator=rng()) < torch.linspace(0.05, 0.3, 6)
    h = find("hazard").reference(wrong, torch.full((5000,), 6))
    by_then = wrong.cummax(1).values.double().mean(0)
    close(find("free_running_error").reference(h), by_then)


@seeds
def test_local_errors_by_counting(seed: int) -> None:
    for said, expert, off, length in draw("local_error_split", seed):
        counts = {True: [0, 0], False: [0, 0]}
        for b, n in enumerate(length.tolist()):
            for t in range(n):
                side = counts[bool(off[b, t])]
                side[0] += bool(said[b, t] != expert[b, t])
                side[1] += 1
        wanted = [counts[side][0] / counts[side][1] for side in (False, True)]
        found = find("local_error_split").reference(said, expert, off, length)
        close(torch.stack(found), wanted)


def test_off_the_road_is_after_an_odd_total() -> None:
    said = torch.randint(6, 16, (20, 8), generator=rng())
    assert torch.equal(after_an_odd_one(said), EvenRoad().off_road(said))


@seeds
def test_scheduled_inputs_token_by_token(seed: int) -> None:
    for gold, said, coin, own, start in draw("scheduled_inputs", seed):
        read = find("scheduled_inputs").reference(gold, said, coin, own, start)
        for b, t in itertools.product(*map(range, gold.shape)):
            if t == 0:
                want = start
            else:
                mine = coin[b, t - 1].item() < own
                want = (said if mine else gold)[b, t - 1].item()
            assert read[b, t] == want


@seeds
def test_a_conversation_is_asked_for_its_answers(seed: int) -> None:
    for ids, assistant, end in draw("history_loss_mask", seed):
        mask = find("history_loss_mask").reference(ids, assistant, end)
        for row, asked in zip(ids.tolist(), mask.tolist(), strict=True):
            text = "".join(chr(65 + i) for i in row)
            marker, stop = chr(65 + assistant), chr(65 + end)
            want = [False] * len(row)
            at = text.find(marker)
            while at >= 0:
                until = text.find(stop, at)
                until = len(row) - 1 if until < 0 else until
                want[at + 1 : until + 1] = [True] * (until - at)
                at = text.find(marker, at + 1)
            assert asked == want


# ---- by the library


def test_the_library_says_the_same() -> None:
    task = CumSum()
    prompts = task.prompts(200, rng())
    free = drive(load("sft"), task, prompts, rng(1))
    gold, length = task.answer(prompts), torch.full((200,), 13)
    share = find("wrong_by_place").reference(free.said, gold, length)
    close(share, errors_by_position(free.said, gold))
    wrong = free.said != gold
    close(find("hazard").reference(wrong, length), library_hazard(wrong))
    expert = task.expert(prompts, free.read)
    digits, read = (x - 6 for x in (prompts[:, 2:14], free.read[:, :12]))
    whole = (read >= 0).all(1)
    labels = find("expert_targets").reference(digits, read)
    assert torch.equal(labels[whole] + 6, expert[whole][:, :12])
    off = F.pad(wrong, (1, -1))
    found = find("local_error_split").reference(free.said, expert, off, length)
    close(torch.stack(found), local_errors(free.said, expert, off))


@seeds
def test_errors_that_never_cancel_follow_the_hazard(seed: int) -> None:
    """The library's law is modulo 10: with steps wrong by 1 and few of them, none "
    "cancels."""
    h = torch.rand((), generator=rng(seed), dtype=torch.double) / 2
    kernel = F.pad(torch.stack([1 - h, h]), (0, 8))
    want = find("free_running_error").reference(h.expand(9))
    close(expected_errors(kernel, 9), want)


def test_targets_give_the_loss_of_teacher_forcing() -> None:
    task, model = CumSum(), load("sft")
    prompts, answer = task.demonstrations(8, rng())
    ids, P = torch.cat([prompts, answer], 1), prompts.shape[1]
    shape = torch.full((8,), P), torch.full((8,), ids.shape[1])
    inputs, targets = find("shift_targets").reference(ids, *shape)
    with torch.no_grad():
        logits = response_logits(model, ids[:, :1], ids[:, 1:], Stack())
        theirs = response_logits(model, prompts, answer, Stack())
    assert torch.equal(inputs, ids[:, :-1])
    mine = F.cross_entropy(logits.flatten(0, 1), targets.flatten())
    want = F.cross_entropy(theirs.flatten(0, 1), answer.flatten())
    torch.testing.assert_close(mine, want)


def test_the_mask_of_a_chat_is_the_librarys() -> None:
    task = Turns()
    first, rest = task.demonstrations(4, rng())
    ids = torch.cat([first, rest], 1)
    mask = find("history_loss_mask").reference(ids, 5, 2)
    assert not mask[:, :5].any()
    assert (mask[:, 5:] == task.assistants).all()


def test_the_answers_by_hand_have_one_mistake_and_four() -> None:
    source = next(
        c.source for c in lab("lab02_exposure_bias").cells if "by_hand_said" in c.source
    )
    space: dict[str, Any] = {"torch": torch}
    exec(source, space)
    digits, said = space["by_hand_digits"], space["by_hand_said"]
    assert torch.equal(digits.cumsum(1) % 10, space["by_hand_right"])
    assert (said != space["by_hand_right"]).all(), "both look as bad by place"
    labels = find("expert_targets").reference(digits, said)
    assert (said != labels).sum(1).tolist() == [1, 4]


def test_every_exercise_has_a_case_for_both_ends() -> None:
    owns = {case.args[3] for case in find("scheduled_inputs").inputs(0)}
    assert {0.0, 1.0} <= owns
    cut, assistant, end = find("history_loss_mask").inputs(0)[1].args
    assert isinstance(cut, Tensor)
    speaks = find("history_loss_mask").reference(cut, assistant, end)
    assert speaks[:, -1].all()
    assert (cut[:, -1] != end).all()
    assert len(LABS["lab02_exposure_bias"]) == 8


@seeds
def test_borders_that_a_wrong_answer_may_miss_are_drawn(seed: int) -> None:
    """A coin that equals `own`, an error at the last place, a hazard of 0 at the first."""
    for gold, said, coin, own, _ in draw("scheduled_inputs", seed):
        border = (coin == own) & (gold != said)
        assert border[:, :-1].any(), "and its token is read"
    errs = [wrong[length == wrong.shape[1]] for wrong, length in draw("hazard", seed)]
    assert any((row.sum() == 1) and row[-1] for rows in errs for row in rows)
    assert any(h[0] == 0 for (h,) in draw("free_running_error", seed))
    answers = [length - prompt for _, prompt, length in draw("shift_targets", seed)]
    assert any((n == 1).any() for n in answers), "an answer of its end alone"


@seeds
def test_only_the_arguments_say_what_an_id_means(seed: int) -> None:
    """Words stand between an end and the next marker, and padding may be an end."""
    meant, pad_is_end = set(), 0
    for ids, assistant, end in draw("history_loss_mask", seed):
        meant.add((assistant, end))
        pad_is_end += bool((ids[:, -2:] == end).all(1).any())
        mask = find("history_loss_mask").reference(ids, assistant, end)
        last = mask & ~F.pad(mask[:, 1:], (0, 1))
        after = F.pad(last[:, :-1], (1, 0)) & (ids != end)
        assert (ids[last] == end).all()
        others = ids[F.pad(ids[:, :-1] == end, (1, 0))]
        assert after.any()
        assert len(others.unique()) > 4, "not only markers and padding"
    assert len(meant) == 3
    assert pad_is_end == 1


def test_open_question_has_right_numbers() -> None:
    cells = {
        c.metadata.nbgrader.grade_id: c.source
        for c in lab("lab02_exposure_bias").cells
        if "nbgrader" in c.metadata
    }
    assert f"{1 - 0.98**10:.1%}" == "18.3%"
    for name in ("open_rubric", "open_answer"):
        assert "1 - 0.98^10 = 18.3 %" in cells[name]
    for text in ("2 % of its first", "18 %", "probability 2 %"):
        assert text in cells["open_rubric"]
