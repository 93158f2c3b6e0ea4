"""The exercises of lab 01 against truth from elsewhere, and the lab that asks them."""

from __future__ import annotations

import ast
import inspect
import itertools
import math
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jupytext
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from nbformat import NotebookNode
from torch import Tensor

from tinyrl.course.exercise import STAGES, Exercise
from tinyrl.course.exercises import LABS, find, lab_of
from tinyrl.course.judging import judge

ROOT = Path(__file__).parents[1]
LAB = "lab01_two_policies"
EXERCISES = LABS[LAB]
each = pytest.mark.parametrize("exercise", EXERCISES, ids=lambda exercise: exercise.name)
CHINESE = re.compile(r"[\u4e00-\u9fff]")


# What every exercise has.


@each
def test_is_complete(exercise: Exercise) -> None:
    assert len(exercise.mistakes) >= 6
    assert len(exercise.alternatives) >= 2
    assert all(points >= 1 for points in exercise.points)
    assert exercise.minutes >= 1
    stages = [case.stage for case in exercise.inputs(0)]
    assert stages[0] == "example"
    assert stages == sorted(stages, key=list(STAGES).index)
    assert {"property", "inputs", "numbers"} <= set(stages)
    assert ("gradient" in stages) == bool(exercise.gradient)
    assert find(exercise.name) is exercise
    assert lab_of(exercise.name) == LAB


@each
def test_speaks_two_languages(exercise: Exercise) -> None:
    messages = [message for _, message in exercise.mistakes.values()]
    said = [*messages, *exercise.hints, *(case.what for case in exercise.inputs(0))]
    for words in said:
        assert not CHINESE.search(words.en), words.en
        assert CHINESE.search(words.zh) or words.zh == words.en, words.zh
        assert words.en.count("`") % 2 == 0 == words.zh.count("`") % 2
    for language in ("en", "zh"):
        texts = [getattr(message, language) for message in messages]
        assert len(set(texts)) == len(texts), "two mistakes are told the same"
        assert all(text[-1] in ".。" for text in texts)


@each
def test_example_stays_and_other_inputs_change_with_the_seed(exercise: Exercise) -> None:
    def content(seed: int) -> list[str]:
        torch.set_printoptions(precision=8, threshold=10**6)
        return [repr(case.args) for case in exercise.inputs(seed)]

    a, again, b = content(3), content(3), content(4)
    torch.set_printoptions(profile="default")
    assert a == again
    assert a[0] == b[0]
    fixed = {"not one", "bias 1"}
    for case, x, y in zip(exercise.inputs(3)[1:], a[1:], b[1:], strict=True):
        assert x != y or any(word in case.what.en for word in fixed), case.what.en


@each
def test_inputs_are_what_the_lab_says_they_are(exercise: Exercise) -> None:
    for seed, case in itertools.product(range(5), range(len(exercise.inputs(0)))):
        args = dict(zip(exercise.arguments, exercise.inputs(seed)[case].args, strict=True))
        mask = args.get("mask")
        if not isinstance(mask, Tensor):
            continue
        assert mask.dtype == torch.bool
        assert mask.any(-1).all(), "every response has a token"
        for name, x in args.items():
            if isinstance(x, Tensor) and x.shape == mask.shape and name != "mask":
                assert x.dtype == torch.float32
                assert x[mask].isfinite().all()
                assert not name.startswith("logp") or (x[mask] <= 0).all()


# Truth from elsewhere: plain Python on lists of numbers, enumeration, autograd, counting.


def draw(name: str, seed: int) -> list[Any]:
    """Arguments of a padded case of ordinary inputs, tensors in float64."""
    cases = [c for c in find(name).inputs(seed) if c.stage == "inputs"]
    return [
        a.double() if isinstance(a, Tensor) and a.is_floating_point() else a
        for a in cases[-1].args
    ]


def real(mask: Tensor, *arrays: Tensor) -> list[list[tuple[float, ...]]]:
    """For each row the numbers of each real token."""
    rows = []
    for b in range(mask.shape[0]):
        tokens = [t for t in range(mask.shape[1]) if mask[b, t]]
        rows.append([tuple(float(x[b, t]) for x in arrays) for t in tokens])
    return rows


