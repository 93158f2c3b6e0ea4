"""Frozen dataclasses as plain JSON values, and back; an error names the field.

What comes back is built by the dataclass itself, so its own checks hold for a file too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import lru_cache
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")


def to_plain(value: Any) -> Any:
    """A dataclass as a dict of its fields, a tuple as a list; what is plain as it is."""
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: to_plain(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, Mapping):
        return {name: to_plain(x) for name, x in value.items()}
    if isinstance(value, list | tuple):
        return [to_plain(x) for x in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(f"a {type(value).__name__} cannot be written as JSON: {value!r}")


def from_plain(kind: type[T], data: Any, **given: Any) -> T:
    """The dataclass `kind` that `to_plain` wrote as `data`, with the fields `given` beside.

    A field that is absent takes its default. Raises `ValueError` with the path of what is
    unknown, absent without a default, or of another type.
    """
    made: T = _fields(kind, data, kind.__name__, given)
    return made


def _read(hint: Any, data: Any, path: str) -> Any:
    origin, args = get_origin(hint), get_args(hint)
    if is_dataclass(hint):
        return _fields(hint, data, path, {})
    if origin in (Union, UnionType):
        if data is None and NoneType in args:
            return None
        others = [arg for arg in args if arg is not NoneType]
        return _read(others[0], data, path) if len(others) == 1 else data
    if origin is tuple:
        _expect(isinstance(data, list), "a list", data, path)
        return tuple(_read(args[0], x, f"{path}[{i}]") for i, x in enumerate(data))
    if origin in (dict, Mapping):
        _expect(isinstance(data, dict), "named values", data, path)
        return {name: _read(args[1], x, f"{path}.{name}") for name, x in data.items()}
    if origin is Literal:
        return data  # which the dataclass checks
    right = isinstance(data, (int, float) if hint is float else hint)
    _expect(right and (hint is bool) == isinstance(data, bool), hint.__name__, data, path)
    return data


def _fields(kind: Any, data: Any, path: str, given: Mapping[str, Any]) -> Any:
    _expect(isinstance(data, dict), "named values", data, path)
    known = {f.name: f for f in fields(kind) if f.name not in given}
    for name in data:
        if name not in known:
            raise ValueError(f"{path} has no field {name!r}; it has {', '.join(known)}")
    for name, f in known.items():
        if name not in data and f.default is MISSING and f.default_factory is MISSING:
            raise ValueError(f"{path}.{name} is missing")
    hints = _hints(kind)
    read = {name: _read(hints[name], x, f"{path}.{name}") for name, x in data.items()}
    try:
        return kind(**read, **given)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path}: {error}") from None


@lru_cache
def _hints(kind: type) -> dict[str, Any]:
    """Types of the fields; looked up once: a run has thousands of numbers."""
    return get_type_hints(kind)


def _expect(right: bool, what: str, data: Any, path: str) -> None:
    if not right:
        raise ValueError(f"{path} must be {what}, not {data!r}")
