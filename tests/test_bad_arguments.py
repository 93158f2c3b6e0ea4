"""Whatever is wrong with an argument, a `ValueError` names it."""

import math
import warnings

import numpy as np
import pytest
import torch

from batches import batch
from tinyrl.advantages import (
    gae,
    group_advantages,
    informative,
    leave_one_out,
    overlong_penalty,
)
from tinyrl.alarms import judge
from tinyrl.correction import Correction, off_policy_mask
from tinyrl.intervals import percentile, resample
from tinyrl.logprobs import check_logps, token_logp
from tinyrl.metrics import (
    by_position,
    by_probability,
    compare,
    ess,
    kl_terms,
    sequence_delta,
    token_delta,
)
from tinyrl.monitoring import series
from tinyrl.objectives import (
    LossView,
    aggregate,
    at_level,
    cispo,
    clip,
    dapo,
    diagnostics,
    dr_grpo,
    grpo,
    gspo,
    gspo_token,
    ppo,
    ratio,
    reinforce,
    sapo,
    soft_gate,
)

LOGP, OLD, A, MASK = batch(0)
MASK = torch.ones_like(MASK)
LOSS = {"logp": LOGP, "logp_old": OLD, "advantages": A, "mask": MASK}
WIDTHS = {"eps_low": 0.2, "eps_high": 0.2}
SHARED = {"weight": torch.ones(5, 7), "counted": MASK}
MORE = {**SHARED, "aggregation": "constant", "length": 7.0}
DELTA = {"delta": LOGP - OLD, "mask": MASK}
TRUSTED = {
    check_logps: {"mask": MASK, "logp": LOGP},
    token_logp: {"logits": torch.zeros(2, 3, 5), "ids": torch.zeros(2, 3).long()},
    ratio: {"log_ratio": LOGP - OLD, "mask": MASK, "level": "token"},
    at_level: {"log_ratio": LOGP - OLD, "mask": MASK, "level": "sequence"},
    clip: {"r": (LOGP - OLD).exp(), "A": A[:, None], **WIDTHS, "dual_clip": 3.0},
    soft_gate: {"r": (LOGP - OLD).exp(), "A": A[:, None], "tau_pos": 1.0, "tau_neg": 1.05},
    aggregate: {"x": LOGP, "mask": MASK, "how": "constant", "counted": MASK, "length": 7.0},
    ppo: {**LOSS, **MORE, **WIDTHS, "dual_clip": 3.0},
    grpo: {**LOSS, **MORE, **WIDTHS, "logp_ref": OLD, "beta": 0.1},
    dr_grpo: {**LOSS, **SHARED, **WIDTHS, "length": 7.0},
    dapo: {**LOSS, **SHARED, **WIDTHS},
    gspo: {**LOSS, **MORE, **WIDTHS},
    gspo_token: {**LOSS, **MORE, **WIDTHS},
    sapo: {**LOSS, **MORE, "tau_pos": 1.0, "tau_neg": 1.05},
    cispo: {**LOSS, **MORE, "eps_low": 0.5, "cap": 5.0},
    reinforce: {**LOSS, **MORE},
    diagnostics: {**LOSS, **WIDTHS, "dual_clip": 3.0, "level": "geometric"},
    LossView: {"anchor": "rollout", "aggregation": "token_mean"},
    Correction: {"level": "token", "operation": "mask", "lower": 0.5, "upper": 2.0},
    Correction("token", "mask").apply: {
        "logp_train": LOGP,
        "logp_rollout": OLD,
        "mask": MASK,
    },
    group_advantages: {"rewards": A[:4], "group_size": 2, "std": "sample", "eps": 1e-6},
    leave_one_out: {"rewards": A[:4], "group_size": 2},
    informative: {"rewards": A[:4], "group_size": 2},
    overlong_penalty: {"lengths": MASK.sum(1), "max_length": 7, "cache": 3},
    gae: {"rewards": OLD, "values": OLD, "mask": MASK, "gamma": 1.0, "lam": 0.9},
    compare: {
        "logp_rollout": OLD,
        "logp_train": LOGP,
        "mask": MASK,
        "clip": 0.2,
        "top1_rollout": MASK.long(),
        "top1_train": MASK.long(),
    },
    token_delta: {"logp_rollout": OLD, "logp_train": LOGP, "mask": MASK},
    sequence_delta: DELTA,
    kl_terms: {"d": LOGP},
    ess: {"log_weights": LOGP},
    by_position: DELTA,
    by_probability: {**DELTA, "logp_rollout": OLD, "edges": torch.tensor([0.0, 1.0])},
}
NONE_IS_A_CHOICE = {"weight", "logp_ref", "lower", "upper", "edges", "mask", "counted"} | {
    "dual_clip",
    "cap",
    "top1_rollout",
    "top1_train",
}
CALLED = {"how": "aggregation"}
"""Arguments that messages call by the name that callers of the losses know."""


