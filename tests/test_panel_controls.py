"""What the panel's controls can reach, and what they call it."""

import pytest

from test_panels import MODELS, TASK, all_widgets
from tinyrl.course.panels.controls import Setting
from tinyrl.course.panels.mismatch_panel import panel
from tinyrl.stack import Stack, replace_at


@pytest.fixture
def p():
    return panel(MODELS, TASK, sequences=4)


def test_align_brings_the_newest_weights_and_the_text_calls_them_that(p):
    p.buttons["stale weights"].click()
    assert "Rollout 4</span>" in p.reading.value
    assert "Training newest</span>" in p.reading.value
    p.buttons["align both sides"].click()
    assert p.controls.setting() == Setting(Stack(), Stack())


def test_align_reaches_what_only_the_other_side_began_with():
    stack = replace_at(replace_at(Stack(), "sampler.top_k", 20), "kernels.norm_eps", 3e-6)
    stack = replace_at(stack, "sampler.temperature", 2.5)
    p = panel(MODELS[-1], TASK, sequences=4, rollout=stack)
    p.buttons["align both sides"].click()
    assert p.controls.setting() == Setting(stack, stack)


def test_a_zero_that_is_no_amount_is_told_in_words(p):
    inputs = p.controls.inputs["rollout"]
    told = {path: inputs[path].options[0] for path in ("kernels.norm_eps", "sampler.top_k")}
    assert told == {"kernels.norm_eps": ("default", 0.0), "sampler.top_k": ("all", 0)}
    inputs["kernels.norm_eps"].value = 1e-5
    assert "Rollout 1e-05</span>, <span" in p.reading.value
    assert "Training default</span>" in p.reading.value


def test_one_model_has_no_age():
    p = panel(MODELS[-1], TASK, sequences=4)
    assert "stale weights" not in p.buttons
    assert "weights" not in p.controls._rows
    assert p.controls.stale not in list(all_widgets(p.widget))
