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

from lab_sources import each, solution
from tinyrl.course.exercise import Exercise
from tinyrl.course.exercises import find
from tinyrl.course.judging import judge

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
PADDING_IS_MASKED_LATER = {"r = torch.where(mask, logp_train - logp_old, 1.0).exp()"}
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
EQUIVALENT = (
    THE_SMALLER_OF_TWO_IN_ANY_ORDER
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


# Wrong answers that once passed. Each is a body; its parameters are those of the exercise.
HELPERS = """
def bf(t): return t.to(torch.bfloat16).to(t.dtype)

def to_bits(x, M):
    fraction, exponent = torch.frexp(x)
    return torch.ldexp((fraction * 2.0 ** (M + 1)).round() / 2.0 ** (M + 1), exponent)

def gaps(x, lowest, M):
    return 2.0 ** (torch.frexp(x.abs().clamp(min=2.0**lowest))[1] - 1 - M)

def number(bits, E, *, lowest=None, infinite=None):
    text, bias = "".join(str(b) for b in bits.tolist()), 2 ** (E - 1) - 1
    e, m = int(text[1 : 1 + E], 2), int(text[1 + E :], 2) / 2 ** (len(text) - 1 - E)
    size = (1 + m) * 2.0 ** (e - bias) if e else m * 2.0 ** (lowest or 1 - bias)
    return (-1) ** int(text[0]) * (math.inf if e == (infinite or 2**E - 1) else size)

def rows(w, scale): return (w / scale).round() * scale

def longest(mean, std, bound, z, most):
    for n in range(most):
        if abs(mean) * (n + 1) + z * std * math.sqrt(n + 1) > math.log(bound):
            return n
    return most

def mean(x, real): return x.sum() / real.sum().clamp(min=1)
"""
ATTACKS: dict[str, tuple[str, str]] = {
    "a mask of numbers": (
        "chunk_mask",
        "return (torch.arange(keys) <= start + torch.arange(tokens)[:, None]).float()"),
    # Right for the formats that were asked.
    "lowest exponent of E = 4": ("spacing", "return gaps(x, -6, mantissa_bits)"),
    "lowest exponents of E = 4 and 5": (
        "spacing", "return gaps(x, -6 if exponent_bits == 4 else -14, mantissa_bits)"),
    "bias 2E - 1": ("spacing", "return gaps(x, 2 - 2 * exponent_bits, mantissa_bits)"),
    "subnormals of E = 4": ("decode", "return number(bits, exponent_bits, lowest=-6)"),
    "subnormals of E = 4 and 5": (
        "decode",
        "return number(bits, exponent_bits, lowest=-6 if exponent_bits == 4 else -14)"),
    "infinity of E = 4": ("decode", "return number(bits, exponent_bits, infinite=15)"),
    "infinity of E = 4 and 5": (
        "decode",
        "return number(bits, exponent_bits, infinite=15 if exponent_bits == 4 else 31)"),
    "infinity without a sign": (
        "decode", "v = number(bits, exponent_bits); return v if v > -math.inf else -v"),
    "infinity below 0": (
        "decode", "v = number(bits, exponent_bits); return v if v < math.inf else -v"),
    "2^-127 for E = 8": (
        "cast",
        "top = 2 ** (exponent_bits - 1)\n"
        "s = gaps(x, -127 if exponent_bits == 8 else 2 - top, mantissa_bits)\n"
        "y = rows(x, s)\n"
        "return torch.where(y.abs() < 2.0**top, y, y * math.inf)"),
    "levels of 4 and 8 bits": (
        "quantise_rows",
        "s = w.abs().amax(1, keepdim=True) / (127 if bits == 8 else 7)\n"
        "return rows(w, s.clamp(min=1e-30))"),
    # A guard that changes numbers smaller or larger than those that were asked.
    "scale from 1e-7 on": (
        "quantise_rows",
        "s = w.abs().amax(1, keepdim=True) / (2 ** (bits - 1) - 1)\n"
        "return rows(w, s.clamp(min=1e-7))"),
    "x from 1e-20 on": ("round_nearest", "return rows(x, gaps(x, -66, mantissa_bits))"),
    "delta within 50": (
        "ratio",
        "d = torch.where(mask, logp_train - logp_rollout.detach(), 0.0)\n"
        "return d.clamp(-50, 50).exp()"),
    "delta within 20": (
        "kl_estimates",
        "d = (logp_train[mask].double() - logp_rollout[mask].double()).clamp(-20, 20)\n"
        "return -d.mean(), (d**2).mean() / 2, (torch.expm1(d) - d).mean()"),
    "10,000 tokens at most": (
        "longest_response", "return longest(mean, std, bound, z, 10_000)"),
    "100,000 tokens at most": (
        "longest_response", "return longest(mean, std, bound, z, 100_000)"),
    "60 doublings at most": (
        "largest_scale",
        "room = math.log2(largest / grad.abs().max().item())\n"
        "return 2.0 ** min(60, math.floor(room))"),
    # A real token is one that is not 0.
    "nonzero": (
        "masked_mean",
        "y = torch.where(mask, x, 0.0); return y.sum() / (y != 0).sum()"),
    "nonzero, of a response": (
        "length_normalised_delta",
        "d = torch.where(mask, logp_train - logp_rollout, 0.0)\n"
        "return d.sum(1) / (d != 0).sum(1).clamp(min=1)"),
    "not certain": (
        "length_normalised_delta",
        "d = torch.where(mask, logp_train - logp_rollout, 0.0)\n"
        "return d.sum(1) / (mask & (logp_train != 0)).sum(1)"),
    "nonzero, KL": (
        "kl_estimates",
        "d = torch.where(mask, logp_train.double() - logp_rollout.double(), 0.0)\n"
        "return tuple(mean(k, d != 0) for k in (-d, d**2 / 2, torch.expm1(d) - d))"),
    "nonzero, clipped": (
        "clip_fraction",
        "d, a = torch.where(mask, logp_train - logp_old, 0.0), advantages[:, None]\n"
        "high, low = d.exp() > 1 + eps, d.exp() < 1 - eps\n"
        "return mean((a > 0) & high | (a < 0) & low, d != 0)"),
    "nonzero, by flip": (
        "delta_by_flip",
        "size = torch.where(mask, logp_train - logp_rollout, 0.0).abs()\n"
        "a, b = size * flipped.any(-1), size * ~flipped.any(-1)\n"
        "return mean(a, a != 0), mean(b, b != 0), a.sum() / size.sum()"),
    "expert 0 is none": (
        "flip_rate",
        "a, b = (torch.where(mask[..., None], e, 0).sort(-1).values\n"
        "        for e in (experts_rollout, experts_train))\n"
        "return mean((a != b).any(-1), (a != 0).any(-1))"),
    "logits 0 are none": (
        "load_balance",
        "z = logits[mask]; n = (z != 0).any(1).sum()\n"
        "f = (z >= z.topk(k).values[:, -1:]).sum(0) / n\n"
        "return z.shape[1] * (f * z.softmax(1).sum(0) / n).sum()"),
    "logit 0 is not chosen": (
        "replayed_gates",
        "kept = logits_train * (logits_rollout >= logits_rollout.topk(k).values[:, -1:])\n"
        "return kept.masked_fill(kept == 0, -math.inf).softmax(1)"),
    # A rounding more, or one less.
    "first term as it is": (
        "running_sum",
        "total = x[0]\n"
        "for v in x[1:]: total = to_bits(total + v, mantissa_bits)\n"
        "return total"),
    "each term rounded, too": (
        "running_sum",
        "total = torch.zeros(())\n"
        "for v in to_bits(x, mantissa_bits): total = to_bits(total + v, mantissa_bits)\n"
        "return total"),
    "sum rounded, then mean": (
        "unfused_norm",
        "m = bf(bf(bf(x * x).sum(1, keepdim=True)) / x.shape[1])\n"
        "return bf(bf(x * bf((m + eps).rsqrt())) * gain)"),
    "NaN without a sign": (
        "same_bits",
        "a, b = together.view(torch.int32), alone.view(torch.int32)\n"
        "nan = together.isnan() & alone.isnan() & (a & 0x7FFFFFFF == b & 0x7FFFFFFF)\n"
        "return ((a == b) | nan).all(1)"),
}  # fmt: skip


@pytest.mark.parametrize("what", ATTACKS)
def test_what_once_passed_is_wrong_on_every_seed(what: str) -> None:
    name, body = ATTACKS[what]
    exercise, namespace = find(name), {"torch": torch, "math": math}
    head = f"def {name}({', '.join(exercise.arguments)}):\n"
    exec(HELPERS + head + indent(body, "    "), namespace)
    outcomes = [judge(exercise, namespace[name], seed).outcome for seed in range(20)]
    assert outcomes == ["wrong"] * 20
