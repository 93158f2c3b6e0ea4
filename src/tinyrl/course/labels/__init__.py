"""The one table of words for people: what a stack's fields and the metrics are called.

Code says `numerics.kv`; a learner reads "KV cache", what it is, which option of a real
system it stands for, how it shows in the numbers and what puts it right. Names of options
are those of the engines' documentation in 2026.
"""

from __future__ import annotations

from typing import Any

from tinyrl.course.citations import linked
from tinyrl.course.labels.inputs import INPUTS
from tinyrl.course.labels.kernels import KERNELS
from tinyrl.course.labels.label import Label
from tinyrl.course.labels.metrics import EXACT, K3_READINGS, METRICS, reading
from tinyrl.course.labels.numerics import NUMERICS
from tinyrl.course.labels.tokens import TOKENS
from tinyrl.course.labels.view import VIEW
from tinyrl.formats import FORMATS

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


def value(x: Any, path: str = "") -> str:
    """A field's value as people write it: `FP8 E4M3`, `0.7`, `free`.

    With its `path`, a 0 that stands for something is told in words: `default`.
    """
    if path and x == 0 and (zero := LABELS[path].zero):
        return str(zero)
    if isinstance(x, float):
        return f"{x:g}"
    return str(x).upper().replace("_", " ") if x in FORMATS else str(x)
