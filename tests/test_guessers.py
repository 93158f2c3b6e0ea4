"""Who knows no RL and guesses from how options look is seldom right, in either language.

Chance is about a quarter. Every guesser may be right in less than 45 % of the questions:
those who go by one look of an option, and one who was trained on all other questions.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
from numpy.typing import NDArray

from tinyrl.course.authoring.question_files import right_is_longest
from tinyrl.course.interview import questions
from tinyrl.course.interview.questions import Question, Text, Wrong

BANK = questions.load()
LANGUAGES = ("en", "zh")
HAN = re.compile(r"[\u4e00-\u9fff]")
MOST = 0.45
Array = NDArray[np.float64]


def texts(language: str) -> list[Text]:
    return [said(question, language) for question in BANK.values()]


def said(question: Question, language: str) -> Text:
    return question.zh if language == "zh" else question.en


def options(text: Text) -> list[str]:
    """The right one first."""
    return [text.sentence, *(wrong.says for wrong in text.wrong)]


def won(scores: list[float] | Array) -> float:
    """How often the first has the highest score; of equal ones a guesser takes any."""
    best = np.isclose(scores, np.max(scores), atol=1e-9)
    return float(best[0] / best.sum())


@pytest.mark.parametrize("language", LANGUAGES)
def test_who_always_picks_the_longest_option_is_seldom_right(language: str) -> None:
    longest = sum(map(right_is_longest, texts(language)))
    assert longest < 0.4 * len(BANK)


@pytest.mark.parametrize("language", LANGUAGES)
def test_who_always_picks_the_shortest_option_is_seldom_right(language: str) -> None:
    shortest = [
        len(t.sentence) <= min(len(w.says) for w in t.wrong) for t in texts(language)
    ]
    assert sum(shortest) < 0.4 * len(BANK)


HEDGES = (
    r"\b(?:may|can|some|often|usually|mostly|about|if|unless|although|but|while|even)\b"
    "|可能|可以|通常|往往|若|如果|未必|虽|但|约"
)
ABSOLUTES = (
    r"\b(?:always|never|all|every|any|nothing|none|only|must|exactly|so|because|since)\b"
    "|总|从不|所有|每|任何|完全|一定|只|必|所以|因为|因此"
)
LOOKS: dict[str, Callable[[str], float]] = {
    "the longest": len,
    "the shortest": lambda says: -len(says),
    "most commas": lambda says: len(re.findall("[,，、]", says)),
    "most colons": lambda says: len(re.findall("[:;：；]", says)),
    "most figures": lambda says: len(re.findall(r"\d+", says)),
    "most code": lambda says: says.count("`"),
    "most hedged": lambda says: len(re.findall(HEDGES, says)),
    "least absolute": lambda says: -len(re.findall(ABSOLUTES, says)),
}


@pytest.mark.parametrize("look", LOOKS)
@pytest.mark.parametrize("language", LANGUAGES)
def test_no_look_of_an_option_gives_it_away(language: str, look: str) -> None:
    found = [won([*map(LOOKS[look], options(text))]) for text in texts(language)]
    assert np.mean(found) < MOST


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("language", LANGUAGES)
def test_nor_do_the_words_that_it_shares_with_the_question(
    language: str, sign: int
) -> None:
    found = [won([sign * x for x in asked(text)]) for text in texts(language)]
    assert np.mean(found) < MOST


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("language", LANGUAGES)
def test_nor_is_it_most_or_least_like_the_others(language: str, sign: int) -> None:
    found = [won([sign * x for x in likeness(text)]) for text in texts(language)]
    assert np.mean(found) < MOST


@pytest.mark.parametrize("language", LANGUAGES)
def test_nor_can_it_be_told_by_who_has_seen_all_other_questions(language: str) -> None:
    assert trained(texts(language), FEATURES[language]) < MOST


def asked(text: Text) -> list[int]:
    """How many words each option shares with the question."""
    return [len(units(text.question) & units(says)) for says in options(text)]


def likeness(text: Text) -> list[float]:
    """Each option's mean Jaccard similarity with the others, in words."""
    sets = [units(says) for says in options(text)]
    return [
        float(np.mean([len(a & b) / max(1, len(a | b)) for b in sets if b is not a]))
        for a in sets
    ]


def units(text: str) -> set[str]:
    """Words of four letters and more; pairs of Han signs that stand side by side."""
    pairs = {a + b for a, b in pairwise(text) if HAN.match(a) and HAN.match(b)}
    return pairs | set(re.findall(r"[a-z0-9]{4,}", text.lower()))


