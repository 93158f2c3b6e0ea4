"""The atlas: no field is missing, and each row shows what its field does."""

from __future__ import annotations

import base64
import io
import math
import re
from dataclasses import replace

import pytest
import torch
from PIL import Image

from tinyrl.checkpoints import load
from tinyrl.course.labels import LABELS, linked
from tinyrl.course.lessons.atlas import AGE, ENTRIES, Entry, Sighting, survey
from tinyrl.course.lessons.atlas_inputs import converse, converse_in_turns, inputs
from tinyrl.course.lessons.conversations import encoded
from tinyrl.course.panels.atlas_table import AtlasTable, numbers, said
from tinyrl.logprobs import token_logp
from tinyrl.metrics import compare
from tinyrl.scoring import response_logits, score
from tinyrl.stack import PRESETS, Stack, leaves, replace_at
from tinyrl.tasks import CumSum
from tinyrl.tokens import Chat, Tokenizer
from tinyrl.trainer import generate


@pytest.fixture(scope="module")
def table() -> AtlasTable:
    """Two seeds; the older weights are the newest ones with another head."""
    old, new = load("sft"), load("sft")
    with torch.no_grad():
        old.lm_head.weight.mul_(0.9)
    versions = [*[old] * AGE, new]
    return AtlasTable(survey(versions, load("moe"), CumSum(), [0, 1], prompts=64))


def row(table: AtlasTable, path: str) -> list[Sighting]:
    return next(rows for rows in table if rows[0].entry.path == path)


def test_every_field_has_one_row_and_words() -> None:
    paths = [entry.path for entry in ENTRIES]
    assert sorted(paths) == sorted(LABELS), "which test_labels.py holds to the fields"


def test_a_row_changes_its_field_and_nothing_else() -> None:
    for entry in (e for e in ENTRIES[1:] if e.by not in ("view", "ask", "turns")):
        base = Stack()
        for path, to in entry.given.items():
            base = replace_at(base, path, to)
        before = {leaf.path: leaf.value for leaf in leaves(base)}
        assert before[entry.path] != replace_at_value(base, entry), entry.path
        assert entry.path not in entry.given


def test_a_row_of_tokens_changes_its_field_and_nothing_else() -> None:
    for entry in (e for e in ENTRIES if e.by in ("ask", "turns")):
        base = inputs(entry.given)
        changed = inputs({**entry.given, entry.path: entry.to})
        part, field = entry.path.split(".")
        assert getattr(getattr(base, part), field) != entry.to
        put_back = replace(
            getattr(changed, part), **{field: getattr(getattr(base, part), field)}
        )
        assert replace(changed, **{part: put_back}) == base


def replace_at_value(base: Stack, entry: Entry) -> object:
    changed = replace_at(base, entry.path, entry.to)
    return next(leaf.value for leaf in leaves(changed) if leaf.path == entry.path)


def test_every_row_but_two_moves_a_logprob(table: AtlasTable) -> None:
    still = [rows[0].entry.path for rows in table if numbers(rows)["max"] == 0]
    assert still == ["numerics.overflow", "view.aggregation"]
    loud = ["chat.system", "chat.generation_prompt", "chat.history", "collator.visible"]
    assert all(numbers(row(table, path))["k3"] > 0.1 for path in loud)
    silent = ["collator.layout", "collator.positions"]
    assert all(numbers(row(table, path))["max"] < 1e-4 for path in silent)


def test_the_anchor_row_is_the_mismatch_of_the_rollout(table: AtlasTable) -> None:
    task, generator = CumSum(), torch.Generator().manual_seed(0)
    prompts, int4 = task.prompts(64, generator), PRESETS["int4_weights"]
    batch = generate(load("sft"), task, prompts, int4, generator)
    with torch.no_grad():
        logp = score(load("sft"), batch.prompt, batch.response, Stack()).logp
    expected = compare(batch.logp_rollout, logp, batch.mask)
    assert row(table, "view.anchor")[0].mismatch.k3 == expected.k3


def test_a_known_row(table: AtlasTable) -> None:
    """A temperature on one side: delta from the base logprobs' own logits, in float64."""
    seen = row(table, "sampler.temperature")[0]
    task, model = CumSum(), load("sft").double()
    generator = torch.Generator().manual_seed(0)
    prompts = task.prompts(64, generator)
    batch = generate(load("sft"), task, prompts, Stack(), generator)
    with torch.no_grad():
        logits = response_logits(model, batch.prompt, batch.response, Stack())
    cool, warm = (token_logp(logits / T, batch.response) for T in (0.7, 1.0))
    expected = torch.where(batch.mask, cool - warm, 0.0)
    torch.testing.assert_close(seen.delta.double(), expected, atol=1e-4, rtol=0)


