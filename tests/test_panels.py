"""The panel says what the library says, whatever is set, and shows what goes wrong.

Here settings against independent calls of the library; a real kernel and a browser have
files of their own.
"""

import html
import re
import time
from dataclasses import asdict

import numpy as np
import pytest
import torch

from tinyrl.course import live
from tinyrl.course.labels import LABELS
from tinyrl.course.panels import mismatch_panel as panels
from tinyrl.course.panels.controls import SIDES, Setting
from tinyrl.course.panels.mismatch_panel import MismatchPanel, panel
from tinyrl.course.panels.readout import ORDER
from tinyrl.metrics import Mismatch, compare
from tinyrl.model import GPT, GPTConfig
from tinyrl.scoring import score
from tinyrl.stack import PRESETS, Stack, leaves, replace_at
from tinyrl.tasks import CumSum
from tinyrl.trainer import generate

TASK, N, SEED = CumSum(n=5), 24, 3
CHOICES = [
    (side, leaf.path, x)
    for side in SIDES
    for leaf in leaves(Stack())
    for x in leaf.choices or LABELS[leaf.path].bounds[:2]
    if x != leaf.value and leaf.path != "router.replay"  # of a mixture of experts only
]


def versions(n: int) -> list[GPT]:
    """A model and later ones, each a little further; weights large enough to be sure."""
    g = torch.Generator().manual_seed(0)
    models = [GPT(GPTConfig(), g)]
    with torch.no_grad():
        for p in models[0].parameters():
            p.mul_(1.5)
        while len(models) < n:
            later = GPT(GPTConfig(), g)
            for old, new in zip(models[-1].parameters(), later.parameters(), strict=True):
                new.copy_(old + 0.01 * torch.randn(old.shape, generator=g))
            models.append(later)
    return models


MODELS = versions(6)


def truth(setting: Setting, models: list[GPT] = MODELS) -> Mismatch:
    """The numbers by the library alone."""
    prompts = TASK.prompts(N, torch.Generator().manual_seed(SEED))
    g = torch.Generator().manual_seed(SEED)
    batch = generate(models[-1 - setting.stale], TASK, prompts, setting.rollout, g)
    with torch.no_grad():
        trained = score(models[-1], batch.prompt, batch.response, setting.train)
    top1 = {"top1_rollout": batch.top1_rollout, "top1_train": trained.top1}
    return compare(batch.logp_rollout, trained.logp, batch.mask, **top1)


def shown(p: MismatchPanel) -> dict[str, str]:
    """The numbers as the page has them, with all their digits."""
    found = re.findall(r'data-metric="(\w+)" data-value="([^"]*)"', p.view.numbers.value)
    assert len(found) == len(dict(found))
    return dict(found)


def digits(mismatch: Mismatch) -> dict[str, str]:
    return {name: repr(x) for name, x in asdict(mismatch).items()}


def all_widgets(widget):
    yield widget
    for child in getattr(widget, "children", ()):
        yield from all_widgets(child)


@pytest.fixture(scope="module")
def kept() -> MismatchPanel:
    return panel(MODELS, TASK, sequences=N, seed=SEED)


@pytest.fixture
def p(kept):
    kept.buttons["reset"].click()
    return kept


# --- what is set, and what is shown ------------------------------------------------------


@pytest.mark.parametrize(("side", "path", "x"), CHOICES)
def test_a_control_sets_its_field_and_nothing_else(p, side, path, x):
    before = {s: {k: c.value for k, c in p.controls.inputs[s].items()} for s in SIDES}
    p.controls.inputs[side][path].value = x
    after = {s: {k: c.value for k, c in p.controls.inputs[s].items()} for s in SIDES}
    before[side][path] = x
    assert after == before
    stacks = {"rollout": Stack(), "train": Stack()}
    stacks[side] = replace_at(Stack(), path, x)
    setting = Setting(stacks["rollout"], stacks["train"])
    assert p.controls.setting() == setting
    if (side, path) in {("train", "sampler.top_p"), ("train", "sampler.min_p")}:
        assert "logp_train row 0, column 0 is infinite" in p.error.value
        return  # it would never sample what was sampled
    assert p.error.value == ""
    assert shown(p) == digits(truth(setting))


