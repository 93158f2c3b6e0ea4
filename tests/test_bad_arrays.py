"""Arrays of every kind and damaged files: read right, or refused in one plain line."""

import os
import struct
import warnings

import ml_dtypes
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tinyrl.diagnosis import diagnose
from tinyrl.diagnosis.command import load, run
from tinyrl.logprobs import check_logps

A = np.array([[-0.5, -1.0, -2.0], [-0.25, -4.0, -8.0]])  # exact in every format below
SMALL = ["float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz"]


def mapped(folder):
    np.save(folder / "x.npy", A)
    return np.load(folder / "x.npy", mmap_mode="r")


GOOD = {
    **{f"torch {n}": lambda _, n=n: torch.tensor(A).to(getattr(torch, n)) for n in SMALL},
    **{f"numpy {n}": lambda _, n=n: A.astype(getattr(ml_dtypes, n)) for n in SMALL},
    "longdouble": lambda _: A.astype(np.longdouble),
    "big-endian half": lambda _: A.astype(">f2"),
    "big-endian double": lambda _: A.astype(">f8"),
    "Fortran order": lambda _: np.asfortranarray(A),
    "backwards": lambda _: A[::-1][::-1, ::-1][:, ::-1],
    "memory-mapped": mapped,
    "lists": lambda _: A.tolist(),
    "list of tensors": lambda _: list(torch.tensor(A)),
}


@pytest.mark.parametrize("kind", GOOD)
def test_floats_of_every_width_and_layout_are_read(kind, tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        x, mask = check_logps(a=GOOD[kind](tmp_path))
    assert x.dtype in (torch.float32, torch.float64)
    assert x.tolist() == A.tolist()
    assert mask.all()
    assert diagnose(GOOD[kind](tmp_path), A).mismatch.max_abs == 0


@pytest.mark.parametrize("dtype", [np.longdouble, ">i2", np.uint64, ml_dtypes.float8_e5m2])
def test_masks_of_every_width_are_read(dtype):
    mask = np.array([[1, 1, 0], [1, 0, 0]])
    assert check_logps(mask.astype(dtype), a=A)[-1].tolist() == (mask == 1).tolist()


BAD = {
    "structured": (np.zeros((2, 3), [("p", "f4")]), "x must hold numbers, not .*'p'"),
    "bytes of bfloat16": (np.zeros((2, 3), "V2"), "x must hold numbers.* save float32"),
    "complex": (A.astype(complex), "x must hold numbers, not complex128"),
    "complex tensor": (torch.tensor(A) * 1j, "x must hold real numbers, not complex128"),
    "dates": (np.zeros((2, 3), "M8[s]"), "x must hold numbers, not datetime64"),
    "objects": (np.full((2, 3), None), "x must hold numbers, not object"),
    "None": (None, "x must hold numbers, not object"),
    "a number": (-1.0, r"x must be \[B, T\], got shape \[\]"),
    "no dimension": (np.array(-1.0), r"x must be \[B, T\], got shape \[\]"),
    "booleans": (A < -1, "x must hold floats, not bool"),
    "integers": (A.astype(int), "x must hold floats, not int64"),
    "ragged": ([[-1.0], [-1.0, -2.0]], "x is not an array"),
    "sparse": (torch.tensor(A).to_sparse(), "x must be a dense tensor"),
    "without storage": (torch.zeros(2, 3, device="meta"), "x must be a dense tensor"),
    "too wide": (
        np.full((2, 3), np.longdouble("-1e4000")),
        "x row 0, column 0 is infinite",
    ),
}


@pytest.mark.parametrize("kind", BAD)
def test_other_arrays_are_refused_by_name(kind):
    x, message = BAD[kind]
    with pytest.raises(ValueError, match=message):
        check_logps(x=x)
    with pytest.raises(ValueError, match=message.replace("x ", "logp_train ", 1)):
        diagnose(A, x)


def test_a_list_of_tensors_with_gradient_is_refused():
    with pytest.raises(ValueError, match=r"x is not an array: .*detach"):
        check_logps(x=[torch.ones(2).requires_grad_()])


@pytest.mark.parametrize(
    ("mask", "message"),
    [
        (torch.ones(2, 3) * 1j, "mask must hold real numbers"),
        (np.full((2, 3), "1"), "mask must hold numbers"),
        ([[1], [1, 1]], "mask is not an array"),
        (torch.ones(2, 3).to_sparse(), "mask must be a dense tensor"),
        (True, r"mask has shape \[\], logprobs have \[2, 3\]"),
        (np.ones((3, 2)), r"mask has shape \[3, 2\]"),
        (np.ones((1, 2, 3)), r"mask has shape \[1, 2, 3\]"),
        (-np.eye(2, 3), "mask row 0, column 0 is neither 0 nor 1: -1"),
    ],
)
def test_other_masks_are_refused(mask, message):
    with pytest.raises(ValueError, match=message):
        diagnose(A, A, mask)


# Files


def file_of(header, data=bytes(48)):
    raw = header.encode("latin-1")
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(raw)) + raw + data


