"""Arguments that once gave a wrong number without a word: each is refused, or right."""

from __future__ import annotations

import math
import re
from collections.abc import Callable

import numpy as np
import pytest
import torch

from batches import batch
from tinyrl.agreement import top_k, top_k_agreement
from tinyrl.alarms import judge
from tinyrl.explain import explain
from tinyrl.formats import round_to
from tinyrl.intervals import Interval
from tinyrl.logprobs import check_logps, masked_mean, token_logp
from tinyrl.metrics import by_position, by_probability, compare, sequence_delta
from tinyrl.model import GPT, GPTConfig
from tinyrl.objectives import ppo, soft_gate
from tinyrl.runs import Settings
from tinyrl.sampling import gumbel
from tinyrl.tokens import Tokenizer, first_difference

LOGP, OLD, A, MASK = batch(0)
DELTA = torch.where(MASK, LOGP - OLD, 0.0)
SPOILED = DELTA.masked_fill(torch.arange(7) == 0, math.nan)
REFUSED: dict[str, tuple[Callable[[], object], str]] = {
    "logprobs as likeliest tokens": (
        lambda: compare(OLD, LOGP, MASK, top1_rollout=OLD, top1_train=LOGP),
        "top1_rollout must hold integers, not float64",
    ),
    "probabilities as logprobs": (
        lambda: by_probability(DELTA, OLD.exp(), MASK),
        "logp_rollout row 0, column 0 is positive, so no logprob",
    ),
    "a gap among logprobs": (
        lambda: by_probability(DELTA, SPOILED, MASK),
        "logp_rollout row 0, column 0 is not a number",
    ),
    "a gap, by probability": (
        lambda: by_probability(SPOILED, OLD, MASK),
        "delta row 0, column 0 is not finite: nan",
    ),
    "a gap, by position": (
        lambda: by_position(SPOILED, MASK),
        "delta row 0, column 0 is not finite: nan",
    ),
    "a gap, by response": (
        lambda: sequence_delta(SPOILED, MASK),
        "delta row 0, column 0 is not finite: nan",
    ),
    "a mask of one column": (
        lambda: masked_mean(LOGP, MASK[:, :1]),
        "x and mask differ in shape: [5, 7] and [5, 1]",
    ),
    "a log-weight as weight": (
        lambda: ppo(LOGP, OLD, A, torch.ones_like(MASK), weight=LOGP),
        "weight row 0, column 0 is negative",
    ),
    "what a masked array hides": (
        lambda: check_logps(MASK, x=np.ma.masked_array(OLD.numpy(), ~MASK.numpy())),
        "x must be a plain array",
    ),
    "a number that its own dtype rounds again": (
        lambda: round_to(torch.tensor([70_000.0]).bfloat16(), "fp16"),
        "round_to takes float32 or float64, not torch.bfloat16",
    ),
    "logprobs as ids": (
        lambda: first_difference([-0.2, -0.7], [-0.9, -0.1]),
        "ids must be whole numbers [T], not [-0.2, -0.7]",
    ),
    "a float as id": (
        lambda: Tokenizer().decode([1.7]),  # type: ignore[list-item]
        "ids must be whole numbers [T], not [1.7]",
    ),
    "half a step of staleness": (
        lambda: Settings(staleness=0.5),  # type: ignore[arg-type]
        "staleness must be a whole number from 0, not 0.5",
    ),
    "no key heads": (lambda: GPTConfig(kv_heads=0), "kv_heads must be at least 1, not 0"),
    "angles that are NaN": (
        lambda: GPTConfig(rope_base=-1.0),
        "rope_base must be above 0, not -1.0",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_it_is_refused(name):
    call, said = REFUSED[name]
    with pytest.raises(ValueError, match="^" + re.escape(said)):
        call()


@pytest.mark.parametrize(
    "draw", [lambda: gumbel((3,), None), lambda: GPT(GPTConfig(), None)]
)
def test_no_draw_comes_of_the_global_generator(draw):
    with pytest.raises(TypeError, match=r"^generator must be a torch\.Generator, not None"):
        draw()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_narrow_logits_have_logprobs_of_full_precision(dtype):
    logits = 10 * torch.randn(2, 3, 5, generator=torch.Generator().manual_seed(0))
    logits, ids = logits.to(dtype), torch.tensor([[0, 1, 2], [3, 4, 0]])
    assert torch.equal(token_logp(logits, ids), token_logp(logits.float(), ids))


def test_a_ratio_of_whole_numbers_has_its_own_temperature():
    r, side = torch.tensor([1, 2]), torch.tensor([1.0, -1.0])
    assert torch.equal(soft_gate(r, side, 0.5, 1.05), soft_gate(r.float(), side, 0.5, 1.05))


@pytest.mark.parametrize("as_type", [torch.Tensor.long, torch.Tensor.numpy])
def test_a_mask_of_any_type_masks_top_k(as_type):
    g = torch.Generator().manual_seed(0)
    sides = [top_k(torch.randn(5, 7, 9, generator=g), 2) for _ in range(2)]
    want = top_k_agreement(*sides, MASK)
    for name, x in top_k_agreement(*sides, as_type(MASK)).items():
        assert torch.equal(x, want[name]), name


def test_no_verdict_is_sure_of_an_interval_without_ends():
    (verdict,) = judge({"ess": Interval(0.1, math.nan, math.nan)})
    assert verdict.rings
    assert verdict.sure is False


@pytest.mark.parametrize("does", ["mask", "truncate"])
def test_a_bound_of_zero_can_be_explained(does):
    flags = [
        f"vllm_importance_sampling_mode=sequence_{does}",
        "vllm_importance_sampling_clip_max=0",
    ]
    reading = explain("trl", flags)
    assert reading.correction is None
    assert reading.lacking
    assert "leave 1 out" in reading.lacking.en