def test_the_arguments_are_right_as_they_are():
    for function, arguments in TRUSTED.items():
        function(**arguments)


CASES = [
    pytest.param(function, name, id=f"{getattr(function, '__qualname__', function)} {name}")
    for function, arguments in TRUSTED.items()
    for name in arguments
]


@pytest.mark.parametrize(("function", "name"), CASES)
def test_a_wrong_type_is_told_by_its_name(function, name):
    wrong = ["2", {}, [1, [2]], object(), 1j, np.array(["x"]), 10**400]
    for value in wrong if name in NONE_IS_A_CHOICE else [*wrong, None]:
        with pytest.raises(ValueError, match=rf"^{CALLED.get(name, name)}\b"):
            function(**{**TRUSTED[function], name: value})


SHAPED = [
    case
    for case in CASES
    if torch.is_tensor(TRUSTED[case.values[0]][case.values[1]])
    and case.values[1] not in ("d", "log_weights", "r", "A")
]


ALONE = {check_logps: "logp", ratio: "log_ratio", at_level: "log_ratio", aggregate: "x"} | {
    sequence_delta: "delta",
    by_position: "delta",
}
"""Where the mask is all that an array can be compared with: either may be what is wrong."""


@pytest.mark.parametrize(("function", "name"), SHAPED)
def test_a_wrong_shape_is_told_by_its_name(function, name):
    told = rf"{name}\b|\w+ and {name} differ in shape"
    if ALONE.get(function) == name:
        told += r"|mask has shape \[5, 7\], logprobs have \[3, 11\]"
    if name == "ids":
        told += r"|logits must be a tensor \[B, T, V\] for ids "
    for value in (torch.full((3, 11), -1.0), torch.full((2, 2, 2, 2), 1.0), -1.0):
        with pytest.raises(ValueError, match=f"^({told})"):
            function(**{**TRUSTED[function], name: value})


@pytest.mark.parametrize("loss", [ppo, grpo, gspo, sapo, reinforce, diagnostics])
def test_lists_and_numpy_are_taken_everywhere(loss):
    want = loss(**LOSS)
    assert loss(**{name: x.tolist() for name, x in LOSS.items()}) == want
    assert loss(**{name: x.numpy() for name, x in LOSS.items()}) == want
    narrow = loss(**{**LOSS, "advantages": A.to(torch.float8_e5m2)})
    assert narrow == loss(**{**LOSS, "advantages": A.to(torch.float8_e5m2).double()})


def test_a_weight_may_be_a_list():
    weight = [[0.5] * 7] * 5
    want = 0.5 * ppo(**LOSS).item()
    assert ppo(**LOSS, weight=weight).item() == pytest.approx(want)
    assert grpo(**LOSS, weight=np.array(weight), aggregation="token_mean").item() == want


def test_advantages_and_corrections_of_lists():
    assert group_advantages([1, 0, 1.0, 1], 2, std="none").tolist() == [0.5, -0.5, 0, 0]
    assert group_advantages(np.array([1, 0]), np.int64(2), std="none").tolist() == [
        0.5,
        -0.5,
    ]
    arrays = (LOGP, OLD, MASK)
    want = Correction("token", "truncate").apply(*arrays)
    got = Correction("token", "truncate", upper=np.float32(2)).apply(
        *(x.tolist() for x in arrays)
    )
    assert all(torch.equal(x, y) for x, y in zip(got, want, strict=True))


def test_bounds_are_looked_at_without_an_operation_too():
    with pytest.raises(ValueError, match="upper must be a number, not '2'"):
        Correction(upper="2")


@pytest.mark.parametrize("size", [2.5, math.nan, math.inf])
def test_a_group_is_a_whole_number_of_responses(size):
    with pytest.raises(ValueError, match="group_size"):
        group_advantages(A[:4], size)


