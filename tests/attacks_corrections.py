"""Wrong answers of lab 09 that once passed: bounds, guards, lengths not asked for.

As attacks.py has them.
"""

from __future__ import annotations

HELPERS = """
def ends_of(total, n, real):
    return (torch.where(real, x, 0.0).exp() for x in (total, total / n))

def bounded(rho, mask, lower, upper):
    kept = mask & (rho >= lower) & (rho <= upper)
    truncated = torch.where(mask, rho.clamp(max=upper), 0.0)
    return truncated, torch.where(kept, rho, 0.0), kept

def clip_loss(new, old, roll, A, mask, eps, weight, *, ratio=None, most=None):
    r, rho = (apart(a, b, mask).exp() for a, b in ((new, old.detach()), (old, roll)))
    r, A = r if ratio is None else ratio(r), A[:, None]
    loss = torch.maximum(-A * r, -A * r.clamp(1 - eps, 1 + eps))
    if most: loss = torch.where(A < 0, torch.minimum(loss, -A * most), loss)
    return (weight(rho.detach()) * loss * mask).sum() / mask.sum()

def in_band(d, n, real, lower, upper, vetoed):
    mean = d.sum(1) / n
    near = (mean >= math.log(lower)) & (mean <= math.log(upper))
    return real & (near & ~vetoed)[:, None]

def stays(mean, A, mask, delta): return mask & ~((A < 0) & (mean > delta))[:, None]

def bias_of(mu, pi, weight, value):
    x = weight * value
    mean = (mu * x).sum()
    return mean - (pi * value).sum(), (mu * (x - mean) ** 2).sum()
"""

_D = "d = apart(logp_train, logp_rollout, mask).detach()\n"
_NEW = "d = apart(logp_rollout, logp_new, mask)\n"
_LOSS = "return clip_loss(logp_new, logp_old, logp_rollout, advantages, mask, eps, "
_CAP = _LOSS + "lambda w: w.clamp(max=cap), "
_VETO = "v = (d < math.log(veto)).any(1)\n"

