"""Every field and every number has words, in both languages; every type has a control."""

import re
from dataclasses import fields, replace

import pytest
import torch

from tinyrl.checkpoints import load
from tinyrl.collate import Collator
from tinyrl.course.citations import CITATION
from tinyrl.course.labels import K3_READINGS, LABELS, METRICS, linked, reading
from tinyrl.course.panels.controls import Setting, make_input
from tinyrl.course.panels.mismatch_panel import panel
from tinyrl.course.panels.readout import UNSEEN, verdict
from tinyrl.course.words import set_language
from tinyrl.metrics import Mismatch, compare
from tinyrl.model import GPT, GPTConfig
from tinyrl.objectives import LossView
from tinyrl.sampling import Sampler
from tinyrl.scoring import score
from tinyrl.stack import PRESETS, Field, Stack, leaves
from tinyrl.tasks import CumSum
from tinyrl.tokens import Chat
from tinyrl.trainer import generate


def test_every_field_and_every_number_has_words_in_both_languages():
    parts = {"view": LossView, "chat": Chat, "collator": Collator}
    others = {f"{name}.{f.name}" for name, part in parts.items() for f in fields(part)}
    assert set(LABELS) == {leaf.path for leaf in leaves(Stack())} | {"weights"} | others
    assert set(METRICS) == {f.name for f in fields(Mismatch)}
    words = [w for label in LABELS.values() for w in list(vars(label).values())[:5]]
    words += [w for _, w in METRICS.values()] + [w for _, w in K3_READINGS]
    for w in words:
        assert w.en.strip()
        assert w.zh.strip()
        assert not re.search("[\u4e00-\u9fff]", w.en), w
    chinese = [w for w in words if re.search("[\u4e00-\u9fff]", w.zh)]
    assert len(chinese) > 0.9 * len(words)


def test_every_field_cites_a_public_issue_alike_in_both_languages_and_links_it():
    for path, label in LABELS.items():
        english = CITATION.findall(label.real.en + label.remedy.en)
        assert english, path
        assert english == CITATION.findall(label.real.zh + label.remedy.zh), path
        assert linked(label.real.en + label.remedy.en).count("</a>") == len(english)
    assert linked("a < b (trl#4159)") == (
        'a &lt; b (<a href="https://github.com/huggingface/trl/issues/4159" '
        'target="_blank" rel="noopener">trl#4159</a>)'
    )


def test_a_number_has_a_slider_that_holds_its_default():
    for leaf in leaves(Stack()):
        if leaf.choices is None:
            low, high, step = LABELS[leaf.path].bounds
            assert low <= leaf.value <= high
            assert (leaf.value - low) / step == pytest.approx(
                round((leaf.value - low) / step)
            )


def test_a_flag_gets_a_box_and_an_unknown_type_is_refused():
    box = make_input(Field("numerics.flag", bool, False, None), True, [True])
    assert type(box).__name__ == "Checkbox"
    assert box.value is True
    with pytest.raises(TypeError, match=r"no control for numerics\.odd: bytes"):
        make_input(Field("numerics.odd", bytes, b"", None), b"", [])


def test_readings_grow_with_k3():
    def said(k3):
        zero = dict.fromkeys((f.name for f in fields(Mismatch)), 0)
        return str(reading(Mismatch(**(zero | {"k3": k3, "max_abs": 1e-7}))))

    sizes = [-1e-18, 1e-12, 1e-6, 1e-4, 3e-3, 0.3, 40.0, 1e30]
    texts = [said(k3) for k3 in sizes]
    assert len(set(texts)) == len(K3_READINGS)
    assert "harmless, if both sides score what was sampled from" in texts[0]
    assert "wrong inputs" in texts[-1]


def alone(**sampler):
    """A stack that differs from the usual one in these fields of its sampler."""
    return replace(Stack(), sampler=Sampler(**sampler))


def told(rollout, train):
    """What the panel says of two stacks, and the mismatch that it says it of."""
    model, task, g = load("sft"), CumSum(), torch.Generator().manual_seed(0)
    batch = generate(model, task, task.prompts(64, g), rollout, g)
    with torch.no_grad():
        scored = score(model, batch.prompt, batch.response, train, kept=batch.kept)
    mismatch = compare(batch.logp_rollout, scored.logp, batch.mask)
    return verdict(Setting(rollout, train), mismatch), mismatch


RAW, COOL, CUT = {"logprobs": "raw"}, {"temperature": 0.7}, {"top_p": 0.5}


@pytest.mark.parametrize(
    ("rollout", "train", "small"),
    [
        (CUT | RAW, {}, True),
        (COOL | RAW, {}, True),
        ({"repetition_penalty": 1.5} | RAW, {}, True),
        (COOL | RAW, COOL | RAW, True),  # nothing differs, and all is hidden
        ({"top_k": 15}, {}, True),
        (CUT, {}, False),
    ],
    ids=str,
)
def test_a_small_delta_of_another_policy_is_not_called_harmless(rollout, train, small):
    text, mismatch = told(alone(**rollout), alone(**train))
    assert (mismatch.k3 <= 1e-3) == small
    assert str(UNSEEN) in text
    assert (str(reading(mismatch)) in text) != small
    assert not re.search("harmless|Small:|Usual|Exactly", text)


def test_nor_is_one_that_is_exactly_zero():
    exact = PRESETS["true_on_policy"]
    text, mismatch = told(replace(exact, sampler=Sampler(0.7, logprobs="raw")), exact)
    assert mismatch.max_abs == 0
    assert text.startswith("A small delta does not mean")


@pytest.mark.parametrize(
    ("rollout", "train"),
    [
        ({}, {}),
        (RAW, {}),  # nothing shapes the draw: raw and processed are one
        ({}, RAW | COOL),
        (COOL, {}),  # this delta shows it
        (CUT, CUT),
        (CUT, {"replay": "rollout"}),
        (COOL | CUT, COOL | {"replay": "rollout"}),
    ],
    ids=str,
)
def test_where_a_delta_shows_the_draw_its_size_is_what_is_told(rollout, train):
    text, mismatch = told(alone(**rollout), alone(**train))
    assert str(UNSEEN) not in text
    assert text == str(reading(mismatch))


def test_chinese():
    model = GPT(GPTConfig(), torch.Generator().manual_seed(0))
    set_language("zh")
    try:
        p = panel(model, CumSum(n=5), sequences=4, rollout=PRESETS["fp8_kv"])
        assert str(LABELS["numerics.kv"].remedy) in p.reading.value
        assert p.buttons["reset"].description == "重置"
        assert (
            p.controls.inputs["train"]["numerics.kv"].description == "训练端: KV cache 格式"
        )
    finally:
        set_language("en")
