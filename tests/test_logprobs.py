"""What a logprob array may be, and that nothing in padding ever matters."""

import math

import ml_dtypes
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tinyrl.logprobs import check_logps, masked_mean, masked_sum, token_logp

A = torch.tensor([[-0.5, -1.0, -2.0], [-0.1, -0.2, -0.3]])
M = torch.tensor([[True, True, True], [True, True, False]])


def test_checked_arrays_come_back_in_order_with_zeros_for_padding():
    b = A * 2
    b[1, 2] = math.nan
    first, second, mask = check_logps(M, first=A, second=b)
    assert torch.equal(first, torch.where(M, A, 0.0))
    assert torch.equal(second, torch.where(M, 2 * A, 0.0))
    assert torch.equal(mask, M)


def test_no_mask_means_that_every_token_is_real():
    *_, mask = check_logps(a=A)
    assert mask.dtype == torch.bool
    assert mask.all()
    assert mask.shape == A.shape


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32, np.float64])
def test_numpy_of_every_float_width_is_taken_and_upcast(dtype):
    x = A.numpy().astype(dtype)
    got, _ = check_logps(a=x)
    assert got.dtype == (torch.float64 if dtype == np.float64 else torch.float32)
    assert got.tolist() == x.astype(np.float64).astype(got.numpy().dtype).tolist()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_tensors_are_upcast(dtype):
    got, _ = check_logps(a=A.to(dtype))
    assert got.dtype == torch.float32
    assert torch.equal(got, A.to(dtype).float())


def test_big_endian_and_strided_numpy_arrays_are_read_right():
    big = A.numpy().astype(">f4")
    strided = np.repeat(A.numpy(), 2, axis=1)[:, ::2][::-1]
    assert torch.equal(check_logps(a=big)[0], A)
    assert torch.equal(check_logps(a=strided)[0], A.flip(0))


@pytest.mark.parametrize(
    "mask", [M.int(), M.float(), M.double().numpy(), M.numpy(), M.to(torch.uint8).tolist()]
)
def test_masks_of_zeros_and_ones_are_taken(mask):
    assert torch.equal(check_logps(mask, a=A)[-1], M)


def test_a_tiny_positive_logprob_is_rounding():
    x = A.clone()
    x[0, 0] = 9e-7
    assert check_logps(a=x)[0][0, 0] == x[0, 0]


def at(x, value, row=1, column=1):
    x = x.clone()
    x[row, column] = value
    return x


BAD = {
    "1-D": ({"a": A[0]}, None, r"a must be \[B, T\], got shape \[3\]"),
    "3-D": ({"a": A[None]}, None, r"a must be \[B, T\], got shape \[1, 2, 3\]"),
    "no rows": ({"a": A[:0]}, None, r"a is empty: shape \[0, 3\]"),
    "no columns": ({"a": A[:, :0]}, None, r"a is empty: shape \[2, 0\]"),
    "ints": ({"a": A.long()}, None, "a must hold floats, not int64"),
    "strings": ({"a": np.array([["x"]])}, None, "a must hold numbers, not <U1"),
    "objects": ({"a": np.array([[None]])}, None, "a must hold numbers, not object"),
    "complex": (
        {"a": A.to(torch.complex64)},
        None,
        "a must hold real numbers, not complex64",
    ),
    "two shapes": (
        {"a": A, "b": A[:, :2]},
        None,
        r"a and b differ in shape: \[2, 3\] and \[2, 2\]",
    ),
    "transposed": ({"a": A, "b": A.T}, None, r"a and b differ .* \[2, 3\] and \[3, 2\]"),
    "NaN": ({"a": at(A, math.nan)}, M, "a row 1, column 1 is not a number"),
    "-inf": (
        {"a": A, "b": at(A, -math.inf, 0, 2)},
        M,
        "b row 0, column 2 is infinite: -inf",
    ),
    "positive": ({"a": at(A, 0.25)}, M, "a row 1, column 1 is positive.*: 0.25$"),
    "many": ({"a": -A}, M, r"a row 0, column 0 is positive.*: 0.5 \(5 such values\)"),
    "mask shape": ({"a": A}, M[:, :2], r"mask has shape \[2, 2\], .* \[2, 3\]"),
    "mask of halves": ({"a": A}, at(M.float(), 0.5), "mask row 1, column 1 is neither"),
    "mask with NaN": (
        {"a": A},
        at(M.float(), math.nan),
        "mask row 1, column 1 is neither",
    ),
    "mask of twos": (
        {"a": A},
        at(M.int(), 2, 0, 1),
        "mask row 0, column 1 is neither.*: 2",
    ),
    "mask of text": ({"a": A}, np.full((2, 3), "x"), "mask must hold numbers, not <U1"),
    "all false": ({"a": A}, M & False, "mask is false everywhere"),
    "empty response": ({"a": A}, at(M, False, 0, slice(None)), "mask row 0 has no real"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_named_by_array_row_and_column(case):
    arrays, mask, message = BAD[case]
    with pytest.raises(ValueError, match=message):
        check_logps(mask, **arrays)


@given(st.integers(0, 2**32 - 1), st.sampled_from([math.nan, math.inf, -math.inf, 5.0]))
def test_padding_may_hold_anything(seed, garbage):
    g = torch.Generator().manual_seed(seed)
    x = -torch.rand(4, 5, generator=g)
    mask = torch.rand(4, 5, generator=g) < 0.6
    mask[:, 0] = True
    dirty = torch.where(mask, x, garbage).requires_grad_()
    clean, _ = check_logps(mask, x=dirty)
    assert torch.equal(clean, torch.where(mask, x, 0.0))
    (clean.exp() * masked_mean(dirty, mask)).sum().backward()
    assert dirty.grad.isfinite().all()
    assert (dirty.grad[~mask] == 0).all()


def test_token_logp_is_log_softmax_at_the_token():
    g = torch.Generator().manual_seed(0)
    logits = torch.randn(2, 3, 5, generator=g, dtype=torch.float64)
    ids = torch.randint(5, (2, 3), generator=g)
    got = token_logp(logits, ids)
    for b in range(2):
        for t in range(3):
            z = logits[b, t].tolist()
            want = z[ids[b, t]] - math.log(sum(math.exp(v) for v in z))
            assert got[b, t].item() == pytest.approx(want, rel=1e-14)


def test_masked_sums_and_means_count_only_real_tokens():
    x = torch.tensor([[1.0, 2.0, math.nan], [4.0, math.inf, math.nan]])
    mask = torch.tensor([[True, True, False], [True, False, False]])
    assert masked_sum(x, mask).item() == 7
    assert masked_sum(x, mask, 1).tolist() == [3, 4]
    assert masked_mean(x, mask).item() == pytest.approx(7 / 3)
    assert masked_mean(x, mask, 1).tolist() == [1.5, 4]
    assert masked_mean(x, mask, 0).tolist() == [2.5, 2, 0]


def test_the_mean_of_no_token_is_zero_with_zero_gradient():
    x = torch.tensor([[math.nan, -1.0]], requires_grad=True)
    mean = masked_mean(x, torch.tensor([[False, False]]))
    mean.backward()
    assert mean.item() == 0
    assert x.grad.tolist() == [[0, 0]]
