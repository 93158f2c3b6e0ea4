"""Read the interview bank's sources, `questions/*.md`, and refuse what is not whole.

A file holds one question, first in English, then in Chinese, each under the headings of
`PARTS`. A number that the course measures is never typed: `{03: BF16 over FP16, K3}`
names a claim of notebook 03 by the start of its name, and the bounds asserted there take
its place. Usage: `python -m tinyrl.course.authoring.question_files [FILE...]`.
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

from tinyrl.course.authoring.cited_claims import CitedError, Claims, claims_of, filled
from tinyrl.course.interview.questions import (
    FollowUp,
    Number,
    Point,
    Question,
    Section,
    Text,
    Wrong,
)
from tinyrl.course.syllabus import Entry, load
from tinyrl.course.words import Language

PARTS: dict[Language, tuple[str, ...]] = {
    "en": ("In one sentence", "Answer", "Rubric", "Wrong answers", "Numbers", "Follow-ups"),
    "zh": ("一句话", "解答", "评分要点", "常见误答", "数字", "追问"),
}
KINDS = {"toy": "toy", "real": "real", "玩具": "toy", "真实": "real"}
QUOTES: dict[Language, str] = {"en": '""', "zh": "“”"}
LEAST = {"rubric": 3, "wrong": 3, "numbers": 2, "follow_ups": 2}
PICTURE = re.compile(r"!\[\]\(picture:([\w:.]+)\)")
SOURCE = re.compile(r"[（(][^()（）]*[\w#.-]+[^()（）]*[)）][。.]?$")

ODD = re.compile(r"\{\w+:|[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e]")
"""A claim cited where none is filled in, a sign that cannot be seen."""


class QuestionError(ValueError):
    """A question that is not whole; the message names file and line."""


class Line(NamedTuple):
    where: str  # "questions/IV-04.md:12"
    text: str


def read(path: Path, claims: Claims) -> tuple[Text, Text, str | None]:
    """English, Chinese and the picture of one file."""
    try:
        raw = path.read_text("utf-8")
    except UnicodeDecodeError as error:
        raise QuestionError(f"{path.name}:1: not in UTF-8: {error.reason}") from error
    lines = [
        Line(f"{path.parent.name}/{path.name}:{n}", text.rstrip())
        for n, text in enumerate(raw.splitlines(), start=1)
    ]
    pictures = [m[1] for line in lines if (m := PICTURE.fullmatch(line.text))]
    lines = [line for line in lines if not PICTURE.fullmatch(line.text)]
    starts = [i for i, line in enumerate(lines) if line.text.startswith("# ")]
    if len(starts) != 2 or starts[0] != 0 or len(pictures) > 1:
        raise QuestionError(
            f"{path.name}:1: not two languages, each begun by '# question', and at most "
            "one picture"
        )
    en = _text(lines[: starts[1]], "en", claims)
    zh = _text(lines[starts[1] :], "zh", claims)
    _agree(lines[0].where, en, zh)
    return en, zh, pictures[0] if pictures else None


def _text(lines: list[Line], language: Language, claims: Claims) -> Text:
    """One language's half of a file."""
    starts = [i for i, line in enumerate(lines) if line.text.startswith("## ")]
    headings = tuple(lines[i].text[3:] for i in starts)
    if headings != PARTS[language]:
        raise QuestionError(
            f"{lines[0].where}: the parts are {', '.join(headings)}, "
            f"not {', '.join(PARTS[language])}"
        )
    if lost := [line for line in lines[1 : starts[0]] if line.text]:
        raise QuestionError(f"{lost[0].where}: belongs to no part: {lost[0].text}")
    ends = [*starts[1:], len(lines)]
    parts = [lines[a + 1 : b] for a, b in zip(starts, ends, strict=True)]
    sentence, answer, rubric, wrong, numbers, follow_ups = parts
    quotes = QUOTES[language]
    text = Text(
        question=lines[0].text[2:],
        sentence=_paragraphs(sentence),
        answer=_paragraphs(answer),
        rubric=tuple(
            Point(int(m[1]), m[2])
            for m in _items(rubric, r"\[([123])\] (.+)", "- [weight] text")
        ),
        wrong=tuple(
            Wrong(m[1], m[2])
            for m in _items(
                wrong, rf"{quotes[0]}(.+){quotes[1]} (.+)", "- quoted answer, then why"
            )
        ),
        numbers=tuple(
            _number(m[1], m[2], numbers[0].where, language, claims)
            for m in _items(numbers, r"(\w+)[:：] ?(.+)", "- toy: or - real:")
        ),
        follow_ups=tuple(
            FollowUp(m[1], m[2])
            for m in _items(follow_ups, r"\*\*(.+?)\*\* ?(.+)", "- **question** answer")
        ),
    )
    _whole(text, lines[0].where)
    return text


