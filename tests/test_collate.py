"""Layouts of many conversations, against scoring each of them alone."""

from __future__ import annotations

import itertools
from typing import get_args, get_type_hints

import pytest
import torch
from torch import Tensor

from tinyrl.collate import Collator, lay_out, score_layout
from tinyrl.kernels import Kernels
from tinyrl.model import GPT, GPTConfig
from tinyrl.moe import Router
from tinyrl.positions import Positions
from tinyrl.pretrained import save_pretrained
from tinyrl.sampling import Sampler
from tinyrl.scoring import score
from tinyrl.stack import PRESETS, Stack

CHOICES = [get_args(hint) for hint in get_type_hints(Collator).values()]
SETTINGS = [Collator(*choice) for choice in itertools.product(*CHOICES)]
settings = pytest.mark.parametrize("collator", SETTINGS, ids=str)
KINDS = ("rope", "learned")
WAYS = ("sdpa", "naive", "online", "split_kv")
ROUNDING = 1e-5
FELT = 1e-2


def gpt(position: str = "rope", experts: int = 0) -> GPT:
    config = GPTConfig(position=position, experts=experts)  # type: ignore[arg-type]
    return GPT(config, torch.Generator().manual_seed(0))


def conversations(seed: int = 0) -> tuple[list[Tensor], list[Tensor]]:
    g = torch.Generator().manual_seed(seed)
    sizes = ((5, 9, 3, 7, 4), (4, 2, 6, 5, 1))
    both = [[torch.randint(16, (n,), generator=g) for n in side] for side in sizes]
    return both[0], both[1]


def alone(model: GPT, stack: Stack, seed: int = 0) -> list[Tensor]:
    """The truth: nothing is padded, nobody sits beside it."""
    pairs = zip(*conversations(seed), strict=True)
    return [score(model, p[None], r[None], stack).logp[0] for p, r in pairs]


def laid(collator: Collator, seed: int = 0, width: int = 32):
    return lay_out(*conversations(seed), collator, pad_id=0, width=width)


def off(model: GPT, collator: Collator, stack: Stack | None = None) -> float:
    """The largest error of a layout's logprobs."""
    stack, layout = stack or Stack(), laid(collator)
    found = score_layout(model, layout, stack)
    truth = torch.cat(alone(model, stack))
    return (found[layout.mask] - truth).abs().max().item()


def harmless(collator: Collator, position: str) -> bool:
    """What the lesson says of the 24 settings."""
    if collator.layout == "right":
        return True  # what lies behind a token is out of its sight, and column = position
    seen_right = collator.visible == "own"
    return seen_right and (collator.positions == "tokens" or position == "rope")


@settings
@pytest.mark.parametrize("position", KINDS)
def test_the_table_of_the_lesson(collator, position):
    error = off(gpt(position), collator)
    assert error <= ROUNDING if harmless(collator, position) else error > FELT


@pytest.mark.parametrize("layout", get_args(get_type_hints(Collator)["layout"]))
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("shapes", ["free", "fixed"])
def test_in_every_order_of_attention(layout, way, shapes):
    stack = Stack(kernels=Kernels(way, shapes))
    for position in KINDS:
        assert off(gpt(position), Collator(layout), stack) <= ROUNDING
    assert off(gpt(), Collator("packed", visible="all"), stack) > FELT


def test_a_mixture_of_experts_too():
    assert off(gpt(experts=4), Collator("packed")) <= ROUNDING


def test_on_a_stack_of_fixed_shapes_the_layout_moves_no_bit_of_what_it_does_not_move():
    """Right padding leaves each conversation where it was: the same columns, all bits."""
    assert off(gpt(), Collator("right"), PRESETS["true_on_policy"]) == 0.0


def test_where_the_tokens_lie():
    prompts, responses = [[1, 7], [1, 7, 8, 9]], [[4, 5, 6], [2]]
    how = {"pad_id": 0, "width": 12}
    right = lay_out(prompts, responses, Collator("right"), **how)
    assert right.ids.tolist() == [[1, 7, 4, 5, 6], [1, 7, 8, 9, 2]]
    left = lay_out(prompts, responses, Collator("left"), **how)
    assert left.ids.tolist() == [[0, 0, 1, 7, 4, 5, 6], [1, 7, 8, 9, 2, 0, 0]]
    assert left.positions.tolist() == [[0, 0, 0, 1, 2, 3, 4], [0, 1, 2, 3, 4, 0, 0]]
    assert left.segments.tolist() == [[-1, -1, *[0] * 5], [*[1] * 5, -1, -1]]
    packed = lay_out(prompts, responses, Collator("packed"), **how)
    assert packed.ids.tolist() == [[1, 7, 4, 5, 6, 1, 7, 8, 9, 2]]
    assert packed.positions.tolist() == [[*range(5), *range(5)]]
    naive = lay_out(prompts, responses, Collator("packed", "columns", "all"), **how)
    assert naive.positions.tolist() == [[*range(10)]]
    assert naive.segments.unique().numel() == 1
    for layout in (right, left, packed):
        assert layout.mask.tolist() == [[True, True, True], [True, False, False]]
        rows = layout.row[:, None].expand_as(layout.columns)
        tokens = layout.ids[rows, layout.columns][layout.mask]
        assert tokens.tolist() == [4, 5, 6, 2]
        assert layout.ids[layout.response].tolist() == [4, 5, 6, 2]


