"""What every exercise has, and those of lab 01 against truth from elsewhere."""

from __future__ import annotations

import itertools
import math
import re
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from lab_sources import each, solution
from tinyrl.course.checking.comparison import truth
from tinyrl.course.exercise import STAGES, Exercise
from tinyrl.course.exercises import LABS, find, lab_of

CHINESE = re.compile(r"[\u4e00-\u9fff]")


# What every exercise has.


def test_no_two_exercises_have_one_name() -> None:
    names = [exercise.name for lab in LABS.values() for exercise in lab]
    assert sorted(names) == sorted(set(names)), "`find` would give the last of them"


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
    assert ("gradient" in stages) == bool(exercise.gradient or exercise.data)
    assert find(exercise.name) is exercise
    assert exercise in LABS[lab_of(exercise.name)]


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

    a, again, *others = content(3), content(3), *(content(seed) for seed in range(4, 9))
    torch.set_printoptions(profile="default")
    assert a == again
    assert {b[0] for b in others} == {a[0]}
    fixed = {"not one", "bias 1"}
    for i, case in enumerate(exercise.inputs(3)[1:], start=1):
        varies = any(b[i] != a[i] for b in others)
        assert varies or any(word in case.what.en for word in fixed), case.what.en


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
                assert x.dtype == (torch.int64 if name == "ids" else torch.float32)
                assert x[mask].isfinite().all()
                assert not name.startswith("logp") or (x[mask] <= 0).all()


def arguments(exercise: Exercise, name: str) -> list[Any]:
    """What the argument `name` is in the cases of five seeds, but for the example."""
    at = exercise.arguments.index(name)
    return [case.args[at] for seed in range(5) for case in exercise.inputs(seed)[1:]]


@each
def test_no_argument_is_the_same_in_every_case(exercise: Exercise) -> None:
    """Else an answer can have its value written into it."""
    for name in exercise.arguments:
        drawn = arguments(exercise, name)
        if isinstance(drawn[0], Tensor):
            assert len({x.shape for x in drawn}) > 1, name
        else:
            assert len(set(drawn)) > 1, name


@each
def test_ids_are_0_here_and_there(exercise: Exercise) -> None:
    """Else an answer can take 0 for padding, or for nothing."""
    for name in exercise.arguments:
        drawn = arguments(exercise, name)
        if isinstance(drawn[0], Tensor) and drawn[0].dtype == torch.int64:
            some = any((x == 0).any() for x in drawn)
            assert some != (name in ("prompt", "length")), name


@each
def test_a_real_token_has_an_exact_0(exercise: Exercise) -> None:
    """Else an answer can find the real tokens without the mask."""
    for name in exercise.arguments:
        if "mask" not in exercise.arguments or name == "mask":
            continue
        pairs = zip(arguments(exercise, name), arguments(exercise, "mask"), strict=True)
        zeros = [(x, m) for x, m in pairs if isinstance(x, Tensor) and x.shape == m.shape]
        assert not zeros or any((x[m] == 0).any() for x, m in zeros), name


@each
def test_masks_and_ids_that_are_returned_have_to_be_such(exercise: Exercise) -> None:
    """What the reference returns, the printed docstring says, and the checks ask for."""
    found: dict[str, set[str]] = {"boolean": set(), "whole": set()}
    value = exercise.reference(*exercise.inputs(0)[0].args)
    parts = value if isinstance(value, tuple) else (value,)
    for name, part in zip(exercise.returns, parts, strict=True):
        if isinstance(part, Tensor) and not part.is_floating_point():
            found["boolean" if part.dtype == torch.bool else "whole"].add(name)
    if exercise.name == "first_difference":
        found["whole"].add("place")  # a plain number of Python
    assert set(exercise.boolean) == found["boolean"]
    assert set(exercise.whole) == found["whole"]
    promised = solution(exercise.name).split('"""')[1].split("->")[-1]
    assert ("boolean" in promised) == bool(exercise.boolean)
    assert ("whole number" in promised) == bool(exercise.whole)


@each
def test_no_other_id_or_place_is_forgiven(exercise: Exercise) -> None:
    """A number at a jump moves far with its argument, and forgives as much."""
    for seed in range(3):
        for case in exercise.inputs(seed):
            right = truth(exercise, case)
            for name, slack in zip(exercise.returns, right.tolerances, strict=True):
                if name in exercise.boolean + exercise.whole:
                    assert (slack < 0.5).all(), (name, case.what.en)


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
    said = " ".join(
        m.en for e in LABS["lab01_two_policies"] for _, m in e.mistakes.values()
    )
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
