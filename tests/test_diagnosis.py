"""Causes are found in policies that have them, and in no others; plus the command."""

import math
import pickle
import re
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from policies import NOISES, Policy, logp, one_early, one_late, top_k, top_p
from tinyrl.checkpoints import load
from tinyrl.cli import app
from tinyrl.diagnosis import BANDS, diagnose
from tinyrl.diagnosis.bands import band
from tinyrl.diagnosis.command import run
from tinyrl.diagnosis.statistics import logit, minority, quantile, rank_correlation
from tinyrl.scoring import score
from tinyrl.stack import PRESETS, Stack, replace_at
from tinyrl.tasks import CumSum
from tinyrl.trainer import generate

SHARP = [(1, 12), (0.5, 4), (4, 30)]  # entropies of about 1.5, 3 and 0.5 nats at V = 64
SHAPES = [(64, 32), (16, 128), (256, 13), (32, 64)]
seeds = st.integers(0, 2**32 - 1)


def policy(seed: int) -> Policy:
    """A policy of a realistic size, all kinds in turn."""
    (B, T), V, sharp = SHAPES[seed % 4], (16, 64, 512)[seed % 3], SHARP[seed // 3 % 3]
    return Policy.draw(seed, B, T, V, sharp)


def causes(a, b, mask=None):
    return {found.cause for found in diagnose(a, b, mask).findings}


# Nothing is found where nothing is wrong


@given(
    seeds,
    st.sampled_from(NOISES),
    st.sampled_from([1, 2, 3, 8, 32]),
    st.sampled_from([1, 2, 3, 13, 64]),
    st.sampled_from([4, 16, 64, 512]),
    st.sampled_from(SHARP),
    st.booleans(),
)
def test_rounding_and_old_weights_are_given_no_cause(seed, noise, B, T, V, sharp, swap):
    p = Policy.draw(seed, B, T, V, sharp)
    roll, train = p.logits(noise), p.logits()
    if swap:
        roll, train = train, roll
    ids = p.sample(roll)
    assert causes(logp(roll, ids), logp(train, ids), p.mask) == set()


@pytest.mark.parametrize("noise", NOISES)
def test_no_cause_in_large_batches_of_noise(noise):
    for seed in range(24):
        p = policy(seed)
        roll = p.logits(noise)
        ids = p.sample(roll)
        a, b = logp(roll, ids), logp(p.logits(), ids)
        verdict = diagnose(a, b, p.mask)
        assert verdict.findings == (), f"seed {seed}"


@pytest.mark.parametrize("noise", ["fp16", "bf16", "logits"])
@pytest.mark.parametrize("size", [0.02, 0.25, 4.0, 10.0])
def test_first_tokens_that_are_unsure_or_very_sure_are_no_wrong_prefix(noise, size):
    """Noise follows 1 - p, and rounding the size of the logits: both at the start only."""
    V, sharp = (512, (0.5, 4)) if size > 1 else (64, (10, 40))
    for seed in range(40):
        p = Policy.draw(seed, 16, 32, V, sharp)
        p.hidden[:, :2] *= size
        roll = p.logits(noise)
        ids = p.sample(roll)
        assert causes(logp(roll, ids), logp(p.logits(), ids), p.mask) == set(), seed


def test_a_sampler_that_cuts_more_at_the_start_is_no_wrong_prefix():
    for seed in range(8):
        p = Policy.draw(seed, 16, 128, 1024, (4, 12))
        p.hidden[:, :3] *= 0.1
        roll = top_k(p.logits(), 50)
        ids = p.sample(roll)
        assert causes(logp(roll, ids), logp(p.logits(), ids), p.mask) == {"offset"}


@given(seeds)
def test_unrelated_arrays_are_given_no_cause(seed):
    p, q = (
        Policy.draw(seed, 32, 32, 64, (1, 12)),
        Policy.draw(seed + 1, 32, 32, 64, (1, 12)),
    )
    ids = p.sample(p.logits())
    verdict = diagnose(logp(p.logits(), ids), logp(q.logits(), ids), p.mask)
    assert verdict.findings == ()
    assert "none of the five signatures" in verdict.rest


@pytest.mark.parametrize("noise", ["bf16", "w4a4", "int4", "stale"])
def test_certain_tokens_whose_logprob_is_honestly_zero_are_not_missing(noise):
    """Zeros of float32 stay innocent even where the trainer doubts many of them."""
    for seed in range(24):
        p = Policy.draw(seed, 32, 32, 16, (20, 200))
        roll = p.logits(noise)
        ids = p.sample(roll)
        a, b = logp(roll, ids), logp(p.logits(), ids)
        assert (a == 0).float().mean() > 0.2
        assert causes(a, b, p.mask) == set()


# Each fault is found, at a realistic strength, beside BF16 rounding


def temperature(p, T):
    roll = p.logits("bf16") / T
    ids = p.sample(roll)
    return logp(roll, ids), logp(p.logits(), ids)


def raw_logprobs(p, T):
    """Sampled at T and reported at 1; the trainer divides by T."""
    roll = p.logits("bf16")
    ids = p.sample(roll / T)
    return logp(roll, ids), logp(p.logits() / T, ids)


def cut(p, processor):
    roll = processor(p.logits("bf16"))
    ids = p.sample(roll)
    return logp(roll, ids), logp(p.logits(), ids)


def rounded(p):
    roll = p.logits("bf16")
    ids = p.sample(roll)
    return logp(roll, ids), logp(p.logits(), ids)


def last_missing(x, mask, k=1):
    end = mask.sum(1, keepdim=True)
    return torch.where((torch.arange(x.shape[1]) >= end - k) & mask, 0.0, x)


def some_missing(p, x, share=0.02):
    return torch.where(p.uniform(*x.shape) < share, 0.0, x)


def late(p):
    a, b = rounded(p)
    return a, one_late(b, p)


def early(p):
    a, b = rounded(p)
    return a, one_early(b, p)


def zeros_at_the_end(p):
    a, b = rounded(p)
    return last_missing(a, p.mask, 2), b


def zeros_anywhere(p):
    a, b = rounded(p)
    return a, some_missing(p, b)


def prefix(p, tokens, size=0.5, T=1.0):
    roll = p.logits("bf16") / T
    ids = p.sample(roll)
    return logp(roll, ids), logp(p.behind_another_prefix(tokens, size), ids)


def constant(p):
    a, b = rounded(p)
    return a, b - 0.05


FAULTS = {
    "late": ("shift", 24, late),
    "early": ("shift", 24, early),
    "last two missing": ("zeros", 24, zeros_at_the_end),
    "2 % missing in the trainer": ("zeros", 23, zeros_anywhere),
    "first token": ("first", 22, lambda p: prefix(p, 1)),
    "first tokens": ("first", 21, lambda p: prefix(p, 3)),
    "constant": ("offset", 24, constant),
    "top-p 0.8": ("offset", 23, lambda p: cut(p, lambda z: top_p(z, 0.8))),
    "top-p 0.9": ("offset", 22, lambda p: cut(p, lambda z: top_p(z, 0.9))),
    "top-k 8": ("offset", 14, lambda p: cut(p, lambda z: top_k(z, 8))),
    "T 0.6": ("scale", 24, lambda p: temperature(p, 0.6)),
    "T 0.8": ("scale", 20, lambda p: temperature(p, 0.8)),
    "T 1.2": ("scale", 22, lambda p: temperature(p, 1.2)),
    "T 1.5": ("scale", 24, lambda p: temperature(p, 1.5)),
    "T 0.6, raw": ("scale", 24, lambda p: raw_logprobs(p, 0.6)),
    "T 1.2, raw": ("scale", 22, lambda p: raw_logprobs(p, 1.2)),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_is_found_and_no_other(fault):
    cause, at_least, make = FAULTS[fault]
    found = Counter()
    for seed in range(24):
        p = policy(seed)
        found[frozenset(causes(*make(p), p.mask))] += 1
    assert found[frozenset({cause})] >= at_least
    assert found.keys() <= {frozenset({cause}), frozenset()}


def both(*parts):
    def make(p):
        a, b = parts[0](p)
        for part in parts[1:]:
            a, b = part(p, a, b)
        return a, b

    return make


COMBINED = {
    "late, last missing": (
        {"shift", "zeros"},
        both(rounded, lambda p, a, b: (last_missing(a, p.mask, 2), one_late(b, p))),
    ),
    "late, T 0.7": (
        {"shift", "scale"},
        both(lambda p: temperature(p, 0.7), lambda p, a, b: (a, one_late(b, p))),
    ),
    "2 % missing, T 0.7": (
        {"zeros", "scale"},
        both(lambda p: temperature(p, 0.7), lambda p, a, b: (some_missing(p, a), b)),
    ),
    "early, top-p 0.9": (
        {"shift", "offset"},
        both(
            lambda p: cut(p, lambda z: top_p(z, 0.9)),
            lambda p, a, b: (a, one_early(b, p)),
        ),
    ),
    "prefix, last missing": (
        {"first", "zeros"},
        both(lambda p: prefix(p, 2), lambda p, a, b: (last_missing(a, p.mask), b)),
    ),
    "prefix, T 0.7": ({"first", "scale"}, lambda p: prefix(p, 1, 1.0, T=0.7)),
    "prefix, late": (
        {"first", "shift"},
        both(lambda p: prefix(p, 2), lambda p, a, b: (a, one_late(b, p))),
    ),
}


@pytest.mark.parametrize("fault", COMBINED)
def test_faults_that_occur_together_are_told_apart(fault):
    expected, make = COMBINED[fault]
    found = Counter()
    for seed in range(24):
        p = policy(seed)
        found[frozenset(causes(*make(p), p.mask))] += 1
    assert found[frozenset(expected)] >= 18, found
    assert all(seen <= expected for seen in found), found


# What is said of a fault is right


def test_a_nucleus_at_a_temperature_is_told_by_one_or_both():
    """Both cool the rollout, so one can hide the other; nothing else may be named."""
    found = Counter()
    for seed in range(24):
        p = policy(seed)
        seen = causes(*cut(p, lambda z: top_p(z / 0.7, 0.9)), p.mask)
        assert seen <= {"scale", "offset"}
        found.update(seen or {"nothing"})
    assert found["scale"] >= 18
    assert found["offset"] >= 10
    assert found["nothing"] <= 1


@given(seeds, st.sampled_from([0.6, 0.8, 0.9, 1.2, 1.5]))
def test_the_bounds_on_the_temperature_hold_it(seed, T):
    p = Policy.draw(seed, 64, 32, 64, (1, 12))
    roll = p.logits() / T
    ids = p.sample(roll)
    (found,) = diagnose(logp(roll, ids), logp(p.logits(), ids), p.mask).findings
    low, high = (float(x) for x in found.what.split("between ")[1].split(" and "))
    assert low - 0.011 <= T <= high + 0.011
    assert found.value == pytest.approx(T, rel=0.12)


@given(seeds, st.floats(0.3, 3))
def test_odds_at_another_temperature_by_renyi_entropy(seed, beta):
    """logit q = beta logit p + (beta - 1) H_beta(rest), token by token, exactly."""
    g = torch.Generator().manual_seed(seed)
    z = 2 * torch.randn(6, generator=g, dtype=torch.float64)
    p, q = z.log_softmax(-1), (beta * z).log_softmax(-1)
    for v in range(6):
        rest = torch.cat([z[:v], z[v + 1 :]]).softmax(-1)
        H = (rest**beta).sum().log() / (1 - beta) if beta != 1 else torch.tensor(0.0)
        expected = beta * logit(p[v]) + (beta - 1) * H
        assert logit(q[v]).item() == pytest.approx(expected.item(), abs=1e-9)
        assert -1e-9 <= H <= math.log(5) + 1e-9


def test_the_mean_ratio_is_the_kept_mass_by_enumeration():
    g = torch.Generator().manual_seed(0)
    z = torch.randn(50, generator=g, dtype=torch.float64)
    full, kept = z.log_softmax(-1), top_p(z, 0.9).log_softmax(-1)
    mean_ratio = (kept.exp() * (full - kept).exp()).nansum()
    assert mean_ratio.item() == pytest.approx(full[kept > -math.inf].exp().sum().item())


def test_numbers_of_the_findings():
    p = policy(0)
    (found,) = diagnose(*late(p), p.mask).findings
    assert found.value == 1
    assert "late" in found.what
    (found,) = diagnose(*early(p), p.mask).findings
    assert found.value == -1
    assert "early" in found.what
    (found,) = diagnose(*constant(p), p.mask).findings
    assert found.value == pytest.approx(-0.05, abs=0.005)
    assert "nearly constant" in found.evidence
    assert "the rollout alone" in found.what
    a, b = rounded(p)
    (found,) = diagnose(last_missing(a, p.mask, 2), b, p.mask).findings
    assert found.value == pytest.approx(2 * len(a) / p.mask.sum().item(), rel=0.2)
    assert "of the rollout" in found.what
    (found,) = diagnose(a, last_missing(b, p.mask, 2), p.mask).findings
    assert "of the trainer" in found.what
    (found,) = diagnose(*prefix(p, 1), p.mask).findings
    assert found.value in (1, 2, 4)


def test_findings_are_ranked_by_what_they_explain():
    p = policy(0)
    a, b = temperature(p, 0.6)
    verdict = diagnose(some_missing(p, a, 0.01), b, p.mask)
    explained = [found.explains for found in verdict.findings]
    assert [found.cause for found in verdict.findings] == ["scale", "zeros"]
    assert explained == sorted(explained, reverse=True)
    assert 0 < sum(explained) <= 1


def test_a_missing_logprob_is_seen_in_the_smallest_batch():
    verdict = diagnose([[0.0, -1.0]], [[-2.0, -1.0]])
    assert verdict.findings[0].cause == "zeros"
    verdict = diagnose(np.zeros((1, 20)), np.full((1, 20), -2.0))
    assert "all of them" in verdict.findings[0].what
    assert verdict.rest == "nothing"


def test_padding_does_not_matter():
    p = policy(1)
    a, b = late(p)
    dirty = [torch.where(p.mask, x, math.nan) for x in (a, b)]
    assert str(diagnose(*dirty, p.mask)) == str(diagnose(a, b, p.mask))


def test_equal_arrays():
    p = policy(0)
    a, _ = rounded(p)
    verdict = diagnose(a, a, p.mask)
    assert verdict.band.name == "equal"
    assert verdict.findings == ()
    assert verdict.rest == "nothing"


def test_few_tokens_are_said_to_be_few():
    assert "too few tokens" in diagnose([[-1.0, -2.0]], [[-1.3, -1.5]]).rest


def test_bad_arrays_are_refused():
    with pytest.raises(ValueError, match="logp_train row 0, column 1 is not a number"):
        diagnose([[-1.0, -1.0]], [[-1.0, math.nan]])


# On the course's own model, through the real forward pass

TASK = CumSum()
SFT = load("sft")


def stacks(roll: Stack, seed: int, B: int = 64):
    g = torch.Generator().manual_seed(seed)
    batch = generate(SFT, TASK, TASK.prompts(B, g), roll, g)
    with torch.no_grad():
        logp_train = score(SFT, batch.prompt, batch.response, Stack()).logp
    return batch.logp_rollout, logp_train, batch.mask


def changed(**leaves) -> Stack:
    stack = Stack()
    for path, value in leaves.items():
        stack = replace_at(stack, path.replace("__", "."), value)
    return stack


INNOCENT = {
    **PRESETS,
    "int4_kv": changed(numerics__kv="int4"),
    "int4": changed(numerics__weights="int4", numerics__activations="int4"),
    "fp8": changed(numerics__weights="fp8_e4m3", numerics__activations="fp8_e4m3"),
    "position": changed(positions__offset=1),
}


@pytest.mark.parametrize("name", INNOCENT)
def test_stacks_of_the_course_that_have_none_of_the_five(name):
    for seed in range(8):
        assert causes(*stacks(INNOCENT[name], seed)) == set()


@pytest.mark.parametrize("T", [0.7, 0.9, 1.2, 1.5])
def test_a_temperature_of_the_courses_sampler(T):
    for seed in range(8):
        (found,) = diagnose(*stacks(changed(sampler__temperature=T), seed)).findings
        assert found.cause == "scale"
        assert found.value == pytest.approx(T, rel=0.12)


@pytest.mark.parametrize("fault", ["shift", "zeros", "offset"])
def test_faults_of_bookkeeping_on_the_courses_model(fault):
    for seed in range(8):
        a, b, mask = stacks(PRESETS["bf16"], seed)
        if fault == "shift":
            b = torch.cat([b.new_full((len(b), 1), -1.0), b[:, :-1]], 1)
        if fault == "zeros":
            a = last_missing(a, mask, 2)
        if fault == "offset":
            b = b - 0.1
        assert causes(a, b, mask) == {fault}


# Parts


def test_bands_rise_and_name_their_source():
    bounds = [b.below for b in BANDS]
    assert bounds == sorted(bounds)
    assert all("20" in b.source for b in BANDS)
    assert band(0.0, 0.0).name == "equal"
    names = [band(k3, 1.0).name for k3 in (0.0, 1e-9, 1e-6, 5e-5, 5e-3, 0.05, 2.0)]
    assert names == ["floor", "floor", "small", "usual", "high", "alarming", "broken"]
    assert band(math.inf, math.inf).name == "broken"


def test_rank_correlation_with_ties():
    x = torch.tensor([1.0, 2.0, 2.0, 3.0])
    y = torch.tensor([10.0, 20.0, 30.0, 40.0])
    # Pearson of (1, 2.5, 2.5, 4) and (1, 2, 3, 4)
    assert rank_correlation(x, y) == pytest.approx(4.5 / math.sqrt(4.5 * 5))
    assert rank_correlation(x, torch.ones(4)) == 0
    assert rank_correlation(x, -x) == pytest.approx(-1)
    big = torch.randn(200_000, generator=torch.Generator().manual_seed(0))
    assert rank_correlation(big, big**3) == pytest.approx(1)


def test_small_statistics():
    assert minority(torch.tensor([-3.0, 1.0])) == pytest.approx(0.25)
    assert quantile(torch.arange(101.0), 0.9) == 90
    assert quantile(torch.tensor([7.0]), 0.9) == 7


# The command


def save(folder, name, array):
    path = folder / name
    np.save(path, array)
    return path


@pytest.fixture
def files(tmp_path):
    p = policy(0)
    a, b = late(p)
    return (
        save(tmp_path, "a.npy", a.numpy()),
        save(tmp_path, "b.npy", b.numpy()),
        save(tmp_path, "m.npy", p.mask.numpy()),
    )


def test_the_command_prints_metrics_cause_and_remedy(files):
    a, b, m = (str(path) for path in files)
    result = CliRunner().invoke(app, ["diagnose", a, b, "--mask", m])
    assert result.exit_code == 0, result.output
    p = policy(0)
    k3 = diagnose(*late(p), p.mask).mismatch.k3
    assert f"{k3:.4g}" in result.output
    for words in (
        "a.npy (rollout)",
        "Reading of K3",
        "1. shift",
        "one token late",
        "remedy",
    ):
        assert words in " ".join(result.output.split())


def test_the_command_without_a_mask_and_without_a_fault(tmp_path, capsys):
    a = np.full((2, 3), -1.0)
    path = save(tmp_path, "[red]a.npy", a)
    assert run(path, path) == 0
    out = capsys.readouterr().out
    assert "[red]a.npy (rollout)" in out
    assert "None of: shift by one" in out


class Evil:
    def __reduce__(self):
        return (print, ("pickle was run",))


def bad_files(folder):
    good = save(folder, "good.npy", np.full((2, 3), -1.0))
    np.savez(folder / "many.npz", a=np.zeros(3))
    (folder / "text.npy").write_text("hello")
    (folder / "empty.npy").write_bytes(b"")
    (folder / "short.npy").write_bytes(good.read_bytes()[:-8])
    (folder / "header.npy").write_bytes(good.read_bytes()[:20])
    (folder / "pickle.npy").write_bytes(pickle.dumps(Evil()))
    np.save(folder / "objects.npy", np.array([[Evil()]]), allow_pickle=True)
    save(folder, "wide.npy", np.full((2, 4), -1.0))
    save(folder, "nan.npy", np.array([[-1.0, math.nan, -1.0]] * 2))
    save(folder, "positive.npy", np.full((2, 3), 0.5))
    save(folder, "flat.npy", np.full(6, -1.0))
    save(folder, "text_array.npy", np.array([["a", "b", "c"]] * 2))
    save(folder, "mask_wide.npy", np.ones((2, 4), dtype=bool))
    save(folder, "mask_two.npy", np.full((2, 3), 2))
    save(folder, "mask_none.npy", np.zeros((2, 3), dtype=bool))
    return good


@pytest.mark.parametrize(
    ("train", "mask", "message"),
    [
        ("absent.npy", None, "there is no file .*absent.npy"),
        (".", None, "is a folder, not a .npy file"),
        ("text.npy", None, "text.npy is not a .npy file"),
        ("empty.npy", None, "empty.npy is not a .npy file"),
        ("many.npz", None, "many.npz is not a .npy file"),
        ("pickle.npy", None, "pickle.npy is not a .npy file"),
        (
            "objects.npy",
            None,
            "objects.npy cannot be read: it holds pickled Python objects",
        ),
        ("short.npy", None, "short.npy cannot be read"),
        ("header.npy", None, "header.npy cannot be read"),
        ("wide.npy", None, r"differ in shape: \[2, 3\] and \[2, 4\].*wide.npy"),
        ("nan.npy", None, "logp_train row 0, column 1 is not a number.*nan.npy"),
        ("positive.npy", None, "row 0, column 0 is positive.*positive.npy"),
        ("flat.npy", None, r"logp_train must be \[B, T\].*flat.npy"),
        ("text_array.npy", None, "logp_train must hold numbers"),
        ("good.npy", "mask_wide.npy", r"mask has shape \[2, 4\].*mask_wide.npy"),
        ("good.npy", "mask_two.npy", "mask row 0, column 0 is neither 0 nor 1: 2"),
        ("good.npy", "mask_none.npy", "mask is false everywhere"),
        ("good.npy", "absent.npy", "there is no file"),
    ],
)
def test_the_command_says_what_is_wrong_with_a_file(tmp_path, capfd, train, mask, message):
    good = bad_files(tmp_path)
    code = run(good, tmp_path / train, None if mask is None else tmp_path / mask)
    out, err = capfd.readouterr()
    assert code == 2
    assert out == ""  # pickles were not run either
    assert err.startswith("tinyrl diagnose: ")
    assert err.count("\n") == 1
    assert re.search(message, err), err
