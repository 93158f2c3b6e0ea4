"""Plain values over a pipe, between a checker and the process that runs a student's code.

A message is a JSON tree and the raw bytes of its arrays. Nothing is ever unpickled, so a
message can carry numbers and nothing that runs: whatever a student's process sends, the
worst that `receive` does is to raise `WireError`.
"""

from __future__ import annotations

import json
import struct
from typing import Any, Protocol

import numpy as np
import torch

MAX_BYTES = 64 << 20  # of one message's arrays; the answers of a lab are kilobytes
MAX_TREE = 4 << 20  # bytes of its JSON, which takes far more room once it is parsed
_LENGTHS = struct.Struct("<II")  # bytes of the tree, bytes of the arrays

_TORCH = ("float16", "bfloat16", "float32", "float64", "uint8", "int8", "int16", "int32")
DTYPES = {name: getattr(torch, name) for name in (*_TORCH, "int64", "bool")}
_NAMES = {dtype: name for name, dtype in DTYPES.items()}


class Stream(Protocol):
    def read(self, size: int, /) -> bytes | None: ...
    def write(self, data: Any, /) -> int | None: ...


class WireError(Exception):
    """What came over the pipe is no message, or the pipe has ended."""


class Opaque:
    """Stands for a value that is no number, array, text or collection of them."""

    def __init__(self, type_name: str) -> None:
        self.type_name = type_name

    def __repr__(self) -> str:
        return f"<an object of type {self.type_name}>"


def send(stream: Stream, message: dict[str, Any]) -> None:
    """Write one message; `WireError` if it is too large, `OSError` if nobody reads."""
    blobs: list[bytes] = []
    nodes = {key: _encode(value, blobs) for key, value in message.items()}
    tree = json.dumps(nodes).encode()
    size = sum(map(len, blobs))
    _check_size(len(tree), size)
    data = memoryview(_LENGTHS.pack(len(tree), size) + tree + b"".join(blobs))
    while data:
        data = data[stream.write(data) :]


def receive(stream: Stream) -> dict[str, Any]:
    """Read one message; raises `WireError` for anything that is not one."""
    tree_size, blob_size = _LENGTHS.unpack(_read(stream, _LENGTHS.size))
    _check_size(tree_size, blob_size)
    tree, blobs = _read(stream, tree_size), _Blobs(_read(stream, blob_size))
    try:
        return {str(key): _decode(node, blobs) for key, node in json.loads(tree).items()}
    except (
        Exception
    ) as error:  # the bytes are a stranger's: torch, numpy, json may all object
        raise WireError(f"a malformed message: {error}") from error


def _check_size(tree: int, blobs: int) -> None:
    if tree > MAX_TREE or blobs > MAX_BYTES:
        raise WireError(f"{(tree + blobs) >> 20} MiB are too much for an answer")


def _read(stream: Stream, size: int) -> bytes:
    parts = []
    while size:
        part = stream.read(min(size, 1 << 20))
        if not part:
            raise WireError("the process has ended")
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def _encode(value: Any, blobs: list[bytes]) -> list[Any]:
    """[kind, ...] for a value; only exact types pass, a subclass may lie about itself."""
    kind = type(value)
    if value is None or kind in (bool, int, float, str):
        return ["plain", value]
    if kind in (list, tuple):
        return [kind.__name__, [_encode(item, blobs) for item in value]]
    if kind is dict:
        pairs = ((_encode(k, blobs), _encode(v, blobs)) for k, v in value.items())
        return ["dict", list(pairs)]
    if kind in (torch.Tensor, torch.nn.Parameter) and value.dtype in _NAMES:
        _check_size(0, value.nbytes)
        data = value.detach().cpu().contiguous()
        blobs.append(data.reshape(-1).view(torch.uint8).numpy().tobytes())
        return ["tensor", _NAMES[data.dtype], list(data.shape), len(blobs[-1])]
    if (kind is np.ndarray or isinstance(value, np.generic)) and value.dtype.name in _NUMPY:
        _check_size(0, value.nbytes)
        blobs.append(value.tobytes())
        shape = list(value.shape) if kind is np.ndarray else None
        return ["array", value.dtype.name, shape, len(blobs[-1])]
    return ["other", kind.__name__]


_NUMPY = frozenset(DTYPES) - {"bfloat16"}


class _Blobs:
    """The raw bytes of a message's arrays, handed out in order."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = bytearray(data), 0

    def take(self, size: int) -> bytearray:
        self.at += size
        return self.data[self.at - size : self.at]


def _decode(node: Any, blobs: _Blobs) -> Any:
    kind, *rest = node
    if kind == "plain" and isinstance(rest[0], bool | int | float | str | None):
        return rest[0]
    if kind in ("list", "tuple"):
        items = [_decode(item, blobs) for item in rest[0]]
        return items if kind == "list" else tuple(items)
    if kind == "dict":
        return {_decode(k, blobs): _decode(v, blobs) for k, v in rest[0]}
    if kind == "tensor":
        return _tensor(blobs.take(rest[2]), DTYPES[rest[0]]).reshape(rest[1])
    if kind == "array" and rest[0] in _NUMPY:
        array = np.frombuffer(blobs.take(rest[2]), dtype=rest[0])
        return array[0] if rest[1] is None else array.reshape(rest[1])
    if kind == "other":
        return Opaque(str(rest[0]))
    raise ValueError(f"no such kind of value: {kind!r}")


def _tensor(data: bytearray, dtype: torch.dtype) -> torch.Tensor:
    if not data:
        return torch.empty(0, dtype=dtype)
    if dtype is torch.bool:  # any byte may come; only 0 and 1 are booleans
        return torch.frombuffer(data, dtype=torch.uint8) != 0
    return torch.frombuffer(data, dtype=dtype)
