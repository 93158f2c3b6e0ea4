"""Files that are not what `tinyrl diagnose` asks for: each is told what it seems to be."""

from __future__ import annotations

import math
import pickle
import re

import numpy as np
import pytest
import torch

from tinyrl.diagnosis.command import run
from tinyrl.diagnosis.files import load

GOOD = np.array([[-1.0, -0.5, -2.0, -0.1], [-0.3, -4.0, -0.7, -1.5]])
LATE = np.array([[True, True, True, False], [True, True, False, False]])


class Evil:
    def __reduce__(self):
        return (print, ("pickle was run",))


def padded(x):
    return np.where(LATE, GOOD, x)


ARRAYS = {
    "good.npy": GOOD,
    "wide.npy": np.full((2, 5), -1.0),
    "longer.npy": np.full((2, 9), -1.0),
    "turned.npy": GOOD.T,
    "other.npy": np.full((3, 4), -1.0),
    "cube.npy": np.full((2, 4, 8), -2.0),
    "flat.npy": GOOD.reshape(-1),
    "empty.npy": np.zeros((0, 4)),
    "nan.npy": np.where(LATE & ~np.eye(2, 4, k=1, dtype=bool), GOOD, math.nan),
    "inf.npy": np.where(LATE, GOOD, -math.inf),
    "losses.npy": -GOOD,
    "sure.npy": np.array([[0.01, 0.02, 0.0, 0.01]] * 2),
    "probabilities.npy": np.exp(GOOD),
    "logits.npy": GOOD + 2,
    "ids.npy": np.array([[5, 1003, 7, 2]] * 2),
    "mask.npy": LATE,
    "mask_floats.npy": LATE.astype(np.float32),
    "mask_ints.npy": LATE.astype(np.int64),
    "mask_wide.npy": np.ones((2, 5), dtype=bool),
    "mask_two.npy": np.full((2, 4), 2),
    "mask_none.npy": np.zeros((2, 4), dtype=bool),
    "text_array.npy": np.array([["a", "b", "c", "d"]] * 2),
}


@pytest.fixture
def folder(tmp_path):
    for name, array in ARRAYS.items():
        np.save(tmp_path / name, array)
    (tmp_path / "text.npy").write_text("hello")
    (tmp_path / "nothing.npy").write_bytes(b"")
    whole = (tmp_path / "good.npy").read_bytes()
    (tmp_path / "short.npy").write_bytes(whole[:-8])
    (tmp_path / "header.npy").write_bytes(whole[:20])
    (tmp_path / "pickle.npy").write_bytes(pickle.dumps(Evil()))
    objects = np.array([[Evil()]])
    np.save(tmp_path / "objects.npy", objects, allow_pickle=True)
    np.savez(tmp_path / "two.npz", a=GOOD, b=GOOD)
    torch.save({"a": torch.tensor(GOOD), "b": 1}, tmp_path / "dict.pt")
    torch.save([torch.tensor(GOOD[0])], tmp_path / "list.pt")
    torch.save(Evil(), tmp_path / "evil.pt")
    (tmp_path / "short.pt").write_bytes((tmp_path / "dict.pt").read_bytes()[:-50])
    return tmp_path


