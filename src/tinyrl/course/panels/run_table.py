"""What runs came to, in numbers: for each arm the pass rates at its end, over seeds."""

from __future__ import annotations

import html
from collections.abc import Iterator, Mapping, Sequence

from tinyrl.course.panels.run_plots import COLOURS
from tinyrl.course.panels.run_words import in_words
from tinyrl.course.words import Words
from tinyrl.runs import Run
from tinyrl.sweeps import Spread, paired, sampled, spread, trained

COLUMNS = (
    Words("arm", "组"),
    Words("seeds done", "完成的种子"),
    Words("pass rate, training stack", "通过率（训练端）"),
    Words("pass rate, rollout stack", "通过率（采样端）"),
    Words("training stack, minus the first arm", "训练端与第一组之差"),
)
ROOM = 'style="padding: 1px 8px; text-align: left"'
ABOVE = Words("{:+.3f}, above in {} of {}", "{:+.3f}，{} / {} 个种子更高")
NOTE = Words(
    "Means over seeds \u00b1 their sample deviation. Few seeds tell apart only large "
    "differences.",
    "均值 \u00b1 样本标准差（对种子）。种子少时只能分辨大的差异。",
)


def rows(arms: Mapping[str, Sequence[Run]]) -> Iterator[list[str]]:
    """The cells of each arm, as `COLUMNS` names them; dashes where no run is finished."""
    first: list[Run] = []
    for name, runs in arms.items():
        done = [run for run in runs if run.done]
        cells = [in_words(name), f"{len(done)}/{len(runs)}", *("\u2013",) * 3]
        if done:
            cells[2:4] = [_short(spread(done, of)) for of in (trained, sampled)]
            seeds = {run.settings.seed for run in first}
            if any(run.settings.seed in seeds for run in done):
                gap = paired(done, first)
                cells[4] = str(ABOVE).format(gap.mean, gap.above, len(gap.values))
        first = first or done
        yield cells


def table(arms: Mapping[str, Sequence[Run]]) -> str:
    """The numbers as HTML."""
    if not arms:
        return ""
    head = "".join(f"<th {ROOM}>{html.escape(str(name))}</th>" for name in COLUMNS)
    body = ""
    for colour, cells in zip(COLOURS, rows(arms), strict=False):
        arm, *numbers = (html.escape(cell) for cell in cells)
        first = f'<td style="border-left: 6px solid {colour}; padding: 1px 6px">{arm}</td>'
        body += f"<tr>{first}{''.join(f'<td {ROOM}>{x}</td>' for x in numbers)}</tr>"
    return f"<table><tr>{head}</tr>{body}</table><p>{NOTE}</p>"


def told(arms: Mapping[str, Sequence[Run]]) -> list[str]:
    """The same as text, a line for each arm."""
    names = [str(name) for name in COLUMNS[1:]]
    return [
        f"{arm}: " + ", ".join(f"{n} {x}" for n, x in zip(names, cells, strict=True))
        for arm, *cells in rows(arms)
    ]


def _short(seen: Spread) -> str:
    return f"{seen.mean:.3f}" + (f" \u00b1 {seen.sd:.3f}" if len(seen.values) > 1 else "")
