"""Every objective and its derivative in plain Python: floats, loops, the papers' formulas.

Nothing here is shared with the library. A row is the list of a response's real tokens;
`ROWS[name]` gives the losses of its tokens, and how each changes with each logprob.
"""

import math

import torch
from hypothesis import strategies as st

from tinyrl import objectives


def surrogate(r, A, eps_low, eps_high, dual_clip=None):
    """PPO's loss of one ratio, and its derivative by the ratio."""
    inside = min(max(r, 1 - eps_low), 1 + eps_high)
    kept = min(r * A, inside * A)
    slope = 0.0 if inside * A < r * A else A
    if dual_clip is not None and A < 0 and kept < dual_clip * A:
        return -dual_clip * A, 0.0
    return -kept, -slope


def each_alone(token):
    """A row whose losses depend on their own token's logprob only."""

    def row(logp, old, A, **how):
        n = len(logp)
        pairs = [token(*x, **how) for x in zip(logp, old, A, strict=True)]
        slopes = [[pairs[t][1] if t == u else 0.0 for u in range(n)] for t in range(n)]
        return [value for value, _ in pairs], slopes

    return row


def ppo_token(logp, old, A, eps_low=0.2, eps_high=0.2, dual_clip=None):
    r = math.exp(logp - old)
    value, slope = surrogate(r, A, eps_low, eps_high, dual_clip)
    return value, slope * r


def dapo_token(logp, old, A, eps_low=0.2, eps_high=0.28):
    return ppo_token(logp, old, A, eps_low, eps_high)


def sapo_token(logp, old, A, tau_pos=1.0, tau_neg=1.05):
    r = math.exp(logp - old)
    tau = tau_pos if A > 0 else tau_neg
    s = 1 / (1 + math.exp(-tau * (r - 1)))
    return -4 / tau * s * A, -A * r * 4 * s * (1 - s)


def cispo_token(logp, old, A, eps_low=1.0, eps_high=None, cap=None):
    upper = cap if eps_high is None else 1 + eps_high
    w = min(max(math.exp(logp - old), 1 - eps_low), upper)
    return -w * A * logp, -w * A


def reinforce_token(logp, old, A):
    return -A * logp, -A


def gspo_row(logp, old, A, eps_low=3e-4, eps_high=4e-4):
    n = len(logp)
    s = math.prod(math.exp(x - y) for x, y in zip(logp, old, strict=True)) ** (1 / n)
    pairs = [surrogate(s, a, eps_low, eps_high) for a in A]
    return [v for v, _ in pairs], [[slope * s / n] * n for _, slope in pairs]


def gspo_token_row(logp, old, A, eps_low=3e-4, eps_high=4e-4):
    values, slopes = gspo_row(logp, old, A, eps_low, eps_high)
    n = len(logp)
    own = [[slopes[t][u] * n if t == u else 0.0 for u in range(n)] for t in range(n)]
    return values, own


ROWS = {
    "ppo": each_alone(ppo_token),
    "grpo": each_alone(ppo_token),
    "dr_grpo": each_alone(ppo_token),
    "dapo": each_alone(dapo_token),
    "gspo": gspo_row,
    "gspo_token": gspo_token_row,
    "sapo": each_alone(sapo_token),
    "cispo": each_alone(cispo_token),
    "reinforce": each_alone(reinforce_token),
}
NAMES = sorted(ROWS)
AVERAGE = {
    "ppo": "token_mean",
    "grpo": "sequence_mean",
    "dr_grpo": "constant",
    "dapo": "token_mean",
    "gspo": "sequence_mean",
    "gspo_token": "sequence_mean",
    "sapo": "sequence_mean",
    "cispo": "token_mean",
    "reinforce": "sequence_sum",
}
"""What each paper averages over."""
NEEDED = {"dr_grpo": {"length": 9.0}, "cispo": {"cap": 5.0}}
"""Settings that have no default."""


def loss(name, *arrays, **how):
    """The library's, with what it needs where `how` doesn't say it."""
    needed = {} if "eps_high" in how and name == "cispo" else NEEDED.get(name, {})
    return getattr(objectives, name)(*arrays, **{**needed, **how})


def plain(name, logp, old, A, mask, weight=None, counted=None, **how):
    """Loss and gradient `[B][T]` from lists; A is a list of rows or of tokens."""
    B, T = len(logp), len(logp[0])
    how = {**({} if "eps_high" in how and name == "cispo" else NEEDED.get(name, {})), **how}
    average = how.pop("aggregation", AVERAGE[name])
    length = how.pop("length", None)
    counts = [sum(row) for row in (mask if counted is None else counted)]
    rows = sum(n > 0 for n in counts)
    total, gradient = [], [[0.0] * T for _ in range(B)]
    for b in range(B):
        places = [t for t in range(T) if mask[b][t]]
        if not places:
            continue
        a = [A[b][t] if isinstance(A[b], list) else A[b] for t in places]
        values, slopes = ROWS[name](
            [logp[b][t] for t in places], [old[b][t] for t in places], a, **how
        )
        share = {
            "token_mean": 1 / max(sum(counts), 1),
            "sequence_mean": 1 / max(rows * counts[b], 1),
            "sequence_sum": 1 / max(rows, 1),
            "constant": 1 / (max(rows, 1) * (length or 1)),
        }[average]
        for i, t in enumerate(places):
            w = share * (1.0 if weight is None else weight[b][t])
            total.append(w * values[i])
            for j, u in enumerate(places):
                gradient[b][u] += w * slopes[i][j]
    return math.fsum(total), gradient


def value_and_gradient(name, logp, *arrays, **how):
    """The library's loss and its gradient by `logp`."""
    x = logp.detach().clone().requires_grad_()
    value = loss(name, x, *arrays, **how)
    (gradient,) = torch.autograd.grad(value, x)
    return value.detach(), gradient


WIDTHS = {"eps_low": st.floats(0.02, 0.5), "eps_high": st.floats(0.02, 2)}
AVERAGES = st.sampled_from(
    [{"aggregation": a} for a in ("token_mean", "sequence_mean", "sequence_sum")]
    + [{"aggregation": "constant", "length": 11.0}]
)
GATES = {
    "ppo": {**WIDTHS, "dual_clip": st.none() | st.floats(1.05, 4)},
    "grpo": WIDTHS,
    "dr_grpo": {**WIDTHS, "length": st.floats(0.5, 50)},
    "dapo": WIDTHS,
    "gspo": WIDTHS,
    "gspo_token": WIDTHS,
    "sapo": {"tau_pos": st.floats(0.2, 5), "tau_neg": st.floats(0.2, 5)},
    "cispo": {"eps_low": st.floats(0, 1), "eps_high": st.floats(0, 1)},
    "reinforce": {},
}


def settings_of(name):
    """Drawn keywords of an objective: its gate, and its average where it is free."""
    gates = st.fixed_dictionaries(GATES[name])
    if name == "cispo":
        gates |= st.fixed_dictionaries({"cap": st.floats(1.01, 8)})
    if name in ("dr_grpo", "dapo"):
        return gates
    return st.builds(lambda gate, average: {**gate, **average}, gates, AVERAGES)