def _paragraphs(lines: list[Line]) -> str:
    return "\n".join(line.text for line in lines).strip()


def _items(lines: list[Line], pattern: str, form: str) -> Iterator[re.Match[str]]:
    """The bullets of a part, continuation lines joined, each as `pattern` reads it."""
    bullets: list[Line] = []
    for where, text in lines:
        if text.startswith("- "):
            bullets.append(Line(where, text[2:]))
        elif text.strip():
            if not bullets or not text.startswith("  "):
                raise QuestionError(f"{where}: not a bullet, nor indented under one")
            bullets[-1] = Line(bullets[-1].where, f"{bullets[-1].text} {text.strip()}")
    for where, text in bullets:
        match = re.fullmatch(pattern, text)
        if match is None:
            raise QuestionError(f"{where}: not of the form {form}")
        yield match


def _number(kind: str, text: str, where: str, language: Language, claims: Claims) -> Number:
    """A figure with its cited claims filled in."""
    if kind not in KINDS:
        raise QuestionError(f"{where}: a number is toy or real, not {kind!r}")
    if KINDS[kind] == "real" and not SOURCE.search(text):
        raise QuestionError(f"{where}: no source in brackets ends: {text}")
    try:
        text = filled(text, language, claims)
    except CitedError as error:
        raise QuestionError(f"{where}: {error}") from error
    return Number("real" if KINDS[kind] == "real" else "toy", text)


def _whole(text: Text, where: str) -> None:
    for name, least in LEAST.items():
        if len(getattr(text, name)) < least:
            raise QuestionError(f"{where}: fewer than {least} in its part {name}")
    if {number.kind for number in text.numbers} != {"toy", "real"}:
        raise QuestionError(f"{where}: needs a toy number and a real one")
    if not text.sentence or "\n" in text.sentence or not text.answer:
        raise QuestionError(
            f"{where}: an answer is empty, or one sentence is several lines"
        )
    says = [text.sentence, *(wrong.says for wrong in text.wrong)]
    if len(set(says)) < len(says):
        raise QuestionError(f"{where}: two options of the choice are the same")
    for part in flat(tuple(getattr(text, name) for name in Text.__dataclass_fields__)):
        if part.count("`") % 2 or part.count("**") % 2:
            raise QuestionError(f"{where}: ` or ** is opened and not closed: {part}")
        if odd := ODD.search(part):
            raise QuestionError(f"{where}: {odd[0]!r} may not stand in: {part}")


def _agree(where: str, en: Text, zh: Text) -> None:
    """Both languages have the same parts, weights and numbers."""
    if [p.weight for p in en.rubric] != [p.weight for p in zh.rubric]:
        raise QuestionError(f"{where}: the weights differ between the languages")
    if [n.kind for n in en.numbers] != [n.kind for n in zh.numbers]:
        raise QuestionError(f"{where}: the kinds of numbers differ between the languages")
    for name in ("wrong", "follow_ups"):
        if len(getattr(en, name)) != len(getattr(zh, name)):
            raise QuestionError(f"{where}: the languages have unlike many {name}")
    for name in Text.__dataclass_fields__:
        a, b = figures(getattr(en, name)), figures(getattr(zh, name))
        if name == "numbers":
            a, b = a + _named(en.numbers), b + _named(zh.numbers)
        if a != b:
            odd = sorted((a - b) + (b - a))
            raise QuestionError(f"{where}: {name}: only in one language: {', '.join(odd)}")