BOTH = (r"[,，]", r"[:：]", r"[;；]", r"[(（]", r"\d+", "`", r"[=+√Δδπμ^·/|−Σ]|exp\(|log ")
"""Marks, figures and mathematics, counted in an option of either language."""
FEATURES = {
    "en": (
        *BOTH,
        r"[A-Za-z'’-]+",
        r"\b[A-Z]{2,}\w*",
        r"\b(?:always|never|all|every|any|nothing|none|no|only|must|exactly|cannot|alone)\b",
        r"\b(?:may|can|could|might|some|often|usually|mostly|about|if|unless|although|even)\b",
        r"\b(?:because|since|so|hence|therefore|thus|for then|as|why)\b",
        r"\b(?:no|not|never|nor|neither|cannot|none|nothing|nobody|without)\b",
        r"\b(?:but|while|whereas|yet|although|however|not|instead|though|rather)\b",
        r"\b(?:both|either|neither|one|other|another|two|each|former|latter)\b",
        r"\b(?:once|when|as soon as|as long as|unless|until|whoever)\b",
        r"\b(?:would|should|could|can|may|must|has to|have to|need|will)\b",
        r"\b(?:more|less|than|better|worse|larger|smaller|most|least|too|enough)\b",
        r"\b(?:proves?|harmless|settles?|removes?|repairs?|agrees?|guarantee|safe|wrong)\b",
        r"^(?:It|They|This|That|Both|Nothing|If|There|To)\b",
        r"\bthe\b",
    ),
    "zh": (
        *BOTH,
        HAN.pattern,
        r"[A-Za-z]+",
        "、",
        "[“”]",
        "总|从不|所有|每|任何|完全|一定|只|必|全|都|就是|不可能|不会|根本",
        "可能|可以|通常|往往|若|如果|未必|虽|但|约|几乎|多半|有时|大多|一般",
        "所以|因为|因此|于是|从而|说明|因而|由于|故",
        "不|没|无|未|非",
        "但|却|而|反而|不是|仍|虽|尽管|也",
        "只要|要是|一旦|就|便|除非|无论|不管|的话",
        "会|能|要|应|得",
        "两|同|一个|另|各|其",
        "够|行|好|对|错|解决|消失|没问题|影响|无所谓|一致|放心|证明",
        "本来|反正|自然|当然|其实|真正|正是|恰|正好|才",
        "更|最|比|越|多|少",
        "被|把|让|使",
    ),
}


def trained(bank: list[Text], patterns: tuple[str, ...], ridge: float = 10.0) -> float:
    """The share that a conditional logit gets right of the questions it was not shown."""
    tables = [table(text, patterns) for text in bank]
    spread = np.concatenate(tables).std(0) + 1e-9
    width = max(map(len, tables))
    x = np.zeros((len(bank), width, len(spread)))
    there = np.zeros((len(bank), width), dtype=bool)
    for i, rows in enumerate(tables):
        x[i, : len(rows)], there[i, : len(rows)] = rows / spread, True
    every = np.arange(len(bank))
    found = [won((x[i] @ fit(x[every != i], there[every != i], ridge))[there[i]])
             for i in every]  # fmt: skip
    return float(np.mean(found))


def table(text: Text, patterns: tuple[str, ...]) -> Array:
    """`[option, feature]`, each feature with mean 0 over the options."""
    says = options(text)
    rank = [sum(len(a) > len(b) for b in says) for a in says]
    rows = [[len(re.findall(pattern, a)) for pattern in patterns] for a in says]
    more = zip(rows, map(len, says), rank, likeness(text), asked(text), strict=True)
    found = np.array([[*row, *rest] for row, *rest in more], dtype=np.float64)
    return found - found.mean(0)


def fit(x: Array, there: NDArray[np.bool_], ridge: float) -> Array:
    """Weights under which the first of a row of options is likely, by Newton's method."""
    w = np.zeros(x.shape[-1])
    for _ in range(30):
        z = np.where(there, x @ w, -np.inf)
        p = np.exp(z - z.max(1, keepdims=True))
        p /= p.sum(1, keepdims=True)
        mean = np.einsum("qo,qof->qf", p, x)
        slope = (x[:, 0] - mean).sum(0) - ridge * w
        curve = np.einsum("qo,qof,qog->fg", p, x, x) - mean.T @ mean
        step = np.linalg.solve(curve + ridge * np.eye(len(w)), slope)
        w += step
        if np.abs(step).max() < 1e-6:
            break
    return w


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("habit", ["{}, but not always", "{}: 两侧却未必如此"])
def test_the_trained_guesser_finds_a_habit(language: str, habit: str) -> None:
    """In a bank where right answers are hedged more often than not."""
    hedged = [
        text
        if i % 3 == 0
        else Text(**{**vars(text), "sentence": habit.format(text.sentence)})
        for i, text in enumerate(texts(language))
    ]
    assert trained(hedged, FEATURES[language]) > MOST


def test_likeness_is_that_of_words() -> None:
    text = BANK["I-01"].en
    wrong = (Wrong("rollout logprobs differ here", ""), Wrong("gradient", ""))
    made = Text(**{**vars(text), "sentence": "rollout logprobs differ", "wrong": wrong})
    assert likeness(made) == [pytest.approx(x) for x in (3 / 8, 3 / 8, 0)]
