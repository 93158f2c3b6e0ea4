"""Few tokens, or few responses, that hold most of a mismatch.

|d| is taken in units of 1 - p, the size that equal noise on the logits gives it. In these
units no token of a rounded, quantised or stale policy exceeded 5.4 times the 99th
percentile, and no response's median 4.4 times the 90th percentile of all responses':
tests/test_diagnosis_few.py.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..metrics import kl_terms
from ..said import NOTHING_SAID, Said, joined
from .bands import band
from .finding import CHINESE
from .statistics import quantile

FAR_TOKEN, FAR_RESPONSE = 6.0, 6.0
SMALL = 0.05
"""What counts in these units: below it nothing is called far."""
MOST = 0.4
"""Share of K3 that they must hold."""


ROWS = Said(
    "Compare their ids, rows and prompts on both sides before anything else",
    "先逐条比较它们在两侧的 token id、行号和 prompt",
)
TOKENS = Said(
    "Look at these tokens: ids that differ, a special token, where a tool's text or a "
    "truncation begins, a router's other experts",
    "先看这些 token：id 是否不同、是否特殊 token、是否工具文本或截断的开头、路由是否选了"
    "别的专家",
)


@dataclass(frozen=True)
class Few:
    """Which tokens, or responses, and what K3 is without them."""

    places: tuple[tuple[int, ...], ...]
    """(row, column) of each token or (row,) of each response, the largest first."""
    tokens: int
    of: int
    """All that there are, tokens or responses."""
    share: float
    """Of the sum of K3."""
    size: float
    """The median of their |d|."""
    k3: float
    """Without them."""
    max_abs: float
    far: Tensor
    """The tokens `[B, T]`."""
    common: Said
    """What they have in common, if they do."""


def few(a: Tensor, b: Tensor, mask: Tensor) -> Few | None:
    """Responses that are far off, or else tokens that are; None where all are alike."""
    if int(mask.sum()) < 200:
        return None
    u = torch.where(mask, scaled(a, b), 0.0)
    for far, rows in ((far_responses(u, mask), True), (far_tokens(u, mask), False)):
        if far is not None and (found := _few(a, b, mask, far, rows)):
            return found
    return None


def scaled(a: Tensor, b: Tensor) -> Tensor:
    """|d| in units of 1 - p: noise on the logits has one size in them."""
    return (b - a).abs() / (1 - ((a + b) / 2).exp() + 0.05)


def far_tokens(u: Tensor, mask: Tensor) -> Tensor | None:
    """Tokens far beyond the tail of all, `[B, T]`; at most a 200th of them."""
    limit = max(FAR_TOKEN * quantile(u[mask], 0.99), SMALL)
    far = mask & (u > limit)
    return far if 0 < int(far.sum()) <= int(mask.sum()) / 200 else None


def far_responses(u: Tensor, mask: Tensor) -> Tensor | None:
    """Tokens of whole responses that are far off, `[B, T]`; at most a tenth of these."""
    length = mask.sum(1)
    long = length >= 5
    if int(long.sum()) < 8:
        return None
    middle = torch.where(mask, u, torch.nan).nanmedian(1).values
    limit = max(FAR_RESPONSE * quantile(middle[long], 0.9), SMALL)
    rows = long & (middle > limit)
    return mask & rows[:, None] if 0 < int(rows.sum()) <= int(long.sum()) / 10 else None


def _few(a: Tensor, b: Tensor, mask: Tensor, far: Tensor, rows: bool) -> Few | None:
    d = b - a
    k3 = torch.where(mask, kl_terms(d)[2], 0.0)
    share = (k3[far].sum() / k3.sum()).item()
    if not share >= MOST:
        return None
    rest = mask & ~far
    size = k3.sum(1) if rows else k3
    where = far.any(1) if rows else far
    order = size[where].argsort(descending=True)
    return Few(
        tuple(tuple(x) for x in where.nonzero()[order].tolist()),
        int(far.sum()),
        int(mask.any(1).sum()) if rows else int(mask.sum()),
        share,
        quantile(d[far].abs(), 0.5),
        k3[rest].mean().item(),
        d[rest].abs().max().item(),
        far,
        NOTHING_SAID if rows else _common(a, b, mask, far),
    )


def _common(a: Tensor, b: Tensor, mask: Tensor, far: Tensor) -> Said:
    """Of several tokens: a side that is 0 there, or one place in their responses."""
    place = torch.arange(a.shape[1]).expand_as(a)[far]
    last = (mask * torch.arange(1, a.shape[1] + 1)).amax(1)[far.nonzero()[:, 0]] - 1
    said = []
    for side, x in (("rollout", a), ("trainer", b)):
        if (x[far] == 0).all():
            said.append(
                Said(
                    f"the {side}'s logprobs are exactly 0.0 there, as of tokens for which "
                    "none were computed",
                    f"{CHINESE[side]}的 logprob 在那里恰为 0.0，像是从未计算过",
                )
            )
    if len(place) >= 3 and (place == last).all():
        said.append(
            Said("all are the last of their response", "都是所在回答的最后一个 token")
        )
    elif len(place) >= 3 and (place == place[0]).all():
        said.append(Said(f"all stand in column {place[0]}", f"都在第 {place[0]} 列"))
    return joined([Said(f"; {x.en}", f"；{x.zh}") for x in said])


def said(found: Few) -> Said:
    """In words, with the first places."""
    n, responses = len(found.places), len(found.places[0]) == 1
    s, verb, them = ("", "holds", "it") if n == 1 else ("s", "hold", "them")
    of, rest = f"{n / found.of:.2%}", band(found.k3, found.max_abs).reading
    places = Said(*(", ".join(_place(x, zh) for x in found.places[:3]) for zh in (0, 1)))
    more = ", ..." if n > 3 else ""
    what = Said(f"{n:,} token{s}", f"{n:,} 个 token")
    if responses:
        what = Said(f"{n:,} response{s}", f"{n:,} 条回答")
    where = ROWS if responses else TOKENS
    return Said(
        f"{what.en}, {of} of all, {verb} {found.share:.0%} of K3 ({places.en}{more}), with "
        f"a median |d| of {found.size:.2g}{found.common.en}. Without {them} K3 is "
        f"{found.k3:.2g}: {rest.en}. {where.en}",
        f"{what.zh}（占 {of}）占了 K3 的 {found.share:.0%}（{places.zh}{more}），|d| 的中"
        f"位数为 {found.size:.2g}{found.common.zh}。去掉之后 K3 为 {found.k3:.2g}："
        f"{rest.zh}。{where.zh}",
    )


def _place(at: tuple[int, ...], zh: int) -> str:
    names = ("第 {} 行", "第 {} 列") if zh else ("row {}", "column {}")
    return " ".join(name.format(i) for name, i in zip(names, at, strict=False))