def test_marks_are_on_the_rows_that_differ(p):
    def marked():
        rows = p.controls._rows.items()
        return {path for path, row in rows if "tinyrl-differs" in row._dom_classes}

    assert marked() == set()
    p.controls.inputs["rollout"]["numerics.kv"].value = "int8"
    p.controls.inputs["train"]["sampler.temperature"].value = 0.7
    p.controls.stale.value = 2
    assert marked() == {"weights", "numerics.kv", "sampler.temperature"}
    p.controls.inputs["train"]["numerics.kv"].value = "int8"
    assert marked() == {"weights", "sampler.temperature"}


@pytest.mark.parametrize("stale", range(6))
def test_older_weights_sample(p, stale):
    p.controls.stale.value = stale
    assert shown(p) == digits(truth(Setting(Stack(), Stack(), stale)))


@pytest.mark.parametrize(("name", "setting"), panels.INJECTIONS)
def test_one_click_reaches_each_injection(p, name, setting):
    renders = []
    p.view.image.observe(renders.append, "value")
    p.buttons[name.en].click()
    p.view.image.unobserve_all("value")
    assert p.controls.setting() == setting
    assert shown(p) == digits(truth(setting))
    assert len(renders) == 1, "several controls moved, and one picture was drawn"
    for path in setting.differences():
        assert html.escape(str(LABELS[path].remedy)) in p.reading.value
    p.buttons["reset"].click()
    assert p.controls.setting() == Setting(Stack(), Stack())


def test_true_on_policy_is_exactly_zero(p):
    p.buttons["true on-policy"].click()
    numbers = shown(p)
    for name in ("mean", "mean_abs", "max_abs", "k1", "k2", "k3", "seq_max_abs"):
        assert float(numbers[name]) == 0, name
    assert float(numbers["ess"]) == float(numbers["ratio_max"]) == 1
    assert "Exactly 0" in p.view.verdict.value


def test_the_same_stacks_with_free_shapes_are_explained(p):
    assert p.view.mismatch.max_abs > 0
    assert str(ORDER) in p.reading.value


def test_align_repairs_by_giving_training_the_rollouts_stack(p):
    p.buttons["INT4 weights"].click()
    p.controls.stale.value = 3
    assert float(shown(p)["k3"]) > 1e-4
    p.buttons["align both sides"].click()
    stack = PRESETS["int4_weights"]
    assert p.controls.setting() == Setting(stack, stack)
    assert float(shown(p)["k3"]) < 1e-9


def test_reset_returns_to_where_the_panel_began():
    start = {"rollout": PRESETS["bf16"], "train": PRESETS["fp16"], "stale": 2}
    p = panel(MODELS, TASK, sequences=4, **start)
    assert p.controls.setting() == Setting(**start)
    p.buttons["true on-policy"].click()
    p.buttons["reset"].click()
    assert p.controls.setting() == Setting(**start)


def test_a_value_beyond_the_sliders_usual_range_is_kept():
    stack = replace_at(
        replace_at(Stack(), "sampler.temperature", 5.0), "positions.offset", 9
    )
    p = panel(MODELS[-1], TASK, sequences=4, rollout=stack)
    assert p.controls.setting().rollout == stack


def test_steps_of_a_slider_add_up_to_the_value_shown(p):
    p.controls.inputs["rollout"]["sampler.temperature"].value = 0.1 + 12 * 0.05
    p.controls.inputs["train"]["sampler.temperature"].value = 0.7
    assert p.controls.setting().differences() == {}


def test_training_on_does_not_change_what_was_seen():
    models = versions(2)
    p = panel(models, TASK, sequences=N, seed=SEED)
    before = shown(p)
    with torch.no_grad():
        models[-1].lm_head.weight.add_(1.0)
    p.buttons["BF16 rollout"].click()
    p.buttons["reset"].click()
    assert shown(p) == before
    p.buttons["BF16 rollout"].click()
    assert shown(p) == digits(truth(Setting(PRESETS["bf16"], Stack()), versions(2)))


def test_a_screen_reader_hears_side_and_field(p):
    heard = p.controls.inputs["rollout"]["numerics.kv"]
    assert heard.description == "Rollout: KV cache"
    assert "tinyrl-rollout-numerics-kv" in heard._dom_classes


# --- errors, speed, memory ---------------------------------------------------------------


