"""What a logprob array is: `[B, T]` over response tokens, with a mask; checked.

`logp[b, t]` is the log of the probability that was given to response token t itself. Rows
are padded on the right and padding may hold anything, NaN included. So values are selected
with `torch.where` before any arithmetic: `NaN * 0` is NaN, and so is its gradient.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .kernels import LogSumExp, log_softmax

TOLERANCE = 1e-6
"""How far above 0 a logprob may lie: float32 rounding of log-softmax, nothing more."""


def check_logps(mask: Any = None, **arrays: Any) -> tuple[Tensor, ...]:
    """The named arrays and their mask, checked: `(first, second, ..., mask)`.

    Arrays are `[B, T]` torch or numpy floats of one shape; those narrower than 32 bits are
    upcast to float32, wider ones than 64 brought to float64. `mask` is `[B, T]`, boolean or
    exactly 0 and 1; none means every token is real.
    Padding comes back as 0, whatever it held, so that arithmetic on it is safe.

    Raises `ValueError` naming the array, row and column of what is wrong: shapes, dtypes,
    NaN, infinite or positive values of real tokens, or a row without a real token.
    """
    logps = {name: as_logp(name, x) for name, x in arrays.items()}
    same_shape(logps)
    real = as_mask(mask, next(iter(logps.values())))
    if not real.any():
        raise ValueError("mask is false everywhere: there is no real token to look at")
    empty = (~real.any(1)).nonzero()
    if len(empty):
        row = int(empty[0])
        raise ValueError(f"mask row {row} has no real token: an empty response")
    checked = [checked_values(name, x, real) for name, x in logps.items()]
    return (*checked, real)


def as_logp(name: str, x: Any) -> Tensor:
    """`x` as a float tensor `[B, T]`, at least float32. Values are not looked at."""
    logp = as_tensor(name, x)
    if not logp.is_floating_point():
        raise ValueError(f"{name} must hold floats, not {_dtype(logp)}")
    if logp.dim() != 2:
        raise ValueError(f"{name} must be [B, T], got shape {list(logp.shape)}")
    if logp.numel() == 0:
        raise ValueError(f"{name} is empty: shape {list(logp.shape)}")
    return logp


def as_tensor(name: str, x: Any) -> Tensor:
    """`x` as a dense tensor of real numbers that torch can compare, of any shape."""
    tensor = x if isinstance(x, Tensor) else _from_numpy(name, x)
    if tensor.is_nested or tensor.layout != torch.strided or tensor.is_meta:
        raise ValueError(f"{name} must be a dense tensor that holds its values")
    if tensor.is_complex() or tensor.is_quantized:
        raise ValueError(f"{name} must hold real numbers, not {_dtype(tensor)}")
    if not tensor.is_floating_point() or tensor.element_size() >= 4:
        return tensor
    try:
        return tensor.float()
    except NotImplementedError:  # formats that pack two numbers into a byte
        raise ValueError(f"{name} is {_dtype(tensor)}: make it float32") from None


def as_floats(name: str, x: Any) -> Tensor:
    """`x` as floats, at least float32, whatever numbers it holds."""
    tensor = as_tensor(name, x)
    return tensor if tensor.is_floating_point() else tensor.float()


def as_ids(name: str, x: Any) -> Tensor:
    """`x` as token ids: whole numbers, int64, of any shape."""
    ids = as_tensor(name, x)
    if ids.is_floating_point() or ids.dtype == torch.bool:
        raise ValueError(f"{name} must hold integers, not {_dtype(ids)}")
    return ids.long()


def one_of(name: str, value: Any, choices: tuple[str, ...]) -> str:
    """`value`, or a `ValueError` that says what `name` may be."""
    if not isinstance(value, str) or value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(choices)}, not {value!r}")
    return value


def whole(name: str, x: Any) -> int:
    """`x` as an int, if it is a whole `number`."""
    if number(name, x) % 1 != 0:  # of NaN and inf, too
        raise ValueError(f"{name} must be a whole number, not {x!r}")
    return int(x)


def number(name: str, x: Any) -> float:
    """`x` as a float; text and truth values are none, even where they could be read so."""
    try:
        if not isinstance(x, str | bytes | bool) and not _boolean(x):
            return float(x.detach() if isinstance(x, Tensor) else x)
    except OverflowError:  # its digits may be too many to print
        raise ValueError(f"{name} must be a number that a float can hold") from None
    except (TypeError, ValueError, RuntimeError):
        pass
    raise ValueError(f"{name} must be a number, not {x!r}")


def _boolean(x: Any) -> bool:
    return getattr(x, "dtype", None) in (torch.bool, np.bool_)


def _from_numpy(name: str, x: Any) -> Tensor:
    if isinstance(x, np.ma.MaskedArray):  # asarray would read what it hides
        raise ValueError(f"{name} must be a plain array: hand over its mask as a mask")
    try:
        array: np.ndarray[Any, np.dtype[Any]] = np.asarray(x)
    except (ValueError, TypeError, RuntimeError) as error:
        raise ValueError(f"{name} is not an array: {error}") from None
    if "float" in array.dtype.name:  # those of ml_dtypes too, and every byte order
        with np.errstate(over="ignore"):
            array = array.astype(np.float64 if array.itemsize > 4 else np.float32)
    if array.dtype.kind not in "fiub":
        # numpy.save writes the formats of ml_dtypes as bytes of no type
        hint = "; was it bfloat16? save float32" if array.dtype.kind == "V" else ""
        raise ValueError(f"{name} must hold numbers, not {array.dtype}{hint}")
    native = array.astype(array.dtype.newbyteorder("="), order="C", copy=False)
    return torch.from_numpy(native if native.flags.writeable else native.copy())


def as_mask(mask: Any, logp: Tensor) -> Tensor:
    """`mask` as a boolean tensor shaped and placed as `logp`; all true where it is None."""
    if mask is None:
        return torch.ones_like(logp, dtype=torch.bool)
    real = as_tensor("mask", mask).to(logp.device)
    if real.shape != logp.shape:
        raise ValueError(
            f"mask has shape {list(real.shape)}, logprobs have {list(logp.shape)}"
        )
    if real.dtype == torch.bool:
        return real
    refuse((real != 0) & (real != 1), real, "mask", "is neither 0 nor 1")
    return real == 1


def same_shape(arrays: dict[str, Tensor]) -> None:
    """Raise unless all of `arrays` have the shape of the first."""
    (first, x), *others = arrays.items()
    for name, y in others:
        if y.shape != x.shape:
            raise ValueError(
                f"{first} and {name} differ in shape: {list(x.shape)} and {list(y.shape)}"
            )


def checked_values(name: str, x: Tensor, mask: Tensor) -> Tensor:
    """`x` with 0 for padding. Raises on a real token that holds no possible logprob."""
    clean = torch.where(mask, x, 0.0)
    if not possible(clean):
        refuse(clean.isnan(), x, name, "is not a number")
        refuse(clean.isinf(), x, name, "is infinite")
        refuse(clean > TOLERANCE, x, name, "is positive, so no logprob")
    return clean


def finite(name: str, x: Tensor, mask: Tensor) -> Tensor:
    """`x` with 0 for padding. Raises on a real token that holds no finite number."""
    refuse(~x.isfinite() & mask, x, name, "is not finite")
    return torch.where(mask, x, 0.0)


def possible(logp: Tensor) -> bool:
    """Whether all of it may be logprobs, padding being 0: NaN is not at most anything."""
    low, high = logp.detach().aminmax()
    return -math.inf < low.item() and high.item() <= TOLERANCE


def token_logp(logits: Tensor, ids: Tensor, way: LogSumExp = "fused") -> Tensor:
    """Logprob of each of `ids [B, T]` under `logits [B, T, V]`: `[B, T]`, in nats.

    Logits narrower than 32 bits are upcast first: log-softmax adds up V terms.
    """
    ids, logits = as_ids("ids", ids), as_tensor("logits", logits)
    V = logits.shape[-1] if logits.dim() else 0
    if not logits.is_floating_point() or logits.shape != (*ids.shape, V):
        raise ValueError(
            f"logits must be floats [B, T, V] for ids {list(ids.shape)}, not "
            f"{_dtype(logits)} {list(logits.shape)}"
        )
    refuse((ids < 0) | (ids >= V), ids, "ids", f"is no token of {V}")
    return log_softmax(logits, way).gather(-1, ids[..., None])[..., 0]


def masked_sum(x: Tensor, mask: Tensor, dim: int | None = None) -> Tensor:
    """Sum of `x` where `mask` (of the same shape) is true, over all or one dimension."""
    same_shape({"x": x, "mask": mask})
    kept = torch.where(mask, x, 0.0)
    return kept.sum() if dim is None else kept.sum(dim)


def masked_mean(x: Tensor, mask: Tensor, dim: int | None = None) -> Tensor:
    """Mean of `x` where `mask` is true: divided by their number, not by the size of `x`.

    The mean of no token is 0, so that a sequence without tokens adds nothing to a loss.
    """
    count = mask.sum() if dim is None else mask.sum(dim)
    return masked_sum(x, mask, dim) / count.clamp_min(1)


def refuse(bad: Tensor, x: Tensor, name: str, why: str) -> None:
    """Raise a `ValueError` that says where `x` is `bad`, and what stands there."""
    places = bad.nonzero()
    if len(places):
        at = tuple(places[0].tolist())
        where = ", ".join(f"{n} {i}" for n, i in zip(("row", "column"), at, strict=False))
        more = f" ({len(places)} such values)" if len(places) > 1 else ""
        raise ValueError(f"{name} {where} {why}: {x[at].item():.6g}{more}")


def _dtype(x: Tensor) -> str:
    return str(x.dtype).removeprefix("torch.")