def figures(part: object) -> Counter[str]:
    """The numbers of a part as they are written; BF16 and K3 are names and hold none."""
    text = part if isinstance(part, str) else " ".join(str(item) for item in flat(part))
    return Counter(re.findall(r"(?<![A-Za-z\d])\d+(?:[.,]\d+)*", text))


def _named(numbers: tuple[Number, ...]) -> Counter[str]:
    """Whose the numbers are: the issues they cite, and the formats."""
    text = " ".join(flat(numbers))
    return Counter(re.findall(r"\b(?:[\w-]+#|BF|FP|INT)\d+", text, re.ASCII))


def flat(part: object) -> Iterator[str]:
    """All strings in a part."""
    if isinstance(part, str):
        yield part
    elif isinstance(part, tuple):
        for item in part:
            yield from flat(item)


def bank(root: Path) -> list[Question]:
    """Every question under `root`, with where the syllabus says that it is taught."""
    claims, syllabus = claims_of(root / "notebooks"), load(root / "syllabus.yml")
    entries = [entry for group in syllabus.groups for entry in group.entries]
    return [_question(root, entry, claims) for entry in entries if _there(root, entry)]


def _there(root: Path, entry: Entry) -> bool:
    return entry.file is not None and (root / entry.file).is_file()


def _question(root: Path, entry: Entry, claims: Claims) -> Question:
    path = root / str(entry.file)
    en, zh, picture = read(path, claims)
    if en.question != entry.text:
        raise QuestionError(f"{entry.file}:1: the syllabus asks: {entry.text}")
    sections = tuple(
        dict.fromkeys(
            section for cell in entry.cells if (section := _section(root, cell)) is not None
        )
    )
    return Question(path.stem, en, zh, sections, entry.exercises, picture)


def _section(root: Path, cell: str) -> Section | None:
    """The heading over a cell "notebook#anchor"; None where it is not written yet."""
    notebook, _, anchor = cell.partition("#")
    path = root / "notebooks" / f"{notebook}.py"
    if not anchor or not path.is_file():
        return None
    heading = ""
    reached = False
    for line in path.read_text("utf-8").splitlines():
        if line.startswith("# %%"):
            if reached:
                break
            reached = bool(re.search(rf'"anchor:{anchor}"', line))
        elif match := re.match(r"# #+ (.+)", line):
            heading = match[1]
    return Section(notebook, heading) if reached else None


def dumps(questions: list[Question]) -> str:
    """The bank as the package keeps it."""
    return json.dumps([asdict(q) for q in questions], ensure_ascii=False, indent=1) + "\n"


def main(argv: list[str] | None = None) -> int:
    """Check the named files, or all, and say how often the right option is the longest."""
    names = sys.argv[1:] if argv is None else argv
    paths = [Path(n) for n in names] or sorted(Path("questions").glob("*.md"))
    claims, faults, texts = claims_of(Path("notebooks")), [], []
    for path in paths:
        try:
            texts.append(read(path, claims))
        except (QuestionError, OSError) as error:
            faults.append(str(error))
    print("\n".join(faults or [f"{len(texts)} questions are whole"]))
    for language, halves in {
        "en": [t[0] for t in texts],
        "zh": [t[1] for t in texts],
    }.items():
        longest = sum(map(right_is_longest, halves))
        print(f"{language}: the right option is the longest in {longest} of {len(texts)}")
    return 1 if faults else 0


def right_is_longest(text: Text) -> bool:
    """Whether somebody who always picks the longest option would be right."""
    return len(text.sentence) >= max(len(wrong.says) for wrong in text.wrong)


if __name__ == "__main__":
    sys.exit(main())