def test_an_error_in_a_callback_is_shown_and_passes(p, monkeypatch):
    def broken(*args, **kwargs):
        raise RuntimeError("boom <b>at</b> token 3")

    with monkeypatch.context() as patch:
        patch.setattr(panels, "compare", broken)
        p.controls.inputs["rollout"]["numerics.kv"].value = "bf16"
    assert 'role="alert"' in p.error.value
    assert "<b>RuntimeError</b>: boom &lt;b&gt;at&lt;/b&gt; token 3" in p.error.value
    assert "tinyrl-failed" in p.widget._dom_classes
    assert "tinyrl-busy" not in p.widget._dom_classes
    assert shown(p) == {}, "no number of another setting may stand there"
    assert p.view.mismatch is None
    left = []
    with monkeypatch.context() as patch:
        patch.setattr(live, "display", lambda data, **_: left.append(set(data)))
        p._ipython_display_()
    assert not any("image/png" in data for data in left), "nor a picture of it be left"
    p.controls.inputs["rollout"]["numerics.kv"].value = "int8"
    assert p.error.value == ""
    assert "tinyrl-failed" not in p.widget._dom_classes
    setting = Setting(replace_at(Stack(), "numerics.kv", "int8"), Stack())
    assert shown(p) == digits(truth(setting))


def test_a_busy_panel_says_so(p, monkeypatch):
    seen = []

    def watched(*args, **kwargs):
        seen.append((p.status.value, "tinyrl-busy" in p.widget._dom_classes))
        return compare(*args, **kwargs)

    monkeypatch.setattr(panels, "compare", watched)
    p.buttons["FP8 KV cache"].click()
    assert seen == [("<i>computing ...</i>", True)]
    assert re.fullmatch(r"computed in \d+ ms", p.status.value)


def test_an_error_while_the_panel_is_made_is_raised(monkeypatch):
    def broken(*args, **kwargs):
        raise RuntimeError("boom")

    monkeypatch.setattr(panels, "score", broken)
    with pytest.raises(RuntimeError, match="boom"):
        panel(MODELS, TASK, sequences=4)


def test_what_was_seen_is_not_computed_again_and_not_kept_forever(p):
    p.buttons["BF16 rollout"].click()
    p.buttons["reset"].click()
    caches = p._rollout, p._trained
    misses = [c.cache_info().misses for c in caches]
    p.buttons["BF16 rollout"].click()
    assert [c.cache_info().misses for c in caches] == misses
    p.controls.inputs["train"]["numerics.kv"].value = "fp8_e5m2"
    assert p._rollout.cache_info().misses == misses[0], "only training changed"
    assert all(c.cache_info().maxsize <= 64 for c in caches)


def test_nothing_is_computed_while_a_slider_is_dragged(p):
    sliders = [w for w in all_widgets(p.widget) if "Slider" in type(w).__name__]
    assert len(sliders) == 17  # two sides of eight numbers, and the age
    assert not any(slider.continuous_update for slider in sliders)


def test_a_cached_picture_is_quick():
    """A loose bound for a busy machine; `make bench` prints what it takes."""
    p = panel(MODELS, TASK, seed=SEED)
    took = {"new": [], "cached": []}
    for kind in ("new", "cached", "cached"):
        for name, _ in panels.INJECTIONS:
            begun = time.process_time()
            p.buttons[name.en].click()
            took[kind].append(1e3 * (time.process_time() - begun))
    assert np.median(took["cached"]) < 400


# --- wrong calls --------------------------------------------------------------------------

ARRAYS = torch.full((2, 3), -1.0), torch.full((2, 3), -2.0)


@pytest.mark.parametrize(
    ("args", "options", "error", "message"),
    [
        (([], TASK), {}, ValueError, "models is empty"),
        ((MODELS, TASK), {"stale": 6}, ValueError, "stale is 6, but there are 6 models"),
        ((MODELS, TASK, 1), {}, TypeError, "no mask"),
        ((MODELS, ARRAYS[0]), {}, TypeError, "models and a task"),
        (ARRAYS, {"stale": 1}, TypeError, "stale"),
        ((MODELS, TASK), {"colour": 1}, TypeError, "colour"),
        ((MODELS, TASK), {"sequences": 0}, ValueError, "prompts"),
    ],
)
def test_wrong_calls_say_what_is_wrong(args, options, error, message):
    with pytest.raises(error, match=message):
        panel(*args, **options)
