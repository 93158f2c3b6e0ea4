"""The exercises of lab 04 against the library, torch and numpy."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lab_sources import lab
from tinyrl.attention import LOWEST, attend
from tinyrl.course.checking.judging import judge
from tinyrl.course.exercise import Function
from tinyrl.course.exercises import find
from tinyrl.formats import FORMATS, FormatName, quantise
from tinyrl.kernels import Kernels, Numerics, Ops
from tinyrl.positions import places

LAB = "lab04_kernels"


def reference(name: str, *args: object) -> Tensor:
    return torch.as_tensor(find(name).reference(*args))


def parts(name: str, *args: object) -> list[Tensor]:
    return [torch.as_tensor(part) for part in find(name).reference(*args)]


def draw(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def close(mine: Tensor, theirs: Tensor) -> None:
    torch.testing.assert_close(mine, theirs, rtol=1e-12, atol=1e-12)


def test_online_steps_make_an_attention() -> None:
    s, v = 5 * draw(4, 13), draw(13, 3, seed=1)
    s[1, :5] += 2000  # exp of a difference the wrong way round overflows
    s[0] -= 5000
    state = [torch.full((4,), LOWEST).double(), torch.zeros(4), torch.zeros(4, 3)]
    for keys in (slice(0, 5), slice(5, 6), slice(6, 13)):
        state = parts("online_step", *state, s[:, keys], v[keys])
    m, total, y = state
    close(y / total[:, None], s.softmax(-1) @ v)
    close(m + total.log(), s.logsumexp(-1))


@pytest.mark.parametrize("middle", [0.0, 800.0, -800.0])
def test_merged_parts_are_the_attention_of_all_keys(middle: float) -> None:
    s, v = middle + 4 * draw(4, 9), draw(9, 3, seed=1)
    both = []
    for keys in (slice(0, 4), slice(4, 9)):
        both += [s[:, keys].softmax(-1) @ v[keys], s[:, keys].logsumexp(-1)]
    y, lse = parts("merge_parts", *both)
    close(y, s.softmax(-1) @ v)
    close(lse, s.logsumexp(-1))


def test_parallel_logp_is_log_softmax_of_the_whole_vocabulary() -> None:
    logits = 30 * draw(5, 12)
    logits[0], logits[1] = logits[0] + 3000, logits[1] - 3000
    shards = torch.stack(logits.chunk(4, -1))
    top = shards.amax(-1)
    total = (shards - top[..., None]).exp().sum(-1)
    close(
        reference("parallel_logp", logits[:, 7], top, total), logits.log_softmax(-1)[:, 7]
    )


def test_unfused_norm_is_the_librarys() -> None:
    x = quantise(draw(200, 32).float(), "bf16")
    gain = quantise(1 + 0.1 * draw(32, seed=1).float(), "bf16")
    ops = Ops(Kernels(norm="unfused"), Numerics(activations="bf16"))
    assert torch.equal(reference("unfused_norm", x, gain, 0.1), ops.norm(x, gain, 0.1))
    fused = Ops(Kernels(), Numerics(activations="bf16")).norm(x, gain, 0.1)
    assert not torch.equal(reference("unfused_norm", x, gain, 0.1), fused)


@pytest.mark.parametrize("fmt", ["int8", "int4"])
def test_cached_attention_is_attention_to_what_the_librarys_cache_holds(
    fmt: FormatName,
) -> None:
    q, k, v = (draw(n, 8, seed=n).float() for n in (1, 11, 12))
    v = v[:11]
    levels = int(FORMATS[fmt].max)
    kept = [quantise(t, fmt).double()[None, None] for t in (k, v)]
    visible = torch.ones(1, 11, dtype=torch.bool)
    want = attend(q.double()[None, None], kept[0], kept[1], visible)[0, 0, 0]
    mine = reference("cached_attention", q[0].double(), k.double(), v.double(), levels)
    torch.testing.assert_close(mine, want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("start", "tokens", "keys"), [(0, 4, 9), (3, 1, 4), (2, 5, 16)])
def test_chunk_mask_is_what_the_model_looks_through(
    start: int, tokens: int, keys: int
) -> None:
    at = places(torch.arange(start, start + tokens), start, keys, 4, 100.0)
    assert torch.equal(reference("chunk_mask", start, tokens, keys), at.visible)


def test_ranked_sum_is_a_row_parallel_product() -> None:
    layer = nn.Linear(16, 5, bias=False)
    x = (40 * draw(6, 16)).round().float()  # whole numbers: float32 adds them exactly
    with torch.no_grad():
        layer.weight.copy_((40 * draw(5, 16, seed=1)).round())
        ops = Ops(Kernels(tensor_parallel=4), Numerics(partial="bf16"))
        want = ops.row_parallel(x, layer)
        assert torch.equal(reference("ranked_sum", x, layer.weight, 4), want)


def test_same_bits_is_what_numpy_reads() -> None:
    a = torch.tensor([[0.0, 1.0], [0.0, torch.nan], [2.0, 3.0], [1.0, 1.0], [4.0, 5.0]])
    a = torch.cat([a, torch.tensor([[0.0, torch.nan], [1e-40, 0.0], [1e-30, 0.0]])])
    b = a.clone()
    b.view(torch.int32)[5, 1] += 1
    b.view(torch.int32)[6:, 0] += 1
    b[0, 0], b[2, 1] = -0.0, torch.nextafter(a[2, 1], torch.tensor(9.0))
    b[4] = a[4].flip(0)
    bits = a.numpy().view(np.int32) == b.numpy().view(np.int32)
    assert reference("same_bits", a, b).tolist() == bits.all(-1).tolist()
    assert bits.all(-1).tolist() == [False, True, False, True, False, *[False] * 3]


def one_maximum(y1: Tensor, l1: Tensor, y2: Tensor, l2: Tensor) -> tuple[Tensor, Tensor]:
    t = torch.maximum(l1.max(), l2.max())
    e1, e2 = (l1 - t).exp(), (l2 - t).exp()
    return (e1[:, None] * y1 + e2[:, None] * y2) / (e1 + e2)[:, None], t + (e1 + e2).log()


def at_part_2(y1: Tensor, l1: Tensor, y2: Tensor, l2: Tensor) -> tuple[Tensor, Tensor]:
    r = (l1 - l2).exp()
    return (r[:, None] * y1 + y2) / (1 + r)[:, None], l2 + torch.log1p(r)


def naive_merge(y1: Tensor, l1: Tensor, y2: Tensor, l2: Tensor) -> tuple[Tensor, Tensor]:
    e1, e2 = l1.double().exp(), l2.double().exp()
    return (e1[:, None] * y1 + e2[:, None] * y2) / (e1 + e2)[:, None], (e1 + e2).log()


def naive_step(m: Tensor, n: Tensor, y: Tensor, s: Tensor, v: Tensor) -> list[Tensor]:
    top, old, p = torch.maximum(m, s.amax(1)), m.double().exp(), s.double().exp()
    y = (y * old[:, None] + p @ v.double()) / top.double().exp()[:, None]
    return [top, (n * old + p.sum(1)) / top.double().exp(), y]


def six_steps(x: Tensor, gain: Tensor, eps: float) -> Tensor:
    y = x.bfloat16()
    return y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + eps) * gain.bfloat16()


def divided(x: Tensor, gain: Tensor, eps: float) -> Tensor:
    y = x.bfloat16()
    root = ((y * y).float().mean(1, keepdim=True).bfloat16().float() + eps).sqrt()
    return y / root.bfloat16() * gain.bfloat16()


def guarded(q: Tensor, k: Tensor, v: Tensor, levels: int) -> Tensor:
    scales = [(x.abs().amax(1, keepdim=True) / levels).clamp(min=1e-8) for x in (k, v)]
    keys, values = ((x / s).round() * s for x, s in zip((k, v), scales, strict=True))
    y: Tensor = (keys @ q / len(q) ** 0.5).softmax(0) @ values
    return y


def log_of_probability(z: Tensor, top: Tensor, total: Tensor) -> Tensor:
    highest = top.amax(0)
    return ((z - highest).exp() / (total * (top - highest).exp()).sum(0)).log()


def bf16_all_through(x: Tensor, w: Tensor, ranks: int) -> Tensor:
    total = torch.zeros(len(x), len(w), dtype=torch.bfloat16)
    for a, b in zip(x.chunk(ranks, 1), w.chunk(ranks, 1), strict=True):
        total = total + a.bfloat16() @ b.bfloat16().T
    return total


@pytest.mark.parametrize(
    ("name", "answer", "mistake"),
    [
        ("merge_parts", one_maximum, "one_maximum"),
        ("merge_parts", at_part_2, "second_subtracted"),
        ("merge_parts", naive_merge, "overflow"),
        ("online_step", naive_step, "plain_exp"),
        ("parallel_logp", lambda z, top, n: z - (n * top.double().exp()).sum(0).log(),
         "plain_exp"),
        ("parallel_logp", log_of_probability, "rescaled_to_the_token"),
        ("ranked_sum", bf16_all_through, "inputs_rounded"),
        ("unfused_norm", divided, "divided"),
        ("cached_attention", guarded, "smallest_scale"),
        ("unfused_norm", six_steps, "six_steps"),
        ("same_bits", lambda a, b: torch.tensor(
            [str(x) == str(y) for x, y in zip(a.tolist(), b.tolist(), strict=True)]),
         "any_nan"),
        ("same_bits", lambda a, b: ((a - b).abs() < 1e-12).all(1), "small_difference"),
    ],
)  # fmt: skip
def test_an_answer_written_in_other_words_is_told_what_is_wrong(
    name: str, answer: Function, mistake: str
) -> None:
    """Answers that a learner may write, in float64 or in BF16 where that comes natural."""
    assert {judge(find(name), answer, seed).mistake for seed in range(20)} == {mistake}


@pytest.mark.parametrize("seed", range(5))
def test_ranks_multiply_more_digits_than_bf16_has_and_add_them_exactly(seed: int) -> None:
    for case in find("ranked_sum").inputs(seed)[1:]:
        x, w, _ = case.args
        assert isinstance(x, Tensor)
        assert isinstance(w, Tensor)
        assert all((t.bfloat16().float() != t).any() for t in (x, w))
        largest = x.abs() @ w.abs().T * 128**2  # in units of the last digit of a product
        assert largest.max() < 2**24


@pytest.mark.parametrize("seed", range(3))
def test_caches_of_both_formats_whose_largest_entries_lie_anywhere(seed: int) -> None:
    drawn = [c.args for c in find("cached_attention").inputs(seed) if c.stage == "inputs"]
    assert {levels for *_, levels in drawn} == {7, 127}
    at = torch.cat([torch.as_tensor(k).abs().argmax(1) for _, k, _, _ in drawn])
    assert len(at.unique()) > 2


def test_numbers_of_the_open_question_and_of_the_guess() -> None:
    cells = lab(LAB).cells
    marked = {c.metadata.nbgrader.grade_id: c for c in cells if "nbgrader" in c.metadata}
    fp8, bf16 = (ml_dtypes.finfo(t).eps for t in (ml_dtypes.float8_e4m3fn, "bfloat16"))
    assert float(fp8) / float(bf16) == 16
    for name in ("open_rubric", "open_answer"):
        text = " ".join(marked[name].source.split())
        assert "16 times" in text
        assert "three mantissa bits" in text
    total = torch.tensor(256.0).bfloat16() + torch.tensor(1.0).bfloat16() + 1
    assert total == 256
    assert F.linear(torch.ones(1, 3), torch.tensor([[256.0, 1, 1]])) == 258
