"""Lesson 05's conversations, its sixteen faults, and what tells them apart."""

from __future__ import annotations

import pytest
import torch

from tinyrl.collate import Collator
from tinyrl.course.conversations import (
    KINDS,
    TOKENIZER,
    Answered,
    Mixed,
    answered,
    digit_pairs,
    encoded,
    laid_out,
    nearby,
    pull,
    talks,
    taught,
    trained,
    without_end,
)
from tinyrl.course.wrong_inputs import FAULTS, Fault, compare_inputs, look_alike, measure
from tinyrl.model import GPT, GPTConfig
from tinyrl.objectives import grpo
from tinyrl.scoring import score
from tinyrl.stack import Stack
from tinyrl.tasks import CumSum

END = TOKENIZER.eos_id


def noise(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def gpt(position: str = "rope") -> GPT:
    return GPT(GPTConfig(position=position), noise(0))  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def said() -> Answered:
    """Good answers to conversations of each kind, as if a policy had given them."""
    x, policy = Answered(), gpt()
    for kind in KINDS:
        messages, _, answers = talks(20, kind, noise(1))
        x.said += messages
        x.prompts += encoded(messages)
        x.responses += [row[:3] for row in answers]  # three digits are cut off
    x.logp = trained(policy, x.prompts, x.responses)
    return x


# ---- conversations


@pytest.mark.parametrize("kind", KINDS)
def test_a_talk_ends_with_the_question_of_the_task(kind):
    messages, asked, answers = talks(5, kind, noise(0))
    task = CumSum(KINDS[kind])
    for talk, prompt in zip(messages, asked, strict=True):
        assert TOKENIZER.chat(talk[-1:]) == prompt.tolist()
        assert len(talk) == (3 if kind == "turn" else 1)
    full = torch.ones_like(answers, dtype=torch.bool)
    assert task.reward(asked, task.answer(asked), full).all()
    assert answers.shape == (5, KINDS[kind] + 1)


def test_answers_are_read_alone_and_scored_the_same():
    policy = gpt()
    x = answered(policy, noise(2), 4, max_new=5, repeat=2)
    assert len(x.said) == len(x.reward) == 4 * 2 * len(KINDS)
    assert all(x.said[i] is x.said[i + 1] for i in range(0, len(x.said), 2))
    for b, (p, r) in enumerate(zip(x.prompts, x.responses, strict=True)):
        alone = score(policy, p[None], r[None], Stack()).logp[0]
        torch.testing.assert_close(x.logp[b], alone, rtol=0, atol=1e-5)
    assert x.off(trained(policy, x.prompts, x.responses)).abs().max() <= 1e-5


def test_lessons_are_of_one_kind_a_step():
    lessons = Mixed(noise(0), size=50)
    sizes = {lessons.demonstrations(4, noise(s))[0].shape[1] for s in range(20)}
    assert sizes == {6, 7, 17}
    prompts, answers = lessons.some("short", 7, noise(0))
    assert prompts.shape == (7, 6)
    assert (answers[:, -1] == END).all()


def test_pull_is_grpos_loss_and_gradient():
    policy = gpt()
    x = answered(policy, noise(3), 2, ["short", "plain"], max_new=4, repeat=4)
    made, A = laid_out(x.prompts, x.responses), torch.randn(16, generator=noise(4))
    found = pull(policy, made, A)
    logp = torch.zeros(made.mask.shape)
    for b, (p, r) in enumerate(zip(x.prompts, x.responses, strict=True)):
        logp[b, : len(r)] = score(policy, p[None], r[None], Stack()).logp[0]
    loss = grpo(logp, logp.detach(), A, made.mask, aggregation="token_mean")
    grads = torch.autograd.grad(loss, list(policy.parameters()))
    wanted = torch.cat([g.flatten() for g in grads])
    assert found.loss == pytest.approx(loss.item(), abs=1e-6)
    torch.testing.assert_close(found.gradient, wanted, rtol=1e-3, atol=1e-5)
    assert found.tokens == sum(map(len, x.responses))
    assert found.against(found) == pytest.approx((1.0, 1.0), abs=1e-5)
    other = nearby(policy, noise(5))
    assert pull(policy, made, A, reference=other).loss > found.loss
    assert pull(policy, made, A, old=other).loss != found.loss


def test_prompt_tokens_cancel_in_a_group():
    """What the lesson claims, here of an untrained policy: the direction stays."""
    policy = gpt()
    x = answered(policy, noise(6), 3, ["plain"], max_new=4, repeat=4)
    A = torch.tensor([1.0, -1.0, 2.0, -2.0]).repeat(3)
    whole = laid_out(
        [p[:1] for p in x.prompts],
        [torch.cat([p[1:], r]) for p, r in zip(x.prompts, x.responses, strict=True)],
    )
    right = pull(policy, laid_out(x.prompts, x.responses), A)
    wrong = pull(policy, whole, A)
    cosine, longer = wrong.against(right)
    assert cosine == pytest.approx(1, abs=1e-4)
    assert longer == pytest.approx(right.tokens / wrong.tokens, rel=1e-3)
    assert pull(policy, whole, A + 1).against(right)[0] < 0.9  # no longer a zero sum


def test_a_policy_learns_from_the_tokens_that_count():
    lessons = Mixed(noise(0), size=50)
    policies = [
        taught(lessons, {"short": END}, count, noise(1), steps=30)
        for count in (lambda made: made.mask, without_end)
    ]
    prompts, answers = lessons.some("short", 30, noise(2))
    ends = [score(p, prompts, answers, Stack()).logp[:, -1].mean() for p in policies]
    assert ends[0] > -0.5
    assert ends[1] < -4


def test_two_digits_are_one_id_or_two():
    bpe = digit_pairs()
    assert bpe.decode([1, 2]) == bpe.decode([10]) == "12"
    assert bpe.encode("12").ids == [10]
    assert bpe.encode("2112").ids == [2, 1, 10]


# ---- sixteen faults

MARKS = {
    "<bos> twice": {"ids: start +1"},
    "no <bos>": {"ids: start -1"},
    "system prompt": {"ids: start +3"},
    "turn not opened": {"ids: turn -1"},
    "history: last word": {"ids: history -2"},
    "text and back": {"ids: answer +1"},
    "end trimmed": {"ids: answer -1"},
    "left, columns": {"positions: moved"},
    "left, all seen": {"sees: padding"},
    "packed, all seen": {"sees: neighbour"},
    "gap before answer": {"positions: a gap"},
    "prompt counts": {"counts: prompt"},
    "end does not count": {"counts: no end"},
    "padding counts": {"counts: behind"},
    "another end id": {"counts: behind", "end: not seen"},
}


def test_there_are_sixteen():
    assert {*FAULTS} == {*MARKS, "history: a number"}


def test_no_fault_leaves_no_mark(said):
    assert compare_inputs(said, Fault()) == set()
    assert measure(gpt(), said, Fault()) <= 1e-6


@pytest.mark.parametrize("name", MARKS)
def test_each_leaves_its_mark(name, said):
    assert compare_inputs(said, FAULTS[name]) == MARKS[name]


def test_a_number_is_rewritten_where_it_begins_with_0():
    x = Answered()
    for first in ("0 7 1", "3 7 1"):
        earlier = {"role": "assistant", "content": first}
        ask = {"role": "user", "content": "1 2"}
        x.said.append([ask, earlier, ask])
    x.prompts, x.responses = encoded(x.said), [torch.tensor([7, 9, END])] * 2
    assert compare_inputs(x, FAULTS["history: a number"]) == {"ids: history -1"}
    x.said, x.prompts, x.responses = x.said[1:], x.prompts[1:], x.responses[1:]
    assert compare_inputs(x, FAULTS["history: a number"]) == set()


@pytest.mark.parametrize("position", ["rope", "learned"])
def test_a_delta_shows_what_changes_a_condition_and_nothing_else(position, said):
    policy = gpt(position)
    x = Answered(said.said, said.prompts, said.responses)
    x.logp = trained(policy, x.prompts, x.responses)
    for name, fault in FAULTS.items():
        silent = MARKS.get(name, {""}) & {*MARKS["prompt counts"], "counts: behind"}
        silent |= MARKS.get(name, set()) & {"counts: no end", "ids: answer +1"}
        silent |= MARKS.get(name, set()) & {"ids: answer -1"}
        harmless = bool(silent) or (name == "left, columns" and position == "rope")
        d = measure(policy, x, fault)
        assert d <= 1e-6 if harmless else d > 1e-4, name


def test_a_response_that_came_back_changed_is_not_measured(said):
    x = Answered(said.said[:1], said.prompts[:1], [torch.tensor([7, 8])])
    x.logp = trained(gpt(), x.prompts, x.responses)
    assert measure(gpt(), x, FAULTS["text and back"]) == 0.0


def test_a_rare_accident_leaves_no_mark(said):
    """One answer of sixty holds a special token, which text loses."""
    x = Answered(said.said, said.prompts, list(said.responses))
    x.responses[-1] = torch.tensor([7, TOKENIZER.system_id, 8])
    assert compare_inputs(x, FAULTS["text and back"]) == {"ids: answer +1"}
    alone = Answered(x.said[-1:], x.prompts[-1:], x.responses[-1:])
    assert compare_inputs(alone, FAULTS["text and back"]) == {"ids: answer +0"}


def test_who_looks_like_whom():
    assert look_alike([{"a"}, {"b"}, {"c", "d"}]) == 0
    assert look_alike([{"a"}, {"a", "b"}, {"b"}, {"c"}]) == 3


def test_the_collators_settings_are_all_that_marks_a_layout(said):
    for layout in ("right", "left", "packed"):
        assert compare_inputs(said, Fault(how=Collator(layout))) == set()  # type: ignore[arg-type]
    both = Fault(how=Collator("packed", "columns", "all"))
    assert compare_inputs(said, both) == {"positions: moved", "sees: neighbour"}
