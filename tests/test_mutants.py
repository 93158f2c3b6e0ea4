"""Wrong answers that nobody thought of: small changes of right ones, and attacks."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Iterator
from textwrap import indent
from typing import Any

import pytest
import torch
from torch import Tensor

from attacks import ATTACKS, HELPERS
from lab_sources import each, solution
from tinyrl.course.checking.judging import judge
from tinyrl.course.exercise import Exercise
from tinyrl.course.exercises import find

SWAPS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult,
    ast.Pow: ast.Mult, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
    ast.Gt: ast.Lt, ast.Lt: ast.Gt, ast.USub: ast.UAdd,
}  # fmt: skip


def mutants(source: str) -> Iterator[tuple[str, str]]:
    """Each program that differs from `source` in one operator, number, call or name."""
    tree = ast.parse(source)
    function = tree.body[0]
    assert isinstance(function, ast.FunctionDef)
    names = [argument.arg for argument in function.args.args]
    for node in [n for statement in function.body for n in ast.walk(statement)]:
        for undo in changes(node, names):
            changed = ast.unparse(tree)
            undo()
            if changed != ast.unparse(tree):
                different = set(changed.splitlines()) - set(ast.unparse(tree).splitlines())
                yield " / ".join(line.strip() for line in different), changed


def changes(node: ast.AST, names: list[str]) -> Iterator[Callable[[], None]]:
    """Change `node` in place, one way after the other; each yield says how to undo it."""

    def put(field: str, value: Any) -> Callable[[], None]:
        before = getattr(node, field)
        setattr(node, field, value)
        return lambda: setattr(node, field, before)

    for field in ("op", "ops"):
        old = getattr(node, field, None)
        if isinstance(old, list) and type(old[0]) in SWAPS:
            yield put(field, [SWAPS[type(old[0])](), *old[1:]])
        elif type(old) in SWAPS:
            yield put(field, SWAPS[type(old)]())  # type: ignore[index]
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        yield put("value", node.value + 1)
        yield put("value", node.value * 2)
    if isinstance(node, ast.Name) and node.id in names:
        for name in names:
            yield put("id", name)
    if isinstance(node, ast.Call) and len(node.args) > 1:
        yield put("args", [*node.args[1:], node.args[0]])
    for field, child in ast.iter_fields(node):  # x.method(...) becomes x
        if isinstance(child, ast.Call) and isinstance(child.func, ast.Attribute):
            yield put(field, child.func.value)


# Changes after which the answer is as right as before.
SECOND_AXIS_IS_THE_LAST = {
    "return torch.where(mask, logp_train - logp_rollout, 0.0).sum(+1)",
    "return delta.sum(+1) / mask.sum(-1)",
    "return delta.sum(-1) / mask.sum(+1)",
    "places = attention.cumsum(1) - 1",
}
PADDING_IS_MASKED_LATER = {
    "r = torch.where(mask, logp_train - logp_old, 1.0).exp()",
    "r = torch.where(mask, logp - logp_old.detach(), 1.0).exp()",
    "r = torch.where(mask, logp - logp_old, 1.0).exp()",
    "w = torch.where(mask, logp - logp_old, 1.0).exp().clamp(lower, upper)",
    "own = torch.where(mask, logp, 1.0)",
}
ONE_OPERAND_IN_FLOAT64_IS_ENOUGH = {
    "d = logp_train[mask] - logp_rollout[mask].double()",
    "d = logp_train[mask].double() - logp_rollout[mask]",
    "d = logp_train - logp_rollout.double()",
    "d = logp_train.double() - logp_rollout",
}
A_MATRIX_HAS_TWO_AXES = {
    "scale = (w.abs().amax(+1, keepdim=True) / levels).clamp(min=1e-30)",
}
ANY_TINY_SCALE_WILL_DO = {
    "scale = (w.abs().amax(-1, keepdim=True) / levels).clamp(min=2e-30)",
}
A_TENSOR_IS_A_NUMBER_TO_MATH = {
    "return 2.0 ** math.floor(math.log2(largest / grad.abs().max()))",
}
THE_SMALLER_OF_TWO_IN_ANY_ORDER = {"n = min(len(b), len(a))"}
IDS_AND_MASK_HAVE_ONE_SHAPE = {
    "return logits.new_zeros(response.shape).index_put((row, column), logp)",
}
EQUIVALENT = (
    THE_SMALLER_OF_TWO_IN_ANY_ORDER
    | IDS_AND_MASK_HAVE_ONE_SHAPE
    | SECOND_AXIS_IS_THE_LAST
    | PADDING_IS_MASKED_LATER
    | ONE_OPERAND_IN_FLOAT64_IS_ENOUGH
    | A_MATRIX_HAS_TWO_AXES
    | ANY_TINY_SCALE_WILL_DO
    | A_TENSOR_IS_A_NUMBER_TO_MATH
)


@each
def test_every_small_change_of_the_solution_is_noticed(exercise: Exercise) -> None:
    source = solution(exercise.name)
    killed, survivors = 0, []
    for what, changed in mutants(source):
        namespace: dict[str, Any] = {"torch": torch, "math": math, "Tensor": Tensor}
        exec(changed, namespace)
        verdicts = [judge(exercise, namespace[exercise.name], seed) for seed in (0, 1)]
        outcomes = {verdict.outcome for verdict in verdicts}
        killed += outcomes == {"wrong"}
        if outcomes != {"wrong"} and what not in EQUIVALENT:
            survivors.append(what)
    assert not survivors
    assert killed >= 5, killed


@pytest.mark.parametrize("what", ATTACKS)
def test_what_once_passed_is_wrong_on_every_seed(what: str) -> None:
    name, body = ATTACKS[what]
    exercise, namespace = find(name), {"torch": torch, "math": math}
    head = f"def {name}({', '.join(exercise.arguments)}):\n"
    exec(HELPERS + head + indent(body, "    "), namespace)
    outcomes = [judge(exercise, namespace[name], seed).outcome for seed in range(20)]
    assert outcomes == ["wrong"] * 20
