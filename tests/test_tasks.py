"""The task against a reference in plain Python, one digit at a time."""

import math
import pickle
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tinyrl.tasks import CumSum, EvenRoad, Task, Turns
from tinyrl.tokens import VOCABULARY, response_mask

EOS, DIGIT_0 = 2, 6


def rng(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def digits_of(prompt: list[int]) -> list[int]:
    return [int(VOCABULARY[i]) for i in prompt if VOCABULARY[i].isdigit()]


def reference_answer(digits: list[int]) -> list[int]:
    total, ids = 0, []
    for digit in digits:
        total = (total + digit) % 10
        ids.append(DIGIT_0 + total)
    return [*ids, EOS]


def judged(task: CumSum, prompts: torch.Tensor, rows: list[list[int]]) -> list[float]:
    """Rewards of responses of any length, their padding full of garbage."""
    T = max(len(row) for row in rows)
    response = torch.tensor([row + [-7] * (T - len(row)) for row in rows])
    mask = torch.tensor([[t < len(row) for t in range(T)] for row in rows])
    return task.reward(prompts, response, mask).tolist()


def test_is_a_task():
    task: Task = CumSum()
    assert task.max_new == 13
    assert CumSum() == CumSum(n=12, p_slip=0.08)
    assert replace(CumSum(), n=3).max_new == 4
    CumSum().prompts(1, rng())  # fills the caches, which are no part of its value
    assert pickle.loads(pickle.dumps(task)) == task


@given(n=st.integers(1, 20), seed=st.integers(0, 1000))
def test_prompts_are_what_the_chat_template_makes(n, seed):
    task = CumSum(n=n)
    prompts = task.prompts(5, rng(seed))
    assert prompts.shape == (5, n + 4)
    assert prompts.dtype == torch.long
    for prompt in prompts.tolist():
        content = " ".join(str(d) for d in digits_of(prompt))
        assert prompt == task.tokenizer.chat([{"role": "user", "content": content}])


@given(n=st.integers(1, 20), seed=st.integers(0, 1000))
def test_answer_equals_reference(n, seed):
    task = CumSum(n=n)
    prompts = task.prompts(4, rng(seed))
    want = [reference_answer(digits_of(prompt)) for prompt in prompts.tolist()]
    assert task.answer(prompts).tolist() == want


def test_documented_example():
    task = CumSum(n=3)
    prompt = torch.tensor([task.tokenizer.chat([{"role": "user", "content": "3 1 4"}])])
    assert task.tokenizer.decode(task.answer(prompt)[0]) == "3 4 8 <end>"


def test_digits_are_uniform():
    n = 12 * 4000
    digits = torch.tensor([digits_of(p) for p in CumSum().prompts(4000, rng()).tolist()])
    counts = digits.flatten().bincount(minlength=10)
    # each count is binomial; 5 standard deviations: one false alarm in 170,000 runs
    assert (counts - n / 10).abs().max() < 5 * math.sqrt(n * 0.1 * 0.9)


# ---- demonstrations


@pytest.mark.parametrize("p_slip", [0.0, 0.08, 0.5, 1.0])
def test_slip_statistics(p_slip):
    B, task = 4000, CumSum(p_slip=p_slip)
    prompts, responses = task.demonstrations(B, rng())
    wrong_by = []  # the error of each step, given the total before it
    for prompt, response in zip(prompts.tolist(), responses.tolist(), strict=True):
        assert response[-1] == EOS
        before = 0
        for digit, token in zip(digits_of(prompt), response, strict=False):
            total = int(VOCABULARY[token])
            wrong_by.append((total - before - digit) % 10)
            before = total
    n = len(wrong_by)
    counts = torch.tensor(wrong_by).bincount(minlength=10)
    want = torch.tensor([1 - p_slip] + [p_slip / 9] * 9, dtype=torch.float64)
    # binomial counts, 5 standard deviations; exact where the probability is 0 or 1
    assert ((counts - n * want).abs() <= 5 * (n * want * (1 - want)).sqrt()).all()

    reward = task.reward(prompts, responses, response_mask(responses, EOS)).mean().item()
    clean = (1 - p_slip) ** task.n  # the first slip makes its token wrong
    assert abs(reward - clean) <= 5 * math.sqrt(clean * (1 - clean) / B)


def test_slips_are_independent():
    prompts, responses = CumSum(p_slip=0.5).demonstrations(4000, rng())
    steps = responses[:, :-1].diff(dim=1) % 10
    digits = torch.tensor([digits_of(p) for p in prompts.tolist()])[:, 1:]
    slipped = (steps != digits).double()
    pairs = (slipped[:, 1:] * slipped[:, :-1]).mean(0)  # 4000 rows of each adjacent pair
    assert (pairs - 0.25).abs().max() < 5 * math.sqrt(0.25 * 0.75 / 4000)


def test_every_draw_comes_from_the_generator():
    task = CumSum()
    state = torch.get_rng_state()
    for draw in (task.prompts, lambda B, g: torch.cat(task.demonstrations(B, g), 1)):
        assert torch.equal(draw(8, rng(3)), draw(8, rng(3)))
        assert not torch.equal(draw(8, rng(3)), draw(8, rng(4)))
        g = rng(3)
        assert not torch.equal(draw(8, g), draw(8, g))
    assert torch.equal(torch.get_rng_state(), state)


# ---- reward


@given(data=st.data(), n=st.integers(1, 6))
def test_reward_equals_reference(data, n):
    """Right answers, prefixes, extensions and edits of them, one row each."""
    task = CumSum(n=n)
    prompts = task.prompts(4, rng(data.draw(st.integers(0, 99))))
    rows, want = [], []
    for prompt in prompts.tolist():
        answer = reference_answer(digits_of(prompt))
        row = (
            answer[: data.draw(st.integers(1, n + 1))]
            if data.draw(st.booleans())
            else answer
        )
        row = row + data.draw(st.lists(st.integers(0, 15), max_size=2))
        if data.draw(st.booleans()):
            at = data.draw(st.integers(0, len(row) - 1))
            row = [*row[:at], data.draw(st.integers(0, 15)), *row[at + 1 :]]
        rows.append(row)
        want.append(float(row == answer))
    assert judged(task, prompts, rows) == want


def test_reward_of_each_kind_of_mistake():
    task = CumSum(n=3)
    prompts = task.prompts(1, rng()).expand(7, -1)
    right = reference_answer(digits_of(prompts[0].tolist()))
    wrong_first = [DIGIT_0 + (right[0] - DIGIT_0 + 1) % 10, *right[1:]]
    rows = [
        right,
        wrong_first,
        [*right[:-1], DIGIT_0],  # never ends
        right[:-1],  # cut off before the end
        [*right[:-1], right[-2], EOS],  # one total too many
        [*right, EOS],  # goes on after the end
        [EOS],
    ]
    assert judged(task, prompts, rows) == [1, 0, 0, 0, 0, 0, 0]
    assert judged(task, prompts[:2], [right[:2], [EOS]]) == [0, 0]  # T below max_new
    reward = task.reward(
        prompts[:1], torch.tensor([right]), torch.ones(1, 4, dtype=torch.bool)
    )
    assert reward.dtype == torch.float32
    assert reward.shape == (1,)


# ---- bad input


def test_bad_settings_are_named():
    with pytest.raises(ValueError, match="n is 0: the task needs at least one digit"):
        CumSum(n=0)
    for p in (-0.1, 1.1, math.nan):
        with pytest.raises(ValueError, match=f"p_slip is {p}: a probability"):
            CumSum(p_slip=p)


def test_bad_prompts_are_named():
    task = CumSum(n=3)
    prompts = task.prompts(4, rng())
    with pytest.raises(ValueError, match=r"prompts must be \[B, 7\] for n=3, not \[4, 6\]"):
        task.answer(prompts[:, 1:])
    with pytest.raises(ValueError, match=r"prompts must be \[B, 7\] for n=3, not \[7\]"):
        task.answer(prompts[0])
    for column, token in [(0, 0), (2, EOS), (4, 16), (6, 4)]:
        bad = prompts.clone()
        bad[2, column] = token
        with pytest.raises(
            ValueError, match=r"prompts\[2\] is not a prompt of CumSum\(n=3"
        ):
            task.answer(bad)


def test_bad_responses_are_named():
    task = CumSum(n=2)
    prompts, response = task.demonstrations(3, rng())
    mask = torch.ones(3, 3, dtype=torch.bool)

    def refuses(message, response=response, mask=mask):
        with pytest.raises(ValueError, match=message):
            task.reward(prompts, response, mask)

    refuses(r"response must be \[3, T\] with T > 0, not \[2, 3\]", response[:2])
    refuses(r"response must be \[3, T\] with T > 0, not \[3\]", response[0])
    refuses(
        r"response must be \[3, T\] with T > 0, not \[3, 0\]", response[:, :0], mask[:, :0]
    )
    refuses(r"mask must be bool \[3, 3\], not torch.bool \[3, 2\]", mask=mask[:, 1:])
    refuses(r"mask must be bool \[3, 3\], not torch.float32 \[3, 3\]", mask=mask.float())
    empty, gap = mask.clone(), mask.clone()
    empty[1], gap[2, 1] = False, False
    refuses(r"mask\[1\] has no token", mask=empty)
    refuses(r"mask\[2\] has a gap", mask=gap)


def test_bad_prefixes_are_named():
    task, turns = EvenRoad(3), Turns()
    asked = turns.prompts(1, torch.Generator().manual_seed(0))
    prompts = task.prompts(2, torch.Generator().manual_seed(0))
    with pytest.raises(
        ValueError, match=r"prefix must be \[2, T\] with T > 0, not \[2, 0\]"
    ):
        task.expert(prompts, torch.zeros(2, 0).long())
    with pytest.raises(
        ValueError, match=r"prefix\[1\] has an id outside 0\.\.15: \[6, 99\]"
    ):
        task.expert(prompts, torch.tensor([[6, 7], [6, 99]]))
    with pytest.raises(ValueError, match="said holds 5 totals: with 5 turns, at most 4"):
        turns.chat(asked, torch.full((1, 5), 6))


def test_only_a_digit_can_be_off_the_road():
    behind_special = EvenRoad(4).off_road(torch.tensor([[1, 4, 5, 6], [7, 8, 9, 2]]))
    assert behind_special.tolist() == [[False] * 4, [False, True, False, True]]