def close(mine: Any, theirs: Any) -> None:
    torch.testing.assert_close(
        torch.as_tensor(mine, dtype=torch.float64),
        torch.as_tensor(theirs, dtype=torch.float64),
        rtol=1e-12,
        atol=1e-12,
    )


seeds = pytest.mark.parametrize("seed", range(3))


@seeds
def test_response_logp_is_that_of_torch_distributions(seed: int) -> None:
    logits, ids, prompt = draw("response_logp", seed)
    before = torch.distributions.Categorical(logits=logits[:, :-1])
    expected = before.log_prob(ids[:, 1:])[:, prompt - 1 :]
    close(find("response_logp").reference(logits, ids, prompt), expected)


@seeds
def test_deltas_and_ratio(seed: int) -> None:
    train, rollout, mask = draw("ratio", seed)
    rows = real(mask, train, rollout)
    sums = [math.fsum(p - q for p, q in row) for row in rows]
    close(find("sequence_delta").reference(train, rollout, mask), sums)
    means = [s / len(row) for s, row in zip(sums, rows, strict=True)]
    close(find("length_normalised_delta").reference(train, rollout, mask), means)
    delta = find("token_delta").reference(train, rollout, mask)
    ratio = find("ratio").reference(train, rollout, mask)
    assert (delta[~mask] == 0).all()
    assert (ratio[~mask] == 1).all()
    close(delta[mask], [p - q for row in rows for p, q in row])
    close(ratio[mask], [math.exp(p) / math.exp(q) for row in rows for p, q in row])


@seeds
def test_masked_mean(seed: int) -> None:
    x, mask = draw("masked_mean", seed)
    numbers = [v for row in real(mask, x) for (v,) in row]
    close(find("masked_mean").reference(x, mask), math.fsum(numbers) / len(numbers))


def test_k1_and_k3_estimate_the_kl_of_the_sampler_from_the_trainer() -> None:
    """All tokens of a vocabulary, each as often as the rollout policy samples it."""
    p_rollout = torch.tensor([0.5, 0.25, 0.125, 0.125], dtype=torch.float64)
    p_train = torch.tensor([0.4, 0.3, 0.2, 0.1], dtype=torch.float64)
    tokens = torch.tensor([[0] * 4 + [1] * 2 + [2, 3]])
    k1, k2, k3 = find("kl_estimates").reference(
        p_train.log()[tokens], p_rollout.log()[tokens], torch.ones(1, 8, dtype=torch.bool)
    )
    kl = math.fsum(q * math.log(q / p) for p, q in zip(p_train, p_rollout, strict=True))
    close(k1, kl)
    close(k3, kl)
    assert abs(k2 - kl) > 1e-4, "K2 is biased"


@seeds
def test_k2_and_k3(seed: int) -> None:
    train, rollout, mask = draw("kl_estimates", seed)
    d = [p - q for row in real(mask, train, rollout) for p, q in row]
    _, k2, k3 = find("kl_estimates").reference(train, rollout, mask)
    close(k2, math.fsum(x * x / 2 for x in d) / len(d))
    close(k3, math.fsum(math.expm1(x) - x for x in d) / len(d))


@seeds
def test_ratio_parts(seed: int) -> None:
    train, old, rollout, mask = draw("ratio_parts", seed)
    merged, drift, mismatch = find("ratio_parts").reference(train, old, rollout, mask)
    close(drift * mismatch, merged)
    rows = [token for row in real(mask, train, old, rollout) for token in row]
    close(drift[mask], [math.exp(new) / math.exp(o) for new, o, _ in rows])
    close(mismatch[mask], [math.exp(o) / math.exp(q) for _, o, q in rows])
    assert all((x[~mask] == 1).all() for x in (merged, drift, mismatch))


@seeds
def test_clipped_tokens_are_those_without_a_gradient(seed: int) -> None:
    train, old, advantages, mask, eps = draw("clip_fraction", seed)
    clean_old = torch.where(mask, old, train)
    logp = train.clone().requires_grad_()
    r = (logp - clean_old).exp()
    a = advantages[:, None].expand_as(r)
    objective = torch.minimum(r * a, r.clamp(1 - eps, 1 + eps) * a)
    (gradient,) = torch.autograd.grad(objective[mask].sum(), logp)
    stopped = (gradient == 0) & mask
    fraction = find("clip_fraction").reference(train, old, advantages, mask, eps)
    close(fraction, stopped.sum() / mask.sum())
    assert 0 < fraction < 1


