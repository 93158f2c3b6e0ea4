"""Arrays from files: .npy, .npz, and tensors that torch.save wrote. Nothing is unpickled.

What is wrong is said in one line that begins with the user's own file.
"""

from __future__ import annotations

import warnings
import zipfile
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
from torch import Tensor

from ..logprobs import as_tensor
from ..said import Said

WRITE = Said("write it with numpy.save or torch.save", "请用 numpy.save 或 torch.save 写")


class FileError(ValueError):
    """What is wrong with a file, in both languages."""

    def __init__(self, said: Said) -> None:
        super().__init__(said.en)
        self.said = said


def printable(text: Any) -> str:
    """`text` with `\\n` or `\\x1b` for what would break a line or command a terminal."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in str(text))


def wrong(path: Path, en: str, zh: str) -> FileError:
    """The error that `path` is so: its name comes first."""
    name = printable(path)
    return FileError(Said(f"{name} {printable(en)}", f"{name} {printable(zh)}"))


def load(path: Path) -> Tensor:
    """The one array of a file. `FileError` says in a line why it cannot be read."""
    try:
        with path.open("rb") as file:
            start = file.read(6)
            file.seek(0)
            if start == b"\x93NUMPY":
                return _tensor(path, _numpy(path, file))
            if start[:2] == b"PK" and zipfile.is_zipfile(file):
                return _archive(path, file)
    except FileNotFoundError:
        name = printable(path)
        raise FileError(Said(f"there is no file {name}", f"没有文件 {name}")) from None
    except IsADirectoryError:
        raise wrong(path, "is a folder, not a .npy file", "是文件夹") from None
    except OSError as error:
        raise _unread(path, error.strerror or str(error)) from None
    raise wrong(
        path,
        f"is not a .npy file, nor .npz or .pt; {WRITE.en}",
        f"不是 .npy 文件，也不是 .npz 或 .pt；{WRITE.zh}",
    )


def _unread(path: Path, en: str, zh: str = "") -> FileError:
    return wrong(path, f"cannot be read: {en}", f"无法读取：{zh or en}")


def _archive(path: Path, file: BinaryIO) -> Tensor:
    """A zip: of numpy.savez, or of torch.save."""
    with zipfile.ZipFile(file) as archive:
        names = [name for name in archive.namelist() if name.endswith(".npy")]
        if len(names) == 1:
            with archive.open(names[0]) as member:
                return _tensor(path, _numpy(path, member))  # type: ignore[arg-type]
    if names:
        keys = ", ".join(name.removesuffix(".npy") for name in names[:8])
        raise wrong(
            path,
            f"holds {len(names)} arrays ({keys}): save the one that is meant with "
            f"numpy.save",
            f"里有 {len(names)} 个数组（{keys}）：请把要用的那个用 numpy.save 单独存",
        )
    file.seek(0)
    return _torch(path, file)


def _torch(path: Path, file: BinaryIO) -> Tensor:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            held = torch.load(file, map_location="cpu", weights_only=True)
    except OSError:
        raise
    except Exception:
        raise _unread(
            path,
            "it is damaged, or holds more than tensors; save the tensor alone",
            "已损坏，或不只含张量；请只存这个张量",
        ) from None
    if isinstance(held, dict) and len(held) == 1:
        (held,) = held.values()
    if isinstance(held, Tensor):
        return _numbers(path, held)
    keys = f" ({', '.join(map(str, list(held)[:8]))})" if isinstance(held, dict) else ""
    kind = type(held).__name__
    raise wrong(
        path,
        f"holds a {kind}{keys}, not one tensor: pad to [B, T] and save that tensor alone",
        f"存的是 {kind}{keys}，不是一个张量：请补齐成 [B, T] 后单独保存",
    )


def _numpy(path: Path, file: BinaryIO) -> np.ndarray[Any, np.dtype[Any]]:
    """What numpy reads. It evaluates the header as Python, so that a damaged one may raise
    nearly anything: SyntaxError, TokenError, TypeError, OverflowError, RecursionError."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a header of Python 2 is read right
            array: np.ndarray[Any, np.dtype[Any]] = np.lib.format.read_array(
                file, allow_pickle=False
            )
            return array
    except OSError:
        raise
    except (ValueError, EOFError, MemoryError) as error:
        why = str(error).partition("\n")[0] or "it is cut short"
        if "Object arrays" not in why:
            raise _unread(path, why) from None
    except Exception:
        raise _unread(
            path,
            "its header is damaged; write it again with numpy.save",
            "文件头已损坏；请用 numpy.save 重写",
        ) from None
    raise _unread(
        path,
        "it holds pickled Python objects, as numpy saves lists of unlike lengths; pad "
        "them to one [B, T] array of floats and save a mask beside it",
        "其中是 pickle 的 Python 对象（numpy 存长短不一的列表就会这样）；请补齐成一个 "
        "[B, T] 的浮点数组，另存一个掩码",
    )


def _tensor(path: Path, array: np.ndarray[Any, np.dtype[Any]]) -> Tensor:
    return _numbers(path, array)


def _numbers(path: Path, x: Any) -> Tensor:
    try:
        return as_tensor("it", x)
    except ValueError as error:
        why = str(error).removeprefix("it ")
        raise wrong(path, why, f"里不是可用的数值：{why}") from None
