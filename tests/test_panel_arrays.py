"""`panel(logp_rollout, logp_train, mask)` on a learner's own arrays."""

import re
from dataclasses import asdict

import pytest
import torch

from tinyrl.course.panels.mismatch_panel import ArraysPanel, panel
from tinyrl.metrics import Mismatch, compare


def shown(p: ArraysPanel) -> dict[str, str]:
    """The numbers as the page has them, with all their digits."""
    found = re.findall(r'data-metric="(\w+)" data-value="([^"]*)"', p.view.numbers.value)
    assert len(found) == len(dict(found))
    return dict(found)


def digits(mismatch: Mismatch) -> dict[str, str]:
    return {name: repr(x) for name, x in asdict(mismatch).items()}


def arrays(B=6, T=9):
    g = torch.Generator().manual_seed(1)
    logp = -torch.empty(B, T).exponential_(generator=g)
    train = (logp + 0.1 * torch.randn(B, T, generator=g)).clamp(max=0)
    mask = torch.arange(T) < torch.randint(1, T + 1, (B, 1), generator=g)
    return logp, train, mask


@pytest.mark.parametrize("kind", ["torch", "numpy", "lists", "gradient", "no mask"])
def test_own_arrays(kind):
    logp, train, mask = given = arrays()
    if kind == "numpy":
        given = tuple(x.numpy() for x in given)
    elif kind == "lists":
        given = tuple(x.tolist() for x in given)
    elif kind == "gradient":
        given = logp, train.requires_grad_(), mask
    elif kind == "no mask":
        given, mask = (logp, train), None
    p = panel(*given, clip=0.1)
    assert isinstance(p, ArraysPanel)
    assert bytes(p.view.image.value).startswith(b"\x89PNG")
    want = digits(compare(logp.detach(), train.detach(), mask, clip=0.1))
    if kind == "lists":  # numpy reads a list as float64, torch's arrays are float32
        same = {k: float(v) for k, v in want.items() if v != "None"}
        assert {k: float(v) for k, v in shown(p).items() if v != "None"} == pytest.approx(
            same
        )
    else:
        assert shown(p) == want
    assert shown(p)["top1_agreement"] == "None"
    assert ">\u2013<" in p.view.numbers.value


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda a, b, m: (a[:, :-1], b, m), "differ in shape"),
        (lambda a, b, m: (a, b, m[:-1]), "mask has shape"),
        (lambda a, b, m: (-a, b, m), "logp_rollout row 0, column 0 is positive"),
        (lambda a, b, m: (a, b * float("nan"), m), "logp_train row 0, column 0 is not a"),
        (lambda a, b, m: (a, b, m & False), "mask is false everywhere"),
        (lambda a, b, m: (a[0], b[0], m[0]), r"logp_rollout must be \[B, T\]"),
    ],
)
def test_bad_arrays_are_refused_by_name(spoil, message):
    with pytest.raises(ValueError, match=message):
        panel(*spoil(*arrays()))
