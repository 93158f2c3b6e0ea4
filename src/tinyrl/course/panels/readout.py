"""What stands beside the picture of a mismatch, as HTML: its numbers, and their reading."""

from __future__ import annotations

import html
from dataclasses import asdict, replace

from tinyrl.course.labels import LABELS, METRICS, linked, reading, value
from tinyrl.course.panels.controls import SIDES, Setting
from tinyrl.course.words import Words
from tinyrl.metrics import Mismatch
from tinyrl.sampling import Sampler

SEEN = Words("in real systems", "真实系统中")
SHOWS, CURE = Words("shows", "表现"), Words("remedy", "对策")
ORDER = Words(
    "The stacks are the same, and still decoding one token adds in another order than "
    "scoring all at once. Fixed shapes and naive attention on both sides make it exact.",
    "两侧设置相同，但逐 token 解码与整段打分的求和次序仍不同。"
    "两侧都选 fixed 形状和 naive 注意力即可完全一致。",
)
UNSEEN = Words(
    "A small delta does not mean here that the data come from this policy: a tail that "
    "only one side cuts is never drawn, so no delta shows it, and a raw logprob leaves out "
    "all that shaped the draw.",
    "这里 delta 小并不说明数据出自这个策略：只有一侧截掉的尾部从未被抽到，任何 delta 都看不"
    "见；raw logprob 也不含影响采样的设置。",
)
SMALL = 1e-3
"""Up to this K3 a reading calls a mismatch harmless, small or usual."""


def number_table(mismatch: Mismatch) -> str:
    """The numbers as HTML; `data-value` holds each with all its digits."""
    cells = []
    for name, x in asdict(mismatch).items():
        title, words = METRICS[name]
        shown = "\u2013" if x is None else f"{x:,}" if isinstance(x, int) else f"{x:.3g}"
        cells.append(
            f'<div class="tinyrl-number" data-metric="{name}" data-value="{x!r}" '
            f'title="{html.escape(str(words), quote=True)}">'
            f"<span>{html.escape(str(title))}</span><b>{shown}</b></div>"
        )
    return f'<div class="tinyrl-numbers-grid">{"".join(cells)}</div>'


def verdict(setting: Setting, mismatch: Mismatch) -> str:
    """What the size of a mismatch means, where it means anything."""
    if not draws_unseen(setting.rollout.sampler, setting.train.sampler):
        return str(reading(mismatch))
    return str(UNSEEN if mismatch.k3 <= SMALL else f"{reading(mismatch)} {UNSEEN}")


def draws_unseen(rollout: Sampler, train: Sampler) -> bool:
    """Whether tokens are drawn from what training does not score, and delta may hide it.

    What only one side cuts is never drawn, so no delta shows it; and a raw logprob leaves
    out all that shaped the draw.
    """
    cuts = ("top_k", "top_p", "min_p")
    drawn = replace(rollout, logprobs="processed", replay="own")
    scored = train if train.logprobs == "processed" else Sampler()
    if scored.replay == "rollout":
        theirs = {name: getattr(rollout, name) for name in cuts}
        scored = replace(scored, replay="own", **theirs)
    cut_alike = all(getattr(drawn, name) == getattr(scored, name) for name in cuts)
    return drawn != scored and not (cut_alike and rollout.logprobs == "processed")


def explain(setting: Setting, mismatch: Mismatch) -> str:
    """For each thing that differs, what both sides have, how it shows, and its cure."""
    parts = []
    for path, sides in setting.differences().items():
        label = LABELS[path]
        both = ", ".join(
            f'<span class="tinyrl-{side}">{name} {value(x, path)}</span>'
            for (side, name), x in zip(SIDES.items(), sides, strict=True)
        )
        rows = ((SEEN, label.real), (SHOWS, label.looks), (CURE, label.remedy))
        body = "".join(f"<dt>{k}</dt><dd>{linked(str(v))}</dd>" for k, v in rows)
        parts.append(f"<p>{label.name}: {both}</p><dl>{body}</dl>")
    if not setting.differences() and mismatch.max_abs > 0:
        parts.append(f"<p>{ORDER}</p>")
    return "".join(parts)
