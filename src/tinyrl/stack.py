"""A stack: everything besides weights and tokens that decides a logprob.

A mismatch is the difference between two of these values. Injecting one is `replace_at`,
listing it is `diff`, finding it is putting back one path after the other.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any, Literal, get_args, get_origin, get_type_hints

from torch import Tensor

from .kernels import Kernels, Numerics, Ops
from .logprobs import number, whole
from .moe import Router
from .positions import Positions
from .sampling import Sampler


@dataclass(frozen=True)
class Stack:
    """How a forward pass turns token ids into a logprob."""

    numerics: Numerics = field(default_factory=Numerics)
    kernels: Kernels = field(default_factory=Kernels)
    positions: Positions = field(default_factory=Positions)
    router: Router = field(default_factory=Router)
    sampler: Sampler = field(default_factory=Sampler)

    def ops(self) -> Ops:
        """The operations of one pass or rollout under this stack."""
        return Ops(self.kernels, self.numerics)

    def reported(
        self,
        logits: Tensor,
        ids: Tensor,
        prompt: Tensor | None = None,
        kept: Tensor | None = None,
    ) -> Tensor:
        """What a trainer reports for `ids [B, T]` under `logits [B, T, V]`: `[B, T]`.

        `prompt [B, P]` is for a repetition penalty, `kept` (`Batch.kept`) for a replay.
        """
        s = self.sampler
        before = s.before(prompt, ids, logits.shape[-1])
        return s.reported(logits, ids, self.kernels.logsumexp, before, s.follow(kept))


@dataclass(frozen=True)
class Field:
    """One leaf of a stack: `numerics.kv`, its type, value and, if listed, its choices."""

    path: str
    type: type
    value: Any
    choices: tuple[Any, ...] | None


def leaves(part: Any, prefix: str = "") -> Iterator[Field]:
    """The leaves of a stack (or of one of its parts), depth first, with dotted paths."""
    hints = get_type_hints(type(part))
    for f in fields(part):
        value, path = getattr(part, f.name), f"{prefix}{f.name}"
        if is_dataclass(value):
            yield from leaves(value, f"{path}.")
        else:
            listed = get_origin(hints[f.name]) is Literal
            yield Field(
                path, type(value), value, get_args(hints[f.name]) if listed else None
            )


def diff(a: Stack, b: Stack) -> dict[str, tuple[Any, Any]]:
    """What differs, by path: `{"numerics.kv": ("int8", "fp32")}`. Empty if nothing does."""
    pairs = zip(leaves(a), leaves(b), strict=True)
    return {x.path: (x.value, y.value) for x, y in pairs if x.value != y.value}


def replace_at(stack: Stack, path: str, value: Any) -> Stack:
    """The stack with the leaf at `path` set. Errors name the path and what it accepts."""
    fields_at = {f.path: f for f in leaves(Stack())}
    if path not in fields_at:
        raise ValueError(f"a stack has no field {path!r}; it has {', '.join(fields_at)}")
    leaf = fields_at[path]
    if leaf.choices is not None and value not in leaf.choices:
        known = ", ".join(map(str, leaf.choices))
        raise ValueError(f"{path} must be one of {known}, not {value!r}")
    if leaf.type in (int, float):
        value = whole(path, value) if leaf.type is int else number(path, value)
    changed: Stack = _with(stack, path.split("."), value)
    return changed


def _with(part: Any, names: list[str], value: Any) -> Any:
    """`part`, a frozen dataclass, with the leaf that `names` lead to set."""
    name, *deeper = names
    inner = _with(getattr(part, name), deeper, value) if deeper else value
    return replace(part, **{name: inner})


def _low(fmt: str) -> Stack:
    return replace_at(
        replace_at(Stack(), "numerics.weights", fmt), "numerics.activations", fmt
    )


PRESETS: dict[str, Stack] = {
    "fp32": Stack(),
    "fp16": _low("fp16"),
    "bf16": _low("bf16"),
    "int8_weights": replace_at(Stack(), "numerics.weights", "int8"),
    "int4_weights": replace_at(Stack(), "numerics.weights", "int4"),
    "fp8_kv": replace_at(Stack(), "numerics.kv", "fp8_e4m3"),
    "true_on_policy": Stack(kernels=Kernels(attention="naive", shapes="fixed")),
}
"""Stacks by name. Two sides that both run "true_on_policy" agree to the last bit."""
