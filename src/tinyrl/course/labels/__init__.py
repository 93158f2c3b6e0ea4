"""The one table of words for people: what a stack's fields and the metrics are called.

Code says `numerics.kv`; a learner reads "KV cache", what it is, which option of a real
system it stands for, how it shows in the numbers and what puts it right. Names of options
are those of the engines' documentation in 2026.
"""

from __future__ import annotations

from typing import Any

from ...formats import FORMATS
from ..citations import linked
from .inputs import INPUTS
from .kernels import KERNELS
from .label import Label
from .metrics import EXACT, K3_READINGS, METRICS, reading
from .numerics import NUMERICS
from .tokens import TOKENS
from .view import VIEW

__all__ = [
    "EXACT",
    "K3_READINGS",
    "LABELS",
    "METRICS",
    "Label",
    "linked",
    "reading",
    "value",
]

LABELS: dict[str, Label] = INPUTS | TOKENS | NUMERICS | KERNELS | VIEW
"""By path of the stack's field; "weights" is which version of the weights samples; "chat.",
"collator." and "view." stand before the fields of `Chat`, `Collator` and `LossView`."""


def value(x: Any) -> str:
    """A field's value as people write it: `FP8 E4M3`, `0.7`, `free`."""
    if isinstance(x, float):
        return f"{x:g}"
    return str(x).upper().replace("_", " ") if x in FORMATS else str(x)
