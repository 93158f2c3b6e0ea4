"""Does a cell run and end when nobody sits there? Told by its text alone."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator

from IPython.core.inputtransformer2 import TransformerManager

from tinyrl.course.words import Words

ASKS = ("breakpoint", "input")  # calls that wait for somebody at a keyboard
MAGIC = re.compile(r"\A\s*(%%\S*)")
RUNS = re.compile(r"\A\s*%%(time|capture|prun)\b.*")  # the rest of the cell as it stands


def troubles(source: str, answer: bool) -> Iterator[tuple[str, Words]]:
    """The kind of each trouble with a cell, and what to say of it.

    An `answer` has to define something: most cell magics take its text for another use.
    """
    magic = MAGIC.match(source)
    if answer and magic and not RUNS.match(source):
        yield (
            "magic",
            Words(
                f"under `{magic[1]}` an answer defines nothing: take that line out",
                f"`{magic[1]}` 之下的答案不会定义任何东西：请删掉那一行",
            ),
        )
    try:
        tree = _compiled(source)
    except (SyntaxError, ValueError, RuntimeError, MemoryError) as error:
        line = getattr(error, "lineno", None)
        said = getattr(error, "msg", error)
        yield (
            "syntax",
            Words(
                f"Python cannot read this: {said}" + (f" (line {line})" if line else ""),
                f"Python 读不懂这一格：{said}" + (f"（第 {line} 行）" if line else ""),
            ),
        )
        return
    called = {n.func.id for n in ast.walk(tree) if _is_named_call(n)}  # type: ignore[attr-defined]
    for name in ASKS:
        if name in called:
            yield (
                "input",
                Words(
                    f"`{name}()` waits for a keyboard, and nobody sits there at grading",
                    f"`{name}()` 会等待键盘输入，而评分时没有人",
                ),
            )


def _is_named_call(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name)


def _compiled(source: str) -> ast.Module:
    """The code, with IPython's own lines as it rewrites them; raises like `compile`.

    The parser alone lets pass what the compiler refuses: a `return` outside a function.
    """
    with warnings.catch_warnings(action="ignore"):  # of Python's, about the student's code
        try:
            tree = ast.parse(source)
        except SyntaxError:
            ipython = TransformerManager()  # type: ignore[no-untyped-call]
            tree = ast.parse(ipython.transform_cell(RUNS.sub("", source)))
        awaits = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT  # as a notebook does
        compile(tree, "<cell>", "exec", awaits, dont_inherit=True)
    return tree
