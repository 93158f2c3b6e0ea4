"""Wrong answers that once passed: sizes, carries and gradients that were never asked for.

As attacks.py has them.
"""

from __future__ import annotations

HELPERS = """
def best(z, k): return z >= z.topk(k).values[:, -1:]

def shares(e): return e / e.sum(1, keepdim=True)

def stored(x, E, M, top=lambda x, y: y):
    y = top(x, rows(x, gaps(x, 2 - 2 ** (E - 1), M)))
    return torch.where(y.abs() < 2.0 ** 2 ** (E - 1), y, y * math.inf)

def flips(f, a, b, mask): return (f(a) != f(b))[mask].double().mean()
"""
ATTACKS: dict[str, tuple[str, str]] = {
    # A number of a size, or of bits, that was never asked for.
    "0 is the smallest normal number": (
        "decode",
        "v = number(bits, exponent_bits)\n"
        "return v if v else 2.0 ** (2 - 2 ** (exponent_bits - 1))"),
    "in half precision": (
        "decode",
        "v = number(bits, exponent_bits); h = torch.tensor(v).half().item()\n"
        "return h if 1e-4 < abs(h) < math.inf else v"),
    "the largest numbers of E = 8 are infinite": (
        "decode",
        "v = number(bits, exponent_bits)\n"
        "return v * math.inf if abs(v) >= 2.0**127 else v"),
    "7 bits at most": ("round_nearest", "return to_bits(x, min(mantissa_bits, 7))"),
    "infinity is lost as well": (
        "flushed_share",
        "y = stored(grad * scale, exponent_bits, mantissa_bits); some = grad != 0\n"
        "return (some & ((y == 0) | y.isinf())).sum() / some.sum()"),
    "places up to 127": (
        "chunk_mask",
        "j = torch.arange(keys).to(torch.int8); i = torch.arange(tokens)[:, None]\n"
        "return j <= (start + i).to(torch.int8)"),
    "a set as the bits of 64": (
        "flip_rate",
        "a, b = experts_rollout.clamp(0, 63), experts_train.clamp(0, 63)\n"
        "return flips(lambda e: (1 << e).sum(-1), a, b, mask)"),
    "a product of numbers from 1 on": (
        "flip_rate",
        "return flips(lambda e: (e + 1).prod(-1), experts_rollout, experts_train, mask)"),
    "three layers": (
        "delta_by_flip",
        "d = apart(logp_train, logp_rollout, mask)[mask].abs()\n"
        "f = flipped[mask][:, :3].any(1)\n"
        "return d[f].mean(), d[~f].mean(), d[f].sum() / d.sum()"),
    "-1e4 for what is not replayed": (
        "replayed_gates",
        "return logits_train.masked_fill(~best(logits_rollout, k), -1e4).softmax(1)"),
    "relative to the mean": (
        "top_k_gates",
        "z = logits - logits.mean(1, keepdim=True)\n"
        "return shares(z.exp() * best(logits, k))"),
    "nearly ties, gates": (
        "top_k_gates",
        "t = logits.topk(k).values[:, -1:] - 1e-3\n"
        "return logits.masked_fill(logits < t, -math.inf).softmax(1)"),
    "one key is no block": (
        "online_step",
        "top = torch.maximum(m, s.amax(1)); a = (m - top).exp()\n"
        "p = (s - top[:, None]).exp().squeeze()\n"
        "return top, total * a + p.sum(-1), y * a[:, None] + p @ v"),
    "the rank with the largest sum": (
        "parallel_logp",
        "t = top.gather(0, total.argmax(0)[None])[0]\n"
        "return z - t - (total * (top - t).exp()).sum(0).log()"),
    # Carries and ties.
    "a tie below a power of two": (
        "round_nearest",
        "f, e = torch.frexp(x); n = 2.0 ** (mantissa_bits + 1); v = f * n\n"
        "return torch.ldexp(torch.where(v.abs() == n - 0.5, v.trunc(), v.round()) / n, e)"),
    "nothing is carried": (
        "cast",
        "y = stored(x, exponent_bits, mantissa_bits); k = 2.0 ** (torch.frexp(x)[1] - 1)\n"
        "up = (y.abs() >= 2 * k) & (x.abs() >= 2.0 ** (2 - 2 ** (exponent_bits - 1)))\n"
        "up &= y.isfinite()\n"
        "return torch.where(up, x.sign() * k * (2 - 2.0**-mantissa_bits), y)"),
    "BF16 ends before it rounds": (
        "cast",
        "def top(x, y): return torch.where(x.abs() > 3.39e38, x * math.inf, y)\n"
        "return stored(x, exponent_bits, mantissa_bits, top)"),
    "changes of bits are added": (
        "same_bits",
        "return (together.view(torch.int32) ^ alone.view(torch.int32)).sum(1) == 0"),
    # An overflow that is hidden from the value, and not from backward.
    "where, behind the naive sum": (
        "stable_logsumexp",
        "naive = z.exp().sum(-1).log()\n"
        "return torch.where(z.abs().amax(-1) < 80, naive, z.logsumexp(-1))"),
    "where, behind exp": (
        "replayed_gates",
        "on = best(logits_rollout, k)\n"
        "g = shares(torch.where(on, logits_train.exp(), 0.0))\n"
        "right = logits_train.masked_fill(~on, -math.inf).softmax(1)\n"
        "return torch.where(g.isfinite(), g, right)"),
    "where, behind the log": (
        "router_consistency",
        "z, q = logits_train[mask], logits_rollout[mask].detach().log_softmax(1)\n"
        "p = z.softmax(1); p = torch.where(p > 0, p.log(), z.log_softmax(1))\n"
        "return (q.exp() * (q - p)).sum(1).mean()"),
    "where, behind the shares": (
        "load_balance",
        "z = logits[mask]; e = shares(z.exp())\n"
        "p = torch.where(e.isfinite().all(1, keepdim=True), e, z.softmax(1)).mean(0)\n"
        "return z.shape[1] * (best(z, k).double().mean(0) * p).sum()"),
}  # fmt: skip
