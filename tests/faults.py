"""Faults of sampling and bookkeeping beside BF16 rounding: rollout and trainer logprobs."""

import math

import torch

from policies import logp, one_early, one_late


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


KEPT = {}  # of policies that many tests draw: what `rounded` gave, and the generator then


def rounded(p):
    key = p.drawn, p.generator.get_state().numpy().tobytes()
    if key not in KEPT:
        roll = p.logits("bf16")
        ids = p.sample(roll)
        both = logp(roll, ids), logp(p.logits(), ids)
        KEPT[key] = both, p.generator.get_state()
    (a, b), after = KEPT[key]
    p.generator.set_state(after)
    return a.clone(), b.clone()


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


def multiplied(p, k):
    a, b = rounded(p)
    return a, b * k


def logarithm(p, side, base):
    a, b = rounded(p)
    return (a / math.log(base), b) if side == "rollout" else (a, b / math.log(base))


def floored(p, side, bound):
    a, b = rounded(p)
    return (a.clamp(min=bound), b) if side == "rollout" else (a, b.clamp(min=bound))


def learned(p, step=0.03):
    """The trainer has made a step up the likelihood of these tokens, or down below 0."""
    ids = p.sample(p.logits("bf16"))
    h, W = p.hidden.clone().requires_grad_(), p.head.clone().requires_grad_()
    a = logp(p.logits("bf16"), ids)
    logp(h @ W.T, ids).sum().backward()
    W = W + step * W.grad / p.mask.numel()
    return a, logp((h + step * h.grad) @ W.T, ids).detach()


def choices(seed, bias=0.0, jitter=1e-4, n=256, k=4):
    """Answers of one token to one prompt. A prefix cache gives the rollout one logprob for
    each of the `k`; the trainer's differ by `bias` a choice and `jitter` a row."""
    g = torch.Generator().manual_seed(seed)
    z = 1.5 * torch.randn(k, generator=g)
    other = (z + bias * torch.randn(k, generator=g)).log_softmax(-1)
    ids = torch.multinomial(z.softmax(-1), n, replacement=True, generator=g)
    noise = jitter * torch.randn(n, 1, generator=g)
    return z.log_softmax(-1)[ids, None], (other[ids, None] + noise).clamp(max=0)
