"""The interview bank: whole, and true of the notebooks."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from tinyrl.course.authoring import question_files
from tinyrl.course.authoring.cited_claims import CitedError, claims_of, filled, in_words
from tinyrl.course.authoring.question_files import (
    QuestionError,
    figures,
    flat,
)
from tinyrl.course.citations import linked_markdown
from tinyrl.course.interview import questions
from tinyrl.course.interview.questions import GROUPS, TITLES, Question, Text
from tinyrl.course.syllabus import load

ROOT = Path(__file__).resolve().parents[1]
BANK = questions.load()
SYLLABUS = load(ROOT / "syllabus.yml")
LANGUAGES = ("en", "zh")
HAN = re.compile(r"[\u4e00-\u9fff]")


def texts(language: str) -> list[Text]:
    return [q.zh if language == "zh" else q.en for q in BANK.values()]


def test_70_questions_in_the_order_of_the_syllabus() -> None:
    entries = [entry for group in SYLLABUS.groups for entry in group.entries]
    assert [f"questions/{key}.md" for key in BANK] == [entry.file for entry in entries]
    assert [q.en.question for q in BANK.values()] == [entry.text for entry in entries]
    assert {group.name: group.title for group in SYLLABUS.groups} == {
        name: title.en for name, title in TITLES.items()
    }
    counts = Counter(q.group for q in BANK.values())
    assert [counts[group] for group in GROUPS] == [8, 8, 10, 10, 10, 10, 10, 4]


def test_each_says_where_it_is_shown() -> None:
    for key, question in BANK.items():
        assert question.sections, key
        for section in question.sections:
            source = (ROOT / "notebooks" / f"{section.notebook}.py").read_text("utf-8")
            assert re.search(rf"^# #+ {re.escape(section.heading)}$", source, re.M), key


@pytest.mark.parametrize("language", LANGUAGES)
def test_no_two_answers_share_a_sentence(language: str) -> None:
    seen: dict[str, str] = {}
    for key, text in zip(BANK, texts(language), strict=True):
        for sentence in sentences(text):
            assert sentence not in seen, f"{key} and {seen[sentence]}: {sentence}"
            seen[sentence] = key


def sentences(text: Text) -> list[str]:
    """What a text says, in sentences of some length, without marks."""
    parts = [part for name in FREE for part in flat(getattr(text, name))]
    split = [s for part in parts for s in re.split(r"(?<=[.!?])\s|[。！？；\n]", part)]
    bare = [re.sub(r"[\W_]+", " ", s).strip().lower() for s in split]
    return [s for s in bare if len(s.split()) > 5 or len(HAN.findall(s)) > 9]


FREE = ("sentence", "answer", "rubric", "wrong", "numbers", "follow_ups")


def test_shared_sentences_would_be_found() -> None:
    text = next(iter(BANK.values())).en
    assert len(sentences(text)) > 8
    again = sentences(text)
    assert set(sentences(text)) & set(again)


@pytest.mark.parametrize("key", BANK)
def test_an_answer_is_of_a_length_to_be_said(key: str) -> None:
    en, zh = BANK[key].en, BANK[key].zh
    assert len(en.sentence.split()) <= 45
    assert 80 <= len(en.answer.split()) <= 260
    assert 130 <= len(HAN.findall(zh.answer)) <= 520
    for text in (en, zh):
        assert 3 <= len(text.rubric) <= 6
        assert 3 <= len(text.wrong) <= 4
        says = [text.sentence, *(w.says for w in text.wrong)]
        assert len(set(says)) == len(says)


@pytest.mark.parametrize("key", BANK)
def test_each_language_is_that_language(key: str) -> None:
    assert not HAN.search(" ".join(flat_text(BANK[key].en)))
    for part in flat_text(BANK[key].zh):
        assert HAN.search(part), part
        assert not re.search(r"[\u4e00-\u9fff][,;?!]", part), f"half-width mark: {part}"


def flat_text(text: Text) -> list[str]:
    return [str(s) for name in ("question", *FREE) for s in flat(getattr(text, name))
            if s not in ("toy", "real")]  # fmt: skip


def test_what_real_numbers_cite_becomes_links() -> None:
    for key, question in BANK.items():
        for text in (question.en, question.zh):
            for number in text.numbers:
                cited = re.findall(r"[\w-]+#\d+|\d{4}\.\d{4,5}$", number.text)
                links = linked_markdown(number.text).count("](https://")
                assert links >= len(cited), f"{key}: {number.text}"


def test_bounds_in_words() -> None:
    inf = float("inf")
    assert in_words(6, 11, "en") == "between 6 and 11"
    assert in_words(6, 11, "zh") == "6 到 11"
    assert in_words(0.1, inf, "en") == "at least 0.1"
    assert in_words(-inf, 1e-05, "zh") == "不超过 1e-5"
    assert in_words(0, 0, "en") == "0"


NOTEBOOK = """
what = "hops (control: none)"
claim(what, 3, between=(1, 4), control=9)
claim("hops, late", 3, at_least=2.5, control=0)
claim("jumps", 3, at_least=limit, control=0)
claim("falls", x, equal=7, control=0)
"""


def test_a_claim_is_cited_by_the_start_of_its_name(tmp_path: Path) -> None:
    (tmp_path / "07_rabbits.py").write_text(NOTEBOOK)
    (tmp_path / "atlas.py").write_text("claim('size', 1, at_most=3)")
    claims = claims_of(tmp_path)
    assert filled("x {07: hops (c} y", "en", claims) == "x between 1 and 4 y"
    assert filled("{07: hops, l}, {07: falls}, {atlas: size}", "zh", claims) == (
        "不低于 2.5, 7, 不超过 3"
    )
    for wrong, match in (
        ("{07: hops}", "2 claims of 07"),
        ("{07: jumps}", "0 claims of 07"),
        ("{08: hops}", "no notebook '08'"),
    ):
        with pytest.raises(CitedError, match=re.escape(match)):
            filled(wrong, "en", claims)


GOOD = (ROOT / "questions" / "IV-04.md").read_text("utf-8")
CLAIMS = claims_of(ROOT / "notebooks")


@pytest.mark.parametrize(
    ("old", "new", "match"),
    [
        ("## Rubric", "## Points", "the parts are"),
        ("- [2] The same", "- [9] The same", r"IV-04.md:\d+: not of the form - \[weight\]"),
        ("# 一侧", "## 一侧", "not two languages"),
        ("- [1] One token", "- [2] One token", "weights differ"),
        ("(2510.26788).", "somewhere.", "no source in brackets"),
        ("- toy: In", "- tiny: In", "toy or real, not 'tiny'"),
        ("{03: BF16 over FP16, K3}", "{03: INT3 over FP16}", "0 claims of 03"),
        ("10 of mantissa", "11 of mantissa", "rubric: only in one language: 10, 11"),
        ("- **两侧都是", "**两侧都是", "not a bullet"),
        ("  The cast keeps", "The cast keeps", "nor indented"),
        ("  权重只是", "- “错。”\n  权重只是", "not of the form - quoted answer"),
        ("## In one", "![](picture: bits)\n\n## In one", r":5: belongs to no part: !\["),
        ("{03: BF16 over FP16, K3}", "{03:BF16 over FP16, K3}", "'{03:' may not stand"),
        ("The cast keeps", "The\u200b cast keeps", r"'\\u200b' may not stand"),
        ("- real: On", "- toy: On", "needs a toy number and a real one"),
        ("- 真实：", "- 玩具：也。\n- 真实：", "kinds of numbers differ"),
        ("- **Both sides run BF16 and K3", "  Both", "fewer than 2 in its part follow_ups"),
        ("own grid, so logits", "own grid,\n\nso logits", "one sentence is several lines"),
        ("  权重只是", "  甲。\n- “乙。”\n  权重只是", "unlike many wrong"),
        ("`exp(Δ)` stays", "`exp(Δ) stays", "opened and not closed"),
        ("error of an FP16 one", "error of an FP8 one", "only in one language: FP16, FP8"),
        (
            "Converting the sampler's logprobs to FP32 before the loss removes the mism",
            "The softmax normalises the error away, since probabilities sum to 1 on both "
            'sides."\n  Why.\n- "M',
            "two options of the choice are the same",
        ),
    ],
)
def test_a_question_that_is_not_whole_is_refused(
    tmp_path: Path, old: str, new: str, match: str
) -> None:
    assert old in GOOD
    file = tmp_path / "IV-04.md"
    file.write_text(GOOD.replace(old, new), "utf-8")
    with pytest.raises(QuestionError, match=match):
        question_files.read(file, CLAIMS)


def test_a_question_is_asked_as_the_syllabus_asks_it(tmp_path: Path) -> None:
    for name in ("questions", "notebooks"):
        (tmp_path / name).symlink_to(ROOT / name)
    asked = BANK["IV-04"].en.question
    text = (ROOT / "syllabus.yml").read_text("utf-8")
    assert text.count(asked) == 1
    (tmp_path / "syllabus.yml").write_text(text.replace(asked, "What happens?"), "utf-8")
    with pytest.raises(QuestionError, match=r"IV-04\.md:1: the syllabus asks: What"):
        question_files.bank(tmp_path)


def test_a_file_in_another_encoding_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "IV-04.md"
    file.write_text(GOOD, "utf-16")
    with pytest.raises(QuestionError, match="not in UTF-8"):
        question_files.read(file, CLAIMS)


def test_names_of_formats_hold_no_figures() -> None:
    assert figures("BF16 has 7 bits, K3 2^-7, 1,460 and 1.5B") == Counter(
        {"7": 2, "2": 1, "1,460": 1, "1.5": 1}
    )


def test_the_package_holds_what_the_files_say() -> None:
    made: list[Question] = question_files.bank(ROOT)
    assert made == [*BANK.values()]
