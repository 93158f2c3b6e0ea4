"""Wrong answers that once passed: types, borders, fillers, arguments that never varied.

As attacks.py has them.
"""

from __future__ import annotations

ATTACKS: dict[str, tuple[str, str]] = {
    # Right numbers of a type that selects nothing, or looks nothing up.
    "a mask of numbers": (
        "chunk_mask",
        "return (torch.arange(keys) <= start + torch.arange(tokens)[:, None]).float()"),
    "a mask of numbers, history": (
        "history_loss_mask", "return speaks(ids, ids == assistant, ids == end).float()"),
    "a mask of numbers, end": (
        "end_mask", "return until(torch.isin(ids, ends)).float()"),
    "a mask of numbers, packed": (
        "packed_visible",
        "return (segments[:, :, None] == segments[:, None, :]).float().tril()"),
    "a mask of numbers, in step": (
        "reward_in_step",
        "m = mask[:, :limit]; last = torch.arange(m.shape[1]) == mask.sum(1)[:, None] - 1\n"
        "return torch.where(last, reward[:, None], 0.0), m.long()"),
    "a mask of numbers, top-k": (
        "top_k_kept", "return (logits >= logits.topk(k).values[:, -1:]).float()"),
    "a mask of numbers, top-p": (
        "top_p_kept", "return nucleus(logits, lambda before: before < p).float()"),
    "a mask of numbers, min-p": (
        "min_p_kept",
        "q = logits.softmax(1); return (q >= min_p * q.amax(1, keepdim=True)).float()"),
    "positions in half precision": (
        "position_ids",
        "return torch.where(attention, attention.cumsum(1) - 1, 0).half()"),
    "targets that are no ids": (
        "shift_targets",
        "t = torch.arange(1, ids.shape[1])\n"
        "on = (t >= prompt[:, None]) & (t < length[:, None])\n"
        "return ids[:, :-1], torch.where(on, ids[:, 1:], -100).float()"),
    "inputs that are no ids": (
        "scheduled_inputs",
        "return behind(torch.where(coin < own, said, gold), start).float()"),
    "labels that are no ids": (
        "expert_targets", "return ((behind(read) + digits) % 10).float()"),
    "a place that is no index": (
        "first_difference", "at = first(a, b); return -1.0 if at is None else float(at)"),
    # Borders: the first place, the last, the tie.
    "place 0 is none": ("first_difference", "return first(a, b) or -1"),
    "places from 1 on": (
        "first_difference",
        "at = first(a[1:], b[1:]); return -1 if at is None else at + 1"),
    "an end in column 0 is none": (
        "end_mask",
        "n = torch.isin(ids, ends).long().argmax(1)\n"
        "return torch.arange(ids.shape[1]) <= torch.where(n > 0, n, 10**6)[:, None]"),
    "nothing errs at the last place": (
        "hazard",
        "here = torch.arange(wrong.shape[1]) < length[:, None]\n"
        "errs = wrong & (torch.arange(wrong.shape[1]) < wrong.shape[1] - 1)\n"
        "risk = here & until(errs); return (errs & risk).sum(0) / risk.sum(0)"),
    "a coin that equals own": (
        "scheduled_inputs", "return behind(torch.where(coin <= own, said, gold), start)"),
    "the limit is below T": (
        "reward_in_step",
        "m = torch.nn.functional.pad(mask, (0, max(0, limit - mask.shape[1])))[:, :limit]\n"
        "last = torch.arange(limit) == mask.sum(1)[:, None] - 1\n"
        "return torch.where(last, reward[:, None], 0.0), m"),
    "one token at a time": (
        "stable_logsumexp",
        "t = z.amax(-1, keepdim=True)\n"
        "return ((z - t).exp().sum(-1, keepdim=True).log() + t).squeeze()"),
    "k + 1 of E logits": (
        "router_margin",
        "t = logits.topk(k + 2).values; return t[:, k - 1] - t[:, k]"),
    "the largest is below 0": (
        "largest_scale",
        "return 2.0 ** math.floor(math.log2(largest / -grad.min().item()))"),
    "logits from 0 on": (
        "top_k_kept",
        "z = logits.clamp(min=0); return z >= z.topk(k).values[:, -1:]"),
    "logits from 0 on, replayed": (
        "replayed_gates",
        "z = logits_rollout.clamp(min=0); out = z < z.topk(k).values[:, -1:]\n"
        "return logits_train.masked_fill(out, -math.inf).softmax(1)"),
    "a mean from 0 on": (
        "masked_mean", "return (torch.where(mask, x, 0.0).sum() / mask.sum()).relu()"),
    "different values": (
        "top_k_kept",
        "return torch.stack([r >= r.unique()[-min(k, len(r.unique()))] for r in logits])"),
    "nearly ties": ("top_k_kept", "return logits >= logits.topk(k).values[:, -1:] - 1e-4"),
    "close to a tie": (
        "top_k_kept",
        "t = logits.topk(k).values[:, -1:]; return (logits >= t) | logits.isclose(t)"),
    "sums of two digits": (
        "top_p_kept", "return nucleus(logits, lambda b: b.round(decimals=2) < p)"),
    "p from 1/2 on": ("top_p_kept", "return nucleus(logits, lambda b: b < max(p, 0.5))"),
    "p up to 0.8": ("top_p_kept", "return nucleus(logits, lambda b: b < min(p, 0.8))"),
    "min-p up to 1/2": (
        "min_p_kept",
        "q = logits.softmax(1); return q >= min(min_p, 0.5) * q.amax(1, keepdim=True)"),
    # Fillers: an id of 0 is no padding, and nothing says which id padding has.
    "filled with 0": (
        "first_difference", "at = first(a, b, missing=0); return -1 if at is None else at"),
    "0 is padding, end": (
        "end_mask", "return until(torch.isin(ids, ends)) & (ids != 0)"),
    "0 is padding, shift": (
        "shift_targets",
        "t = torch.arange(1, ids.shape[1]); y = ids[:, 1:]\n"
        "on = (t >= prompt[:, None]) & (t < length[:, None]) & (y != 0)\n"
        "return ids[:, :-1], torch.where(on, y, -100)"),
    "0 is padding, by place": (
        "wrong_by_place",
        "on = (torch.arange(said.shape[1]) < length[:, None]) & (right != 0)\n"
        "return ((said != right) & on).sum(0) / on.sum(0)"),
    "0 is padding, off the road": (
        "local_error_split",
        "on = (torch.arange(said.shape[1]) < length[:, None]) & (expert != 0)\n"
        "w = (said != expert).float(); return w[on & ~off].mean(), w[on & off].mean()"),
    "until a marker": (
        "history_loss_mask",
        "low = (ids <= assistant) & (ids != end)  # markers, <pad> and <bos>\n"
        "return speaks(ids, ids == assistant, low & (ids != assistant)) & ~low"),
    # Arguments that never varied.
    "two ends": ("end_mask", "return until((ids == ends[0]) | (ids == ends[1]))"),
    "ends and all below": ("end_mask", "return until(ids <= ends.max())"),
    "ends and all between": (
        "end_mask", "return until((ids >= ends.min()) & (ids <= ends.max()))"),
    "start is 5": (
        "scheduled_inputs", "return behind(torch.where(coin < own, said, gold), 5)"),
    "the assistant is 5, an end 2": (
        "history_loss_mask", "return speaks(ids, ids == 5, ids == 2)"),
    "seven levels at most": (
        "cached_attention",
        "n = min(levels, 7); sk, sv = (x.abs().amax(1, keepdim=True) / n for x in (k, v))\n"
        "w = (rows(k, sk) @ q / len(q) ** 0.5).softmax(0); return w @ rows(v, sv)"),
}  # fmt: skip
