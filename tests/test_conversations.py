"""Lesson 05's conversations: answered, laid out, and what a loss makes of them."""

from __future__ import annotations

import math

import pytest
import torch

from tinyrl.course.lessons.conversations import (
    BETA,
    KINDS,
    TOKENIZER,
    LossGrad,
    Mixed,
    Rollouts,
    digit_pairs,
    distance,
    laid_out,
    loss_and_grad,
    rolled_out,
    row_logp,
    said_twice,
    says_right,
    second_end,
    talks,
    trainer_logp,
)
from tinyrl.model import GPT, GPTConfig
from tinyrl.objectives import grpo
from tinyrl.scoring import score
from tinyrl.stack import Stack
from tinyrl.tasks import CumSum
from tinyrl.trainer import sft

END, PAD = TOKENIZER.eos_id, TOKENIZER.pad_id


def noise(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def gpt() -> GPT:
    return GPT(GPTConfig(), noise(0))


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
    x = rolled_out(policy, noise(2), 4, max_new=5, repeat=2)
    assert len(x.said) == len(x.reward) == 4 * 2 * len(KINDS)
    assert all(x.said[i] is x.said[i + 1] for i in range(0, len(x.said), 2))
    for b, (p, r) in enumerate(zip(x.prompts, x.responses, strict=True)):
        alone = score(policy, p[None], r[None], Stack()).logp[0]
        torch.testing.assert_close(x.logp[b], alone, rtol=0, atol=1e-5)
    assert x.off(trainer_logp(policy, x.prompts, x.responses)).abs().max() <= 1e-5


def test_an_engine_stops_at_any_of_its_ends():
    """The same draws, cut by hand after the first end of either kind."""
    policy, both = gpt(), (END, TOKENIZER.system_id)
    one = rolled_out(policy, noise(2), 30, ["plain"], max_new=9)
    two = rolled_out(policy, noise(2), 30, ["plain"], max_new=9, ends=both)
    for long, short in zip(one.responses, two.responses, strict=True):
        ids = long.tolist()
        at = min((ids.index(end) + 1 for end in both if end in ids), default=len(ids))
        assert short.tolist() == ids[:at]
    assert sum(map(len, two.responses)) < sum(map(len, one.responses))


def totals(talk: list[dict[str, str]]) -> list[int]:
    """The right answer's ids, end included, in plain Python."""
    found, ids = 0, []
    for digit in talk[-1]["content"].split():
        found = (found + int(digit)) % 10
        ids.append(6 + found)
    return [*ids, 2]


@pytest.fixture(scope="module")
def answers() -> Rollouts:
    """Of a policy that had a few steps of training, so that some are right."""
    policy = gpt()
    list(sft(policy, Mixed(noise(0)), generator=noise(1), steps=150, batch=64, lr=8e-3))
    return rolled_out(policy, noise(2), 30, max_new=5)


def test_a_right_answer_is_rewarded_and_no_other(answers):
    pairs = zip(answers.said, answers.responses, strict=True)
    right = [response.tolist() == totals(talk) for talk, response in pairs]
    assert answers.reward == [float(each) for each in right]
    assert 5 <= sum(right) <= len(right) - 5  # both kinds are there


def test_a_right_answer_may_end_late(answers):
    talk = [{"role": "user", "content": "3 4"}]
    said = [
        [9, 13, END],
        [9, 13, 9, 13, END],
        [9, 13, 9],
        [9, 12, END],
        [9, END],
        [13, 9, END],
    ]
    x = Rollouts([talk] * len(said), [], [torch.tensor(ids) for ids in said])
    assert says_right(x).tolist() == [True, True, False, False, False, False]
    judged = says_right(answers).tolist()
    assert all(judged[b] for b, reward in enumerate(answers.reward) if reward)


def test_lessons_are_of_one_kind_a_step():
    lessons = Mixed(noise(0), size=50)
    sizes = {lessons.demonstrations(4, noise(s))[0].shape[1] for s in range(20)}
    assert sizes == {6, 7, 17}
    prompts, answers = lessons.some("short", 7, noise(0))
    assert prompts.shape == (7, 6)
    assert (answers[:, -1] == END).all()
    fewer = Mixed(noise(0), ["short", "plain"], size=50)
    assert {fewer.demonstrations(4, noise(s))[0].shape[1] for s in range(20)} == {6, 7}


def test_a_second_id_ends_three_digits():
    short, plain = torch.tensor([[7, 8, END]]), torch.tensor([[7, 8, 9, END]])
    for answers, wanted in ((short, [7, 8, 2]), (plain, [7, 8, 9, 3])):
        read, asked = second_end(0.5, torch.zeros(1, 6), answers)
        assert read.tolist() == asked.tolist() == [wanted]


def test_half_of_the_answers_are_said_twice():
    answers = torch.tensor([[7, 8, END]]).repeat(400, 1)
    read, asked = said_twice(noise(0))(0.5, torch.zeros(400, 6), answers)
    twice = read[:, 2] == 7
    assert 150 < twice.sum() < 250
    assert (read[twice] == torch.tensor([7, 8, 7, 8, END])).all()
    assert (read[~twice] == torch.tensor([7, 8, END, PAD, PAD])).all()
    assert torch.equal(asked, torch.where(read == PAD, -100, read))


# ---- a loss and its gradient


def scored(policy: GPT, x: Rollouts) -> torch.Tensor:
    """Each response alone, `[B, T]`: not the way of `row_logp`."""
    logp = torch.zeros(len(x.responses), max(map(len, x.responses)))
    for b, (p, r) in enumerate(zip(x.prompts, x.responses, strict=True)):
        logp[b, : len(r)] = score(policy, p[None], r[None], Stack()).logp[0]
    return logp


def gradient(loss: torch.Tensor, policy: GPT) -> torch.Tensor:
    return torch.cat(
        [g.flatten() for g in torch.autograd.grad(loss, [*policy.parameters()])]
    )


@pytest.fixture(scope="module")
def group() -> tuple[GPT, GPT, Rollouts, torch.Tensor]:
    """A policy, another one, answers of the first, and advantages."""
    policy, other = gpt(), GPT(GPTConfig(), noise(7))
    x = rolled_out(policy, noise(3), 2, ["short", "plain"], max_new=4, repeat=4)
    return policy, other, x, torch.randn(16, generator=noise(4))


def test_every_token_of_a_row_has_its_logprob(group):
    policy, _, x, _ = group
    made = laid_out(x.prompts, x.responses)
    logp = row_logp(policy, made)
    assert (logp[:, 0] == 0).all()
    whole = score(policy, made.ids[:, :1], made.ids[:, 1:], Stack()).logp
    real = made.segments[:, :-1] >= 0  # what follows padding sees nothing else
    torch.testing.assert_close(logp[:, 1:][real], whole[real], rtol=0, atol=1e-5)


def test_loss_and_grad_are_grpos(group):
    policy, _, x, A = group
    made = laid_out(x.prompts, x.responses)
    found, logp = loss_and_grad(policy, made, A), scored(policy, x)
    loss = grpo(logp, logp.detach(), A, made.mask, aggregation="token_mean")
    assert found.loss == pytest.approx(loss.item(), abs=1e-6)
    wanted = gradient(loss, policy)
    torch.testing.assert_close(found.gradient, wanted, rtol=1e-3, atol=1e-5)
    assert found.tokens == sum(map(len, x.responses))


def test_the_kl_term_is_beta_times_k3(group):
    """x - log x - 1 with x = ref / policy, averaged in Python over real tokens."""
    policy, other, x, A = group
    made = laid_out(x.prompts, x.responses)
    mine, theirs = scored(policy, x), scored(other, x).detach()
    log_x = (theirs - mine)[made.mask]
    k3 = [math.exp(d) - d - 1 for d in log_x.tolist()]
    bare, found = (loss_and_grad(policy, made, A, reference=r) for r in (None, other))
    wanted = BETA * sum(k3) / len(k3)
    assert wanted > 1e-3
    assert found.loss - bare.loss == pytest.approx(wanted, rel=1e-3, abs=1e-6)
    pull = gradient(BETA * (log_x.exp() - log_x - 1).mean(), policy)
    torch.testing.assert_close(found.gradient - bare.gradient, pull, rtol=1e-3, atol=1e-5)


def test_an_older_sampler_makes_the_ratio(group):
    policy, other, x, A = group
    made = laid_out(x.prompts, x.responses)
    logp, old = scored(policy, x), scored(other, x).detach()
    ratio, each = (logp - old).exp(), A[:, None]
    loss = torch.maximum(-ratio * each, -ratio.clamp(0.8, 1.2) * each)[made.mask].mean()
    found = loss_and_grad(policy, made, A, old=other)
    assert found.loss == pytest.approx(loss.item(), rel=1e-4, abs=1e-6)
    wanted = gradient(loss, policy)
    torch.testing.assert_close(found.gradient, wanted, rtol=1e-3, atol=1e-5)


def test_only_tokens_of_the_mask_are_in_the_loss(group):
    policy, _, x, A = group
    made = laid_out(x.prompts, x.responses)
    mask = (torch.rand(made.ids.shape, generator=noise(5)) < 0.5) & (made.segments >= 0)
    mask[:, 0] = True  # without a logprob: never counts
    found, counted = loss_and_grad(policy, made, A, mask), mask[:, 1:]
    whole = score(policy, made.ids[:, :1], made.ids[:, 1:], Stack()).logp
    loss = -(whole * A[:, None])[counted].sum() / counted.sum()
    assert found.tokens == counted.sum()
    wanted = gradient(loss, policy)
    torch.testing.assert_close(found.gradient, wanted, rtol=1e-3, atol=1e-5)


def test_against_is_an_angle_and_a_length():
    right = LossGrad(0.0, torch.tensor([3.0, 0.0]), 1)
    wrong = LossGrad(0.0, torch.tensor([3.0, 3.0]), 1)
    assert wrong.against(right) == pytest.approx((0.5**0.5, 2**0.5))
    assert wrong.told(right) == "cosine +0.7071, 1.414 times as long"


def test_half_the_gradient_is_half_the_step_of_sgd_and_a_whole_one_of_adam(group):
    policy, _, x, A = group
    before = [w.clone() for w in policy.parameters()]
    made = laid_out(x.prompts, x.responses)

    def ratio(kind: type[torch.optim.Optimizer], lr: float) -> float:
        half, full = (distance(policy, made, A, k, kind, lr=lr) for k in (0.5, 1))
        return half / full

    assert ratio(torch.optim.SGD, 1e-4) == pytest.approx(0.5, abs=0.01)
    assert ratio(torch.optim.Adam, 1e-4) == pytest.approx(1, abs=0.01)
    step = loss_and_grad(policy, made, A).gradient.norm().item()
    once = distance(policy, made, A, 3, torch.optim.SGD, lr=1e-3, steps=1)
    assert once == pytest.approx(3e-3 * step, rel=1e-3)
    assert all(torch.equal(a, b) for a, b in zip(before, policy.parameters(), strict=True))


def test_two_digits_are_one_id_or_two():
    bpe = digit_pairs()
    assert bpe.decode([1, 2]) == bpe.decode([10]) == "12"
    assert bpe.encode("12").ids == [10]
    assert bpe.encode("2112").ids == [2, 1, 10]
