"""Faults of sampling and bookkeeping beside BF16 rounding: rollout and trainer logprobs."""

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
