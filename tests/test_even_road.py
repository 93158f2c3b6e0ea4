"""The even road, its chat and the expert, one digit at a time in plain Python."""

from __future__ import annotations

import math

import torch
from hypothesis import given
from hypothesis import strategies as st

from tinyrl.exposure import slip
from tinyrl.tasks import CumSum, EvenRoad, Turns

EOS, DIGIT_0 = 2, 6


def rng(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def digits(prompt: list[int]) -> list[int]:
    return [i - DIGIT_0 for i in prompt if i >= DIGIT_0]


@given(n=st.integers(1, 9), T=st.integers(1, 12), seed=st.integers(0, 99))
def test_the_expert_goes_on_from_what_stands_there(n: int, T: int, seed: int) -> None:
    task, g = CumSum(n), rng(seed)
    prompts = task.prompts(4, g)
    prefix = torch.randint(16, (4, T), generator=g)
    want = []
    for prompt, row in zip(prompts.tolist(), prefix.tolist(), strict=True):
        steps, right = digits(prompt), []
        for t in range(T):
            before = row[t - 1] - DIGIT_0 if t else 0
            ends = t >= n or before < 0
            right.append(EOS if ends else DIGIT_0 + (before + steps[t]) % 10)
        want.append(right)
    assert task.expert(prompts, prefix).tolist() == want


def test_on_the_right_answer_the_expert_is_the_answer() -> None:
    for task in (CumSum(), EvenRoad()):
        prompts = task.prompts(50, rng())
        answer = task.answer(prompts)
        assert torch.equal(task.expert(prompts, answer), answer)


def test_the_even_road_is_even_and_a_slip_leaves_it() -> None:
    task = EvenRoad()
    prompts, answer = task.demonstrations(4000, rng())
    steps = torch.tensor([digits(p) for p in prompts.tolist()])
    counts = steps.flatten().bincount(minlength=10)
    assert counts[1::2].sum() == 0
    n = steps.numel()  # binomial counts, 5 standard deviations
    assert (counts[::2] - n / 5).abs().max() < 5 * math.sqrt(n * 0.2 * 0.8)
    assert not task.off_road(answer[:, :-1]).any()
    assert torch.equal(answer, task.answer(prompts)), "no demonstration is sloppy"
    read = answer.clone()
    read[:, 2] = slip(read, task)[:, 2]
    off = task.off_road(read)
    assert off[:, 3].all()
    assert off.sum() == len(off)
    for p in prompts[:20].tolist():
        content = " ".join(map(str, digits(p)))
        assert p == task.tokenizer.chat([{"role": "user", "content": content}])


@given(k=st.integers(0, 4), seed=st.integers(0, 99))
def test_turns_are_what_the_chat_template_makes(k: int, seed: int) -> None:
    task, g = Turns(), rng(seed)
    prompts = task.prompts(3, g)
    said = torch.randint(DIGIT_0, 16, (3, k), generator=g)
    for row, prompt, told in zip(
        task.chat(prompts, said).tolist(), prompts.tolist(), said.tolist(), strict=True
    ):
        messages = []
        for i in range(k + 1):
            messages.append({"role": "user", "content": str(digits(prompt)[i])})
            if i < k:
                messages.append({"role": "assistant", "content": str(told[i] - DIGIT_0)})
        assert row == task.tokenizer.chat(messages)


def test_a_demonstrated_chat_holds_the_right_totals_and_says_whose_they_are() -> None:
    task = Turns()
    first, rest = task.demonstrations(30, rng())
    prompts = task.prompts(30, rng())
    theirs = rest[:, task.assistants].view(30, 5, 2)
    assert torch.equal(theirs[..., 0], task.answer(prompts)[:, :5])
    assert (theirs[..., 1] == EOS).all()
    assert torch.equal(first, task.chat(prompts, theirs[:, :0, 0]))
    users = rest[:, ~task.assistants].view(30, 4, 4)
    assert users[0, 0, [0, 2, 3]].tolist() == [4, EOS, 5]
    assert torch.equal(users[..., 1] - DIGIT_0, task._digits(prompts)[:, 1:])
