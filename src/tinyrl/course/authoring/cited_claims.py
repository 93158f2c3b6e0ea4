"""Numbers cited from the notebooks: a claim's bounds in place of a typed figure.

`{03: BF16 over FP16, K3}` names a claim of notebook 03 by the start of its name. What the
text then says is what that claim asserts whenever the notebook runs.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

from tinyrl.course.words import Language

CITED = re.compile(r"\{(\w+): ([^}]+)\}")
Bounds = tuple[float, float]
Claims = dict[str, dict[str, Bounds]]  # notebook -> a claim's name -> its bounds


class CitedError(ValueError):
    """A text cites a claim that is not there, or more than one."""


def filled(text: str, language: Language, claims: Claims) -> str:
    """`text` with each `{notebook: name}` replaced by that claim's bounds."""

    def bounds(match: re.Match[str]) -> str:
        in_notebook = claims.get(match[1])
        if in_notebook is None:
            raise CitedError(f"there is no notebook {match[1]!r}")
        names = [name for name in in_notebook if name.startswith(match[2])]
        if len(names) != 1:
            raise CitedError(
                f"{len(names)} claims of {match[1]} whose bounds are plain numbers begin "
                f"with {match[2]!r}"
            )
        return in_words(*in_notebook[names[0]], language)

    return CITED.sub(bounds, text)


def in_words(low: float, high: float, language: Language) -> str:
    """Bounds as they stand in a sentence."""
    a, b = (re.sub(r"e-0", "e-", f"{bound:.10g}") for bound in (low, high))
    if low == high:
        return a
    if high == float("inf"):
        return f"at least {a}" if language == "en" else f"不低于 {a}"
    if low == float("-inf"):
        return f"at most {b}" if language == "en" else f"不超过 {b}"
    return f"between {a} and {b}" if language == "en" else f"{a} 到 {b}"


def claims_of(notebooks: Path) -> Claims:
    """The claims of every notebook whose bounds are plain numbers, by its short name."""
    return {
        path.stem[:2] if path.stem[:2].isdigit() else path.stem: _claims(path)
        for path in sorted(notebooks.glob("*.py"))
    }


def _claims(path: Path) -> dict[str, Bounds]:
    """A claim's name is a literal, or that of the variable assigned last before it."""
    found: dict[str, Bounds] = {}
    strings: dict[str, str] = {}
    for statement in ast.parse(path.read_text("utf-8")).body:
        match statement:
            case ast.Assign(targets=[ast.Name(id=variable)], value=ast.Constant(str(text))):
                strings[variable] = text
            case ast.Expr(ast.Call(func=ast.Name("claim"), args=[name, *_]) as call):
                bounds = _bounds({k.arg: k.value for k in call.keywords if k.arg})
                if bounds is not None and (named := _string(name, strings)):
                    found[named] = bounds
    return found


def _string(node: ast.expr, strings: dict[str, str]) -> str | None:
    if isinstance(node, ast.Name):
        return strings.get(node.id)
    return str(node.value) if isinstance(node, ast.Constant) else None


def _bounds(given: dict[str, ast.expr]) -> Bounds | None:
    """None where a bound is computed."""
    names = ("between", "at_least", "at_most", "equal")
    try:
        value = {name: ast.literal_eval(given[name]) for name in names if name in given}
    except ValueError:
        return None
    if "equal" in value:
        return float(value["equal"]), float(value["equal"])
    infinity = float("inf")
    low, high = value.get("between") or (
        value.get("at_least", -infinity),
        value.get("at_most", infinity),
    )
    return float(low), float(high)
