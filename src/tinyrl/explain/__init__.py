"""What flags of verl, TRL and slime do to a loss, in our terms, with their traps.

`explain("verl", ["rollout_is=sequence", "rollout_is_threshold=2.0"])` is a `Reading`: in
words (English and Chinese) the level, the operation, the bounds, where the weight enters,
what happens to the denominator; the `Correction` that it is; what it is mistaken for.
"""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches

from . import slime, trl, verl, verl_flags
from .flags import FlagError, parse
from .reading import Language, Part, Reading, Said, code

__all__ = ["FlagError", "Language", "Part", "Reading", "Said", "code", "explain"]

FRAMEWORKS = {
    "verl": (verl_flags.FLAGS, verl.read),
    "trl": (trl.FLAGS, trl.read),
    "slime": (slime.FLAGS, slime.read),
}


def explain(framework: str, flags: Sequence[str], *, tokens: int = 1000) -> Reading:
    """The reading of `flags`; examples are of a response of `tokens` tokens.

    Raises `FlagError` on a framework or flag that is not known, and on values that the
    framework itself would refuse.
    """
    name = framework.lower()
    if name not in FRAMEWORKS:
        near = get_close_matches(name, FRAMEWORKS, 1)
        hint = f"near it: {near[0]}" if near else f"known: {', '.join(FRAMEWORKS)}"
        raise FlagError(f"no framework {framework!r} is known here; {hint}")
    if not 1 <= tokens <= 10**9:
        raise FlagError(f"tokens must be from 1 to 10^9, not {tokens}")
    known, read = FRAMEWORKS[name]
    return read(parse(name, flags, known), tokens)