def test_rows_of_tokens_are_those_of_each_conversation_read_alone(
    table: AtlasTable,
) -> None:
    """Base and doubled <bos>: one by one through `score`, in a tensor of one row each."""
    model, seen = load("sft"), row(table, "chat.bos")[0]
    x = converse(model, CumSum(), 64, torch.Generator().manual_seed(0))
    for b, (talk, response) in enumerate(zip(x.said, x.responses, strict=True)):
        logp = [
            score(model, torch.tensor([ids]), response[None], Stack()).logp[0]
            for chat in (Chat(bos="twice"), Chat())
            for ids in [Tokenizer(chat).chat(talk)]
        ]
        found = seen.delta[b, : len(response)].float()
        torch.testing.assert_close(found, logp[0] - logp[1], atol=2e-5, rtol=0)
    assert seen.mask.sum() == sum(map(len, x.responses))


def test_a_conversation_of_the_task_has_the_task_s_own_ids() -> None:
    model, generator = load("sft"), torch.Generator().manual_seed(0)
    x = converse(model, CumSum(), 8, generator)
    ids = CumSum().prompts(8, torch.Generator().manual_seed(0))
    assert torch.equal(torch.stack(encoded(x.said)), ids)
    turns = converse_in_turns(model, 8, generator)
    assert [len(talk) for talk in turns.said] == [1] * 4 + [3] * 4


def test_a_neighbour_moves_no_first_conversation_of_a_row(table: AtlasTable) -> None:
    seen = row(table, "collator.visible")[0]
    moved = seen.delta.abs().amax(1) > 1e-3
    alone = 32  # of 64: those of two turns have no room for a neighbour
    assert not moved[alone:].any()
    assert not moved[:alone:2].any()
    assert moved[1:alone:2].all()


def test_growth_of_known_walks() -> None:
    generator = torch.Generator().manual_seed(0)
    noise = torch.randn(4000, 16, generator=generator)
    mask = torch.ones_like(noise, dtype=torch.bool)

    def growth(delta: torch.Tensor) -> float | None:
        told = compare(torch.full_like(delta, -50.0), delta - 50.0, mask)
        return Sighting(ENTRIES[0], delta, mask, told).growth

    assert growth(noise) == pytest.approx(0.5, abs=0.05)
    assert growth(noise[:, :1].expand(-1, 16)) == pytest.approx(1, abs=1e-6)
    assert growth(torch.zeros(4000, 16)) is None


def test_the_page_shows_every_row_with_its_picture(table: AtlasTable) -> None:
    page = table._repr_html_()
    assert page.count("<tbody>") == len(ENTRIES)
    rows = re.findall(r"<tr>.*?</tr>", page)
    assert len(rows) == 1 + 2 * len(ENTRIES)  # the head, then numbers and words of each
    columns = rows[0].count("<th ")
    for entry, told, words in zip(ENTRIES, rows[1::2], rows[2::2], strict=True):
        assert told.count("<td ") == columns
        assert f"<code>{entry.path}</code>" in told
        assert f"colspan={columns}>" in words
        assert linked(str(LABELS[entry.path].remedy)) in words
    pictures = re.findall(r"data:image/png;base64,([^\"]+)", page)
    assert len(pictures) == len(ENTRIES)
    assert len(set(pictures)) > len(ENTRIES) / 2
    first = Image.open(io.BytesIO(base64.b64decode(pictures[0])))
    assert first.size[0] > 200
    assert len(str(table).splitlines()) == len(ENTRIES) + 1
    split = next(e for e in ENTRIES if e.path == "numerics.partial")
    assert said(split) == "partial sums: BF16 (tensor parallel 2 on both sides)"
    packed = next(e for e in ENTRIES if e.path == "collator.visible")
    assert said(packed) == (
        "visible: all (layout packed on both sides; short questions, half in a second turn)"
    )


def test_numbers_are_means_over_seeds(table: AtlasTable) -> None:
    rows = row(table, "numerics.kv")
    told, each = numbers(rows), [r.mismatch.k3 for r in rows]
    assert told["k3"] == pytest.approx(sum(each) / 2)
    assert (told["k3_lowest"], told["k3_highest"]) == (min(each), max(each))
    growth = told["growth"]
    assert growth is not None
    assert math.isfinite(growth)


def test_too_few_versions_are_refused() -> None:
    with pytest.raises(ValueError, match="versions must be more than 8, not 1"):
        next(survey([load("sft")], load("moe"), CumSum(), [0]))
