"""Lab 09: right answers as people write them who think in loops, in numpy, in place."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from tinyrl.course.checking.judging import judge
from tinyrl.course.exercises import find


def ess_in_numpy(weight: Tensor, mask: Tensor) -> Any:
    w = weight.numpy()[mask.numpy()].astype("float64")
    return w.sum() ** 2 / (len(w) * (w**2).sum()) if w.any() else 0.0


def ess_by_norms(weight: Tensor, mask: Tensor) -> Tensor:
    w = torch.where(mask, weight, torch.zeros(())).double().flatten()
    if w.count_nonzero() == 0:
        return torch.tensor(0.0)
    return (w.norm(p=1) / w.norm(p=2)) ** 2 / mask.count_nonzero()


def ess_of_logs(weight: Tensor, mask: Tensor) -> Tensor:
    d = weight[mask].log()
    log_ess = 2 * d.logsumexp(0) - (2 * d).logsumexp(0) - math.log(len(d))
    return torch.where((weight[mask] > 0).any(), log_ess.exp(), torch.zeros(()))


def levels_by_einsum(a: Tensor, b: Tensor, mask: Tensor) -> Any:
    with torch.no_grad():
        m = mask.to(a.dtype)
        d = a.nan_to_num(0.0, 0.0, 0.0) - b.nan_to_num(0.0, 0.0, 0.0)
        total = torch.einsum("bt,bt->b", d, m)
        mean = total / torch.einsum("bt->b", m).clamp(min=1)
        product, geometric = (torch.outer(x, torch.ones(a.shape[1])) for x in (total, mean))
        return (d * m).exp(), (product * m).exp(), (geometric * m).exp()


def levels_in_place(a: Tensor, b: Tensor, mask: Tensor) -> Any:
    d = a.detach().clone()
    d.sub_(b.detach())
    d[~mask] = 0.0
    product = d.sum(-1, keepdim=True).exp().repeat(1, d.shape[1])
    geometric = d.sum(-1, keepdim=True).div(mask.sum(-1, keepdim=True).clamp_min(1)).exp()
    geometric = geometric.repeat(1, d.shape[1])
    product[~mask] = geometric[~mask] = 1.0
    return d.exp_(), product, geometric


def bounded_in_numpy(rho: Tensor, mask: Tensor, lower: float, upper: float) -> Any:
    x, m = rho.detach().numpy(), mask.numpy()
    kept = m & (x >= lower) & (x <= upper)
    truncated, masked = x.clip(None, upper), x.copy()
    truncated[~m], masked[~kept] = 0, 0
    return truncated, masked, kept


def bounded_by_lists(rho: Tensor, mask: Tensor, lower: float, upper: float) -> Any:
    rows = zip(rho.tolist(), mask.tolist(), strict=True)
    made = [
        [
            (min(x, upper), x if lower <= x <= upper else 0.0, lower <= x <= upper)
            if m
            else (0.0, 0.0, False)
            for x, m in zip(*row, strict=True)
        ]
        for row in rows
    ]
    parts = [[[cell[i] for cell in row] for row in made] for i in range(3)]
    return torch.tensor(parts[0]), torch.tensor(parts[1]), torch.tensor(parts[2])


def normalised_by_sum(weight: Tensor, kept: Tensor) -> Tensor:
    w = weight.detach().masked_fill(kept.logical_not(), 0)
    if not w.any():
        return torch.zeros_like(w)
    return w.mul(kept.sum()).div(w.sum())


def kept_by_softly(
    a: Tensor, b: Tensor, mask: Tensor, lower: float, upper: float, veto: float
) -> Tensor:
    rho = torch.ones_like(a)
    rho[mask] = torch.exp(a[mask] - b[mask])
    root = torch.exp(torch.log(rho).sum(1) / mask.sum(1))
    good = (root >= lower) & (root <= upper) & (rho.amin(1) >= veto)
    return good[:, None] * mask


def bias_by_matmul(train: Tensor, rollout: Tensor, value: Tensor, cap: float) -> Any:
    pi, mu = train.double().sum(-1), rollout.double().sum(-1)
    x = torch.exp(pi - mu).minimum(torch.tensor(cap).double()) * value.double()
    mean = mu.exp() @ x
    return mean - pi.exp() @ value.double(), mu.exp() @ x**2 - mean**2


def loss_by_loop(
    new: Tensor,
    old: Tensor,
    rollout: Tensor,
    advantages: Tensor,
    mask: Tensor,
    eps: float,
    cap: float,
) -> Any:
    total = 0
    for b in range(len(mask)):
        for t in range(mask.shape[1]):
            if mask[b, t]:
                r = torch.exp(new[b, t] - old[b, t].detach())
                w = torch.exp(old[b, t] - rollout[b, t]).detach().clamp(max=cap)
                A = advantages[b]
                total = total + w * torch.min(r * A, torch.clamp(r, 1 - eps, 1 + eps) * A)
    return -total / mask.sum()


def loss_without_grad_block(
    new: Tensor,
    old: Tensor,
    rollout: Tensor,
    advantages: Tensor,
    mask: Tensor,
    eps: float,
    cap: float,
) -> Any:
    with torch.no_grad():
        weight = (old - rollout).masked_fill(~mask, 0).exp().clamp_max(cap)
        before = old.masked_fill(~mask, 0)
    r = (new.masked_fill(~mask, 0) - before).exp()
    A = advantages.unsqueeze(-1)
    loss = -torch.min(A * r, A * torch.clip(r, 1 - eps, 1 + eps)) * weight
    return loss[mask].mean()


def stale_by_where(
    new: Tensor, rollout: Tensor, advantages: Tensor, mask: Tensor, delta: float
) -> Tensor:
    gaps = torch.stack(
        [(q[m] - p[m]).sum() / m.sum() for p, q, m in zip(new, rollout, mask, strict=True)]
    )
    keep = torch.where(advantages < 0, gaps <= delta, torch.ones_like(gaps).bool())
    return mask & keep.reshape(-1, 1)


STYLES = [
    ("weight_ess", ess_in_numpy),
    ("weight_ess", ess_by_norms),
    ("weight_ess", ess_of_logs),
    ("weight_levels", levels_by_einsum),
    ("weight_levels", levels_in_place),
    ("bounded_weights", bounded_in_numpy),
    ("bounded_weights", bounded_by_lists),
    ("normalised_weights", normalised_by_sum),
    ("kept_responses", kept_by_softly),
    ("exact_bias", bias_by_matmul),
    ("decoupled_loss", loss_by_loop),
    ("decoupled_loss", loss_without_grad_block),
    ("stale_negatives", stale_by_where),
]


@pytest.mark.parametrize(
    ("name", "answer"), STYLES, ids=lambda x: getattr(x, "__name__", x)
)
def test_right_answers_in_other_styles_are_right(name: str, answer: Any) -> None:
    told = [judge(find(name), answer, seed) for seed in range(20)]
    assert {(v.outcome, v.text.en if v.outcome != "right" else "") for v in told} == {
        ("right", "")
    }
