"""Lesson 05's sixteen faults, ways to treat cut responses, and what tells them apart."""

from __future__ import annotations

import pytest
import torch

from tinyrl.advantages import group_advantages
from tinyrl.collate import Collator
from tinyrl.course.lessons.conversations import (
    KINDS,
    TOKENIZER,
    LossGrad,
    Rollouts,
    encoded,
    laid_out,
    rolled_out,
    talks,
    trainer_logp,
)
from tinyrl.course.lessons.wrong_inputs import (
    FAULTS,
    Fault,
    compare_inputs,
    cut_rewards,
    in_loss,
    look_alike,
    measure,
)
from tinyrl.model import GPT, GPTConfig

END, PAD = TOKENIZER.eos_id, TOKENIZER.pad_id


def noise(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def gpt(position: str = "rope") -> GPT:
    return GPT(GPTConfig(position=position), noise(0))  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def said() -> Rollouts:
    """Good answers to conversations of each kind, as if a policy had given them."""
    x, policy = Rollouts(), gpt()
    for kind in KINDS:
        messages, _, answers = talks(20, kind, noise(1))
        x.said += messages
        x.prompts += encoded(messages)
        x.responses += [row[:3] for row in answers]  # three digits are cut off
    x.logp = trainer_logp(policy, x.prompts, x.responses)
    return x


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
    "padding counts": {"counts: all after"},
    "another end id": {"counts: one after"},
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
    x = Rollouts()
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
    x = Rollouts(said.said, said.prompts, said.responses)
    x.logp = trainer_logp(policy, x.prompts, x.responses)
    silent = {name for name, mark in MARKS.items() if "counts" in str(mark)}
    silent |= {"text and back", "end trimmed"}
    silent |= {"left, columns"} if position == "rope" else set()
    for name, fault in FAULTS.items():
        d = measure(policy, x, fault)
        assert d <= 1e-6 if name in silent else d > 1e-4, name


def test_the_detector_sees_the_mask_and_no_label(said):
    """A mask that no fault has, through the same layout that the loss gets."""
    drops_first = Fault(
        mask=lambda made: made.response & (made.ids != said.responses[0][0])
    )
    assert compare_inputs(said, drops_first) == {"counts: no end"}
    nothing_wrong = Fault(mask=lambda made: made.response.clone())
    assert compare_inputs(said, nothing_wrong) == set()
    everything = Fault(mask=lambda made: torch.ones_like(made.response))
    assert compare_inputs(said, everything) == {"counts: prompt", "counts: all after"}


@pytest.mark.parametrize("name", [name for name in MARKS if "counts" in str(MARKS[name])])
def test_each_mask_in_plain_python(name):
    """Three rows: a response that ends and is padded, one that fits, one cut off."""
    prompts = [[1, 4, 7, 2, 5], [1, 4, 7, 8, 2, 5], [1, 4, 7, 8, 2, 5]]
    responses = [[7, END], [8, 9, END], [8, 9, 9]]
    made = laid_out(prompts, responses)
    wanted = {
        "prompt counts": ["111111100", "111111111", "111111111"],
        "end does not count": ["000001000", "000000110", "000000111"],
        "padding counts": ["000001111", "000000111", "000000111"],
        "another end id": ["000001110", "000000111", "000000111"],
    }
    assert made.ids[0].tolist() == [1, 4, 7, 2, 5, 7, END, PAD, PAD]
    found = FAULTS[name].mask(made).long().tolist()
    assert ["".join(map(str, row)) for row in found] == wanted[name]


def test_the_masks_faults_are_in_the_loss(said):
    """Their gradients are not the right one; an end trimmed is one that does not count."""
    x = rolled_out(gpt(), noise(8), 4, ["short", "plain"], max_new=4, repeat=4)
    x.responses = [torch.cat([r[:-1], torch.tensor([END])]) for r in x.responses]
    A, policy = torch.randn(len(x.responses), generator=noise(9)), gpt()
    right = in_loss(policy, x, Fault(), A)
    pulls = {name: in_loss(policy, x, FAULTS[name], A) for name in MARKS if name[0] != "p"}
    ended, trimmed = pulls["end does not count"], pulls["end trimmed"]
    torch.testing.assert_close(ended.gradient, trimmed.gradient, rtol=1e-3, atol=1e-6)
    for name in ("end does not count", "another end id"):
        assert pulls[name].against(right)[0] < 0.999, name
    assert in_loss(policy, x, FAULTS["padding counts"], A).against(right)[0] < 0.999


def test_prompt_tokens_cancel_in_a_group():
    """What the lesson claims, here of an untrained policy: the direction stays."""
    policy, other = gpt(), GPT(GPTConfig(), noise(7))
    x = rolled_out(policy, noise(6), 3, ["plain"], max_new=4, repeat=4)
    A = torch.tensor([1.0, -1.0, 2.0, -2.0]).repeat(3)

    def wrong_and_right(A: torch.Tensor, **how: GPT) -> tuple[LossGrad, LossGrad]:
        faults = FAULTS["prompt counts"], Fault()
        wrong, right = (in_loss(policy, x, fault, A, **how) for fault in faults)
        return wrong, right

    wrong, right = wrong_and_right(A)
    cosine, longer = wrong.against(right)
    assert cosine == pytest.approx(1, abs=1e-4)
    assert longer == pytest.approx(right.tokens / wrong.tokens, rel=1e-3)
    prompts = sum(len(p) - 1 for p in x.prompts)  # their first token has no logprob
    assert wrong.tokens == right.tokens + prompts
    for how in ({"old": other}, {"reference": other}):
        wrong, right = wrong_and_right(A, **how)
        assert wrong.against(right)[0] < 0.99
    wrong, right = wrong_and_right(A + 1)  # no longer a zero sum
    assert wrong.against(right)[0] < 0.9


# ---- cut responses


def test_five_ways_to_treat_cut_responses():
    """One group of four: right and cut, right, wrong, wrong and cut; and one not cut."""
    right = torch.tensor([1, 1, 0, 0, 1, 0, 0, 0]).bool()
    cut = torch.tensor([1, 0, 0, 1, 0, 0, 0, 0]).bool()
    found = cut_rewards(right, cut, 4)
    punished = [-0.25, 0.75, -0.25, -0.25]
    calm, kept = [0.75, -0.25, -0.25, -0.25], [0, 1, 1, 0, 1, 1, 1, 1]
    late = [
        0,
        -0.25,
        0.75,
        0,
        -0.25,
        -0.25,
        0.75,
        -0.25,
    ]  # rows 1 2 4 5 6 7 get 0 1 2 3 4 5
    wanted = {
        "punished: reward 0": (punished + calm, [1] * 8),
        "ignored: in loss and mean": ([0, 0.5, -0.5, 0, *calm], kept),
        "masked, 0 in the mean": (punished + calm, kept),
        "reward of the uncut": ([0.5, 0.5, -0.5, -0.5, *calm], [1] * 8),
        "rewards not filtered": (late, kept),
    }
    assert [*found] == [*wanted]
    for name, (A, counts) in found.items():
        assert A.tolist() == pytest.approx(wanted[name][0]), name
        assert counts.long().tolist() == wanted[name][1], name
    punishing = group_advantages((right & ~cut).float(), 4, std="none")
    assert torch.equal(found["punished: reward 0"][0], punishing)


def test_a_group_that_is_all_cut_is_ignored_whole():
    A, counts = cut_rewards(torch.tensor([True, False] * 2), torch.ones(4).bool(), 2)[
        "ignored: in loss and mean"
    ]
    assert A.tolist() == [0] * 4
    assert not counts.any()


# ---- marks


def test_a_response_that_came_back_changed_is_measured_up_to_there(said):
    """Known deltas: 1 on the first token, 3 on the second, 100 on what is not common."""
    policy, ids = gpt(), [7, 8, TOKENIZER.system_id, 9]
    x = Rollouts(said.said[:1], said.prompts[:1], [torch.tensor(ids)])
    (logp,) = trainer_logp(policy, x.prompts, x.responses)
    x.logp = [logp - torch.tensor([1.0, 3.0, 100.0, 100.0])]
    back = FAULTS["text and back"]  # the text loses <system>
    assert measure(policy, x, back) == pytest.approx(2, abs=1e-5)
    assert measure(policy, x, Fault()) == pytest.approx(51, abs=1e-4)
    x.responses, x.logp = [torch.tensor([7, 8, END])], [logp[:3] - 1]
    x.logp[0][2] = 100.0
    assert measure(policy, x, FAULTS["end trimmed"]) == pytest.approx(1, abs=1e-5)


def test_where_nothing_is_common_nothing_is_measured(said):
    x = Rollouts(said.said[:1], said.prompts[:1], [torch.tensor([TOKENIZER.bos_id, 7])])
    x.logp = [torch.full((2,), 100.0)]
    assert measure(gpt(), x, FAULTS["text and back"]) == 0.0


def test_a_fault_before_the_change_is_still_seen(said):
    """The common start is read after other ids: its delta is not left out with the rest."""
    both = Fault(FAULTS["<bos> twice"].chat, handed=FAULTS["end trimmed"].handed)
    x = Rollouts(said.said[:1], said.prompts[:1], [torch.tensor([7, 8, END])])
    x.logp = trainer_logp(gpt(), x.prompts, x.responses)
    assert measure(gpt(), x, both) > 1e-4


def test_a_rare_accident_leaves_no_mark(said):
    """One answer of sixty holds a special token, which text loses."""
    x = Rollouts(said.said, said.prompts, list(said.responses))
    x.responses[-1] = torch.tensor([7, TOKENIZER.system_id, 8])
    assert compare_inputs(x, FAULTS["text and back"]) == {"ids: answer +1"}
    alone = Rollouts(x.said[-1:], x.prompts[-1:], x.responses[-1:])
    assert compare_inputs(alone, FAULTS["text and back"]) == {"ids: answer +0"}


def test_who_looks_like_whom():
    assert look_alike([{"a"}, {"b"}, {"c", "d"}]) == 0
    assert look_alike([{"a"}, {"a", "b"}, {"b"}, {"c"}]) == 3


def test_the_collators_settings_are_all_that_marks_a_layout(said):
    for layout in ("right", "left", "packed"):
        assert compare_inputs(said, Fault(how=Collator(layout))) == set()  # type: ignore[arg-type]
    both = Fault(how=Collator("packed", "columns", "all"))
    assert compare_inputs(said, both) == {"positions: moved", "sees: neighbour"}
