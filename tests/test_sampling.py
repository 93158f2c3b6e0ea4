"""The processors against those of `transformers`, and what they have to have in common."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from transformers import (
    LogitsProcessorList,
    MinPLogitsWarper,
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from tinyrl.sampling import Sampler, min_p, occurred, top_k, top_p

V = 16
TIED = st.sampled_from([-2.0, -0.5, 0.0, 0.5, 1.0, 3.0])  # rows of these are full of ties
ROWS = st.lists(
    st.lists(TIED, min_size=V, max_size=V)
    | st.lists(st.floats(-30, 30, width=32), min_size=V, max_size=V),
    min_size=1,
    max_size=4,
)
SAMPLERS = st.builds(
    Sampler,
    temperature=st.sampled_from([0.5, 0.6, 1.0, 1.7]),
    top_k=st.sampled_from([0, 1, 2, 5, V, 99]),
    top_p=st.sampled_from([1e-6, 0.1, 0.5, 0.9, 0.95, 0.999, 1.0]),
    min_p=st.sampled_from([0.0, 0.05, 0.3, 1.0]),
    repetition_penalty=st.sampled_from([0.8, 1.0, 1.05, 1.5]),
)


def theirs(s: Sampler, ids: Tensor, logits: Tensor) -> Tensor:
    """What `generate` makes of logits `[N, V]`: its processors, in its order."""
    chain = LogitsProcessorList()
    if s.repetition_penalty != 1:
        chain.append(RepetitionPenaltyLogitsProcessor(s.repetition_penalty))
    if s.temperature != 1:
        chain.append(TemperatureLogitsWarper(s.temperature))
    if s.top_k:
        chain.append(TopKLogitsWarper(s.top_k))
    if s.top_p < 1:
        chain.append(TopPLogitsWarper(s.top_p))
    if s.min_p:
        chain.append(MinPLogitsWarper(s.min_p))
    made: Tensor = chain(ids, logits.clone())
    return made


@given(SAMPLERS, ROWS, st.integers(0, 10**6))
def test_equal_to_transformers_to_the_last_bit(
    s: Sampler, rows: list[list[float]], seed: int
) -> None:
    """The same operations on the same floats, ties and the order of the chain included."""
    logits = torch.tensor(rows)
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(V, (len(logits), 6), generator=generator)
    before = torch.zeros(len(logits), V, dtype=torch.bool).scatter(1, ids, True)
    assert torch.equal(s.process(logits, before), theirs(s, ids, logits))


@given(st.sampled_from([1e-3, 0.2, 0.5, 0.75, 0.9, 0.999]), ROWS)
def test_the_nucleus_is_the_smallest_set_that_reaches_p(
    p: float, rows: list[list[float]]
) -> None:
    """By enumeration in float64; eps covers the float32 sums that decide in the code."""
    logits, eps = torch.tensor(rows), V * 2.0**-23
    kept, probs = top_p(logits, p), logits.double().softmax(-1)
    for keep, row in zip(kept, probs, strict=True):
        inside = sorted(row[keep].tolist())
        assert math.fsum(inside) >= p - eps
        assert math.fsum(inside[1:]) <= p + eps, "without its least token it falls short"
        assert keep.all() or min(inside) >= row[~keep].max() - eps


def test_by_hand() -> None:
    probs = torch.tensor([[0.5, 0.25, 0.15, 0.1]])
    logits = probs.log()
    told = {
        "top_k 2": (top_k(logits, 2), [1, 1, 0, 0]),
        "top_p 0.6, which the second crosses": (top_p(logits, 0.6), [1, 1, 0, 0]),
        "top_p 0.8": (top_p(logits, 0.8), [1, 1, 1, 0]),
        "min_p 0.4": (min_p(logits, 0.4), [1, 1, 0, 0]),
        "min_p 0.1": (min_p(logits, 0.1), [1, 1, 1, 1]),
    }
    for name, (kept, wanted) in told.items():
        assert kept.int().tolist() == [wanted], name


def test_the_order_matters() -> None:
    """Top-p of what top-k has left is not top-k of what top-p has left."""
    logits = torch.tensor([[0.4, 0.3, 0.2, 0.1]]).log()
    both = Sampler(top_k=3, top_p=0.75).process(logits).isfinite()
    assert both.int().tolist() == [[1, 1, 0, 0]]  # 0.7 / 0.9 reaches 0.75
    assert (top_k(logits, 3) & top_p(logits, 0.75)).int().tolist() == [[1, 1, 1, 0]]


def test_the_penalty_lowers_both_signs_and_counts_a_token_once() -> None:
    s = Sampler(repetition_penalty=2.0)
    logits = torch.tensor([[1.0, -1.0, 1.0, -1.0]])
    before = torch.tensor([[True, True, False, False]])
    assert s.penalised(logits, before).tolist() == [[0.5, -2.0, 1.0, -1.0]]
    grown = torch.tensor([[3, 3, 3]])
    seen = occurred(torch.tensor([[3, 3]]), grown, 4)
    assert seen.shape == (1, 3, 4)
    assert seen.sum(-1).tolist() == [[1, 1, 1]]


def test_what_stands_before_is_prompt_and_earlier_response() -> None:
    prompt, response = torch.tensor([[5, 1], [2, 2]]), torch.tensor([[0, 3, 4], [1, 1, 7]])
    seen = occurred(prompt, response, 8)
    for b in range(2):
        for t in range(3):
            wanted = {*prompt[b].tolist(), *response[b, :t].tolist()}
            assert set(seen[b, t].nonzero().flatten().tolist()) == wanted


def test_the_gradient_is_that_of_the_kept_logits() -> None:
    """Of log p_kept: one-hot minus p over the kept, 0 for what is cut; in float64."""
    logits = torch.randn(1, 1, V, generator=torch.Generator().manual_seed(0)).double()
    logits.requires_grad_()
    kept = top_p(logits.detach(), 0.7)
    token = logits.argmax(-1)
    Sampler(top_p=0.7).reported(logits, token).sum().backward()  # type: ignore[no-untyped-call]
    p = logits.detach().softmax(-1) * kept
    wanted = torch.nn.functional.one_hot(token, V) - p / p.sum()
    assert logits.grad is not None
    torch.testing.assert_close(logits.grad, wanted, rtol=0, atol=1e-12)
    assert (logits.grad[~kept] == 0).all()


def test_idle_processors_are_skipped() -> None:
    logits = torch.randn(2, 3, V, generator=torch.Generator().manual_seed(0))
    assert Sampler().process(logits) is logits
    assert not Sampler(repetition_penalty=1.3, temperature=0.5).cuts
    assert all(s.cuts for s in (Sampler(top_k=V), Sampler(top_p=0.9), Sampler(min_p=0.1)))


def test_raw_logprobs_are_those_of_the_model_whatever_is_cut() -> None:
    logits = torch.randn(2, 3, V, generator=torch.Generator().manual_seed(0))
    ids = logits.argmin(-1)
    s = Sampler(0.5, top_k=2, logprobs="raw")
    wanted = logits.log_softmax(-1).gather(-1, ids[..., None])[..., 0]
    assert torch.equal(s.reported(logits, ids), wanted)
    cut = Sampler(top_k=2).reported(logits, ids)
    assert (cut == -torch.inf).all()


@pytest.mark.parametrize("way", ["fused", "naive", "chunked"])
@pytest.mark.parametrize("p", [0.05, 0.9])
def test_each_logsumexp_knows_minus_infinity(way: str, p: float) -> None:
    logits = 4 * torch.randn(20, 3, V, generator=torch.Generator().manual_seed(0))
    ids, kept = logits.argmax(-1), top_p(logits, p)
    logp = Sampler(top_p=p).reported(logits, ids, way)  # type: ignore[arg-type]
    q = torch.where(kept, logits.double().softmax(-1), 0.0)
    wanted = (q / q.sum(-1, keepdim=True)).log().gather(-1, ids[..., None])[..., 0]
    torch.testing.assert_close(logp.double(), wanted, rtol=0, atol=4e-6)


def test_kept_of_another_shape_or_type_is_refused() -> None:
    logits = torch.zeros(2, 3, 4)
    with pytest.raises(
        ValueError, match=r"kept must be bool \[2, 3, 4\], not .*\[2, 2, 4\]"
    ):
        Sampler().process(logits, kept=torch.ones(2, 2, 4, dtype=torch.bool))
    with pytest.raises(ValueError, match=r"kept must be bool .*, not torch.float32"):
        Sampler().process(logits, kept=torch.ones(2, 3, 4))


def test_a_penalty_without_the_tokens_before_is_refused() -> None:
    s, ids = Sampler(repetition_penalty=1.1), torch.zeros(1, 2, dtype=torch.long)
    with pytest.raises(ValueError, match="repetition_penalty needs the prompt"):
        s.before(None, ids, 4)
    with pytest.raises(ValueError, match="needs the tokens that stand before"):
        s.process(torch.zeros(1, 2, 4))
    square = torch.zeros(2, 2, 4)  # would broadcast over the wrong axis
    with pytest.raises(ValueError, match=r"before must be bool \[2, 2, 4\]"):
        s.penalised(square, square[0].bool())
    with pytest.raises(ValueError, match="prompt is empty"):
        s.before(ids[:, :0], ids, 4)


def test_a_temperature_that_no_float_can_divide_by_is_refused() -> None:
    with pytest.raises(ValueError, match=r"temperature must be at least 1e-06, not 1e-40"):
        Sampler(temperature=1e-40)
    cold = Sampler(temperature=1e-6).process(torch.tensor([30.0, -30.0]))
    assert cold.log_softmax(-1).isfinite().any()
