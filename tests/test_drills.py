"""Every numeric drill, on many seeds: its answer, its slips, both of its languages."""

from __future__ import annotations

import ast
import importlib
import math
import pkgutil
import random
import re
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from plain_drills import ANSWERS, numbers
from tinyrl.course.authoring.question_files import figures
from tinyrl.course.interview import numeric
from tinyrl.course.interview.number_entry import number
from tinyrl.course.interview.numeric import DRILLS, Drill, Task
from tinyrl.course.interview.numeric.drawing import drill, power, task
from tinyrl.course.words import Words

SEEDS = range(30)
EACH = pytest.mark.parametrize("name", DRILLS)
HAN = re.compile(r"[\u4e00-\u9fff]")


@cache
def tasks(name: str) -> list[Task]:
    return [DRILLS[name].draw(random.Random(seed)) for seed in SEEDS]


def three(x: float) -> str:
    return f"{x:.3g}"


def test_every_group_has_its_drills() -> None:
    counts = Counter(d.group for d in DRILLS.values())
    assert sum(counts.values()) >= 44
    assert set(counts) == {"I", "II", "III", "IV", "V", "VI", "VII", "VIII"}
    assert min(counts.values()) >= 3
    assert min(counts[group] for group in ("III", "IV", "V", "VI", "VII")) >= 6
    assert all(name == d.name for name, d in DRILLS.items())
    assert set(ANSWERS) == set(DRILLS)


def test_every_module_is_listed() -> None:
    names = [module.name for module in pkgutil.iter_modules(numeric.__path__)]
    modules = [importlib.import_module(f"{numeric.__name__}.{name}") for name in names]
    found: list[Drill] = [d for m in modules for d in getattr(m, "DRILLS", ())]
    assert sorted(d.name for d in found) == sorted(DRILLS)


@pytest.mark.parametrize(
    "file", sorted(Path(numeric.__path__[0]).glob("*.py")), ids=lambda f: f.stem
)
def test_torch_comes_through_the_library_alone(file: Path) -> None:
    for node in ast.parse(file.read_text("utf-8")).body:  # not those for types only
        if isinstance(node, ast.Import):
            assert "torch" not in [alias.name.partition(".")[0] for alias in node.names]
        if isinstance(node, ast.ImportFrom):
            assert (node.module or "").partition(".")[0] != "torch"


@EACH
def test_the_answer_is_that_of_plain_arithmetic(name: str) -> None:
    for drawn in tasks(name):
        text = drawn.question.en
        known = ANSWERS[name](numbers(text), text)
        assert drawn.answer == pytest.approx(known, rel=1e-4, abs=1e-9), text


@EACH
def test_a_seed_draws_the_same_task_and_others_draw_others(name: str) -> None:
    for seed in (0, 7, 29):
        assert DRILLS[name].draw(random.Random(seed)) == tasks(name)[seed]
    assert len({drawn.question.en for drawn in tasks(name)}) >= 20


@EACH
def test_the_answer_is_right_in_three_digits_and_not_in_the_question(name: str) -> None:
    for drawn in tasks(name):
        assert math.isfinite(drawn.answer)
        assert drawn.right(drawn.answer)
        assert drawn.slip(drawn.answer) is None
        assert drawn.right(number(three(drawn.answer)))
        said = {three(float(x)) for x in figures(drawn.question.en)}
        assert three(abs(drawn.answer)) not in said, drawn.question.en
        assert three(drawn.answer) in drawn.worked.en
        assert three(drawn.answer) in drawn.worked.zh


@EACH
def test_no_answer_is_right_half_of_the_time(name: str) -> None:
    said = Counter(three(drawn.answer) for drawn in tasks(name)).most_common(1)[0][0]
    assert sum(drawn.right(float(said)) for drawn in tasks(name)) <= 0.6 * len(SEEDS)


@EACH
def test_the_tolerance_is_small_and_none_for_counts(name: str) -> None:
    counts = all(drawn.answer == int(drawn.answer) for drawn in tasks(name))
    assert {drawn.within == 0 for drawn in tasks(name)} == {counts}
    for drawn in tasks(name):
        assert drawn.within <= 0.02
        if drawn.within:
            assert not drawn.right(drawn.answer * 1.03)
            assert not drawn.right(drawn.answer / 1.03)
        else:
            assert not drawn.right(drawn.answer + 1)


@EACH
def test_slips_are_told_from_the_answer_and_from_each_other(name: str) -> None:
    for drawn in tasks(name):
        values = [slip.value for slip in drawn.slips]
        assert 2 <= len(values) <= 4
        for i, slip in enumerate(drawn.slips):
            assert math.isfinite(slip.value)
            assert not close(slip.value, drawn.answer, 0.05), (drawn.question.en, slip)
            assert not any(close(slip.value, other, 0.02) for other in values[:i]), slip
            assert drawn.slip(number(three(slip.value))) == slip


def close(a: float, b: float, share: float) -> bool:
    return abs(a - b) <= share * max(abs(a), abs(b))


@EACH
def test_both_languages_say_the_same_numbers(name: str) -> None:
    for drawn in tasks(name):
        for words in (drawn.question, drawn.worked, *(slip.why for slip in drawn.slips)):
            assert figures(words.en) == figures(words.zh), words
            assert words.en
            assert not HAN.search(words.en)
            assert not re.search(r"[\u4e00-\u9fff][,;?!]", words.zh), words.zh
            # no tail of binary rounding, as in 0.30000000000000004
            assert not re.search(r"\d\.\d{8}", words.en), words.en
            assert not re.search(r"[*~<>`]|\+ -|− -|\b-0\b(?!\.)", words.en), words.en
        assert HAN.search(drawn.question.zh)
        assert all(HAN.search(slip.why.zh) for slip in drawn.slips)
        assert drawn.question.en.endswith(("?", "."))
        assert max(drawn.worked.en.count("\n"), drawn.worked.zh.count("\n")) < 4
        assert len(drawn.worked.en) <= 4 * 80


SAID = Words(en="Of 8 tokens?", zh="8 个 token？")


def test_slips_near_the_answer_or_an_earlier_slip_are_left_out() -> None:
    made = task(
        SAID,
        2.0,
        SAID,
        (2.08, "near the answer", "离答案太近"),
        (-2.0, "negative", "负的"),
        (1.0, "half", "一半"),
        (1.03, "near a slip", "离另一个太近"),
        (0.0, "nothing", "没有"),
        (4.0, "twice", "两倍"),
        (9.0, "a fifth", "第五个"),
    )
    assert [slip.value for slip in made.slips] == [-2.0, 1.0, 0.0, 4.0]


def test_a_task_whose_answer_can_be_read_is_drawn_again() -> None:
    slips = ((1.0, "one", "一"), (3.0, "three", "三"))

    def attempt(generator: random.Random) -> Task:
        return task(SAID, float(generator.choice([8, 5, math.nan, 1e-7])), SAID, *slips)

    made = drill("some", "I", attempt)
    assert {made.draw(random.Random(seed)).answer for seed in range(20)} == {5.0}
    bare = drill("bare", "I", lambda _: task(SAID, 5.0, SAID, slips[0]))
    with pytest.raises(RuntimeError, match="bare: none of 1,000 draws"):
        bare.draw(random.Random(0))


def test_powers_of_ten_as_one_writes_them() -> None:
    assert [power(1e-4), power(2e-10), power(2.98e-8, 2)] == ["1e-4", "2e-10", "2.98e-8"]
