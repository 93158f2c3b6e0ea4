"""Wrong answers that once passed: objectives, and the numbers of a monitor.

As attacks.py has them; `HELPERS` stand next to its own.
"""

from __future__ import annotations

HELPERS = """
def moved(logp, logp_old, mask): return torch.where(mask, logp - logp_old.detach(), 0.0)

def clipped(r, A, low, high, dual):
    x = torch.maximum(-r * A, -r.clamp(1 - low, 1 + high) * A)
    return torch.where(A < 0, torch.minimum(x, -dual * A), x)

def token_form(log_s, logp, mask):
    own = torch.where(mask, logp, 0.0)
    return torch.where(mask, (log_s.detach() + own - own.detach()).exp(), 1.0)

def centred(rewards, n, correction):
    R = rewards.view(-1, n)
    equal = R.amax(1, keepdim=True) == R.amin(1, keepdim=True)
    off = R - R.mean(1, keepdim=True)
    return equal, off, R.std(1, correction=correction, keepdim=True)

def share(w): return w.mean() ** 2 / (w * w).mean()

def pearson(x, y):
    x, y = x - x.mean(), y - y.mean()
    return (x * y).sum() / ((x * x).sum().sqrt() * (y * y).sum().sqrt())

def drift(a, b, p):
    s = (a[..., :, None] == b[..., None, :]).any(-1)
    return s.float().mean(), torch.where(s, 0.0, p).sum(-1).mean()

def walk(values, high, low, n, bad=None, good=None):
    bad, good = bad or (lambda v: not v <= high), good or (lambda v: v < low)
    on, run, out = False, 0, []
    for v in values.tolist():
        run = run + 1 if bad(v) else 0
        if on and good(v): on = False
        elif run >= n: on = True
        out.append(on)
    return torch.tensor(out)
"""
ATTACKS: dict[str, tuple[str, str]] = {
    # An advantage of 0; a sign that is another's.
    "A over |A|, PPO": (
        "ppo_loss",
        "r, A = moved(logp, logp_old, mask).exp(), advantages[:, None]\n"
        "x = clipped(r, A / A.abs(), eps_low, eps_high, dual) * A.abs()\n"
        "return torch.where(mask, x, 0.0)"),
    "A over |A|, CISPO": (
        "cispo_loss",
        "w = moved(logp, logp_old, mask).exp().clamp(lower, upper).detach()\n"
        "A = (advantages / advantages.abs() * advantages.abs())[:, None]\n"
        "return -w * A * torch.where(mask, logp, 0.0)"),
    "no tau where A is 0": (
        "sapo_loss",
        "r, A = moved(logp, logp_old, mask).exp(), advantages[:, None]\n"
        "tau = tau_pos * (A > 0) + tau_neg * (A < 0)\n"
        "return torch.where(mask, -4 / tau * torch.sigmoid(tau * (r - 1)) * A, 0.0)"),
    "tau by the mean advantage": (
        "sapo_loss",
        "r, A = moved(logp, logp_old, mask).exp(), advantages[:, None]\n"
        "tau = torch.where(A > A.mean(), tau_pos, tau_neg)\n"
        "return torch.where(mask, -4 / tau * torch.sigmoid(tau * (r - 1)) * A, 0.0)"),
    # Borders.
    "stopped on the border": (
        "stopped_shares",
        "r, A = moved(logp, logp_old, mask).exp(), advantages[:, None]\n"
        "good, bad = (A > 0) & mask, (A < 0) & mask\n"
        "return (((r >= 1 + eps_high) & good).sum() / good.sum().clamp(min=1),\n"
        "        ((r <= 1 - eps_low) & bad).sum() / bad.sum().clamp(min=1))"),
    "all but one is whole": (
        "dropped_shares",
        "o = (weight == 0) & mask; lost, n = o.sum(1), mask.sum(1)\n"
        "some, whole = (lost > 0).float(), (lost > n - 2).float()\n"
        "return lost.sum() / n.sum(), some.mean(), whole.mean()"),
    "below low if they are equal": (
        "alarm_on",
        "return walk(values, high, low if low < high else high + 1e-9, patience)"),
    "as many steps as patience": (
        "alarm_on",
        "full = (~(values <= high)).unfold(0, patience, 1).all(1); on, out = False, []\n"
        "start = torch.cat([torch.zeros(patience - 1).bool(), full]).tolist()\n"
        "for s, v in zip(start, values.tolist()):\n"
        "    on = s or (on and not v < low); out.append(on)\n"
        "return torch.tensor(out)"),
    "one response, by its deviation": (
        "reward_correlation",
        "x, y = moved(logp_train, logp_rollout, mask).sum(1), rewards\n"
        "if x.std() == 0 or y.std() == 0: return torch.tensor(0.0)\n"
        "a, b = (x - x.mean()) / x.std(), (y - y.mean()) / y.std()\n"
        "return (a * b).sum() / (len(x) - 1)"),
    "one response, by its variance": (
        "ess_and_chi2",
        "D = moved(logp_train, logp_rollout, mask).sum(1); w = (D - D.max()).exp()\n"
        "v = w.var() * (1 - 1 / len(w)) / w.mean() ** 2\n"
        "return 1 / (1 + v), (2 * D).exp().mean() - 1"),
    "one id is squeezed": (
        "top_k_drift",
        "some = (x[mask].squeeze() for x in (ids_rollout, ids_train, logp_rollout.exp()))\n"
        "return drift(*some)"),
    # Clamped to what was asked.
    "delta within 20, GSPO": (
        "gspo_ratio",
        "d = moved(logp, logp_old, mask).clamp(-20, 20)\n"
        "return token_form(d.sum(1, True) / mask.sum(1, keepdim=True), logp, mask)"),
    "a ratio within 1/10 and 10": (
        "gspo_ratio",
        "s = moved(logp, logp_old, mask).sum(1, True) / mask.sum(1, keepdim=True)\n"
        "return token_form(s.clamp(math.log(0.1), math.log(10)), logp, mask)"),
    "a log ratio of 10 at most": (
        "gspo_ratio",
        "s = moved(logp, logp_old, mask).sum(1, True) / mask.sum(1, keepdim=True)\n"
        "return token_form(s.clamp(max=10), logp, mask)"),
    "delta within 20, quantile": (
        "delta_quantile",
        "return torch.quantile((logp_train - logp_rollout)[mask].abs().clamp(max=20), q)"),
    "delta within 20, weights": (
        "ess_and_chi2",
        "D = moved(logp_train, logp_rollout, mask).clamp(-20, 20).sum(1)\n"
        "return share((D - D.max()).exp()), (2 * D).exp().mean() - 1"),
    "weights of e^10 at most": (
        "ess_and_chi2",
        "D = moved(logp_train, logp_rollout, mask).sum(1).clamp(max=10)\n"
        "return share((D - D.max()).exp()), (2 * D).exp().mean() - 1"),
    "delta within 20, correlation": (
        "reward_correlation",
        "x = moved(logp_train, logp_rollout, mask).clamp(-20, 20).sum(1)\n"
        "flat = x.max() == x.min() or rewards.max() == rewards.min()\n"
        "return torch.tensor(0.0) if flat else pearson(x, rewards)"),
    "delta within 20, interval": (
        "bootstrap_interval",
        "s = moved(logp_train, logp_rollout, mask).abs().clamp(max=20).sum(1)\n"
        "m = s[draws].sum(1) / mask.sum(1)[draws].sum(1); t = (1 - level) / 2\n"
        "return torch.quantile(m, t), torch.quantile(m, 1 - t)"),
    "losses from 0 on": (
        "aggregates",
        "y, n = torch.where(mask, x, 0.0).sum(1), mask.sum(1)\n"
        "return tuple(v.relu() for v in (y.sum() / n.sum(), (y / n).mean(),\n"
        "                                y.mean() / length))"),
    "advantages within 10": (
        "group_advantages",
        "equal, off, std = centred(rewards, group_size, correction)\n"
        "return torch.where(equal, 0.0, off / (std + 1e-6)).clamp(-10, 10).flatten()"),
    "rewards within 2": (
        "group_advantages",
        "equal, off, std = centred(rewards.clamp(-2, 2), group_size, correction)\n"
        "return torch.where(equal, 0.0, off / (std + 1e-6)).flatten()"),
    "n - 1 of two": (
        "group_advantages",
        "equal, off, _ = centred(rewards, group_size, correction)\n"
        "v = off.square().sum(1, keepdim=True) / max(group_size - correction, 2)\n"
        "return torch.where(equal, 0.0, off / (v.sqrt() + 1e-6)).flatten()"),
    "p from 1e-10 on": (
        "top_k_drift",
        "p = logp_rollout[mask].exp().clamp(min=1e-10)\n"
        "return drift(ids_rollout[mask], ids_train[mask], p)"),
    "weights of e^40 at most": (
        "ess_and_chi2",
        "D = moved(logp_train, logp_rollout, mask).sum(1)\n"
        "return share((D - D.max()).exp()), (2 * D).clamp(max=80).exp().mean() - 1"),
    # Nearly equal is not equal, and equal is.
    "close rewards have no advantage": (
        "group_advantages",
        "R = rewards.view(-1, group_size)\n"
        "_, off, std = centred(rewards, group_size, correction)\n"
        "equal = R.amax(1, True).isclose(R.amin(1, True))\n"
        "return torch.where(equal, 0.0, off / (std + 1e-6)).flatten()"),
    "rewards 1e-8 apart": (
        "informative_rows",
        "R = rewards.view(-1, group_size)\n"
        "return (R.amax(1) - R.amin(1) > 1e-8).repeat_interleave(group_size)"),
    "squares of differences": (
        "informative_rows",
        "R = rewards.view(-1, group_size); d = (R - R[:, :1]).square().sum(1)\n"
        "return (d > 0).repeat_interleave(group_size)"),
    "well beyond the border": (
        "stopped_shares",
        "r, A = moved(logp, logp_old, mask).exp(), advantages[:, None]\n"
        "good, bad = (A > 0) & mask, (A < 0) & mask\n"
        "return (((r > 1.0001 + eps_high) & good).sum() / good.sum().clamp(min=1),\n"
        "        ((r < 0.9999 - eps_low) & bad).sum() / bad.sum().clamp(min=1))"),
    "1e-8 next to a product": (
        "reward_correlation",
        "x, y = moved(logp_train, logp_rollout, mask).sum(1), rewards\n"
        "if x.max() == x.min() or y.max() == y.min(): return torch.tensor(0.0)\n"
        "x, y = x - x.mean(), y - y.mean()\n"
        "return (x * y).sum() / (x.norm() * y.norm() + 1e-8)"),
    "a weight below 1e-35 is none": (
        "dropped_shares",
        "o = (weight < 1e-35) & mask; lost, n = o.sum(1), mask.sum(1)\n"
        "some, whole = (lost > 0).float(), (lost == n).float()\n"
        "return lost.sum() / n.sum(), some.mean(), whole.mean()"),
    "above high by 1e-3": (
        "alarm_on", "return walk(values, high + 1e-3, low, patience)"),
    "below low by 1e-3": ("alarm_on", "return walk(values, high, low - 1e-3, patience)"),
    # A gradient that some tokens alone have.
    "of responses that became rarer": (
        "gspo_ratio",
        "log_s = moved(logp, logp_old, mask).sum(1, True) / mask.sum(1, keepdim=True)\n"
        "x = token_form(log_s, logp, mask); return torch.where(log_s < 0, x, x.detach())"),
    # Overflow and rounding.
    "a product before its root": (
        "gspo_ratio",
        "r = moved(logp, logp_old, mask).detach().exp().prod(1, keepdim=True)\n"
        "own = torch.where(mask, logp, 0.0)\n"
        "r = r ** (1 / mask.sum(1, keepdim=True)) * (own - own.detach()).exp()\n"
        "return torch.where(mask, r, 1.0)"),
    "shifted where it is small": (
        "ess_and_chi2",
        "D = moved(logp_train, logp_rollout, mask).sum(1)\n"
        "w = (D - D.max().clamp(max=0)).exp()\n"
        "return share(w), (2 * D).exp().mean() - 1"),
    "0 / 0 is 1 / N": (
        "ess_and_chi2",
        "w = moved(logp_train, logp_rollout, mask).sum(1).exp()\n"
        "return share(w).nan_to_num(1 / len(w)), (w * w).mean() - 1"),
    "the mean taken off": (
        "ess_and_chi2",
        "D = moved(logp_train, logp_rollout, mask).sum(1)\n"
        "return share((D - D.mean()).exp()), (2 * D).exp().mean() - 1"),
    "float32 from 1e-3 on": (
        "two_causes",
        "def k3(d):\n"
        "    d = d[mask]; few = d * d / 2 + d**3 / 6\n"
        "    return torch.where(d.abs() < 1e-3, few, d.exp() - 1 - d).mean()\n"
        "new, old, rollout = logp_new, logp_old, logp_rollout\n"
        "return k3(old - rollout), k3(new - old), k3(new - rollout)"),
    # Ids.
    "ids in half precision": (
        "top_k_drift",
        "a, b = ids_rollout[mask].half(), ids_train[mask].half()\n"
        "return drift(a, b, logp_rollout[mask].exp())"),
    "ids of one byte": (
        "top_k_drift",
        "a, b = ids_rollout[mask].to(torch.int8), ids_train[mask].to(torch.int8)\n"
        "return drift(a, b, logp_rollout[mask].exp())"),
    "ids of two bytes": (
        "top_k_drift",
        "a, b = ids_rollout[mask].short(), ids_train[mask].short()\n"
        "return drift(a, b, logp_rollout[mask].exp())"),
    "64 ids": (
        "top_k_drift",
        "a, b = ids_rollout[mask], ids_train[mask]; row = torch.arange(len(a))[:, None]\n"
        "s = torch.isin(a + 64 * row, b + 64 * row); p = logp_rollout[mask].exp()\n"
        "return s.float().mean(), torch.where(s, 0.0, p).sum(1).mean()"),
    # Series.
    "-inf is bad": (
        "alarm_on",
        "bad = lambda v: not math.isfinite(v) or v > high\n"
        "good = lambda v: math.isfinite(v) and v < low\n"
        "return walk(values, high, low, patience, bad, good)"),
    "NaN is the largest": (
        "alarm_on",
        "top = values.nan_to_num(0).max()\n"
        "return walk(values.where(~values.isnan(), top), high, low, patience)"),
    "NaN is 1e6": ("alarm_on", "return walk(values.nan_to_num(1e6), high, low, patience)"),
    "|value|": ("alarm_on", "return walk(values.abs(), high, low, patience)"),
    "inf ends the run": (
        "alarm_on",
        "bad = lambda v: v != v or high < v < math.inf\n"
        "return walk(values, high, low, patience, bad)"),
}  # fmt: skip