BAD = [
    ("absent.npy", None, "there is no file .*absent.npy", "没有文件"),
    (".", None, "is a folder, not a .npy file", "是文件夹"),
    ("text.npy", None, "text.npy is not a .npy file, nor .npz or .pt", "请用 numpy.save"),
    ("nothing.npy", None, "nothing.npy is not a .npy file", "不是 .npy 文件"),
    ("pickle.npy", None, "pickle.npy is not a .npy file", "不是 .npy 文件"),
    ("objects.npy", None, "objects.npy cannot be read: it holds pickled", "长短不一"),
    ("short.npy", None, "short.npy cannot be read", "无法读取"),
    ("header.npy", None, "header.npy cannot be read", "无法读取"),
    ("two.npz", None, r"two.npz holds 2 arrays \(a, b\)", "里有 2 个数组"),
    ("dict.pt", None, r"dict.pt holds a dict \(a, b\), not one tensor", "不是一个张量"),
    ("list.pt", None, r"list.pt holds a list, not one tensor: pad", "不是一个张量"),
    ("evil.pt", None, "evil.pt cannot be read: it is damaged, or holds more", "无法读取"),
    ("short.pt", None, "short.pt (cannot be read|is not a .npy)", "short.pt"),
    ("wide.npy", None, r"wide.npy is \[2, 5\] and .*good.npy is \[2, 4\]: one col", "BOS"),
    ("longer.npy", None, r"longer.npy is \[2, 9\].*does one hold the prompt", "prompt"),
    ("turned.npy", None, r"turned.npy is \[4, 2\].*transposed", "转置"),
    ("other.npy", None, r"other.npy is \[3, 4\].*not the same responses", "不是同一批"),
    ("cube.npy", None, r"cube.npy is \[2, 4, 8\].*gather the sampled token's", "全词表"),
    ("flat.npy", None, r"flat.npy is \[8\]: logprobs must be \[B, T\]", "一行一条回答"),
    ("empty.npy", None, r"empty.npy is \[0, 4\]: logprobs must be", "一行一条回答"),
    ("nan.npy", None, r"nan.npy row 0, column 1 is not a number \(4 .*--mask", "不是数"),
    ("nan.npy", "mask.npy", r"nan.npy row 0, column 1 is not a number$", "第 1 列不是数$"),
    ("inf.npy", None, "inf.npy row 0, column 3 is infinite", "是无穷"),
    ("losses.npy", None, "losses.npy holds no number below 0.*Negate", "取相反数"),
    ("sure.npy", None, "sure.npy holds nothing but numbers from 0 to 1", "取对数"),
    ("probabilities.npy", None, "nothing but numbers from 0 to 1: prob", "请取对数"),
    ("logits.npy", None, "logits.npy row 0, column 0 is positive.*logits?", "logits"),
    ("ids.npy", None, "ids.npy holds whole numbers above 0: token ids", "token id"),
    ("mask.npy", None, "mask.npy holds only 0 and 1: is it the mask", "--mask FILE"),
    ("mask_floats.npy", None, "mask_floats.npy holds only 0 and 1", "是掩码吗"),
    ("mask_ints.npy", None, "mask_ints.npy holds only 0 and 1", "是掩码吗"),
    ("text_array.npy", None, "text_array.npy must hold numbers", "不是可用的数值"),
    ("good.npy", "mask_wide.npy", r"mask_wide.npy is \[2, 5\] and the logpr", "每个 token"),
    ("good.npy", "mask_two.npy", "row 0, column 0 is neither 0 nor 1: 2", "既不是"),
    ("good.npy", "mask_none.npy", "mask_none.npy is false everywhere", "全为假"),
    ("good.npy", "good.npy", "has numbers below 0: is it logprobs", "顺序是"),
    ("good.npy", "absent.npy", "there is no file", "没有文件"),
]


@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize(("name", "mask", "en", "zh"), BAD)
def test_what_is_wrong_with_a_file_is_said_by_its_name(
    folder, capfd, side, name, mask, en, zh
):
    pair = [folder / "good.npy", folder / name]
    if side and re.search(r"good\\?.npy", en):
        pytest.skip("the second of two unlike files is named first")
    for language, message in (("en", en), ("zh", zh)):
        files = pair[::-1] if side and name != "good.npy" else pair
        code = run(*files, None if mask is None else folder / mask, language)
        out, err = capfd.readouterr()
        assert (code, out) == (2, "")  # pickles were not run either
        assert err.startswith("tinyrl diagnose: ")
        assert err.count("\n") == 1
        shapes = side and " and " in err
        assert shapes or re.search(message, err.strip()), err
        assert "logp_rollout" not in err
        assert mask or name == "." or name in err.removeprefix("tinyrl diagnose: ")[:200]


def saved(folder, name, x):
    path = folder / name
    if name.endswith(".npz"):
        np.savez_compressed(path, logp=x)
    elif name.endswith(".pt"):
        torch.save(torch.tensor(x), path)
    else:
        np.save(path, x)
    return path


@pytest.mark.parametrize("name", ["x.npy", "x.npz", "x.pt"])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_formats_and_types_that_are_read(tmp_path, name, dtype):
    path = saved(tmp_path, name, GOOD.astype(dtype))
    assert torch.allclose(load(path).double(), torch.tensor(GOOD), atol=2e-3)
    assert run(path, path) == 0


def test_tensors_of_a_trainer_are_read(tmp_path):
    x = torch.tensor(GOOD, requires_grad=True)
    torch.save({"logps": x.bfloat16()}, tmp_path / "x.pt")
    assert load(tmp_path / "x.pt").dtype == torch.float32
    assert run(tmp_path / "x.pt", tmp_path / "x.pt") == 0


@pytest.mark.parametrize("mask", ["mask.npy", "mask_floats.npy", "mask_ints.npy"])
@pytest.mark.parametrize("junk", [math.nan, -math.inf, 7.0])
def test_padding_may_hold_anything(folder, capsys, mask, junk):
    np.save(folder / "a.npy", padded(junk))
    assert run(folder / "a.npy", folder / "good.npy", folder / mask) == 0
    assert re.search(r"tokens +5 ", capsys.readouterr().out)


def test_one_response_alone_is_a_row(folder, capsys):
    np.save(folder / "mask1.npy", np.ones(8, dtype=bool))
    flat = folder / "flat.npy"
    assert run(flat, flat, folder / "mask1.npy") == 0
    out = capsys.readouterr().out
    assert "[T] is read as one response" in out
    assert re.search(r"sequences +1 ", out)