@pytest.mark.parametrize("token", [-1, 5])
def test_a_token_beyond_the_vocabulary_is_told_by_its_place(token):
    ids = torch.zeros(2, 3).long()
    ids[1, 2] = token
    with pytest.raises(ValueError, match=f"ids row 1, column 2 is no token of 5: {token}"):
        token_logp(torch.zeros(2, 3, 5), ids)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bool])
def test_tokens_are_whole_numbers(dtype):
    with pytest.raises(ValueError, match=r"^ids must hold integers, not (float|bool)"):
        token_logp(torch.zeros(2, 3, 5), torch.ones(2, 3, dtype=dtype))


@pytest.mark.parametrize("size", [400, 5000])
def test_a_number_beyond_every_float_is_refused_by_name(size):
    with pytest.raises(ValueError, match=r"^upper must be a number that a float can hold"):
        Correction(upper=10**size)


@pytest.mark.parametrize(
    "weights",
    [[], [math.nan], [0.0, math.nan], [0.0, math.inf], [-math.inf, -math.inf]],
)
def test_weights_without_an_effective_size_are_refused_by_name(weights):
    with pytest.raises(ValueError, match=r"^log_weights must hold "):
        ess(torch.tensor(weights))


def test_a_weight_of_zero_is_one():
    assert ess(torch.tensor([-math.inf, 0.0])) == pytest.approx(0.5)


TRUTHS = (True, np.bool_(True), torch.tensor(True))


@pytest.mark.parametrize("truth", TRUTHS)
def test_a_truth_value_is_no_number(truth):
    for name, call in {
        "upper": lambda: Correction("token", "truncate", upper=truth),
        "delta": lambda: off_policy_mask(LOGP, OLD, A, MASK, delta=truth),
        "eps_low": lambda: ppo(**LOSS, eps_low=truth),
        "length": lambda: dr_grpo(**LOSS, length=truth),
        "level": lambda: percentile(0.0, torch.rand(9), truth),
    }.items():
        with pytest.raises(ValueError, match=f"^{name} must be a number, not "):
            call()
    with pytest.raises(ValueError, match=r"^advantages must be .*, not bool"):
        ppo(**LOSS | {"advantages": A > 0})
    with pytest.raises(ValueError, match=r"^A must hold numbers, not bool"):
        clip(LOGP.exp(), A[:, None] > 0, **WIDTHS)


def test_a_number_may_carry_a_gradient():
    eps = torch.tensor(0.25, requires_grad=True)
    with warnings.catch_warnings(action="error"):
        assert torch.equal(ppo(**LOSS, eps_low=eps), ppo(**LOSS, eps_low=0.25))


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_what_is_not_finite_has_a_place(value):
    x = LOGP - OLD
    x[2, 3] = value
    for name, call in {
        "log_ratio": lambda: ratio(x, MASK),
        "x": lambda: aggregate(x, MASK, "token_mean"),
        "r": lambda: clip(x.exp(), A[:, None], **WIDTHS),
        "A": lambda: soft_gate(LOGP.exp(), x),
    }.items():
        with pytest.raises(ValueError, match=f"^{name} row 2, column 3 is no"):
            call()
    for call in (lambda: grpo(**LOSS, logp_ref=OLD, beta=value),
                 lambda: group_advantages(A[:4], 2, eps=value)):  # fmt: skip
        with pytest.raises(ValueError, match=r"^(beta|eps) must be .*, not (nan|inf)"):
            call()


def test_shapes_that_do_not_fit_a_gate():
    with pytest.raises(ValueError, match=r"^r and A do not fit: shapes \[5, 7\] and \[5\]"):
        soft_gate(LOGP.exp(), A)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: series([{"k3": 0.1}, 0.2]), "step 1 must map names to numbers, not 0.2"),
        (lambda: judge(None), "numbers must map names to numbers, not None"),
        (lambda: judge({"k3": "x"}), "k3 must be a number, not 'x'"),
        (lambda: resample(3.5, 9, torch.Generator()), "n must be a whole number"),
        (lambda: resample(3, 9, None), "generator must be a torch.Generator, not None"),
        (lambda: percentile(0.0, torch.rand(9), 1.5), "level must be between 0 and 1"),
    ],
)
def test_monitoring_says_what_is_wrong(call, said):
    with pytest.raises(ValueError, match=f"^{said}"):
        call()