def test_length_growth_is_what_a_simulation_finds() -> None:
    mean, std, length, n = 0.01, 0.2, 50, 40_000
    generator = torch.Generator().manual_seed(0)
    sums = (mean + std * torch.randn(n, length, generator=generator)).double().sum(-1)
    expected_mean, expected_std = find("length_growth").reference(mean, std, length)
    error = expected_std / math.sqrt(n)
    assert abs(sums.mean() - expected_mean) < 5 * error
    assert abs(sums.std() - expected_std) < 5 * error


@given(
    st.floats(-0.01, 0.01), st.floats(0.001, 0.1), st.floats(1.1, 3.0), st.floats(0.5, 3.0)
)
def test_longest_response_fits_and_one_more_token_does_not(
    mean: float, std: float, bound: float, z: float
) -> None:
    length = find("longest_response").reference(mean, std, bound, z)

    def size(n: int) -> float:
        return abs(mean) * n + z * std * math.sqrt(n)

    assert size(length) <= math.log(bound) * (1 + 1e-12)
    assert size(length + 1) >= math.log(bound) * (1 - 1e-12)


def test_numbers_in_the_messages() -> None:
    said = " ".join(m.en for e in EXERCISES for _, m in e.mistakes.values())
    for text, value, digits in [
        ("ratio is 1.65", math.exp(0.5), 2),
        ("log(1.2) is 0.182", math.log(1.2), 3),
        ("log(0.8) is -0.223", math.log(0.8), 3),
        ("differs by 0.0009", 0.001 - 0.0001, 4),
    ]:
        assert text in said
        assert float(re.findall(r"-?[\d.]+\d", text)[-1]) == round(value, digits)
    assert "steps of 1.2e-7" in said
    assert f"{2.0**-23:.1e}" == "1.2e-07"
    assert f"{1e-4**2 / 2:.0e}" == "5e-09"


# Wrong answers that nobody thought of: every small change of a right answer.

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
}
PADDING_IS_MASKED_LATER = {"r = torch.where(mask, logp_train - logp_old, 1.0).exp()"}
ONE_OPERAND_IN_FLOAT64_IS_ENOUGH = {
    "d = logp_train[mask] - logp_rollout[mask].double()",
    "d = logp_train[mask].double() - logp_rollout[mask]",
}
EQUIVALENT = (
    SECOND_AXIS_IS_THE_LAST | PADDING_IS_MASKED_LATER | ONE_OPERAND_IN_FLOAT64_IS_ENOUGH
)


@each
def test_every_small_change_of_the_solution_is_noticed(exercise: Exercise) -> None:
    source = solutions()[exercise.name]
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


# The lab's source.


def lab() -> NotebookNode:
    return jupytext.read(ROOT / "solutions" / f"{LAB}.py", fmt="py:percent")


def solutions() -> dict[str, str]:
    """The source of each solution cell, by exercise."""
    cells = [cell for cell in lab().cells if cell.cell_type == "code"]
    marked = [c for c in cells if c.metadata.get("nbgrader", {}).get("solution")]
    return {cell.metadata.nbgrader.grade_id: cell.source for cell in marked}


def test_lab_asks_every_exercise_in_order() -> None:
    assert list(solutions()) == [exercise.name for exercise in EXERCISES]


@each
def test_solution_is_right_and_its_stub_says_what_to_write(exercise: Exercise) -> None:
    source = solutions()[exercise.name]
    namespace: dict[str, Any] = {"torch": torch, "math": math, "Tensor": Tensor}
    exec(source, namespace)
    for seed in (0, 1, 2):
        verdict = judge(exercise, namespace[exercise.name], seed)
        assert verdict.outcome == "right", verdict.text.en
    stub = re.sub(
        r"### BEGIN SOLUTION.*### END SOLUTION",
        "raise NotImplementedError()",
        source,
        flags=re.S,
    )
    exec(stub, namespace)
    assert judge(exercise, namespace[exercise.name]).outcome == "blank"
    assert (
        tuple(inspect.signature(namespace[exercise.name]).parameters) == exercise.arguments
    )
    assert inspect.getdoc(namespace[exercise.name])


