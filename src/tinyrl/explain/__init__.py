"""What flags of verl, TRL and slime do to a loss, in our terms, with their traps.

`explain("verl", ["rollout_is=sequence", "rollout_is_threshold=2.0"])` is a `Reading`: in
words (English and Chinese) the level, the operation, the bounds, where the weight enters,
what happens to the denominator; the `Correction` that it is; what it is mistaken for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches

from ..said import Language, Said
from . import slime, trl, verl, verl_flags
from .flags import FlagError, parse
from .reading import Part, Reading, code

__all__ = ["FlagError", "Language", "Part", "Reading", "Said", "code", "explain"]

FRAMEWORKS = {
    "verl": (verl_flags.FLAGS, verl.read),
    "trl": (trl.FLAGS, trl.read),
    "slime": (slime.FLAGS, slime.read),
}


REAL: Mapping[str, Sequence[str]] = {
    "verl": (
        *("clip_ratio", "clip_ratio_c", "rollout", "rollout_n", "rollout_tq"),
        *("kl_loss_type", "topk"),
    ),
    "trl": ("num_generations",),
    "slime": (
        *("custom_loss_function_path", "custom_generate_function_path", "eps_clip_c"),
        *("custom_advantage_function_path", "custom_rollout_log_function_path", "use_opd"),
        "rollout_stop",
    ),
}
"""Options that each has at the commit of `presets` and that look like one read here."""


def explain(framework: str, flags: Sequence[str], *, tokens: int = 1000) -> Reading:
    """The reading of `flags`; examples are of a response of `tokens` tokens.

    A whole config may be given: `unread` has what is none of its business. Raises
    `FlagError` on a framework that is not known, on a flag that looks like a known one
    misspelt, and on values that the framework itself would refuse.
    """
    name = framework.lower()
    if name not in FRAMEWORKS:
        near = get_close_matches(name, FRAMEWORKS, 1)
        hint = f"near it: {near[0]}" if near else f"known: {', '.join(FRAMEWORKS)}"
        raise FlagError(f"no framework {framework!r} is known here; {hint}")
    if not 1 <= tokens <= 10**9:
        raise FlagError(f"tokens must be from 1 to 10^9, not {tokens}")
    known, read = FRAMEWORKS[name]
    given = parse(name, flags, known, REAL[name])
    return replace(read(given, tokens), unread=given.unread)