def test_packing_takes_the_first_row_with_room():
    sizes = [6, 5, 3, 2, 4]
    made = lay_out(
        [[1] * (n - 1) for n in sizes], [[2]] * 5, Collator("packed"), pad_id=0, width=10
    )
    assert made.row.tolist() == [0, 1, 0, 1, 2]
    assert made.start.tolist() == [5, 4, 8, 6, 3]
    assert made.ids.shape == (3, 9)


@pytest.mark.parametrize("offset", [1, 3])
def test_the_stacks_positions_are_those_of_scoring(offset):
    """A gap between prompt and response is ruin; to move everything is nothing."""
    gap, moved = (Stack(positions=Positions(offset, of)) for of in ("response", "all"))
    for collator in (Collator("right"), Collator("left"), Collator("packed")):
        assert off(gpt(), collator, gap) <= ROUNDING  # as `score` does it
        layout = laid(collator)
        plain, shifted, gapped = (
            score_layout(gpt(), layout, s)[layout.mask] for s in (Stack(), moved, gap)
        )
        torch.testing.assert_close(shifted, plain, rtol=0, atol=ROUNDING)
        assert (gapped - plain).abs().max() > FELT


@pytest.mark.parametrize("layout", ["right", "left"])
def test_transformers_with_an_attention_mask_says_the_same(layout, tmp_path):
    from transformers import AutoModelForCausalLM

    model, made = gpt(), laid(Collator(layout))
    save_pretrained(model, tmp_path)
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path)
    with torch.no_grad():
        logits = theirs(
            input_ids=made.ids,
            attention_mask=(made.segments >= 0).long(),
            position_ids=made.positions,
        ).logits
        logp = torch.log_softmax(logits, -1)
        rows = made.row[:, None]
        wanted = logp[rows, made.columns - 1, made.ids[rows, made.columns]]
        mine = score_layout(model, made, Stack())
    torch.testing.assert_close(mine[made.mask], wanted[made.mask], rtol=0, atol=ROUNDING)


def test_what_is_learned_from_a_layout_is_learned_from_each_alone():
    one, other = gpt(), gpt()
    layout = laid(Collator("packed"))
    (-score_layout(one, layout, Stack())[layout.mask].sum()).backward()
    (-torch.cat(alone(other, Stack())).sum()).backward()
    for name, p in one.named_parameters():
        theirs = other.get_parameter(name).grad
        torch.testing.assert_close(p.grad, theirs, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("prompts", "responses", "message"),
    [
        ([], [], "as many, and some: 0 and 0"),
        ([[1]], [], "as many, and some: 1 and 0"),
        ([[1], []], [[1], [2]], r"prompts\[1\] is empty"),
        ([[1], [1]], [[1], []], r"responses\[1\] is empty"),
        ([[1], [1.7, 4]], [[1], [2]], r"prompts\[1\] holds other things than whole ids"),
        ([[1], [1] * 5], [[1], [1] * 4], "conversation 1 needs 9 columns of 8"),
        ([[1] * 6, [1]], [[2], [2] * 3], "conversation 1 needs 9 columns of 8"),
    ],
)
def test_bad_conversations_are_named(prompts, responses, message):
    with pytest.raises(ValueError, match=message):
        lay_out(prompts, responses, Collator("left"), pad_id=0, width=8)


def test_bad_settings_are_named():
    with pytest.raises(ValueError, match="layout must be one of"):
        Collator("centre")  # type: ignore[arg-type]
    replay = Stack(router=Router(replay="rollout"))
    with pytest.raises(ValueError, match=r"router\.replay is 'rollout'"):
        score_layout(gpt(experts=4), laid(Collator()), replay)
    for sampler in (Sampler(top_p=0.8, replay="rollout"), Sampler(repetition_penalty=1.2)):
        with pytest.raises(ValueError, match=r"scored without sampler\.replay and sampler"):
            score_layout(gpt(), laid(Collator()), Stack(sampler=sampler))