def described(shape="(2, 3)", descr="'<f8'", order="False"):
    return f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}}}\n"


DAMAGED = {
    "huge": described("(99999999999, 99999999999)"),
    "beyond 64 bits": described("(99999999999999999999999999, 3)"),
    "more than memory": described("(20000000000000, 3)"),
    "negative": described("(-2, -3)"),
    "unknown length": described("(-1,)"),
    "true": described("(True, 3)"),
    "float": described("(2.0, 3)"),
    "open": described()[:-4],
    "open string": "{'''",
    "no Python": "{{'descr': ]",
    "binary": "\xff\xfe\x00{(",
    "nested": "(" * 9000,
    "signs": "-" * 5000 + "1",
    "long": "a" * 20000,
    "no dtype": described(descr="'zzz'"),
    "pickled": described(descr="'|O'"),
    "no order": described(order="3"),
    "empty": "",
}


@pytest.mark.parametrize("kind", DAMAGED)
def test_a_damaged_header_is_said_in_one_line(kind, tmp_path, capfd):
    path = tmp_path / "damaged.npy"
    path.write_bytes(file_of(DAMAGED[kind]))
    with pytest.raises(ValueError, match=r"damaged\.npy cannot be read: ."):
        load(path)
    assert run(path, path) == 2
    out, err = capfd.readouterr()
    assert out == ""
    assert err.count("\n") == 1


HEADERS = {
    "structured": (described(descr="[('p', '<f8')]"), "must hold numbers"),
    "void": (described(descr="'|V8'"), "must hold numbers"),
    "complex": (described("(1, 3)", "'<c16'"), "must hold numbers"),
    "no dimension": (described("()"), r"must be \[B, T\]"),
    "no token": (described("(0, 99999999)"), "at least one token"),
    "integers": (described(descr="'<i8'"), "must hold floats"),
}


@pytest.mark.parametrize("kind", HEADERS)
def test_a_file_of_another_kind_of_array_is_said_in_one_line(kind, tmp_path, capfd):
    header, message = HEADERS[kind]
    path = tmp_path / "other.npy"
    path.write_bytes(file_of(header))
    assert run(path, path) == 2
    _, err = capfd.readouterr()
    assert message.replace("\\", "") in err
    assert "other.npy" in err
    assert err.count("\n") == 1


def test_a_header_of_python_2_is_read_without_a_word(tmp_path, capfd):
    path = tmp_path / "old.npy"
    path.write_bytes(file_of(described("(2L, 3L)"), A.tobytes()))
    assert load(path).tolist() == A.tolist()
    assert capfd.readouterr() == ("", "")


def test_what_is_no_file(tmp_path):
    loop = tmp_path / "loop.npy"
    loop.symlink_to(loop)
    for path in (loop, tmp_path / ("a" * 5000)):
        with pytest.raises(ValueError, match="cannot be read"):
            load(path)
    with pytest.raises(ValueError, match="is a folder"):
        load(tmp_path)


@pytest.mark.skipif(os.name != "posix", reason="devices and permissions of POSIX")
def test_what_cannot_be_opened_or_is_empty_for_ever(tmp_path):
    with pytest.raises(ValueError, match=r"/dev/null is not a \.npy file"):
        load(type(tmp_path)("/dev/null"))
    closed = tmp_path / "closed.npy"
    np.save(closed, A)
    closed.chmod(0)
    if os.access(closed, os.R_OK):
        pytest.skip("this user may read everything")
    with pytest.raises(ValueError, match=r"closed\.npy cannot be read: Permission denied"):
        load(closed)


@pytest.fixture(scope="module")
def valid(tmp_path_factory):
    path = tmp_path_factory.mktemp("fuzz") / "a.npy"
    np.save(path, A)
    return path, path.read_bytes()


@given(
    st.lists(st.tuples(st.integers(0, 175), st.integers(0, 255)), min_size=1, max_size=6),
    st.integers(0, 176) | st.just(176),
)
def test_any_damage_to_a_file_gives_an_array_or_a_reason(valid, flips, length):
    path, whole = valid
    damaged = bytearray(whole)
    for place, value in flips:
        damaged[place] = value
    path.write_bytes(damaged[:length])
    try:
        array = load(path)
    except ValueError:
        return
    assert isinstance(array, torch.Tensor)
