"""Wrong answers that once passed: under a tolerance, or where float32 has no digits left.

As attacks.py has them.
"""

from __future__ import annotations

ATTACKS: dict[str, tuple[str, str]] = {
    "1e-6 next to a sum of at least 1": (
        "stable_logsumexp",
        "t = z.amax(-1, keepdim=True)\n"
        "return t.squeeze(-1) + ((z - t).exp().sum(-1) + 1e-6).log()"),
    "a sum through its logarithm": (
        "online_step",
        "n = torch.maximum(m, s.amax(-1)); a, p = (m - n).exp(), (s - n[:, None]).exp()\n"
        "L = torch.logaddexp(m + total.log(), s.logsumexp(-1))\n"
        "return n, (L - n).exp(), y * a[:, None] + p @ v"),
    "an id of three more at a tie": (
        "scheduled_inputs",
        "x = torch.where(coin < own, said, gold)\n"
        "return behind(x + 3 * (coin == own) * (own > 0), start)"),
    "the largest probabilities": (
        "top_k_kept", "q = logits.softmax(1); return q >= q.topk(k).values[:, -1:]"),
    "the largest sigmoids": (
        "top_k_kept", "q = logits.sigmoid(); return q >= q.topk(k).values[:, -1:]"),
    "-6e4 for what is not chosen": (
        "top_k_gates", "return logits.masked_fill(~best(logits, k), -6e4).softmax(1)"),
    "-6e4 for what is not replayed": (
        "replayed_gates",
        "return logits_train.masked_fill(~best(logits_rollout, k), -6e4).softmax(1)"),
    "a ratio on the border is clipped": (
        "clip_fraction",
        "r, A = apart(logp_train, logp_old, mask).exp(), advantages[:, None]\n"
        "out = (A > 0) & (r >= 1 + eps) | (A < 0) & (r <= 1 - eps)\n"
        "return (out & mask).sum() / mask.sum()"),
    "a mean from 1e-9 on": (
        "normalised_weights",
        "w = torch.where(kept, weight.detach(), 0.0)\n"
        "return w / (w.sum() / kept.sum().clamp(min=1)).clamp(min=1e-9)"),
    "what is not finite is dropped": (
        "decoupled_loss",
        "def weight(w): return w.clamp(max=cap)\n"
        "def ratio(r): return torch.where(r.isfinite(), r, 0.0)\n"
        "return clip_loss(logp_new, logp_old, logp_rollout, advantages, mask, eps,\n"
        "                 weight, ratio=ratio)"),
}  # fmt: skip