@each
def test_cells_of_an_exercise(exercise: Exercise) -> None:
    cells = lab().cells
    at = next(
        i
        for i, cell in enumerate(cells)
        if cell.metadata.get("nbgrader", {}).get("grade_id") == exercise.name
    )
    question, answer, test, hidden = cells[at - 1 : at + 3]
    call = f'_check("{exercise.name}", {exercise.name}'
    on_one_line = f"from tinyrl.course import check as _check; {call})"
    on_two = f"from tinyrl.course import check as _check\n\n{call})"
    assert test.source == (on_one_line if len(on_one_line) <= 80 else on_two)
    visible, secret = hidden.source.split("### BEGIN HIDDEN TESTS\n")
    assert f"{call}, seed=1)" in visible
    assert secret.endswith("### END HIDDEN TESTS")
    assert "from tinyrl.course import check as _check\n" in secret
    assert re.search(rf"{re.escape(call)}, seed=\d{{4,}}\)", secret)
    canary = f"TINYRL-CANARY-lab01-{exercise.name}"
    assert f"# canary: {canary}-hidden\n" in secret
    assert re.search(rf"### BEGIN SOLUTION\n *# canary: {canary}\n", answer.source)
    assert (
        test.metadata.nbgrader.points,
        hidden.metadata.nbgrader.points,
    ) == exercise.points
    assert exercise.title.en in question.source
    assert exercise.title.zh in question.source
    told = f"{exercise.minutes} minutes, {sum(exercise.points)} points."
    assert question.source.endswith(told)


def test_metadata_points_and_minutes_of_the_lab() -> None:
    cells = lab().cells
    marks = [c.metadata.nbgrader for c in cells if "nbgrader" in c.metadata]
    for mark in marks:
        assert mark.schema_version == 3
        graded = mark.grade or mark.task
        assert ("points" in mark) == graded
        assert not (mark.grade and mark.task), "points of such a cell count twice"
        assert mark.locked == (not mark.solution)
        if graded:
            assert isinstance(mark.points, int)
    total = sum(mark.get("points", 0) for mark in marks)
    intro = cells[0].source
    assert f"{total} points" in intro
    minutes = sum(exercise.minutes for exercise in EXERCISES)
    declared = int(re.search(r"(\d+) minutes", intro)[1])  # type: ignore[index]
    assert minutes <= declared <= minutes + 15
    assert len(cells) <= 60
    text = " ".join(c.source for c in cells if c.cell_type == "markdown")
    assert len(text.split()) <= 3000
    for cell in cells:
        assert max(map(len, cell.source.splitlines())) <= 80, cell.source


def test_open_question_has_a_rubric_and_right_numbers() -> None:
    cells = {
        c.metadata.nbgrader.grade_id: c for c in lab().cells if "nbgrader" in c.metadata
    }
    rubric, answer = cells["open_rubric"], cells["open_answer"]
    assert "=== BEGIN MARK SCHEME ===" in rubric.source
    assert rubric.source.endswith("=== END MARK SCHEME ===")
    assert rubric.source.count("TINYRL-CANARY") == answer.source.count("TINYRL-CANARY") == 1
    mean, std, length = -0.00125, 0.05, 2000
    assert mean == pytest.approx(-(std**2) / 2), "else the probabilities do not sum to 1"
    bias, noise = find("length_growth").reference(mean, std, length)
    assert f"{bias:.1f}" == "-2.5"
    assert f"{noise:.2f}" == "2.24"
    assert f"{math.exp(bias):.2f}" == "0.08"
    for text in (
        "mean delta -0.00125",
        "deviation of delta 0.05",
        "K3\n0.00125",
        "2000 tokens",
    ):
        assert text in rubric.source
    for text in ("-2.5", "2.24", "0.08"):
        assert text in rubric.source
    for text in ("-2.5", "2.2", "0.08"):
        assert text in answer.source


def test_no_canary_in_the_package() -> None:
    files = [p for p in (ROOT / "src").rglob("*") if p.suffix in (".py", ".ipynb", ".css")]
    assert len(files) > 20
    assert not [p for p in files if "TINYRL-CANARY-lab01-" in p.read_text("utf-8")]