ATTACKS: dict[str, tuple[str, str]] = {
    # How many tokens there are.
    "nonzero, levels": (
        "weight_levels",
        _D + "n = (d != 0).sum(1, keepdim=True).clamp(min=1)\n"
        "return d.exp(), *ends_of(d.sum(1, keepdim=True), n, mask)"),
    "nonzero, band": (
        "kept_responses",
        _D + _VETO + "n = (d != 0).sum(1).clamp(min=1)\n"
        "return in_band(d, n, mask, lower, upper, v)"),
    "nonzero, stale": (
        "stale_negatives",
        _NEW + "n = (d != 0).sum(1).clamp(min=1)\n"
        "return stays(d.sum(1) / n, advantages, mask, delta)"),
    "n - 1, stale": (
        "stale_negatives",
        _NEW + "n = (mask.sum(1) - 1).clamp(min=1)\n"
        "return stays(d.sum(1) / n, advantages, mask, delta)"),
    "the first five, stale": (
        "stale_negatives",
        _NEW + "mean = d[:, :5].sum(1) / mask[:, :5].sum(1)\n"
        "return stays(mean, advantages, mask, delta)"),
    "the first left out, band": (
        "kept_responses",
        _D + _VETO + "n = (mask.sum(1) - 1).clamp(min=1)\n"
        "return in_band(d[:, 1:], n, mask, lower, upper, v)"),
    "median, band": (
        "kept_responses",
        _D + _VETO + "mid = torch.stack([x[m].median() for x, m in zip(d, mask)])\n"
        "return in_band(mid[:, None], 1, mask, lower, upper, v)"),
    "the mean length, band": (
        "kept_responses",
        _D + _VETO + "n = mask.sum(1).double().mean()\n"
        "return in_band(d, n, mask, lower, upper, v)"),
    # Bounds that nobody asked for.
    "delta within 65, levels": (
        "weight_levels",
        _D + "d = d.clamp(-65, 65); n = mask.sum(1, keepdim=True)\n"
        "return d.exp(), *ends_of(d.sum(1, keepdim=True), n, mask)"),
    "delta within 10, band": (
        "kept_responses",
        _D + _VETO + "n = mask.sum(1)\n"
        "return in_band(d.clamp(-10, 10), n, mask, lower, upper, v)"),
    "delta within 20, stale": (
        "stale_negatives",
        _NEW + "mean = d.clamp(-20, 20).sum(1) / mask.sum(1)\n"
        "return stays(mean, advantages, mask, delta)"),
    "rho from 1 / C on": ("decoupled_loss", _LOSS + "lambda w: w.clamp(1 / cap, cap))"),
    "rho from 1/2 on": ("decoupled_loss", _LOSS + "lambda w: w.clamp(0.5, cap))"),
    "no rho below 1/2": (
        "decoupled_loss",
        _LOSS + "lambda w: torch.where(w < 0.5, 0.0, w.clamp(max=cap)))"),
    "dual clip 3": ("decoupled_loss", _CAP + "most=3.0)"),
    "dual clip 2": ("decoupled_loss", _CAP + "most=2.0)"),
    "log r within 1": (
        "decoupled_loss", _CAP + "ratio=lambda r: r.clamp(math.exp(-1), math.exp(1)))"),
    "log r within 20": (
        "decoupled_loss", _CAP + "ratio=lambda r: r.clamp(math.exp(-20), math.exp(20)))"),
    "weights up to 1000": (
        "normalised_weights",
        "w = torch.where(kept, weight.detach(), 0.0).clamp(max=1000)\n"
        "return torch.where(w.any(), w * kept.sum() / w.sum(), 0.0)"),
    "a cap from 1 on": (
        "exact_bias",
        "p, q = logp_train.sum(1), logp_rollout.sum(1)\n"
        "w = (p - q).exp().clamp(max=max(cap, 1))\n"
        "return bias_of(q.exp(), p.exp(), w, value)"),
    "at delta": (
        "stale_negatives",
        _NEW + "return stays(d.sum(1) / mask.sum(1), advantages, mask, delta - 1e-9)"),
    "delta and a little": (
        "stale_negatives",
        _NEW + "return stays(d.sum(1) / mask.sum(1), advantages, mask, delta + 1e-3)"),
    "less than a little bad": (
        "stale_negatives",
        _NEW + "return stays(d.sum(1) / mask.sum(1), advantages + 1e-4, mask, delta)"),
    "bounds and a little": (
        "bounded_weights",
        "rho = rho.detach(); truncated = bounded(rho, mask, lower, upper)[0]\n"
        "return truncated, *bounded(rho, mask, lower * 0.9999, upper * 1.0001)[1:]"),
    "bounds and a little, band": (
        "kept_responses",
        _D + _VETO + "n = mask.sum(1)\n"
        "return in_band(d, n, mask, lower * 0.9995, upper * 1.0005, v)"),
    "a veto and a little": (
        "kept_responses",
        _D + "v = (d < math.log(veto) - 0.1).any(1)\n"
        "return in_band(d, mask.sum(1), mask, lower, upper, v)"),
    "normalised weights up to 10": (
        "normalised_weights",
        "w = torch.where(kept, weight.detach(), 0.0)\n"
        "w = torch.where(w.any(), w * kept.sum() / w.sum(), 0.0); return w.clamp(max=10)"),
    "A over |A|, decoupled": (
        "decoupled_loss",
        "A = advantages / advantages.abs() * advantages.abs()\n"
        "return clip_loss(logp_new, logp_old, logp_rollout, A, mask, eps,\n"
        "                 lambda w: w.clamp(max=cap))"),
    # Bounds that are each other's reciprocal.
    "lower is 1 / upper": (
        "bounded_weights", "return bounded(rho.detach(), mask, 1 / upper, upper)"),
    "upper is 1 / lower": (
        "bounded_weights", "return bounded(rho.detach(), mask, lower, 1 / lower)"),
    "rho or 1 / rho": (
        "bounded_weights",
        "rho = rho.detach(); far = mask & (torch.maximum(rho, 1 / rho) > upper)\n"
        "truncated = torch.where(mask, rho.clamp(max=upper), 0.0)\n"
        "return truncated, torch.where(mask & ~far, rho, 0.0), mask & ~far"),
    "lower is 1 / upper, band": (
        "kept_responses",
        _D + _VETO + "return in_band(d, mask.sum(1), mask, 1 / upper, upper, v)"),
    # Guards that change tiny numbers, or are not there.
    "the root of 0": (
        "weight_levels",
        _D + "p = d.exp().prod(1, keepdim=True); g = p ** (1 / mask.sum(1, keepdim=True))\n"
        "return d.exp(), torch.where(mask, p, 1.0), torch.where(mask, g, 1.0)"),
    "ESS + 1e-8": (
        "weight_ess",
        "w = torch.where(mask, weight, 0.0).double()\n"
        "return w.sum() ** 2 / (mask.sum() * w.square().sum() + 1e-8)"),
    "ESS from 1e-12 on": (
        "weight_ess",
        "w = torch.where(mask, weight, 0.0).double()\n"
        "return w.sum() ** 2 / (mask.sum() * w.square().sum()).clamp(min=1e-12)"),
    "mean + 1e-8": (
        "normalised_weights",
        "w = torch.where(kept, weight.detach(), 0.0)\n"
        "return w / (w.sum() / kept.sum().clamp(min=1) + 1e-8)"),
    "a mean from 1e-6 on": (
        "normalised_weights",
        "w = torch.where(kept, weight.detach(), 0.0)\n"
        "return w / (w.sum() / kept.sum().clamp(min=1)).clamp(min=1e-6)"),
    "0 / 0 of what is kept": (
        "normalised_weights",
        "out, w = torch.zeros_like(weight).detach(), weight.detach()[kept]\n"
        "out[kept] = w / w.mean(); return out"),
    "mu + 1e-8": (
        "exact_bias",
        "pi, mu = logp_train.sum(1).exp(), logp_rollout.sum(1).exp()\n"
        "return bias_of(mu, pi, (pi / (mu + 1e-8)).clamp(max=cap), value)"),
    # Something else than the mean of logarithms, or than the sign.
    "exp - 1, stale": (
        "stale_negatives",
        _NEW + "mean = (d.sum(1) / mask.sum(1)).exp() - 1\n"
        "return stays(mean, advantages, mask, delta)"),
    "1 - exp, stale": (
        "stale_negatives",
        _NEW + "mean = 1 - (-d.sum(1) / mask.sum(1)).exp()\n"
        "return stays(mean, advantages, mask, delta)"),
    "centred, stale": (
        "stale_negatives",
        _NEW + "A = advantages - advantages.mean()\n"
        "return stays(d.sum(1) / mask.sum(1), A, mask, delta)"),
    "below -1/4, stale": (
        "stale_negatives",
        _NEW + "return stays(d.sum(1) / mask.sum(1), advantages + 0.25, mask, delta)"),
    "a veto of the first three": (
        "kept_responses",
        _D + "v = (d[:, :3] < math.log(veto)).any(1)\n"
        "return in_band(d, mask.sum(1), mask, lower, upper, v)"),
    "a veto of two": (
        "kept_responses",
        _D + "v = (d < math.log(veto)).sum(1) > 1\n"
        "return in_band(d, mask.sum(1), mask, lower, upper, v)"),
}  # fmt: skip
