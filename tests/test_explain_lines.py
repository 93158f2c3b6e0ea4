"""What `explain` prints is all of what it says, at any width and in both languages."""

from __future__ import annotations

import io
import re
from itertools import pairwise

import pytest
from rich.cells import cell_len
from rich.console import Console

from test_explain_traps import TRAPS
from tinyrl.explain import explain
from tinyrl.explain.command import rows, show

WHOLE = [
    (framework, flags)
    for framework, flags in dict.fromkeys(
        [(framework, flags) for framework, flags, *_ in TRAPS]
        + [
            ("verl", "rollout_rs=seq_mean_k3 rollout_rs_threshold=0.01 trainer.n_gpus=8"),
            ("trl", "off_policy_mask_threshold=0.5 importance_sampling_level=sequence"),
            ("trl", "loss_type=vespo vllm_importance_sampling_mode=token_truncate"),
            ("slime", "--use-opsm --use-rollout-logprobs --actor-num-nodes 2"),
        ]
    )
]


def bare(text: str) -> str:
    return re.sub(r"\s", "", text)


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("width", [60, 80, 120])
def test_no_width_loses_a_letter(language, width, monkeypatch):
    for framework, flags in WHOLE:
        out = io.StringIO()
        monkeypatch.setattr(
            "rich.console.Console",
            lambda **options: Console(file=out, width=width, **options),  # noqa: B023
        )
        reading = explain(framework, flags.split())
        show(reading, framework, flags.split(), language)
        printed = out.getvalue()
        assert all(cell_len(line) <= width for line in printed.splitlines())
        said = [text for pair in rows(reading, framework) for text in pair]
        for text in [*said, *reading.traps]:
            assert bare(text.to(language)) in bare(printed), (framework, flags)
        assert "…" not in printed


def test_chinese_fills_its_lines(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    show(explain("verl", ["rollout_is=sequence"]), "verl", [], "zh")
    printed = capsys.readouterr().out.splitlines()
    after = [(x, y) for x, y in pairwise(printed) if y[:4] == "    "]
    assert len(after) >= 6
    for line, more in after:
        word = re.match(r"\s+([\x21-\x7e]*)", more)
        assert word is not None
        assert cell_len(line) + len(word[1]) >= 76, line
