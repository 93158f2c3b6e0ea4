"""Wrong answers that once passed: the exercise and a body, by what they get wrong.

The parameters of a body are those of the exercise, and `HELPERS` stand above it.
"""

from __future__ import annotations

import attacks_borders
import attacks_corrections
import attacks_objectives
import attacks_sizes
import attacks_tolerance

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

def apart(logp_train, logp_rollout, mask):
    return torch.where(mask, logp_train - logp_rollout, 0.0)

def first(a, b, missing=-1):
    n = max(len(a), len(b))
    x, y = (torch.nn.functional.pad(t, (0, n - len(t)), value=missing) for t in (a, b))
    return next((t for t in range(n) if x[t] != y[t]), None)

def until(is_end):
    return is_end.long().cumsum(1) - is_end.long() == 0

def behind(x, value=0):
    return torch.nn.functional.pad(x[:, :-1], (1, 0), value=value)

def speaks(ids, opens, closes):
    t = torch.arange(ids.shape[1])
    a, b = (behind(torch.where(x, t, -1).cummax(1).values, -1) for x in (opens, closes))
    return a > b

def response_logp(logp_of, logits, ids, response):
    z = torch.where(torch.nn.functional.pad(response[:, 1:], (0, 1))[..., None], logits, 0)
    logp = logp_of(z[:, :-1]).gather(2, ids[:, 1:].clamp(min=0)[..., None])[..., 0]
    return torch.where(response, behind(torch.nn.functional.pad(logp, (0, 1))), 0.0)

def nucleus(logits, before):
    q, order = logits.softmax(1).sort(1, descending=True)
    return torch.zeros_like(logits).bool().scatter(1, order, before(q.cumsum(1) - q))

def lost(logits, kept, mask):
    return torch.where(kept[mask], 0.0, logits[mask].softmax(1)).sum(1)
"""
HELPERS += attacks_objectives.HELPERS + attacks_corrections.HELPERS + attacks_sizes.HELPERS
MORE = attacks_borders.ATTACKS | attacks_objectives.ATTACKS | attacks_corrections.ATTACKS
MORE |= attacks_sizes.ATTACKS | attacks_tolerance.ATTACKS
ATTACKS: dict[str, tuple[str, str]] = MORE | {
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
    "delta within 20, token": (
        "token_delta", "return apart(logp_train, logp_rollout, mask).clamp(-20, 20)"),
    "delta within 50, token": (
        "token_delta", "return apart(logp_train, logp_rollout, mask).clamp(-50, 50)"),
    "delta within 20, sequence": (
        "sequence_delta",
        "return apart(logp_train, logp_rollout, mask).clamp(-20, 20).sum(1)"),
    "delta within 20, of a response": (
        "length_normalised_delta",
        "d = apart(logp_train, logp_rollout, mask).clamp(-20, 20)\n"
        "return d.sum(1) / mask.sum(1)"),
    "delta within 20, by flip": (
        "delta_by_flip",
        "d = apart(logp_train, logp_rollout, mask)[mask].clamp(-20, 20).abs()\n"
        "f = flipped[mask].any(1); return d[f].mean(), d[~f].mean(), d[f].sum() / d.sum()"),
    "delta within 20, padded": (
        "k3_with_padding",
        "d = (logp_train.double() - logp_rollout).clamp(-20, 20)\n"
        "k = torch.expm1(d) - d; return k[mask].mean(), k.mean()"),
    "a ratio of 10 at most": (
        "k3_with_padding",
        "d = logp_train.double() - logp_rollout\n"
        "k = d.exp().clamp(max=10) - 1 - d; return k[mask].mean(), k.mean()"),
    "logprobs from -50 on": (
        "padded_logp",
        "def of(z): return z.log_softmax(-1).clamp(min=-50)\n"
        "return response_logp(of, logits, ids, response)"),
    "log of softmax": (
        "padded_logp",
        "def of(z): return z.softmax(-1).log()\n"
        "return response_logp(of, logits, ids, response)"),
    "log of softmax and a little": (
        "padded_logp",
        "def of(z): return (z.softmax(-1) + 1e-9).log()\n"
        "return response_logp(of, logits, ids, response)"),
    "-1e4 for what is cut": (
        "kept_log_mass",
        "return logits.masked_fill(~kept, -1e4).logsumexp(1) - logits.logsumexp(1)"),
    "-1e4 for what is cut, replayed": (
        "replayed_logp",
        "z = torch.where(mask[..., None], logits, 0.0).masked_fill(~kept, -1e4)\n"
        "logp = z.log_softmax(-1).gather(-1, ids[..., None])[..., 0]\n"
        "return torch.where(mask, logp, 0.0)"),
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
    "nonzero, kept": (
        "kept_loss",
        "y = torch.where(mask & ~cut[:, None], loss, 0.0); return mean(y, y != 0)"),
    "nonzero, padded": (
        "k3_with_padding",
        "d = logp_train.double() - logp_rollout; k = torch.expm1(d) - d\n"
        "return k[logp_rollout != 0].mean(), k.mean()"),
    "nonzero, parts": (
        "ratio_parts",
        "sides = (logp_train, logp_train_old, logp_rollout)\n"
        "a, b, c = (torch.where(mask & (s != 0), s, -1.0) for s in sides); b = b.detach()\n"
        "c = c.detach(); return (a - c).exp(), (a - b).exp(), (b - c).exp()"),
    "nonzero, lost": (
        "unreachable_mass", "y = lost(logits, kept, mask); return mean(y, y != 0)"),
    "logit 0 is not kept": (
        "kept_log_mass",
        "z = (logits * kept).masked_fill(logits * kept == 0, -math.inf)\n"
        "return z.logsumexp(1) - logits.logsumexp(1)"),
    "logit 0 is not kept, replayed": (
        "replayed_logp",
        "z = torch.where(mask[..., None] & kept, logits, 0.0)\n"
        "z = torch.where((z == 0) & mask[..., None], -1e9, z).log_softmax(-1)\n"
        "return torch.where(mask, z.gather(-1, ids[..., None])[..., 0], 0.0)"),
    "a hazard of 0 is none": (
        "free_running_error",
        "h = torch.where(hazard == 0, hazard.mean(), hazard)\n"
        "return 1 - (1 - h).cumprod(0)"),
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
    # NaN in the padding, and numbers that have no `.backward()`.
    "where, behind the softmax": (
        "padded_logp",
        "z = logits[:, :-1].log_softmax(-1)\n"
        "z = z.gather(2, ids[:, 1:].clamp(min=0)[..., None])[..., 0]\n"
        "z = behind(torch.nn.functional.pad(z, (0, 1)))\n"
        "return torch.where(response, z, 0.0)"),
    "Python's 0": (
        "kept_loss",
        "y = torch.where(mask & ~cut[:, None], loss, 0.0)\n"
        "return 0 if cut.all() else mean(y, mask & ~cut[:, None])"),
    # A rounding more, or one less.
    "terms of BF16": (
        "running_sum",
        "total = torch.zeros(())\n"
        "for v in bf(x): total = to_bits(total + v, mantissa_bits)\n"
        "return total"),
}  # fmt: skip
